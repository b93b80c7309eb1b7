"""Opaque items of a message that its provider wants back: messages.codex_message_items.

NULL for existing messages. Going back loses the items.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column where it is missing."""
    if op.get_context().dialect.name != "sqlite" or "codex_message_items" not in _columns(
        "messages"
    ):
        op.execute("ALTER TABLE messages ADD COLUMN codex_message_items TEXT")
    op.execute("UPDATE schema_version SET version = 9 WHERE version < 9")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE messages DROP COLUMN codex_message_items")
    op.execute("UPDATE schema_version SET version = 8")


def _columns(table: str) -> set[str]:
    """Name the columns in lower case: SQLite takes `TITLE` for `title`."""
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
