"""Which store a command is about, and which of its sessions somebody means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from sessionstore.cli.output import Failure
from sessionstore.errors import AmbiguousSessionError, SessionNotFoundError
from sessionstore.export.text import safe
from sessionstore.location import Location, locate
from sessionstore.store import SessionDB, open_at

F = TypeVar("F", bound=Callable[..., Any])

_DB, _URL = "sessionstore.db", "sessionstore.url"
_NAMED_MATCHES = 10


def _remember(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def remember(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        # `meta` is shared by the contexts of a command and its groups.
        if value is not None:
            ctx.meta[key] = value

    return remember


def store_options(command: F) -> F:
    """Give a command `--db` and `--url`; they may stand before its name or after it."""
    for option, key, metavar, text in (
        ("--url", _URL, "URL", "The store, as an SQLAlchemy URL."),
        ("--db", _DB, "PATH", "The store, as an SQLite file."),
    ):
        command = click.option(
            option, expose_value=False, callback=_remember(key), metavar=metavar, help=text
        )(command)
    return command


def chosen_location() -> Location:
    """Say where the store is that the command line names, or else the default one."""
    meta = click.get_current_context().meta
    path, url = meta.get(_DB), meta.get(_URL)
    if path is not None and url is not None:
        raise click.UsageError("name the store once: either --db or --url")
    if path is not None and "://" in path:  # it may hold a password, so it is not repeated
        raise click.UsageError("--db takes a path; a URL goes to --url")
    try:
        return locate(path, url=url)
    except ValueError as error:
        raise Failure(str(error)) from error


def require_none_chosen() -> None:
    """Refuse `--db` and `--url` before a command that names its stores itself."""
    meta = click.get_current_context().meta
    if meta.get(_DB) is not None or meta.get(_URL) is not None:
        raise click.UsageError("this command names its stores itself, without --db and --url")


def existing_location() -> Location:
    """Say the same, for a command that makes nothing: a file has to be there.

    Only whether there is such a file is asked; the store says the rest.
    """
    location = chosen_location()
    if location.path is not None and not location.path.exists():
        raise Failure(
            f"{location} does not exist; name another store with --db, or create one: "
            "sessionstore db upgrade"
        )
    return location


@contextmanager
def opened(*, to_write: bool = False) -> Iterator[SessionDB]:
    """Open the store, to read unless it is said: nothing is made, changed or upgraded.

    What the store finds wrong with the input ends the command with one line.
    """
    location = existing_location()
    try:
        with open_at(location, read_only=not to_write, migrate=False) as db:
            yield db
    except ValueError as error:
        raise Failure(str(error)) from error


def resolve_session(db: SessionDB, name: str) -> str:
    """Turn what somebody calls a session into its id.

    An exact id, else the very title, else the newest of that title's lineage, else what only
    one id begins with.

    Raises:
        AmbiguousSessionError: Several ids begin so.
        SessionNotFoundError: None does.
    """
    message = (
        f"no session has the id or title {safe(name)!r}; sessionstore list shows those there are"
    )
    if not name or not _is_text(name):
        raise SessionNotFoundError(name, message)
    if db.get_session(name) is not None:
        return name
    if (held := db.get_session_by_title(name)) is not None:
        return held["id"]
    if (newest := db.resolve_session_by_title(name)) is not None:
        return newest
    matches = db.find_session_ids(name)
    if len(matches) > 1:
        shown = ", ".join(matches[:_NAMED_MATCHES])
        more = len(matches) - _NAMED_MATCHES
        rest = f" and {more} more" if more > 0 else ""
        raise AmbiguousSessionError(
            f"{name!r} begins {len(matches)} ids: {shown}{rest}; write more of the one you mean",
            matches=matches,
        )
    if not matches:
        raise SessionNotFoundError(name, message)
    return matches[0]


def resolve_sessions(db: SessionDB, names: Sequence[str]) -> list[str]:
    """Turn several names into ids, each once, in the order given; see `resolve_session`."""
    return list(dict.fromkeys(resolve_session(db, name) for name in names))


def _is_text(name: str) -> bool:
    """Say whether UTF-8 can hold it; an argument of other bytes comes in as half surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
