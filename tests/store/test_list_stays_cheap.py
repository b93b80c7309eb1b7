"""The list of a large store: few statements, no scan of messages, and fast enough to type on."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from sessionstore import SessionDB

BUDGET_S = 0.050


def fill(path: Path, sessions: int, messages: int) -> None:
    """Make sessions, a fifth of them the heads of chains of length five, by plain SQL."""
    connection = sqlite3.connect(path, isolation_level=None)
    # The list does not look at the search index, and filling it takes a minute.
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'messages_fts%'"
    ).fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("BEGIN")
    for number in range(sessions):
        in_chain = number % 5
        connection.execute(
            "INSERT INTO sessions(id, source, parent_session_id, started_at, ended_at, end_reason, "
            "message_count) VALUES (?, 'cli', ?, ?, ?, ?, ?)",
            (
                f"s{number:04d}",
                f"s{number - 1:04d}" if in_chain else None,
                number * 100.0,
                number * 100.0 + 99 if in_chain < 4 else None,
                "compression" if in_chain < 4 else None,
                messages,
            ),
        )
    connection.executemany(
        "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
        (
            (f"s{number:04d}", "user" if turn % 2 else "system", "words " * 30, number * 100.0 + 1)
            for turn in range(messages)
            for number in range(sessions)
        ),
    )
    connection.execute("COMMIT")
    connection.close()


@contextmanager
def statements(db: SessionDB) -> Iterator[list[tuple[str, object]]]:
    """Collect what a store asks its database meanwhile."""
    seen: list[tuple[str, object]] = []

    def note(_connection, _cursor, statement, parameters, *_rest) -> None:
        if not statement.startswith("BEGIN"):
            seen.append((statement, parameters))

    event.listen(db._database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(db._database.engine, "before_cursor_execute", note)


WAYS: list[dict] = [
    {},
    {"order_by_last_active": True},
    {"include_children": True},
    {"project_compression_tips": False, "offset": 3},
    {"source": "cli", "exclude_sources": ["cron"], "min_messages": 1},
]


def counts(db: SessionDB) -> list[int]:
    """Count the statements of each way to list."""
    found = []
    for way in WAYS:
        with statements(db) as seen:
            assert db.list_sessions_rich(limit=5, **way)
        found.append(len(seen))
    return found


def test_the_number_of_statements_does_not_grow_with_the_number_of_sessions(tmp_path, empty_file):
    found = []
    for sessions in (50, 500):
        path = tmp_path / f"{sessions}.db"
        path.write_bytes(empty_file)
        fill(path, sessions, messages=3)
        with SessionDB(path) as db:
            found.append(counts(db))
    assert found[0] == found[1]
    assert max(found[0]) <= 3


def test_no_list_reads_all_messages(store, path):
    fill(path, 50, messages=3)
    asked: list[tuple[str, object]] = []
    for way in WAYS:
        with statements(store) as seen:
            store.list_sessions_rich(**way)
        asked += seen
    with statements(store) as seen:
        store.search_sessions()
        store.prune_report(older_than_days=0)
    asked += seen
    plain = sqlite3.connect(path)
    plain.create_function("casefold", 1, str.casefold, deterministic=True)
    for statement, parameters in asked:
        steps = [row[3] for row in plain.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
        of_messages = [step for step in steps if step.split()[1:2] and step.split()[1] in "mu"]
        assert not [step for step in of_messages if step.startswith("SCAN")], (statement, steps)
    plain.close()


def test_a_list_of_a_large_store_comes_at_once(store, path):
    fill(path, 500, messages=200)
    for way in ({}, {"order_by_last_active": True}):
        took = []
        for _ in range(20):
            # The processor's time: other tests run beside this one.
            began = time.thread_time()
            assert len(store.list_sessions_rich(**way)) == 20
            took.append(time.thread_time() - began)
        assert sorted(took)[18] < BUDGET_S, took


def test_a_word_in_the_oldest_conversation_brings_it_to_the_top(store, path):
    fill(path, 50, messages=3)
    assert store.list_sessions_rich(order_by_last_active=True)[-1]["_lineage_root_id"] == "s0000"
    store.append_message("s0004", "user", "still here?")
    first = store.list_sessions_rich(order_by_last_active=True, limit=1)[0]
    assert (first["id"], first["_lineage_root_id"]) == ("s0004", "s0000")


def test_loading_a_session_takes_one_statement(store: SessionDB, path: Path):
    fill(path, 50, messages=3)
    calls: list[Callable[[], object]] = [
        lambda: store.get_messages("s0001"),
        lambda: store.get_messages_as_conversation("s0001"),
        lambda: store.get_session("s0001"),
    ]
    for call in calls:
        with statements(store) as seen:
            call()
        assert len(seen) == 1


@pytest.mark.slow
def test_a_list_of_ten_thousand_sessions_comes_soon(store, path):
    fill(path, 10_000, messages=5)
    began = time.perf_counter()
    assert len(store.list_sessions_rich(order_by_last_active=True)) == 20
    assert time.perf_counter() - began < 2
