"""The search index of a PostgreSQL store: what it consists of, filling it, curing it.

`messages_fts` has the keys of each message (see `keys`) and beside them an index of sets for
either kind. They are a table of their own, so that a message which is undone or compacted
touches no index. `messages_fts_pending` lists messages that have no keys yet: all that were
there before the index, and what another program wrote. Search reads those one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, TextClause, text

from sessionstore.search.keys import Keys, keys_of_row

# As revision 0023 made them, in the order of creation; a test holds the two against each other.
TABLES: dict[str, str] = {
    # Arrays lie beside the rows, so that a row is small enough to be looked at by the
    # thousand: https://www.postgresql.org/docs/current/storage-toast.html
    "messages_fts": """\
CREATE TABLE messages_fts (
    id BIGINT NOT NULL,
    word_count INTEGER NOT NULL,
    grams INTEGER[] NOT NULL,
    words BIGINT[] NOT NULL,
    CONSTRAINT pk_messages_fts PRIMARY KEY (id),
    CONSTRAINT fk_messages_fts_id_messages FOREIGN KEY (id) REFERENCES messages (id)
        ON UPDATE CASCADE ON DELETE CASCADE
) WITH (toast_tuple_target = 128)""",
    "messages_fts_pending": """\
CREATE TABLE messages_fts_pending (
    id BIGINT NOT NULL,
    CONSTRAINT pk_messages_fts_pending PRIMARY KEY (id),
    CONSTRAINT fk_messages_fts_pending_id_messages FOREIGN KEY (id) REFERENCES messages (id)
        ON UPDATE CASCADE ON DELETE CASCADE
)""",
}
STORAGE = (
    # Numbers without any order do not compress, and nobody asks how they are spread.
    "ALTER TABLE messages_fts ALTER grams SET STORAGE EXTERNAL, ALTER grams SET STATISTICS 0, "
    "ALTER words SET STORAGE EXTERNAL, ALTER words SET STATISTICS 0"
)
# What is written waits in a list that every search reads, so the list is kept short:
# https://www.postgresql.org/docs/current/gin-implementation.html#GIN-FAST-UPDATE
INDEXES: dict[str, str] = {
    f"ix_messages_fts_{column}": (
        f"CREATE INDEX ix_messages_fts_{column} ON messages_fts USING gin ({column}) "
        "WITH (gin_pending_list_limit = 512)"
    )
    for column in ("grams", "words")
}
FUNCTION = """\
CREATE OR REPLACE FUNCTION messages_fts_pending() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM messages_fts WHERE id = new.id;
    END IF;
    INSERT INTO messages_fts_pending (id)
    SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM messages_fts WHERE id = new.id)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$"""
TRIGGERS: dict[str, str] = {
    "messages_fts_insert": """\
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages
FOR EACH ROW EXECUTE FUNCTION messages_fts_pending()""",
    "messages_fts_update": """\
CREATE TRIGGER messages_fts_update
AFTER UPDATE OF content, content_encoding, tool_name, tool_calls ON messages
FOR EACH ROW WHEN ((old.content, old.content_encoding, old.tool_name, old.tool_calls)
    IS DISTINCT FROM (new.content, new.content_encoding, new.tool_name, new.tool_calls))
