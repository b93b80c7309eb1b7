"""Say what a child is to its parent: `sessions.relation`.

`continuation`, `branch` or `subagent`; NULL where there is no parent, or where the ends and
starts of the two still tell it, as they do for every session there is. What is written stays
when the parent is deleted. Going back forgets it: a subagent's run whose parent is gone then
looks like a conversation.
"""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    if "relation" not in _columns("sessions"):
        op.execute("ALTER TABLE sessions ADD COLUMN relation TEXT")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE sessions DROP COLUMN relation")


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
