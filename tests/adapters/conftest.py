"""What the tests of adapters share: an empty store's file, and a server's store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import empty_database
from sqlalchemy.engine import URL

from sessionstore import SessionDB


@pytest.fixture
def file(path: Path, empty_file: bytes) -> Path:
    """The file of an empty store."""
    path.write_bytes(empty_file)
    return path


@pytest.fixture(scope="session")
def on_server(postgres_server: URL) -> Iterator[SessionDB]:
    """A store on a server; one for the run, since the history takes a second there."""
    with empty_database(postgres_server) as url, SessionDB(url=url) as opened:
        yield opened


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> Iterator[SessionDB]:
    """An empty store, on each back end."""
    if request.param == "sqlite":
        with SessionDB(request.getfixturevalue("file")) as opened:
            yield opened
        return
    opened = request.getfixturevalue("on_server")
    yield opened
    for session_id in opened.session_ids():
        opened.delete_session(session_id)
