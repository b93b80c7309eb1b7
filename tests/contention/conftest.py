"""Other programs: processes of their own that speak with a test through a pipe."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import programs
import pytest

from sessionstore import SessionDB

# A process that has imported the package forks the programs off, so that one starts in
# milliseconds; it has no threads and has opened no store.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["sessionstore"])


class Program:
    """A running function of programs.py."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.link, theirs = _processes.Pipe()
        self.process = _processes.Process(
            target=getattr(programs, name), args=(theirs, *arguments), daemon=True
        )
        self.process.start()
        theirs.close()

    def hear(self) -> Any:
        """Wait for the next thing it says."""
        assert self.link.poll(60), "it says nothing"
        return self.link.recv()

    def tell(self, word: str = "go") -> None:
        """Let it go on."""
        self.link.send(word)

    def rest(self) -> list[Any]:
        """Wait for its end and return what it said until then; it must not have failed."""
        said = self._until_its_end()
        self.process.join(60)
        assert self.process.exitcode == 0
        return said

    def kill(self) -> list[Any]:
        """End it at once, as `kill -9` does, and return what it had said."""
        self.process.kill()
        self.process.join()
        return self._until_its_end()

    def _until_its_end(self) -> list[Any]:
        said = []
        try:
            while self.link.poll(60):
                said.append(self.link.recv())
        except (EOFError, OSError):  # the second in the middle of a word
            pass
        return said

    def stop(self) -> None:
        """End it if it still runs."""
        self.process.kill()
        self.process.join()
        self.link.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Start programs; those that still run at the end of the test are ended."""
    running: list[Program] = []

    def start(name: str, *arguments: Any) -> Program:
        program = Program(name, *arguments)
        running.append(program)
        return program

    yield start
    for program in running:
        program.stop()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty store's file."""
    made = tmp_path_factory.mktemp("empty") / "state.db"
    SessionDB(made).close()
    return made.read_bytes()
