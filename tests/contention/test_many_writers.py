"""Several programs write at once: all succeed, and every count is exact."""

from __future__ import annotations

import sqlite3
import threading
import time

import pytest

from sessionstore import SessionDB, StoreBusyError, StoreSettings


def check(path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    for index in ("messages_fts", "messages_fts_trigram"):
        connection.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")
        assert (
            connection.execute(f"SELECT count(*) FROM {index}").fetchone()
            == connection.execute("SELECT count(*) FROM messages").fetchone()
        )
    connection.close()


def test_eight_programs_write_at_once_and_nothing_is_lost_or_counted_twice(path, start):
    SessionDB(path).close()
    programs = [start("write_sessions", path, number) for number in range(8)]
    assert [program.hear() for program in programs] == ["ready"] * 8
    for program in programs:
        program.tell()
    assert [program.rest() for program in programs] == [["done"]] * 8
    with SessionDB(path) as db:
        assert db.session_count() == 9
        assert db.message_count() == 600
        for number in range(8):
            own = [message["content"] for message in db.get_messages(f"own{number}")]
            assert own == [f"own {number} {turn}" for turn in range(50)]
        shared = db.get_messages("shared")
        assert db.get_session("shared")["message_count"] == len(shared) == 200
        ids = [message["id"] for message in shared]
        assert ids == sorted(set(ids))
        for number in range(8):
            of_one = [m["content"] for m in shared if m["content"].startswith(f"shared {number} ")]
            assert of_one == [f"shared {number} {turn}" for turn in range(1, 50, 2)]
        assert len(db.search_messages("shared", limit=1000)) == 200
    check(path)


def test_four_threads_share_one_store(path):
    failures: list[BaseException] = []
    with SessionDB(path) as db:
        db.create_session("shared", "cli")

        def work(number: int) -> None:
            try:
                db.create_session(f"own{number}", "cli")
                for turn in range(50):
                    db.append_message("shared", "user", f"{number} {turn}")
                    db.append_message(f"own{number}", "user", f"{number} {turn}")
                    assert len(db.get_messages(f"own{number}")) == turn + 1
                    db.list_sessions_rich()
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert db.message_count() == 400
        assert db.get_session("shared")["message_count"] == 200
    check(path)


def test_whoever_read_before_another_wrote_can_still_write(path, start):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        program = start("read_then_append", path, "s")
        assert program.hear() == 0
        db.append_message("s", "user", "the other")
        program.tell()
        assert program.rest() == [2]
        assert db.message_count("s") == 2


def test_a_write_waits_for_a_lock_that_is_held_for_two_seconds(path, start):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        holder = start("hold_write_lock", path)
        assert holder.hear() == "held"
        letting_go = threading.Timer(2.0, holder.tell)
        began = time.monotonic()
        letting_go.start()
        assert db.append_message("s", "user", "x") == 1
        assert 1.9 < time.monotonic() - began < 4.5
        assert db.message_count("s") == 1


def test_reading_does_not_wait_for_a_writer(path, start):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        holder = start("hold_write_lock", path)
        holder.hear()
        # It holds the lock until it is told, so that who waited for it would never come back.
        assert db.session_count() == 1
        assert [each["id"] for each in db.list_sessions_rich()] == ["s"]
        holder.tell()


QUICK = StoreSettings(
    write_patience_s=0.4, write_min_attempts=3, busy_timeout_s=0.05, retry_pause_s=(0.01, 0.02)
)


def test_a_lock_held_too_long_is_reported_and_nothing_written(path, start):
    SessionDB(path).close()
    with SessionDB(path, settings=QUICK) as db:
        db.create_session("s", "cli")
        holder = start("hold_write_lock", path)
        holder.hear()
        for call in (
            lambda: db.append_message("s", "user", "x"),
            lambda: db.create_session("t", "cli"),
            lambda: db.delete_session("s"),
            db.vacuum,
        ):
            with pytest.raises(StoreBusyError, match="nothing was written") as caught:
                call()
            assert caught.value.attempts >= 3
            assert caught.value.waited_s >= 0.4
        holder.tell()
        assert holder.rest() == ["free"]
        # A caller that tries again gets exactly one row.
        assert db.append_message("s", "user", "x") == 1
        assert (db.session_count(), db.message_count()) == (1, 1)


def test_other_threads_write_while_one_waits_for_its_next_attempt(path, start):
    """The lock of the process is free during the pause between two attempts."""
    SessionDB(path).close()
    slow = StoreSettings(
        write_patience_s=5, write_min_attempts=3, busy_timeout_s=0.05, retry_pause_s=(0.5, 0.5)
    )
    with SessionDB(path, settings=slow) as db:
        db.create_session("s", "cli")
        holder = start("hold_write_lock", path)
        holder.hear()
        waiting = threading.Thread(target=db.append_message, args=("s", "user", "waits"))
        waiting.start()
        time.sleep(0.2)
        assert waiting.is_alive()
        with db._writer.taken(2):
            pass
        holder.tell()
        waiting.join()
        assert db.message_count("s") == 1


def test_two_programs_create_the_same_session_at_once(path, start):
    SessionDB(path).close()
    programs = [start("create_session", path, "same") for _ in range(2)]
    for program in programs:
        program.hear()
    for program in programs:
        program.tell()
    assert [program.rest() for program in programs] == [["same"], ["same"]]
    with SessionDB(path) as db:
        assert db.session_count() == 1
        assert db.get_session_title("same") == "Same"


def test_a_session_deleted_here_is_not_appended_to_there(path, start):
    with SessionDB(path) as db:
        db.create_session("X", "cli")
        other = start("append_once", path, "X")
        assert other.hear() == "ready"
        db.delete_session("X")
        other.tell()
        assert other.rest() == ["X"]
        assert (db.session_count(), db.message_count()) == (0, 0)
    with SessionDB(path) as again:
        assert again.list_sessions_rich() == []
