"""A read-only store beside a program that opens, writes and closes over and over."""

from __future__ import annotations

import pytest

from sessionstore import SessionDB, StoreBusyError

SESSIONS = 400


@pytest.mark.parametrize("rounds", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_what_is_read_is_always_one_state_that_was(path, start, empty_file, rounds):
    path.write_bytes(empty_file)
    with SessionDB(path) as db:
        # More pages than a connection keeps, so that a list goes to the file for most of them.
        for number in range(SESSIONS):
            db.create_session(f"s{number}", "cli", model_config="x" * 8000)
    writer = start("come_and_go", path, rounds)
    writer.hear()
    seen: list[int] = []
    with SessionDB(path, read_only=True) as reader:
        while writer.process.is_alive():
            try:
                listed = reader.search_sessions(limit=None)
            except StoreBusyError:
                continue  # said, not guessed: it changed during every attempt
            assert len(listed) == SESSIONS
            (state,) = {each["input_tokens"] for each in listed}
            seen.append(state)
        writer.rest()
        assert {each["input_tokens"] for each in reader.search_sessions(limit=None)} == {rounds}
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
    SessionDB(path).close()
    assert [each.name for each in path.parent.iterdir()] == ["state.db"]
