"""A child says, or its times say, what it is to its parent; and it stays that without it."""

from __future__ import annotations

import pytest

from sessionstore import SessionDB

DAY = 86400.0


def listed(db: SessionDB, **options) -> list[str]:
    return [entry["id"] for entry in db.list_sessions_rich(**options)]


def relation(db: SessionDB, session_id: str) -> str | None:
    return db.get_session(session_id)["relation"]


@pytest.fixture
def parent(timed, clock) -> SessionDB:
    timed.create_session("A", "cli")
    timed.append_message("A", "user", "x")
    clock.now += 10
    return timed


@pytest.mark.parametrize(
    ("kind", "entries", "tip"),
    [
        ("continuation", ["child"], "child"),
        ("branch", ["child", "A"], "A"),
        ("subagent", ["A"], "A"),
    ],
)
@pytest.mark.parametrize("end_reason", [None, "compression", "branched", "user_exit"])
def test_what_is_said_counts_whatever_the_times_say(parent, clock, kind, entries, tip, end_reason):
    if end_reason:
        parent.end_session("A", end_reason)
        clock.now += 1
    parent.create_session("child", "cli", parent_session_id="A", relation=kind)
    assert listed(parent) == entries
    assert parent.get_compression_tip("A") == tip
    assert relation(parent, "child") == kind
    parent.reopen_session("A")
    assert listed(parent) == entries


@pytest.mark.parametrize(
    ("end_reason", "started_after_s", "kind"),
    [
        (None, 0, "subagent"),
        ("user_exit", 1, "subagent"),
        ("compression", 1, "continuation"),
        ("compression", 0, "continuation"),
        ("compression", -0.001, "subagent"),
        ("branched", 1, "branch"),
        ("branched", 0, "branch"),
        ("branched", -0.001, "subagent"),
    ],
)
@pytest.mark.parametrize("how", ["delete", "prune", "raw clock, then delete"])
def test_what_the_times_say_is_written_down_before_the_parent_goes(
    parent, clock, sql, end_reason, started_after_s, kind, how
):
    if end_reason:
        parent.end_session("A", end_reason)
    parent.create_session(
        "child", "cli", parent_session_id="A", started_at=clock.now + started_after_s
    )
    assert relation(parent, "child") is None
    clock.now += 100 * DAY
    if how == "prune":
        parent.append_message("child", "user", "fresh")
        parent.end_session("A", "user_exit")
        assert parent.prune_sessions(90) == 1
    else:
        assert parent.delete_session("A") is True
    child = parent.get_session("child")
    assert (child["parent_session_id"], child["relation"]) == (None, kind)
    # A subagent's run never turns into a conversation; the others are now of their own.
    assert listed(parent) == ([] if kind == "subagent" else ["child"])
    assert listed(parent, include_children=True) == ["child"]
    assert sql("PRAGMA foreign_key_check") == []


def test_what_was_said_stays_when_the_parent_goes(parent, clock):
    parent.end_session("A", "compression")
    clock.now += 1
    for kind in ("continuation", "branch", "subagent"):
        parent.create_session(kind, "cli", parent_session_id="A", relation=kind)
    parent.delete_session("A")
    assert {kind: relation(parent, kind) for kind in ("continuation", "branch", "subagent")} == {
        kind: kind for kind in ("continuation", "branch", "subagent")
    }
    assert sorted(listed(parent)) == ["branch", "continuation"]


def test_a_chain_that_loses_its_middle_falls_into_two(timed, clock, sql):
    parent = None
    for name in "ABCD":
        clock.now += 10
        timed.create_session(name, "cli", parent_session_id=parent)
        for turn in range(3):
            timed.append_message(name, "user", f"canary{name}{turn}")
        timed.end_session(name, "compression")
        parent = name
    clock.now += 1
    timed.create_session("E", "cli", parent_session_id="B", relation="branch")
    timed.append_message("E", "user", "canaryE")
    assert sorted(listed(timed)) == ["D", "E"]
    before = timed.message_count()
    assert timed.delete_session("B") is True
    assert before - timed.message_count() == 3
    assert sorted(listed(timed)) == ["A", "D", "E"]
    assert timed.get_lineage("D") == ["C", "D"]
    assert timed.get_compression_tip("A") == "A"
    assert (relation(timed, "C"), relation(timed, "E")) == ("continuation", "branch")
    assert timed.search_messages("canaryB1") == []
    for word in ("canaryA1", "canaryC2", "canaryD0", "canaryE"):
        assert len(timed.search_messages(word)) == 1
    assert sql("PRAGMA foreign_key_check") == []
    sql("INSERT INTO messages_fts(messages_fts, rank) VALUES ('integrity-check', 1)")


def test_a_subagent_below_a_deleted_subagent_stays_hidden(parent):
    parent.create_session("helper", "sub", parent_session_id="A", relation="subagent")
    parent.create_session("helper's helper", "sub", parent_session_id="helper")
    parent.delete_session("helper")
    assert listed(parent) == ["A"]
    parent.delete_session("A")
    assert listed(parent) == []


def test_a_relation_nobody_knows_is_refused(parent):
    with pytest.raises(ValueError, match="fork"):
        parent.create_session("child", "cli", parent_session_id="A", relation="fork")
    assert parent.get_session("child") is None


def test_a_session_gains_a_relation_and_never_loses_it(parent):
    parent.create_session("child", "cli", parent_session_id="A")
    parent.create_session("child", "cli", relation="branch")
    assert relation(parent, "child") == "branch"
    parent.create_session("child", "cli", relation="subagent")
    assert relation(parent, "child") == "branch"


def test_titles_pass_on_along_what_is_said(parent, clock):
    parent.set_session_title("A", "Trip")
    parent.create_session("B", "cli", parent_session_id="A", relation="continuation")
    parent.create_session("fork", "cli", parent_session_id="A", relation="branch")
    with pytest.raises(ValueError, match="already in use"):
        parent.set_session_title("fork", "Trip")
    assert parent.set_session_title("B", "Trip") is True
    assert parent.get_session_title("A") is None


def test_an_export_keeps_what_a_child_is_without_its_parent(parent, tmp_path, empty_file):
    parent.create_session("helper", "sub", parent_session_id="A", relation="subagent")
    path = tmp_path / "other.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as other:
        report = other.import_sessions([parent.export_session("helper")])
        assert report["detached"] == ["helper"]
        assert listed(other) == []
        assert relation(other, "helper") == "subagent"
