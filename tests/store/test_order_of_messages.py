"""The order of a conversation is the order in which it was stored, whatever clocks say."""

from __future__ import annotations

import pytest

from sessionstore import MessageNotFoundError, SessionDB

CALLS = [{"id": "c1"}, {"id": "c2"}]


@pytest.fixture
def crooked(store: SessionDB) -> SessionDB:
    """A conversation during which the clock stepped back by a minute."""
    store.create_session("s", "cli", started_at=90.0)
    store.append_message("s", "user", "1", timestamp=100.0)
    store.append_message("s", "assistant", "2", tool_calls=CALLS, timestamp=100.0)
    store.append_message("s", "tool", "3", tool_call_id="c1", timestamp=40.0)
    store.append_message("s", "tool", "4", tool_call_id="c2", timestamp=41.0)
    store.append_message("s", "assistant", "5", timestamp=100.0)
    return store


def contents(messages) -> str:
    return "".join(message["content"] for message in messages)


def test_a_clock_that_steps_back_moves_no_message(crooked):
    assert contents(crooked.get_messages("s")) == "12345"
    assert contents(crooked.get_messages_as_conversation("s")) == "12345"
    assert contents(crooked.export_session("s")["messages"]) == "12345"


def test_the_latest_time_is_the_last_activity_not_the_last_row(crooked):
    assert crooked.list_sessions_rich()[0]["last_active"] == 100.0
    crooked.append_message("s", "user", "6", timestamp=41.0)
    assert crooked.list_sessions_rich()[0]["last_active"] == 100.0


def test_pages_follow_each_other_without_overlap_or_gap(crooked):
    pages, last = [], None
    while page := crooked.get_messages("s", limit=2, after_id=last):
        pages.append(contents(page))
        last = page[-1]["id"]
    assert pages == ["12", "34", "5"]
    assert crooked.get_messages("s", limit=0) == []
    with pytest.raises(ValueError):
        crooked.get_messages("s", limit=-1)


def test_the_messages_around_one_are_those_beside_it_in_the_same_session(crooked):
    crooked.create_session("t", "cli")
    crooked.append_message("t", "user", "x")
    third = crooked.get_messages("s")[2]["id"]
    assert contents(crooked.get_messages_around("s", third, window=1)) == "234"
    assert contents(crooked.get_messages_around("s", third, window=0)) == "3"
    assert contents(crooked.get_messages_around("s", third)) == "12345"
    assert contents(crooked.get_messages_around("s", 1, window=1)) == "12"
    for session_id, message_id in (("s", 999), ("t", third), ("nope", third)):
        with pytest.raises(MessageNotFoundError):
            crooked.get_messages_around(session_id, message_id)


def test_messages_of_sessions_written_in_turn_stay_apart(store):
    for name in "ab":
        store.create_session(name, "cli")
    ids = [
        store.append_message(name, "user", f"{name}{turn}") for turn in range(5) for name in "ab"
    ]
    assert ids == sorted(set(ids))
    assert contents(store.get_messages("a")) == "a0a1a2a3a4"
    assert contents(store.get_messages("b")) == "b0b1b2b3b4"


def test_an_id_is_never_used_again(store):
    store.create_session("s", "cli")
    last = [store.append_message("s", "user", "x") for _ in range(3)][-1]
    store.clear_messages("s")
    assert store.append_message("s", "user", "y") > last


def test_an_unknown_session_has_no_messages(store):
    assert store.get_messages("nope") == []
    assert store.get_messages_as_conversation("nope") == []
    assert store.get_messages_as_conversation("nope", include_ancestors=True) == []


def test_a_model_is_given_what_is_there_and_no_empty_keys(store):
    store.create_session("s", "cli")
    full = {
        "finish_reason": "stop",
        "reasoning": "hm",
        "reasoning_content": "",
        "reasoning_details": [{"a": 1}],
        "codex_reasoning_items": [1],
        "codex_message_items": [2],
    }
    store.append_message("s", "system", "be brief", token_count=3)
    store.append_message("s", "user", "go", **full)
    store.append_message("s", "assistant", None, tool_calls=CALLS, **full)
    store.append_message("s", "tool", "ok", tool_call_id="c1", tool_name="run")
    store.append_message("s", "assistant", "")
    assert store.get_messages_as_conversation("s") == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": CALLS, **full},
        {"role": "tool", "content": "ok", "tool_call_id": "c1", "tool_name": "run"},
        {"role": "assistant", "content": ""},
    ]


@pytest.fixture
def chain(timed, clock) -> SessionDB:
    """A conversation that was split twice."""
    parent = None
    for name in ("root", "middle", "tip"):
        clock.now += 10
        timed.create_session(name, "cli", parent_session_id=parent)
        parent = name
        clock.now += 10
        if name != "tip":
            timed.end_session(name, "compression")
    return timed


def test_with_ancestors_a_conversation_begins_at_the_root(chain):
    for name in ("tip", "root", "middle"):
        chain.append_message(name, "user", name)
        chain.append_message(name, "assistant", f"re {name}")

    def told(session_id: str, **options) -> list[str]:
        messages = chain.get_messages_as_conversation(session_id, **options)
        return [message["content"] for message in messages]

    whole = ["root", "re root", "middle", "re middle", "tip", "re tip"]
    assert told("tip", include_ancestors=True) == whole
    assert told("middle", include_ancestors=True) == whole[:4]
    assert told("tip") == whole[4:]


def test_a_question_repeated_across_the_seam_is_told_once(chain):
    chain.append_message("root", "user", "how far?")
    chain.append_message("middle", "user", "how far?")
    chain.append_message("middle", "assistant", "far")
    chain.append_message("middle", "user", "how far?")
    chain.append_message("tip", "system", "summary")
    chain.append_message("tip", "user", "how far?")
    chain.append_message("tip", "user", "how far?")
    told = chain.get_messages_as_conversation("tip", include_ancestors=True)
    assert [(message["role"], message["content"]) for message in told] == [
        ("user", "how far?"),
        ("assistant", "far"),
        ("user", "how far?"),
        ("system", "summary"),
        ("user", "how far?"),
    ]
    assert chain.message_count() == 7


def test_what_differs_at_the_seam_stays(chain):
    chain.append_message("root", "user", "[1]")
    chain.append_message("middle", "user", [1])
    told = chain.get_messages_as_conversation("middle", include_ancestors=True)
    assert [message["content"] for message in told] == ["[1]", [1]]
