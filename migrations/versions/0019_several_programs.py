"""What several programs agree on through the store: locks, routes, deliveries, hand-over.

`compression_locks` says who may compress a session, until when. `gateway_routing` keeps the
routes of a gateway. `delivery_obligations` is an outbox: answers owed to a chat, which a
crash does not cancel. `sessions.handoff_*` hands a session to another platform; files of
level 11 may have these three columns already, and keep what they say.

Going back drops the tables with all that is pending in them, and the three columns.
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

# Types on SQLite and on PostgreSQL.
TYPES = {
    "sqlite": {"key": "TEXT", "text": "TEXT", "real": "REAL", "count": "INTEGER"},
    "postgresql": {
        "key": 'text COLLATE "C"',
        "text": "text",
        "real": "double precision",
        "count": "bigint",
    },
}
TABLES = {
    "compression_locks": """\
CREATE TABLE compression_locks (
    session_id {key} NOT NULL PRIMARY KEY,
    holder {text} NOT NULL,
    acquired_at {real} NOT NULL,
    expires_at {real} NOT NULL
)""",
    "gateway_routing": """\
CREATE TABLE gateway_routing (
    scope {key} NOT NULL,
    session_key {key} NOT NULL,
    entry_json {text} NOT NULL,
    updated_at {real} NOT NULL,
    PRIMARY KEY (scope, session_key)
)""",
    "delivery_obligations": """\
CREATE TABLE delivery_obligations (
    delivery_id {key} NOT NULL PRIMARY KEY,
    session_id {key} NOT NULL,
    target {text} NOT NULL,
    payload_json {text} NOT NULL,
    state {text} NOT NULL DEFAULT 'pending',
    attempts {count} NOT NULL DEFAULT 0,
    available_at {real} NOT NULL,
    claimed_by {text},
    lease_expires_at {real},
    last_error {text},
    created_at {real} NOT NULL,
    updated_at {real} NOT NULL
)""",
}
INDEX = """\
CREATE INDEX ix_delivery_obligations_state_available_at
ON delivery_obligations(state, available_at)"""
HANDOFF = ("handoff_state", "handoff_platform", "handoff_error")


def upgrade() -> None:
    """Make the tables and add the columns that are missing."""
    types = TYPES[op.get_context().dialect.name]
    for table, statement in TABLES.items():
        _make_table(table, statement.format(**types))
    op.execute("DROP INDEX IF EXISTS ix_delivery_obligations_state_available_at")
    op.execute(INDEX)
    for name in HANDOFF:
        _add("sessions", name, "TEXT", "1")


def downgrade() -> None:
    """Drop them."""
    for name in reversed(HANDOFF):
        _drop("sessions", name)
    for table in reversed(TABLES):
        _drop_table(table)


def _make_table(table: str, statement: str) -> None:
    """Make a table; one of this name that has other columns steps aside.

    What refers to it follows it (https://www.sqlite.org/lang_altertable.html#rename).
    """
    there = _shape(table)
    if there:
        op.execute(f"ALTER TABLE {table} RENAME TO {table}_before_{revision}")
    op.execute(statement)
    if not there:
        return
    if there == _shape(table):
        op.execute(f"DROP TABLE {table}")
        op.execute(f"ALTER TABLE {table}_before_{revision} RENAME TO {table}")


def _drop_table(table: str) -> None:
    """Drop a table, and let the one that stepped aside have its name again."""
    op.execute(f"DROP TABLE {table}")
    if _shape(f"{table}_before_{revision}"):
        op.execute(f"ALTER TABLE {table}_before_{revision} RENAME TO {table}")


def _shape(table: str) -> set[tuple[object, ...]]:
    """Say how the columns of a table are declared; nothing where there is no such table."""
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {tuple(row)[1:] for row in rows}


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
