"""Live, compacted, undone: what a summary replaces is never lost, and an undo can be taken back."""

from __future__ import annotations

import pytest

from sessionstore import ConflictError, MessageNotFoundError, SessionDB, SessionNotFoundError

SUMMARY = {"role": "user", "content": "Summary of what was said"}
STATES = {(True, False): "live", (False, True): "compacted", (False, False): "undone"}


@pytest.fixture
def ten(store: SessionDB) -> SessionDB:
    """Ten messages, `word0` to `word9`, user and assistant in turn; the last calls two tools."""
    store.create_session("s", "cli")
    for number in range(10):
        store.append_message(
            "s",
            "assistant" if number % 2 else "user",
            f"word{number} said",
            tool_calls=[{"id": "a"}, {"id": "b"}] if number == 9 else None,
        )
    return store


LAST = {"role": "assistant", "content": "word9 said", "tool_calls": [{"id": "a"}, {"id": "b"}]}


def contents(db: SessionDB, state: str = "live") -> list[object]:
    return [
        each["content"]
        for each in db.get_messages("s", include_inactive=True)
        if STATES[each["active"], each["compacted"]] == state
    ]


def words(*numbers: int) -> list[str]:
    return [f"word{number} said" for number in numbers]


def ids_of(db: SessionDB) -> list[int]:
    return [each["id"] for each in db.get_messages("s")]


def check_counters(db: SessionDB) -> None:
    """The counters of the session say what its live rows say, and so does every other count."""
    live = db.get_messages("s")
    record = db.get_session("s")
    calls = sum(len(each["tool_calls"] or []) for each in live if each["role"] != "tool")
    assert (record["message_count"], record["tool_call_count"]) == (len(live), calls)
    assert db.message_count("s") == len(live)
    everything = db.get_messages("s", include_inactive=True)
    assert db.message_count("s", include_inactive=True) == len(everything)
    assert len(db.get_messages_as_conversation("s")) == len(live)


def test_a_compacted_conversation_shows_the_summary_and_keeps_what_it_stands_for(ten):
    assert ten.archive_and_compact("s", [SUMMARY, LAST]) == 10
    assert contents(ten) == ["Summary of what was said", "word9 said"]
    assert contents(ten, "compacted") == words(*range(10))
    assert [each["role"] for each in ten.get_messages_as_conversation("s")] == ["user", "assistant"]
    assert ten.get_session("s")["message_count"] == 2
    assert ten.get_session("s")["tool_call_count"] == 2
    check_counters(ten)


def test_search_finds_what_was_compacted_each_text_once(ten):
    ten.archive_and_compact("s", [SUMMARY, LAST])
    for number in range(10):
        hits = ten.search_messages(f"word{number}")
        assert len(hits) == 1, number
    # Of the original and its copy word for word, the one that is live is shown.
    (hit,) = ten.search_messages("word9")
    assert hit["id"] == ids_of(ten)[-1]
    assert len(ten.search_messages("said", limit=50)) == 11
    assert len(ten.search_messages("summary")) == 1


def test_a_copy_that_differs_in_a_letter_is_a_text_of_its_own(ten):
    ten.archive_and_compact("s", [SUMMARY, {"role": "assistant", "content": "word9 said."}])
    assert len(ten.search_messages("word9")) == 2


def test_what_is_compacted_survives_retry_undo_rewrite_and_a_second_compaction(ten):
    originals = ten.get_messages("s")[:8]
    ten.archive_and_compact("s", [SUMMARY, LAST])
    kept = words(*range(10))
    question = ten.append_message("s", "user", "again?")
    ten.append_message("s", "assistant", "no")
    assert ten.rewind_to_message("s", question) == 2
    assert contents(ten, "compacted") == kept
    assert contents(ten, "undone") == ["again?", "no"]
    ten.replace_messages("s", [SUMMARY, {"role": "user", "content": "rewritten"}])
    assert contents(ten) == ["Summary of what was said", "rewritten"]
    assert contents(ten, "compacted") == kept
    assert contents(ten, "undone") == ["again?", "no"]
    assert ten.archive_and_compact("s", [{"role": "user", "content": "second summary"}]) == 2
    assert contents(ten) == ["second summary"]
    assert contents(ten, "compacted") == [*kept, "Summary of what was said", "rewritten"]
    assert contents(ten, "undone") == ["again?", "no"]
    after = {each["id"]: each for each in ten.get_messages("s", include_inactive=True)}
    for original in originals:
        kept_row = after[original["id"]]
        assert kept_row == original | {"active": False, "compacted": True}
    for number in range(8):
        assert len(ten.search_messages(f"word{number}")) == 1
    check_counters(ten)


