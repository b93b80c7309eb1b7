r"""Have tool calls with `\u003c` and its like read again, to be found by what that stands for.

Some encoders of JSON write `<`, `>`, `&` and quotes as escapes, as Go's does, so the text by
which such a message is found had `\u003c` where its user sees `<`; and `\u5e7f` in a text that
is no JSON, such as code, was taken for the character. The messages that may be concerned are
listed in `messages_fts_pending`. They are found by reading them until the package has indexed
them anew, step by step, in the course of writes or by `db upgrade`.

No message changes. Going back lists the same messages, for the package that reads them then.
"""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

THERE = "SELECT 1 FROM sqlite_master WHERE name = 'messages_fts_pending'"
# Printed ASCII as an escape, or an escape after one more backslash. A backslash is nothing
# special to GLOB, and escapes itself in a pattern of PostgreSQL:
# https://www.postgresql.org/docs/current/functions-matching.html
CONCERNED = r"tool_calls GLOB '*\u00[2-7]*' OR tool_calls GLOB '*\\u*'"
CONCERNED_ON_SERVER = r"tool_calls ~ '\\u00[2-7]|\\\\u'"
LIST = (
    f"INSERT INTO messages_fts_pending(id) SELECT id FROM messages WHERE ({CONCERNED}) "
    "AND id NOT IN (SELECT id FROM messages_fts_pending)"
)
LIST_ON_SERVER = (
    f"DELETE FROM messages_fts WHERE id IN (SELECT id FROM messages WHERE {CONCERNED_ON_SERVER})",
    (
        f"INSERT INTO messages_fts_pending(id) SELECT id FROM messages WHERE {CONCERNED_ON_SERVER} "
        "ON CONFLICT DO NOTHING"
    ),
)


def upgrade() -> None:
    """List the messages."""
    _list()


def downgrade() -> None:
    """List them again."""
    _list()


def _list() -> None:
    if op.get_context().dialect.name == "postgresql":
        for statement in LIST_ON_SERVER:
            op.execute(statement)
    elif op.get_bind().exec_driver_sql(THERE).first():
        # An index that is not there, or lost this part, is made anew as a whole.
        op.execute(LIST)
