"""Ctrl-C, at any moment of any call, costs that call and nothing else."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from sessionstore import SessionDB, StoreBusyError, StoreSettings
from sessionstore.retry import OtherThreadsError
from sessionstore.turns import Turn

# In a process of its own: where the interrupt strikes while an object is finalized, Python
# can only print it.
STORM = """
import fcntl, gc, os, random, signal, subprocess, sys, time
from pathlib import Path
from sessionstore import SessionDB

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
random.seed(int(sys.argv[2]))
db = SessionDB(sys.argv[1])
db.create_session("s", "cli")
db.append_message("s", "user", "first")
rival = [sys.executable, "-c", sys.argv[4], sys.argv[1]]
rivals = [subprocess.Popen(rival) for _ in range(int(sys.argv[3]))]
before = len(list(Path("/proc/self/fd").iterdir()))
interrupted = 0
ends_at = time.monotonic() + 60
while interrupted < int(sys.argv[5]) and time.monotonic() < ends_at:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 1e-3))
        db.append_message("s", "user", "x")
        db.get_messages("s", limit=3)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
for rival in rivals:
    rival.kill()
    rival.wait()
other = os.open(sys.argv[1] + "-lock", os.O_RDWR)
fcntl.flock(other, fcntl.LOCK_EX)  # waits for ever if anything is held
os.close(other)
began_at = time.monotonic()
db.append_message("s", "user", "next")
assert db.get_session("s")["message_count"] == db.message_count("s")
gc.collect()  # a connection that an interrupt lost is closed by the collector
assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
db.close()
assert time.monotonic() - began_at < 5
print("interrupted" if interrupted > int(sys.argv[5]) / 3 else interrupted)
"""

RIVAL = """
import sys
from sessionstore import SessionDB
with SessionDB(sys.argv[1]) as db:
    while True:
        db.append_message("s", "user", "rival")
"""


@pytest.mark.parametrize(("rivals", "interrupts"), [(0, 1500), (2, 500)])
def test_a_store_outlives_thousands_of_interrupted_calls(path: Path, rivals: int, interrupts: int):
    """Neither a thread nor another process finds anything held by a call that was interrupted."""
    command = [sys.executable, "-c", STORM, str(path), "7", str(rivals), RIVAL, str(interrupts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "interrupted", done.stderr


WAITING = """
import fcntl, os, signal, sys
from sessionstore import SessionDB

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
db = SessionDB(sys.argv[1])
db.create_session("s", "cli")
other = os.open(sys.argv[1] + "-lock", os.O_RDWR)
for number in range(1, 4):
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        db.append_message("s", "user", "x")
        raise SystemExit("it did not wait")
    except KeyboardInterrupt:
        pass
    fcntl.flock(other, fcntl.LOCK_UN)
    # The place in the queue may come to its turn with nobody there, and must not stay: who
    # asks now would wait for ever.
    fcntl.flock(other, fcntl.LOCK_EX)
    fcntl.flock(other, fcntl.LOCK_UN)
    assert db.append_message("s", "user", "x") == number
"""


def test_a_call_that_is_interrupted_while_it_waits_in_line_leaves_it(path: Path):
    command = [sys.executable, "-c", WAITING, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_turn_whose_holder_vanished_is_free_again():
    turn = Turn()
    abandoned = turn.taken(1)
    abandoned.__enter__()
    with pytest.raises(OtherThreadsError), turn.taken(0.1):
        pass
    del abandoned
    with turn.taken(0.1):
        pass


def test_a_lost_connection_is_replaced(path: Path):
    with SessionDB(path) as db:
        pool = db._database.engine.pool
        for _ in range(20):
            lost = weakref.ref(pool._do_get())
            assert lost() is None
            db.session_count()
        db.create_session("s", "cli")


def test_threads_that_queue_are_as_patient_as_the_one_that_asks(path: Path):
    """Another program holds the lock: all threads try as often, and say what is so."""
    settings = StoreSettings(write_patience_s=1.0, write_min_attempts=6, busy_timeout_s=0.1)
    with SessionDB(path, settings=settings) as db:
        db.create_session("s", "cli")
        errors: list[StoreBusyError] = []

        def write() -> None:
            with pytest.raises(StoreBusyError) as caught:
                db.append_message("s", "user", "x")
            errors.append(caught.value)

        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        threads = [threading.Thread(target=write) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        other.close()
    assert len(errors) == 6
    for error in errors:
        assert error.attempts >= 6
        assert error.waited_s >= 1.0
        assert "program that holds the write lock" in str(error)


def test_when_every_connection_is_in_use_the_error_says_so_and_how_long_it_waited(path: Path):
    settings = StoreSettings(
        write_patience_s=0.3, write_min_attempts=3, busy_timeout_s=0.1, connections=2
    )
    db = SessionDB(path, settings=settings)
    held = [db._database.engine.connect() for _ in range(2)]
    with pytest.raises(StoreBusyError, match="had every connection") as caught:
        db.session_count()
    assert caught.value.attempts >= 3
    assert caught.value.waited_s >= 0.3
    assert "nothing was read" in str(caught.value)
    began_at = time.monotonic()
    db.close()
    assert time.monotonic() - began_at < 5
    for connection in held:
        connection.close()
