"""How often a session called the model: sessions.api_call_count.

Existing sessions get 0: nobody counted. Going back loses the counts.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Each column with its type on SQLite and on PostgreSQL.
COLUMNS = (("api_call_count", "INTEGER DEFAULT 0", "bigint DEFAULT 0"),)


def upgrade() -> None:
    """Add the column that is missing."""
    dialect = op.get_context().dialect.name
    there = _columns("sessions") if dialect == "sqlite" else set()
    for name, sqlite, postgresql in COLUMNS:
        if name not in there:
            kind = sqlite if dialect == "sqlite" else postgresql
            op.execute(f"ALTER TABLE sessions ADD COLUMN {name} {kind}")
    op.execute("UPDATE schema_version SET version = 8 WHERE version < 8")


def downgrade() -> None:
    """Drop it."""
    for name, *_ in reversed(COLUMNS):
        op.execute(f"ALTER TABLE sessions DROP COLUMN {name}")
    op.execute("UPDATE schema_version SET version = 7")


def _columns(table: str) -> set[str]:
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
