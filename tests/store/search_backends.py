"""Stores to search in, of either kind; tests that ask for one run twice.

Of a server's store there is one for a test run, emptied before each use: making one takes as
long as a dozen tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_server import empty_database
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from sessionstore import SessionDB

__all__ = ["both", "either", "server_store", "sql", "store"]

Rows = list[tuple[Any, ...]]

EMPTY = (
    "TRUNCATE messages, sessions, system_prompts, state_meta, messages_fts, messages_fts_pending "
    "RESTART IDENTITY CASCADE"
)
SERVER = pytest.param("server", marks=pytest.mark.postgres)


def run(url: str, statement: str, *parameters: Any) -> Rows:
    """Run one statement on a server as any other program would, and commit it."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for number in range(len(parameters)):
            statement = statement.replace("?", f":p{number}", 1)
        named = {f"p{number}": each for number, each in enumerate(parameters)}
        result = connection.execute(text(statement), named)
        return [tuple(row) for row in result] if result.returns_rows else []


@pytest.fixture(scope="session")
def server_store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store on a server, whatever is in it."""
    with empty_database(request.getfixturevalue("postgres_server")) as url:
        SessionDB(url=url).close()
        yield url


@pytest.fixture(params=["file", SERVER])
def where(request: pytest.FixtureRequest, path: Path, empty_file: bytes) -> dict[str, Any]:
    """What to open: an empty store of either kind."""
    if request.param == "file":
        path.write_bytes(empty_file)
        return {"db_path": path}
    url = request.getfixturevalue("server_store")
    run(url, EMPTY)
    return {"url": url}


@pytest.fixture
def store(where: dict[str, Any]) -> Iterator[SessionDB]:
    """An empty store, in a file and on a server."""
    with SessionDB(**where) as opened:
        yield opened


@pytest.fixture
def sql(where: dict[str, Any], path: Path) -> Callable[..., Rows]:
    """Run one statement on the test's store as any other program would, and commit it."""
    url = where.get("url") or f"sqlite:///{path}"
    return lambda statement, *parameters: run(url, statement, *parameters)


@contextmanager
def either(request: pytest.FixtureRequest, folder: Path) -> Iterator[SessionDB]:
    """Open an empty store as the parameter of a fixture says; nothing else may use a server's."""
    if request.param == "file":
        with SessionDB(folder / "state.db") as opened:
            yield opened
        return
    with (
        empty_database(request.getfixturevalue("postgres_server")) as url,
        SessionDB(url=url) as opened,
    ):
        yield opened


@pytest.fixture
def both(path: Path, empty_file: bytes, server_store: str) -> Iterator[tuple[SessionDB, SessionDB]]:
    """An empty store in a file, and one on a server."""
    path.write_bytes(empty_file)
    run(server_store, EMPTY)
    with SessionDB(path) as file, SessionDB(url=server_store) as server:
        yield file, server
