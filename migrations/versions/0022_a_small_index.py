"""Search by a small index: the text is read from messages, trigrams keep no places.

The view `messages_search` says what a message is found by: its `search_text`, or else content,
tool name and tool calls; two newlines after it give its last characters trigrams of their own.
Two full-text tables read from it: `messages_fts`, its words, and `messages_fts_trigram`, every
three characters in a row. `messages_fts_vocab` lists which trigrams there are, and where.

`messages_fts_pending` lists messages that another program wrote, with a text that is not what
the index should be fed with; search reads those one by one until this package has given them
a `search_text`. Messages below the id that `state_meta` names as `search_indexed_from` are
not in the index: a large file gets it step by step, newest first, after this revision. Without
that name all are. Triggers feed an index exactly what it was fed with before, since deleting
any other text damages it, and so leave alone what is not in it yet.

Going back makes the two indexes of level 11 and loses nothing that is not in messages.
PostgreSQL has no part in this.
"""

from __future__ import annotations

import logging
import sqlite3

from alembic import op
from sqlalchemy.exc import DBAPIError

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

logger = logging.getLogger("sessionstore.migrations")

# Up to here all messages are indexed within this transaction: about a second.
MOST_MESSAGES = 10_000
MOST_BYTES = 8 * 1024 * 1024

BODY = (
    "coalesce({0}search_text, coalesce({0}content, '') || "
    "coalesce(char(10) || {0}tool_name, '') || "
    "coalesce(char(10) || {0}tool_calls, '')) || char(10, 10)"
)
# https://www.sqlite.org/fts5.html#external_content_tables
# https://www.sqlite.org/fts5.html#the_detail_option
# https://www.sqlite.org/fts5.html#the_fts5vocab_virtual_table_module
TABLES = {
    "messages_search": f"""\
CREATE VIEW messages_search(id, body) AS
SELECT id, {BODY.format("")} FROM messages""",
    "messages_fts": """\
CREATE VIRTUAL TABLE messages_fts USING fts5(
    body,
    content='messages_search',
    content_rowid='id'
)""",
    "messages_fts_trigram": """\
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(
    body,
    content='messages_search',
    content_rowid='id',
    tokenize='trigram',
    detail='none',
    columnsize=0
)""",
    "messages_fts_vocab": (
        "CREATE VIRTUAL TABLE messages_fts_vocab USING fts5vocab(messages_fts_trigram, instance)"
    ),
    "messages_fts_pending": """\
CREATE TABLE messages_fts_pending (
    id INTEGER PRIMARY KEY
)""",
}
IS_INDEXED = (
    "NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' "
    "AND {0}id < CAST(value AS INTEGER))"
)
INSERT = f"""\
    INSERT INTO {{table}}(rowid, body)
    SELECT new.id, {BODY.format("new.")}
    WHERE {IS_INDEXED.format("new.")};
"""
DELETE = f"""\
    INSERT INTO {{table}}({{table}}, rowid, body)
    SELECT 'delete', old.id, {BODY.format("old.")}
    WHERE {IS_INDEXED.format("old.")};
"""
TRIGGERS = {
    "insert": f"""\
CREATE TRIGGER {{table}}_insert AFTER INSERT ON messages BEGIN
{INSERT}END""",
    "delete": f"""\
CREATE TRIGGER {{table}}_delete AFTER DELETE ON messages BEGIN
{DELETE}END""",
    "update": f"""\
CREATE TRIGGER {{table}}_update AFTER UPDATE OF
id, content, tool_name, tool_calls, search_text ON messages BEGIN
{DELETE}{INSERT}END""",
}
# Characters that the lower case of the tokenizers folds as search does; ASCII is told by its
# length in bytes, since the pattern takes 0.3 microseconds a character.
PLAIN = (
    "' || char(1) || '-\u00a9\u2002-\u2064\u20a0-\u20bf\u2500-\u27bf\u3000-\u3029\u3041-\u3096"
    "\u30a0-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\ufe0f\uff01-\uff0f\uff1a-\uff20"
    "\U0001f300-\U0001f6d7\U0001f900-\U0001fa53\U00020000-\U0002a6df"
)
UNUSUAL = (
    "(length({0}) <> length(CAST({0} AS BLOB)) AND "
    f"({{0}} GLOB '*[^{PLAIN}]*' OR instr({{0}}, char(0)) > 0))"
)
MUST_BE_FOLDED = "\n    OR ".join(
    (
        "{0}content_encoding IS NOT NULL",
        "typeof({0}content) = 'blob'",
        r"instr({0}tool_calls, '\u') > 0",
        *(UNUSUAL.format(f"{{0}}{name}") for name in ("content", "tool_name", "tool_calls")),
    )
)
PENDING = "messages_fts_pending"
WRITE_DOWN = f"""\
    INSERT INTO {PENDING}(id)
    SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM {PENDING} WHERE id = new.id);
"""
PENDING_TRIGGERS = {
    f"{PENDING}_insert": f"""\
CREATE TRIGGER {PENDING}_insert AFTER INSERT ON messages WHEN new.search_text IS NULL AND (
    {MUST_BE_FOLDED.format("new.")}
) BEGIN
{WRITE_DOWN}END""",
    f"{PENDING}_delete": f"""\
CREATE TRIGGER {PENDING}_delete AFTER DELETE ON messages BEGIN
    DELETE FROM {PENDING} WHERE id = old.id;
END""",
    # A text that changes beneath the one to search makes that one stale.
    f"{PENDING}_update": f"""\
CREATE TRIGGER {PENDING}_update AFTER UPDATE OF
id, content, content_encoding, tool_name, tool_calls, search_text ON messages WHEN
(new.search_text IS NULL AND (
    {MUST_BE_FOLDED.format("new.")}
)) OR (new.search_text IS old.search_text AND new.search_text IS NOT NULL AND (
    new.id IS NOT old.id OR new.content IS NOT old.content
    OR new.content_encoding IS NOT old.content_encoding
    OR new.tool_name IS NOT old.tool_name OR new.tool_calls IS NOT old.tool_calls
)) BEGIN
{WRITE_DOWN}END""",
}
FTS = ("messages_fts", "messages_fts_trigram")

