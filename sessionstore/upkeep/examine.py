"""Look a store over without changing it: the machine, the file, the schema, what is derived."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from sessionstore.engine import Database
from sessionstore.errors import SessionStoreError
from sessionstore.models import SCHEMA_REVISION
from sessionstore.reporting import reporting_errors
from sessionstore.schema import SchemaStatus, read_status
from sessionstore.upkeep.findings import Finding, fine, note, wrong

# The first version with write-ahead logging, and the last in which a checkpoint that begins as
# the log is reset can lose what another connection commits at that moment; two older lines
# were given the cure as well (https://www.sqlite.org/wal.html, "The WAL-reset bug").
_WAL_RESET = ((3, 7, 0), (3, 51, 2))
_WAL_RESET_CURED = {(3, 44, 6), (3, 50, 7)}
_SHOWN = 5

# What counters would be if they were counted anew; what JSON cannot read makes no calls.
_MISCOUNTED = text(
    "SELECT s.id, s.message_count, s.tool_call_count, count(m.id) AS messages, "
    "coalesce(sum(CASE WHEN m.role <> 'tool' AND json_valid(m.tool_calls) "
    "AND json_type(m.tool_calls) = 'array' THEN json_array_length(m.tool_calls) END), 0) AS calls "
    "FROM sessions s LEFT JOIN messages m ON m.session_id = s.id AND m.active = 1 GROUP BY s.id "
    "HAVING messages <> coalesce(s.message_count, 0) OR calls <> coalesce(s.tool_call_count, 0)"
)
LATEST = (
    "(SELECT max(m.timestamp) FROM messages m WHERE m.session_id = sessions.id "
    "AND typeof(m.timestamp) IN ('real', 'integer'))"
)
_MISDATED = text(f"SELECT id FROM sessions WHERE last_active_at IS NOT {LATEST}")  # noqa: S608 - constants
_UNUSED = (
    "FROM system_prompts WHERE hash NOT IN "
    "(SELECT system_prompt_hash FROM sessions WHERE system_prompt_hash IS NOT NULL)"
)
_OBJECTS = text(
    "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL "
    "AND type IN ('index', 'trigger', 'view')"
)


def miscounted(connection: Connection) -> list[tuple[str, int, int]]:
    """List the sessions whose counters do not follow their live messages, and what would."""
    return [(row.id, row.messages, row.calls) for row in connection.execute(_MISCOUNTED)]


def misdated(connection: Connection) -> list[str]:
    """List the sessions whose time of last activity is not that of their latest message."""
    return list(connection.execute(_MISDATED).scalars())


def unused_prompts(connection: Connection) -> int:
    """Count the system prompts that no session has."""
    return int(connection.exec_driver_sql(f"SELECT count(*) {_UNUSED}").scalar_one())


def drop_unused_prompts(connection: Connection) -> None:
    """Delete the system prompts that no session has."""
    connection.exec_driver_sql(f"DELETE {_UNUSED}")


def schema_objects(connection: Connection) -> dict[str, tuple[str, str]]:
    """Give the indexes, triggers and views there are: name to kind and text."""
    return {name: (kind, sql) for kind, name, sql in connection.execute(_OBJECTS)}


def differing(
    found: Mapping[str, tuple[str, str]], expected: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Name what is missing or reads otherwise than it should; white space does not count."""
    return sorted(
        name
        for name, (_, sql) in expected.items()
        if name not in found or found[name][1].split() != sql.split()
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
        yield from _asked(database, "file", _integrity)
        yield from _asked(database, "references", _references)
    statuses: list[SchemaStatus] = []
    yield from _asked(database, "schema", lambda db: [_schema(db, statuses)])
    if not (statuses and statuses[0].up_to_date) or location.path is None:
        return
    yield from _asked(database, "indexes and triggers", lambda db: [_drift(db, expected())])
    yield from _asked(database, "counters", lambda db: [_counters(db)])
    yield from _asked(database, "last activity", lambda db: [_activity(db)])
    yield from _asked(database, "prompts", lambda db: [_prompts(db)])


def _asked(
    database: Database, subject: str, question: Callable[[Connection], Sequence[Finding]]
) -> Sequence[Finding]:
    """Ask one question in a transaction of its own; what cannot be asked is a finding."""
    try:
        with reporting_errors(database.location):
            return database.read(question)
    except SessionStoreError as error:
        return [wrong(subject, str(error), "It could not be looked at.", "nothing")]


def sqlite_version(version: tuple[int, ...]) -> Finding:
    """Say which SQLite is linked and whether it is known to lose writes."""
    written = ".".join(map(str, version))
    first, last = _WAL_RESET
    if not first <= version <= last or version in _WAL_RESET_CURED:
        return fine("SQLite", written)
    return note(
        "SQLite",
        f"{written} has the WAL-reset fault",
        "Where two programs write and checkpoint at the very same moment, the file can be "
        "damaged; it is rare. Use 3.51.3 or later (or 3.50.7, 3.44.6), and keep backups.",
        "nothing; this is the library that Python was built with",
    )


def _modes(path: Path) -> Finding:
    open_to = []
    for side in ("", "-wal", "-shm", "-lock"):
        try:
            mode = stat.S_IMODE(Path(f"{path}{side}").stat().st_mode)
        except OSError:
            continue
        if mode & 0o077:
            open_to.append(f"{path.name}{side} is {mode:04o}")
    if not open_to:
        return fine("modes", "only the owner may read")
    return note(
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
    findings = [fine("journal", "write-ahead log")]
    if type(raw) is not sqlite3.Connection:
        # A file that nobody has open is read without its journal, which so tells no mode.
        findings = [fine("journal", "nobody has the file open")]
    elif mode != "wal":
        findings = [
            note(
                "journal",
                f"{mode} journal",
                "Readers and the writer wait for each other. The next program that writes "
                "switches to a write-ahead log, unless the file system refuses one.",
                "nothing",
            )
        ]
    if encoding != "UTF-8":
        findings.append(
            wrong(
                "encoding",
                str(encoding),
                "Another program made this file; search expects UTF-8.",
                "nothing; export and import into a new store",
            )
        )
    return findings


def _integrity(connection: Connection) -> list[Finding]:
    rows = connection.exec_driver_sql(f"PRAGMA integrity_check({_SHOWN})").scalars().all()
    if list(rows) == ["ok"]:
        return [fine("file", "every page and index is whole")]
    return [
        wrong(
            "file",
            "; ".join(" ".join(str(row).split()) for row in rows),
            "Pages of the file are damaged, by the disk or by a program that wrote past "
            "SQLite. Restore a backup, or save what can still be read: "
            "sessionstore recover FILE -o NEW.",
            "nothing",
        )
    ]


def _references(connection: Connection) -> list[Finding]:
    broken: dict[tuple[str, str], int] = {}
    for table, _, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        broken[table, parent] = broken.get((table, parent), 0) + 1
    if not broken:
        return [fine("references", "none leads nowhere")]
    told = ", ".join(
        f"{count} rows of {table} refer to rows of {parent} that are not there"
        for (table, parent), count in broken.items()
    )
    return [
        wrong(
            "references",
            told,
            "Such messages belong to no session, and are neither listed nor found.",
            "nothing; what was stored is never deleted by it",
        )
    ]


def _schema(connection: Connection, statuses: list[SchemaStatus]) -> Finding:
    status = read_status(connection)
    statuses.append(status)
    if status.up_to_date:
        return fine("schema", f"{status.label}, the newest")
    return wrong(
        "schema",
        f"at {status.label}, not {SCHEMA_REVISION}",
        "This release works with the newest schema only.",
        "nothing; run `sessionstore db upgrade`",
    )


def _drift(connection: Connection, expected: Mapping[str, tuple[str, str]]) -> Finding:
    found = schema_objects(connection)
    other = differing(found, expected)
    if not other:
        return fine("indexes and triggers", "as in a fresh store")
    return wrong(
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
        return fine("counters", "each follows its rows")
    return wrong(
        "counters",
        f"{_named([each[0] for each in other])}: not as many messages or tool calls as counted",
        "Lists, filters and prune go by these figures.",
        "count again from the messages, which stay as they are",
        repairable=True,
    )


def _activity(connection: Connection) -> Finding:
    other = misdated(connection)
    if not other:
        return fine("last activity", "each is that of the latest message")
    return wrong(
        "last activity",
        f"{_named(other)}: not the time of the latest message",
        "Lists are in the wrong order, and prune may take or leave the wrong sessions.",
        "take it again from the messages, which stay as they are",
        repairable=True,
    )


def _prompts(connection: Connection) -> Finding:
    count = unused_prompts(connection)
    if not count:
        return fine("prompts", "each is some session's")
    return note(
        "prompts",
        f"{count} that no session has",
        "They take room, and nobody can come to them.",
        "delete them",
        repairable=True,
    )


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


def index_findings(troubles: Sequence[str]) -> Finding:
    """Say what is wrong with the search index, of which a list of sentences is told."""
    if not troubles:
        return fine("search index", "says what the messages say")
    return wrong(
        "search index",
        "; ".join(troubles[:_SHOWN]),
        "Search may miss messages or scan all of them, slowly; nothing is lost.",
        "make it anew from the messages",
        repairable=True,
    )
