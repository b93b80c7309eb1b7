"""Find tool names and tool calls too: both full-text indexes made anew, with their own text.

An index is no longer read from messages but holds a copy of content, tool_name and
tool_calls, so triggers need not know what a row said before. Late files of level 10 have
triggers from before with tables from after, which makes every DELETE of a message fail: the
triggers are always dropped and made again. An index that is in the new shape, sound, and
says of every message what it should, is kept; else all messages are put in anew. A walk
that goes on to 0022, which makes another index, neither checks nor fills these.

Going back makes the two indexes of level 10, and loses nothing that is not in messages.
PostgreSQL has no part in this.
"""

from __future__ import annotations

import logging
import sqlite3

from alembic import context, op
from sqlalchemy.exc import DBAPIError

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

logger = logging.getLogger("sessionstore.migrations")

# Plain FTS5 tables, which keep the text they index
# (https://www.sqlite.org/fts5.html#overview_of_fts5).
FTS = {
    "messages_fts": """\
CREATE VIRTUAL TABLE messages_fts USING fts5(
    content
)""",
    "messages_fts_trigram": """\
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(
    content,
    tokenize='trigram'
)""",
}
TEXT = (
    "COALESCE({0}content, '') || ' ' || COALESCE({0}tool_name, '') || ' ' || "
    "COALESCE({0}tool_calls, '')"
)
INSERT = f"""\
    INSERT INTO {{table}}(rowid, content) VALUES (
        new.id,
        {TEXT.format("new.")}
    );
"""
DELETE = """\
    DELETE FROM {table} WHERE rowid = old.id;
"""
TRIGGERS = {
    event: f"CREATE TRIGGER {{table}}_{event} AFTER {event.upper()} ON messages BEGIN\n{body}END"
    for event, body in (
        ("insert", INSERT),
        ("delete", DELETE),
        ("update", DELETE + INSERT),
    )
}

# Level 10: the text is read from messages
# (https://www.sqlite.org/fts5.html#external_content_tables).
FTS_10 = {
    "messages_fts": """\
CREATE VIRTUAL TABLE messages_fts USING fts5(
    content,
    content=messages,
    content_rowid=id
)""",
    "messages_fts_trigram": """\
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(
    content,
    content=messages,
    content_rowid=id,
    tokenize='trigram'
)""",
}
BACK_FILL_10 = {
    "messages_fts": "INSERT INTO messages_fts(messages_fts) VALUES('rebuild')",
    "messages_fts_trigram": """\
INSERT INTO messages_fts_trigram(rowid, content)
SELECT id, content FROM messages WHERE content IS NOT NULL""",
}
INSERT_10 = """\
    INSERT INTO {table}(rowid, content) VALUES (new.id, new.content);
"""
DELETE_10 = """\
    INSERT INTO {table}({table}, rowid, content) VALUES('delete', old.id, old.content);
"""
TRIGGERS_10 = {
    event: f"CREATE TRIGGER {{table}}_{event} AFTER {event.upper()} ON messages BEGIN\n{body}END"
    for event, body in (
        ("insert", INSERT_10),
        ("delete", DELETE_10),
        ("update", DELETE_10 + INSERT_10),
    )
}


def upgrade() -> None:
    """Make both indexes, or keep what is right."""
    if op.get_context().dialect.name == "sqlite":
        missing = []
        for table, definition in FTS.items():
            _drop_triggers(table)
            if not _is_right(table, definition):
                if not (_drop(table) and _attempt(definition)):
                    missing.append(table)
                    continue
                if not _goes_on():
                    op.execute(
                        f"INSERT INTO {table}(rowid, content) "
                        f"SELECT id, {TEXT.format('')} FROM messages"
                    )
            for statement in TRIGGERS.values():
                op.execute(statement.format(table=table))
        if missing:
            logger.warning(
                "this SQLite cannot make %s: searching the full text is out, all else works",
                " and ".join(missing),
            )
    # One row: from here on the number stays.
    level = op.get_bind().exec_driver_sql("SELECT max(version) FROM schema_version").scalar()
    op.execute("DELETE FROM schema_version")
    op.execute(f"INSERT INTO schema_version (version) VALUES ({max(level or 0, 11):d})")


def downgrade() -> None:
    """Make both indexes as level 10 had them."""
    if op.get_context().dialect.name == "sqlite":
        for table, definition in FTS_10.items():
            _drop_triggers(table)
            if _drop(table) and _attempt(definition):
                op.execute(BACK_FILL_10[table])
                for statement in TRIGGERS_10.values():
                    op.execute(statement.format(table=table))
    op.execute("UPDATE schema_version SET version = 10")


def _is_right(table: str, definition: str) -> bool:
    bind = op.get_bind()
    text = bind.exec_driver_sql(f"SELECT sql FROM sqlite_master WHERE name = '{table}'").scalar()
    if text is None or text.split() != definition.split():
        return False
    if _goes_on():
        return True
    check = f"INSERT INTO {table}({table}) VALUES('integrity-check')"
    try:
        with bind.begin_nested():
            # https://www.sqlite.org/fts5.html#the_integrity_check_command
            bind.exec_driver_sql(check)
            wrong = bind.exec_driver_sql(
                f"SELECT EXISTS (SELECT 1 FROM messages LEFT JOIN {table}_content AS held "
                f"ON held.id = messages.id WHERE held.c0 IS NOT ({TEXT.format('messages.')})) "
                f"OR EXISTS (SELECT 1 FROM {table}_content AS held "
                "WHERE NOT EXISTS (SELECT 1 FROM messages WHERE messages.id = held.id))"
            ).scalar()
    except DBAPIError:
        return False
    return not wrong


def _drop_triggers(table: str) -> None:
    for event in TRIGGERS:
        op.execute(f"DROP TRIGGER IF EXISTS {table}_{event}")


def _drop(table: str) -> bool:
    """Drop an index; without two of its shadow tables FTS5 could not even do that."""
    there = op.get_bind().exec_driver_sql(
        f"SELECT name FROM sqlite_master WHERE name LIKE '{table}%'"
    )
    names = set(there.scalars())
    if table not in names:
        return True
    # What FTS5 writes for a table without rows: the averages and the structure in the one,
    # the version of the format in the other (https://www.sqlite.org/fts5.html#fts5_data_structures).
    if f"{table}_data" not in names:
        op.execute(f"CREATE TABLE {table}_data(id INTEGER PRIMARY KEY, block BLOB)")
        op.execute(f"INSERT INTO {table}_data VALUES(1, x''), (10, x'00000000000000')")
    if f"{table}_config" not in names:
        op.execute(f"CREATE TABLE {table}_config(k PRIMARY KEY, v) WITHOUT ROWID")
        op.execute(f"INSERT INTO {table}_config VALUES('version', 4)")
    return _attempt(f"DROP TABLE {table}")


def _attempt(statement: str) -> bool:
    """Run a statement that needs FTS5; without it all but full-text search still works."""
    try:
        with op.get_bind().begin_nested():
            op.execute(statement)
    except DBAPIError as error:
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise
        logger.info("no full-text index here: %s", error.orig)
        return False
    return True


def _goes_on() -> bool:
    """Say whether the walk ends where this index is made anew in another shape (0022)."""
    try:
        end = str(context.get_revision_argument())
    except KeyError:
        return False
    return end.isdecimal() and int(end) > int("0021")
