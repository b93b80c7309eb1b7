"""Put a backup in the place of a store, and keep what was there."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypedDict

from sqlalchemy import Connection

from sessionstore.engine import make_private_folder, open_read_only
from sessionstore.errors import StoreBusyError, StoreUnavailableError
from sessionstore.location import Location, locate
from sessionstore.reporting import reporting_errors
from sessionstore.retry import is_contention
from sessionstore.schema import check_supported, read_status
from sessionstore.settings import StoreSettings
from sessionstore.upkeep.backup import (
    SIDE_FILES,
    copy_database,
    put_in_place,
    temporary_beside,
    verify,
)


class RestoreReport(TypedDict):
    """What was put in place, and under what name the old file is kept; None: there was none."""

    path: str
    revision: str | None
    sessions: int
    messages: int
    kept_as: str | None


def restore(
    source: Path,
    location: Location,
    settings: StoreSettings,
    *,
    even_if_damaged: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RestoreReport:
    """Put a copy of a backup in the place of a store; the old file stays beside it.

    The backup is read and checked in full first, and a copy of it is checked again. Then the
    store is taken out of write-ahead logging, which SQLite does only for the last connection
    there is: so nobody else has the file open when it is renamed.

    Args:
        source: The backup. It may be older than this release, and is upgraded later.
        location: The store.
        settings: Its clock dates the name of the old file.
        even_if_damaged: A store that SQLite cannot open is replaced too. Nobody can tell
            then whether another program has it open.
        progress: Called with how many of how many pages are copied.

    Raises:
        StoreUnavailableError: The backup is damaged, no store, or the store itself.
        SchemaTooNewError: A newer program made the backup.
        StoreBusyError: Another program has the store open.
    """
    place, backup = check_backup(source, location)
    make_private_folder(place.parent)
    with temporary_beside(place) as copy:
        _checked_copy(backup, copy, settings, progress)
        report = verify(copy, None)
        with _alone(place, even_if_damaged=even_if_damaged):
            kept = _put_aside(place, settings.clock())
            try:
                put_in_place(copy, place)
            except BaseException:
                if kept is not None:
                    _put_back(kept, place)
                raise
    return RestoreReport(
        path=str(place),
        revision=report["revision"],
        sessions=report["sessions"],
        messages=report["messages"],
        kept_as=None if kept is None else str(kept),
    )


def check_backup(source: Path, location: Location) -> tuple[Path, Location]:
    """Refuse what can be no backup for a store, before it is read in full.

    Returns:
        The file of the store, and where the backup is.

    Raises:
        StoreUnavailableError: It is absent, no store or the store itself, or that is no file.
        SchemaTooNewError: A newer program made it.
    """
    if location.path is None:
        msg = f"{location} is on a server; use the server's own tool, such as pg_restore"
        raise StoreUnavailableError(msg)
    backup = locate(source)
    if backup.path == location.path:
        msg = f"{location} is the store itself; name a backup"
        raise StoreUnavailableError(msg)
    if backup.path is None or not backup.path.exists():
        msg = f"{backup} does not exist; name a backup"
        raise StoreUnavailableError(msg)
    database = open_read_only(backup, StoreSettings())
    try:
        database.ask(lambda connection: _require_store(connection, backup))
    finally:
        database.close()
    return location.path, backup


def _require_store(connection: Connection, backup: Location) -> None:
    status = read_status(connection)
    check_supported(status, backup)
    if status.empty:
        msg = f"{backup} is empty; name a backup"
        raise StoreUnavailableError(msg)


def _checked_copy(
    backup: Location,
    copy: Path,
    settings: StoreSettings,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Copy a backup into an empty file if it is whole and this release knows it."""
    database = open_read_only(backup, settings)

    def copied(connection: Connection) -> None:
        _require_store(connection, backup)
        raw: Any = connection.connection.driver_connection
        _refuse_cut(raw, backup)
        found = [str(row[0]) for row in raw.execute("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            msg = f"{backup} is damaged ({' '.join(found[0].split())}); nothing was changed"
            raise StoreUnavailableError(msg)
        copy_database(raw, copy, progress)

    try:
        with reporting_errors(backup):
            database.read(copied)
    finally:
        database.close()


def _refuse_cut(raw: sqlite3.Connection, backup: Location) -> None:
    """Refuse a file that ends before its last page; SQLite reads what lacks as zeros.

    What stands in a log beside it is not in the file yet, and so is not missed.
    """
    path = backup.path
    if path is None or Path(f"{path}-wal").exists():
        return
    (page,), (pages,) = (
        raw.execute(f"PRAGMA {name}").fetchone() for name in ("page_size", "page_count")
    )
    if (size := path.stat().st_size) < page * pages:
        msg = f"{backup} is cut short: {size:,} of {page * pages:,} bytes; nothing was changed"
        raise StoreUnavailableError(msg)


@contextmanager
def _alone(place: Path, *, even_if_damaged: bool) -> Iterator[None]:
    """Hold a store so that nobody else has it open or can change it."""
    if not place.exists():
        yield
        return
    with closing(sqlite3.connect(f"{place.as_uri()}?mode=rw", uri=True, timeout=1.0)) as raw:
        raw.isolation_level = None
        try:
            # Succeeds for the last connection only, and moves the log into the file
            # (https://www.sqlite.org/pragma.html#pragma_journal_mode).
            raw.execute("PRAGMA journal_mode = DELETE").fetchone()
            raw.execute("BEGIN EXCLUSIVE")
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if is_contention(error):
                msg = f"{place} is in use by another program; end it and try again"
                raise StoreBusyError(msg, attempts=1, waited_s=1.0) from error
            if not even_if_damaged:
                msg = (
                    f"{place} cannot be opened ({error}), so nobody can tell who uses it; end "
                    "every program that does, then restore with --even-if-damaged"
                )
                raise StoreUnavailableError(msg) from error
        yield


def _put_aside(place: Path, now: float) -> Path | None:
    """Give the old file and what belongs to it another name; return that.

    It keeps its own as well until the new file takes it, so that a store is there at every
    moment, unless the file system has no second names.
    """
    if not place.exists():
        for side in SIDE_FILES:  # a log without its file would be taken for the new one's
            if Path(f"{place}{side}").exists():
                msg = f"{place}{side} is there without its store; move it away first"
                raise StoreUnavailableError(msg)
        return None
    stamp = time.strftime("%Y%m%dT%H%M%S", time.localtime(now))
    aside = Path(f"{place}.before-restore-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = Path(f"{place}.before-restore-{stamp}-{number}")
    for side in SIDE_FILES:
        _rename(Path(f"{place}{side}"), Path(f"{aside}{side}"))
    try:
        os.link(place, aside)
    except OSError:
        _rename(place, aside)
    return aside


def _put_back(aside: Path, place: Path) -> None:
    """Undo `_put_aside`."""
    if place.exists() and place.samefile(aside):
        aside.unlink()  # to rename one of two names of a file to the other does nothing
    for side in ("", *SIDE_FILES):
        _rename(Path(f"{aside}{side}"), Path(f"{place}{side}"))


def _rename(old: Path, new: Path) -> None:
    """Rename a file, if it is there."""
    try:
        old.rename(new)
    except FileNotFoundError:
        return
    except OSError as error:
        msg = f"{old} cannot be renamed: {error.strerror or error}"
        raise StoreUnavailableError(msg) from error
