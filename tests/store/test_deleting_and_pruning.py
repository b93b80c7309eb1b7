"""What goes, what stays, and what is said about it."""

from __future__ import annotations

import logging

import pytest

from sessionstore import (
    ConflictError,
    SessionDB,
    StoreClosedError,
    StoreSettings,
    StoreUnavailableError,
)

DAY = 86400.0


def whole(sql) -> bool:
    """No reference is broken and both search indexes hold what the messages say."""
    assert sql("PRAGMA foreign_key_check") == []
    for index in ("messages_fts", "messages_fts_trigram"):
        sql(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")
        ((held,),) = sql(f"SELECT count(*) FROM {index}")
        assert [(held,)] == sql("SELECT count(*) FROM messages")
    return sql("PRAGMA integrity_check") == [("ok",)]


def ids(db: SessionDB) -> set[str]:
    return {each["id"] for each in db.search_sessions(limit=None)}


@pytest.fixture
def family(timed, clock) -> SessionDB:
    """The chain A→B→C→D and the branch B→E, each with three messages of its own word."""
    for name, parent in (("A", None), ("B", "A"), ("C", "B"), ("D", "C"), ("E", "B")):
        clock.now += 10
        timed.create_session(name, "cli", parent_session_id=parent)
        timed.append_messages(
            name, [{"role": "user", "content": f"canary{name} {turn}"} for turn in range(3)]
        )
        clock.now += 10
        if name in "ABC":
            timed.end_session(name, "compression")
    return timed


def test_a_deleted_session_takes_its_messages_and_leaves_its_children(family, sql):
    assert family.delete_session("B") is True
    assert family.delete_session("B") is False
    assert ids(family) == set("ACDE")
    assert family.message_count() == 12
    assert family.get_session("C")["parent_session_id"] is None
    assert family.get_session("E")["parent_session_id"] is None
    assert family.get_session("D")["parent_session_id"] == "C"
    for name in "ABCDE":
        hits = family.search_messages(f"canary{name}")
        assert len(hits) == (0 if name == "B" else 3)
    assert whole(sql)


def test_deleting_a_member_of_a_cycle_ends_and_takes_only_that_one(store, sql):
    store.create_session("X", "cli")
    store.create_session("Y", "cli", parent_session_id="X")
    store.append_message("X", "user", "x")
    sql("UPDATE sessions SET parent_session_id = 'Y' WHERE id = 'X'")
    assert store.delete_session("X") is True
    assert ids(store) == {"Y"}
    assert store.get_session("Y")["parent_session_id"] is None
    assert whole(sql)


def test_a_session_deleted_elsewhere_is_not_appended_to(store, path):
    store.create_session("X", "cli")
    store.append_message("X", "user", "x")
    with SessionDB(path) as other:
        other.delete_session("X")
    with pytest.raises(KeyError, match="X"):
        store.append_message("X", "user", "y")
    assert (store.session_count(), store.message_count()) == (0, 0)


@pytest.fixture
def aged(timed, clock) -> SessionDB:
    """Sessions by age, each with one message, some still open."""
    today = clock.now
    for name, days, end in (
        ("ended-100", 100, "user_exit"),
        ("ended-95", 95, "compression"),
        ("open-100", 100, None),
        ("ended-10", 10, "user_exit"),
        ("revived", 100, "user_exit"),
    ):
        clock.now = today - days * DAY
        timed.create_session(name, "cron" if name == "ended-95" else "cli")
        timed.append_message(name, "user", "x")
        if end:
            timed.end_session(name, end)
    clock.now = today
    timed.append_message("revived", "user", "last message today")
    return timed


def test_only_what_ended_and_was_silent_long_enough_goes(aged, sql):
    assert aged.prune_sessions(90) == 2
    assert ids(aged) == {"open-100", "ended-10", "revived"}
    assert aged.prune_sessions(90) == 0
    assert whole(sql)


def test_pruning_keeps_to_a_source(aged):
    assert aged.prune_sessions(90, "cron") == 1
    assert ids(aged) == {"ended-100", "open-100", "ended-10", "revived"}


def test_what_the_dry_run_shows_is_what_the_real_run_does(aged):
    shown = aged.prune_report(90)
    assert shown == {
        "pruned": ["ended-100", "ended-95"],
        "messages": 2,
        "skipped": [{"id": "open-100", "reason": "still open"}],
        "dry_run": True,
    }
    assert aged.session_count() == 5
    assert aged.prune_report(90, dry_run=False) == {**shown, "dry_run": False}
    assert aged.session_count() == 3


def test_a_prune_of_a_store_that_is_closed_meanwhile_says_so(aged, where):
    with pytest.raises(StoreClosedError):
        aged.prune_report(90, dry_run=False, progress=lambda *_: aged.close())
    with SessionDB(**where) as again:
        assert again.session_count() == 4


def test_opening_a_store_with_old_sessions_deletes_nothing(aged, path):
    for _ in range(3):
        with SessionDB(path) as again:
            assert again.session_count() == 5


@pytest.mark.parametrize("days", [-1, float("nan"), float("inf")])
def test_an_age_that_is_none_prunes_nothing(aged, days):
    with pytest.raises(ValueError):
        aged.prune_sessions(days)
    assert aged.session_count() == 5


def test_children_of_what_goes_lose_their_parent(aged, clock):
    clock.now -= 5 * DAY
    aged.create_session("child", "cli", parent_session_id="ended-100")
    clock.now += 5 * DAY
    aged.prune_sessions(90)
    assert aged.get_session("child")["parent_session_id"] is None


def test_thousands_go_in_one_call(timed, clock, sql):
    sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1050) "
        "INSERT INTO sessions(id, source, started_at, ended_at) SELECT 's' || i, 'cli', 1, 2 FROM n"
    )
    told: list[tuple[int, int]] = []
    report = timed.prune_report(
        90, dry_run=False, progress=lambda done, of: told.append((done, of))
    )
    assert len(report["pruned"]) == 1050
    assert told == [(done, 1050) for done in range(1, 1051)]
    assert timed.session_count() == 0


