"""Which messages a search is about, before any text is looked at; the same for every back end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy import ColumnElement, FromClause, or_

from sessionstore import checks
from sessionstore.models import MESSAGES, SESSIONS

_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The filters of a search, checked; None asks nothing.

    Attributes:
        sources: Only these; an empty one lets nothing pass.
        hidden_sources: None of these.
        roles: Only these; an empty one lets nothing pass either.
        session_id: Only this session.
        user_id: Only sessions of this user.
        since: Message time, epoch seconds, inclusive.
        until: See since.
        include_inactive: Also what was undone.
    """

    sources: tuple[str, ...] | None = None
    hidden_sources: tuple[str, ...] = ()
    roles: tuple[str, ...] | None = None
    session_id: str | None = None
    user_id: str | None = None
    since: float | None = None
    until: float | None = None
    include_inactive: bool = False

    @classmethod
    def of(
        cls,
        *,
        source_filter: Sequence[str] | None,
        exclude_sources: Sequence[str] | None,
        role_filter: Sequence[str] | None,
        session_id: str | None,
        user_id: str | None,
        since: float | None,
        until: float | None,
        include_inactive: bool,
    ) -> Self:
        """Check what a caller gave.

        Raises:
            TypeError: A bare text stands where a list belongs, or a time is no number.
            ValueError: A time is not finite.
        """
        roles = checks.texts("role_filter", role_filter)
        return cls(
            sources=None
            if source_filter is None
            else _storable(checks.texts("source_filter", source_filter)),
            hidden_sources=_storable(checks.texts("exclude_sources", exclude_sources)),
            roles=_storable(roles) if roles else None,
            session_id=session_id,
            user_id=user_id,
            since=None if since is None else checks.moment("since", since),
            until=None if until is None else checks.moment("until", until),
            include_inactive=include_inactive,
        )

    @property
    def narrows(self) -> bool:
        """Whether a filter is set: whether less is asked for than what is visible."""
        return self != type(self)(include_inactive=self.include_inactive)

    def conditions(self) -> list[ColumnElement[bool]]:
        """Give what must hold of a message and its session, over the mapped tables."""
        message, session = MESSAGES.c, SESSIONS.c
        held: list[ColumnElement[bool]] = visible(MESSAGES, include_inactive=self.include_inactive)
        if self.sources is not None:
            held.append(session.source.in_(self.sources))
        if self.hidden_sources:
            held.append(session.source.not_in(self.hidden_sources))
        if self.roles is not None:
            held.append(message.role.in_(self.roles))
        if self.session_id is not None:
            held.append(message.session_id == self.session_id)
        if self.user_id is not None:
            held.append(session.user_id == self.user_id)
        if self.since is not None:
            held.append(message.timestamp >= self.since)
        if self.until is not None:
            held.append(message.timestamp <= self.until)
        return held


def visible(messages: FromClause, *, include_inactive: bool) -> list[ColumnElement[bool]]:
    """Give what must hold of a message, or of its neighbour, to be shown at all.

    Live ones are shown and compacted ones, what was undone only if it is asked for.
    """
    return [] if include_inactive else [or_(messages.c.active == 1, messages.c.compacted == 1)]


def _storable(texts: Sequence[str]) -> tuple[str, ...]:
    """Leave out what holds half of a surrogate pair: no row has it, so it decides of none."""
    return tuple(each for each in texts if not _HALF_OF_A_PAIR.search(each))
