"""Search over the messages of a store.

`search_messages` finds. Of its index, `index` says what state it is in, fills and cures it, and
`index_text` says what it is fed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from sqlalchemy import Connection

from sessionstore import checks
from sessionstore.errors import shown
from sessionstore.records import SearchHit, SearchSort
from sessionstore.search import index, postgres, sqlite
from sessionstore.search.body import index_text
from sessionstore.search.hits import load_hits
from sessionstore.search.query import parse
from sessionstore.search.reading import Page
from sessionstore.search.scope import Scope

__all__ = ["index", "index_text", "search_messages"]


def search_messages(
    connection: Connection,
    query: str,
    *,
    source_filter: Sequence[str] | None = None,
    exclude_sources: Sequence[str] | None = None,
    role_filter: Sequence[str] | None = None,
    session_id: str | None = None,
    user_id: str | None = None,
    since: float | None = None,
    until: float | None = None,
    limit: int = 20,
    offset: int = 0,
    sort: SearchSort = "rank",
    per_session: int | None = None,
    include_inactive: bool = False,
) -> list[SearchHit]:
    """List one page of the messages that a query matches, within an open transaction.

    Args:
        connection: Where to look.
        query: See `query.parse`; a blank one finds nothing.
        source_filter: Only these sources; an empty list finds nothing.
        exclude_sources: None of these sources.
        role_filter: Only these roles; an empty list asks nothing.
        session_id: Only this session.
        user_id: Only sessions of this user.
        since: Only messages of this time or later, epoch seconds.
        until: Only messages of this time or earlier.
        limit: At most so many hits.
        offset: So many of the first are left out.
        sort: `rank`, `newest` or `oldest`.
        per_session: At most so many of one session, the first ones; limit counts the rest.
        include_inactive: Also messages that were undone.

    Raises:
        QueryError: The query is too long.
        TypeError: A bare text stands where a list belongs, or something is no number.
        ValueError: A number is negative, a time is not finite, or the sort is unknown.
        DBAPIError: The database failed.
    """
    if not isinstance(query, str):
        msg = f"a query is a text, not {type(query).__name__}"
        raise TypeError(msg)
    if sort not in get_args(SearchSort):
        msg = f"{shown(sort)} is not an order; write rank, newest or oldest"
        raise ValueError(msg)
    scope = Scope.of(
        source_filter=source_filter,
        exclude_sources=exclude_sources,
        role_filter=role_filter,
        session_id=session_id,
        user_id=user_id,
        since=since,
        until=until,
        include_inactive=include_inactive,
    )
    page = Page(
        limit=checks.rows("limit", limit),
        offset=checks.rows("offset", offset),
        per_session=None
        if per_session is None
        else checks.rows("per_session", per_session, least=1),
    )
    tree = parse(query)
    if tree is None:
        return []
    back_end = sqlite if connection.dialect.name == "sqlite" else postgres
    ids = back_end.find(connection, tree, scope, sort, page)
    return load_hits(connection, tree, ids, include_inactive=include_inactive)