@pytest.mark.sqlite_only
def test_one_row_that_cannot_go_keeps_no_other_and_says_why(aged, sql, caplog):
    sql(
        "CREATE TRIGGER held BEFORE DELETE ON sessions WHEN old.id = 'ended-100' "
        "BEGIN SELECT RAISE(ABORT, 'held by the archive'); END"
    )
    with pytest.raises(ConflictError, match="held by the archive"):
        aged.delete_session("ended-100")
    for gone in (["ended-95"], []):
        with caplog.at_level(logging.WARNING, logger="sessionstore"):
            report = aged.prune_report(90, dry_run=False)
        assert report["pruned"] == gone
        reasons = {each["id"]: each["reason"] for each in report["skipped"]}
        assert set(reasons) == {"ended-100", "open-100"}
        assert "held by the archive" in reasons["ended-100"]
        assert "ended-100" in caplog.text
        assert aged.message_count("ended-100") == 1
    assert whole(sql)


@pytest.mark.sqlite_only
def test_where_nothing_more_can_be_deleted_a_prune_ends(aged, path):
    away = path.with_name("away.db")
    with pytest.raises(StoreUnavailableError, match="not where it was opened"):
        aged.prune_report(90, dry_run=False, progress=lambda _done, _of: path.rename(away))
    away.rename(path)
    assert aged.prune_report(90)["pruned"] == ["ended-95"]


def test_a_session_that_came_back_to_life_meanwhile_stays(aged, path):
    revived = []

    def revive(_done: int, _of: int) -> None:
        if not revived:
            revived.append(True)
            with SessionDB(path, settings=StoreSettings(clock=aged._settings.clock)) as other:
                other.append_message("ended-95", "user", "wait")

    report = aged.prune_report(90, dry_run=False, progress=revive)
    assert report["pruned"] == ["ended-100"]
    assert {"id": "ended-95", "reason": "in use again since"} in report["skipped"]
    assert aged.message_count("ended-95") == 2


def test_sessions_that_never_came_to_be_are_cleared_away(timed, clock, sql):
    today = clock.now
    clock.now = today - 2 * DAY
    for name in ("ghost", "ended-ghost", "titled", "talked", "parent", "child"):
        timed.create_session(
            name,
            "cli",
            title="T" if name == "titled" else None,
            parent_session_id="parent" if name == "child" else None,
        )
    timed.append_message("talked", "user", "x")
    timed.append_message("child", "user", "x")
    timed.end_session("ended-ghost", "user_exit")
    clock.now = today - 3600
    timed.create_session("young", "cli")
    clock.now = today
    assert timed.prune_empty_ghost_sessions() == 2
    assert ids(timed) == {"titled", "talked", "parent", "child", "young"}
    assert timed.prune_empty_ghost_sessions(older_than_hours=0.5) == 1
    assert timed.prune_empty_ghost_sessions(older_than_hours=0.5) == 0
    assert whole(sql)


def test_a_continuation_that_nobody_used_is_ended_after_a_week(timed, clock):
    today = clock.now
    clock.now = today - 8 * DAY
    timed.create_session("root", "cli")
    timed.create_session("helper", "subagent", parent_session_id="root")
    clock.now += 1
    timed.end_session("root", "compression")
    clock.now += 1
    for name in ("unused", "used", "young"):
        timed.create_session(name, "cli", parent_session_id="root")
        timed.append_message(name, "user", "summary")
    timed.update_token_counts("used", api_call_count=1)
    clock.now = today - 6 * DAY
    timed.append_message("young", "user", "x")
    clock.now = today
    assert timed.finalize_orphaned_compression_sessions() == 1
    assert timed.finalize_orphaned_compression_sessions() == 0
    ended = timed.get_session("unused")
    assert ended["end_reason"] == "orphaned_compression"
    assert ended["ended_at"] == timed.get_messages("unused")[0]["timestamp"]
    for name in ("used", "young", "helper"):
        assert timed.get_session(name)["ended_at"] is None
    assert timed.reopen_session("unused") is True
    assert timed.message_count("unused") == 1
