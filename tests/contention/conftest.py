"""Other programs: processes of their own that speak with a test by lines of text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB

PROGRAMS = Path(__file__).with_name("programs.py")


class Program:
    """A running function of programs.py: it says lines of JSON and waits for our word."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS), name, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> Any:
        """Wait for the next line it says."""
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def tell(self, word: str = "go") -> None:
        """Let it go on."""
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def rest(self) -> list[Any]:
        """Wait for its end and return what it said until then; it must not have failed."""
        out, error = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, error
        return [json.loads(line) for line in out.splitlines()]

    def stop(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Start programs; those that still run at the end of the test are ended."""
    running: list[Program] = []

    def start(name: str, *arguments: Any) -> Program:
        program = Program(name, *map(_plain, arguments))
        running.append(program)
        return program

    yield start
    for program in running:
        program.stop()


def _plain(argument: Any) -> Any:
    return str(argument) if isinstance(argument, Path) else argument


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty store's file."""
    made = tmp_path_factory.mktemp("empty") / "state.db"
    SessionDB(made).close()
    return made.read_bytes()
