"""What several programs agree on through the store: locks, routes, deliveries, hand-over.

Every decision is one conditional write within a transaction that holds the write lock (or,
on PostgreSQL, the lock of the row), so two programs never both win. Times are epoch seconds
of the caller's clock.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Row,
    delete,
    or_,
    select,
    update,
)

from sessionstore.codec import decode_json
from sessionstore.errors import SessionNotFoundError
from sessionstore.models import COMPRESSION_LOCKS, DELIVERIES, GATEWAY_ROUTES, SESSIONS
from sessionstore.records import Delivery, Handoff, SessionRecord
from sessionstore.repository import sessions
from sessionstore.repository.dialects import insert_if_absent, insert_into, one_at_a_time

PENDING = "pending"
CLAIMED = "claimed"
DELIVERED = "delivered"
FAILED = "failed"
RUNNING = "running"
COMPLETED = "completed"
DELIVERY_STATES = (PENDING, CLAIMED, DELIVERED, FAILED)

# SQLite takes at most 32,766 parameters in a statement (https://www.sqlite.org/limits.html).
_AT_ONCE = 1000


# Locks.


def acquire_lock(
    connection: Connection, session_id: str, holder: str, *, now: float, ttl_s: float
) -> bool:
    """Take the lock of a session, or extend it; say whether the holder has it."""
    values = {"holder": holder, "acquired_at": now, "expires_at": now + ttl_s}
    of_session = COMPRESSION_LOCKS.c.session_id == session_id
    taken = connection.execute(
        update(COMPRESSION_LOCKS)
        .where(
            of_session,
            or_(COMPRESSION_LOCKS.c.expires_at <= now, COMPRESSION_LOCKS.c.holder == holder),
        )
        .values(values)
    )
    if taken.rowcount:
        return True
    # Of two that find no lock one makes it.
    return insert_if_absent(connection, COMPRESSION_LOCKS, {"session_id": session_id, **values})


def refresh_lock(
    connection: Connection, session_id: str, holder: str, *, now: float, ttl_s: float
) -> bool:
    """Extend a lock that the holder still has; say whether it does."""
    done = connection.execute(
        update(COMPRESSION_LOCKS)
        .where(
            COMPRESSION_LOCKS.c.session_id == session_id,
            COMPRESSION_LOCKS.c.holder == holder,
            COMPRESSION_LOCKS.c.expires_at > now,
        )
        .values(expires_at=now + ttl_s)
    )
    return done.rowcount > 0


def release_lock(connection: Connection, session_id: str, holder: str) -> bool:
    """Give a lock back; say whether it was the holder's."""
    done = connection.execute(
        delete(COMPRESSION_LOCKS).where(
            COMPRESSION_LOCKS.c.session_id == session_id, COMPRESSION_LOCKS.c.holder == holder
        )
    )
    return done.rowcount > 0


def lock_holder(connection: Connection, session_id: str, *, now: float) -> str | None:
    """Return who has the lock of a session, or None."""
    return connection.execute(
        select(COMPRESSION_LOCKS.c.holder).where(
            COMPRESSION_LOCKS.c.session_id == session_id, COMPRESSION_LOCKS.c.expires_at > now
        )
    ).scalar_one_or_none()


# Routes.


def save_route(
    connection: Connection, scope: str, session_key: str, entry_json: str, *, now: float
) -> None:
    """Set the route of one chat."""
    connection.execute(
        _upsert_route(connection.dialect.name),
        {
            "scope": scope,
            "session_key": session_key,
            "entry_json": entry_json,
            "updated_at": now,
        },
    )


@functools.cache
def _upsert_route(dialect: str) -> Insert:
    made = insert_into(GATEWAY_ROUTES, dialect)
    return made.on_conflict_do_update(
        index_elements=[GATEWAY_ROUTES.c.scope, GATEWAY_ROUTES.c.session_key],
        set_={name: made.excluded[name] for name in ("entry_json", "updated_at")},
    )


def load_routes(connection: Connection, scope: str) -> dict[str, Any]:
    """Map the chats of a scope to their routes, ascending by key."""
    found = connection.execute(
        select(GATEWAY_ROUTES.c.session_key, GATEWAY_ROUTES.c.entry_json)
        .where(GATEWAY_ROUTES.c.scope == scope)
        .order_by(GATEWAY_ROUTES.c.session_key)
    )
    return {session_key: decode_json(entry) for session_key, entry in found}


def replace_routes(
    connection: Connection, scope: str, entries: Mapping[str, str], *, now: float
) -> None:
    """Put new routes in the place of all of a scope."""
    # A DELETE sees no row that another transaction is about to commit.
    one_at_a_time(connection, f"gateway_routing {scope}")
    connection.execute(delete(GATEWAY_ROUTES).where(GATEWAY_ROUTES.c.scope == scope))
    for session_key, entry_json in entries.items():
        save_route(connection, scope, session_key, entry_json, now=now)


def delete_route(connection: Connection, scope: str, session_key: str) -> bool:
    """Delete the route of one chat; say whether there was one."""
    done = connection.execute(
        delete(GATEWAY_ROUTES).where(
            GATEWAY_ROUTES.c.scope == scope, GATEWAY_ROUTES.c.session_key == session_key
        )
    )
    return done.rowcount > 0


