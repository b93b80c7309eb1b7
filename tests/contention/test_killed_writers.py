"""A program is killed while it writes: what it was told is stored, and nothing by half."""

from __future__ import annotations

import random
import sqlite3
import time

import pytest

from sessionstore import SessionDB

DRAW = random.Random(20250101)


def check(path, promised: set[int]) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    for index in ("messages_fts", "messages_fts_trigram"):
        connection.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")
    connection.close()
    with SessionDB(path) as db:
        messages = db.get_messages("s")
        assert promised <= {message["id"] for message in messages}
        session = db.get_session("s")
        assert session["message_count"] == len(messages)
        assert session["tool_call_count"] == sum(
            len(message["tool_calls"] or ()) for message in messages
        )
        # Batches of three are there whole or not at all.
        batches: dict[str, int] = {}
        for message in messages:
            if message["content"].startswith("batch"):
                batches[message["content"]] = batches.get(message["content"], 0) + 1
        assert [count % 3 for count in batches.values()] == [0] * len(batches)
        assert len(db.search_messages("message", limit=10_000)) == len(messages) - sum(
            batches.values()
        )


# In parts, so that two of them run beside each other.
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_every_append_that_returned_survives_a_kill(path, start, part, kills):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    promised: set[int] = set()
    for _ in range(kills):
        writer = start("append_and_report", path, "s")
        promised.add(writer.hear())
        time.sleep(DRAW.uniform(0, 0.06))
        promised.update(writer.kill())
    assert len(promised) >= kills
    check(path, promised)


def test_a_prompt_survives_a_kill_before_any_answer(path, start):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    writer = start("append_and_report", path, "s")
    first = writer.hear()
    writer.kill()
    with SessionDB(path) as db:
        assert db.get_messages("s")[0]["id"] == first
        assert db.get_messages("s")[0]["content"] == "message 1"
