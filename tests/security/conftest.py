"""What the tests of hostile input share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionstore import SessionDB


@pytest.fixture
def store(path: Path, empty_file: bytes) -> Iterator[SessionDB]:
    """An empty store."""
    path.write_bytes(empty_file)
    with SessionDB(path) as opened:
        yield opened