# The outbox.


def add_delivery(connection: Connection, values: Mapping[str, Any]) -> bool:
    """Note something that is owed; say whether it is new. The same id is the same delivery."""
    return insert_if_absent(connection, DELIVERIES, values)


def claim_deliveries(
    connection: Connection, owner: str, *, limit: int, now: float, lease_s: float
) -> list[Delivery]:
    """Lease deliveries that are due to an owner, longest due first.

    Due is what is pending and available, and what somebody claimed whose lease is past.
    """
    due = or_(
        (DELIVERIES.c.state == PENDING) & (DELIVERIES.c.available_at <= now),
        (DELIVERIES.c.state == CLAIMED) & (DELIVERIES.c.lease_expires_at <= now),
    )
    ids = list(
        connection.execute(
            select(DELIVERIES.c.delivery_id)
            .where(due)
            .order_by(DELIVERIES.c.available_at, DELIVERIES.c.delivery_id)
            .limit(limit)
            # SQLite has one writer at a time and ignores this.
            .with_for_update(skip_locked=True)
        ).scalars()
    )
    claimed: list[Delivery] = []
    for start in range(0, len(ids), _AT_ONCE):
        chosen = DELIVERIES.c.delivery_id.in_(ids[start : start + _AT_ONCE])
        connection.execute(
            update(DELIVERIES)
            .where(chosen)
            .values(
                state=CLAIMED,
                claimed_by=owner,
                lease_expires_at=now + lease_s,
                attempts=DELIVERIES.c.attempts + 1,
                updated_at=now,
            )
        )
        claimed += _listed(connection, chosen)
    return claimed


def settle_delivery(
    connection: Connection, delivery_id: str, *, owner: str | None, now: float, **changes: Any
) -> bool:
    """End the claim on a delivery; say whether it was still owed, and this owner's if one is named.

    A lease that is over and was taken by nobody is still its owner's.
    """
    is_owed: ColumnElement[bool] = DELIVERIES.c.state.in_((PENDING, CLAIMED))
    if owner is not None:
        is_owed = (DELIVERIES.c.state == CLAIMED) & (DELIVERIES.c.claimed_by == owner)
    done = connection.execute(
        update(DELIVERIES)
        .where(DELIVERIES.c.delivery_id == delivery_id, is_owed)
        .values(claimed_by=None, lease_expires_at=None, updated_at=now, **changes)
    )
    return done.rowcount > 0


def list_deliveries(connection: Connection, state: str | None) -> list[Delivery]:
    """List the deliveries of one state, or all, longest available first."""
    return _listed(connection, *([] if state is None else [DELIVERIES.c.state == state]))


def _listed(connection: Connection, *conditions: Any) -> list[Delivery]:
    found = connection.execute(
        select(DELIVERIES)
        .where(*conditions)
        .order_by(DELIVERIES.c.available_at, DELIVERIES.c.delivery_id)
    )
    return [_delivery(row) for row in found]


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        delivery_id=row.delivery_id,
        session_id=row.session_id,
        target=row.target,
        payload=decode_json(row.payload_json),
        state=row.state,
        attempts=row.attempts,
        available_at=row.available_at,
        claimed_by=row.claimed_by,
        lease_expires_at=row.lease_expires_at,
        last_error=row.last_error,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


# Hand-over.


def change_handoff(
    connection: Connection,
    session_id: str,
    *,
    allowed: Sequence[str | None],
    platform: str | None = None,
    **changes: str | None,
) -> bool:
    """Move a hand-over on if it stands where it may; say whether it did.

    Args:
        connection: An open transaction that writes.
        session_id: The session.
        allowed: The states it may stand in.
        platform: Only one that goes there; None: wherever it goes.
        changes: The new values by column.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    state = SESSIONS.c.handoff_state
    stands: ColumnElement[bool] = state.in_([each for each in allowed if each is not None])
    if None in allowed:
        stands = or_(stands, state.is_(None))
    if platform is not None:
        stands = stands & (SESSIONS.c.handoff_platform == platform)
    done = connection.execute(
        update(SESSIONS).where(SESSIONS.c.id == session_id, stands).values(**changes)
    )
    if done.rowcount == 0:
        sessions.require(connection, session_id)
    return done.rowcount > 0


def handoff_state(connection: Connection, session_id: str) -> Handoff | None:
    """Return where the hand-over of a session stands; None if none was asked for.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    row = connection.execute(
        select(
            SESSIONS.c.handoff_state, SESSIONS.c.handoff_platform, SESSIONS.c.handoff_error
        ).where(SESSIONS.c.id == session_id)
    ).first()
    if row is None:
        raise SessionNotFoundError(session_id)
    state, platform, error = row
    return None if state is None else Handoff(state=state, platform=platform, error=error)


def pending_handoffs(connection: Connection) -> list[SessionRecord]:
    """List the sessions whose hand-over nobody has claimed, oldest-started first."""
    found = connection.execute(
        select(*sessions.ALL_COLUMNS)
        .where(SESSIONS.c.handoff_state == PENDING)
        .order_by(SESSIONS.c.started_at, SESSIONS.c.id)
    )
    return [sessions.record_of(row) for row in found]
