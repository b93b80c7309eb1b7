"""Count tokens and cost by model: `session_model_usage`.

A line for each session, model, provider and task, where an empty text means that none was
named. What sessions used so far becomes one line each, under the model and the provider they
name. The lines of a session go with it. Going back loses the division; the totals stay.
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
SQLITE = """\
CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL,
    model TEXT NOT NULL DEFAULT '',
    billing_provider TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    api_call_count INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    first_seen REAL NOT NULL,
    last_seen REAL NOT NULL,
    PRIMARY KEY (session_id, model, billing_provider, task),
    FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
)"""
POSTGRESQL = """\
CREATE TABLE session_model_usage (
    session_id text COLLATE "C" NOT NULL
        CONSTRAINT fk_session_model_usage_session_id_sessions
        REFERENCES sessions (id) ON DELETE CASCADE,
    model text COLLATE "C" NOT NULL DEFAULT '',
    billing_provider text COLLATE "C" NOT NULL DEFAULT '',
    task text COLLATE "C" NOT NULL DEFAULT '',
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    api_call_count bigint NOT NULL DEFAULT 0,
    estimated_cost_usd double precision,
    actual_cost_usd double precision,
    first_seen double precision NOT NULL,
    last_seen double precision NOT NULL,
    PRIMARY KEY (session_id, model, billing_provider, task)
)"""
COSTS = ("estimated_cost_usd", "actual_cost_usd")
SEED = """\
INSERT INTO session_model_usage (
    session_id, model, billing_provider, {names}, first_seen, last_seen
)
SELECT id, coalesce(model, ''), coalesce(billing_provider, ''),
    {figures}, {first}, {last}
FROM sessions
WHERE id IS NOT NULL AND ({used}){but}"""
SEED_POSTGRESQL = SEED.format(
    names=", ".join((*COUNTERS, *COSTS)),
    figures=", ".join((*(f"coalesce({name}, 0)" for name in COUNTERS), *COSTS)),
    first="started_at",
    last="coalesce(last_active_at, started_at)",
    used=" OR ".join(
        (
            *(f"coalesce({name}, 0) <> 0" for name in COUNTERS),
            *(f"{name} IS NOT NULL" for name in COSTS),
        )
    ),
    but="",
)
# Old files may hold NULL or text where a figure belongs, and lines of another program's.
COUNT = "CAST(coalesce({0}, 0) AS INTEGER)"
COST = "iif(typeof({0}) IN ('real', 'integer'), {0}, NULL)"
STARTED = f"coalesce({COST.format('started_at')}, 0.0)"
SEED_SQLITE = SEED.format(
    names=", ".join((*COUNTERS, *COSTS)),
    figures=", ".join(
        (*(COUNT.format(name) for name in COUNTERS), *(COST.format(name) for name in COSTS))
    ),
    first=STARTED,
    last=f"coalesce(last_active_at, {STARTED})",
    used=" OR ".join(
        (
            *(f"{COUNT.format(name)} <> 0" for name in COUNTERS),
            *(f"{COST.format(name)} IS NOT NULL" for name in COSTS),
        )
    ),
    but=" AND id NOT IN (SELECT session_id FROM session_model_usage)",
)


def upgrade() -> None:
    """Make the table and fill it from the totals."""
    sqlite = op.get_context().dialect.name == "sqlite"
    _make_table("session_model_usage", SQLITE if sqlite else POSTGRESQL)
    op.execute(SEED_SQLITE if sqlite else SEED_POSTGRESQL)


def downgrade() -> None:
    """Drop it."""
    _drop_table("session_model_usage")


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
