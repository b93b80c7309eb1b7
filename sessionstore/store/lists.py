"""The calls about many sessions: lists, counts, chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from sessionstore import checks
from sessionstore.filters import FilterFields, SessionFilter
from sessionstore.records import ListPlace, SessionRecord, SessionSummary
from sessionstore.repository import chains, listing, sessions
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase


@checked_calls
class ListCalls(StoreBase):
    """Lists and counts of sessions, and how they hang together: chains, lineages."""

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int | None = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        include_archived: bool = False,
        pinned_first: bool = False,
        past: ListPlace | None = None,
        **filter_fields: Unpack[FilterFields],
    ) -> list[SessionSummary]:
        """List conversations: roots and branches, one entry for a chain.

        An entry has the identity, counts, title, end and preview of the chain's newest part,
        the start of its root, and the root's id as `_lineage_root_id` (None where root and
        newest part are one). `preview` is the first user message on one line, 60 characters
        and `...`; `last_active` the time of the latest message, else of the start. Newest
        started first, or by the chain's latest activity; ties by id. Two statements
        whatever the number of sessions, three with `pinned_first`.

        Args:
            source: Only this source.
            exclude_sources: None of these.
            limit: At most so many; None is all.
            offset: Leave out so many of the first.
            include_children: Every session by itself, subagents and parts of chains too.
            project_compression_tips: False shows the root of a chain instead.
            order_by_last_active: Latest activity first.
            include_archived: Archived ones too.
            pinned_first: What is pinned before the rest.
            past: Only what comes after this place, in the same order; see `ListPlace`.
            **filter_fields: The fields of `SessionFilter`, asked of the entry shown.

        Raises:
            ValueError, TypeError: A filter, limit or offset is not what it must be.
        """
        if not include_archived:
            filter_fields.setdefault("archived", False)
        wanted = SessionFilter(source=source, **filter_fields)
        limit, offset = checks.one_page(limit, offset)
        excluded = checks.texts("exclude_sources", exclude_sources)
        now = self._now()
        return self._read(
            lambda db: listing.rich(
                db,
                wanted,
                now=now,
                exclude_sources=excluded,
                limit=limit,
                offset=offset,
                include_children=include_children,
                project_tips=project_compression_tips,
                by_activity=order_by_last_active,
                pinned_first=pinned_first,
                past=past,
            )
        )

    def search_sessions(
        self,
        source: str | None = None,
        limit: int | None = 20,
        offset: int = 0,
        *,
        user_id: str | None = None,
    ) -> list[SessionRecord]:
        """List every session, children too, the one with the latest message first.

        Args:
            source: Only this source.
            limit: At most so many; None is all.
            offset: Leave out so many of the first.
            user_id: Only this user's.
        """
        limit, offset = checks.one_page(limit, offset)
        return self._read(
            lambda db: listing.by_activity(db, source, user_id, limit=limit, offset=offset)
        )

    def session_ids(
        self, wanted: SessionFilter | None = None, *, damaged: bool = False
    ) -> list[str]:
        """List the ids of all sessions that pass a filter, oldest-started first.

        Args:
            wanted: The filter; None passes all.
            damaged: Also those that are bytes and no text, which `export_session` alone takes.
        """
        chosen, now = wanted or SessionFilter(), self._now()
        found = self._read(lambda db: listing.matching(db, chosen, now=now))
        return [match.id for match in found if damaged or not match.damaged]

    def session_count(
        self, source: str | None = None, **filter_fields: Unpack[FilterFields]
    ) -> int:
        """Count the sessions, all or those that pass a filter (see `SessionFilter`)."""
        wanted, now = SessionFilter(source=source, **filter_fields), self._now()
        return self._read(lambda db: listing.count(db, wanted, now=now))

    def session_sources(self) -> dict[str, int]:
        """Count the sessions of every source that occurs, most frequent first."""
        return self._read(sessions.sources)

    # Chains.

    def get_lineage(self, session_id: str) -> list[str]:
        """List the ids from the root down to a session, itself last; a cycle ends."""
        return self._read(lambda db: chains.lineage(db, session_id))

    def get_descendants(self, session_id: str) -> list[str]:
        """List the ids below a session, level by level; a cycle ends."""
        return self._read(lambda db: chains.descendants(db, session_id))

    def get_chain(self, session_id: str, *, all_ends: bool = False) -> list[str]:
        """List the sessions that are one conversation with this one, first to last.

        A session that neither continues another nor is continued is a chain by itself, and so
        is an unknown one.

        Args:
            session_id: Any session of the chain.
            all_ends: Where two programs continued one session, list what leads to either end,
                as `set_session_archived` and `set_session_pinned` take them, in no order.
        """
        if all_ends:
            return self._read(lambda db: chains.whole_chain(db, session_id)) or [session_id]
        return self._read(lambda db: chains.chain_through(db, session_id))

    def get_compression_tip(self, session_id: str) -> str:
        """Return the end of the chain that continues a session, itself if nothing does."""
        return self._read(lambda db: chains.compression_tip(db, session_id))

    def resolve_resume_session_id(self, session_id: str | None) -> str | None:
        """Return where to go on: the session if it has messages, else the nearest below it.

        None, an empty text and an unknown id come back as given.
        """
        if not session_id:
            return session_id
        return self._read(lambda db: chains.resume_point(db, session_id))
