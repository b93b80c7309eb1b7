"""Where a store is: what a caller names, or else what this machine has as its default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from sessionstore import server
from sessionstore.errors import StoreUnavailableError, shown
from sessionstore.settings import default_location, home_expanded


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is: a SQLite file, or a server named by a URL.

    Attributes:
        url: The SQLAlchemy URL.
        path: The SQLite file, symbolic links resolved; None for a server.
    """

    url: URL
    path: Path | None

    def __str__(self) -> str:
        """The file, or the URL with its passwords hidden."""
        if self.path:
            return str(self.path)
        # libpq takes passwords as parameters too
        # (https://www.postgresql.org/docs/current/libpq-connect.html).
        hidden = {name: "hidden" for name in self.url.query if "password" in name.lower()}
        return self.url.update_query_dict(hidden).render_as_string(hide_password=True)


def locate(
    db_path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
    *,
    url: str | URL | None = None,
) -> Location:
    """Turn what the caller named, or else the defaults of this machine, into a location.

    Raises:
        ValueError: Both were given, the URL names no database this package knows, or the
            path can be no path.
        StoreUnavailableError: The database would live in memory only.
    """
    if db_path is not None and url is not None:
        msg = "name the store once: either a path or a url"
        raise ValueError(msg)
    named = "this"
    if db_path is None and url is None:
        named = "SESSIONSTORE_URL"  # no other default is a URL
        default = default_location()
        url, db_path = (default, None) if isinstance(default, str) else (None, default)
    if db_path is not None:
        return _locate_file(os.fsdecode(db_path))
    parsed = _parsed(url)
    if parsed is None:
        forms = "sqlite:///FILE or postgresql+psycopg://HOST/NAME"
        msg = f"{named} is not a database URL; write {forms}"
        raise ValueError(msg)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _locate_file(parsed.database or ":memory:")
    if backend != "postgresql":
        msg = f"{backend} is not supported; use sqlite or postgresql"
        raise ValueError(msg)
    if "@" in (parsed.host or ""):
        # What is left of a password would be taken for the host, and shown as one.
        msg = f"{named} is not a database URL: an @ in a user or a password is written %40"
        raise ValueError(msg)
    server.schema_of(parsed)
    return Location(parsed, None)


def _parsed(url: str | URL | None) -> URL | None:
    """Read a URL; None if it is none.

    What SQLAlchemy says of one quotes pieces of it, which may be a password, so its errors are
    not even the context of ours.
    """
    try:
        parsed = make_url(url)  # type: ignore[arg-type] # one of the two is set
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError):
        return None
    return parsed


def _locate_file(name: str) -> Location:
    if not name or name == ":memory:" or name.startswith("file:"):
        msg = (
            f"{shown(name or 'an empty path')} is not a file path; a store is a file, "
            "since several connections share it. For a passing one use a temporary folder"
        )
        raise StoreUnavailableError(msg)
    if "\0" in name:
        msg = f"{shown(name)} is not a path: no name of a file holds a NUL character"
        raise ValueError(msg)
    # SQLite puts -wal and -shm beside the file that a link points to, so that one is meant.
    path = Path(os.path.realpath(home_expanded(name)))
    return Location(URL.create("sqlite", database=str(path)), path)
