"""What is derived from the messages of a file: how to tell that it is wrong, and its cure.

What was stored is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

from sessionstore.codec import as_text
from sessionstore.repository import prompts

# A session goes by its rowid here: where other hands wrote it, its id may be no text.
# What counters would be if they were counted anew; what JSON cannot read makes no calls.
_MISCOUNTED = text(
    "SELECT s.rowid AS row, s.id, count(m.id) AS messages, "
    "coalesce(sum(CASE WHEN m.role <> 'tool' AND json_valid(m.tool_calls) "
    "AND json_type(m.tool_calls) = 'array' THEN json_array_length(m.tool_calls) END), 0) AS calls "
    "FROM sessions s LEFT JOIN messages m ON m.session_id = s.id AND m.active = 1 GROUP BY s.rowid "
    "HAVING messages <> coalesce(s.message_count, 0) OR calls <> coalesce(s.tool_call_count, 0)"
)
_COUNT = text(
    "UPDATE sessions SET message_count = :messages, tool_call_count = :calls WHERE rowid = :row"
)
_LATEST = (
    "(SELECT max(m.timestamp) FROM messages m WHERE m.session_id = sessions.id "
    "AND typeof(m.timestamp) IN ('real', 'integer'))"
)
_MISDATED = text(f"SELECT id FROM sessions WHERE last_active_at IS NOT {_LATEST}")  # noqa: S608 - constants
_DATE = text(
    f"UPDATE sessions SET last_active_at = {_LATEST} WHERE last_active_at IS NOT {_LATEST}"  # noqa: S608 - constants
)
_OBJECTS = text(
    "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL "
    "AND type IN ('index', 'trigger', 'view')"
)


def miscounted(connection: Connection) -> list[str]:
    """List the sessions whose counters do not follow their live messages."""
    return [as_text(row.id) for row in connection.execute(_MISCOUNTED)]


def misdated(connection: Connection) -> list[str]:
    """List the sessions whose time of last activity is not that of their latest message."""
    return [as_text(each) for each in connection.execute(_MISDATED).scalars()]


def schema_objects(connection: Connection) -> dict[str, tuple[str, str]]:
    """Give the indexes, triggers and views there are: name to kind and text."""
    return {name: (kind, sql) for kind, name, sql in connection.execute(_OBJECTS)}


def differing(
    found: Mapping[str, tuple[str, str]], expected: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Name what is missing or reads otherwise than it should; white space does not count."""
    return sorted(
        name
        for name, (_, sql) in expected.items()
        if name not in found or found[name][1].split() != sql.split()
    )


def repair(connection: Connection, expected: Mapping[str, tuple[str, str]]) -> None:
    """Put indexes and triggers right, then counters, times and prompts, in one transaction.

    Args:
        connection: One that holds the write lock.
        expected: The indexes and triggers of a fresh store.

    Raises:
        DBAPIError: An index cannot be made, such as one that two equal titles forbid.
    """
    found = schema_objects(connection)
    for name in differing(found, expected):
        if name in found:
            quoted = name.replace('"', '""')
            connection.exec_driver_sql(f'DROP {found[name][0]} "{quoted}"')
        connection.exec_driver_sql(expected[name][1])
    for row in connection.execute(_MISCOUNTED).all():
        wanted = {"row": row.row, "messages": row.messages, "calls": row.calls}
        connection.execute(_COUNT, wanted)
    connection.execute(_DATE)
    prompts.collect_all(connection)
