"""A name for a session: sessions.title.

NULL for existing sessions: they have none. Going back loses every title.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = ("title",)


def upgrade() -> None:
    """Add the column that is missing."""
    dialect = op.get_context().dialect.name
    there = _columns("sessions") if dialect == "sqlite" else set()
    for name in COLUMNS:
        if name not in there:
            op.execute(f"ALTER TABLE sessions ADD COLUMN {name} TEXT")
    op.execute("UPDATE schema_version SET version = 3 WHERE version < 3")


def downgrade() -> None:
    """Drop it."""
    for name in reversed(COLUMNS):
        op.execute(f"ALTER TABLE sessions DROP COLUMN {name}")
    op.execute("UPDATE schema_version SET version = 2")


def _columns(table: str) -> set[str]:
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
