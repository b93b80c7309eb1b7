"""Chains and lists say what slow loops over all rows say, for any set of sessions."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import Naive

from sessionstore import SessionDB

moments = st.integers(0, 6).map(float)
a_message = st.tuples(
    st.sampled_from(["user", "assistant", "tool"]),
    st.sampled_from([None, "", "hello", "two\n lines\tand  blanks ", "x" * 60, "y" * 61]),
    moments,
    # Live, compacted or undone.
    st.sampled_from([(1, 0), (1, 0), (0, 1), (0, 0)]),
)
a_session = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["cli", "cron", "brand-new"]),
        # Of any session, itself and later ones too, or of one that is not there.
        "parent": st.one_of(st.none(), st.integers(0, 7)),
        "started_at": moments,
        "ended_at": st.one_of(st.none(), moments),
        "end_reason": st.sampled_from(
            [None, "compression", "compression", "branched", "user_exit"]
        ),
        "relation": st.sampled_from([None, None, None, "continuation", "branch", "subagent"]),
        "archived": st.sampled_from([False, False, False, True]),
        "pinned": st.sampled_from([False, False, False, True]),
        "messages": st.lists(a_message, max_size=3),
    }
)


def read(path: Path) -> Naive:
    """Tell naively what the file holds."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    sessions = [dict(row) for row in connection.execute("SELECT * FROM sessions")]
    messages = [dict(row) for row in connection.execute("SELECT * FROM messages ORDER BY id")]
    connection.close()
    return Naive(sessions, messages)


def fill(store: SessionDB, path: Path, described: list[dict]) -> Naive:
    """Put the sessions into the file by raw SQL, which no rule holds back; tell them naively."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM messages")
    connection.execute("DELETE FROM sessions")
    for number, session in enumerate(described):
        parent = session["parent"]
        connection.execute(
            "INSERT INTO sessions(id, source, parent_session_id, started_at, ended_at, end_reason, "
            "message_count, relation) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                f"s{number}",
                session["source"],
                None if parent is None else f"s{parent}",
                session["started_at"],
                session["ended_at"],
                session["end_reason"],
                sum(state == (1, 0) for *_, state in session["messages"]),
                session["relation"],
            ),
        )
    # In turn, so that the messages of a session do not lie together.
    for turn in range(3):
        for number, session in enumerate(described):
            for role, content, timestamp, state in session["messages"][turn : turn + 1]:
                connection.execute(
                    "INSERT INTO messages(session_id, role, content, timestamp, active, compacted) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (f"s{number}", role, content, timestamp, *state),
                )
    connection.execute("COMMIT")
    connection.close()
    naive = read(path)
    for flag in ("archived", "pinned"):
        flagged = [f"s{number}" for number, session in enumerate(described) if session[flag]]
        for session_id in flagged:
            assert getattr(store, f"set_session_{flag}")(session_id, True) is True
        wanted = {each for session_id in flagged for each in naive.whole_chain(session_id)}
        for session_id, row in naive.sessions.items():
            row[flag] = int(session_id in wanted)
    assert read(path).sessions == naive.sessions
    return naive


a_store = st.lists(a_session, max_size=8)
for_any_store = settings(
    max_examples=40,
    deadline=None,
    # The store is emptied for every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@for_any_store
@given(described=a_store)
def test_a_list_says_what_slow_loops_say(store: SessionDB, path: Path, described):
    naive = fill(store, path, described)
    ways = itertools.product([False, True], repeat=5)
    for children, tips, active, archived, pinned in ways:
        options = {
            "include_children": children,
            "project_compression_tips": tips,
            "order_by_last_active": active,
            "include_archived": archived,
            "pinned_first": pinned,
        }
        assert store.list_sessions_rich(**options) == naive.list_rich(**options)
    for options in (
        {"limit": 2},
        {"limit": 2, "offset": 1, "order_by_last_active": True},
        {"limit": None},
        {"source": "cli"},
        {"exclude_sources": ["cli", "cron"]},
        {"min_messages": 1, "limit": 1},
        {"archived": True},
        {"pinned": True, "include_archived": True},
        *({"pinned_first": True, "limit": 2, "offset": offset} for offset in range(4)),
        {"pinned_first": True, "order_by_last_active": True, "limit": 2, "offset": 1},
    ):
        assert store.list_sessions_rich(**options) == naive.list_rich(**options)


@for_any_store
@given(described=a_store)
def test_chains_say_what_slow_loops_say(store: SessionDB, path: Path, described):
    naive = fill(store, path, described)
    for session_id in naive.sessions:
        assert store.get_lineage(session_id) == naive.lineage(session_id)
        assert store.get_descendants(session_id) == naive.descendants(session_id)
        assert store.get_compression_tip(session_id) == naive.chain(session_id)[-1]
        assert store.resolve_resume_session_id(session_id) == naive.resume(session_id)
