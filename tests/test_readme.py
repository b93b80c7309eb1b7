"""What the README prints runs, and what it names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sessionstore.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_example_runs_as_it_is_printed(tmp_path: Path):
    (example,) = blocks("python")
    env = os.environ | {"HOME": str(tmp_path), "PYTHONUTF8": "1"}

    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("s1 检查>>>网络<<<配置, then run chat-send\n[{'role': 'user'")
    assert {each.name for each in tmp_path.iterdir()} == {"state.db"}


def test_the_commands_it_names_are_there():
    named = [line.split()[:3] for block in blocks("sh") for line in block.splitlines()]

    for words in named:
        if words[0] == "sessionstore":
            assert words[1] in main.commands
        else:
            assert os.access(ROOT / words[0], os.X_OK)
    assert len(named) == 10


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https:)([^)]+)\)", README))
def test_what_it_links_to_is_there(target: str):
    assert (ROOT / target).exists()


def test_it_fits_one_screen():
    assert len(README.splitlines()) <= 60
