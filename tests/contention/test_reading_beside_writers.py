"""A read-only store beside a program that opens, writes and closes over and over."""

from __future__ import annotations

import pytest

from sessionstore import SessionDB


@pytest.mark.parametrize("rounds", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_what_is_read_is_always_one_state_that_was(path, start, rounds):
    with SessionDB(path) as db:
        for session_id in ("left", "right"):
            db.create_session(session_id, "cli", model_config={"filler": "x" * 20_000})
        db.append_messages("left", [{"role": "user", "content": "y" * 3000}] * 20)
    writer = start("come_and_go", path, rounds)
    writer.hear()
    seen = []
    with SessionDB(path, read_only=True) as reader:
        while writer.process.is_alive():
            listed = {each["id"]: each for each in reader.list_sessions_rich()}
            assert listed["left"]["input_tokens"] == listed["right"]["input_tokens"]
            assert listed["left"]["model"] == listed["right"]["model"]
            assert len(reader.get_messages("left")) == 20
            seen.append(listed["left"]["input_tokens"])
        writer.rest()
        total = sum(number % 3 + 1 for number in range(rounds))
        assert reader.get_session("left")["input_tokens"] == total
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
    SessionDB(path).close()
    assert [each.name for each in path.parent.iterdir()] == ["state.db"]
