"""What the tests of behaviour share: a clock one can set, a second look by plain SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB, StoreSettings

Rows = list[tuple[Any, ...]]


class Clock:
    """Gives the time that a test says, and the same until it says otherwise."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(path: Path, empty_file: bytes) -> Iterator[SessionDB]:
    """An empty store."""
    path.write_bytes(empty_file)
    with SessionDB(path) as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still at a round moment."""
    return Clock(1_700_000_000.0)


@pytest.fixture
def timed(path: Path, empty_file: bytes, clock: Clock) -> Iterator[SessionDB]:
    """An empty store that lives by `clock`."""
    path.write_bytes(empty_file)
    with SessionDB(path, settings=StoreSettings(clock=clock)) as opened:
        yield opened


@pytest.fixture
def sql(path: Path) -> Callable[..., Rows]:
    """Run one statement on the test's file as any other program would, and commit it."""

    def run(statement: str, *parameters: Any) -> Rows:
        connection = sqlite3.connect(path, timeout=10, isolation_level=None)
        try:
            return connection.execute(statement, parameters).fetchall()
        finally:
            connection.close()

    return run