def test_only_clearing_or_deleting_takes_what_was_compacted(ten):
    ten.archive_and_compact("s", [SUMMARY])
    assert ten.clear_messages("s") == 11
    assert ten.get_messages("s", include_inactive=True) == []
    assert ten.search_messages("word3") == []
    check_counters(ten)


def test_a_session_of_compacted_messages_is_deleted_whole(ten, sql):
    ten.archive_and_compact("s", [SUMMARY])
    assert ten.delete_session("s") is True
    assert sql("SELECT count(*) FROM messages") == [(0,)]
    assert ten.search_messages("word3") == []


def test_messages_after_the_given_one_stay_live_behind_the_summary(ten):
    through = ids_of(ten)[5]
    late = ten.get_messages("s")[6:]
    assert ten.archive_and_compact("s", [SUMMARY], through_id=through) == 6
    live = ten.get_messages("s")
    assert [each["content"] for each in live] == [SUMMARY["content"], *words(6, 7, 8, 9)]
    assert contents(ten, "compacted") == words(*range(6))
    # Whole but for their ids: the same times, calls and fields.
    for before, after in zip(late, live[1:], strict=True):
        assert after == before | {"id": after["id"]}
    assert [each["id"] for each in live] == sorted(each["id"] for each in live)
    assert len(ten.search_messages("word7")) == 1
    check_counters(ten)


def test_hostile_values_that_arrive_late_stay_what_they_are(ten):
    through = ids_of(ten)[-1]
    fields = {"tool_name": "\0", "reasoning": "\ud83d", "platform_message_id": "p1"}
    message = {"role": "assistant", "content": "\ud83d\ude00", "token_count": 7, **fields}
    ten.append_messages("s", [message, {"role": "user", "content": [{"text": "parts"}]}])
    ten.archive_and_compact("s", [SUMMARY], through_id=through)
    _, first, second = ten.get_messages("s")
    assert {name: first[name] for name in message} == message
    assert second["content"] == [{"text": "parts"}]


def test_a_through_id_beyond_the_end_means_everything(ten):
    assert ten.archive_and_compact("s", [SUMMARY], through_id=10**9) == 10
    assert contents(ten) == [SUMMARY["content"]]


def test_a_through_id_before_the_beginning_only_puts_the_summary_first(ten):
    assert ten.archive_and_compact("s", [SUMMARY], through_id=0) == 0
    assert contents(ten) == [SUMMARY["content"], *words(*range(10))]
    assert contents(ten, "compacted") == []


@pytest.mark.parametrize("through_id", ["5", 5.5, True, 2**63])
def test_a_through_id_that_is_none_compacts_nothing(ten, through_id):
    with pytest.raises((TypeError, ValueError)):
        ten.archive_and_compact("s", [SUMMARY], through_id=through_id)
    assert contents(ten) == words(*range(10))


@pytest.mark.parametrize("message_id", ["5", 5.5, True, None, 2**63])
def test_an_id_that_is_none_undoes_and_restores_nothing(ten, message_id):
    ten.rewind_to_message("s", ids_of(ten)[8])
    for call in (ten.rewind_to_message, ten.restore_rewound, ten.get_messages_around):
        with pytest.raises((TypeError, ValueError)):
            call("s", message_id)
    if message_id is not None:
        with pytest.raises((TypeError, ValueError)):
            ten.get_messages("s", after_id=message_id)
    assert contents(ten) == words(*range(8))


def test_compacting_into_nothing_leaves_an_empty_conversation(ten):
    assert ten.archive_and_compact("s", []) == 10
    assert contents(ten) == []
    check_counters(ten)


