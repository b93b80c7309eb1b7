"""A store that is only read: nothing is made, nothing locked, and what it says is true."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from sessionstore import SessionDB, StoreUnavailableError


@pytest.fixture
def filled(path: Path) -> Path:
    with SessionDB(path) as db:
        db.create_session("s", "cli", title="Kiwi")
        db.append_message("s", "user", "a kiwi")
    return path


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_reading_makes_no_file_and_changes_none(filled):
    before = (filled.read_bytes(), filled.stat().st_mtime_ns)
    with SessionDB(filled, read_only=True) as db:
        assert db.get_session_by_title("Kiwi")["id"] == "s"
        assert [each["content"] for each in db.get_messages("s")] == ["a kiwi"]
        assert [each["id"] for each in db.list_sessions_rich()] == ["s"]
        assert [each["session_id"] for each in db.search_messages("kiwi")] == ["s"]
        assert db.export_session("s")["messages"][0]["content"] == "a kiwi"
        assert names(filled.parent) == ["state.db"]
    assert (filled.read_bytes(), filled.stat().st_mtime_ns) == before
    assert names(filled.parent) == ["state.db"]


def test_a_store_that_is_not_there_is_not_made(path):
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        SessionDB(path, read_only=True)
    assert names(path.parent) == []


def test_every_writing_call_is_refused(filled):
    with SessionDB(filled, read_only=True) as db:
        for call in (
            lambda: db.create_session("t", "cli"),
            lambda: db.append_message("s", "user", "x"),
            lambda: db.delete_session("s"),
            lambda: db.set_meta("key", "value"),
            lambda: db.prune_sessions(0),
            lambda: db.prune_report(0, dry_run=False),
            db.vacuum,
            db.purge_deleted,
            db.optimize,
        ):
            with pytest.raises(StoreUnavailableError, match="read-only"):
                call()
        assert db.session_count() == 1
        assert db.message_count() == 1
        assert db.prune_report(0)["pruned"] == []


def test_a_folder_that_may_not_be_written_is_enough(filled):
    folder = filled.parent
    filled.chmod(0o400)
    folder.chmod(0o500)
    try:
        with SessionDB(filled, read_only=True) as db:
            assert db.message_count() == 1
        assert names(folder) == ["state.db"]
    finally:
        folder.chmod(0o700)


def test_it_sees_what_a_living_writer_has_written(filled):
    with SessionDB(filled) as writer, SessionDB(filled, read_only=True) as reader:
        for count in range(2, 12):
            writer.append_message("s", "user", f"message {count}")
            assert reader.message_count("s") == count
    with SessionDB(filled, read_only=True) as reader:
        assert reader.message_count("s") == 11


def test_it_sees_what_a_killed_writer_left_in_the_log(filled, tmp_path):
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    with SessionDB(filled) as writer:
        writer.append_message("s", "user", "only in the log so far")
        for each in filled.parent.glob("state.db*"):
            shutil.copy(each, crashed / each.name)
    with SessionDB(crashed / "state.db", read_only=True) as reader:
        assert reader.message_count("s") == 2


def test_it_does_not_keep_a_writer_from_anything(filled):
    with SessionDB(filled, read_only=True) as reader:
        assert reader.message_count() == 1
        raw = sqlite3.connect(filled, timeout=0, isolation_level=None)
        raw.execute("BEGIN EXCLUSIVE")
        raw.execute("UPDATE sessions SET title = 'Plum'")
        raw.execute("COMMIT")
        raw.close()
        assert reader.get_session_title("s") == "Plum"


def test_a_store_opened_read_only_and_then_deleted_is_reported_as_such(filled):
    with SessionDB(filled, read_only=True) as reader:
        os.unlink(filled)  # noqa: PTH108 - as any other program would
        with pytest.raises(StoreUnavailableError):
            reader.session_count()
