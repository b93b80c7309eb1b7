"""Conversations archived, and those kept at the top: always the whole chain."""

from __future__ import annotations

import pytest

from sessionstore import SessionDB

DAY = 86400.0


@pytest.fixture
def shelf(timed, clock) -> SessionDB:
    """Ten conversations, `c0` (oldest) to `c9`; `c3` was split into `c3b`, which is its end."""
    for number in range(10):
        clock.now += 10
        timed.create_session(f"c{number}", "cli", user_id=f"u{number % 2}")
        timed.append_message(f"c{number}", "user", f"about topic{number}")
        if number == 3:
            clock.now += 1
            timed.continue_session("c3", "c3b")
            timed.append_message("c3b", "user", "more of topic3")
    clock.now += 10
    return timed


def listed(db: SessionDB, **options) -> list[str]:
    return [entry["id"] for entry in db.list_sessions_rich(**options)]


ALL = ["c9", "c8", "c7", "c6", "c5", "c4", "c3b", "c2", "c1", "c0"]


@pytest.mark.parametrize("part", ["c3", "c3b"])
def test_a_chain_is_put_away_and_taken_back_as_a_whole_from_any_part(shelf, part):
    assert shelf.set_session_archived(part, True) is True
    assert shelf.get_session("c3")["archived"] is True
    assert shelf.get_session("c3b")["archived"] is True
    assert listed(shelf) == [name for name in ALL if name != "c3b"]
    assert listed(shelf, include_archived=True) == ALL
    assert listed(shelf, archived=True) == ["c3b"]
    assert "c3" not in listed(shelf, include_children=True)
    assert "c3" in listed(shelf, include_children=True, include_archived=True)
    assert shelf.set_session_archived(part, False) is True
    assert listed(shelf) == ALL


def test_neither_a_branch_nor_a_subagent_is_put_away_with_a_chain(shelf):
    shelf.create_session("fork", "cli", parent_session_id="c3", relation="branch")
    shelf.create_session("helper", "cli", parent_session_id="c3b", relation="subagent")
    shelf.set_session_archived("c3b", True)
    assert shelf.get_session("fork")["archived"] is False
    assert shelf.get_session("helper")["archived"] is False
    assert "fork" in listed(shelf)
    shelf.set_session_pinned("fork", True)
    assert shelf.get_session("c3")["pinned"] is False


def test_a_session_that_does_not_exist_is_not_put_away(store):
    assert store.set_session_archived("nope", True) is False
    assert store.set_session_pinned("nope", True) is False


def test_what_was_put_away_is_still_found_and_read(shelf):
    shelf.set_session_archived("c3", True)
    assert {hit["session_id"] for hit in shelf.search_messages("topic3")} == {"c3", "c3b"}
    assert shelf.get_messages("c3")[0]["content"] == "about topic3"
    assert shelf.session_count() == 11
    assert shelf.session_count(archived=True) == 2
    assert {each["id"] for each in shelf.search_sessions(limit=None)} >= {"c3", "c3b"}
    assert len(shelf.export_all()) == 11


def test_a_message_to_what_was_put_away_does_not_bring_it_back(shelf):
    shelf.set_session_archived("c2", True)
    shelf.append_message("c2", "user", "still here")
    assert "c2" not in listed(shelf, order_by_last_active=True)


