"""An online copy of a store, checked before it gets its name."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from sessionstore.errors import StoreUnavailableError
from sessionstore.location import Location
from sessionstore.queueing import SUFFIX as LOCK_FILE
from sessionstore.records import BackupReport
from sessionstore.reporting import reporting_errors

T = TypeVar("T")

# Pages copied between two words about how far it is: 4 MB, a few milliseconds.
_PAGES_AT_ONCE = 1024

SIDE_FILES = ("-wal", "-shm", "-journal")


class Read(Protocol):
    """Runs a unit in one transaction that reads, as `Database.read` does."""

    def __call__(self, unit: Callable[[Connection], T]) -> T:
        """Run it; it sees one state of the database."""


def back_up(
    location: Location,
    read: Read,
    target: Path,
    *,
    overwrite: bool,
    progress: Callable[[int, int], None] | None,
) -> BackupReport:
    """Copy a store into one file, mode 0600; see `SessionDB.backup`.

    The copy is made within a transaction that reads, through the store's own connection, so
    that it is of one moment and no writer waits. It has no `-wal`: all is in the file.
    """
    if location.path is None:
        msg = f"{location} is on a server; use the server's own tool, such as pg_dump"
        raise StoreUnavailableError(msg)
    place = Path(os.path.realpath(target.expanduser()))
    _refuse(location.path, place, overwrite=overwrite)
    with temporary_beside(place) as copy:

        def copy_out(connection: Connection) -> tuple[int, int]:
            raw: Any = connection.connection.driver_connection
            # The first read fixes the moment; without one, each step of the copy has its own.
            expected = counts(raw)
            copy_database(raw, copy, progress)
            return expected

        expected = read(copy_out)
        with reporting_errors(Location(location.url, copy)):
            report = verify(copy, expected)
        put_in_place(copy, place)
    return report | {"path": str(place)}


def _refuse(store: Path, place: Path, *, overwrite: bool) -> None:
    try:
        place.exists()
    except OSError as error:  # such as a name that is too long
        msg = f"{place} cannot be made: {error.strerror or error}"
        raise StoreUnavailableError(msg) from error
    if place in files_of(store):
        msg = f"{place} is the store itself; name another file"
    elif not place.parent.is_dir():
        msg = f"{place.parent} is not a folder; create it, or name another file"
    elif place.exists() and not (overwrite and place.is_file()):
        msg = f"{place} is there already; name another, or let it be replaced (--force)"
    else:
        return
    raise StoreUnavailableError(msg)


def files_of(store: Path) -> set[Path]:
    """Give the file of a store and those that may lie beside it while it is in use."""
    return {Path(f"{store}{side}") for side in ("", LOCK_FILE, *SIDE_FILES)}


@contextmanager
def temporary_beside(place: Path) -> Iterator[Path]:
    """Make an empty file, mode 0600, in the folder of another; what is left of it goes.

    Raises:
        StoreUnavailableError: It cannot be made, or what is done with it failed for the disk.
    """
    made = place
    try:
        descriptor, name = tempfile.mkstemp(
            prefix=f".{place.name}.", suffix=".tmp", dir=place.parent
        )
        os.close(descriptor)  # no connection to this file has been opened yet
        made = Path(name)
        yield made
    except OSError as error:
        msg = f"{place} cannot be written: {error.strerror or error}"
        raise StoreUnavailableError(msg) from error
    finally:
        if made != place:
            _remove(made)


def _remove(made: Path) -> None:
    with contextlib.suppress(OSError):
        for side in ("", *SIDE_FILES):
            Path(f"{made}{side}").unlink(missing_ok=True)


def copy_database(
    source: sqlite3.Connection, target: Path, progress: Callable[[int, int], None] | None
) -> None:
    """Copy a database into an empty file, which needs no side file afterwards."""

    def told(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with closing(sqlite3.connect(target)) as copy:
        # What is on the disk only in part is never given its name; see `put_in_place`.
        source.backup(copy, pages=_PAGES_AT_ONCE, progress=told)
        copy.execute("PRAGMA journal_mode = DELETE")


def counts(raw: sqlite3.Connection) -> tuple[int, int]:
    """Count the sessions and the messages of every state."""
    sessions, messages = raw.execute(
        "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"
    ).fetchone()
    return sessions, messages


def verify(copy: Path, expected: tuple[int, int] | None) -> BackupReport:
    """Read all of a copy that nobody else knows of, and say what is in it.

    Raises:
        StoreUnavailableError: It is not whole, or not what was expected.
        sqlite3.Error: It cannot be read.
    """
    uri = f"{copy.as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as raw:
        found = [str(row[0]) for row in raw.execute("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            msg = f"{copy.name}: the copy is damaged ({found[0]}); the store may be as well"
            raise StoreUnavailableError(msg)
        sessions, messages = counts(raw)
        if expected not in (None, (sessions, messages)):
            msg = f"{copy.name}: the copy is not whole; try again"
            raise StoreUnavailableError(msg)
        return BackupReport(
            path=str(copy),
            revision=_revision(raw),
            sessions=sessions,
            messages=messages,
            bytes=copy.stat().st_size,
        )


def _revision(raw: sqlite3.Connection) -> str | None:
    try:
        row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError:
        return None  # a file of Hermes
    return None if row is None else str(row[0])


def put_in_place(copy: Path, place: Path) -> None:
    """Give a finished copy its name, once it and then the name are on the disk."""
    _sync(copy, os.O_RDWR)
    copy.replace(place)
    if os.name != "nt":  # Windows opens no folder
        _sync(place.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
