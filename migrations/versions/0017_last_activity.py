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

LATEST = "(SELECT max(timestamp) FROM messages WHERE messages.session_id = sessions.id{})"
# What SQLite lets stand in the column and is no time does not count.
IS_TIME = "typeof({}timestamp) IN ('real', 'integer')"
INDEX = (
    "CREATE INDEX ix_sessions_activity ON "
    "sessions(coalesce(last_active_at, started_at) DESC, id DESC)"
)
# A later message raises the time; the one that set it lowers it by going.
RAISE = f"""\
    UPDATE sessions SET last_active_at = new.timestamp
    WHERE id = new.session_id AND {IS_TIME.format("new.")}
    AND (last_active_at IS NULL OR last_active_at < new.timestamp);
"""
LOWER = f"""\
    UPDATE sessions SET last_active_at = {LATEST.format(" AND " + IS_TIME.format(""))}
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
    # Whatever a column of this name says, the messages know better.
    _add("sessions", "last_active_at", "REAL" if sqlite else "double precision", "1")
    is_time = " AND " + IS_TIME.format("") if sqlite else ""
    op.execute(f"UPDATE sessions SET last_active_at = {LATEST.format(is_time)}")
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
    _drop("sessions", "last_active_at")


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
