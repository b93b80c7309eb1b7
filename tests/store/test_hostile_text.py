"""Texts that look like something else, or that a database cannot hold: all come back as given."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sessionstore import SessionDB

HOSTILE = [
    "bad \ud83d end",
    "\ud83d",
    "\ude00\ud83d",
    # Two halves side by side are two characters here, and not the one they would make.
    "\ud83d\ude00",
    "a\ud83d\ude00\ud83d\ude00z",
    "\ud83d\ude00 and 😀",
    "qz\0zq9",
    "\0",
    "\0\0",
    "\x00json:",
    "\x00json:[1]",
    '\x00json:"x"',
    '["a"]',
    '["\\ud83d", "\\ude00"]',
    '"\\ud83d"',
    "[]",
    "{}",
    "null",
    "true",
    "1",
    '"',
    "json",
    "json-pieces",
    "b'x'",
    "😀",
    "👨‍👩‍👧‍👦",
    "e\u0301",
    "\ufeff",
    "\u202e",
    "\ufffd",
    "\uffff",
    "\r\n",
    "",
    " ",
]
TEXT_FIELDS = [
    "tool_name",
    "tool_call_id",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "platform_message_id",
]
JSON_FIELDS = ["tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"]

# Every character there is, those that no encoding has among them, and often the worst of them.
any_text = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cs"]),
        st.sampled_from(["\0", "\ud83d", "\ude00", '"', "\\", "[", "{", "j"]),
    ),
    max_size=12,
)


def has_pair_of_halves(text: str) -> bool:
    return any(
        "\ud800" <= first <= "\udbff" and "\udc00" <= second <= "\udfff"
        for first, second in itertools.pairwise(text)
    )


# Within lists and dicts a pair of halves is the character they make, as JSON has it.
nested_text = any_text.filter(lambda text: not has_pair_of_halves(text))
any_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        nested_text,
    ),
    lambda below: st.one_of(
        st.lists(below, max_size=4), st.dictionaries(nested_text, below, max_size=4)
    ),
    max_leaves=12,
)
any_content = st.one_of(
    st.none(),
    any_text,
    st.lists(any_json, max_size=4),
    st.dictionaries(nested_text, any_json, max_size=4),
)


@pytest.fixture
def session(store: SessionDB) -> SessionDB:
    store.create_session("s", "cli")
    return store


def test_hostile_texts_come_back_from_every_call_that_gives_messages(session, path):
    ids = [session.append_message("s", "user", text) for text in HOSTILE]
    session.append_messages("s", [{"role": "user", "content": text} for text in HOSTILE])
    twice = HOSTILE + HOSTILE
    assert [each["content"] for each in session.get_messages("s")] == twice
    assert [each["content"] for each in session.get_messages_as_conversation("s")] == twice
    assert [each["content"] for each in session.export_session("s")["messages"]] == twice
    for position, message_id in enumerate(ids):
        around = session.get_messages_around("s", message_id, window=0)
        assert [each["content"] for each in around] == [HOSTILE[position]]
    assert session.sync_messages("s", [{"role": "user", "content": text} for text in twice]) == []
    with SessionDB(path, read_only=True) as reader:
        assert [each["content"] for each in reader.get_messages("s")] == twice


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_hostile_texts_come_back_in_every_text_field(session, field):
    for text in [None, *HOSTILE]:
        session.append_message("s", "assistant", "between", **{field: text})
    stored = session.get_messages("s")
    assert [each[field] for each in stored] == [None, *HOSTILE]
    assert {each["content"] for each in stored} == {"between"}


def test_many_hostile_fields_in_one_message_do_not_mix(session):
    for shift in range(len(HOSTILE)):
        turned = HOSTILE[shift:] + HOSTILE[:shift]
        fields = dict(zip(TEXT_FIELDS, turned, strict=False))
        message_id = session.append_message("s", "assistant", turned[-1], **fields)
        (stored,) = session.get_messages_around("s", message_id, window=0)
        assert {name: stored[name] for name in fields} == fields
        assert stored["content"] == turned[-1]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    messages=st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool"]), "content": any_content},
            optional={
                **{name: st.one_of(st.none(), any_text) for name in TEXT_FIELDS},
                **dict.fromkeys(JSON_FIELDS, any_json),
            },
        ),
        min_size=1,
        max_size=4,
    )
)
@example(messages=[{"role": "user", "content": text} for text in HOSTILE])
def test_whatever_is_stored_comes_back_with_its_value_and_type(session, messages):
    session.replace_messages("s", messages)
    stored = session.get_messages("s")
    assert len(stored) == len(messages)
    for given_message, kept in zip(messages, stored, strict=True):
        for name, value in given_message.items():
            # repr tells 1 from 1.0 and True, and one half from another, all the way down.
            assert repr(kept[name]) == repr(value), name
    loaded = session.get_messages_as_conversation("s")
    assert session.sync_messages("s", loaded) == []
    session.list_sessions_rich()
    session.search_messages("zq9")


def test_a_text_behind_a_nul_is_found(session):
    message_id = session.append_message("s", "user", "qz\0zq9")
    session.append_message("s", "user", "zq8")
    assert [hit["id"] for hit in session.search_messages("zq9")] == [message_id]


def test_a_text_beside_half_a_character_is_found(session):
    message_id = session.append_message("s", "user", "bad \ud83d end kiwi")
    in_pieces = session.append_message("s", "user", "worse \ud83d\ude00 end mango")
    assert [hit["id"] for hit in session.search_messages("kiwi")] == [message_id]
    assert [hit["id"] for hit in session.search_messages("mango")] == [in_pieces]


def test_only_what_is_no_plain_text_is_stored_as_something_else(session, sql):
    contents = {
        "plain": None,
        "": None,
        '["a"]': None,
        "null": None,
        "😀": None,
        "qz\0zq9": "json",
        "\x00json:[1]": "json",
        "bad \ud83d end": "json",
    }
    for content in contents:
        session.append_message("s", "user", content)
    session.append_message("s", "user", None)
    session.append_message("s", "user", ["a"])
    session.append_message("s", "user", {"a": 1})
    rows = sql("SELECT content, content_encoding FROM messages ORDER BY id")
    assert [encoding for _, encoding in rows] == [*contents.values(), None, "json", "json"]
    for given_text, (stored, encoding) in zip(contents, rows, strict=False):
        if encoding is None:
            assert stored == given_text
        assert "\0" not in stored
    assert [stored for stored, _ in rows[-3:]] == [None, '["a"]', '{"a": 1}']


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_a_plain_text_field_is_stored_as_itself_and_another_says_that_it_is_not(
    session, sql, field
):
    for text in ("plain", '["a"]', "null", "qz\0zq9"):
        session.append_message("s", "assistant", "x", **{field: text})
    stored = sql(f"SELECT {field}, json_columns FROM messages ORDER BY id")
    assert stored[:3] == [("plain", None), ('["a"]', None), ("null", None)]
    assert stored[3] == ('"qz\\u0000zq9"', field)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_title_and_a_hostile_query_raise_nothing(session, text):
    assert session.set_session_title("s", text) is True
    title = session.get_session_title("s")
    assert title is None or title == session.sanitize_title(text)
    assert isinstance(session.search_messages(text), list)
