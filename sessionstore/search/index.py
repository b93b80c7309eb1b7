"""The search index of a store: what state it is in, filling it, curing it.

That of a server is in `server_index`; this is SQLite's, and the way to either.

It is derived from messages and never the authority. A large file is indexed in steps, each a
transaction, newest message first: messages below the id that stands in `state_meta` are not
in it yet. Beside those, messages in `messages_fts_pending` are to be read one by one, since
another program wrote them with a text that the index cannot be fed with as it is.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakSet

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sessionstore.search import server_index
from sessionstore.search.body import index_text
from sessionstore.search.definitions import FULL_TEXT, INDEXED_FROM, TABLES, TRIGGERS

logger = logging.getLogger("sessionstore")

# The codes with which SQLite says that a virtual table is missing or unusable: there is no
# code of its own for it (https://www.sqlite.org/rescode.html, SQLITE_ERROR, SQLITE_CORRUPT).
_INDEX_TROUBLE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT}

PART_MISSING = "a part of it is missing"

_NAMES = (*TABLES, *TRIGGERS)
_STATE = (
    "SELECT (SELECT count(*) FROM sqlite_master WHERE name IN "
    f"({', '.join(repr(name) for name in _NAMES)})), "
    f"(SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '{INDEXED_FROM}')"
)
# Any word makes FTS5 open a table and look into it.
_PROBE = "SELECT rowid FROM {0} WHERE {0} MATCH '\"aaa\"' LIMIT 1"
_LEFT = text(
    "SELECT (SELECT count(*) FROM messages WHERE id < :indexed_from) + (SELECT count(*) "
    "FROM messages_fts_pending WHERE :indexed_from IS NULL OR id >= :indexed_from)"
)
_PENDING = text("SELECT id FROM messages_fts_pending ORDER BY id DESC LIMIT :most")
_BELOW = text("SELECT id FROM messages WHERE id < :indexed_from ORDER BY id DESC LIMIT :most")
_TEXTS = (
    "SELECT id, content, content_encoding, tool_name, tool_calls, search_text "
    "FROM messages WHERE id = :id"
)

# A step of filling it that others wait for: about a quarter of a second.
_MESSAGES, _CHARACTERS = 1000, 1_000_000

# Runs a unit in a transaction of its own.
Transaction: TypeAlias = Callable[[Callable[[Connection], int]], int]

_warned: WeakSet[Engine] = WeakSet()


@dataclass(frozen=True, slots=True)
class IndexState:
    """Whether search can go by the index.

    Attributes:
        whole: Its tables are there, and the triggers that keep it.
        indexed_from: Messages of lower ids are not in it yet; None: all are.
    """

    whole: bool
    indexed_from: int | None


def state(connection: Connection) -> IndexState:
    """Say what state the index is in; one statement, which looks into no index."""
    if connection.dialect.name != "sqlite":
        return IndexState(server_index.is_whole(connection), indexed_from=None)
    there, indexed_from = connection.exec_driver_sql(_STATE).one()
    return IndexState(there == len(_NAMES), indexed_from)


def trouble(connection: Connection) -> str | None:
    """Say in one sentence why the index cannot be used; None: it can, as far as it is filled."""
    reason = None
    if not state(connection).whole:
        reason = PART_MISSING
    elif connection.dialect.name == "sqlite":
        try:
            for table in FULL_TEXT:
                connection.exec_driver_sql(_PROBE.format(table)).all()
        except DBAPIError as error:
            if not is_index_trouble(error):
                raise
            reason = str(error.orig)
    return None if reason is None else _told(reason)


def warn_once(connection: Connection, reason: object) -> None:
    """Log that search goes on without the index; once, however many searches do."""
    if connection.engine not in _warned:
        _warned.add(connection.engine)
        logger.warning("%s", _told(reason))


def _told(reason: object) -> str:
    return (
        f"the search index cannot be used ({reason}); messages are found by reading all of them, "
        "and ranked by whole words and age alone, until the index is rebuilt: "
        "sessionstore doctor --fix"
    )


def is_index_trouble(error: DBAPIError | sqlite3.Error) -> bool:
    """Say whether a statement may have failed for what a full-text table is."""
    original = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(original, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _INDEX_TROUBLE


def may_be_index_trouble(error: DBAPIError | sqlite3.Error) -> bool:
    """Say whether a write may have failed for what a full-text table is.

    FTS5 calls some damage of its own a failed constraint. Whoever tries the write again
    without the index sees whether it was one of the messages.
    """
    original = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(original, "sqlite_errorcode", None)
    return is_index_trouble(error) or (
        code is not None and code & 0xFF == sqlite3.SQLITE_CONSTRAINT
    )


def left(connection: Connection) -> int:
    """Count the messages that search still reads one by one: not indexed, or not as they are."""
    now = state(connection)
    if not now.whole:
        return 0
    if connection.dialect.name != "sqlite":
        return server_index.left(connection)
    return int(connection.execute(_LEFT, {"indexed_from": now.indexed_from}).scalar_one())


def has_work(connection: Connection) -> bool:
    """Say whether `step` would find something to do; quick."""
    now = state(connection)
    if not now.whole:
        return False
    if connection.dialect.name != "sqlite":
        return server_index.has_work(connection)
    return now.indexed_from is not None or bool(connection.execute(_PENDING, {"most": 1}).first())


def step(connection: Connection, *, messages: int, characters: int) -> int:
    """Index some of the messages that are left, within a write transaction; return how many.

    Args:
        connection: The transaction.
        messages: At most so many.
        characters: No more once their texts are so long.
    """
    now = state(connection)
    if not now.whole:
        return 0
    if connection.dialect.name != "sqlite":
        return server_index.step(connection, messages=messages, characters=characters)
    waiting = connection.execute(_PENDING, {"most": messages}).scalars().all()
    if waiting:
        return len(_read_again(connection, waiting, characters))
    if now.indexed_from is None:
        return 0
    below = {"indexed_from": now.indexed_from, "most": messages}
    ids = connection.execute(_BELOW, below).scalars().all()
    done = _read_again(connection, ids, characters)
    if done:
        # The triggers leave alone what is below the mark, so it moves after the texts are set.
        span = f"WHERE id >= {done[-1]:d} AND id < {now.indexed_from:d} ORDER BY id"
        for table in FULL_TEXT:
            connection.exec_driver_sql(
                f"INSERT INTO {table}(rowid, body) SELECT id, body FROM messages_search {span}"
            )
        _mark(connection, done[-1])
    if len(done) == len(ids) < messages:
        _mark(connection, None)
    return len(done)


def fill(
    read: Transaction, write: Transaction, progress: Callable[[int, int], None] | None = None
) -> int:
    """Index all messages that are left, step by step; return how many.

    Args:
        read: Runs a unit in one transaction that reads.
        write: Runs a unit in one transaction that writes.
        progress: Called with how many of how many are done.
    """

    def next_step(connection: Connection) -> int:
        return step(connection, messages=_MESSAGES, characters=_CHARACTERS)

    waiting = read(left)
    done = 0
    while waiting and (count := write(next_step)):
        done += count
        if progress is not None:
            # Others may have added some, or have done some.
            progress(done, max(waiting, done))
    return done


def _read_again(connection: Connection, ids: Sequence[int], characters: int) -> list[int]:
    """Give messages the text they are found by, where they lack it; return which were read."""
    done: list[int] = []
    for message_id in ids:
        row: Any = connection.exec_driver_sql(_TEXTS, {"id": message_id}).first()
        if row is not None:
            told = index_text(row[1], row[2], row[3], row[4])
            if told != row[5]:
                connection.execute(
                    text("UPDATE messages SET search_text = :told WHERE id = :id"),
                    {"told": told, "id": message_id},
                )
            characters -= sum(len(each) for each in row[1:] if each)
        connection.execute(
            text("DELETE FROM messages_fts_pending WHERE id = :id"), {"id": message_id}
        )
        done.append(message_id)
        if characters <= 0:
            break
    return done


def _mark(connection: Connection, indexed_from: int | None) -> None:
    connection.execute(text("DELETE FROM state_meta WHERE key = :key"), {"key": INDEXED_FROM})
    if indexed_from is not None:
        connection.execute(
            text("INSERT INTO state_meta(key, value) VALUES (:key, :value)"),
            {"key": INDEXED_FROM, "value": str(indexed_from)},
        )


def suspend(connection: Connection) -> bool:
    """Let messages be stored without the index; say whether it was kept until now.

    Within a write transaction. Search then reads all messages, until `rebuild`.
    """
    if connection.dialect.name != "sqlite":
        return False
    there = _kept_triggers(connection)
    for name in there:
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
    return bool(there)


def _kept_triggers(connection: Connection) -> list[str]:
    found = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    return sorted(set(found.scalars()) & TRIGGERS.keys())


def rebuild(connection: Connection) -> None:
    """Make the search index anew and empty, within a write transaction; `step` fills it.

    Works on what is damaged and on what is missing, since all of it is dropped first.

    Raises:
        DBAPIError: This SQLite cannot make such tables, or writing failed.
    """
    if connection.dialect.name != "sqlite":
        server_index.rebuild(connection)
        return
    suspend(connection)
    found = connection.exec_driver_sql("SELECT name FROM sqlite_master")
    there = set(found.scalars())
    for table in FULL_TEXT:
        if table in there:
            _drop(connection, table)
    connection.exec_driver_sql("DROP TABLE IF EXISTS messages_fts_vocab")
    connection.exec_driver_sql("DROP TABLE IF EXISTS messages_fts_pending")
    connection.exec_driver_sql("DROP VIEW IF EXISTS messages_search")
    for statement in (*TABLES.values(), *TRIGGERS.values()):
        connection.exec_driver_sql(statement)
    for table in FULL_TEXT:
        # As the revision that makes them has it, and for its reason.
        connection.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES('automerge', 8)")
    last = connection.exec_driver_sql("SELECT max(id) FROM messages").scalar()
    _mark(connection, None if last is None else last + 1)


def _drop(connection: Connection, table: str) -> None:
    """Drop a full-text table, whatever its shadow tables hold or lack.

    FTS5 opens a table to drop it, so it is first given what it writes for one without rows:
    averages and structure in the one, the version of the format in the other
    (https://www.sqlite.org/fts5.html#fts5_data_structures).
    """
    for statement in (
        f"CREATE TABLE IF NOT EXISTS {table}_data(id INTEGER PRIMARY KEY, block BLOB)",
        f"INSERT OR REPLACE INTO {table}_data VALUES(1, x''), (10, x'00000000000000')",
        f"CREATE TABLE IF NOT EXISTS {table}_config(k PRIMARY KEY, v) WITHOUT ROWID",
        f"INSERT OR REPLACE INTO {table}_config VALUES('version', 4)",
        f"DROP TABLE {table}",
    ):
        connection.exec_driver_sql(statement)


def optimize(connection: Connection) -> None:
    """Merge the search index into its smallest form, within a write transaction.

    Raises:
        DBAPIError: It is damaged, or writing failed.
    """
    if not state(connection).whole:
        return
    if connection.dialect.name != "sqlite":
        server_index.optimize(connection)
    else:
        for table in FULL_TEXT:
            # https://www.sqlite.org/fts5.html#the_optimize_command
            connection.exec_driver_sql(f"INSERT INTO {table}({table}) VALUES('optimize')")


def findings(connection: Connection, *, compare: bool) -> list[str]:
    """List what is wrong with the index, a sentence each.

    Args:
        connection: A transaction; one that writes if the index is to be compared.
        compare: Compare all of it with the messages, which reads them all. FTS5 takes that
            for a write, though nothing is changed.
    """
    if connection.dialect.name != "sqlite":
        return server_index.findings(connection, compare=compare)
    listed = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master")
    there: dict[str, str] = dict(tuple(row) for row in listed)
    found = [f"{name} is missing" for name in _NAMES if name not in there]
    found += [
        f"{name} is not what it should be"
        for name, statement in (TABLES | TRIGGERS).items()
        if name in there and there[name] != statement
    ]
    for table in FULL_TEXT:
        if table in there and (said := _compared(connection, table, compare=compare)):
            found.append(f"{table}: {said}")
    if not found and (waiting := left(connection)):
        found.append(f"{waiting} messages are not indexed yet, and are found by reading them")
    return found


def _compared(connection: Connection, table: str, *, compare: bool) -> str | None:
    """Let FTS5 look at a table, and at its source as well unless a part is left out so far.

    https://www.sqlite.org/fts5.html#the_integrity_check_command
    """
    part = state(connection)
    statement = _PROBE.format(table)
    if compare:
        rank = int(part.whole and part.indexed_from is None)
        statement = f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', {rank})"
    try:
        connection.exec_driver_sql(statement)
        lost = _pages_not_led_to(connection, table) if compare else 0
    except DBAPIError as error:
        if not is_index_trouble(error):
            raise
        return f"it does not say what the messages say ({error.orig})"
    return f"nothing leads to {lost} of its pages, so words on them are missed" if lost else None


def _pages_not_led_to(connection: Connection, table: str) -> int:
    """Count the pages of a full-text table that its `_idx` should name and does not.

    The check of FTS5 goes through what `_idx` names, and finds nothing wrong where that is
    nothing. A page is named if a term begins on it, which shows in the list of terms after
    its text: so it is longer than the length in its third and fourth bytes. The first page of
    what a merge has begun to clear away may lack a name, and is found without
    (https://www.sqlite.org/fts5.html#fts5_data_structures; in a row id the segment stands
    above bit 37, the page below bit 31, and bit 36 marks a list that is no page).
    """
    named = {
        (segment, page)
        for segment, page in connection.exec_driver_sql(f"SELECT segid, pgno / 2 FROM {table}_idx")
    }
    pages = connection.exec_driver_sql(
        f"SELECT id, substr(block, 3, 2), length(block) FROM {table}_data "
        f"WHERE id >= {1 << 37} AND id & {1 << 36} = 0 ORDER BY id"
    )
    before, lost = 0, 0
    for row_id, told, length in pages:
        segment, page = row_id >> 37, row_id & 0x7FFFFFFF
        first, before = segment != before, segment
        begins = length > int.from_bytes(told)
        lost += begins and (page == 1 or not first) and (segment, page) not in named
    return lost
