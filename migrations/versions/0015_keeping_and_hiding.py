"""Put sessions away, or keep them at the top: `sessions.archived` and `sessions.pinned`.

Both are 0 for the sessions there are. Going back forgets which were archived or pinned, so
that a prune no longer spares them.
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

NAMES = ("archived", "pinned")
# Few are pinned, and a list that begins with them should not read the others for it.
INDEX = "CREATE INDEX ix_sessions_pinned ON sessions(pinned) WHERE pinned = 1"


def upgrade() -> None:
    """Add the columns that are missing, and the index."""
    there = _columns("sessions")
    for name in NAMES:
        if name not in there:
            op.execute(f"ALTER TABLE sessions ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0")
    op.execute("DROP INDEX IF EXISTS ix_sessions_pinned")
    op.execute(INDEX)


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP INDEX ix_sessions_pinned")
    for name in reversed(NAMES):
        op.execute(f"ALTER TABLE sessions DROP COLUMN {name}")


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
