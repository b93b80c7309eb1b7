"""Whole sessions, as they leave the store."""

from __future__ import annotations

from sqlalchemy import Connection

from sessionstore.records import ExportedSession
from sessionstore.repository import messages, sessions


def exported(connection: Connection, session_id: str) -> ExportedSession | None:
    """Return a session with all its messages, or None."""
    record = sessions.find(connection, session_id)
    if record is None:
        return None
    return ExportedSession(
        **record,
        messages=messages.listing(connection, session_id),
    )
