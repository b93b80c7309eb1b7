"""What the tests of behaviour share: a clock one can set, a second look by plain SQL.

Each test runs on both back ends, unless it is about a file: it then asks for `path`, or is
marked `sqlite_only`.
"""

from __future__ import annotations

import inspect
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from clocks import Clock

from sessionstore import SessionDB, StoreSettings

Rows = list[tuple[Any, ...]]

# How a file is asked whether it is whole.
_CHECKS = ("PRAGMA foreign_key_check", "PRAGMA integrity_check", "INSERT INTO messages_fts")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" not in metafunc.fixturenames:
        return
    of_a_file = "path" in inspect.signature(metafunc.function).parameters or any(
        metafunc.definition.iter_markers("sqlite_only")
    )
    backends = [pytest.param("sqlite", id="")]
    if not of_a_file:
        backends.append(pytest.param("postgresql", id="pg", marks=pytest.mark.postgres))
    metafunc.parametrize("backend", backends)


@pytest.fixture
def where(backend: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """An empty store, as `SessionDB` wants it named."""
    if backend == "postgresql":
        return {"url": request.getfixturevalue("server_store_url")}
    path: Path = request.getfixturevalue("path")
    path.write_bytes(request.getfixturevalue("empty_file"))
    return {"db_path": path}


@pytest.fixture
def store(where: dict[str, Any]) -> Iterator[SessionDB]:
    """An empty store."""
    with SessionDB(**where) as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still at a round moment."""
    return Clock(1_700_000_000.0)


@pytest.fixture
def timed(where: dict[str, Any], clock: Clock) -> Iterator[SessionDB]:
    """An empty store that lives by `clock`."""
    with SessionDB(**where, settings=StoreSettings(clock=clock)) as opened:
        yield opened


@pytest.fixture
def sql(where: dict[str, Any]) -> Iterator[Callable[..., Rows]]:
    """Run one statement on the test's store as any other program would, and commit it."""
    with ExitStack() as opened:

        def run_in_file(statement: str, *parameters: Any) -> Rows:
            connection = sqlite3.connect(where["db_path"], timeout=10, isolation_level=None)
            try:
                return connection.execute(statement, parameters).fetchall()
            finally:
                connection.close()

        def run_on_server(statement: str, *parameters: Any) -> Rows:
            if statement.startswith(_CHECKS):
                # A server does not let it come to that.
                return [("ok",)] if "integrity" in statement else []
            # The index is no table there that could be counted.
            statement = re.sub("messages_fts(_trigram)?", "messages", statement)
            written = statement.replace("%", "%%").replace("?", "%s") if parameters else statement
            found = connection.execute(written, parameters or None)
            return found.fetchall() if found.description else []

        if "db_path" in where:
            yield run_in_file
        else:
            url = where["url"].replace("+psycopg", "")
            connection = opened.enter_context(psycopg.connect(url, autocommit=True))
            yield run_on_server
