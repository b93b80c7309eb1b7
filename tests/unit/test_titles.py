"""What a title is cleaned to."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionstore import SessionDB

sanitize = SessionDB.sanitize_title

# Anything Python can hold, with what titles must not have thrown in often.
any_text = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cs"]),
        st.sampled_from("\0\t\n\x1f\x7f\x85\u00a0\u200b\u200d\u202e\u2028\u2066\u3000\ufeff"),
        st.sampled_from("aeA#2 \u0301\u0323\u0327가\u1100\u1161"),
    ),
    max_size=130,
)


@given(any_text)
def test_a_cleaned_title_is_short_composed_visible_and_stays_as_it_is(text):
    try:
        title = sanitize(text)
    except ValueError:
        return
    if title is None:
        return
    assert 0 < len(title) <= 100
    assert sanitize(title) == title
    assert unicodedata.normalize("NFC", title) == title
    assert title == title.strip()
    assert not [each for each in title if unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"}]
    assert not set(title) & set("\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2066\u2069\ufeff")
    assert all(each == " " or not each.isspace() for each in title)
    assert "  " not in title
    title.encode()


@given(any_text)
def test_both_forms_of_a_text_are_one_title(text):
    results = []
    for form in ("NFC", "NFD"):
        try:
            results.append(sanitize(unicodedata.normalize(form, text)))
        except ValueError:
            results.append("too long")
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("given_title", "title"),
    [
        (None, None),
        ("", None),
        (" \t\r\n ", None),
        ("\u200b\u202e\ufeff", None),
        ("\x00\x1f\x7f", None),
        ("  a \t\n  b  ", "a b"),
        ("a\u200bb", "ab"),
        ("\u202eabc\u202c", "abc"),
        ("a\r\nb", "a b"),
        ("a\u2028b\u2029c", "a b c"),
        ("a\u3000b\u00a0c", "a b c"),
        ("nul\0l", "null"),
        ("bad \ud83d end", "bad end"),
        ("e\u0301", "é"),
        ("한국어", "한국어"),
        ("Kelvin \u212a", "Kelvin K"),
        ("😀", "😀"),
        ("x" * 100, "x" * 100),
        (" " * 500 + "x" * 100 + "\u200b" * 500, "x" * 100),
        ("e\u0301" * 100, "é" * 100),
    ],
)
def test_titles_are_cleaned_as_promised(given_title, title):
    assert sanitize(given_title) == title


@pytest.mark.parametrize("long", ["x" * 101, "x" * 12_000, "👨‍👩‍👧‍👦" * 100, "é" * 101])
def test_a_title_too_long_after_cleaning_is_refused(long):
    with pytest.raises(ValueError, match="too long"):
        sanitize(long)


def test_what_is_no_text_is_no_title():
    with pytest.raises(TypeError):
        sanitize(5)
