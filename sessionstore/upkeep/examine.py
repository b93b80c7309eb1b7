"""Look a store over without changing it: the machine, the file, the schema, what is derived."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from sqlalchemy import Connection

from sessionstore import queueing
from sessionstore.engine import Database
from sessionstore.errors import SessionStoreError, StoreBusyError
from sessionstore.location import Location
from sessionstore.models import SCHEMA_REVISION
from sessionstore.repository import prompts
from sessionstore.schema import SchemaStatus, read_status, upgrade_command
from sessionstore.upkeep.backup import SIDE_FILES
from sessionstore.upkeep.derived import differing, miscounted, misdated, schema_objects

# The first version with write-ahead logging, and the last in which a checkpoint that begins as
# the log is reset can lose what another connection commits at that moment; two older lines
# were given the cure as well (https://www.sqlite.org/wal.html, "The WAL-reset bug").
_WAL_RESET = ((3, 7, 0), (3, 51, 2))
_WAL_RESET_CURED = {(3, 44, 6), (3, 50, 7)}
_SHOWN = 5

# `note` is worth knowing, `wrong` has to be seen to.
State: TypeAlias = Literal["ok", "note", "wrong"]


class Finding(TypedDict):
    """One thing that was looked at.

    `means` and `fix` are None where nothing is to be said; `fix` says what a repair would do,
    and `repairable` whether one would do anything at all.
    """

    subject: str
    state: State
    found: str
    means: str | None
    fix: str | None
    repairable: bool


def _fine(subject: str, found: str) -> Finding:
    return Finding(subject=subject, state="ok", found=found, means=None, fix=None, repairable=False)


def _note(subject: str, found: str, means: str, fix: str, *, repairable: bool = False) -> Finding:
    return Finding(
        subject=subject, state="note", found=found, means=means, fix=fix, repairable=repairable
    )


def _wrong(subject: str, found: str, means: str, fix: str, *, repairable: bool = False) -> Finding:
    return Finding(
        subject=subject, state="wrong", found=found, means=means, fix=fix, repairable=repairable
    )


def examine(
    database: Database, expected: Callable[[], Mapping[str, tuple[str, str]]]
) -> Iterator[Finding]:
    """Look a store over that may be old or damaged; see `docs/cli.md` for what is looked at.

    Args:
        database: The store, opened to read.
        expected: Gives the indexes and triggers of a fresh store; asked only if it is needed.
    """
    location = database.location
    if location.path is not None:
        yield sqlite_version(sqlite3.sqlite_version_info)
        yield _modes(location.path)
        readable = list(_asked(database, "file", _is_readable))
        if readable:
            yield from readable
            return
        yield from _asked(database, "journal", _journal)
    current = False
    for finding in sound(database):
        yield finding
        current = current or (finding["subject"] == "schema" and finding["state"] == "ok")
    if not current or location.path is None:
        return
    yield from _asked(database, "indexes and triggers", lambda db: [_drift(db, expected())])
    yield from _asked(database, "counters", lambda db: [_counters(db)])
    yield from _asked(database, "last activity", lambda db: [_activity(db)])
    yield from _asked(database, "prompts", lambda db: [_prompts(db)])


def sound(database: Database) -> Iterator[Finding]:
    """Say whether the file is whole, whether references lead somewhere, and the schema is current.

    Of a server the schema alone: it looks after its files and references itself.
    """
    if database.location.path is not None:
        yield from _asked(database, "file", _integrity)
        yield from _asked(database, "references", _references)
    yield from _asked(database, "schema", lambda db: [_schema(read_status(db), database.location)])


def _asked(
    database: Database, subject: str, question: Callable[[Connection], Sequence[Finding]]
) -> Sequence[Finding]:
    """Ask one question in a transaction of its own; what cannot be asked is a finding."""
    try:
        return database.ask(question)
    except StoreBusyError:
        raise
    except SessionStoreError as error:
        return [_wrong(subject, str(error), "It could not be looked at.", "nothing")]


def sqlite_version(version: tuple[int, ...]) -> Finding:
    """Say which SQLite is linked and whether it is known to lose writes."""
    written = ".".join(map(str, version))
    first, last = _WAL_RESET
    if not first <= version <= last or version in _WAL_RESET_CURED:
        return _fine("SQLite", written)
    return _note(
        "SQLite",
        f"{written} has the WAL-reset fault",
        "Where two programs write and checkpoint at the very same moment, the file can be "
        "damaged; it is rare. Use 3.51.3 or later (or 3.50.7, 3.44.6), and keep backups.",
        "nothing; this is the library that Python was built with",
    )


def _modes(path: Path) -> Finding:
    open_to = []
    for side in ("", *SIDE_FILES, queueing.SUFFIX):
        try:
            mode = stat.S_IMODE(Path(f"{path}{side}").stat().st_mode)
        except OSError:
            continue
        if mode & 0o077:
            open_to.append(f"{path.name}{side} is {mode:04o}")
    if not open_to:
        return _fine("modes", "only the owner may read")
    return _note(
        "modes",
        ", ".join(open_to),
        "Others on this machine may read the conversations. If that is not meant: "
        f"chmod 600 {path}",
        "nothing; who may read is the owner's business",
    )


def _is_readable(connection: Connection) -> list[Finding]:
    """Say nothing if the schema can be read; nothing else could, if it cannot."""
    connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").all()
    return []


def _journal(connection: Connection) -> list[Finding]:
    raw: Any = connection.connection.driver_connection
    (mode,) = raw.execute("PRAGMA journal_mode").fetchone()
    (encoding,) = raw.execute("PRAGMA encoding").fetchone()
    findings = [_fine("journal", "write-ahead log")]
    if type(raw) is not sqlite3.Connection:
        # A file that nobody has open is read without its journal, which so tells no mode.
        findings = [_fine("journal", "nobody has the file open")]
    elif mode != "wal":
        findings = [
            _note(
                "journal",
                f"{mode} journal",
                "Readers and the writer wait for each other. The next program that writes "
                "switches to a write-ahead log, unless the file system refuses one.",
                "nothing",
            )
        ]
    if encoding != "UTF-8":
        findings.append(
            _wrong(
                "encoding",
                str(encoding),
                "Another program made this file; search expects UTF-8.",
                "nothing; export and import into a new store",
            )
        )
    return findings


# What it means that rows of a table refer to none of another.
_DANGLING = {
    ("messages", "sessions"): (
        "Such messages belong to no session, and are neither listed nor found."
    ),
    ("sessions", "sessions"): "Such sessions have lost their parent, and are listed without one.",
    ("sessions", "system_prompts"): "Such sessions have lost their system prompt.",
    ("session_model_usage", "sessions"): (
        "Such usage is added up by model, though its session is gone."
    ),
}


def _integrity(connection: Connection) -> list[Finding]:
    rows = connection.exec_driver_sql(f"PRAGMA integrity_check({_SHOWN})").scalars().all()
    if list(rows) == ["ok"]:
        return [_fine("file", "every page and index is whole")]
    return [
        _wrong(
            "file",
            "; ".join(" ".join(str(row).split()) for row in rows),
            "Pages of the file are damaged, by the disk or by a program that wrote past "
            "SQLite. Restore a backup, or save what can still be read: "
            "sessionstore recover FILE -o NEW.",
            "nothing",
        )
    ]


def _references(connection: Connection) -> list[Finding]:
    broken: dict[tuple[str, str], list[int]] = {}
    for table, rowid, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        broken.setdefault((table, parent), []).append(rowid)
    if not broken:
        return [_fine("references", "none leads nowhere")]
    told = ", ".join(
        f"1 row of {table} refers to a row of {parent} that is not there (rowid {rows[0]})"
        if len(rows) == 1
        else f"{len(rows):,} rows of {table} refer to rows of {parent} that are not there "
        f"(rowids {_named([str(row) for row in rows])})"
        for (table, parent), rows in broken.items()
    )
    return [
        _wrong(
            "references",
            told,
            " ".join(_DANGLING.get(pair, "") for pair in broken).strip()
            or "Another program made these tables.",
            "nothing; what was stored is never deleted by it",
        )
    ]


def _schema(status: SchemaStatus, location: Location) -> Finding:
    if status.up_to_date:
        return _fine("schema", f"{status.label}, the newest")
    if status.empty:
        return _wrong(
            "schema",
            "nothing was ever stored here",
            f"It is not a store yet; to make one of it: {upgrade_command(location)}",
            f"nothing; run {upgrade_command(location)}",
        )
    return _wrong(
        "schema",
        f"at {status.label}, not {SCHEMA_REVISION}",
        f"This release works with the newest schema only; upgrade: {upgrade_command(location)}",
        f"nothing; run {upgrade_command(location)}",
    )


def _drift(connection: Connection, expected: Mapping[str, tuple[str, str]]) -> Finding:
    found = schema_objects(connection)
    other = differing(found, expected)
    if not other:
        return _fine("indexes and triggers", "as in a fresh store")
    return _wrong(
        "indexes and triggers",
        f"missing or changed: {', '.join(other)}",
        "Counters, times and the search index are kept by triggers; without them they fall "
        "behind. Another program has changed the schema.",
        "make them anew as a fresh store has them",
        repairable=True,
    )


def _counters(connection: Connection) -> Finding:
    other = miscounted(connection)
    if not other:
        return _fine("counters", "each follows its rows")
    return _wrong(
        "counters",
        f"{_named(other)}: not as many messages or tool calls as counted",
        "Lists, filters and prune go by these figures.",
        "count again from the messages, which stay as they are",
        repairable=True,
    )


def _activity(connection: Connection) -> Finding:
    other = misdated(connection)
    if not other:
        return _fine("last activity", "each is that of the latest message")
    return _wrong(
        "last activity",
        f"{_named(other)}: not the time of the latest message",
        "Lists are in the wrong order, and prune may take or leave the wrong sessions.",
        "take it again from the messages, which stay as they are",
        repairable=True,
    )


def _prompts(connection: Connection) -> Finding:
    count = prompts.count_unused(connection)
    if not count:
        return _fine("prompts", "each is some session's")
    return _note(
        "prompts",
        f"{count} that no session has",
        "They take room, and nobody can come to them.",
        "delete them",
        repairable=True,
    )


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


def index_finding(troubles: Sequence[str]) -> Finding:
    """Say what is wrong with the search index, of which a list of sentences is told."""
    if not troubles:
        return _fine("search index", "says what the messages say")
    return _wrong(
        "search index",
        "; ".join(troubles[:_SHOWN]),
        "Search may miss messages or scan all of them, slowly; nothing is lost.",
        "make it anew from the messages",
        repairable=True,
    )
