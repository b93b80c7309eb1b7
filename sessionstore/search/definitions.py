"""What the search index of a SQLite store consists of, as revision 0022 made it.

Repeated here for a file that lost it; a test holds the two against each other.
"""

from __future__ import annotations

# The name in `state_meta` of the id below which no message is in the index yet.
INDEXED_FROM = "search_indexed_from"

_BODY = (
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
SELECT id, {_BODY.format("")} FROM messages""",
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
_IS_INDEXED = (
    f"NOT EXISTS (SELECT 1 FROM state_meta WHERE key = '{INDEXED_FROM}' "
    "AND {0}id < CAST(value AS INTEGER))"
)
_INSERT = f"""\
    INSERT INTO {{table}}(rowid, body)
    SELECT new.id, {_BODY.format("new.")}
    WHERE {_IS_INDEXED.format("new.")};
"""
_DELETE = f"""\
    INSERT INTO {{table}}({{table}}, rowid, body)
    SELECT 'delete', old.id, {_BODY.format("old.")}
    WHERE {_IS_INDEXED.format("old.")};
"""
_TRIGGERS = {
    "insert": f"""\
CREATE TRIGGER {{table}}_insert AFTER INSERT ON messages BEGIN
{_INSERT}END""",
    "delete": f"""\
CREATE TRIGGER {{table}}_delete AFTER DELETE ON messages BEGIN
{_DELETE}END""",
    "update": f"""\
CREATE TRIGGER {{table}}_update AFTER UPDATE OF
id, content, tool_name, tool_calls, search_text ON messages BEGIN
{_DELETE}{_INSERT}END""",
}
# Characters that the lower case of the tokenizers folds as search does; ASCII is told by its
# length in bytes, since the pattern takes 0.3 microseconds a character.
_PLAIN = (
    "' || char(1) || '-\u00a9\u2002-\u2064\u20a0-\u20bf\u2500-\u27bf\u3000-\u3029\u3041-\u3096"
    "\u30a0-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\ufe0f\uff01-\uff0f\uff1a-\uff20"
    "\U0001f300-\U0001f6d7\U0001f900-\U0001fa53\U00020000-\U0002a6df"
)
_UNUSUAL = (
    "(length({0}) <> length(CAST({0} AS BLOB)) AND "
    f"({{0}} GLOB '*[^{_PLAIN}]*' OR instr({{0}}, char(0)) > 0))"
)
_MUST_BE_FOLDED = "\n    OR ".join(
    (
        "{0}content_encoding IS NOT NULL",
        "typeof({0}content) = 'blob'",
        r"instr({0}tool_calls, '\u') > 0",
        *(_UNUSUAL.format(f"{{0}}{name}") for name in ("content", "tool_name", "tool_calls")),
    )
)
_PENDING = "messages_fts_pending"
_WRITE_DOWN = f"""\
    INSERT INTO {_PENDING}(id)
    SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM {_PENDING} WHERE id = new.id);
"""
_PENDING_TRIGGERS = {
    f"{_PENDING}_insert": f"""\
CREATE TRIGGER {_PENDING}_insert AFTER INSERT ON messages WHEN new.search_text IS NULL AND (
    {_MUST_BE_FOLDED.format("new.")}
) BEGIN
{_WRITE_DOWN}END""",
    f"{_PENDING}_delete": f"""\
CREATE TRIGGER {_PENDING}_delete AFTER DELETE ON messages BEGIN
    DELETE FROM {_PENDING} WHERE id = old.id;
END""",
    # A text that changes beneath the one to search makes that one stale.
    f"{_PENDING}_update": f"""\
CREATE TRIGGER {_PENDING}_update AFTER UPDATE OF
id, content, content_encoding, tool_name, tool_calls, search_text ON messages WHEN
(new.search_text IS NULL AND (
    {_MUST_BE_FOLDED.format("new.")}
)) OR (new.search_text IS old.search_text AND new.search_text IS NOT NULL AND (
    new.id IS NOT old.id OR new.content IS NOT old.content
    OR new.content_encoding IS NOT old.content_encoding
    OR new.tool_name IS NOT old.tool_name OR new.tool_calls IS NOT old.tool_calls
)) BEGIN
{_WRITE_DOWN}END""",
}
FULL_TEXT = ("messages_fts", "messages_fts_trigram")

# By name, in the order of creation.
TRIGGERS: dict[str, str] = {
    f"{table}_{event}": statement.format(table=table)
    for table in FULL_TEXT
    for event, statement in _TRIGGERS.items()
} | _PENDING_TRIGGERS
