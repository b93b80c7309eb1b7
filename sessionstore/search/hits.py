"""The rows of one page of hits, made into what a caller gets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, select

from sessionstore.codec import parse_content
from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import Content, ContextMessage, SearchHit
from sessionstore.search.body import stored_text, text_of
from sessionstore.search.query import Node
from sessionstore.search.scope import visible
from sessionstore.search.snippet import snippet

_CONTEXT_CHARACTERS = 200
# How many ids on either side are looked through for a neighbour before its session is.
_CLOSE = 100
_NO_TEXT = "[multimodal content]"

_Row: TypeAlias = Row[*tuple[Any, ...]]


def load_hits(
    connection: Connection, tree: Node, ids: Sequence[int], *, include_inactive: bool
) -> list[SearchHit]:
    """Load messages of these ids, in this order, with their neighbours; two statements."""
    if not ids:
        return []
    on_server = connection.dialect.name != "sqlite"
    wanted = _statement(include_inactive=include_inactive, on_server=on_server)
    rows: dict[int, _Row] = {row.id: row for row in connection.execute(wanted, {"ids": ids})}
    beside = {each for row in rows.values() for each in (row.before_id, row.after_id)}
    beside -= {None, *rows}
    message = MESSAGES.c
    others = select(message.id, message.role, message.content, message.content_encoding).where(
        message.id.in_(beside)
    )
    shown = {row.id: row for row in [*connection.execute(others), *rows.values()]}
    return [_hit(tree, rows[each], shown) for each in ids]


@cache
def _statement(*, include_inactive: bool, on_server: bool) -> Select[*tuple[Any, ...]]:
    message, session = MESSAGES.c, SESSIONS.c
    return (
        select(
            message.id,
            message.session_id,
            message.role,
            message.timestamp,
            message.content,
            message.content_encoding,
            message.tool_name,
            message.tool_calls,
            session.source,
            session.model,
            session.title,
            session.started_at,
            _neighbour(include_inactive=include_inactive, before=True, on_server=on_server).label(
                "before_id"
            ),
            _neighbour(include_inactive=include_inactive, before=False, on_server=on_server).label(
                "after_id"
            ),
        )
        .join(SESSIONS, session.id == message.session_id)
        .where(message.id.in_(bindparam("ids", expanding=True)))
    )


def _neighbour(
    *, include_inactive: bool, before: bool, on_server: bool
) -> ColumnElement[int | None]:
    """Give the id of the message next to one, in its session."""
    near, message = MESSAGES.alias("near"), MESSAGES.c
    # A server would look for the highest id of a session by going through all ids, which for
    # the first message of one are all there are; for that of an expression it reads the session.
    key = near.c.id + 0 if on_server else near.c.id
    nearest = func.max(key) if before else func.min(key)
    side = near.c.id < message.id if before else near.c.id > message.id
    # By id the neighbour is mostly one step away, while the index on sessions would be read
    # through for all of a session. The concatenation keeps the planner from that index.
    close = near.c.id >= message.id - _CLOSE if before else near.c.id <= message.id + _CLOSE
    same = near.c.session_id == message.session_id
    shown = visible(near, include_inactive=include_inactive)

    def within(*conditions: ColumnElement[bool]) -> ColumnElement[int | None]:
        found = select(nearest).where(side, *conditions, *shown)
        return found.correlate(MESSAGES).scalar_subquery()

    by_id = within(close, near.c.session_id.concat("") == message.session_id)
    return func.coalesce(by_id, within(same))


def _hit(tree: Node, row: _Row, shown: dict[int, _Row]) -> SearchHit:
    nearby = (row.before_id, row.id, row.after_id)
    return SearchHit(
        id=row.id,
        session_id=row.session_id,
        role=row.role,
        timestamp=row.timestamp,
        tool_name=row.tool_name,
        snippet=snippet(
            tree,
            stored_text(row.content, row.content_encoding, row.tool_name, row.tool_calls),
        ),
        context=[_context(shown[each]) for each in nearby if each is not None],
        source=row.source,
        model=row.model,
        title=row.title,
        session_started=row.started_at,
    )


def _context(row: _Row) -> ContextMessage:
    content: Content = row.content
    with suppress(ValueError):
        content = parse_content(row.content, row.content_encoding)
    text = text_of(content)
    if not text and content:
        text = _NO_TEXT
    return ContextMessage(role=row.role, content=text[:_CONTEXT_CHARACTERS])