@pytest.mark.parametrize("flag", ["archived", "pinned"])
@pytest.mark.parametrize("how", ["continue", "create", "create by times", "said later"])
def test_a_continuation_is_put_away_or_pinned_like_what_it_continues(shelf, clock, flag, how):
    getattr(shelf, f"set_session_{flag}")("c3", True)
    clock.now += 1
    if how == "continue":
        shelf.continue_session("c3b", "c3c")
    else:
        shelf.end_session("c3b", "compression")
        clock.now += -100 if how == "said later" else 1
        shelf.create_session(
            "c3c",
            "cli",
            parent_session_id="c3b",
            relation="continuation" if how == "create" else None,
        )
        if how == "said later":
            assert shelf.get_session("c3c")[flag] is False
            shelf.create_session("c3c", "cli", relation="continuation")
    assert [shelf.get_session(name)[flag] for name in ("c3", "c3b", "c3c")] == [True, True, True]
    shelf.create_session("helper", "cli", parent_session_id="c3c", relation="subagent")
    shelf.create_session("fork", "cli", parent_session_id="c3c", relation="branch")
    assert shelf.get_session("helper")[flag] is False
    assert shelf.get_session("fork")[flag] is False
    if flag == "archived":
        assert "c3c" not in listed(shelf)
    else:
        assert listed(shelf, pinned_first=True)[0] == "c3c"
    getattr(shelf, f"set_session_{flag}")("c3b", False)
    assert [shelf.get_session(name)[flag] for name in ("c3", "c3b", "c3c")] == [False] * 3
    # Created again, as a writer does that is not sure, it does not change.
    shelf.create_session("c3c", "cli", parent_session_id="c3b")
    assert shelf.get_session("c3c")[flag] is False


def test_what_is_put_away_or_pinned_is_never_pruned_but_counted(shelf, clock):
    for name in ("c0", "c1", "c2", "c3b"):
        shelf.end_session(name, "user_exit")
    shelf.set_session_archived("c0", True)
    shelf.set_session_pinned("c1", True)
    shelf.set_session_pinned("c3", True)
    clock.now += 100 * DAY
    for dry_run in (True, False):
        report = shelf.prune_report(90, dry_run=dry_run)
        assert report["pruned"] == ["c2"]
        reasons = {each["id"]: each["reason"] for each in report["skipped"]}
        assert reasons == {
            "c0": "archived",
            "c1": "pinned",
            "c3": "pinned",
            "c3b": "pinned",
            **dict.fromkeys(("c4", "c5", "c6", "c7", "c8", "c9"), "still open"),
        }
    assert shelf.prune_sessions(90) == 0
    assert shelf.session_count() == 10
    assert shelf.maybe_auto_prune_and_vacuum()["pruned"] == 0


def test_an_empty_session_that_is_pinned_or_put_away_is_no_ghost(timed, clock):
    for name in ("plain", "away", "pinned"):
        timed.create_session(name, "cli")
    timed.set_session_archived("away", True)
    timed.set_session_pinned("pinned", True)
    clock.now += 2 * DAY
    assert timed.prune_empty_ghost_sessions() == 1
    assert timed.get_session("plain") is None


@pytest.mark.parametrize("order_by_last_active", [False, True])
def test_pinned_conversations_come_first_on_every_page(shelf, clock, order_by_last_active):
    clock.now += 1
    shelf.append_message("c0", "user", "latest word")
    for name in ("c1", "c3", "c7"):
        shelf.set_session_pinned(name, True)
    options = {"pinned_first": True, "order_by_last_active": order_by_last_active}
    plain = ALL if not order_by_last_active else ["c0", *ALL[:-1]]
    whole = [name for name in plain if name in {"c1", "c3b", "c7"}]
    whole += [name for name in plain if name not in whole]
    assert listed(shelf, limit=None, **options) == whole
    for size in (1, 2, 3, 4, 7, 20):
        for offset in range(12):
            page = listed(shelf, limit=size, offset=offset, **options)
            assert page == whole[offset : offset + size], (size, offset)
    assert listed(shelf, order_by_last_active=order_by_last_active) == plain
    assert listed(shelf, pinned=True, **options) == whole[:3]
    assert listed(shelf, pinned=False, **options) == whole[3:]
    shelf.set_session_archived("c7", True)
    assert listed(shelf, **options) == [name for name in whole if name != "c7"]
    assert listed(shelf, user_id="u1", **options) == [
        name for name in whole if int(name[1]) % 2 and name != "c7"
    ]


def test_flags_leave_with_an_export_and_come_back(shelf, tmp_path, empty_file):
    shelf.set_session_archived("c3", True)
    shelf.set_session_pinned("c5", True)
    path = tmp_path / "other.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as other:
        other.import_sessions(shelf.iter_export())
        assert other.export_all() == shelf.export_all()
        assert listed(other, pinned_first=True) == listed(shelf, pinned_first=True)
        assert listed(other, archived=True) == ["c3b"]
