"""What the tests of hostile input share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionstore import SessionDB


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty store's file: walking the whole history for every test would take minutes."""
    made = tmp_path_factory.mktemp("empty") / "state.db"
    SessionDB(made).close()
    return made.read_bytes()


@pytest.fixture
def store(path: Path, empty_file: bytes) -> Iterator[SessionDB]:
    """An empty store."""
    path.write_bytes(empty_file)
    with SessionDB(path) as opened:
        yield opened
