"""From the errors of drivers to those of this package, each one sentence that says what to do."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sessionstore import server
from sessionstore.errors import ConflictError, SessionStoreError, StoreUnavailableError, shown
from sessionstore.location import Location
from sessionstore.retry import OtherThreadsError, busy, is_contention

# https://www.sqlite.org/rescode.html, codes that make a store unusable as it is.
_SQLITE_UNAVAILABLE = {
    sqlite3.SQLITE_READONLY_ROLLBACK: (
        "a program was killed while it wrote, and what it left half done has to be undone; "
        "open it once without read_only, or run: sessionstore db upgrade"
    ),
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_READONLY: "it is read-only; check the modes of the file and its folder",
    sqlite3.SQLITE_IOERR: "reading or writing failed; check the disk",
    sqlite3.SQLITE_CORRUPT: (
        "the file is damaged; restore a backup, or save what can be read: "
        "sessionstore recover FILE -o NEW"
    ),
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written, free some space and try again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the folder exists and may be written",
    sqlite3.SQLITE_NOTADB: (
        "this is not a SQLite database; name another file, or, if it was one, save what can be "
        "read: sessionstore recover FILE -o NEW"
    ),
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite can hold",
}


@contextmanager
def reporting_errors(location: Location, *, writes: bool = True) -> Iterator[None]:
    """Turn the driver's errors into this package's, the one place where that happens.

    It stands around `retry_on_contention`; contention that comes here was met once.
    """
    began_at = time.monotonic()
    try:
        yield
    except (AssertionError, RuntimeError) as error:
        # What SQLAlchemy takes for a mistake when an interrupt struck between two of its steps.
        interrupt = _interrupt_behind(error)
        if interrupt is None:
            raise
        raise interrupt from None
    except UnicodeDecodeError as error:
        # Stored text is decoded without fail; this is SQLite's own message, which quotes a
        # name in a damaged schema.
        reason = _SQLITE_UNAVAILABLE[sqlite3.SQLITE_CORRUPT]
        raise StoreUnavailableError(f"{location}: {reason} (a name in its schema)") from error
    except UnicodeEncodeError as error:
        # What a call stores is checked before; this is something that was looked for.
        msg = f"{shown(error.object)} holds half a surrogate pair, which no id, title or name can"
        raise ValueError(msg) from error
    except (DBAPIError, sqlite3.Error, PoolTimeoutError, OtherThreadsError) as error:
        if is_contention(error):
            waited_s = time.monotonic() - began_at
            raise busy(error, attempts=1, waited_s=waited_s, writes=writes) from error
        if _is_of_the_driver(error):
            msg = "something that was given cannot be asked for: no id, title or name here holds it"
            raise ValueError(f"{msg} ({_said(error)})") from error
        raise _translated(error, location) from error


def _is_of_the_driver(error: Exception) -> bool:
    """Say whether a value, such as a text with NUL, was never sent to a server.

    What is stored is checked and encoded before; this is something that was looked for.
    """
    if not isinstance(error, DataError):
        return False
    return sqlite_code(error) is None and getattr(error.orig, "sqlstate", None) is None


def _said(error: object) -> str:
    return str(getattr(error, "orig", error)).strip().partition("\n")[0]


def sqlite_code(error: BaseException) -> int | None:
    """Give SQLite's code for an error, be it the driver's, SQLAlchemy's or ours."""
    cause = error.__cause__ if isinstance(error, SessionStoreError) else error
    original = cause.orig if isinstance(cause, DBAPIError) else cause
    code: int | None = getattr(original, "sqlite_errorcode", None)
    return code


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    behind = error.__context__
    while behind is not None and not isinstance(behind, KeyboardInterrupt):
        behind = behind.__context__
    return behind


def _translated(error: Exception, location: Location) -> SessionStoreError:
    original = error.orig if isinstance(error, DBAPIError) else error
    code = sqlite_code(error)
    if code is not None:
        primary = code & 0xFF
        # Of a damaged schema SQLite quotes the statement, lines and all.
        told = " ".join(str(original).split())
        if primary == sqlite3.SQLITE_CONSTRAINT:
            return ConflictError(f"{location}: {told}; nothing was written")
        reason = _SQLITE_UNAVAILABLE.get(code) or _SQLITE_UNAVAILABLE.get(primary)
        said = f"{reason} ({told})" if reason else told
        return StoreUnavailableError(f"{location}: {said}")
    said = _said(error)
    if (getattr(original, "sqlstate", None) or "").startswith("23"):
        return ConflictError(f"{location}: {said}; nothing was written")
    reason = server.reason(original) if original else None
    said = f"{reason} ({said})" if reason else said
    effect = "" if location.path else "; nothing was written"
    return StoreUnavailableError(f"{location}: {said}{effect}")
