"""A conversation that grew too long goes on in a new session, whoever else splits it too."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from sessionstore import ConflictError, SessionDB, SessionNotFoundError, TitleTakenError


@pytest.fixture
def long(timed, clock) -> SessionDB:
    timed.create_session(
        "A",
        "telegram",
        model="m1",
        user_id="u1",
        model_config={"temperature": 0},
        title="Trip",
        system_prompt="p",
    )
    timed.update_token_counts(
        "A",
        input_tokens=10,
        billing_provider="p1",
        billing_base_url="https://example.test",
        billing_mode="api",
    )
    timed.append_message("A", "user", "hello")
    clock.now += 60
    return timed


def test_a_split_ends_the_parent_and_carries_over_what_stays_true(long, clock):
    assert long.continue_session("A", "B") == "B"
    parent, child = long.get_session("A"), long.get_session("B")
    assert (parent["end_reason"], parent["ended_at"]) == ("compression", clock.now)
    assert (child["parent_session_id"], child["relation"]) == ("A", "continuation")
    assert child["started_at"] == clock.now
    assert (child["ended_at"], child["end_reason"]) == (None, None)
    for name in (
        "source",
        "user_id",
        "model",
        "model_config",
        "billing_provider",
        "billing_base_url",
        "billing_mode",
    ):
        assert child[name] == parent[name], name
    assert (parent["title"], child["title"]) == ("Trip", "Trip #2")
    # What it used, and its words, are its own.
    assert (child["input_tokens"], child["message_count"]) == (0, 0)
    assert (parent["input_tokens"], parent["message_count"]) == (10, 1)
    assert long.get_compression_tip("A") == "B"
    assert [entry["id"] for entry in long.list_sessions_rich()] == ["B"]


def test_what_is_given_comes_before_what_is_carried_over(long):
    long.continue_session(
        "A", "B", source="cli", model="m2", user_id="u2", title="Home", system_prompt="q"
    )
    child = long.get_session("B")
    assert [child[name] for name in ("source", "model", "user_id", "title", "system_prompt")] == [
        "cli",
        "m2",
        "u2",
        "Home",
        "q",
    ]
    assert child["model_config"] == {"temperature": 0}


def test_the_title_may_be_given_up_by_the_parent_but_by_nobody_else(long):
    long.create_session("other", "cli", title="Taken")
    with pytest.raises(TitleTakenError):
        long.continue_session("A", "B", title="Taken")
    assert long.get_session("B") is None
    assert long.get_session("A")["ended_at"] is None
    long.continue_session("A", "B", title="Trip")
    assert (long.get_session_title("A"), long.get_session_title("B")) == (None, "Trip")


def test_a_chain_counts_its_titles_on(long, clock):
    for parent, child in ("AB", "BC", "CD"):
        clock.now += 1
        long.continue_session(parent, child)
    assert [long.get_session_title(name) for name in "ABCD"] == [
        "Trip",
        "Trip #2",
        "Trip #3",
        "Trip #4",
    ]
    assert long.get_lineage("D") == ["A", "B", "C", "D"]
    assert long.resolve_session_by_title("Trip") == "D"


def test_a_second_split_gives_the_child_there_is(long, clock):
    long.continue_session("A", "B")
    clock.now += 5
    assert long.continue_session("A", "C") == "B"
    assert long.get_session("C") is None
    assert long.session_count() == 2
    assert long.get_session("A")["ended_at"] == clock.now - 5


def test_an_old_split_by_times_alone_is_the_child_there_is(long, clock):
    long.end_session("A", "compression")
    clock.now += 1
    long.create_session("B", "cli", parent_session_id="A")
    assert long.continue_session("A", "C") == "B"
    assert long.session_count() == 2


def test_neither_a_branch_nor_a_subagent_is_the_continuation(long):
    for kind in ("branch", "subagent"):
        long.create_session(kind, "cli", parent_session_id="A", relation=kind)
    assert long.continue_session("A", "B") == "B"


def test_a_parent_that_ended_otherwise_keeps_its_end_and_is_continued(long, clock):
    long.end_session("A", "user_exit")
    ended_at = clock.now
    clock.now += 100
    assert long.continue_session("A", "B") == "B"
    parent = long.get_session("A")
    assert (parent["end_reason"], parent["ended_at"]) == ("user_exit", ended_at)
    assert long.get_compression_tip("A") == "B"
    assert [entry["id"] for entry in long.list_sessions_rich()] == ["B"]


def test_a_clock_that_stepped_back_does_not_start_a_child_before_its_parent_ended(long, clock):
    long.end_session("A", "compression")
    ended_at = clock.now
    clock.now -= 1000
    long.continue_session("A", "B")
    assert long.get_session("B")["started_at"] >= ended_at


def test_a_split_crashed_between_its_two_halves_is_made_whole(long, clock):
    # What programs without this call leave: the parent ended, no child.
    long.end_session("A", "compression")
    clock.now += 5
    assert long.resolve_resume_session_id("A") == "A"
    assert long.continue_session("A", "B") == "B"
    assert long.get_compression_tip("A") == "B"


def test_a_split_that_cannot_be_is_refused_whole(long):
    with pytest.raises(SessionNotFoundError):
        long.continue_session("nope", "B")
    long.create_session("other", "cli")
    with pytest.raises(ConflictError, match="other"):
        long.continue_session("A", "other")
    with pytest.raises(ValueError):
        long.continue_session("A", "A")
    with pytest.raises(ValueError):
        long.continue_session("A", "")
    with pytest.raises(TypeError):
        long.continue_session("A", "B", colour="red")
    assert long.get_session("A")["ended_at"] is None
    assert long.session_count() == 2
    assert long.get_session("other")["parent_session_id"] is None


@pytest.mark.parametrize(
    "given",
    [{"relation": "branch"}, {"parent_session_id": "other"}, {"relation": None}],
    ids=["relation", "parent", "no relation"],
)
def test_a_continuation_of_another_kind_or_parent_is_refused_by_name(long, given):
    (name,) = given
    with pytest.raises(TypeError, match=f"continue_session sets {name} itself"):
        long.continue_session("A", "B", **given)
    assert long.get_session("A")["ended_at"] is None
    assert long.session_count() == 1
    # A writer whose own create failed makes the session that it meant.
    long.ensure_session("C", "cli", relation="branch", parent_session_id="A")
    made = long.get_session("C")
    assert (made["relation"], made["parent_session_id"]) == ("branch", "A")


def test_a_start_that_is_left_open_is_now(long, clock):
    long.continue_session("A", "B", started_at=None)
    assert long.get_session("B")["started_at"] == clock.now


def test_an_untitled_conversation_goes_on_untitled(store):
    store.create_session("A", "cli")
    store.continue_session("A", "B")
    assert store.get_session_title("B") is None


def split(path: Path, number: int, barrier, answers) -> None:
    """Split the session at the same moment as all the others; say what one is told."""
    with SessionDB(path) as db:
        barrier.wait(60)
        answers.put(db.continue_session("A", f"B{number}"))


def test_of_eight_programs_that_split_at_once_one_makes_the_child_and_all_are_told(long, path):
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(8), spawn.Queue()
    programs = [
        spawn.Process(target=split, args=(path, number, barrier, answers)) for number in range(8)
    ]
    for program in programs:
        program.start()
    told = {answers.get(timeout=60) for _ in programs}
    for program in programs:
        program.join(30)
        assert program.exitcode == 0
    (child_id,) = told
    assert long.session_count() == 2
    child = long.get_session(child_id)
    assert [child[name] for name in ("source", "user_id", "model", "title", "relation")] == [
        "telegram",
        "u1",
        "m1",
        "Trip #2",
        "continuation",
    ]
    assert long.get_session("A")["end_reason"] == "compression"
    assert long.get_descendants("A") == [child_id]
