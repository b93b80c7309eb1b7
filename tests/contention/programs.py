"""What the other programs of these tests do; run as `programs.py NAME ARGUMENTS-AS-JSON`.

Each says lines of JSON and waits for a line where its test has to be ready first.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

from sessionstore import SessionDB, SessionNotFoundError


def say(value: Any) -> None:
    print(json.dumps(value), flush=True)


def wait() -> str:
    return sys.stdin.readline().strip()


def write_sessions(path: str, number: int) -> None:
    """Append 50 messages to a session of one's own and 25 to a shared one, in turn."""
    with SessionDB(path) as db:
        say("ready")
        wait()
        db.create_session(f"own{number}", "cli")
        db.create_session("shared", "cli")
        for turn in range(50):
            db.append_message(f"own{number}", "user", f"own {number} {turn}")
            if turn % 2:
                db.append_message("shared", "assistant", f"shared {number} {turn}")
    say("done")


def open_store(path: str) -> None:
    """Open a store the moment the test says so, and say what is in it."""
    say("ready")
    wait()
    with SessionDB(path) as db:
        say([db.session_count(), db.message_count()])


def open_many(path: str, threads: int) -> None:
    """Open a store in several threads at once."""
    import threading

    together = threading.Barrier(threads)
    found: list[Any] = []

    def open_one() -> None:
        together.wait()
        try:
            with SessionDB(path) as db:
                found.append([db.session_count(), db.message_count()])
        except Exception as error:  # noqa: BLE001 - said to the test
            found.append(repr(error))

    running = [threading.Thread(target=open_one) for _ in range(threads)]
    say("ready")
    wait()
    for each in running:
        each.start()
    for each in running:
        each.join()
    say(found)


def hold_write_lock(path: str) -> None:
    """Hold the write lock until told to let go."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say("held")
    wait()
    connection.execute("COMMIT")
    connection.close()
    say("free")


def try_write_lock(path: str) -> None:
    """Say, each time one is asked, whether the write lock can be had at once."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    while wait():
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            say(error.sqlite_errorname)
        else:
            connection.execute("ROLLBACK")
            say("had")


def append_and_report(path: str, session_id: str) -> None:
    """Append for ever; say each id that was returned before the next append."""
    db = SessionDB(path)
    number = 0
    while True:
        number += 1
        calls = [{"id": f"{number}-{each}"} for each in range(number % 3)]
        say(db.append_message(session_id, "assistant", f"message {number}", tool_calls=calls))
        if number % 5 == 0:
            for stored in db.append_messages(
                session_id, [{"role": "user", "content": f"batch {number}"}] * 3
            ):
                say(stored)


def append_once(path: str, session_id: str) -> None:
    """Keep a store open, and append when told; say the id or the error."""
    db = SessionDB(path)
    db.get_session(session_id)
    say("ready")
    wait()
    try:
        say(db.append_message(session_id, "user", "late"))
    except SessionNotFoundError as error:
        say(error.session_id)
    db.close()


def read_then_append(path: str, session_id: str) -> None:
    """Read, wait until somebody else has written, then append."""
    with SessionDB(path) as db:
        before = db.message_count()
        say(before)
        wait()
        say(db.append_message(session_id, "user", "after the other"))


def create_session(path: str, session_id: str) -> None:
    """Create a session the moment the test says so."""
    with SessionDB(path) as db:
        say("ready")
        wait()
        say(db.create_session(session_id, "cli", title="Same"))


def come_and_go(path: str, rounds: int) -> None:
    """Open the store by plain SQL, move a unit between two rows, and close, again and again."""
    say("ready")
    for number in range(rounds):
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        for _ in range(number % 3 + 1):
            connection.execute("BEGIN IMMEDIATE")
            # Both or neither: whoever sees them differ saw a state that never was.
            for session_id in ("left", "right"):
                connection.execute(
                    "UPDATE sessions SET input_tokens = input_tokens + 1, model = ? WHERE id = ?",
                    (str(number) * 2000, session_id),
                )
            connection.execute("COMMIT")
        connection.close()
    say("done")


if __name__ == "__main__":
    globals()[sys.argv[1]](*json.loads(sys.argv[2]))
