"""Reasoning as its own text, and a place for values of the store as a whole.

For a week, files said 7 and had other columns, and `state_meta` came later within 7; so
both are looked for, whatever the number says. A `state_meta` that cannot hold a value by its
key steps aside, as `state_meta_before_0007`, and what it holds by key is taken over. NULL for
existing messages. Going back loses messages.reasoning_content and every value in state_meta.
"""

from __future__ import annotations

import re

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STATE_META = """\
CREATE TABLE state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
)"""

ASIDE = "state_meta_before_0007"


def upgrade() -> None:
    """Add the column and the table where they are missing."""
    if op.get_context().dialect.name == "sqlite":
        if "reasoning_content" not in _columns("messages"):
            op.execute("ALTER TABLE messages ADD COLUMN reasoning_content TEXT")
        _make_state_meta()
    else:
        op.execute("ALTER TABLE messages ADD COLUMN reasoning_content text")
        op.execute('CREATE TABLE state_meta (key text COLLATE "C" PRIMARY KEY, value text)')
    op.execute("UPDATE schema_version SET version = 7 WHERE version < 7")


def downgrade() -> None:
    """Drop the table and the column."""
    op.execute("DROP TABLE state_meta")
    if op.get_context().dialect.name == "sqlite" and _columns(ASIDE):
        _rename(ASIDE, "state_meta")
    op.execute("ALTER TABLE messages DROP COLUMN reasoning_content")
    op.execute("UPDATE schema_version SET version = 6")


def _make_state_meta() -> None:
    there = _columns("state_meta")
    keys = op.get_bind().exec_driver_sql("PRAGMA table_info(state_meta)").all()
    if {"key", "value"} <= there and [row[1].lower() for row in keys if row[5]] == ["key"]:
        return
    if there:
        _rename("state_meta", ASIDE)
    op.execute(STATE_META)
    if {"key", "value"} <= there:
        op.execute(
            f"INSERT OR REPLACE INTO state_meta SELECT key, value FROM {ASIDE} "
            "WHERE key IS NOT NULL"
        )


def _rename(name: str, other: str) -> None:
    """Rename a table, or a view, which SQLite only lets one make anew."""
    bind = op.get_bind()
    kind, statement = bind.exec_driver_sql(
        "SELECT type, sql FROM sqlite_master "
        f"WHERE type IN ('table', 'view') AND lower(name) = '{name}'"
    ).one()
    if kind == "table":
        op.execute(f"ALTER TABLE {name} RENAME TO {other}")
        return
    # SQLite stores the text as CREATE VIEW and, from the name on, what was written.
    bind.exec_driver_sql(f"DROP VIEW {name}")
    bind.exec_driver_sql(re.sub(re.escape(name), other, statement, count=1, flags=re.IGNORECASE))


def _columns(table: str) -> set[str]:
    """Name the columns in lower case: SQLite takes `TITLE` for `title`."""
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in rows}
