"""A whole store moves to another back end: nothing is lost, renumbered or left half done."""

from __future__ import annotations

import sqlite3
import tracemalloc
from typing import Any

import pytest

from sessionstore import ConflictError, SessionDB, StoreSettings
from sessionstore.upkeep import copying

pytestmark = pytest.mark.postgres


@pytest.fixture
def file(path, empty_file) -> dict[str, Any]:
    path.write_bytes(empty_file)
    return {"db_path": path}


@pytest.fixture
def server(server_store_url) -> dict[str, Any]:
    return {"url": server_store_url}


def fill(db: SessionDB, clock) -> None:
    """Make one of everything; the child of a chain comes before its parent in the order of ids."""
    db.create_session(
        "z root", "cli", title="Trip", system_prompt="Be brief.", model="m", user_id="u"
    )
    db.append_messages(
        "z root",
        [
            {"role": "user", "content": "nul \0 and half \ud83d", "timestamp": 1781773226.453548},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "ключ": 1}]},
            {"role": "tool", "content": [{"type": "text", "text": "part"}], "tool_call_id": "c"},
            {"role": "user", "content": "", "reasoning": "why\0", "timestamp": 2.0},
        ],
    )
    db.update_token_counts("z root", input_tokens=3_000_000_000, actual_cost_usd=0.25, model="m")
    db.archive_and_compact("z root", [{"role": "user", "content": "summary"}])
    last = db.append_message("z root", "user", "undone")
    db.rewind_to_message("z root", last)
    clock.now += 1
    db.continue_session("z root", "a child")
    db.append_message("a child", "user", "on we go")
    db.set_session_pinned("a child", True)
    db.create_session("away", "telegram")
    db.set_session_archived("away", True)
    # The highest id is given and gone: no other message may have it.
    db.append_message("away", "user", "gone")
    db.clear_messages("away")
    db.set_meta("last_word", "ok")
    db.try_acquire_compression_lock("away", "holder")
    db.save_gateway_route("scope", "key", {"to": ["x"]})
    db.add_delivery("away", "chat", {"text": "owed"}, delivery_id="d")
    db.request_handoff("away", "telegram")


def told(db: SessionDB) -> list[object]:
    return [
        db.export_all(),
        db.list_sessions_rich(include_archived=True, limit=None),
        db.usage_by_model(),
        db.get_meta("last_word"),
        db.get_compression_lock_holder("away"),
        db.load_gateway_routes("scope"),
        db.list_deliveries(),
        db.get_handoff_state("away"),
    ]


def settings(clock) -> StoreSettings:
    return StoreSettings(clock=clock)


@pytest.mark.parametrize("to", ["server", "file"])
def test_everything_arrives_as_it_was_and_new_ids_come_after(to, file, server, clock):
    here, there = (file, server) if to == "server" else (server, file)
    with SessionDB(**here, settings=settings(clock)) as source:
        fill(source, clock)
        given = source.append_message("away", "user", "gone too")
        source.clear_messages("away")
        expected = told(source)
    seen: list[tuple[int, int]] = []
    with (
        SessionDB(**here, read_only=True) as source,
        SessionDB(**there, settings=settings(clock)) as target,
    ):
        report = target.copy_from(source, progress=lambda *at: seen.append(at))
        assert told(target) == expected
        assert (report["sessions"], report["messages"]) == (3, 7)
        assert (report["left_out"], report["mended"], report["resumed"]) == ({}, 0, False)
        assert seen[-1][0] == seen[-1][1]
        assert target.append_message("away", "user", "next") == given + 1
        assert target.search_messages("summary")
        with pytest.raises(ConflictError, match="data of its own"):
            target.copy_from(source)


class BrokenError(Exception):
    """Stands for a kill: nothing after it is done."""


def break_off(done: int, total: int) -> None:
    if done > total / 2:
        raise BrokenError


def test_a_copy_that_was_broken_off_goes_on_and_follows_what_changed_since(file, server, clock):
    with SessionDB(**file, settings=settings(clock)) as source:
        for number in range(4):
            source.create_session(f"s{number}", "cli", title=f"Title {number}")
            for _ in range(3):
                source.append_messages("s0", [{"role": "user", "content": "x" * 900_000}] * 2)
        with SessionDB(**server, settings=settings(clock)) as target:
            with pytest.raises(BrokenError):
                target.copy_from(source, progress=break_off)
            there = target.message_count()
            assert 0 < there < 24
        # What went over already is deleted, renamed, and swaps its title.
        source.delete_session("s3")
        first = source.get_messages("s0")[0]["id"]
        source.rewind_to_message("s0", source.get_messages("s0")[2]["id"])
        source.set_session_title("s1", None)
        source.set_session_title("s2", "Title 1")
        source.set_session_title("s1", "Title 2")
        with SessionDB(**server, settings=settings(clock)) as target:
            report = target.copy_from(source)
            assert report["resumed"]
            assert target.export_all() == source.export_all()
            assert target.get_messages("s0")[0]["id"] == first


