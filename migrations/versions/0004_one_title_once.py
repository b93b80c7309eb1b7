"""One title, one session: a unique index over the titles that are set.

A file from before may hold a title several times, or have another index under this name.
The session that started last keeps the title, the others lose theirs, and the log says how
many. Going back drops the index; the titles that were cleared do not return.
"""

from __future__ import annotations

import logging

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

logger = logging.getLogger("sessionstore.migrations")

INDEX = "CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL"
# Of equal times the row stored last wins. {key} is what tells two rows apart: a primary key
# of type TEXT may be NULL in SQLite (https://www.sqlite.org/lang_createtable.html#rowid).
CLEAR = """\
UPDATE sessions SET title = NULL WHERE {key} IN (
    SELECT {key} FROM (
        SELECT {key}, row_number() OVER (
            PARTITION BY title ORDER BY started_at DESC, {key} DESC
        ) AS place
        FROM sessions WHERE title IS NOT NULL
    ) AS ranked
    WHERE place > 1
)"""


def upgrade() -> None:
    """Clear the titles that stand twice, then index them."""
    bind = op.get_bind()
    sqlite = op.get_context().dialect.name == "sqlite"
    if not sqlite or _index_text() != INDEX:
        op.execute("DROP INDEX IF EXISTS idx_sessions_title_unique")
        cleared = bind.exec_driver_sql(CLEAR.format(key="rowid" if sqlite else "id")).rowcount
        if cleared:
            logger.warning("%d sessions lost a title that a session started later has too", cleared)
        op.execute(INDEX)
    op.execute("UPDATE schema_version SET version = 4 WHERE version < 4")


def downgrade() -> None:
    """Drop the index."""
    op.execute("DROP INDEX IF EXISTS idx_sessions_title_unique")
    op.execute("UPDATE schema_version SET version = 3")


def _index_text() -> str | None:
    statement = "SELECT sql FROM sqlite_master WHERE name = 'idx_sessions_title_unique'"
    found: str | None = op.get_bind().exec_driver_sql(statement).scalar()
    return found
