"""Conversations that were split, branched off, or handed to a subagent."""

from __future__ import annotations

import pytest

from sessionstore import SessionDB


@pytest.fixture
def chain(timed, clock) -> SessionDB:
    """A was compressed into B, B into C; each has one message."""
    parent = None
    for name in "ABC":
        clock.now += 10
        timed.create_session(name, "cli", parent_session_id=parent, title=f"Trip {name}")
        timed.append_message(name, "user", f"in {name}")
        clock.now += 10
        if name != "C":
            timed.end_session(name, "compression")
        parent = name
    return timed


def test_the_end_of_a_chain_is_found_from_any_part(chain):
    assert [chain.get_compression_tip(name) for name in "ABC"] == ["C", "C", "C"]
    assert chain.get_compression_tip("nope") == "nope"
    assert chain.get_lineage("C") == ["A", "B", "C"]
    assert chain.get_lineage("A") == ["A"]
    assert chain.get_lineage("nope") == []
    assert chain.get_descendants("A") == ["B", "C"]
    assert chain.get_descendants("nope") == []


def test_a_chain_is_one_line_of_the_list_with_the_identity_of_its_end(chain):
    (entry,) = chain.list_sessions_rich()
    assert (entry["id"], entry["_lineage_root_id"]) == ("C", "A")
    assert entry["title"] == "Trip C"
    assert entry["preview"] == "in C"
    assert entry["message_count"] == 1
    assert entry["ended_at"] is None
    assert entry["started_at"] == chain.get_session("A")["started_at"]
    assert entry["last_active"] == chain.get_messages("C")[0]["timestamp"]


def test_a_chain_compressed_but_never_continued_is_resumed_where_it_broke(timed):
    timed.create_session("A", "cli")
    timed.append_message("A", "user", "x")
    timed.end_session("A", "compression")
    assert timed.get_compression_tip("A") == "A"
    assert timed.resolve_resume_session_id("A") == "A"
    timed.append_message("A", "user", "on we go")
    assert timed.message_count("A") == 2


def test_resuming_goes_to_the_nearest_part_that_has_messages(timed, clock):
    timed.create_session("A", "cli")
    timed.end_session("A", "compression")
    clock.now += 1
    timed.create_session("B", "cli", parent_session_id="A")
    timed.end_session("B", "compression")
    clock.now += 1
    timed.create_session("C", "cli", parent_session_id="B")
    assert timed.resolve_resume_session_id("A") == "A"
    timed.append_message("C", "user", "x")
    assert timed.resolve_resume_session_id("A") == "C"
    timed.append_message("B", "user", "x")
    assert timed.resolve_resume_session_id("A") == "B"
    timed.append_message("A", "user", "x")
    assert timed.resolve_resume_session_id("A") == "A"


@pytest.mark.parametrize("nothing", [None, "", "unknown"])
def test_what_cannot_be_resumed_comes_back_as_given(store, nothing):
    assert store.resolve_resume_session_id(nothing) == nothing
    assert store.session_count() == 0


def test_a_chain_is_reached_by_the_title_of_its_root(timed, clock):
    timed.create_session("A", "cli", title="Trip")
    timed.end_session("A", "compression")
    clock.now += 1
    timed.create_session("B", "cli", parent_session_id="A", title="Trip #2")
    timed.append_message("B", "user", "x")
    assert timed.resolve_session_by_title("Trip") == "B"
    assert timed.get_compression_tip(timed.get_session_by_title("Trip")["id"]) == "B"
    assert timed.resolve_resume_session_id("A") == "B"


def test_a_child_of_an_open_session_is_a_subagent_and_not_listed(timed, clock):
    timed.create_session("A", "cli")
    clock.now += 1
    timed.create_session("helper", "subagent", parent_session_id="A")
    assert [entry["id"] for entry in timed.list_sessions_rich()] == ["A"]
    assert timed.get_compression_tip("A") == "A"
    everything = timed.list_sessions_rich(include_children=True)
    assert [entry["id"] for entry in everything] == ["helper", "A"]