@pytest.mark.sqlite_only
def test_a_summary_that_cannot_be_stored_compacts_nothing(ten, sql):
    with pytest.raises(ValueError):
        ten.archive_and_compact("s", [SUMMARY, {"role": ""}])
    sql(
        "CREATE TRIGGER full BEFORE INSERT ON messages WHEN new.content LIKE 'Summary%' "
        "BEGIN SELECT RAISE(ABORT, 'no more'); END"
    )
    with pytest.raises(ConflictError):
        ten.archive_and_compact("s", [SUMMARY])
    assert contents(ten) == words(*range(10))
    check_counters(ten)


def test_only_the_holder_of_the_lock_compacts(timed, clock):
    timed.create_session("s", "cli")
    timed.append_message("s", "user", "x")
    with pytest.raises(ConflictError, match="nobody"):
        timed.archive_and_compact("s", [SUMMARY], lock_holder="me")
    assert timed.try_acquire_compression_lock("s", "other", ttl_seconds=10)
    with pytest.raises(ConflictError, match="other"):
        timed.archive_and_compact("s", [SUMMARY], lock_holder="me")
    clock.now += 11
    with pytest.raises(ConflictError):
        timed.archive_and_compact("s", [SUMMARY], lock_holder="other")
    assert contents(timed) == ["x"]
    assert contents(timed, "compacted") == []
    assert timed.try_acquire_compression_lock("s", "me", ttl_seconds=10)
    assert timed.archive_and_compact("s", [SUMMARY], lock_holder="me") == 1
    assert contents(timed) == [SUMMARY["content"]]


def test_a_part_of_the_list_in_memory_destroys_nothing(store):
    store.create_session("s", "cli")
    full = [{"role": "user", "content": f"word{number}"} for number in range(22)]
    store.sync_messages("s", full)
    for partial in (full[:2], full[20:], full[:21], []):
        with pytest.raises(ConflictError):
            store.sync_messages("s", partial)
    assert store.get_messages("s") == store.get_messages("s", include_inactive=True)
    assert store.message_count("s") == 22


def test_the_list_from_before_a_compaction_is_refused_and_the_one_after_goes_on(ten):
    before = ten.get_messages_as_conversation("s")
    ten.archive_and_compact("s", [SUMMARY, LAST])
    with pytest.raises(ConflictError):
        ten.sync_messages("s", before)
    after = ten.get_messages_as_conversation("s")
    assert ten.sync_messages("s", after) == []
    assert len(ten.sync_messages("s", [*after, {"role": "user", "content": "on"}])) == 1
    assert contents(ten, "compacted") == words(*range(10))


def test_an_undo_takes_all_from_a_question_on_and_can_be_taken_back(ten):
    question = ids_of(ten)[4]
    assert ten.rewind_to_message("s", question) == 6
    assert contents(ten) == words(0, 1, 2, 3)
    assert contents(ten, "undone") == words(*range(4, 10))
    assert ten.get_session("s")["rewind_count"] == 1
    check_counters(ten)
    assert ten.search_messages("word5") == []
    assert len(ten.search_messages("word5", include_inactive=True)) == 1
    assert ten.restore_rewound("s", question) == 6
    assert contents(ten) == words(*range(10))
    assert ten.restore_rewound("s", question) == 0
    assert len(ten.search_messages("word5")) == 1
    check_counters(ten)


def test_an_undo_is_taken_back_only_from_the_given_message_on(ten):
    ids = ids_of(ten)
    ten.rewind_to_message("s", ids[2])
    assert ten.restore_rewound("s", ids[6]) == 4
    assert contents(ten) == words(0, 1, 6, 7, 8, 9)
    check_counters(ten)


def test_only_a_live_user_message_of_the_session_can_be_gone_back_to(ten):
    ten.create_session("t", "cli")
    other = ten.append_message("t", "user", "elsewhere")
    ids = ids_of(ten)
    with pytest.raises(ValueError, match="assistant"):
        ten.rewind_to_message("s", ids[1])
    for message_id in (other, 10**9, 0):
        with pytest.raises(MessageNotFoundError):
            ten.rewind_to_message("s", message_id)
    with pytest.raises(MessageNotFoundError):
        ten.rewind_to_message("nope", ids[0])
    ten.rewind_to_message("s", ids[4])
    for message_id in (ids[4], ids[6]):
        with pytest.raises(MessageNotFoundError):
            ten.rewind_to_message("s", message_id)
    ten.archive_and_compact("s", [SUMMARY])
    with pytest.raises(MessageNotFoundError):
        ten.rewind_to_message("s", ids[0])
    assert ten.get_session("s")["rewind_count"] == 1
    assert ten.message_count("t") == 1
    with pytest.raises(SessionNotFoundError):
        ten.restore_rewound("nope", 0)


