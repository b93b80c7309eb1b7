"""Sessions: making, finding, ending, deleting."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Row,
    and_,
    case,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from sessionstore.codec import decode_json, encode_json
from sessionstore.errors import ConflictError, SessionNotFoundError
from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import SessionRecord
from sessionstore.repository import chains, checks, titles

UNKNOWN_SOURCE = "unknown"

COUNTERS = (
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
_COLUMNS = tuple(column.name for column in SESSIONS.columns)
_SELECT = select(SESSIONS)


def record_of(row: Row[Any] | Sequence[Any]) -> SessionRecord:
    """Turn a row of every column, in the order of the mapped table, into a record."""
    record = dict(zip(_COLUMNS, row, strict=True))
    record["model_config"] = decode_json(record["model_config"])
    for name in COUNTERS:
        record[name] = record[name] or 0
    return cast("SessionRecord", record)


def new_session(
    session_id: str,
    source: str,
    *,
    started_at: float,
    model: str | None = None,
    model_config: Any = None,
    system_prompt: str | None = None,
    user_id: str | None = None,
    title: str | None = None,
    parent_session_id: str | None = None,
) -> dict[str, Any]:
    """Check and encode a session to be made; no database.

    Raises:
        ValueError: Id or source is empty, the title too long, the time not finite.
        TypeError: A field is not what it must be.
    """
    if parent_session_id is not None and parent_session_id == session_id:
        msg = f"session {session_id!r} cannot be its own parent"
        raise ValueError(msg)
    return {
        "id": checks.required_text("session_id", session_id),
        "source": checks.required_text("source", source),
        "user_id": checks.plain_text("user_id", user_id),
        "model": checks.plain_text("model", model),
        "model_config": encode_json(model_config),
        "system_prompt": checks.plain_text("system_prompt", system_prompt),
        "parent_session_id": checks.plain_text("parent_session_id", parent_session_id),
        "started_at": checks.moment("started_at", started_at),
        "title": titles.sanitize_title(title),
    }


def create(connection: Connection, new: dict[str, Any]) -> str:
    """Make a session, or give an existing one what it lacks, and return its id.

    Raises:
        SessionNotFoundError: The parent does not exist.
        TitleTakenError: Another session holds the title.
        ConflictError: The parent descends from this very session.
    """
    values = {name: value for name, value in new.items() if name != "title"}
    session_id: str = values["id"]
    parent_id = values["parent_session_id"]
    if parent_id is not None:
        if not exists(connection, parent_id):
            raise SessionNotFoundError(parent_id, f"no parent session has the id {parent_id!r}")
        # Only a session that is there already can be its own parent's ancestor.
        if exists(connection, session_id) and session_id in chains.lineage(connection, parent_id):
            msg = f"session {parent_id} descends from {session_id} and cannot be its parent"
            raise ConflictError(msg)
    connection.execute(_upsert(connection.dialect.name), values)
    if new["title"] is not None and titles.get_title(connection, session_id) is None:
        titles.set_title(connection, session_id, new["title"])
    return session_id


@functools.cache
def _upsert(dialect: str) -> Insert:
    """Insert a session; one that is there keeps what it has and gains what it lacks."""
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    made = insert(SESSIONS)
    gains: dict[str, ColumnElement[Any]] = {
        name: func.coalesce(SESSIONS.c[name], made.excluded[name])
        for name in ("user_id", "model", "model_config", "system_prompt", "parent_session_id")
    }
    gains["source"] = case(
        (SESSIONS.c.source == UNKNOWN_SOURCE, made.excluded.source), else_=SESSIONS.c.source
    )
    return made.on_conflict_do_update(index_elements=[SESSIONS.c.id], set_=gains)


def exists(connection: Connection, session_id: str) -> bool:
    """Say whether there is such a session."""
    found = connection.execute(select(SESSIONS.c.id).where(SESSIONS.c.id == session_id))
    return found.first() is not None


def require(connection: Connection, session_id: str) -> None:
    """Make sure that there is such a session.

    Raises:
        SessionNotFoundError: There is none.
    """
    if not exists(connection, session_id):
        raise SessionNotFoundError(session_id)


def find(connection: Connection, session_id: str) -> SessionRecord | None:
    """Return one session, or None."""
    row = connection.execute(_SELECT.where(SESSIONS.c.id == session_id)).first()
    return None if row is None else record_of(row)


def find_many(connection: Connection, ids: Sequence[str]) -> dict[str, SessionRecord]:
    """Map ids to their sessions; an id that no session has is not in it."""
    found = connection.execute(_SELECT.where(SESSIONS.c.id.in_(ids))) if ids else ()
    return {record["id"]: record for record in map(record_of, found)}


def end(connection: Connection, session_id: str, end_reason: str, ended_at: float) -> bool:
    """End a session unless it has ended; say whether this call did it."""
    done = connection.execute(
        update(SESSIONS)
        .where(SESSIONS.c.id == session_id, SESSIONS.c.ended_at.is_(None))
        .values(ended_at=ended_at, end_reason=end_reason)
    )
    return done.rowcount > 0


def reopen(connection: Connection, session_id: str) -> bool:
    """Open a session again; say whether there is such a session."""
    done = connection.execute(
        update(SESSIONS).where(SESSIONS.c.id == session_id).values(ended_at=None, end_reason=None)
    )
    return done.rowcount > 0


def update_system_prompt(connection: Connection, session_id: str, prompt: str | None) -> None:
    """Replace the system prompt.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    done = connection.execute(
        update(SESSIONS).where(SESSIONS.c.id == session_id).values(system_prompt=prompt)
    )
    if done.rowcount == 0:
        raise SessionNotFoundError(session_id)


