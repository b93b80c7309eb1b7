"""What may go: candidates for pruning, empty sessions, chains that were never finished."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from sessionstore.filters import SessionFilter
from sessionstore.models import SESSIONS
from sessionstore.records import SkippedSession
from sessionstore.repository import listing
from sessionstore.repository.chains import is_continuation
from sessionstore.repository.filters import activity

ORPHANED_COMPRESSION = "orphaned_compression"

# Somebody may still be about to say the first word in a session that is younger.
_GHOSTS = text(
    "SELECT s.id FROM sessions s WHERE coalesce(s.ended_at, s.started_at) < :before "
    "AND coalesce(s.title, '') = '' AND s.archived = 0 AND s.pinned = 0 "
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

    doomed: list[listing.Matching]
    skipped: list[SkippedSession]


def plan(connection: Connection, wanted: SessionFilter, *, now: float) -> PrunePlan:
    """Find what a prune would delete: of all that passes the filter, what nothing spares."""
    doomed: list[listing.Matching] = []
    skipped: list[SkippedSession] = []
    for match in listing.matching(connection, wanted, now=now):
        reason = "its id is damaged" if match.damaged else _spared_for(*match[2:5])
        if reason is None:
            doomed.append(match)
        else:
            skipped.append(SkippedSession(id=match.id, reason=reason))
    return PrunePlan(doomed, skipped)


def _spared_for(ended_at: float | None, pinned: int, archived: int) -> str | None:
    if ended_at is None:
        return "still open"
    if pinned:
        return "pinned"
    return "archived" if archived else None


def still_doomed(
    connection: Connection, session_id: str, wanted: SessionFilter, *, now: float
) -> bool:
    """Say whether a planned session still is what the plan was about."""
    found = connection.execute(
        select(SESSIONS.c.ended_at, SESSIONS.c.pinned, SESSIONS.c.archived).where(
            SESSIONS.c.id == session_id
        )
    ).first()
    return (
        found is not None
        and _spared_for(*found) is None
        and listing.passes(connection, session_id, wanted, now=now)
    )


def empty_ghosts(connection: Connection, *, before: float) -> list[str]:
    """List the sessions without a message, title or child that are older than a time."""
    return list(connection.execute(_GHOSTS, {"before": before}).scalars())


def finalize_orphans(connection: Connection, *, before: float) -> int:
    """End the continuations that were never used since their parent was compressed."""
    done = connection.execute(_ORPHANED, {"reason": ORPHANED_COMPRESSION, "before": before})
    return done.rowcount
