"""Give PostgreSQL an index to search by: numbers for the words and pieces of each message.

`messages_fts` has, by the id of a message, the numbers of its words and of its grams, pieces of
one to three characters, and how many words it has. The package makes them of the folded text
and stores them with the message; either kind has a GIN index over arrays, which has no limit
to how much of a text it holds, takes no account of the locale, and needs no extension. The
package's docs/search.md says more. A table of its own, so that an update of a message that
changes nothing of its text touches no index.

`messages_fts_pending` lists messages without numbers: those there are now, and what other
programs write or change, for which triggers care. They are found by reading them until the
package has given them theirs, step by step, in the course of writes or by `db upgrade`.

Going back drops all of it and loses nothing that is not in messages. SQLite has its index
since 0022 and no part in this.
"""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

# https://www.postgresql.org/docs/current/gin-builtin-opclasses.html
# https://www.postgresql.org/docs/current/storage-toast.html
# https://www.postgresql.org/docs/current/gin-implementation.html#GIN-FAST-UPDATE
CREATE = (
    """\
CREATE TABLE messages_fts (
    id BIGINT NOT NULL,
    word_count INTEGER NOT NULL,
    grams INTEGER[] NOT NULL,
    words BIGINT[] NOT NULL,
    CONSTRAINT pk_messages_fts PRIMARY KEY (id),
    CONSTRAINT fk_messages_fts_id_messages FOREIGN KEY (id) REFERENCES messages (id)
        ON UPDATE CASCADE ON DELETE CASCADE
) WITH (toast_tuple_target = 128)""",
    """\
CREATE TABLE messages_fts_pending (
    id BIGINT NOT NULL,
    CONSTRAINT pk_messages_fts_pending PRIMARY KEY (id),
    CONSTRAINT fk_messages_fts_pending_id_messages FOREIGN KEY (id) REFERENCES messages (id)
        ON UPDATE CASCADE ON DELETE CASCADE
)""",
    (
        "ALTER TABLE messages_fts ALTER grams SET STORAGE EXTERNAL, ALTER grams SET STATISTICS 0, "
        "ALTER words SET STORAGE EXTERNAL, ALTER words SET STATISTICS 0"
    ),
    (
        "CREATE INDEX ix_messages_fts_grams ON messages_fts USING gin (grams) "
        "WITH (gin_pending_list_limit = 512)"
    ),
    (
        "CREATE INDEX ix_messages_fts_words ON messages_fts USING gin (words) "
        "WITH (gin_pending_list_limit = 512)"
    ),
    """\
CREATE OR REPLACE FUNCTION messages_fts_pending() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM messages_fts WHERE id = new.id;
    END IF;
    INSERT INTO messages_fts_pending (id)
    SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM messages_fts WHERE id = new.id)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$""",
    """\
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages
FOR EACH ROW EXECUTE FUNCTION messages_fts_pending()""",
    """\
CREATE TRIGGER messages_fts_update
AFTER UPDATE OF content, content_encoding, tool_name, tool_calls ON messages
FOR EACH ROW WHEN ((old.content, old.content_encoding, old.tool_name, old.tool_calls)
    IS DISTINCT FROM (new.content, new.content_encoding, new.tool_name, new.tool_calls))
EXECUTE FUNCTION messages_fts_pending()""",
    "INSERT INTO messages_fts_pending (id) SELECT id FROM messages",
)
DROP = (
    "DROP TRIGGER IF EXISTS messages_fts_update ON messages",
    "DROP TRIGGER IF EXISTS messages_fts_insert ON messages",
    "DROP FUNCTION IF EXISTS messages_fts_pending()",
    "DROP TABLE IF EXISTS messages_fts, messages_fts_pending",
)


def upgrade() -> None:
    """Make the tables, and list every message as waiting."""
    if op.get_context().dialect.name == "postgresql":
        for statement in CREATE:
            op.execute(statement)


def downgrade() -> None:
    """Drop them; on SQLite there is nothing to undo."""
    if op.get_context().dialect.name == "postgresql":
        for statement in DROP:
            op.execute(statement)
