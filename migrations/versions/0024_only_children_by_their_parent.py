"""Index by parent only the sessions that have one, and by start below it: `idx_sessions_parent`.

Most have none, and the index listed all of those under NULL. Once any program has run ANALYZE,
SQLite reckons with how many rows a parent has on average (`sqlite_stat1`): nearly all there
are. So it left the index aside, and each entry of a list read every session for the one that
continues it. The average is of children now; and where one parent has nearly all of these, it
is the order by start that decides, since a list asks for the latest child.

The name stays: it is in people's files, and a program that makes the index unless it exists
finds it there. No row changes. What statistics there are of the old index go with it, here and
on the way back, which makes the index as revision 0001 does.
"""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# An equality with a parent implies the WHERE, in a query of ours as in that by which a foreign
# key looks for children: https://www.sqlite.org/partialindex.html, rule 2,
# https://www.sqlite.org/foreignkeys.html#fk_indexes,
# https://www.postgresql.org/docs/current/indexes-partial.html.
INDEX = (
    "CREATE INDEX idx_sessions_parent ON sessions(parent_session_id, started_at) "
    "WHERE parent_session_id IS NOT NULL"
)
BEFORE = "CREATE INDEX idx_sessions_parent ON sessions(parent_session_id)"


def upgrade() -> None:
    """Make the index anew."""
    op.execute("DROP INDEX IF EXISTS idx_sessions_parent")
    op.execute(INDEX)


def downgrade() -> None:
    """Make the old one again."""
    op.execute("DROP INDEX IF EXISTS idx_sessions_parent")
    op.execute(BEFORE)