def test_a_copy_that_was_killed_while_it_filled_the_index_goes_on(file, server, monkeypatch):
    def killed(*_: Any, **__: Any) -> int:
        raise BrokenError

    with SessionDB(**file) as source, SessionDB(**server) as target:
        source.create_session("s", "cli")
        source.append_messages("s", [{"role": "user", "content": "kiwi"}] * 3)
        with monkeypatch.context() as patched:
            patched.setattr(copying.index, "step", killed)
            with pytest.raises(BrokenError):
                target.copy_from(source)
        assert target.copy_from(source)["resumed"]
        assert target.export_all() == source.export_all()
        assert target.search_index_left() == 0


def test_an_unfinished_copy_is_continued_from_its_own_source_only(file, server, clock, tmp_path):
    with SessionDB(**file) as source, SessionDB(**server) as target:
        source.create_session("s", "cli")
        with pytest.raises(BrokenError):
            target.copy_from(source, progress=break_off)
        with SessionDB(tmp_path / "other.db") as other:
            other.create_session("o", "cli")
            with pytest.raises(ConflictError, match=r"unfinished copy of .*state\.db"):
                target.copy_from(other)
        assert [each["id"] for each in target.search_sessions()] == ["s"]
        with pytest.raises(ValueError, match="into itself"):
            target.copy_from(target)


def test_what_others_write_into_the_copy_meanwhile_is_found_out_and_set_right(file, server):
    with SessionDB(**file) as source, SessionDB(**server) as target:
        source.create_session("s", "cli")
        source.append_message("s", "user", "said")

        def meddle(done: int, total: int) -> None:
            if done == total:
                target.append_message("s", "user", "not of the source")

        with pytest.raises(ConflictError, match="somebody else wrote"):
            target.copy_from(source, progress=meddle)
        target.copy_from(source)
        assert target.export_all() == source.export_all()


def test_what_other_programs_left_in_a_file_is_mended_or_left_out_and_counted(file, server, clock):
    with SessionDB(**file, settings=settings(clock)) as source:
        source.create_session("s", "cli", title="Kept")
        ids = [source.append_message("s", "user", "fine") for _ in range(4)]
    raw = sqlite3.connect(file["db_path"])
    for statement in (
        f"UPDATE messages SET content = char(0) || 'kiwi' WHERE id = {ids[0]}",
        f"UPDATE messages SET tool_name = 'a' || char(0) WHERE id = {ids[0]}",
        f"UPDATE messages SET content = x'61ff62', token_count = 'many' WHERE id = {ids[1]}",
        "UPDATE sessions SET message_count = 'four', parent_session_id = 'nowhere', user_id = 7",
        "INSERT INTO messages(session_id, role, timestamp) VALUES ('nobody', 'user', 1)",
    ):
        raw.execute(statement)
    raw.commit()
    raw.close()
    with SessionDB(**file, read_only=True) as source, SessionDB(**server) as target:
        report = target.copy_from(source)
        assert report["left_out"] == {"messages": 1}
        assert report["mended"] == 3
        assert [each["content"] for each in target.get_messages("s")] == [
            "\0kiwi",
            "a\ufffdb",
            "fine",
            "fine",
        ]
        assert target.get_messages("s")[0]["tool_name"] == "a\0"
        session = target.get_session("s")
        assert (session["user_id"], session["parent_session_id"]) == ("7", None)
        assert [hit["session_id"] for hit in target.search_messages("kiwi")] == ["s"]


def test_memory_does_not_grow_with_the_store(file, server):
    with SessionDB(**file) as source, SessionDB(**server) as target:
        source.create_session("s", "cli")
        # What is reasoned is no part of the index, which would take its time.
        thought = {"role": "assistant", "content": "x", "reasoning": "y" * 500_000}
        for _ in range(30):
            source.append_messages("s", [thought] * 4)
        tracemalloc.start()
        target.copy_from(source)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert target.message_count() == 120
        assert highest < 45_000_000
