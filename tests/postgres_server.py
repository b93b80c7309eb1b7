"""A PostgreSQL server for tests: one that is named, or one of our own for the run.

`SESSIONSTORE_TEST_POSTGRES` names a server by URL, with a database to connect to and the
right to create others. Else the installed binaries start one in a temporary folder, on a
Unix socket only, and it goes with the test run. Each test gets a database of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

VARIABLE = "SESSIONSTORE_TEST_POSTGRES"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """A running server; the tests that ask for it are skipped where there is none."""
    if named := os.environ.get(VARIABLE):
        yield make_url(named)
        return
    if find_binaries() is None:
        pytest.skip(f"NO POSTGRESQL TESTED: set {VARIABLE} or install the PostgreSQL server")
    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: URL) -> Iterator[str]:
    """An empty database."""
    with empty_database(postgres_server) as url:
        yield url


@contextmanager
def empty_database(server: URL) -> Iterator[str]:
    """Create a database, and drop it at the end whoever is still connected."""
    name = f"sessionstore_{uuid.uuid4().hex}"
    _execute(server, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(server: URL, statement: str) -> None:
    engine = create_engine(server, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)


def find_binaries() -> Path | None:
    """The folder with initdb and pg_ctl, or None."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if shutil.which("pg_config"):
        said = subprocess.run(
            ["pg_config", "--bindir"], capture_output=True, text=True, check=False
        )
        folders.insert(0, Path(said.stdout.strip()))
    if found := shutil.which("initdb"):
        folders.append(Path(found).resolve().parent)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None


@contextmanager
def running_server() -> Iterator[URL]:
    """Start a server that forgets everything, and stop it."""
    binaries = find_binaries()
    assert binaries is not None
    # Short, since the path of a Unix socket has to fit into 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        # The server refuses to run as root.
        shutil.chown(folder, "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [*as_user, str(binaries / program), "-D", str(folder / "data"), *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )

    try:
        run("initdb", "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C.UTF-8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=100"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield URL.create(
                "postgresql+psycopg",
                username="postgres",
                database="postgres",
                query={"host": str(folder)},
            )
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
