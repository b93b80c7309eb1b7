"""Live, compacted, undone: what a message is to its conversation.

`messages.active` and `messages.compacted`: (1, 0) is live, (0, 1) was replaced by a summary,
(0, 0) was undone. Every message there is becomes live. `sessions.rewind_count` counts the
undos. The index serves the live messages of a session in their order.

Going back keeps every row, so that what was compacted or undone stands among the rest again.
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

COLUMNS = (
    ("messages", "active", "INTEGER NOT NULL DEFAULT 1"),
    ("messages", "compacted", "INTEGER NOT NULL DEFAULT 0"),
    ("sessions", "rewind_count", "INTEGER NOT NULL DEFAULT 0"),
)
INDEX = "CREATE INDEX ix_messages_session_id_active_id ON messages(session_id, active, id)"


def upgrade() -> None:
    """Add the columns that are missing, and the index."""
    for table, name, kind in COLUMNS:
        if name not in _columns(table):
            op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    op.execute("DROP INDEX IF EXISTS ix_messages_session_id_active_id")
    op.execute(INDEX)


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP INDEX ix_messages_session_id_active_id")
    for table, name, _ in reversed(COLUMNS):
        op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
