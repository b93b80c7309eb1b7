"""What is stored comes back equal and of the same type, or is refused."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable

import pytest

from sessionstore import ConflictError, SessionDB, SessionNotFoundError

IMAGE = base64.b64encode(bytes(range(256)) * 3000).decode()
PARTS = [{"type": "text", "text": "kiwi"}, {"type": "image", "data": IMAGE}]

CONTENTS = [
    None,
    "",
    "[]",
    [],
    {},
    "{}",
    "null",
    "None",
    "1",
    PARTS,
    "\x00json:[1]",
    "\x00json:",
    "\x00",
    [None, True, False, 0, -1, 0.5, "é", {"b": 1, "a": [2]}],
    {"z": 1, "a": 2, "": "empty key"},
    [1, 1.0, True],
    "bad \ud83d end",
    ["bad \ud83d end"],
    "qz\0zq9",
    "😀",
    "👨‍👩‍👧‍👦",
    "e\u0301",
    "\ufeff",
    "\u202e",
    "a\r\nb\rc\n",
    " \t leading and trailing \n",
    "'; DELETE FROM messages; --",
]


def exactly(values: Iterable[object]) -> list[str]:
    """Write values so that only equal ones of one type all the way down are equal."""
    return [repr(value) for value in values]


@pytest.fixture
def session(store: SessionDB) -> SessionDB:
    store.create_session("s", "cli")
    return store


def test_every_content_comes_back_with_its_value_and_type(session, path):
    for content in CONTENTS:
        session.append_message("s", "user", content)
    for db in (session, SessionDB(path), SessionDB(path, read_only=True)):
        stored = [message["content"] for message in db.get_messages("s")]
        assert exactly(stored) == exactly(CONTENTS)
        given = [message["content"] for message in db.get_messages_as_conversation("s")]
        assert exactly(given) == exactly(CONTENTS)
        if db is not session:
            db.close()


def test_very_long_texts_come_back_whole(session):
    words = " ".join(f"w{number}" for number in range(200_000))
    for text in ("x" * 1_000_000, words):
        session.append_message("s", "user", text)
    assert [message["content"] for message in session.get_messages("s")] == [
        "x" * 1_000_000,
        words,
    ]


TEXTS = [None, "", "r", "[]", "bad \ud83d end", "nul \0 inside", "\x00json:1"]


@pytest.mark.parametrize(
    "field", ["reasoning", "reasoning_content", "tool_name", "tool_call_id", "finish_reason"]
)
def test_every_text_field_keeps_what_it_was_given(session, field):
    for text in TEXTS:
        session.append_message("s", "assistant", "x", **{field: text})
    assert [message[field] for message in session.get_messages("s")] == TEXTS


CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "größe", "arguments": '{"b":1,"a":"é"}'}},
    {"id": "c2", "function": {"arguments": "\ud83d", "name": "f"}},
]
OPAQUE = [[["x", {"encrypted": "AAA=", "n": [[], {}]}]], 7, "text", "", [], {}, False, 0, None]


@pytest.mark.parametrize(
    "field", ["tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"]
)
def test_every_json_field_keeps_values_types_and_the_order_of_keys(session, field):
    for value in (CALLS, *OPAQUE):
        session.append_message("s", "assistant", None, **{field: value})
    stored = [message[field] for message in session.get_messages("s")]
    assert exactly(stored) == exactly([CALLS, *OPAQUE])


def test_text_outside_ascii_is_stored_as_itself_so_that_other_tools_read_it(session, sql):
    session.append_message("s", "assistant", ["größe"], tool_calls=CALLS[:1])
    ((content, calls),) = sql("SELECT content, tool_calls FROM messages")
    assert "größe" in content
    assert "größe" in calls


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"role": ""}, ValueError),
        ({"role": None}, ValueError),
        ({"role": 5}, TypeError),
        ({"role": "us\0er"}, ValueError),
        ({"role": "user", "timestamp": float("nan")}, ValueError),
        ({"role": "user", "timestamp": float("-inf")}, ValueError),
        ({"role": "user", "timestamp": 10**400}, ValueError),
        ({"role": "user", "timestamp": "now"}, TypeError),
        ({"role": "user", "token_count": 2**63}, ValueError),
        ({"role": "user", "token_count": -1}, ValueError),
        ({"role": "user", "token_count": 1.0}, TypeError),
        ({"role": "user", "content": 5}, TypeError),
        ({"role": "user", "content": b"bytes"}, TypeError),
        ({"role": "user", "content": ("a", "tuple")}, TypeError),
        ({"role": "user", "content": [("a", "tuple")]}, TypeError),
        ({"role": "user", "content": {1: "a number as key"}}, TypeError),
        ({"role": "user", "content": [{1, 2}]}, TypeError),
        ({"role": "user", "content": [float("nan")]}, ValueError),
        ({"role": "user", "tool_calls": [float("inf")]}, ValueError),
        ({"role": "user", "tool_calls": [object()]}, TypeError),
        ({"role": "user", "reasoning": ["a list"]}, TypeError),
        ({"role": "user", "tool_name": 5}, TypeError),
    ],
)
def test_what_cannot_come_back_is_refused_and_nothing_stored(session, message, error):
    with pytest.raises(error):
        session.append_message("s", **message)
    with pytest.raises(error):
        session.append_messages("s", [{"role": "user", "content": "fine"}, message])
    with pytest.raises(error):
        session.sync_messages("s", [{"role": "user", "content": "fine"}, message])
    assert session.message_count() == 0
    assert session.get_session("s")["message_count"] == 0


def test_a_value_that_holds_itself_is_refused(session):
    loop: list[object] = []
    loop.append(loop)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(ValueError):
            session.append_message("s", "user", value)
    assert session.message_count() == 0


def test_a_field_nobody_knows_is_named(session):
    with pytest.raises(TypeError, match="colour"):
        session.append_messages("s", [{"role": "user", "colour": "red"}])
    assert session.message_count() == 0


def test_counters_follow_the_messages(session):
    session.append_message("s", "user", "go")
    session.append_message("s", "assistant", None, tool_calls=[{"id": "1"}, {"id": "2"}])
    session.append_message("s", "tool", "done", tool_calls=[{"id": "1"}], tool_call_id="1")
    session.append_message("s", "assistant", None, tool_calls=[])
    session.append_message("s", "assistant", None, tool_calls={"not": "a list"})
    session.append_messages(
        "s", [{"role": "assistant", "tool_calls": [{"id": "3"}]}, {"role": "user", "content": "x"}]
    )
    record = session.get_session("s")
    assert (record["message_count"], record["tool_call_count"]) == (7, 3)


def test_an_append_to_no_session_says_so_and_stores_nothing(store, path):
    for call in (
        lambda: store.append_message("nope", "user", "x"),
        lambda: store.append_messages("nope", [{"role": "user", "content": "x"}]),
        lambda: store.append_messages("nope", []),
        lambda: store.sync_messages("nope", [{"role": "user", "content": "x"}]),
        lambda: store.replace_messages("nope", []),
        lambda: store.clear_messages("nope"),
    ):
        with pytest.raises(SessionNotFoundError, match="nope") as caught:
            call()
        assert caught.value.session_id == "nope"
        assert isinstance(caught.value, KeyError)
    with SessionDB(path) as again:
        assert again.message_count() == 0
        assert again.list_sessions_rich() == []


@pytest.fixture
def damaged(session: SessionDB, sql) -> SessionDB:
    """Three messages, of which other hands broke the one in the middle."""
    session.append_message("s", "user", "before")
    session.append_message("s", "assistant", "x", tool_calls=[1], reasoning="r")
    session.append_message("s", "user", "after")
    sql(
        "UPDATE messages SET content = char(0) || 'json:[1,', tool_calls = '{oops', "
        "reasoning_details = 'NaN', reasoning = CAST(X'41FF42' AS TEXT) WHERE id = 2"
    )
    return session


@pytest.mark.sqlite_only
def test_a_damaged_row_is_marked_and_its_neighbours_are_whole(damaged, sql, caplog):
    stored_before = sql("SELECT hex(content), tool_calls, hex(reasoning) FROM messages")
    with caplog.at_level(logging.WARNING, logger="sessionstore"):
        before, broken, after = damaged.get_messages("s")
    assert (before["content"], after["content"]) == ("before", "after")
    assert broken["content"] == "\x00json:[1,"
    assert broken["tool_calls"] is None
    assert broken["reasoning_details"] is None
    assert broken["reasoning"] == "A\ufffdB"
    assert "damaged" in caplog.text
    assert len(damaged.get_messages_as_conversation("s")) == 3
    assert len(damaged.export_session("s")["messages"]) == 3
    assert damaged.list_sessions_rich()[0]["preview"] == "before"
    assert len(damaged.search_messages("after")) == 1
    assert damaged.search_messages("zebra") == []
    with pytest.raises(ConflictError):
        damaged.sync_messages("s", [{"role": "user", "content": "before"}])
    assert sql("SELECT hex(content), tool_calls, hex(reasoning) FROM messages") == stored_before


@pytest.mark.sqlite_only
def test_a_damaged_session_row_does_not_keep_the_list_from_showing(session, sql):
    session.create_session("t", "cli", model_config={"a": 1})
    sql(
        "UPDATE sessions SET model_config = '{', title = CAST(X'41FF' AS TEXT), "
        "message_count = 'many' WHERE id = 't'"
    )
    assert {each["id"] for each in session.list_sessions_rich()} == {"s", "t"}
    assert session.get_session("t")["model_config"] is None
    assert session.get_session("t")["title"] == "A\ufffd"
    assert session.list_sessions_rich(title="zebra") == []
    assert [each["id"] for each in session.list_sessions_rich(title="a\ufffd")] == ["t"]
    # Nor from being written to.
    session.set_session_title("t", "Whole")
    assert session.get_session_by_title("Whole")["id"] == "t"


@pytest.mark.sqlite_only
def test_numbers_and_bytes_in_text_columns_do_not_keep_the_rest_from_loading(session, sql):
    session.append_message("s", "user", "before")
    session.append_message("s", "user", "x")
    session.append_message("s", "user", "after")
    sql(
        "UPDATE messages SET content = X'00FF', timestamp = 'late', tool_calls = X'5B5D' "
        "WHERE id = 2"
    )
    contents = [message["content"] for message in session.get_messages("s")]
    assert (contents[0], contents[2]) == ("before", "after")
    assert len(session.get_messages_as_conversation("s")) == 3
    assert session.list_sessions_rich()[0]["preview"] == "before"
    assert session.export_session("s")["message_count"] == 3
