"""Sums and names that no database could hold."""

from __future__ import annotations

import pytest


def test_a_sum_of_tokens_beyond_64_bits_is_refused_and_the_old_one_stays(store):
    store.update_token_counts("s", input_tokens=2**63 - 1)
    with pytest.raises(ValueError, match="the sum of input_tokens"):
        store.update_token_counts("s", input_tokens=1)
    assert store.get_session("s")["input_tokens"] == 2**63 - 1


@pytest.mark.parametrize("look", ["get_session", "get_session_title", "get_meta", "get_messages"])
def test_looking_for_half_a_character_says_what_is_wrong(store, look):
    with pytest.raises(ValueError, match="half a surrogate pair"):
        getattr(store, look)("a\ud83d")
