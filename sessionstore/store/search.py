"""The calls about search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sessionstore import search
from sessionstore.records import SearchHit, SearchSort
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase


@checked_calls
class SearchCalls(StoreBase):
    """Search over messages, and the index that it goes by."""

    def search_messages(
        self,
        query: str,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        since: float | None = None,
        until: float | None = None,
        sort: SearchSort = "rank",
        per_session: int | None = None,
        include_inactive: bool = False,
    ) -> list[SearchHit]:
        """List the messages that a query matches.

        A term is found wherever it stands, punctuation and all, in any script; case, width
        and accents do not count. `"a phrase"`, `begin*`, `AND`, `OR`, `NOT` do what they
        say. No query raises for what it says, except by its length.

        Args:
            query: At most 2,048 characters; a blank one finds nothing.
            source_filter: Only these sources; an empty list matches nothing.
            exclude_sources: None of these sources.
            role_filter: Only these roles.
            limit: At most so many hits.
            offset: Leave out so many of the first.
            session_id: Only this session.
            user_id: Only this user's sessions.
            since: Only messages of this time or later, epoch seconds.
            until: Only messages of this time or earlier.
            sort: `rank`: those in which every term stands as a word first, the best match
                leading, then the others, newest first; `newest` or `oldest`: by id.
            per_session: At most so many of one session.
            include_inactive: Also the messages that were undone.

        Raises:
            QueryError: The query is too long.
            ValueError, TypeError: A filter is not what it must be.
        """
        return self._read(
            lambda db: search.search_messages(
                db,
                query,
                source_filter=source_filter,
                exclude_sources=exclude_sources,
                role_filter=role_filter,
                session_id=session_id,
                user_id=user_id,
                since=since,
                until=until,
                limit=limit,
                offset=offset,
                sort=sort,
                per_session=per_session,
                include_inactive=include_inactive,
            )
        )

    def search_index_trouble(self) -> str | None:
        """Say in one sentence why search cannot use its index and scans instead; None: it can.

        An index that is still being filled is no trouble: see `search_index_left`.
        """
        return self._read(search.index.trouble)

    def search_index_left(self) -> int:
        """Count the messages that are not indexed yet, and are found by reading them."""
        return self._read(search.index.left)

    def complete_search_index(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Index all messages that are not indexed yet; return how many.

        Search is right before, meanwhile and after. One transaction for a thousand messages
        at most: others write in between, and what is done stays done if this is broken off.

        Args:
            progress: Called with how many of how many are done.
        """
        return self._complete_index(progress)

    def rebuild_search_index(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Make the search index anew, whatever state it is in; return how many messages it has.

        One transaction makes it anew and empty; then it is filled as `complete_search_index`
        does, with search right all the while.

        Args:
            progress: See `complete_search_index`.
        """
        self._write(search.index.rebuild)
        return self._complete_index(progress)

    def check_search_index(self) -> list[str]:
        """Compare the search index with the messages; list what is wrong, a sentence each.

        Finds what no check of the file by SQLite itself does. Reads everything and holds the
        write lock meanwhile; a store that was opened read-only cannot compare and says only
        what is missing or cannot be read.
        """
        if self.read_only:
            return self._read(lambda db: search.index.findings(db, compare=False))
        return self._write(lambda db: search.index.findings(db, compare=True))
