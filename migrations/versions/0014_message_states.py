"""Live, compacted, undone: what a message is to its conversation.

`messages.active` and `messages.compacted`: (1, 0) is live, (0, 1) was replaced by a summary,
(0, 0) was undone. Every message there is becomes live. `sessions.rewind_count` counts the
undos. The index serves the live messages of a session in their order.

Going back keeps every row, so that what was compacted or undone stands among the rest again.
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

COLUMNS = (
    ("messages", "active", "INTEGER NOT NULL DEFAULT 1", "{0} IN (0, 1)"),
    ("messages", "compacted", "INTEGER NOT NULL DEFAULT 0", "{0} IN (0, 1)"),
    (
        "sessions",
        "rewind_count",
        "INTEGER NOT NULL DEFAULT 0",
        "typeof({0}) = 'integer' AND {0} >= 0",
    ),
)
INDEX = "CREATE INDEX ix_messages_session_id_active_id ON messages(session_id, active, id)"


def upgrade() -> None:
    """Add the columns that are missing, and the index."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for table, name, kind, fits in COLUMNS:
        counter = name == "rewind_count" and not sqlite
        _add(table, name, kind.replace("INTEGER", "bigint") if counter else kind, fits)
    op.execute("DROP INDEX IF EXISTS ix_messages_session_id_active_id")
    op.execute(INDEX)


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP INDEX ix_messages_session_id_active_id")
    for table, name, *_ in reversed(COLUMNS):
        _drop(table, name)


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
