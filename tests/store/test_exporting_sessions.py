"""An export is a backup: every column, every message, in order."""

from __future__ import annotations

import json
import types

from sessionstore import SessionDB, SessionFilter


def filled(db: SessionDB, clock) -> None:
    for name, source in (("b", "cli"), ("a", "cron"), ("c", "cli")):
        clock.now += 10
        db.create_session(name, source, title=f"T {name}", model_config={"x": [1]})
        db.append_message(
            name,
            "assistant",
            [{"type": "text", "text": "é"}],
            tool_calls=[{"id": "1"}],
            reasoning_content="",
            timestamp=1781773226.453548,
            token_count=0,
        )
        db.append_message(name, "user", None, timestamp=5.0)


def test_an_exported_session_has_every_column_and_its_messages_in_order(timed, clock):
    filled(timed, clock)
    exported = timed.export_session("a")
    assert {name: exported[name] for name in timed.get_session("a")} == timed.get_session("a")
    assert exported["messages"] == timed.get_messages("a")
    assert exported["messages"][0]["timestamp"] == 1781773226.453548
    assert [message["role"] for message in exported["messages"]] == ["assistant", "user"]
    assert json.loads(json.dumps(exported)) == exported


def test_all_sessions_are_exported_oldest_first(timed, clock):
    filled(timed, clock)
    assert [each["id"] for each in timed.export_all()] == ["b", "a", "c"]
    assert [each["id"] for each in timed.export_all("cli")] == ["b", "c"]
    assert timed.export_all("nowhere") == []
    assert timed.export_all()[1] == timed.export_session("a")


def test_an_export_streams_and_leaves_out_what_was_deleted_meanwhile(timed, clock):
    filled(timed, clock)
    stream = timed.iter_export(SessionFilter(min_messages=1))
    assert isinstance(stream, types.GeneratorType)
    assert next(stream)["id"] == "b"
    timed.delete_session("a")
    timed.append_message("c", "user", "while streaming")
    (last,) = stream
    assert last["id"] == "c"
    assert len(last["messages"]) == 3


def test_a_stream_left_in_the_middle_holds_nothing(timed, clock):
    filled(timed, clock)
    for _ in range(20):
        next(timed.iter_export())
    assert timed.session_count() == 3
    timed.vacuum()


def test_an_export_writes_nothing(timed, clock, path):
    filled(timed, clock)
    timed.close()
    before = path.read_bytes()
    with SessionDB(path, read_only=True) as db:
        assert len(db.export_all()) == 3
    assert path.read_bytes() == before
