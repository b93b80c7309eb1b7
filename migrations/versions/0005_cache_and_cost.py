"""What a session cost, and what the cache saved.

Existing sessions get 0 for the counters, and NULL for costs and billing: nobody priced
them, and an unknown cost is not a cost of 0. Going back loses all of it.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Each column with its type on SQLite and on PostgreSQL.
COLUMNS = (
    ("cache_read_tokens", "INTEGER DEFAULT 0", "bigint DEFAULT 0"),
    ("cache_write_tokens", "INTEGER DEFAULT 0", "bigint DEFAULT 0"),
    ("reasoning_tokens", "INTEGER DEFAULT 0", "bigint DEFAULT 0"),
    ("billing_provider", "TEXT", "text"),
    ("billing_base_url", "TEXT", "text"),
    ("billing_mode", "TEXT", "text"),
    ("estimated_cost_usd", "REAL", "double precision"),
    ("actual_cost_usd", "REAL", "double precision"),
    ("cost_status", "TEXT", "text"),
    ("cost_source", "TEXT", "text"),
    ("pricing_version", "TEXT", "text"),
)


def upgrade() -> None:
    """Add the columns that are missing."""
    dialect = op.get_context().dialect.name
    there = _columns("sessions") if dialect == "sqlite" else set()
    for name, sqlite, postgresql in COLUMNS:
        if name not in there:
            kind = sqlite if dialect == "sqlite" else postgresql
            op.execute(f"ALTER TABLE sessions ADD COLUMN {name} {kind}")
    op.execute("UPDATE schema_version SET version = 5 WHERE version < 5")


def downgrade() -> None:
    """Drop them."""
    for name, *_ in reversed(COLUMNS):
        op.execute(f"ALTER TABLE sessions DROP COLUMN {name}")
    op.execute("UPDATE schema_version SET version = 4")


def _columns(table: str) -> set[str]:
    """Name the columns in lower case: SQLite takes `TITLE` for `title`."""
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
