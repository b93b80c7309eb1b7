"""What was used of which model: lines that add up to what the session says."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessionstore import SessionDB

COUNTERS = [
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
]
COSTS = ["estimated_cost_usd", "actual_cost_usd"]


@pytest.fixture
def used(store: SessionDB) -> SessionDB:
    store.create_session("s", "cli")
    return store


def lines(db: SessionDB, figure: str = "input_tokens", **options) -> dict[tuple[str, ...], object]:
    """Give one figure by model, and by provider and task where they are named."""
    found = {}
    for line in db.usage_by_model(**options):
        name = (line["model"], line["billing_provider"], line["task"])
        found[tuple(part for part in name if part)] = line[figure]
    return found


def test_two_models_in_one_session_have_a_line_each(used):
    used.update_token_counts("s", input_tokens=1000, model="m1")
    used.update_token_counts("s", input_tokens=2000, model="m2")
    assert lines(used) == {("m1",): 1000, ("m2",): 2000}
    assert used.get_session("s")["input_tokens"] == 3000
    assert used.get_session("s")["model"] == "m1"


def test_what_names_no_model_counts_for_the_model_of_the_session(used):
    used.update_token_counts("s", input_tokens=1)
    assert lines(used) == {(): 1}
    used.create_session("s", "cli", model="m1")
    used.update_token_counts("s", input_tokens=10)
    assert lines(used) == {(): 1, ("m1",): 10}


def test_provider_and_task_make_lines_of_their_own(used):
    used.update_token_counts("s", 1, model="m", billing_provider="p1")
    used.update_token_counts("s", 10, model="m", billing_provider="p2")
    used.update_token_counts("s", 100, model="m", billing_provider="p1", task="title")
    used.update_token_counts("s", 1000, model="m")
    assert lines(used) == {("m", "p1"): 1001, ("m", "p2"): 10, ("m", "p1", "title"): 100}


def test_lines_know_when_they_were_first_and_last_added_to(timed, clock):
    began = clock.now
    timed.update_token_counts("s", 1, model="m")
    clock.now += 5
    timed.update_token_counts("s", 1, model="m")
    (line,) = timed.usage_by_model()
    assert (line["first_seen"], line["last_seen"]) == (began, began + 5)


def test_lines_add_up_over_sessions_and_can_be_kept_to_one(store):
    for name, source in (("a", "cli"), ("b", "cli"), ("c", "cron")):
        store.create_session(name, source, model="m1")
        store.update_token_counts(name, input_tokens=10, output_tokens=5, reasoning_tokens=5)
    store.update_token_counts("a", input_tokens=500, model="m2")
    first, second = store.usage_by_model()
    assert (first["model"], first["total_tokens"], first["session_count"]) == ("m2", 500, 1)
    assert (second["model"], second["total_tokens"], second["session_count"]) == ("m1", 45, 3)
    assert lines(store, session_id="a") == {("m1",): 10, ("m2",): 500}
    assert lines(store, source="cron") == {("m1",): 10}
    assert lines(store, session_id="nope") == {}


def test_a_total_set_again_counts_only_what_it_adds(used):
    for total in (1000, 2500, 5000, 5000):
        used.update_token_counts("s", input_tokens=total, model="m", absolute=True)
    assert lines(used) == {("m",): 5000}
    used.update_token_counts("s", input_tokens=6000, model="m2", absolute=True)
    assert lines(used) == {("m",): 5000, ("m2",): 1000}


def test_a_total_set_lower_is_taken_from_its_model_and_then_from_the_last_used(timed, clock):
    for model, tokens in (("m1", 1000), ("m2", 100), ("m3", 10)):
        clock.now += 1
        timed.update_token_counts("s", input_tokens=tokens, model=model)
    clock.now += 1
    timed.update_token_counts("s", input_tokens=1010, model="m2", absolute=True)
    assert lines(timed) == {("m1",): 1000, ("m3",): 10, ("m2",): 0}
    timed.update_token_counts("s", input_tokens=500, model="m2", absolute=True)
    assert lines(timed) == {("m1",): 500, ("m3",): 0, ("m2",): 0}
    # A model that never had a line does not get one for nothing.
    timed.update_token_counts("s", input_tokens=400, model="m4", absolute=True)
    assert lines(timed) == {("m1",): 400, ("m3",): 0, ("m2",): 0}
    assert timed.get_session("s")["input_tokens"] == 400


def test_nothing_given_makes_no_line(used):
    used.update_token_counts("s", model="m1")
    used.update_token_counts("s", input_tokens=0, model="m1")
    used.update_token_counts("s", input_tokens=None, actual_cost_usd=None, model="m1")
    assert used.usage_by_model() == []


def test_a_cost_stays_unknown_until_one_is_given_and_then_known(used):
    used.update_token_counts("s", input_tokens=1, model="m")
    assert lines(used, "actual_cost_usd") == {("m",): None}
    used.update_token_counts("s", actual_cost_usd=0, model="m")
    assert lines(used, "actual_cost_usd") == {("m",): 0.0}
    used.update_token_counts("s", actual_cost_usd=0.5, model="m")
    used.update_token_counts("s", input_tokens=1, actual_cost_usd=None, model="m")
    assert lines(used, "actual_cost_usd") == {("m",): 0.5}
    assert lines(used, "estimated_cost_usd") == {("m",): None}
    used.update_token_counts("s", input_tokens=1, model="m2")
    assert lines(used, "actual_cost_usd") == {("m",): 0.5, ("m2",): None}


def test_the_lines_of_a_session_go_with_it(used, sql):
    used.update_token_counts("s", 1, model="m")
    used.delete_session("s")
    assert used.usage_by_model() == []
    assert sql("SELECT count(*) FROM session_model_usage") == [(0,)]


def test_lines_leave_with_an_export_and_come_back(used, tmp_path, empty_file):
    used.update_token_counts("s", 1, model="m1", actual_cost_usd=0.25)
    used.update_token_counts("s", 2, model="m2", task="title")
    path = tmp_path / "other.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as other:
        other.import_sessions(used.iter_export())
        assert other.usage_by_model() == used.usage_by_model()


def test_totals_from_before_there_were_lines_become_one_when_imported(used, tmp_path, empty_file):
    used.update_token_counts("s", 7, output_tokens=3, model="m1", actual_cost_usd=0.25)
    exported = used.export_session("s")
    del exported["model_usage"]
    path = tmp_path / "other.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as other:
        other.import_sessions([exported])
        (line,) = other.usage_by_model()
    assert (line["model"], line["total_tokens"], line["actual_cost_usd"]) == ("m1", 10, 0.25)


@pytest.mark.parametrize(
    ("name", "figure"), [("input_tokens", 2**63 - 1), ("actual_cost_usd", 1.7e308)]
)
def test_a_sum_that_cannot_be_stored_is_refused_and_the_figure_stays(used, name, figure):
    used.update_token_counts("s", model="m", output_tokens=1, **{name: figure})
    with pytest.raises(ValueError, match=name):
        used.update_token_counts("s", model="m", output_tokens=1, **{name: figure})
    session = used.get_session("s")
    assert (session[name], session["output_tokens"]) == (figure, 1)
    assert lines(used, name) == {("m",): figure}


a_call = st.fixed_dictionaries(
    {"model": st.sampled_from([None, "m1", "m2"]), "absolute": st.booleans()},
    optional={
        "task": st.sampled_from([None, "title"]),
        "billing_provider": st.sampled_from([None, "p1", "p2"]),
        **{name: st.one_of(st.none(), st.integers(0, 100)) for name in COUNTERS},
        **{name: st.one_of(st.none(), st.integers(0, 40).map(lambda n: n / 8)) for name in COSTS},
    },
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=st.lists(a_call, max_size=6))
def test_the_lines_of_a_session_add_up_to_its_totals(used, calls):
    used.delete_session("s")
    used.create_session("s", "cli")
    totals: dict[str, float | None] = dict.fromkeys(COUNTERS, 0) | dict.fromkeys(COSTS)
    for call in calls:
        used.update_token_counts("s", **call)
        for name in (*COUNTERS, *COSTS):
            if (value := call.get(name)) is not None:
                totals[name] = value if call["absolute"] else (totals[name] or 0) + value
    session = used.get_session("s")
    assert {name: session[name] for name in totals} == totals
    found = used.usage_by_model("s")
    for name, total in totals.items():
        figures = [line[name] for line in found if line[name] is not None]
        assert all(figure >= 0 for figure in figures)
        assert math.isclose(sum(figures), total or 0), name
        if total is None:
            assert figures == []
