"""What the tests of the command share beside fixtures."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

# 2025-06-15 15:06:40 UTC: a moment that is long ago whenever the tests run.
THEN = 1_750_000_000.0

Run = Callable[..., Result]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


COMMAND = [sys.executable, "-m", "sessionstore"]


def process(*arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run the real command with nobody to ask."""
    surroundings = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        env=surroundings | env,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
