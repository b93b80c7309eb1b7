"""Set right what is derived from the messages; what was stored is never changed."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

from sessionstore.upkeep.examine import (
    LATEST,
    differing,
    drop_unused_prompts,
    miscounted,
    misdated,
    schema_objects,
)

_COUNT = text(
    "UPDATE sessions SET message_count = :messages, tool_call_count = :calls WHERE id = :id"
)
_DATE = text(f"UPDATE sessions SET last_active_at = {LATEST} WHERE id = :id")  # noqa: S608 - constants


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
            connection.exec_driver_sql(f"DROP {found[name][0]} {_quoted(name)}")
        connection.exec_driver_sql(expected[name][1])
    for session_id, messages, calls in miscounted(connection):
        connection.execute(_COUNT, {"id": session_id, "messages": messages, "calls": calls})
    for session_id in misdated(connection):
        connection.execute(_DATE, {"id": session_id})
    drop_unused_prompts(connection)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
