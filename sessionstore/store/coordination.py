"""The calls with which several programs agree: locks, routes, deliveries, hand-over."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

from sessionstore import checks
from sessionstore.codec import encode_json
from sessionstore.errors import shown
from sessionstore.records import Delivery, Handoff, SessionRecord
from sessionstore.repository import coordination
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@checked_calls
class CoordinationCalls(StoreBase):
    """What programs that share a store tell each other: locks, routes, deliveries, hand-over."""

    # Locks.

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300
    ) -> bool:
        """Take the lock of a session; return whether the holder has it.

        The same holder again has it for so long from now. A lock whose time is over is
        anybody's, so a program that was killed blocks nobody for long.
        """
        named, now, ttl_s = self._lease(holder=holder, ttl_seconds=ttl_seconds)
        of_session = checks.required_text("session_id", session_id)
        return self._write(
            lambda db: coordination.acquire_lock(db, of_session, named, now=now, ttl_s=ttl_s)
        )

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300
    ) -> bool:
        """Keep a lock for longer; return whether the holder still had it."""
        named, now, ttl_s = self._lease(holder=holder, ttl_seconds=ttl_seconds)
        return self._write(
            lambda db: coordination.refresh_lock(db, session_id, named, now=now, ttl_s=ttl_s)
        )

    def release_compression_lock(self, session_id: str, holder: str) -> bool:
        """Give a lock back; return whether it was the holder's."""
        return self._write(lambda db: coordination.release_lock(db, session_id, holder))

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Return who has the lock of a session now, or None."""
        now = self._now()
        return self._read(lambda db: coordination.lock_holder(db, session_id, now=now))

    # Routes of a gateway.

    def save_gateway_route(self, scope: str, session_key: str, entry: Any) -> None:
        """Set where what comes from one chat goes; the entry is what JSON can hold."""
        of_scope, key = checks.required_text("scope", scope), _key(session_key)
        entry_json, now = _json(entry), self._now()
        self._write(lambda db: coordination.save_route(db, of_scope, key, entry_json, now=now))

    def load_gateway_routes(self, scope: str) -> dict[str, Any]:
        """Map the chats of a scope to their entries, ascending by key."""
        return self._read(lambda db: coordination.load_routes(db, scope))

    def replace_gateway_routes(self, scope: str, entries: Mapping[str, Any]) -> None:
        """Put new routes in the place of all of a scope, in one step."""
        of_scope, now = checks.required_text("scope", scope), self._now()
        checks.mapping("entries", entries)
        encoded = {_key(session_key): _json(entry) for session_key, entry in entries.items()}
        self._write(lambda db: coordination.replace_routes(db, of_scope, encoded, now=now))

    def delete_gateway_route(self, scope: str, session_key: str) -> bool:
        """Delete the route of one chat; return whether there was one."""
        return self._write(lambda db: coordination.delete_route(db, scope, session_key))

    # The outbox.

    def add_delivery(
        self, session_id: str, target: str, payload: Any, *, delivery_id: str | None = None
    ) -> str:
        """Note what is owed to a chat, so that a crash does not cancel it; return its id.

        The same id twice is one delivery, as it was first added.

        Args:
            session_id: The session it comes from; it may be deleted and the debt stays.
            target: Where it goes.
            payload: What JSON can hold.
            delivery_id: The caller's id for it; None makes one.
        """
        now = self._now()
        new_id = checks.required_text(
            "delivery_id", uuid.uuid4().hex if delivery_id is None else delivery_id
        )
        values = {
            "delivery_id": new_id,
            "session_id": checks.required_text("session_id", session_id),
            "target": checks.required_text("target", target),
            "payload_json": _json(payload),
            "state": coordination.PENDING,
            "attempts": 0,
            "available_at": now,
            "created_at": now,
            "updated_at": now,
        }
        self._write(lambda db: coordination.add_delivery(db, values))
        return new_id

    def claim_deliveries(
        self, owner: str, limit: int = 10, lease_seconds: float = 60
    ) -> list[Delivery]:
        """Lease deliveries that are due, longest due first; nobody else gets them meanwhile.

        One that is neither completed nor failed when the lease is over can be claimed again;
        `attempts` counts the claims.
        """
        named, now, lease_s = self._lease(owner=owner, lease_seconds=lease_seconds)
        wanted = checks.count("limit", limit)
        return self._write(
            lambda db: coordination.claim_deliveries(
                db, named, limit=wanted, now=now, lease_s=lease_s
            )
        )

    def complete_delivery(self, delivery_id: str, *, owner: str | None = None) -> bool:
        """Say that a delivery arrived; return whether it was still owed.

        Args:
            delivery_id: The delivery.
            owner: Who says so, as in `claim_deliveries`: False, and nothing is changed, where
                it is not, or no longer, this owner's, as when the lease was over and another
                took it. None: whoever has it.
        """
        now = self._now()
        return self._write(
            lambda db: coordination.settle_delivery(
                db, delivery_id, owner=owner, now=now, state=coordination.DELIVERED
            )
        )

    def fail_delivery(
        self,
        delivery_id: str,
        error: str | None = None,
        retry_at: float | None = None,
        *,
        owner: str | None = None,
    ) -> bool:
        """Say that a delivery did not arrive; return whether it was still owed.

        Args:
            delivery_id: The delivery.
            error: What went wrong.
            retry_at: Epoch seconds from which it may be claimed again; None gives it up.
            owner: Who says so; see `complete_delivery`.
        """
        now = self._now()
        changes: dict[str, Any] = {"last_error": _told(error)}
        if retry_at is None:
            changes["state"] = coordination.FAILED
        else:
            changes |= {"state": coordination.PENDING, "available_at": retry_at}
        return self._write(
            lambda db: coordination.settle_delivery(
                db, delivery_id, owner=owner, now=now, **changes
            )
        )

    def list_deliveries(self, state: str | None = None) -> list[Delivery]:
        """List what is `pending`, `claimed`, `delivered` or `failed`, or all, longest due first.

        Raises:
            ValueError: It is no such state.
        """
        if state is not None and state not in coordination.DELIVERY_STATES:
            states = ", ".join(coordination.DELIVERY_STATES)
            msg = f"state must be one of {states}, not {shown(state)}"
            raise ValueError(msg)
        return self._read(lambda db: coordination.list_deliveries(db, state))

    # Hand-over to another platform.

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask that a session go on elsewhere; False while an earlier request is under way.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        to = checks.required_text("platform", platform)
        allowed = (None, coordination.COMPLETED, coordination.FAILED)
        return self._write(
            lambda db: coordination.change_handoff(
                db,
                session_id,
                allowed=allowed,
                handoff_state=coordination.PENDING,
                handoff_platform=to,
                handoff_error=None,
            )
        )

    def claim_handoff(self, session_id: str) -> bool:
        """Take a pending request on; of several callers one gets True.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        return self._write(
            lambda db: coordination.change_handoff(
                db,
                session_id,
                allowed=(coordination.PENDING,),
                handoff_state=coordination.RUNNING,
            )
        )

    def complete_handoff(self, session_id: str, *, platform: str | None = None) -> bool:
        """Say that the session goes on elsewhere; return whether a hand-over was under way.

        Args:
            session_id: The session.
            platform: Where it goes on, as in `request_handoff`: False, and nothing is changed,
                where by now it is asked for elsewhere. None: wherever it was asked for.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        return self._write(
            lambda db: coordination.change_handoff(
                db,
                session_id,
                allowed=(coordination.PENDING, coordination.RUNNING),
                platform=platform,
                handoff_state=coordination.COMPLETED,
                handoff_error=None,
            )
        )

    def fail_handoff(self, session_id: str, error: str, *, platform: str | None = None) -> bool:
        """Say why a hand-over failed; return whether one was under way.

        Args:
            session_id: The session.
            error: What went wrong.
            platform: Where it did not go on; see `complete_handoff`.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        said = _told(error)
        return self._write(
            lambda db: coordination.change_handoff(
                db,
                session_id,
                allowed=(coordination.PENDING, coordination.RUNNING),
                platform=platform,
                handoff_state=coordination.FAILED,
                handoff_error=said,
            )
        )

    def get_handoff_state(self, session_id: str) -> Handoff | None:
        """Return where the hand-over of a session stands; None if none was asked for.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        return self._read(lambda db: coordination.handoff_state(db, session_id))

    def list_pending_handoffs(self) -> list[SessionRecord]:
        """List the sessions whose hand-over nobody has claimed, oldest-started first."""
        return self._read(coordination.pending_handoffs)

    def _lease(self, **given: Any) -> tuple[str, float, float]:
        """Check who takes something and for how long, under the names that the caller gave."""
        (who, name), (how_long, lease_s) = given.items()
        if lease_s <= 0:
            msg = f"{how_long} must be more than 0, not {lease_s}"
            raise ValueError(msg)
        return checks.required_text(who, name), self._now(), lease_s


def _key(session_key: str) -> str:
    return checks.required_text("session_key", session_key)


def _told(error: str | None) -> str | None:
    """Return what went wrong, with U+FFFD where not every back end can hold it: it is told."""
    return None if error is None else _UNSTORABLE.sub("\ufffd", error)


def _json(value: Any) -> str:
    return encode_json(value) or "null"
