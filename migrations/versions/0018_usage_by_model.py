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
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
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
    PRIMARY KEY (session_id, model, billing_provider, task)
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
USED = " OR ".join(f"coalesce({name}, 0) <> 0" for name in COUNTERS)
SEED = f"""\
INSERT INTO session_model_usage (
    session_id, model, billing_provider, {", ".join(COUNTERS)},
    estimated_cost_usd, actual_cost_usd, first_seen, last_seen
)
SELECT id, coalesce(model, ''), coalesce(billing_provider, ''),
    {", ".join(f"coalesce({name}, 0)" for name in COUNTERS)},
    estimated_cost_usd, actual_cost_usd, started_at, coalesce(last_active_at, started_at)
FROM sessions
WHERE {USED} OR estimated_cost_usd IS NOT NULL OR actual_cost_usd IS NOT NULL"""


def upgrade() -> None:
    """Make the table and fill it from the totals."""
    op.execute(SQLITE if op.get_context().dialect.name == "sqlite" else POSTGRESQL)
    op.execute(SEED)


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP TABLE session_model_usage")
