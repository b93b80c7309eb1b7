"""Lists of sessions: a line a conversation, whatever number of sessions it was split into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, text

from sessionstore.codec import decode_content
from sessionstore.records import Content, SessionFilter, SessionRecord, SessionSummary
from sessionstore.repository import filters, sessions
from sessionstore.repository.chains import is_branch, link_from, tip_of
from sessionstore.repository.filters import activity
from sessionstore.search.body import text_of

PREVIEW_LENGTH = 60
# LIMIT has no word for "no limit" that both back ends know.
ALL = 2**62

# A conversation begins at a session without a parent (or whose parent is not there), and at
# a branch. What else has a parent is a later part of a chain, or a subagent's run.
_IS_HEAD = (
    "NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id "
    f"AND NOT {is_branch('s', 'p')})"
)

_FIRST_OF_USER = text(
    "SELECT m.session_id, m.content FROM messages m WHERE m.id IN ("
    "SELECT (SELECT min(u.id) FROM messages u WHERE u.session_id = s.id AND u.role = 'user') "
    "FROM sessions s WHERE s.id IN :ids)"
).bindparams(bindparam("ids", expanding=True))


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
) -> list[SessionSummary]:
    """List conversations, each with the identity, counts and preview of its newest part.

    Order: newest started first, or by the chain's latest activity; ties by id. Three
    statements: the page, its sessions, their previews.
    """
    shown = tip_of("s") if project_tips and not include_children else "SELECT s.id"
    conditions, parameters = filters.conditions(connection, wanted, "t", now=now)
    if exclude_sources:
        conditions.append("t.source NOT IN :excluded")
        parameters["excluded"] = list(exclude_sources)
    if not include_children:
        conditions.append(_IS_HEAD)
    order = "active DESC, s.id DESC" if by_activity else "s.started_at DESC, s.id DESC"
    query = text(
        "SELECT s.id, t.id, s.started_at, "
        f"{_chain_activity() if project_tips and not include_children else activity('s')} "
        f"AS active FROM sessions s JOIN sessions t ON t.id = ({shown}) "
        f"WHERE {' AND '.join(conditions) or '1 = 1'} "
        f"ORDER BY {order} LIMIT :limit OFFSET :offset"
    )
    if exclude_sources:
        query = query.bindparams(bindparam("excluded", expanding=True))
    parameters |= {"limit": ALL if limit is None else limit, "offset": offset}
    page = [_Entry(*row) for row in connection.execute(query, parameters)]
    shown_ids = [entry.shown for entry in page]
    records = sessions.find_many(connection, shown_ids)
    previews = _previews(connection, shown_ids)
    return [_summary(entry, records[entry.shown], previews) for entry in page]


class _Entry(NamedTuple):
    root: str
    shown: str
    started_at: float
    active: float


def _summary(entry: _Entry, record: SessionRecord, previews: Mapping[str, str]) -> SessionSummary:
    return SessionSummary(
        **record | {"started_at": entry.started_at},
        preview=previews.get(entry.shown, ""),
        last_active=entry.active,
        _lineage_root_id=entry.root if entry.root != entry.shown else None,
    )


def _chain_activity() -> str:
    """Write the time of the latest message in the chain that the row `s` heads."""
    return (
        f"(WITH RECURSIVE {link_from('s')} "
        f"SELECT max({activity('x')}) FROM link JOIN sessions x ON x.id = link.id)"
    )


def _previews(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Map sessions to how their first user message begins; none without one."""
    if not ids:
        return {}
    found = connection.execute(_FIRST_OF_USER, {"ids": list(ids)})
    return {session_id: preview(decode_content(content)) for session_id, content in found}


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
