"""Know of each session when it was last active: `sessions.last_active_at`.

The highest time of its messages, NULL without any; kept by triggers, since other programs
write messages too. The index is over that time or else the start, latest first, which is the
order of a list. Existing sessions get theirs from their messages.

Going back drops column, triggers and index, and loses nothing that messages do not say.
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

LATEST = "(SELECT max(timestamp) FROM messages WHERE messages.session_id = sessions.id)"
INDEX = (
    "CREATE INDEX ix_sessions_activity ON "
    "sessions(coalesce(last_active_at, started_at) DESC, id DESC)"
)
# A later message raises the time; the one that set it lowers it by going.
RAISE = """\
    UPDATE sessions SET last_active_at = new.timestamp
    WHERE id = new.session_id AND (last_active_at IS NULL OR last_active_at < new.timestamp);
"""
LOWER = f"""\
    UPDATE sessions SET last_active_at = {LATEST}
    WHERE id = old.session_id AND last_active_at <= old.timestamp;
"""
TRIGGERS = {
    "messages_activity_insert": f"""\
CREATE TRIGGER messages_activity_insert AFTER INSERT ON messages BEGIN
{RAISE}END""",
    "messages_activity_delete": f"""\
CREATE TRIGGER messages_activity_delete AFTER DELETE ON messages BEGIN
{LOWER}END""",
    "messages_activity_update": f"""\
CREATE TRIGGER messages_activity_update AFTER UPDATE OF timestamp, session_id ON messages BEGIN
{LOWER}{RAISE}END""",
}
POSTGRESQL = (
    """\
CREATE FUNCTION messages_activity() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        UPDATE sessions SET last_active_at = (
            SELECT max(timestamp) FROM messages WHERE messages.session_id = sessions.id
        ) WHERE id = old.session_id AND last_active_at <= old.timestamp;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        UPDATE sessions SET last_active_at = new.timestamp
        WHERE id = new.session_id
        AND (last_active_at IS NULL OR last_active_at < new.timestamp);
    END IF;
    RETURN NULL;
END $$""",
    """\
CREATE TRIGGER messages_activity AFTER INSERT OR DELETE OR UPDATE OF timestamp, session_id
ON messages FOR EACH ROW EXECUTE FUNCTION messages_activity()""",
)


def upgrade() -> None:
    """Add the column, fill it, then index it and keep it."""
    sqlite = op.get_context().dialect.name == "sqlite"
    if "last_active_at" not in _columns("sessions"):
        kind = "REAL" if sqlite else "double precision"
        op.execute(f"ALTER TABLE sessions ADD COLUMN last_active_at {kind}")
    op.execute(f"UPDATE sessions SET last_active_at = {LATEST}")
    op.execute("DROP INDEX IF EXISTS ix_sessions_activity")
    op.execute(INDEX)
    if not sqlite:
        for statement in POSTGRESQL:
            op.execute(statement)
        return
    for name, statement in TRIGGERS.items():
        op.execute(f"DROP TRIGGER IF EXISTS {name}")
        op.execute(statement)


def downgrade() -> None:
    """Drop them."""
    if op.get_context().dialect.name == "sqlite":
        for name in TRIGGERS:
            op.execute(f"DROP TRIGGER {name}")
    else:
        op.execute("DROP TRIGGER messages_activity ON messages")
        op.execute("DROP FUNCTION messages_activity()")
    op.execute("DROP INDEX ix_sessions_activity")
    op.execute("ALTER TABLE sessions DROP COLUMN last_active_at")


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