# Level 11, as 0011 has it.
FTS_11 = {
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
TEXT_11 = (
    "COALESCE({0}content, '') || ' ' || COALESCE({0}tool_name, '') || ' ' || "
    "COALESCE({0}tool_calls, '')"
)
INSERT_11 = f"""\
    INSERT INTO {{table}}(rowid, content) VALUES (
        new.id,
        {TEXT_11.format("new.")}
    );
"""
DELETE_11 = """\
    DELETE FROM {table} WHERE rowid = old.id;
"""
TRIGGERS_11 = {
    event: f"CREATE TRIGGER {{table}}_{event} AFTER {event.upper()} ON messages BEGIN\n{body}END"
    for event, body in (
        ("insert", INSERT_11),
        ("delete", DELETE_11),
        ("update", DELETE_11 + INSERT_11),
    )
}


def upgrade() -> None:
    """Make the small index in the place of the other, and fill it where that is quick."""
    if op.get_context().dialect.name != "sqlite":
        return
    op.execute("DELETE FROM state_meta WHERE key = 'search_indexed_from'")
    for table in FTS:
        _drop_triggers(table)
    if not (_drop(FTS[0]) and _drop(FTS[1]) and _attempt(*TABLES.values())):
        logger.warning(
            "this SQLite cannot make the search index: messages are found by reading them all"
        )
        return
    for table in FTS:
        # Merging by eights and not by fours: a tenth less to do for an append, in the mean.
        # https://www.sqlite.org/fts5.html#the_automerge_configuration_option
        op.execute(f"INSERT INTO {table}({table}, rank) VALUES('automerge', 8)")
    if _are_few():
        for table in FTS:
            op.execute(f"INSERT INTO {table}({table}) VALUES('rebuild')")
        op.execute(
            f"INSERT INTO {PENDING}(id) SELECT id FROM messages "
            f"WHERE search_text IS NULL AND ({MUST_BE_FOLDED.format('')})"
        )
    else:
        op.execute(
            "INSERT INTO state_meta(key, value) "
            "SELECT 'search_indexed_from', max(id) + 1 FROM messages"
        )
    for table in FTS:
        for statement in TRIGGERS.values():
            op.execute(statement.format(table=table))
    for statement in PENDING_TRIGGERS.values():
        op.execute(statement)


def downgrade() -> None:
    """Make both indexes as level 11 had them."""
    if op.get_context().dialect.name != "sqlite":
        return
    for table in (*FTS, PENDING):
        _drop_triggers(table)
    if _drop("messages_fts_vocab", shadows=False):
        op.execute(f"DROP TABLE IF EXISTS {PENDING}")
    for table, definition in FTS_11.items():
        if not (_drop(table) and _attempt(definition)):
            continue
        op.execute(
            f"INSERT INTO {table}(rowid, content) SELECT id, {TEXT_11.format('')} FROM messages"
        )
        for statement in TRIGGERS_11.values():
            op.execute(statement.format(table=table))
    op.execute("DROP VIEW IF EXISTS messages_search")
    op.execute("DELETE FROM state_meta WHERE key = 'search_indexed_from'")


def _are_few() -> bool:
    bind = op.get_bind()
    if bind.exec_driver_sql(f"SELECT 1 FROM messages LIMIT 1 OFFSET {MOST_MESSAGES}").first():
        return False
    size = bind.exec_driver_sql(
        "SELECT sum(length(CAST(content AS BLOB))), sum(length(CAST(tool_calls AS BLOB))) "
        "FROM messages"
    ).one()
    return sum(each or 0 for each in size) <= MOST_BYTES


def _drop_triggers(table: str) -> None:
    for event in TRIGGERS:
        op.execute(f"DROP TRIGGER IF EXISTS {table}_{event}")


def _drop(table: str, *, shadows: bool = True) -> bool:
    """Drop an index; without two of its shadow tables FTS5 could not even do that."""
    there = op.get_bind().exec_driver_sql(
        f"SELECT name FROM sqlite_master WHERE name LIKE '{table}%'"
    )
    names = set(there.scalars())
    if table not in names:
        return True
    # What FTS5 writes for a table without rows: the averages and the structure in the one,
    # the version of the format in the other (https://www.sqlite.org/fts5.html#fts5_data_structures).
    if shadows and f"{table}_data" not in names:
        op.execute(f"CREATE TABLE {table}_data(id INTEGER PRIMARY KEY, block BLOB)")
        op.execute(f"INSERT INTO {table}_data VALUES(1, x''), (10, x'00000000000000')")
    if shadows and f"{table}_config" not in names:
        op.execute(f"CREATE TABLE {table}_config(k PRIMARY KEY, v) WITHOUT ROWID")
        op.execute(f"INSERT INTO {table}_config VALUES('version', 4)")
    return _attempt(f"DROP TABLE {table}")


def _attempt(*statements: str) -> bool:
    """Run statements that need FTS5; without it all but full-text search still works."""
    try:
        with op.get_bind().begin_nested():
            for statement in statements:
                op.execute(statement)
    except DBAPIError as error:
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise
        logger.info("no full-text index here: %s", error.orig)
        return False
    return True
