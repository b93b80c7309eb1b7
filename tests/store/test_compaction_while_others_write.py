"""A summary takes its time, and meanwhile another program goes on writing."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest

from sessionstore import SessionDB

EACH = 25


def append_many(path: Path, name: str, ready, go) -> None:
    """Append so many messages, one call each, from a process of its own."""
    with SessionDB(path) as db:
        ready.set()
        go.wait(30)
        for number in range(EACH):
            db.append_message(
                "s", "user", f"{name} {number:02}", platform_message_id=f"{name}{number}"
            )


@pytest.fixture
def filled(store: SessionDB) -> SessionDB:
    store.create_session("s", "cli")
    for number in range(10):
        store.append_message("s", "user", f"early {number:02}")
    return store


def check(store: SessionDB, compactions: int) -> None:
    everything = store.get_messages("s", include_inactive=True)
    assert all(each["active"] != each["compacted"] for each in everything)
    live = [each["content"] for each in everything if each["active"]]
    compacted = [each["content"] for each in everything if each["compacted"]]
    # Every message is there once: live, or behind a summary.
    late = [f"other {number:02}" for number in range(EACH)]
    early = [f"early {number:02}" for number in range(10)]
    summaries = [f"summary {number}" for number in range(compactions)]
    assert sorted(live + compacted) == sorted(early + late + summaries)
    assert [each for each in [*compacted, *live] if each in late] == late
    # The summary comes before all that it is not about.
    assert live[0] == summaries[-1]
    assert live[1:] == late[len(late) - len(live) + 1 :]
    record = store.get_session("s")
    assert record["message_count"] == len(live) == store.message_count("s")
    for text in (*early, *late):
        assert len(store.search_messages(f'"{text}"', per_session=5)) == 1, text


def compact(store: SessionDB, number: int, through_id: int) -> None:
    store.archive_and_compact(
        "s", [{"role": "assistant", "content": f"summary {number}"}], through_id=through_id
    )


def test_messages_of_another_process_stay_live_behind_every_summary(filled, path):
    spawn = multiprocessing.get_context("spawn")
    ready, go = spawn.Event(), spawn.Event()
    writer = spawn.Process(target=append_many, args=(path, "other", ready, go))
    writer.start()
    assert ready.wait(60)
    go.set()
    compactions = 0
    while True:
        running = writer.is_alive()
        through_id = filled.get_messages("s")[-1]["id"]
        # Whatever comes from here on is nothing the summary knows of.
        compact(filled, compactions, through_id)
        compactions += 1
        if not running:
            break
    writer.join(30)
    assert writer.exitcode == 0
    assert compactions >= 2
    check(filled, compactions)


def test_messages_of_another_thread_stay_live_behind_every_summary(filled, path):
    ready, go = threading.Event(), threading.Event()
    writer = threading.Thread(target=append_many, args=(path, "other", ready, go))
    writer.start()
    assert ready.wait(60)
    go.set()
    compactions = 0
    while writer.is_alive() or not compactions:
        compact(filled, compactions, filled.get_messages("s")[-1]["id"])
        compactions += 1
    writer.join(30)
    check(filled, compactions)


def test_a_message_between_reading_and_compacting_is_not_summed_up_unread(filled, path):
    read = filled.get_messages("s")
    with SessionDB(path) as other:
        other.append_message("s", "user", "wait!", tool_calls=None, token_count=3)
        other.append_message("s", "assistant", None, tool_calls=[{"id": "c"}])
    compact(filled, 0, read[-1]["id"])
    live = filled.get_messages("s")
    assert [each["content"] for each in live] == ["summary 0", "wait!", None]
    assert (live[1]["token_count"], live[2]["tool_calls"]) == (3, [{"id": "c"}])
    record = filled.get_session("s")
    assert (record["message_count"], record["tool_call_count"]) == (3, 1)
