"""Keep each system prompt once, named by its hash.

`sessions.system_prompt_hash` refers to `system_prompts(hash, prompt)`; the hash is SHA-256,
in hexadecimal, of the prompt's UTF-8 bytes. Existing prompts move there, byte for byte, and
`sessions.system_prompt` becomes NULL; what other programs still write into it counts when it
is read. A file gets smaller when it is vacuumed.

Before that, the columns of level 11 that a file lacks in spite of its number are added.

A column or a table of ours that another program made first steps aside, under a name that
ends in `_before_0012`, and going back lets it have its name again.

Going back puts each prompt into its sessions again and loses nothing, but that what was kept
as bytes is text then.
"""

from __future__ import annotations

import hashlib

from alembic import op
from sqlalchemy import text

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INDEX = (
    "CREATE INDEX ix_sessions_system_prompt_hash ON sessions(system_prompt_hash) "
    "WHERE system_prompt_hash IS NOT NULL"
)
# The table, and how the column is declared.
SQLITE = (
    """\
CREATE TABLE system_prompts (
    hash TEXT NOT NULL PRIMARY KEY,
    prompt TEXT NOT NULL
)""",
    "TEXT REFERENCES system_prompts(hash)",
)
POSTGRESQL = (
    """\
CREATE TABLE system_prompts (
    hash text COLLATE "C" PRIMARY KEY,
    prompt text NOT NULL
)""",
    """\
text COLLATE "C"
    CONSTRAINT fk_sessions_system_prompt_hash_system_prompts REFERENCES system_prompts (hash)""",
)
# What levels 2 to 9 promise; some files say a level and do not keep it.
LEVEL_11 = {
    "sessions": {
        "title": "TEXT",
        **dict.fromkeys(
            ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count"),
            "INTEGER DEFAULT 0",
        ),
        **dict.fromkeys(("billing_provider", "billing_base_url", "billing_mode"), "TEXT"),
        **dict.fromkeys(("estimated_cost_usd", "actual_cost_usd"), "REAL"),
        **dict.fromkeys(("cost_status", "cost_source", "pricing_version"), "TEXT"),
    },
    "messages": dict.fromkeys(
        (
            "finish_reason",
            "reasoning",
            "reasoning_details",
            "codex_reasoning_items",
            "reasoning_content",
            "codex_message_items",
        ),
        "TEXT",
    ),
}
FITS = "{0} IS NULL OR {0} IN (SELECT hash FROM system_prompts)"
AT_ONCE = 200


def upgrade() -> None:
    """Make the table, move the prompts, index the references."""
    sqlite = op.get_context().dialect.name == "sqlite"
    if sqlite:
        _keep_promises()
    table, column = SQLITE if sqlite else POSTGRESQL
    _make_table("system_prompts", table)
    _add("sessions", "system_prompt_hash", column, FITS)
    (_move_on_sqlite if sqlite else _move_on_postgresql)()
    if sqlite:
        op.execute("DROP INDEX IF EXISTS ix_sessions_system_prompt_hash")
    op.execute(INDEX)


def downgrade() -> None:
    """Put the prompts back and drop the table."""
    op.execute(
        "UPDATE sessions SET system_prompt = (SELECT prompt FROM system_prompts "
        "WHERE system_prompts.hash = sessions.system_prompt_hash) "
        "WHERE system_prompt_hash IS NOT NULL AND system_prompt IS NULL"
    )
    op.execute("DROP INDEX ix_sessions_system_prompt_hash")
    _drop("sessions", "system_prompt_hash")
    _drop_table("system_prompts")


def _keep_promises() -> None:
    for table, promised in LEVEL_11.items():
        there = _columns(table)
        for name, kind in promised.items():
            if name not in there:
                op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    op.execute(
        "CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique "
        "ON sessions(title) WHERE title IS NOT NULL"
    )
    op.execute("CREATE TABLE IF NOT EXISTS state_meta (key TEXT PRIMARY KEY, value TEXT)")


def _move_on_sqlite() -> None:
    bind = op.get_bind()
    keep = text(
        "INSERT OR IGNORE INTO system_prompts (hash, prompt) "
        "SELECT :hash, CAST(system_prompt AS TEXT) FROM sessions WHERE rowid = :row"
    )
    refer = text(
        "UPDATE sessions SET system_prompt_hash = :hash, system_prompt = NULL WHERE rowid = :row"
    )
    # As bytes, since an old file may hold text that is no UTF-8, or no text: it moves unchanged.
    held = text(
        "SELECT rowid, CAST(system_prompt AS BLOB) FROM sessions "
        "WHERE system_prompt IS NOT NULL AND rowid > :after ORDER BY rowid LIMIT :at_once"
    )
    kept: set[str] = set()
    after = -(2**63)
    while rows := bind.execute(held, {"after": after, "at_once": AT_ONCE}).all():
        for row, prompt in rows:
            parameters = {"hash": hashlib.sha256(prompt).hexdigest(), "row": row}
            if parameters["hash"] not in kept:
                bind.execute(keep, parameters)
                kept.add(parameters["hash"])
            bind.execute(refer, parameters)
        after = rows[-1][0]


def _move_on_postgresql() -> None:
    named = "encode(sha256(convert_to(system_prompt, 'UTF8')), 'hex')"
    op.execute(
        f"INSERT INTO system_prompts (hash, prompt) SELECT DISTINCT {named}, system_prompt "
        "FROM sessions WHERE system_prompt IS NOT NULL"
    )
    op.execute(
        f"UPDATE sessions SET system_prompt_hash = {named}, system_prompt = NULL "
        "WHERE system_prompt IS NOT NULL"
    )


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

    It gets a name that says so, and what fits of it is taken over.
    """
    aside = f"{name}_before_{revision}"
    there = _columns(table)
    if name in there:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {name} TO {aside}")
    op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    if name in there:
        op.execute(f"UPDATE {table} SET {name} = {aside} WHERE {fits.format(aside)}")


def _drop(table: str, name: str) -> None:
    """Drop a column, and let the one that stepped aside have its name again."""
    op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    if (aside := f"{name}_before_{revision}") in _columns(table):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {aside} TO {name}")


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
