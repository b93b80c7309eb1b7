"""Remember the id a chat platform gave a message: `messages.platform_message_id`.

Indexed within a session where it is set. NULL for the messages there are. Going back loses
the ids.
"""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

INDEX = (
    "CREATE INDEX ix_messages_session_id_platform_message_id "
    "ON messages(session_id, platform_message_id) WHERE platform_message_id IS NOT NULL"
)


def upgrade() -> None:
    """Add the column and its index."""
    if "platform_message_id" not in _columns("messages"):
        op.execute("ALTER TABLE messages ADD COLUMN platform_message_id TEXT")
    op.execute("DROP INDEX IF EXISTS ix_messages_session_id_platform_message_id")
    op.execute(INDEX)


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP INDEX ix_messages_session_id_platform_message_id")
    op.execute("ALTER TABLE messages DROP COLUMN platform_message_id")


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
