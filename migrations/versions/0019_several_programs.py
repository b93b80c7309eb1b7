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
TABLES = (
    """\
CREATE TABLE compression_locks (
    session_id {key} NOT NULL PRIMARY KEY,
    holder {text} NOT NULL,
    acquired_at {real} NOT NULL,
    expires_at {real} NOT NULL
)""",
    """\
CREATE TABLE gateway_routing (
    scope {key} NOT NULL,
    session_key {key} NOT NULL,
    entry_json {text} NOT NULL,
    updated_at {real} NOT NULL,
    PRIMARY KEY (scope, session_key)
)""",
    """\
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
    """\
CREATE INDEX ix_delivery_obligations_state_available_at
ON delivery_obligations(state, available_at)""",
)
HANDOFF = ("handoff_state", "handoff_platform", "handoff_error")


def upgrade() -> None:
    """Make the tables and add the columns that are missing."""
    types = TYPES[op.get_context().dialect.name]
    for statement in TABLES:
        op.execute(statement.format(**types))
    there = _columns("sessions")
    for name in HANDOFF:
        if name not in there:
            op.execute(f"ALTER TABLE sessions ADD COLUMN {name} TEXT")


def downgrade() -> None:
    """Drop them."""
    for name in reversed(HANDOFF):
        op.execute(f"ALTER TABLE sessions DROP COLUMN {name}")
    for table in ("delivery_obligations", "gateway_routing", "compression_locks"):
        op.execute(f"DROP TABLE {table}")


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
