"""What the model thought, and what its provider wants back with the next request.

NULL for existing messages. Going back loses the reasoning of every message.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS = (
    "reasoning",
    "reasoning_details",
    "codex_reasoning_items",
)


def upgrade() -> None:
    """Add the columns that are missing."""
    dialect = op.get_context().dialect.name
    there = _columns("messages") if dialect == "sqlite" else set()
    for name in COLUMNS:
        if name not in there:
            op.execute(f"ALTER TABLE messages ADD COLUMN {name} TEXT")
    op.execute("UPDATE schema_version SET version = 6 WHERE version < 6")


def downgrade() -> None:
    """Drop them."""
    for name in reversed(COLUMNS):
        op.execute(f"ALTER TABLE messages DROP COLUMN {name}")
    op.execute("UPDATE schema_version SET version = 5")


def _columns(table: str) -> set[str]:
    """Name the columns in lower case: SQLite takes `TITLE` for `title`."""
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
