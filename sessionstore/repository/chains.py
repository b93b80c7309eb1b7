"""What a parent link means, and walking along the links.

`relation` says what a child is to its parent. Where it is NULL the times say it, at the moment
of reading: a child is a *continuation* if its parent ended with the reason `compression` and it
started at or after that end; a *branch* if its parent ended with `branched` and it started at
or after that; else a *subagent*. Before a parent is deleted, what that comes to is written down.

Parents in a circle, as damaged files and old imports have them, would be nobody's root: the
circle is cut at its member that started first, which continues nothing and is a head.

The SQL below is text: recursion reads better as itself, and both back ends take it. Each
recursion goes on by ids alone, so that it ends by itself where it would repeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from sqlalchemy import Connection, text


def relation_of(child: str, parent: str) -> str:
    """Write what the row `child` is to the row `parent`."""
    begun_after = f"{child}.started_at >= {parent}.ended_at"
    return (
        f"coalesce({child}.relation, CASE "
        f"WHEN {parent}.end_reason = 'compression' AND {begun_after} THEN 'continuation' "
        f"WHEN {parent}.end_reason = 'branched' AND {begun_after} THEN 'branch' "
        "ELSE 'subagent' END)"
    )


def is_continuation(child: str, parent: str) -> str:
    """Write the condition under which the row `child` continues the row `parent`."""
    return f"({relation_of(child, parent)} = 'continuation' AND NOT {begins_circle(child, parent)})"


def begins_circle(child: str, parent: str) -> str:
    """Write the condition under which the row `child` is where a circle of parents is cut.

    Its first-started member, ties by id: no other start can come before its parent's there,
    so only a child that is older than its parent has a line above it walked.
    """
    return (
        f"(({child}.started_at, {child}.id) <= ({parent}.started_at, {parent}.id) "
        f"AND {child}.id = (WITH RECURSIVE above(id, started_at, parent) AS ("
        f"SELECT {parent}.id, {parent}.started_at, {parent}.parent_session_id UNION "
        "SELECT q.id, q.started_at, q.parent_session_id "
        "FROM above JOIN sessions q ON q.id = above.parent) "
        "SELECT above.id FROM above ORDER BY above.started_at, above.id LIMIT 1))"
    )


def is_head(session: str) -> str:
    """Write the condition under which a conversation begins at the row `session`.

    That is at a branch, at a session whose parent is not there, unless it is known to be a
    subagent's run, and where a circle is cut. Whatever else has a parent is a later part of a
    chain or such a run.
    """
    return (
        f"coalesce((SELECT {relation_of(session, 'a')} = 'branch' OR {begins_circle(session, 'a')} "
        f"FROM sessions a WHERE a.id = {session}.parent_session_id), "
        f"coalesce({session}.relation, '') <> 'subagent')"
    )


def next_link(session: str) -> str:
    """Write the query for the id of the session that continues the row `session`.

    Of several (two programs split one session at once) the newest-started counts.
    """
    return (
        "SELECT n.id FROM sessions n "
        f"WHERE n.parent_session_id = {session}.id AND {is_continuation('n', session)} "
        "ORDER BY n.started_at DESC, n.id DESC LIMIT 1"
    )


def link_from(session: str) -> str:
    """Write the recursive table link(id, following): the chain that the row `session` heads.

    Each member is there with the id of the next, the last one with NULL.
    """
    return (
        f"link(id, following) AS (SELECT {session}.id, ({next_link(session)}) UNION "
        f"SELECT p.id, ({next_link('p')}) FROM link JOIN sessions p ON p.id = link.following)"
    )


def tip_of(session: str) -> str:
    """Write the query for the id at the end of the chain that the row `session` heads."""
    return (
        f"WITH RECURSIVE {link_from(session)} "
        "SELECT link.id FROM link WHERE link.following IS NULL LIMIT 1"
    )


def root_of(session: str) -> str:
    """Write the query for the id at the head of the chain that the row `session` is part of."""
    return (
        f"WITH RECURSIVE climb(id, above) AS (SELECT {session}.id, ({_link_above(session)}) UNION "
        f"SELECT p.id, ({_link_above('p')}) FROM climb JOIN sessions p ON p.id = climb.above) "
        "SELECT climb.id FROM climb WHERE climb.above IS NULL LIMIT 1"
    )


def _link_above(session: str) -> str:
    """Write the query for the id of the session whose next link the row `session` is."""
    return (
        f"SELECT b.id FROM sessions b WHERE b.id = {session}.parent_session_id "
        f"AND {is_continuation(session, 'b')} AND {session}.id = ({next_link('b')})"
    )


_TIP = text(f"SELECT ({tip_of('s')}) FROM sessions s WHERE s.id = :id")

# Each as pairs of a session and its parent: a walk from row to row would be a statement each.
_LINEAGE = text(
    "WITH RECURSIVE line(id, parent) AS ("
    "SELECT s.id, s.parent_session_id FROM sessions s WHERE s.id = :id UNION "
    "SELECT p.id, p.parent_session_id FROM line JOIN sessions p ON p.id = line.parent) "
    "SELECT line.id, line.parent FROM line"
)
_CONTINUED = text(
    "WITH RECURSIVE line(id, parent) AS ("
    "SELECT c.id, p.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id "
    f"WHERE c.id = :id AND {is_continuation('c', 'p')} UNION "
    "SELECT c.id, p.id FROM line JOIN sessions c ON c.id = line.parent "
    f"JOIN sessions p ON p.id = c.parent_session_id AND {is_continuation('c', 'p')}) "
    "SELECT line.id, line.parent FROM line"
)

# Children of one session, those that go on with the conversation first.
_CHILDREN = text(
    "SELECT c.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id "
    "WHERE c.parent_session_id = :id ORDER BY "
    f"CASE {relation_of('c', 'p')} WHEN 'continuation' THEN 0 WHEN 'branch' THEN 1 ELSE 2 END, "
    "c.started_at DESC, c.id DESC"
)

_HAS_MESSAGES = text("SELECT 1 FROM messages m WHERE m.session_id = :id AND m.active = 1 LIMIT 1")

_WRITE_DOWN = text(
    f"UPDATE sessions SET relation = (SELECT {relation_of('sessions', 'p')} FROM sessions p "
    "WHERE p.id = sessions.parent_session_id) "
    "WHERE parent_session_id = :id AND relation IS NULL"
)

_CHAIN = text(
    "WITH RECURSIVE chain(id) AS (SELECT s.id FROM sessions s WHERE s.id = :root UNION "
    "SELECT c.id FROM chain JOIN sessions p ON p.id = chain.id "
    f"JOIN sessions c ON c.parent_session_id = p.id AND {is_continuation('c', 'p')}) "
    "SELECT chain.id FROM chain"
)

_NEXT = text(f"SELECT ({next_link('s')}) FROM sessions s WHERE s.id = :id")


def compression_tip(connection: Connection, session_id: str) -> str:
    """Return the end of the chain that goes on from a session, itself if nothing does."""
    return connection.execute(_TIP, {"id": session_id}).scalar_one_or_none() or session_id


def lineage(connection: Connection, session_id: str) -> list[str]:
    """List the ids from the root down to a session; a cycle ends where it would repeat."""
    found = connection.execute(_LINEAGE, {"id": session_id})
    parents = {row.id: row.parent for row in found}
    return _upward(session_id, parents)[::-1] if parents else []


def continued_by(connection: Connection, session_id: str) -> list[str]:
    """List the sessions that this one continues, nearest first."""
    found = connection.execute(_CONTINUED, {"id": session_id})
    parents = {row.id: row.parent for row in found}
    # The last one continues nothing, and so is nobody's child here.
    parents |= {parent: None for parent in parents.values() if parent not in parents}
    return _upward(session_id, parents)[1:]


def _upward(session_id: str, parents: Mapping[str, str | None]) -> list[str]:
    """List a session and what lies above it, as far as it is known and without repetition."""
    found: dict[str, None] = {}
    current: str | None = session_id
    while current is not None and current in parents and current not in found:
        found[current] = None
        current = parents[current]
    return list(found)


def descendants(connection: Connection, session_id: str) -> list[str]:
    """List the ids below a session: level by level; continuations first, then newest first."""
    seen = {session_id}
    found: list[str] = []
    waiting = deque([session_id])
    while waiting:
        for child in connection.execute(_CHILDREN, {"id": waiting.popleft()}).scalars():
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return found


def resume_point(connection: Connection, session_id: str) -> str:
    """Return the session itself if it has messages, else the nearest descendant that has."""
    for candidate in [session_id, *descendants(connection, session_id)]:
        if connection.execute(_HAS_MESSAGES, {"id": candidate}).first() is not None:
            return candidate
    return session_id


def next_in_chain(connection: Connection, session_id: str) -> str | None:
    """Return the session that continues this one, or None."""
    return connection.execute(_NEXT, {"id": session_id}).scalar_one_or_none()


def whole_chain(connection: Connection, session_id: str) -> list[str]:
    """List every session of the chain that a session belongs to; none if it does not exist."""
    root = [session_id, *continued_by(connection, session_id)][-1]
    return list(connection.execute(_CHAIN, {"root": root}).scalars())


def chain_through(connection: Connection, session_id: str) -> list[str]:
    """List one chain that a session is part of, root to tip; of several tips its own."""
    tip = compression_tip(connection, session_id)
    return [tip, *continued_by(connection, tip)][::-1]


def write_down_relations(connection: Connection, parent_id: str) -> None:
    """Write into the children of a session what they are to it, while the times still tell."""
    connection.execute(_WRITE_DOWN, {"id": parent_id})
