"""What of a message can be found, and how values are kept as text."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionstore.codec import (
    MAX_DEPTH,
    decode_content,
    decode_json,
    decode_text,
    encode_content,
    encode_json,
)
from sessionstore.search.body import stored_text, text_of

KIWI = {"type": "text", "text": "kiwi"}
IMAGE = {"type": "image", "data": "aGVsbG8=" * 10}
CALLS = [{"function": {"name": "天気", "arguments": '{"city": "\\u5e7f\\u897f \\ud83d\\ude00"}'}}]

ANY_TEXT = st.text(st.characters(codec=None), max_size=20).filter(
    lambda text: text == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=10,
)


def same(left: object, right: object) -> bool:
    """Equal, and of the same types all the way down."""
    return repr(left) == repr(right)


@settings(deadline=None)
@given(ANY_TEXT | st.lists(JSON) | st.dictionaries(ANY_TEXT, JSON))
def test_content_comes_back_equal_and_of_its_type(value: str | list | dict) -> None:
    stored, encoding = encode_content(value)
    assert stored is not None
    stored.encode()
    assert same(decode_content(stored, encoding), value)


@settings(deadline=None)
@given(JSON)
def test_a_json_value_comes_back_equal_and_of_its_type(value: object) -> None:
    stored = encode_json(value)
    assert (stored is None) == (value is None)
    assert same(decode_json(stored), value)


@pytest.mark.parametrize("text", ["", "[]", "null", "\x00json:[1]", "\x00", "\x00jsonx", "qz\0zq9"])
def test_a_text_that_looks_like_anything_stays_a_text(text: str) -> None:
    assert same(decode_content(*encode_content(text)), text)


def test_a_half_pair_is_kept_beside_its_other_half_too() -> None:
    for text in ("bad \ud83d end", "\ud83d\ude00"):
        # Not compared by pytest, which could not print them.
        assert same(decode_content(*encode_content(text)), text)


def test_plain_text_and_real_characters_are_stored_as_they_are() -> None:
    assert encode_content("今天") == ("今天", None)
    assert encode_content(["今天"]) == ('["今天"]', "json")
    assert encode_json({"名": "值"}) == '{"名": "值"}'


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ((1, 2), TypeError),
        ([(1, 2)], TypeError),
        ({1: "a"}, TypeError),
        ([{"a": {None: 1}}], TypeError),
        ([b"x"], TypeError),
        ([{1, 2}], TypeError),
        (5, TypeError),
        (b"x", TypeError),
        ([float("nan")], ValueError),
        ([float("inf")], ValueError),
    ],
)
def test_what_json_would_change_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_content(value)  # type: ignore[arg-type]
    if isinstance(value, list | dict | tuple):
        with pytest.raises(error):
            encode_json(value)


def test_what_is_nested_too_deep_or_holds_itself_is_refused() -> None:
    deep: list = []
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert decode_content(*encode_content(deep)) == deep
    with pytest.raises(ValueError, match="nested deeper"):
        encode_content([deep])
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper"):
        encode_json(loop)


@pytest.mark.parametrize("stored", ["", "{", "5", "[NaN]", "[" * 5000])
def test_damaged_content_is_read_as_text_with_one_warning(
    stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert decode_content(stored, "json") == stored
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("stored", ["", "{", "[NaN]", "[" * 5000, "\ufffd"])
def test_damaged_json_is_read_as_none_with_one_warning(
    stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert decode_json(stored) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("stored", ["", "{", "5", "[NaN]", "[" * 5000])
def test_a_damaged_text_is_read_as_it_stands_and_the_warning_says_so(
    stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert decode_text(stored) == stored
    assert caplog.messages == ["a stored text is damaged and is read as it stands"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        ([KIWI, IMAGE], "kiwi"),
        ([KIWI, {"type": "input_text", "text": "plum"}, "fig"], "kiwi\nplum\nfig"),
        ([{"type": "image_url", "image_url": {"url": "https://example.test/a.png"}}], ""),
        ([{"type": "image", "text": "aGVsbG8="}, "data:image/png;base64,aGVsbG8="], ""),
        ({"type": "tool_result", "content": [KIWI, IMAGE]}, "kiwi"),
        ({"a": 1, "text": None}, ""),
        ([[], {}, 5, None, True], ""),
    ],
)
def test_structured_content_counts_by_its_text_parts(content: object, text: str) -> None:
    assert text_of(content) == text  # type: ignore[arg-type]


def test_text_that_is_nested_deeper_than_python_recurses_is_read() -> None:
    deep: object = "kiwi"
    for _ in range(5000):
        deep = [deep]
    assert text_of(deep) == "kiwi"  # type: ignore[arg-type]


def test_tool_calls_count_with_their_real_characters() -> None:
    text = stored_text("look", None, "search", encode_json(CALLS))
    assert text.startswith("look\nsearch\n")
    assert "天気" in text
    assert "广西 😀" in text
    assert "\\u" not in text


def test_what_was_stored_with_escapes_is_found_as_what_was_not() -> None:
    calls = json.dumps(CALLS)
    assert "\\u" in calls
    content = json.dumps([{"type": "text", "text": "広い"}])
    assert stored_text(content, "json", None, calls) == stored_text(
        *encode_content([{"text": "広い"}]), None, encode_json(CALLS)
    )


def test_escapes_that_must_stay_do() -> None:
    for calls in (
        r'["\u0000 \u000a"]',
        # A text that really has a backslash before u5e7f, in a text that is no JSON and in one
        # that is.
        r'["\\u5e7f"]',
        r'["[\"\\\\u5e7f\"]"]',
    ):
        assert stored_text(None, None, None, calls) == calls


def test_a_quote_or_backslash_behind_an_escape_counts_as_json_usually_has_it() -> None:
    assert stored_text(None, None, None, r'["\u0022 \u005C"]') == r'["\" \\"]'
    nested = r'["{\"a\": \"\\u0022 \\u005c\"}"]'
    assert stored_text(None, None, None, nested) == encode_json(['{"a": "\\" \\\\"}'])


def test_what_is_damaged_counts_as_it_is_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert stored_text("{", "json", "t", r'[{"a": "\u5e7f"') == "{\nt\n" + r'[{"a": "\u5e7f"'
    assert caplog.records == []
