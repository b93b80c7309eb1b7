"""Callers that hold the whole conversation: syncing, replacing, clearing."""

from __future__ import annotations

import sqlite3

import pytest

from sessionstore import ConflictError, SessionDB

TURN = [
    {"role": "user", "content": "weather and time?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "name": "weather"}, {"id": "c2", "name": "time"}],
    },
    {"role": "tool", "content": "rain", "tool_call_id": "c1", "tool_name": "weather"},
    {"role": "tool", "content": "noon", "tool_call_id": "c2", "tool_name": "time"},
]


@pytest.fixture
def session(store: SessionDB) -> SessionDB:
    store.create_session("s", "cli")
    return store


def counters(db: SessionDB) -> tuple[int, int, int]:
    record = db.get_session("s")
    return record["message_count"], record["tool_call_count"], db.message_count("s")


def test_a_turn_synced_three_times_from_two_stores_is_stored_once(session, path):
    ids = session.sync_messages("s", TURN)
    assert len(ids) == 4
    assert session.sync_messages("s", TURN) == []
    with SessionDB(path) as other:
        assert other.sync_messages("s", TURN) == []
    assert counters(session) == (4, 2, 4)
    assert [message["id"] for message in session.get_messages("s")] == ids


def test_a_commit_whose_answer_was_lost_does_not_store_the_turn_twice(session):
    dialect = session._database.engine.dialect
    commit, lost = dialect.do_commit, []

    def committed_but_unheard(connection) -> None:
        commit(connection)
        if not lost:
            lost.append(True)
            error = sqlite3.OperationalError("locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error

    dialect.do_commit = committed_but_unheard
    session.sync_messages("s", TURN)
    assert lost
    assert counters(session) == (4, 2, 4)


def test_only_what_is_new_is_appended(session):
    session.sync_messages("s", TURN[:2])
    (first, second) = session.sync_messages("s", TURN)
    assert second > first
    assert counters(session) == (4, 2, 4)


def test_two_messages_that_say_the_same_are_two(session):
    same = [{"role": "user", "content": "ok"}, {"role": "user", "content": "ok"}]
    assert len(session.sync_messages("s", same)) == 2
    assert session.sync_messages("s", same) == []
    assert session.message_count("s") == 2


def test_a_conversation_loaded_and_synced_back_adds_nothing(session):
    session.sync_messages("s", TURN)
    session.append_message(
        "s",
        "assistant",
        [{"type": "text", "text": "rain at noon"}],
        reasoning="r",
        reasoning_content="",
        finish_reason="stop",
        reasoning_details=[{"x": [1]}],
        token_count=7,
    )
    loaded = session.get_messages_as_conversation("s")
    assert session.sync_messages("s", loaded) == []
    following = [*loaded, {"role": "user", "content": "thanks"}]
    assert len(session.sync_messages("s", following)) == 1


@pytest.mark.parametrize(
    "given",
    [
        TURN[:3],
        [],
        [{"role": "user", "content": "something else"}, *TURN[1:]],
        [*TURN[:3], {**TURN[3], "content": "midnight"}],
        [*TURN[:3], {**TURN[3], "tool_call_id": "c9"}],
        [TURN[0], {**TURN[1], "tool_calls": TURN[1]["tool_calls"][::-1]}, *TURN[2:]],
        [TURN[0], {"role": "assistant", "content": ""}, *TURN[2:]],
        TURN[1:],
    ],
)
def test_a_list_that_is_not_a_continuation_destroys_nothing(session, given):
    session.sync_messages("s", TURN)
    before = session.get_messages("s")
    with pytest.raises(ConflictError, match="nothing was written"):
        session.sync_messages("s", given)
    assert session.get_messages("s") == before
    assert counters(session) == (4, 2, 4)


def test_a_call_without_a_result_repaired_for_the_model_and_flushed_leaves_the_rows(session):
    session.sync_messages("s", TURN[:2])
    repaired = [
        *session.get_messages_as_conversation("s"),
        {"role": "tool", "content": "interrupted", "tool_call_id": "c1"},
        {"role": "tool", "content": "interrupted", "tool_call_id": "c2"},
    ]
    before = session.get_messages("s")
    session.sync_messages("s", repaired)
    session.sync_messages("s", repaired)
    assert session.get_messages("s")[:2] == before
    assert counters(session) == (4, 2, 4)


@pytest.mark.sqlite_only
def test_a_batch_is_stored_whole_or_not_at_all(session, sql):
    ids = session.append_messages("s", iter(TURN))
    assert ids == [message["id"] for message in session.get_messages("s")]
    assert session.append_messages("s", []) == []
    sql(
        "CREATE TRIGGER full BEFORE INSERT ON messages WHEN new.content = 'noon' "
        "BEGIN SELECT RAISE(ABORT, 'no more'); END"
    )
    with pytest.raises(ConflictError):
        session.append_messages("s", TURN)
    assert counters(session) == (4, 2, 4)


def test_a_batch_returns_the_ids_in_the_order_of_the_messages(session):
    batch = [
        {"role": "user", "content": str(number), "token_count": number if number % 3 else None}
        for number in range(500)
    ]
    ids = session.append_messages("s", batch)
    assert ids == sorted(set(ids))
    stored = session.get_messages("s")
    assert [message["id"] for message in stored] == ids
    assert [message["content"] for message in stored] == [str(number) for number in range(500)]


def test_replaced_messages_are_gone_and_the_counters_follow(session):
    session.sync_messages("s", TURN)
    ids = session.replace_messages("s", [{"role": "user", "content": "summary"}, TURN[1]])
    assert [message["id"] for message in session.get_messages("s")] == ids
    assert counters(session) == (2, 2, 2)
    assert session.search_messages("rain") == []
    assert len(session.search_messages("summary")) == 1


def test_a_replacement_that_is_refused_leaves_the_old_messages(session):
    session.sync_messages("s", TURN)
    with pytest.raises(ValueError):
        session.replace_messages("s", [{"role": ""}])
    assert counters(session) == (4, 2, 4)


def test_a_cleared_session_is_empty_and_counts_from_zero(session):
    session.sync_messages("s", TURN)
    assert session.clear_messages("s") == 4
    assert session.clear_messages("s") == 0
    assert counters(session) == (0, 0, 0)
    assert session.search_messages("rain") == []
    session.sync_messages("s", TURN[:1])
    assert counters(session) == (1, 0, 1)


def test_tokens_are_not_counted_again_by_a_second_sync(session):
    for _ in range(3):
        session.sync_messages("s", [{"role": "assistant", "content": "a", "token_count": 5}])
    assert [message["token_count"] for message in session.get_messages("s")] == [5]
