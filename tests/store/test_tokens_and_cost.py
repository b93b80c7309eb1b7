"""What a session used, added up."""

from __future__ import annotations

import pytest


@pytest.fixture
def used(store):
    store.create_session("s", "cli")
    return store


def test_absolute_figures_replace_and_increments_add(used):
    for figure in (1000, 2500, 5000):
        used.update_token_counts("s", input_tokens=figure, absolute=True)
    assert used.get_session("s")["input_tokens"] == 5000
    used.update_token_counts("s", input_tokens=5000, absolute=True)
    assert used.get_session("s")["input_tokens"] == 5000
    used.update_token_counts("s", input_tokens=3000, absolute=True)
    assert used.get_session("s")["input_tokens"] == 3000
    used.create_session("t", "cli")
    for figure in (1000, 1500, 2500):
        used.update_token_counts("t", figure)
    assert used.get_session("t")["input_tokens"] == 5000


def test_every_counter_is_kept_apart(used):
    names = (
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
        "api_call_count",
    )
    figures = {name: 10**position for position, name in enumerate(names)}
    used.update_token_counts("s", **figures)
    used.update_token_counts("s", **figures)
    session = used.get_session("s")
    assert {name: session[name] for name in names} == {
        name: 2 * figure for name, figure in figures.items()
    }


def test_reasoning_is_part_of_the_output_and_not_counted_twice(used):
    used.update_token_counts("s", input_tokens=100, output_tokens=50, reasoning_tokens=30)
    (line,) = used.top_sessions_by_tokens()
    assert line["total_tokens"] == 150
    assert (line["input_tokens"], line["output_tokens"]) == (100, 50)


def test_a_known_cost_survives_an_unknown_one(used):
    used.update_token_counts("s", input_tokens=1, actual_cost_usd=0.5)
    used.update_token_counts("s", input_tokens=1, actual_cost_usd=None)
    used.update_token_counts("s", input_tokens=1, actual_cost_usd=None, absolute=True)
    session = used.get_session("s")
    assert session["actual_cost_usd"] == 0.5
    assert session["estimated_cost_usd"] is None


def test_costs_add_up_and_a_cost_of_nothing_is_known(used):
    used.update_token_counts("s", estimated_cost_usd=0.25)
    used.update_token_counts("s", estimated_cost_usd=0.5, actual_cost_usd=0)
    session = used.get_session("s")
    assert session["estimated_cost_usd"] == 0.75
    assert session["actual_cost_usd"] == 0.0
    used.update_token_counts("s", estimated_cost_usd=0.1, absolute=True)
    assert used.get_session("s")["estimated_cost_usd"] == 0.1


def test_a_session_never_priced_has_no_cost(used):
    used.update_token_counts("s", input_tokens=5)
    assert used.get_session("s")["estimated_cost_usd"] is None
    assert used.get_session("s")["actual_cost_usd"] is None


def test_model_and_billing_fill_what_is_empty_and_the_status_takes_the_latest(used):
    used.update_token_counts(
        "s", model="m1", billing_provider="p1", billing_mode="api", cost_status="estimated"
    )
    used.update_token_counts(
        "s",
        model="m2",
        billing_provider="p2",
        billing_base_url="https://example.test",
        cost_status="final",
        cost_source="invoice",
        pricing_version="2025-01",
    )
    used.update_token_counts("s", input_tokens=1)
    session = used.get_session("s")
    names = ("model", "billing_provider", "billing_base_url", "billing_mode")
    assert [session[name] for name in names] == ["m1", "p1", "https://example.test", "api"]
    names = ("cost_status", "cost_source", "pricing_version")
    assert [session[name] for name in names] == ["final", "invoice", "2025-01"]


def test_tokens_of_a_session_that_was_never_made_are_not_lost(store):
    store.update_token_counts("late", input_tokens=10)
    session = store.get_session("late")
    assert (session["source"], session["input_tokens"]) == ("unknown", 10)
    store.create_session("late", "cli")
    assert store.get_session("late")["source"] == "cli"
    assert store.get_session("late")["input_tokens"] == 10


def test_figures_beyond_32_bits_are_held(used):
    used.update_token_counts("s", input_tokens=3_000_000_000)
    used.update_token_counts("s", input_tokens=3_000_000_000)
    assert used.get_session("s")["input_tokens"] == 6_000_000_000


@pytest.mark.parametrize(
    ("figures", "error"),
    [
        ({"input_tokens": -1}, ValueError),
        ({"input_tokens": 2**63}, ValueError),
        ({"input_tokens": 1.5}, TypeError),
        ({"input_tokens": True}, TypeError),
        ({"input_tokens": "7"}, TypeError),
        ({"actual_cost_usd": -0.01}, ValueError),
        ({"actual_cost_usd": float("nan")}, ValueError),
        ({"estimated_cost_usd": float("inf")}, ValueError),
        ({"estimated_cost_usd": "1"}, TypeError),
        ({"cost_status": 1}, TypeError),
    ],
)
def test_a_figure_that_is_none_is_refused_whole(used, figures, error):
    with pytest.raises(error):
        used.update_token_counts("s", output_tokens=5, **figures)
    assert used.get_session("s")["output_tokens"] == 0
    with pytest.raises(error):
        used.update_token_counts("new", output_tokens=5, **figures)
    assert used.session_count() == 1


def test_the_top_sessions_are_ordered_by_total_and_then_by_id(store):
    for name, tokens in (("c", 5), ("a", 5), ("b", 50), ("d", 0)):
        store.update_token_counts(name, output_tokens=tokens)
    assert [line["id"] for line in store.top_sessions_by_tokens()] == ["b", "a", "c", "d"]
    assert [line["id"] for line in store.top_sessions_by_tokens(limit=2)] == ["b", "a"]
    assert store.top_sessions_by_tokens(limit=0) == []
    with pytest.raises(ValueError):
        store.top_sessions_by_tokens(limit=-1)
