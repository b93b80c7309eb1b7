"""How often a session called the model: sessions.api_call_count.

Existing sessions get 0: nobody counted. Going back loses the counts.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column where it is missing."""
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE sessions ADD COLUMN api_call_count bigint DEFAULT 0")
    elif "api_call_count" not in _columns("sessions"):
        op.execute("ALTER TABLE sessions ADD COLUMN api_call_count INTEGER DEFAULT 0")
    op.execute("UPDATE schema_version SET version = 8 WHERE version < 8")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE sessions DROP COLUMN api_call_count")
    op.execute("UPDATE schema_version SET version = 7")


def _columns(table: str) -> set[str]:
    """Name the columns in lower case: SQLite takes `TITLE` for `title`."""
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
