"""Why the model stopped: messages.finish_reason.

NULL for existing messages: nobody noted it. Going back loses the reasons.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column where it is missing."""
    if op.get_context().dialect.name != "sqlite" or "finish_reason" not in _columns("messages"):
        op.execute("ALTER TABLE messages ADD COLUMN finish_reason TEXT")
    op.execute("UPDATE schema_version SET version = 2 WHERE version < 2")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE messages DROP COLUMN finish_reason")
    op.execute("UPDATE schema_version SET version = 1")


def _columns(table: str) -> set[str]:
    """Name the columns in lower case: SQLite takes `TITLE` for `title`."""
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
