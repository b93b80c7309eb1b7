"""Lists of sessions: a line a conversation, whatever number of sessions it was split into."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, func, literal_column, select, text

from sessionstore.codec import as_number, as_text, decode_content
from sessionstore.filters import SessionFilter
from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import Content, ListPlace, SessionRecord, SessionSummary
from sessionstore.repository import filters, sessions
from sessionstore.repository.chains import is_head, link_from, root_of, tip_of
from sessionstore.repository.filters import activity
from sessionstore.rows_by_key import in_order
from sessionstore.search.body import text_of

logger = logging.getLogger("sessionstore")

PREVIEW_LENGTH = 60
# LIMIT has no word for "no limit" that both back ends know.
ALL = 2**62


def rich(
    connection: Connection,
    wanted: SessionFilter,
    *,
    now: float,
    exclude_sources: Sequence[str],
    limit: int | None,
    offset: int,
    include_children: bool,
    project_tips: bool,
    by_activity: bool,
    pinned_first: bool,
    past: ListPlace | None,
) -> list[SessionSummary]:
    """List conversations, each with the identity, counts and preview of its newest part.

    Order: newest started first, or by the chain's latest activity; ties by the id of the
    root. Two statements, the page and its sessions; three if the pinned ones come first.
    A page that goes on from a place costs the same however far down that is.
    """
    chains_as_one = not include_children
    shown = "t" if chains_as_one and project_tips else "s"
    conditions, parameters = filters.conditions(connection, wanted, shown, now=now)
    if exclude_sources:
        conditions.append(f"{shown}.source NOT IN :excluded")
        parameters["excluded"] = list(exclude_sources)
    if not include_children:
        conditions.append(is_head("s"))

    on_server = connection.dialect.name == "postgresql"
    walked = "x" if chains_as_one and by_activity else "s"
    beyond = ""
    if past is not None:
        key = activity(walked) if by_activity else "s.started_at"
        # Apart, so that the index of the order is entered where the page begins.
        beyond = f"{key} <= :past_moment AND ({key} < :past_moment OR s.id < :past_root)"
        parameters |= {"past_moment": past.moment, "past_root": past.root_id}

    def entries(*more: str, limit: int, offset: int) -> list[_Entry]:
        query = text(
            _page(
                sessions.row_key(connection, shown),
                shown,
                " AND ".join(filter(None, [*conditions, *more])) or "1 = 1",
                chains_as_one=chains_as_one,
                by_activity=by_activity,
                on_server=on_server,
            )
        )
        if exclude_sources:
            query = query.bindparams(bindparam("excluded", expanding=True))
        page = connection.execute(query, parameters | {"limit": limit, "offset": offset})
        found = [_Entry(*row) for row in page]
        if on_server and chains_as_one and by_activity:
            # See `_chains_by_activity_on_server`.
            found.sort(key=lambda each: (each.active, each.root), reverse=True)
            found = found[offset : offset + limit]
        return found

    wanted_count = ALL if limit is None else limit
    if not pinned_first:
        return _summaries(connection, entries(beyond, limit=wanted_count, offset=offset))
    # Few are pinned, and an index knows them. Sorting all by it would read every session.
    pinned = []
    if past is None or past.pinned:
        pinned = entries(f"{walked}.pinned = 1", beyond, limit=ALL, offset=0)
        beyond = ""
    page = pinned[offset : offset + wanted_count]
    page += entries(
        f"{walked}.pinned = 0",
        beyond,
        limit=wanted_count - len(page),
        offset=max(0, offset - len(pinned)),
    )
    return _summaries(connection, page)


class _Entry(NamedTuple):
    key: Any
    root: str
    shown: str
    started_at: float
    active: float


def _page(
    key: str,
    shown: str,
    conditions: str,
    *,
    chains_as_one: bool,
    by_activity: bool,
    on_server: bool,
) -> str:
    """Write the query for a page of entries.

    `s` is the root of an entry and `t` the session at the end of its chain; one of the two is
    shown. Either order walks an index and stops when the page is full.
    """
    if not chains_as_one:
        return _every_session(key, conditions, by_activity=by_activity)
    if not by_activity:
        return _chains_by_start(key, shown, conditions, on_server=on_server)
    if on_server:
        return _chains_by_activity_on_server(key, shown, conditions)
    return _chains_by_activity_in_file(key, shown, conditions)


def _every_session(key: str, conditions: str, *, by_activity: bool) -> str:
    moment = activity("s") if by_activity else "s.started_at"
    return (
        f"SELECT {key}, s.id, s.id, s.started_at, {activity('s')} FROM sessions s "
        f"WHERE {conditions} ORDER BY {moment} DESC, s.id DESC LIMIT :limit OFFSET :offset"
    )


def _chains_by_start(key: str, shown: str, conditions: str, *, on_server: bool) -> str:
    latest = _of_last_active(activity("y"), on_server=on_server)
    tip = _tip(shown, on_server=on_server)
    return (
        f"SELECT {key}, s.id, {shown}.id, s.started_at, ({latest}) FROM sessions s {tip}"
        f"WHERE {conditions} ORDER BY s.started_at DESC, s.id DESC LIMIT :limit OFFSET :offset"
    )


def _chains_by_activity_in_file(key: str, shown: str, conditions: str) -> str:
    """Walk every session, `x`; take each chain where the member is met that was active last."""
    root = _one_by_one("s", root_of("x"), on_server=False)
    tip = _tip(shown, on_server=False)
    return (
        f"SELECT {key}, s.id, {shown}.id, s.started_at, {activity('x')} FROM sessions x {root}{tip}"
        f"WHERE x.id = ({_of_last_active('y.id', on_server=False)}) AND {conditions} "
        f"ORDER BY {activity('x')} DESC, s.id DESC LIMIT :limit OFFSET :offset"
    )


def _chains_by_activity_on_server(key: str, shown: str, conditions: str) -> str:
    """Walk as in a file, but give all from the first entry on and all that tie with the last.

    A server sorts all that there is where the order is not just that of the walk, so ties are
    put in order, and the page is cut out, by whoever asks.
    """
    root = _one_by_one("s", root_of("x"), on_server=True)
    tip = _tip(shown, on_server=True)
    return (
        f"SELECT {key}, s.id, {shown}.id, s.started_at, {activity('x')} "
        f"FROM (SELECT * FROM sessions w ORDER BY {activity('w')} DESC, w.id DESC) x {root}{tip}"
        f"WHERE x.id = ({_of_last_active('y.id', on_server=True)}) AND {conditions} "
        f"ORDER BY {activity('x')} DESC "
        "FETCH FIRST (CAST(:limit AS bigint) + :offset) ROWS WITH TIES"
    )


def _of_last_active(wanted: str, *, on_server: bool) -> str:
    """Write the query for something of `y`, the member of the chain of `s` that was active last."""
    members = (
        _one_by_one("y", "link.id", on_server=True)
        if on_server
        else "JOIN sessions y ON y.id = link.id "
    )
    return (
        f"WITH RECURSIVE {link_from('s')} SELECT {wanted} FROM link {members}"
        f"ORDER BY {activity('y')} DESC, y.id DESC LIMIT 1"
    )


def _tip(shown: str, *, on_server: bool) -> str:
    """Join the session at the end of the chain, where it is the one to be shown."""
    return _one_by_one("t", tip_of("s"), on_server=on_server) if shown == "t" else ""


def _one_by_one(name: str, wanted: str, *, on_server: bool) -> str:
    """Join the session whose id a query gives, one after the other as the page fills.

    SQLite takes the order of a CROSS JOIN as said. A server would read all sessions there are
    to join them at once; OFFSET 0 keeps it from seeing through.
    """
    if on_server:
        one = f"SELECT * FROM sessions WHERE id = ({wanted}) OFFSET 0"
        return f"JOIN LATERAL ({one}) {name} ON TRUE "
    return f"CROSS JOIN sessions {name} ON {name}.id = ({wanted}) "


def _summaries(connection: Connection, page: Sequence[_Entry]) -> list[SessionSummary]:
    first = MESSAGES.alias()
    said = (
        select(func.min(first.c.id))
        .where(first.c.session_id == SESSIONS.c.id, first.c.active == 1, first.c.role == "user")
        .scalar_subquery()
    )
    key = sessions.row_key(connection, "sessions")
    with_preview = select(
        literal_column(key), *sessions.ALL_COLUMNS, MESSAGES.c.content, MESSAGES.c.content_encoding
    ).outerjoin_from(SESSIONS, MESSAGES, MESSAGES.c.id == said)
    entries = {entry.key: entry for entry in page}
    summaries: dict[Any, SessionSummary] = {}
    for row_key, *columns, content, encoding in connection.execute(
        with_preview.where(sessions.is_one_of(connection, list(entries)))
    ):
        summaries[row_key] = _summary(
            entries[row_key],
            sessions.record_of(columns),
            preview(decode_content(content, encoding)),
        )
    return in_order(connection, summaries, [entry.key for entry in page])


def _summary(entry: _Entry, record: SessionRecord, first_words: str) -> SessionSummary:
    return SessionSummary(
        **record | {"started_at": as_number(entry.started_at) or 0.0},
        preview=first_words,
        last_active=as_number(entry.active) or 0.0,
        _lineage_root_id=entry.root if entry.root != entry.shown else None,
    )


def preview(content: Content) -> str:
    """Shorten the text of a message to one line of 60 characters and `...`."""
    line = " ".join(text_of(content).split())
    return line if len(line) <= PREVIEW_LENGTH else line[:PREVIEW_LENGTH] + "..."


def by_activity(
    connection: Connection,
    source: str | None,
    user_id: str | None,
    *,
    limit: int | None,
    offset: int,
) -> list[SessionRecord]:
    """List every session, children too, the one with the latest message first; ties by id."""
    wanted = {"source": source, "user_id": user_id}
    asked = {name: value for name, value in wanted.items() if value is not None}
    found = connection.execute(
        text(
            f"SELECT {sessions.row_key(connection, 's')} FROM sessions s "
            f"WHERE {' AND '.join(f's.{name} = :{name}' for name in asked) or '1 = 1'} "
            f"ORDER BY {activity('s')} DESC, s.id DESC LIMIT :limit OFFSET :offset"
        ),
        asked | {"limit": ALL if limit is None else limit, "offset": offset},
    )
    return sessions.find_many(connection, list(found.scalars()))


def matching(connection: Connection, wanted: SessionFilter, *, now: float) -> list[Matching]:
    """List all sessions that pass a filter, oldest-started first.

    One whose id other hands made no text is logged: it can be exported, and not be changed.
    """
    conditions, parameters = filters.conditions(connection, wanted, "s", now=now)
    found = connection.execute(
        text(
            "SELECT s.id, s.ended_at, s.pinned, s.archived, "
            "(SELECT count(*) FROM messages m WHERE m.session_id = s.id) FROM sessions s "
            f"WHERE {' AND '.join(conditions) or '1 = 1'} ORDER BY s.started_at, s.id"
        ),
        parameters,
    ).all()
    matches = []
    for session_id, *facts in found:
        # Bytes that are no UTF-8 are read as U+FFFD, and no row has that id.
        damaged = not isinstance(session_id, str) or (
            "\ufffd" in session_id and not sessions.exists(connection, session_id)
        )
        if damaged:
            logger.warning("a session has the damaged id %r, which no call can change", session_id)
        matches.append(Matching(as_text(session_id), damaged, *facts))
    return matches


class Matching(NamedTuple):
    """A session that passes a filter, and what decides whether it may go."""

    id: str
    damaged: bool
    ended_at: float | None
    pinned: int
    archived: int
    messages: int


def count(connection: Connection, wanted: SessionFilter, *, now: float) -> int:
    """Count the sessions that pass a filter."""
    conditions, parameters = filters.conditions(connection, wanted, "s", now=now)
    counted = f"SELECT count(*) FROM sessions s WHERE {' AND '.join(conditions) or '1 = 1'}"
    return int(connection.execute(text(counted), parameters).scalar_one())


def passes(connection: Connection, session_id: str, wanted: SessionFilter, *, now: float) -> bool:
    """Say whether one session passes a filter."""
    conditions, parameters = filters.conditions(connection, wanted, "s", now=now)
    found = connection.execute(
        text(f"SELECT 1 FROM sessions s WHERE {' AND '.join(['s.id = :id', *conditions])}"),
        parameters | {"id": session_id},
    )
    return found.first() is not None
