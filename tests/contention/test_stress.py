"""Many programs use one store, and some are killed: what the script looks for does not happen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).parents[2] / "scripts" / "stress.py"


@pytest.mark.parametrize(
    "options",
    [("--processes", "4", "--seconds", "2"), pytest.param(("--long",), marks=pytest.mark.slow)],
)
def test_nothing_is_lost_or_double_when_many_write_and_some_are_killed(options: tuple[str, ...]):
    done = subprocess.run(
        [sys.executable, STRESS, *options], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        assert re.search(r": +[1-9]\d* messages,", line)
        assert line.endswith("nothing lost, nothing double, all sound")
