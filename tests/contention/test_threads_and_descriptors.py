"""Threads that come and go leave nothing open, and a store may close under their hands."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from sessionstore import SessionDB, StoreClosedError


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def megabytes() -> float:
    """What of this process is in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture
def filled(path: Path, empty_file: bytes) -> Path:
    path.write_bytes(empty_file)
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_messages("s", [{"role": "user", "content": f"kiwi {n}"} for n in range(300)])
    return path


def test_five_hundred_short_threads_leave_no_descriptor(filled):
    with SessionDB(filled) as db:
        db.append_message("s", "user", "first")
        before = descriptors()
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                if number % 5 == 0:
                    db.append_message("s", "user", f"from {number}")
                db.get_messages("s", limit=5)
                db.search_messages("kiwi", limit=1)
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        for start in range(0, 500, 10):
            threads = [
                threading.Thread(target=work, args=(start + number,)) for number in range(10)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert failures == []
        assert abs(descriptors() - before) <= 2
        assert db.message_count("s") == 401


@pytest.mark.parametrize("rounds", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_stores_opened_and_closed_again_and_again_leave_nothing(filled, rounds):
    def use() -> None:
        with SessionDB(filled) as db:
            db.set_meta("key", "value")
        with SessionDB(filled, read_only=True) as db:
            db.message_count()

    for _ in range(50):
        use()
    gc.collect()
    before, megabytes_before = descriptors(), megabytes()
    # Other tests of this process may have left stores that end with it.
    threads_before = threading.active_count()
    for _ in range(rounds):
        use()
    gc.collect()
    assert abs(descriptors() - before) <= 2
    assert megabytes() - megabytes_before < 8
    assert threading.active_count() <= threads_before
    assert [each.name for each in filled.parent.iterdir()] == ["state.db"]


def test_stores_that_nobody_closes_leave_no_descriptor(filled):
    before = descriptors()
    for _ in range(20):
        SessionDB(filled).append_message("s", "user", "x")
    gc.collect()
    assert abs(descriptors() - before) <= 2


def test_threads_that_write_all_the_time_keep_none_of_them_waiting(filled):
    count = 6
    stored = Counter({str(number): 0 for number in range(count)})
    with SessionDB(filled) as db:
        for number in range(count):
            db.create_session(str(number), "cli")

        def work(session_id: str) -> None:
            while stored.total() < 100 * count:
                db.append_message(session_id, "user", "on and on")
                stored[session_id] += 1

        working = [threading.Thread(target=work, args=(str(n),)) for n in range(count)]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
        assert {db.message_count(str(n)) for n in range(count)} == set(stored.values())
    # A third of a fair share, as some thread begins late.
    assert min(stored[str(n)] for n in range(count)) > 30


def test_threads_that_read_all_the_time_keep_none_of_them_waiting(filled):
    with SessionDB(filled) as db:
        count = 2 * db.settings.connections
        read = Counter(dict.fromkeys(range(count), 0))

        def work(number: int) -> None:
            while read.total() < 100 * count:
                assert len(db.get_messages("s", limit=5)) == 5
                read[number] += 1

        working = [threading.Thread(target=work, args=(n,)) for n in range(count)]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
    assert min(read.values()) > 30


def test_closing_under_reading_and_writing_threads_ends_them_in_order(filled):
    ends: Counter[str] = Counter()
    before = descriptors()
    for _ in range(15):
        db = SessionDB(filled)
        started = threading.Barrier(7)

        def read(db=db, started=started) -> None:
            started.wait()
            try:
                for _ in range(10_000):
                    assert len(db.get_messages("s", limit=300)) == 300
                    db.search_messages("kiwi", limit=2)
            except StoreClosedError:
                ends["closed"] += 1
            except BaseException as error:  # noqa: BLE001 - shown below
                ends[repr(error)] += 1

        def write(db=db, started=started) -> None:
            started.wait()
            try:
                for _ in range(10_000):
                    db.append_message("s", "user", "x")
            except StoreClosedError:
                ends["closed"] += 1
            except BaseException as error:  # noqa: BLE001 - shown below
                ends[repr(error)] += 1

        threads = [threading.Thread(target=task) for task in (read, read, read, read, write, write)]
        for thread in threads:
            thread.start()
        started.wait()
        db.close()
        for thread in threads:
            thread.join()
    assert ends == {"closed": 15 * 6}
    gc.collect()
    assert abs(descriptors() - before) <= 2
    with SessionDB(filled) as db:
        assert db.get_session("s")["message_count"] == db.message_count("s")
    assert [each.name for each in filled.parent.iterdir()] == ["state.db"]


def test_a_thread_that_is_inside_a_stream_when_the_store_closes_is_told(filled):
    db = SessionDB(filled)
    db.create_session("t", "cli")
    stream = db.iter_export()
    next(stream)
    db.close()
    with pytest.raises(StoreClosedError):
        next(stream)
