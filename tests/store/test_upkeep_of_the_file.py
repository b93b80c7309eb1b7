"""Upkeep: once per interval, and no byte left of what was purged."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from sessionstore import SessionDB, StoreBusyError, StoreSettings

DAY = 86400.0


def in_files(path: Path, text: str) -> list[str]:
    """Name the files of the store that hold a text; both encodings of it."""
    needles = [text.encode(), text.lower().encode()]
    return [
        each.name
        for each in sorted(path.parent.glob(f"{path.name}*"))
        if any(needle in each.read_bytes() for needle in needles)
    ]


@pytest.fixture
def old(timed, clock) -> SessionDB:
    """A store with one session that ended a hundred days ago."""
    timed.create_session("old", "cli")
    timed.append_message("old", "user", "x" * 10_000)
    timed.end_session("old", "user_exit")
    clock.now += 100 * DAY
    return timed


def test_upkeep_runs_once_per_interval(old, clock):
    assert old.maybe_auto_prune_and_vacuum() == {"skipped": False, "pruned": 1, "vacuumed": True}
    assert float(old.get_meta("last_auto_prune")) == clock.now
    skipped = {"skipped": True, "pruned": 0, "vacuumed": False}
    assert old.maybe_auto_prune_and_vacuum() == skipped
    clock.now += DAY - 1
    assert old.maybe_auto_prune_and_vacuum() == skipped
    clock.now += 1
    assert old.maybe_auto_prune_and_vacuum() == {**skipped, "skipped": False}


def test_upkeep_vacuums_only_when_told_to(old):
    report = old.maybe_auto_prune_and_vacuum(vacuum=False)
    assert report == {"skipped": False, "pruned": 1, "vacuumed": False}


@pytest.mark.parametrize("marker", ["yesterday", "", "nan", "9e99", "-1"])
def test_a_marker_that_makes_no_sense_does_not_stop_upkeep_for_ever(old, marker):
    old.set_meta("last_auto_prune", marker)
    assert old.maybe_auto_prune_and_vacuum()["skipped"] is False
    assert old.maybe_auto_prune_and_vacuum()["skipped"] is True


def test_of_two_programs_that_come_at_once_one_does_the_upkeep(old, path, clock):
    together = threading.Barrier(2)
    reports = []

    def upkeep(db: SessionDB) -> None:
        together.wait()
        reports.append(db.maybe_auto_prune_and_vacuum(vacuum=False))

    with SessionDB(path, settings=StoreSettings(clock=clock)) as other:
        threads = [threading.Thread(target=upkeep, args=(db,)) for db in (old, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(report["skipped"] for report in reports) == [False, True]
    assert sum(report["pruned"] for report in reports) == 1


def test_vacuum_gives_the_space_back(store, path):
    store.create_session("s", "cli")
    store.append_messages("s", [{"role": "user", "content": "word " * 20_000}] * 5)
    store.vacuum()
    full = path.stat().st_size
    store.clear_messages("s")
    store.vacuum()
    assert path.stat().st_size < full / 2
    assert store.get_session("s")["message_count"] == 0


def test_optimize_changes_nothing_that_is_found(store, sql):
    store.create_session("s", "cli")
    for number in range(50):
        store.append_message("s", "user", f"kiwi number {number}")
    store.optimize()
    assert len(store.search_messages("kiwi", limit=100)) == 50
    assert sql("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("careless", [False, True])
def test_deleted_text_is_in_no_file_after_a_purge(store, path, careless):
    store.create_session("keep", "cli")
    store.create_session("gone", "cli", system_prompt="canaryPROMPT", title="canaryTITLE")
    for number in range(30):
        store.append_message("keep", "user", f"stays {number}")
        store.append_message("gone", "assistant", f"canaryTEXT {number}", reasoning="canaryWHY")
        store.append_message("gone", "tool", [{"text": "canaryPART"}], tool_name="canaryTOOL")
    words = ["canaryPROMPT", "canaryTITLE", "canaryTEXT", "canaryWHY", "canaryPART", "canaryTOOL"]
    assert all(in_files(path, word) for word in words)
    if careless:
        # Many builds of SQLite leave deleted text in the file, unless told otherwise.
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute("PRAGMA secure_delete = OFF")
        raw.execute("DELETE FROM messages WHERE session_id = 'gone'")
        raw.execute("DELETE FROM sessions WHERE id = 'gone'")
        raw.close()
    else:
        store.delete_session("gone")
    store.purge_deleted()
    assert [in_files(path, word) for word in words] == [[]] * len(words)
    # A part of the text, as the index of three characters in a row holds it, is gone as well.
    assert in_files(path, "naryTE") == []
    assert len(store.search_messages("stays", limit=100)) == 30
    store.append_message("keep", "user", "on we go")


def test_a_purge_that_a_reader_kept_from_its_work_says_so(path, empty_file):
    path.write_bytes(empty_file)
    quick = StoreSettings(busy_timeout_s=0.05, write_patience_s=0.2, write_min_attempts=2)
    with SessionDB(path, settings=quick) as db:
        db.create_session("gone", "cli")
        db.append_message("gone", "user", "canaryTEXT")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM messages").fetchall()
        db.delete_session("gone")
        with pytest.raises(StoreBusyError):
            db.purge_deleted()
        reader.execute("COMMIT")
        reader.close()
        db.purge_deleted()
        assert in_files(path, "canaryTEXT") == []


def test_the_log_is_cut_by_the_first_write_after_a_long_reader(path, empty_file):
    path.write_bytes(empty_file)
    with SessionDB(path, settings=StoreSettings(journal_size_limit_bytes=1_000_000)) as db:
        db.create_session("s", "cli")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchall()
        for _ in range(20):
            db.append_message("s", "tool", None, reasoning="x" * 1_000_000)
        log = Path(f"{path}-wal")
        assert log.stat().st_size > 20_000_000
        reader.execute("COMMIT")
        reader.close()
        db.append_message("s", "user", "one more")
        assert log.stat().st_size <= 1_000_000


def test_named_values_are_kept(store, path):
    assert store.get_meta("key") is None
    store.set_meta("key", "one")
    store.set_meta("key", "Größe\n")
    store.set_meta("other", None)
    with SessionDB(path) as again:
        assert again.get_meta("key") == "Größe\n"
        assert again.get_meta("other") is None
    for key, value in (("", "x"), ("k", 5), ("k", "nul \0")):
        with pytest.raises((ValueError, TypeError)):
            store.set_meta(key, value)
