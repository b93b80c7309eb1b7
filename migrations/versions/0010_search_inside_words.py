"""Search inside words: a second full-text index, of every three characters in a row.

Scripts without blanks between words need it. It reads its text from messages, as the first
one does; the messages that have content are put into it, unless the same walk goes on to
0022, which makes another index. Going back drops it, and loses nothing that is not in
messages. PostgreSQL has no part in this.
"""

from __future__ import annotations

import logging
import sqlite3

from alembic import context, op
from sqlalchemy.exc import DBAPIError

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

logger = logging.getLogger("sessionstore.migrations")

# https://www.sqlite.org/fts5.html#the_trigram_tokenizer
# https://www.sqlite.org/fts5.html#external_content_tables
FTS = """\
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(
    content,
    content=messages,
    content_rowid=id,
    tokenize='trigram'
)"""
BACK_FILL = """\
INSERT INTO messages_fts_trigram(rowid, content)
SELECT id, content FROM messages WHERE content IS NOT NULL"""
INSERT = """\
    INSERT INTO messages_fts_trigram(rowid, content) VALUES (new.id, new.content);
"""
DELETE = """\
    INSERT INTO messages_fts_trigram(messages_fts_trigram, rowid, content) \
VALUES('delete', old.id, old.content);
"""
FTS_TRIGGERS = {
    f"messages_fts_trigram_{event}": (
        f"CREATE TRIGGER messages_fts_trigram_{event} AFTER {event.upper()} ON messages BEGIN\n"
        f"{body}END"
    )
    for event, body in (("insert", INSERT), ("delete", DELETE), ("update", DELETE + INSERT))
}


def upgrade() -> None:
    """Create and fill the index unless there is one; 0011 looks at its state."""
    if op.get_context().dialect.name == "sqlite" and not _is_there("messages_fts_trigram"):
        for name in FTS_TRIGGERS:
            op.execute(f"DROP TRIGGER IF EXISTS {name}")
        if _attempt(FTS):
            if not _goes_on():
                op.execute(BACK_FILL)
            for statement in FTS_TRIGGERS.values():
                op.execute(statement)
    op.execute("UPDATE schema_version SET version = 10 WHERE version < 10")


def downgrade() -> None:
    """Drop the index and its triggers."""
    if op.get_context().dialect.name == "sqlite":
        for name in FTS_TRIGGERS:
            op.execute(f"DROP TRIGGER IF EXISTS {name}")
        _attempt("DROP TABLE IF EXISTS messages_fts_trigram")
    op.execute("UPDATE schema_version SET version = 9")


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


def _is_there(name: str) -> bool:
    statement = f"SELECT 1 FROM sqlite_master WHERE name = '{name}'"
    return op.get_bind().exec_driver_sql(statement).first() is not None


def _goes_on() -> bool:
    """Say whether the walk ends where this index is made anew in another shape (0022)."""
    try:
        end = str(context.get_revision_argument())
    except KeyError:
        return False
    return end.isdecimal() and int(end) > int("0021")