def test_taking_an_undo_back_revives_nothing_that_was_compacted(ten):
    ids = ids_of(ten)
    ten.rewind_to_message("s", ids[8])
    ten.archive_and_compact("s", [SUMMARY])
    assert ten.restore_rewound("s", 0) == 2
    assert sorted(contents(ten)) == sorted([SUMMARY["content"], *words(8, 9)])
    assert contents(ten, "compacted") == words(*range(8))
    check_counters(ten)


def test_the_messages_around_one_leave_out_what_was_undone(ten):
    ids = ids_of(ten)
    ten.rewind_to_message("s", ids[4])
    after = ten.append_message("s", "user", "another way")
    around = ten.get_messages_around("s", ids[3], window=2)
    assert [each["content"] for each in around] == [*words(1, 2, 3), "another way"]
    everything = ten.get_messages_around("s", ids[3], window=2**63 - 1)
    assert [each["content"] for each in everything] == [*words(*range(4)), "another way"]
    with pytest.raises(MessageNotFoundError):
        ten.get_messages_around("s", ids[5])
    (hit,) = ten.search_messages("another")
    assert hit["id"] == after
    assert [each["content"] for each in hit["context"]] == ["word3 said", "another way"]


def test_the_messages_around_a_compacted_one_are_those_it_stood_among(ten):
    ids = ids_of(ten)
    ten.archive_and_compact("s", [SUMMARY])
    around = ten.get_messages_around("s", ids[3], window=1)
    assert [each["content"] for each in around] == words(2, 3, 4)
    (hit,) = ten.search_messages("word3")
    assert [each["content"] for each in hit["context"]] == words(2, 3, 4)


def test_a_list_previews_what_is_live_and_remembers_when_it_was_active(timed, clock):
    timed.create_session("s", "cli")
    first = timed.append_message("s", "user", "first question")
    clock.now += 10
    timed.append_message("s", "assistant", "first answer")
    latest = clock.now
    timed.rewind_to_message("s", first)
    (entry,) = timed.list_sessions_rich()
    assert (entry["preview"], entry["message_count"], entry["last_active"]) == ("", 0, latest)
    timed.restore_rewound("s", first)
    (entry,) = timed.list_sessions_rich()
    assert (entry["preview"], entry["message_count"]) == ("first question", 2)
    timed.archive_and_compact("s", [{**SUMMARY, "timestamp": 5.0}])
    (entry,) = timed.list_sessions_rich()
    assert (entry["preview"], entry["message_count"]) == (SUMMARY["content"], 1)
    assert entry["last_active"] == latest


def test_a_session_whose_live_part_is_empty_is_resumed_below(timed, clock):
    timed.create_session("A", "cli")
    first = timed.append_message("A", "user", "x")
    timed.continue_session("A", "B")
    timed.append_message("B", "user", "y")
    assert timed.resolve_resume_session_id("A") == "A"
    timed.rewind_to_message("A", first)
    assert timed.resolve_resume_session_id("A") == "B"


def test_a_backup_holds_every_state_and_gives_it_back(ten, tmp_path, empty_file):
    ten.archive_and_compact("s", [SUMMARY, LAST], through_id=ids_of(ten)[7])
    question = ten.append_message("s", "user", "again?")
    ten.rewind_to_message("s", question)
    exported = ten.export_session("s")
    states = [STATES[each["active"], each["compacted"]] for each in exported["messages"]]
    assert states.count("compacted") == 8
    assert states.count("undone") == 1
    assert states.count("live") == 4
    path = tmp_path / "other.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as other:
        other.import_sessions([exported])
        assert other.export_session("s") == exported
        for state in STATES.values():
            assert contents(other, state) == contents(ten, state)
        assert other.restore_rewound("s", 0) == 1
