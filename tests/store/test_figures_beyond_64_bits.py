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


LARGEST = 2**63 - 1


def test_what_several_sessions_used_is_added_up_beyond_64_bits(timed):
    for name in ("a", "b", "c"):
        timed.create_session(name, "cli", model="m")
        timed.update_token_counts(
            name, input_tokens=LARGEST, output_tokens=LARGEST, reasoning_tokens=LARGEST
        )

    (line,) = timed.usage_by_model()
    assert (line["input_tokens"], line["output_tokens"]) == (3 * LARGEST, 3 * LARGEST)
    assert (line["reasoning_tokens"], line["total_tokens"]) == (3 * LARGEST, 6 * LARGEST)
    assert line["session_count"] == 3
    totals = timed.usage_totals()
    assert (totals["input_tokens"], totals["total_tokens"]) == (3 * LARGEST, 6 * LARGEST)
    assert totals["sources"] == [{"source": "cli", "sessions": 3, "total_tokens": 6 * LARGEST}]
    (day,) = timed.usage_by_day()
    assert (day["sessions"], day["total_tokens"]) == (3, 6 * LARGEST)


def test_a_start_beyond_the_calendar_is_a_day_unknown_and_hides_no_other(store):
    midnight = 1_700_006_400.0
    starts = {
        "ms": 1_700_000_000_000.0,
        "far": 2.0**60,
        "past": -1e15,
        "bc": -62_135_596_801.0,
        "before": midnight - 0.0001,
        "after": midnight,
        "last": 253_402_300_799.5,
        "first": -62_135_596_800.0,
    }
    for name, moment in starts.items():
        store.create_session(name, "cli", started_at=moment)
    assert [(day["day"], day["sessions"]) for day in store.usage_by_day()] == [
        ("unknown", 4),
        ("0001-01-01", 1),
        ("2023-11-14", 1),
        ("2023-11-15", 1),
        ("9999-12-31", 1),
    ]


@pytest.mark.sqlite_only
def test_figures_that_other_hands_spoilt_do_not_spoil_the_sum(store, sql):
    for name in ("a", "b", "c"):
        store.update_token_counts(name, input_tokens=5, model="m")
    sql("UPDATE session_model_usage SET input_tokens = 'many' WHERE session_id = 'a'")
    sql("UPDATE session_model_usage SET input_tokens = -7 WHERE session_id = 'b'")

    (line,) = store.usage_by_model()

    assert line["input_tokens"] == -2


def test_pages_as_large_as_a_number_can_be_are_all_there_is(store):
    for name in ("a", "b"):
        store.create_session(name, "cli")
    first = store.append_message("a", "user", "kiwi")
    for every in (LARGEST, 2**62):
        for sort in ("rank", "newest", "oldest"):
            assert len(store.search_messages("kiwi", limit=every, sort=sort)) == 1
            assert store.search_messages("kiwi", limit=every, offset=every, sort=sort) == []
        assert len(store.search_messages("kiwi", limit=every, per_session=every)) == 1
        for active in (False, True):
            way = {"limit": every, "order_by_last_active": active}
            assert len(store.list_sessions_rich(**way)) == 2
            assert len(store.list_sessions_rich(**way, offset=1)) == 1
            assert store.list_sessions_rich(**way, offset=every) == []
        assert len(store.get_messages_around("a", first, every)) == 1
        assert len(store.get_messages("a", limit=every)) == 1
        assert store.search_sessions(limit=every, offset=every) == []