EXECUTE FUNCTION messages_fts_pending()""",
}
FILL = "INSERT INTO messages_fts_pending (id) SELECT id FROM messages"
_RELATIONS = (*TABLES, *INDEXES)
_THERE = (
    "SELECT (SELECT count(*) FROM unnest(ARRAY["
    + ", ".join(f"to_regclass('{name}')" for name in TABLES)
    + "]) AS t(oid) WHERE oid IS NOT NULL) + (SELECT count(*) FROM pg_index "
    "WHERE indisvalid AND indexrelid IN ("
    + ", ".join(f"to_regclass('{name}')" for name in INDEXES)
    + ")) + (SELECT count(*) FROM pg_trigger WHERE tgrelid = to_regclass('messages') "
    f"AND tgenabled <> 'D' AND tgname IN ({', '.join(map(repr, TRIGGERS))}))"
)
_PARTS = len(TABLES) + len(INDEXES) + len(TRIGGERS)

_KEEP = text(
    "INSERT INTO messages_fts (id, word_count, grams, words) "
    "VALUES (:id, :word_count, CAST(:grams AS integer[]), CAST(:words AS bigint[])) "
    "ON CONFLICT (id) DO UPDATE SET word_count = excluded.word_count, "
    "grams = excluded.grams, words = excluded.words"
)
_DONE = text("DELETE FROM messages_fts_pending WHERE id = ANY(CAST(:ids AS bigint[]))")
# Whoever else fills the index takes other messages; nobody changes these meanwhile.
_WAITING = text(
    "SELECT m.id, coalesce(length(m.content), 0) + coalesce(length(m.tool_calls), 0) "
    "FROM messages_fts_pending AS p JOIN messages AS m ON m.id = p.id "
    "ORDER BY p.id DESC LIMIT :most FOR NO KEY UPDATE OF m SKIP LOCKED"
)
_TEXTS = text(
    "SELECT id, content, content_encoding, tool_name, tool_calls FROM messages "
    "WHERE id = ANY(CAST(:ids AS bigint[]))"
)
_KEPT = text(
    "SELECT m.id, m.content, m.content_encoding, m.tool_name, m.tool_calls, "
    "f.word_count, f.grams, f.words "
    "FROM messages AS m JOIN messages_fts AS f ON f.id = m.id ORDER BY m.id"
).execution_options(stream_results=True, max_row_buffer=128)
_LOST = (
    "SELECT count(*) FROM messages AS m "
    "WHERE NOT EXISTS (SELECT 1 FROM messages_fts AS f WHERE f.id = m.id) "
    "AND NOT EXISTS (SELECT 1 FROM messages_fts_pending AS p WHERE p.id = m.id)"
)


def is_whole(connection: Connection) -> bool:
    """Say whether all parts of the index are there; looks into the catalogue alone."""
    return connection.exec_driver_sql(_THERE).scalar() == _PARTS


def as_parameters(keys: Keys) -> dict[str, Any]:
    """Give keys by the names of their columns."""
    return {"word_count": keys.word_count, "grams": keys.grams, "words": keys.words}


@cache
def storing(columns: tuple[str, ...]) -> TextClause:
    """Give the statement that stores a message with its keys, and returns its id.

    One statement, so that the triggers, which run at its end, find the keys there.
    """
    return text(
        f"WITH stored AS (INSERT INTO messages ({', '.join(columns)}) "
        f"VALUES ({', '.join(f':{each}' for each in columns)}) RETURNING id) "
        "INSERT INTO messages_fts (id, word_count, grams, words) "
        "SELECT id, :word_count, CAST(:grams AS integer[]), CAST(:words AS bigint[]) "
        "FROM stored RETURNING id"
    )


def left(connection: Connection) -> int:
    """Count the messages that have no keys yet."""
    return int(connection.exec_driver_sql("SELECT count(*) FROM messages_fts_pending").scalar_one())


def has_work(connection: Connection) -> bool:
    """Say whether a message has no keys yet."""
    found = connection.exec_driver_sql("SELECT 1 FROM messages_fts_pending LIMIT 1")
    return found.first() is not None


def step(connection: Connection, *, messages: int, characters: int) -> int:
    """Give some messages their keys, newest first; return how many."""
    chosen: list[int] = []
    for message_id, length in connection.execute(_WAITING, {"most": messages}).all():
        chosen.append(message_id)
        characters -= length
        if characters <= 0:
            break
    if chosen:
        rows = connection.execute(_TEXTS, {"ids": chosen}).all()
        kept = [{"id": row[0], **as_parameters(keys_of_row(*row[1:]))} for row in rows]
        if kept:
            connection.execute(_KEEP, kept)
        connection.execute(_DONE, {"ids": chosen})
    return len(chosen)


def rebuild(connection: Connection) -> None:
    """Make the index anew and empty, whatever there is of it; all messages wait for their keys."""
    for name in TRIGGERS:
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name} ON messages")
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {', '.join(TABLES)}")
    made = (*TABLES.values(), STORAGE, *INDEXES.values(), FUNCTION, *TRIGGERS.values(), FILL)
    for statement in made:
        connection.exec_driver_sql(statement)


def optimize(connection: Connection) -> None:
    """Move what was written lately into the indexes proper."""
    for name in INDEXES:
        connection.exec_driver_sql(f"SELECT gin_clean_pending_list('{name}')")
    connection.exec_driver_sql("ANALYZE messages_fts")


def findings(connection: Connection, *, compare: bool) -> list[str]:
    """List what is wrong, a sentence each; see `index.findings`."""
    missing = _missing(connection)
    if missing:
        return missing
    found: list[str] = []
    if lost := connection.exec_driver_sql(_LOST).scalar_one():
        found.append(f"messages_fts: {lost} messages are in no part of the index")
    if compare and (wrong := _wrong(connection)):
        found.append(
            f"messages_fts: it does not say what the messages say ({len(wrong)} of them, "
            f"such as message {wrong[0]})"
        )
    if not found and (waiting := left(connection)):
        found.append(f"{waiting} messages are not indexed yet, and are found by reading them")
    return found


def _missing(connection: Connection) -> list[str]:
    there: Sequence[Any] = connection.exec_driver_sql(
        "SELECT relname FROM pg_class WHERE oid IN ("
        + ", ".join(f"to_regclass('{name}')" for name in _RELATIONS)
        + ") UNION ALL SELECT tgname FROM pg_trigger "
        "WHERE tgrelid = to_regclass('messages') AND tgenabled <> 'D'"
    ).all()
    names = {row[0] for row in there}
    return [f"{name} is missing" for name in (*_RELATIONS, *TRIGGERS) if name not in names]


def _wrong(connection: Connection) -> list[int]:
    wrong: list[int] = []
    with connection.execute(_KEPT) as result:
        for message_id, content, encoding, tool_name, calls, *held in result:
            keys = keys_of_row(content, encoding, tool_name, calls)
            if held != [keys.word_count, keys.grams, keys.words]:
                wrong.append(message_id)
    return wrong