def find_ids(connection: Connection, prefix: str) -> list[str]:
    """List the ids that begin with a text, ascending by code point; case counts.

    Compared with substr and not LIKE, so that `%` and `_` are ordinary characters.
    """
    begins = func.substr(SESSIONS.c.id, 1, len(prefix)) == prefix
    in_range = SESSIONS.c.id >= prefix
    found = connection.execute(
        select(SESSIONS.c.id).where(and_(in_range, begins)).order_by(SESSIONS.c.id)
    )
    return list(found.scalars())


def resolve_id(connection: Connection, text: str) -> str | None:
    """Return the session that has exactly this id, or the only one whose id begins so."""
    if exists(connection, text):
        return text
    matches = find_ids(connection, text)
    return matches[0] if len(matches) == 1 else None


def count(connection: Connection, source: str | None) -> int:
    """Count the sessions, of one source or of all."""
    counted = select(func.count()).select_from(SESSIONS)
    if source is not None:
        counted = counted.where(SESSIONS.c.source == source)
    return connection.execute(counted).scalar_one()


def sources(connection: Connection) -> dict[str, int]:
    """Count the sessions of every source that occurs, most frequent first."""
    counted = func.count().label("sessions")
    found = connection.execute(
        select(SESSIONS.c.source, counted)
        .group_by(SESSIONS.c.source)
        .order_by(counted.desc(), SESSIONS.c.source)
    )
    return {source: sessions for source, sessions in found}  # noqa: C416 - dict() takes no Row


def delete_with_messages(connection: Connection, session_id: str) -> int | None:
    """Delete a session and its messages; its children lose the parent.

    Returns:
        How many messages went, or None if there is no such session.
    """
    if not exists(connection, session_id):
        return None
    connection.execute(
        update(SESSIONS)
        .where(SESSIONS.c.parent_session_id == session_id)
        .values(parent_session_id=None)
    )
    gone = connection.execute(delete(MESSAGES).where(MESSAGES.c.session_id == session_id))
    connection.execute(delete(SESSIONS).where(SESSIONS.c.id == session_id))
    return gone.rowcount
