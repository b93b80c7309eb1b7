"""Reasoning as its own text, and a place for values of the store as a whole.

For a week, files said 7 and had other columns, and `state_meta` came later within 7; so
both are looked for, whatever the number says. NULL for existing messages. Going back loses
messages.reasoning_content and every value in state_meta.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STATE_META = """\
CREATE TABLE state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
)"""


def upgrade() -> None:
    """Add the column and the table where they are missing."""
    if op.get_context().dialect.name == "sqlite":
        if "reasoning_content" not in _columns("messages"):
            op.execute("ALTER TABLE messages ADD COLUMN reasoning_content TEXT")
        if not _columns("state_meta"):
            op.execute(STATE_META)
    else:
        op.execute("ALTER TABLE messages ADD COLUMN reasoning_content text")
        op.execute('CREATE TABLE state_meta (key text COLLATE "C" PRIMARY KEY, value text)')
    op.execute("UPDATE schema_version SET version = 7 WHERE version < 7")


def downgrade() -> None:
    """Drop the table and the column."""
    op.execute("DROP TABLE state_meta")
    op.execute("ALTER TABLE messages DROP COLUMN reasoning_content")
    op.execute("UPDATE schema_version SET version = 6")


def _columns(table: str) -> set[str]:
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
