"""Writers of all processes queue, which is never what makes a write fail."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from sessionstore import SessionDB, StoreBusyError, StoreSettings, queueing

# Queues for a quarter of it.
QUICK = StoreSettings(
    write_patience_s=0.8, write_min_attempts=3, busy_timeout_s=0.05, retry_pause_s=(0.01, 0.02)
)


@pytest.fixture
def made(path: Path, empty_file: bytes) -> Path:
    """A store with a session, that nobody has open."""
    path.write_bytes(empty_file)
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    return path


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def queued(path: Path) -> int:
    """How many processes wait for the file of the queue."""
    inode = Path(f"{path}-lock").stat().st_ino
    waiting = re.compile(rf"-> FLOCK .*:{inode} ")
    return len(waiting.findall(Path("/proc/locks").read_text()))


def test_those_who_queue_all_write(made, start):
    """In the order in which they came as a rule; on a busy machine one may overtake another."""
    sitter = start("sit_in_queue", made)
    sitter.hear()
    writers = [start("append_once", made, "s") for _ in range(6)]
    for number, writer in enumerate(writers, 1):
        writer.hear()
        writer.tell()
        ends_at = time.monotonic() + 60
        while queued(made) < number and time.monotonic() < ends_at:
            time.sleep(0.005)
        assert queued(made) == number
    sitter.tell()
    assert sorted(writer.rest() for writer in writers) == [[number] for number in range(1, 7)]


def test_a_program_that_sits_in_line_is_stepped_past(made, start):
    sitter = start("sit_in_queue", made)
    sitter.hear()
    with SessionDB(made, settings=QUICK) as db:
        for number in range(1, 4):
            assert db.append_message("s", "user", "x") == number
        sitter.tell()
        sitter.rest()
        assert db.append_message("s", "user", "x") == 4
    assert names(made) == ["state.db"]


def test_a_program_that_was_stopped_in_line_is_stepped_past(made, start):
    stopped = start("stop_in_queue", made)
    process = stopped.hear()
    with SessionDB(made, settings=QUICK) as db:
        assert db.append_message("s", "user", "x") == 1
        os.kill(process, signal.SIGCONT)
        assert stopped.rest() == [2]
        assert db.append_message("s", "user", "x") == 3


def test_both_locks_held_for_too_long_are_reported_and_nothing_is_written(made, start):
    """The wait in the queue counts as waiting."""
    sitter, holder = start("sit_in_queue", made), start("hold_write_lock", made)
    assert (sitter.hear(), holder.hear()) == ("held", "held")
    with SessionDB(made, settings=QUICK) as db:
        with pytest.raises(StoreBusyError, match="nothing was written") as caught:
            db.append_message("s", "user", "x")
        assert caught.value.attempts >= 3
        assert caught.value.waited_s >= 0.8
        for each in (sitter, holder):
            each.tell()
            each.rest()
        assert db.append_message("s", "user", "x") == 1


def test_whatever_changes_the_file_does_so_in_its_turn(made):
    """What SQLite's WAL-reset fault needs is a checkpoint beside another's commit."""
    seen: dict[str, bool] = {}
    settings = StoreSettings(checkpoint_every_writes=1)
    with SessionDB(made, settings=settings) as db:
        db.append_message("s", "user", "x")
        other = os.open(f"{made}-lock", os.O_RDWR)

        def look(statement: str) -> None:
            if statement.startswith(("BEGIN IMMEDIATE", "PRAGMA wal_checkpoint", "VACUUM")):
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    seen.setdefault(statement, True)
                else:
                    seen[statement] = False
                    fcntl.flock(other, fcntl.LOCK_UN)

        pooled = [db._database.engine.connect() for _ in range(4)]
        for each in pooled:
            each.connection.driver_connection.set_trace_callback(look)
            each.close()
        db.append_message("s", "user", "x")
        db.vacuum()
        db.purge_deleted()
    os.close(other)
    assert seen == {
        "BEGIN IMMEDIATE": True,
        "PRAGMA wal_checkpoint(PASSIVE)": True,
        "PRAGMA wal_checkpoint(TRUNCATE)": True,
        "VACUUM": True,
    }


def test_who_only_reads_makes_no_file_and_waits_for_nobody(made, start):
    with SessionDB(made) as db:
        assert db.message_count("s") == 0
        assert f"{made.name}-lock" not in names(made)
    sitter = start("sit_in_queue", made)
    sitter.hear()
    for read_only in (False, True):
        with SessionDB(made, read_only=read_only) as db:
            assert [each["id"] for each in db.list_sessions_rich()] == ["s"]


def test_the_last_to_close_removes_the_file_and_nobody_before(made):
    with SessionDB(made) as last:
        last.append_message("s", "user", "x")
        with SessionDB(made) as first:
            first.append_message("s", "user", "x")
        assert f"{made.name}-lock" in names(made)
    assert names(made) == ["state.db"]


def test_a_file_that_a_killed_program_left_is_used_and_removed(made, start):
    writer = start("append_and_report", made, "s")
    writer.hear()
    writer.kill()
    assert f"{made.name}-lock" in names(made)
    SessionDB(made).close()
    assert names(made) == ["state.db"]


def test_the_last_of_two_that_close_at_once_removes_the_file(made):
    """The other looked whether it is the last before this one had left, and has the lock yet."""
    db = SessionDB(made)
    other = os.open(f"{made}-lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(other, fcntl.LOCK_EX)
    threading.Timer(0.02, os.close, (other,)).start()
    db.close()
    assert names(made) == ["state.db"]


def test_a_file_that_somebody_removes_under_open_stores_costs_no_message(made, start):
    programs = [start("write_sessions", made, number) for number in range(3)]
    for program in programs:
        program.hear()
    for program in programs:
        program.tell()
    while any(program.process.is_alive() for program in programs):
        Path(f"{made}-lock").unlink(missing_ok=True)
        time.sleep(0.02)
    assert [program.rest() for program in programs] == [["done"]] * 3
    with SessionDB(made) as db:
        assert db.message_count() == 3 * 75
        assert db.get_session("shared")["message_count"] == 75


def folder(place: Path) -> None:
    place.mkdir()


def link_elsewhere(place: Path) -> None:
    place.symlink_to(place.with_name("elsewhere"))


def somebodys_file(place: Path) -> None:
    place.write_text("mine")


@pytest.mark.parametrize("hindrance", [folder, link_elsewhere, somebodys_file])
def test_what_stands_in_the_place_of_the_file_stays_and_hinders_nobody(made, hindrance):
    hindrance(Path(f"{made}-lock"))
    with SessionDB(made) as db:
        assert db.append_message("s", "user", "x") == 1
    assert names(made) == ["state.db", "state.db-lock"]
    assert hindrance is not somebodys_file or Path(f"{made}-lock").read_text() == "mine"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_such_locks_hinders_nobody(made, monkeypatch, code):
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(queueing, "flock", refuse)
    with SessionDB(made) as db:
        assert db.append_message("s", "user", "x") == 1
        db.vacuum()


def test_on_a_network_file_system_no_file_is_made(made, monkeypatch):
    monkeypatch.setattr(queueing, "_is_remote", lambda _: True)
    with SessionDB(made) as db:
        assert db.append_message("s", "user", "x") == 1
        assert f"{made.name}-lock" not in names(made)
