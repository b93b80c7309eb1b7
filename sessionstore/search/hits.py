"""The rows of one page of hits, made into what a caller gets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, select

from sessionstore.codec import as_number, as_text, decode_text, parse_content
from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import Content, ContextMessage, SearchHit
from sessionstore.rows_by_key import in_order
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
    return [_hit(tree, row, shown) for row in in_order(connection, rows, ids)]


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
            message.json_columns,
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
    """Make a hit; what other hands put into its row is marked as in a record of it."""
    nearby = (row.before_id, row.id, row.after_id)
    tool_name = _text(row.tool_name)
    if tool_name is not None and "tool_name" in as_text(row.json_columns or "").split(","):
        tool_name = decode_text(tool_name)
    return SearchHit(
        id=row.id,
        session_id=as_text(row.session_id),
        role=as_text(row.role),
        timestamp=as_number(row.timestamp) or 0.0,
        tool_name=tool_name,
        snippet=snippet(
            tree,
            stored_text(row.content, row.content_encoding, row.tool_name, row.tool_calls),
        ),
        context=[_context(shown[each]) for each in nearby if each in shown],
        source=as_text(row.source),
        model=_text(row.model),
        title=_text(row.title) or None,
        session_started=as_number(row.started_at) or 0.0,
    )


def _text(stored: object) -> str | None:
    return None if stored is None else as_text(stored)


def _context(row: _Row) -> ContextMessage:
    content: Content = row.content
    with suppress(ValueError):
        content = parse_content(row.content, row.content_encoding)
    text = text_of(content)
    if not text and content:
        text = _NO_TEXT
    return ContextMessage(role=as_text(row.role), content=text[:_CONTEXT_CHARACTERS])
