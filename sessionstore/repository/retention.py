"""What may go: candidates for pruning, empty sessions, chains that were never finished."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from sessionstore.records import SessionFilter, SessionRecord, SkippedSession
from sessionstore.repository import listing, sessions
from sessionstore.repository.chains import is_continuation
from sessionstore.repository.filters import activity

ORPHANED_COMPRESSION = "orphaned_compression"

# Somebody may still be about to say the first word in a session that is younger.
_GHOSTS = text(
    "SELECT s.id FROM sessions s WHERE coalesce(s.ended_at, s.started_at) < :before "
    "AND s.title IS NULL AND s.archived = 0 AND s.pinned = 0 "
    "AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id) "
    "AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id) ORDER BY s.id"
)

_ORPHANED = text(
    "UPDATE sessions SET end_reason = :reason, "
    f"ended_at = {activity('sessions')} WHERE ended_at IS NULL "
    f"AND coalesce(api_call_count, 0) = 0 AND {activity('sessions')} < :before "
    "AND EXISTS (SELECT 1 FROM sessions p WHERE p.id = sessions.parent_session_id "
    f"AND {is_continuation('sessions', 'p')})"
)


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Which sessions a prune deletes, and which it leaves although they are old enough."""

    doomed: list[str]
    skipped: list[SkippedSession]


def plan(connection: Connection, wanted: SessionFilter, *, now: float) -> PrunePlan:
    """Find what a prune would delete: of all that passes the filter, what nothing spares."""
    doomed: list[str] = []
    skipped: list[SkippedSession] = []
    ids = listing.matching_ids(connection, wanted, now=now)
    for start in range(0, len(ids), _AT_ONCE):
        chunk = ids[start : start + _AT_ONCE]
        records = sessions.find_many(connection, chunk)
        for session_id in chunk:
            reason = _spared_for(records[session_id])
            if reason is None:
                doomed.append(session_id)
            else:
                skipped.append(SkippedSession(id=session_id, reason=reason))
    return PrunePlan(doomed, skipped)


def _spared_for(record: SessionRecord) -> str | None:
    if record["ended_at"] is None:
        return "still open"
    if record["pinned"]:
        return "pinned"
    return "archived" if record["archived"] else None


# SQLite takes at most 32,766 parameters in a statement (https://www.sqlite.org/limits.html).
_AT_ONCE = 1000


def still_doomed(
    connection: Connection, session_id: str, wanted: SessionFilter, *, now: float
) -> bool:
    """Say whether a planned session still is what the plan was about."""
    record = sessions.find(connection, session_id)
    return (
        record is not None
        and _spared_for(record) is None
        and listing.passes(connection, session_id, wanted, now=now)
    )


def empty_ghosts(connection: Connection, *, before: float) -> list[str]:
    """List the sessions without a message, title or child that are older than a time."""
    return list(connection.execute(_GHOSTS, {"before": before}).scalars())


def finalize_orphans(connection: Connection, *, before: float) -> int:
    """End the continuations that were never used since their parent was compressed."""
    done = connection.execute(_ORPHANED, {"reason": ORPHANED_COMPRESSION, "before": before})
    return done.rowcount
