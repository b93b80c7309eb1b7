"""A name for a session: sessions.title.

NULL for existing sessions: they have none. Going back loses every title.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column where it is missing."""
    if op.get_context().dialect.name == "postgresql":
        op.execute('ALTER TABLE sessions ADD COLUMN title text COLLATE "C"')
    elif "title" not in _columns("sessions"):
        op.execute("ALTER TABLE sessions ADD COLUMN title TEXT")
    op.execute("UPDATE schema_version SET version = 3 WHERE version < 3")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE sessions DROP COLUMN title")
    op.execute("UPDATE schema_version SET version = 2")


def _columns(table: str) -> set[str]:
    """Name the columns in lower case: SQLite takes `TITLE` for `title`."""
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
