"""Parsers, readers and the redactor with anything at all; see `targets.py`."""

from __future__ import annotations

import pytest
import targets
from hypothesis import given, settings
from hypothesis import strategies as st

PIECES = st.sampled_from(
    [
        *('"', "'", "\\", "[", "]", "{", "}", ":", ",", "-", "*", "AND ", "NOT ", "OR ", " ", "\n"),
        *("sk-", "password", "key", "=", ": ", "[redacted]", "Bearer ", "http://", "@", "-u ", "#"),
        *("网", "é", "e\u0301", "ﬁ", "İ", "😀", "\u202e", "\x1b", "\0", "\ud83d", "1e999", "null"),
        *('"id"', '"messages"', '"source"', '"started_at"', "CON", "A", "a", "..", "/", "\udcff"),
    ]
)
ANYTHING = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=30).map(
        lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")
    ),
)


@pytest.mark.parametrize("name", targets.TARGETS)
@settings(max_examples=40)  # scripts/fuzz.py goes further
@given(data=ANYTHING)
def test_anything_at_all_keeps_the_promises(name: str, data: bytes):
    targets.TARGETS[name](data)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_what_was_found_once_keeps_them(name: str):
    for data in targets.SEEDS[name]:
        targets.TARGETS[name](data)
