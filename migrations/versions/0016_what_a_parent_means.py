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
    _add(
        "sessions",
        "relation",
        "TEXT",
        "{0} IS NULL OR {0} IN ('continuation', 'branch', 'subagent')",
    )


def downgrade() -> None:
    """Drop it."""
    _drop("sessions", "relation")


def _add(table: str, name: str, kind: str, fits: str) -> None:
    """Add a column; a column of this name that is another program's steps aside.

    One that is declared alike and says only what fits is taken for ours. Of one that steps
    aside, under a name that says so, what fits is taken over.
    """
    aside = f"{name}_before_{revision}"
    there = _columns(table)
    if name in there:
        unfit = f"SELECT 1 FROM {table} WHERE ({fits.format(name)}) IS NOT 1 LIMIT 1"
        if there[name] == kind and not op.get_bind().exec_driver_sql(unfit).all():
            return
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {name} TO {aside}")
    op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    if name in there:
        op.execute(f"UPDATE {table} SET {name} = {aside} WHERE {fits.format(aside)}")


def _drop(table: str, name: str) -> None:
    """Drop a column, and let the one that stepped aside have its name again."""
    op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    if (aside := f"{name}_before_{revision}") in _columns(table):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {aside} TO {name}")


def _columns(table: str) -> dict[str, str]:
    """Map the columns to how they are declared; PostgreSQL has nobody's but ours."""
    if op.get_context().dialect.name != "sqlite":
        return {}
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {
        name.lower(): kind
        + (" NOT NULL" if required else "")
        + (f" DEFAULT {default}" if default else "")
        for _, name, kind, required, default, _ in rows
    }