def test_a_child_from_before_the_split_is_a_subagent_not_the_continuation(timed, clock):
    timed.create_session("A", "cli")
    timed.create_session("helper", "subagent", parent_session_id="A")
    clock.now += 10
    timed.end_session("A", "compression")
    assert timed.get_compression_tip("A") == "A"
    clock.now += 10
    timed.create_session("B", "cli", parent_session_id="A")
    assert timed.get_compression_tip("A") == "B"
    assert [entry["id"] for entry in timed.list_sessions_rich()] == ["B"]


def test_a_branch_is_a_conversation_of_its_own(timed, clock):
    timed.create_session("A", "cli")
    timed.append_message("A", "user", "x")
    clock.now += 10
    timed.end_session("A", "branched")
    timed.create_session("fork", "cli", parent_session_id="A")
    assert [entry["id"] for entry in timed.list_sessions_rich()] == ["fork", "A"]
    assert timed.get_compression_tip("A") == "A"
    assert timed.get_lineage("fork") == ["A", "fork"]


def test_reopening_a_parent_changes_what_its_child_is(chain):
    chain.reopen_session("A")
    assert chain.get_compression_tip("A") == "A"
    assert [entry["id"] for entry in chain.list_sessions_rich()] == ["A"]


def test_of_two_continuations_the_newest_started_counts(chain, clock):
    clock.now += 1
    chain.create_session("C2", "cli", parent_session_id="B")
    assert chain.get_compression_tip("A") == "C2"
    assert len(chain.list_sessions_rich()) == 1


@pytest.mark.sqlite_only
def test_a_child_whose_parent_is_gone_is_a_conversation_again(store, sql):
    store.create_session("orphan", "cli")
    sql("UPDATE sessions SET parent_session_id = 'never there'")
    assert [entry["id"] for entry in store.list_sessions_rich()] == ["orphan"]
    assert store.get_lineage("orphan") == ["orphan"]


@pytest.fixture
def cycle(chain, sql) -> SessionDB:
    sql("UPDATE sessions SET parent_session_id = 'C', started_at = 4e9 WHERE id = 'A'")
    sql("UPDATE sessions SET end_reason = 'compression', ended_at = 1 WHERE id = 'C'")
    return chain


def test_no_call_hangs_on_a_cycle(cycle):
    for name in "ABC":
        assert sorted(cycle.get_lineage(name)) == ["A", "B", "C"]
        assert sorted(cycle.get_descendants(name)) == sorted({"A", "B", "C"} - {name})
        assert cycle.get_compression_tip(name) in {"A", "B", "C"}
        assert cycle.resolve_resume_session_id(name) == name
    assert [entry["id"] for entry in cycle.list_sessions_rich()] == ["A"]
    assert len(cycle.list_sessions_rich(include_children=True)) == 3
    assert cycle.set_session_title("B", "Round") is True
    told = cycle.get_messages_as_conversation("B", include_ancestors=True)
    assert sorted(message["content"] for message in told) == ["in A", "in B", "in C"]
    assert cycle.delete_session("A") is True
    assert cycle.session_count() == 2


def test_a_session_that_is_its_own_parent_hangs_nothing(store, sql):
    store.create_session("s", "cli")
    store.append_message("s", "user", "x")
    store.end_session("s", "compression")
    sql("UPDATE sessions SET parent_session_id = 's', ended_at = 1")
    assert store.get_lineage("s") == ["s"]
    assert store.get_descendants("s") == []
    assert store.get_compression_tip("s") == "s"
    assert store.resolve_resume_session_id("s") == "s"
    assert store.delete_session("s") is True


def test_a_chain_of_hundreds_is_followed_to_its_end(store, sql):
    sql(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 299) "
        "INSERT INTO sessions(id, source, started_at, ended_at, end_reason, parent_session_id) "
        "SELECT 's' || i, 'cli', i, i + 1, 'compression', "
        "CASE WHEN i > 0 THEN 's' || (i - 1) END FROM n"
    )
    assert store.get_compression_tip("s0") == "s299"
    assert len(store.get_lineage("s299")) == 300
    assert [entry["id"] for entry in store.list_sessions_rich()] == ["s299"]
    store.create_session("s300", "cli", parent_session_id="s299")
    assert store.get_compression_tip("s0") == "s300"
