"""Opaque items of a message that its provider wants back: messages.codex_message_items.

NULL for existing messages. Going back loses the items.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS = ("codex_message_items",)


def upgrade() -> None:
    """Add the column that is missing."""
    dialect = op.get_context().dialect.name
    there = _columns("messages") if dialect == "sqlite" else set()
    for name in COLUMNS:
        if name not in there:
            op.execute(f"ALTER TABLE messages ADD COLUMN {name} TEXT")
    op.execute("UPDATE schema_version SET version = 9 WHERE version < 9")


def downgrade() -> None:
    """Drop it."""
    for name in reversed(COLUMNS):
        op.execute(f"ALTER TABLE messages DROP COLUMN {name}")
    op.execute("UPDATE schema_version SET version = 8")


def _columns(table: str) -> set[str]:
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
