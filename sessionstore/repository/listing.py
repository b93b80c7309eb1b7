"""Lists of sessions: a line a conversation, whatever number of sessions it was split into."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, select, text

from sessionstore.codec import decode_content
from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import Content, SessionFilter, SessionRecord, SessionSummary
from sessionstore.repository import filters, sessions
from sessionstore.repository.chains import is_head, link_from, root_of, tip_of
from sessionstore.repository.filters import activity
from sessionstore.search.body import text_of

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
) -> list[SessionSummary]:
    """List conversations, each with the identity, counts and preview of its newest part.

    Order: newest started first, or by the chain's latest activity; ties by the id of the
    root. Two statements, the page and its sessions; three if the pinned ones come first.
    """
    chains_as_one = project_tips and not include_children
    shown = "t" if chains_as_one else "s"
    conditions, parameters = filters.conditions(connection, wanted, shown, now=now)
    if exclude_sources:
        conditions.append(f"{shown}.source NOT IN :excluded")
        parameters["excluded"] = list(exclude_sources)
    if not include_children:
        conditions.append(is_head("s"))

    def entries(*more: str, limit: int, offset: int) -> list[_Entry]:
        query = text(
            _page(chains_as_one=chains_as_one, by_activity=by_activity).format(
                conditions=" AND ".join([*conditions, *more]) or "1 = 1"
            )
        )
        if exclude_sources:
            query = query.bindparams(bindparam("excluded", expanding=True))
        page = connection.execute(query, parameters | {"limit": limit, "offset": offset})
        return [_Entry(*row) for row in page]

    wanted_count = ALL if limit is None else limit
    if not pinned_first:
        return _summaries(connection, entries(limit=wanted_count, offset=offset))
    # Few are pinned, and an index knows them. Sorting all by it would read every session.
    walked = "x" if chains_as_one and by_activity else "s"
    pinned = entries(f"{walked}.pinned = 1", limit=ALL, offset=0)
    page = pinned[offset : offset + wanted_count]
    page += entries(
        f"{walked}.pinned = 0", limit=wanted_count - len(page), offset=max(0, offset - len(pinned))
    )
    return _summaries(connection, page)


class _Entry(NamedTuple):
    root: str
    shown: str
    started_at: float
    active: float


@functools.cache
def _page(*, chains_as_one: bool, by_activity: bool) -> str:
    """Write the query for a page of entries, its conditions left open.

    `s` is the root of an entry, `t` the session shown, which is `s` itself unless chains are
    one. Either order walks an index and stops when the page is full. By activity it walks every
    session, `x`, and takes each chain where it meets the member that was active last.
    """
    order = "{conditions} ORDER BY {{}}, s.id DESC LIMIT :limit OFFSET :offset"
    if not chains_as_one:
        key = activity("s") if by_activity else "s.started_at"
        return (
            f"SELECT s.id, s.id, s.started_at, {activity('s')} FROM sessions s "
            "WHERE " + order.replace("{{}}", f"{key} DESC")
        )
    latest = (
        f"WITH RECURSIVE {link_from('s')} SELECT {{}} FROM link "
        f"JOIN sessions y ON y.id = link.id ORDER BY {activity('y')} DESC, y.id DESC LIMIT 1"
    )
    if not by_activity:
        return (
            f"SELECT s.id, t.id, s.started_at, ({latest.format(activity('y'))}) FROM sessions s "
            f"JOIN sessions t ON t.id = ({tip_of('s')}) WHERE "
            + order.replace("{{}}", "s.started_at DESC")
        )
    return (
        f"SELECT s.id, t.id, s.started_at, {activity('x')} FROM sessions x "
        f"CROSS JOIN sessions s ON s.id = ({root_of('x')}) "
        f"CROSS JOIN sessions t ON t.id = ({tip_of('s')}) "
        f"WHERE x.id = ({latest.format('y.id')}) AND "
        + order.replace("{{}}", f"{activity('x')} DESC")
    )


def _summaries(connection: Connection, page: Sequence[_Entry]) -> list[SessionSummary]:
    first = MESSAGES.alias()
    said = (
        select(func.min(first.c.id))
        .where(first.c.session_id == SESSIONS.c.id, first.c.active == 1, first.c.role == "user")
        .scalar_subquery()
    )
    with_preview = select(
        *sessions.ALL_COLUMNS, MESSAGES.c.content, MESSAGES.c.content_encoding
    ).outerjoin_from(SESSIONS, MESSAGES, MESSAGES.c.id == said)
    shown: dict[str, tuple[SessionRecord, str]] = {}
    ids = [entry.shown for entry in page]
    for *columns, content, encoding in connection.execute(
        with_preview.where(sessions.is_one_of(connection, ids))
    ):
        record = sessions.record_of(columns)
        shown[record["id"]] = (record, preview(decode_content(content, encoding)))
    return [_summary(entry, *shown[entry.shown]) for entry in page]


def _summary(entry: _Entry, record: SessionRecord, first_words: str) -> SessionSummary:
    return SessionSummary(
        **record | {"started_at": entry.started_at},
        preview=first_words,
        last_active=entry.active,
        _lineage_root_id=entry.root if entry.root != entry.shown else None,
    )


def preview(content: Content) -> str:
    """Shorten the text of a message to one line of 60 characters and `...`."""
    line = " ".join(text_of(content).split())
    return line if len(line) <= PREVIEW_LENGTH else line[:PREVIEW_LENGTH] + "..."


def by_activity(
    connection: Connection, source: str | None, *, limit: int | None, offset: int
) -> list[SessionRecord]:
    """List every session, children too, the one with the latest message first; ties by id."""
    of_source = "WHERE s.source = :source " if source is not None else ""
    found = connection.execute(
        text(
            f"SELECT s.id FROM sessions s {of_source}"
            f"ORDER BY {activity('s')} DESC, s.id DESC LIMIT :limit OFFSET :offset"
        ),
        {"limit": ALL if limit is None else limit, "offset": offset}
        | ({"source": source} if source is not None else {}),
    )
    ids = list(found.scalars())
    records = sessions.find_many(connection, ids)
    return [records[session_id] for session_id in ids]


def matching_ids(connection: Connection, wanted: SessionFilter, *, now: float) -> list[str]:
    """List the ids of all sessions that pass a filter, oldest-started first."""
    conditions, parameters = filters.conditions(connection, wanted, "s", now=now)
    found = connection.execute(
        text(
            "SELECT s.id FROM sessions s "
            f"WHERE {' AND '.join(conditions) or '1 = 1'} ORDER BY s.started_at, s.id"
        ),
        parameters,
    )
    return list(found.scalars())


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
