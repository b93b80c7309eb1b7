"""Why the model stopped: messages.finish_reason.

NULL for existing messages: nobody noted it. Going back loses the reasons.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COLUMNS = ("finish_reason",)


def upgrade() -> None:
    """Add the column that is missing."""
    dialect = op.get_context().dialect.name
    there = _columns("messages") if dialect == "sqlite" else set()
    for name in COLUMNS:
        if name not in there:
            op.execute(f"ALTER TABLE messages ADD COLUMN {name} TEXT")
    op.execute("UPDATE schema_version SET version = 2 WHERE version < 2")


def downgrade() -> None:
    """Drop it."""
    for name in reversed(COLUMNS):
        op.execute(f"ALTER TABLE messages DROP COLUMN {name}")
    op.execute("UPDATE schema_version SET version = 1")


def _columns(table: str) -> set[str]:
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
