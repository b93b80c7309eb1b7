"""What the other programs of these tests do, each in a process of its own.

A program tells its test things by `link.send`, and waits with `link.recv` where the test has to
be ready first.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import threading
from multiprocessing.connection import Connection
from typing import Any

from sessionstore import SessionDB, SessionNotFoundError, StoreSettings


def write_sessions(link: Connection, where: str | dict[str, str], number: int) -> None:
    """Append 50 messages to a session of one's own and 25 to a shared one, in turn.

    `where` is a path, or how `SessionDB` wants the store named.
    """
    with SessionDB(**where if isinstance(where, dict) else {"db_path": where}) as db:
        link.send("ready")
        link.recv()
        db.create_session(f"own{number}", "cli")
        db.create_session("shared", "cli")
        for turn in range(50):
            db.append_message(f"own{number}", "user", f"own {number} {turn}")
            if turn % 2:
                db.append_message("shared", "assistant", f"shared {number} {turn}")
    link.send("done")


def open_store(link: Connection, path: str) -> None:
    """Open a store the moment the test says so, and say what is in it."""
    link.send("ready")
    link.recv()
    with SessionDB(path) as db:
        link.send([db.session_count(), db.message_count()])


def open_many(link: Connection, path: str, threads: int) -> None:
    """Open a store in several threads at once."""
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
    link.send("ready")
    link.recv()
    for each in running:
        each.start()
    for each in running:
        each.join()
    link.send(found)


def hold_write_lock(link: Connection, path: str) -> None:
    """Hold the write lock until told to let go."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    link.send("held")
    link.recv()
    connection.execute("COMMIT")
    connection.close()
    link.send("free")


def sit_in_queue(link: Connection, path: str) -> None:
    """Hold the file of the queue, as any program may, until told to let go."""
    descriptor = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    link.send("held")
    link.recv()
    os.close(descriptor)


def stop_in_queue(link: Connection, path: str) -> None:
    """Come first in the queue, and stop there as by Ctrl-Z."""

    def stop() -> None:
        link.send(os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)

    with SessionDB(path) as db:
        db._database.queue.run(stop)
        link.send(db.append_message("s", "user", "awake again"))


def try_write_lock(link: Connection, path: str) -> None:
    """Say, each time one is asked, whether the write lock can be had at once."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    while link.recv() == "go":
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            link.send(error.sqlite_errorname)
        else:
            connection.execute("ROLLBACK")
            link.send("had")


def append_and_report(link: Connection, path: str, session_id: str) -> None:
    """Append for ever; say each id that was returned before the next append."""
    db = SessionDB(path)
    number = 0
    while True:
        number += 1
        calls = [{"id": f"{number}-{each}"} for each in range(number % 3)]
        link.send(db.append_message(session_id, "assistant", f"message {number}", tool_calls=calls))
        if number % 5 == 0:
            for stored in db.append_messages(
                session_id, [{"role": "user", "content": f"batch {number}"}] * 3
            ):
                link.send(stored)


def append_once(link: Connection, path: str, session_id: str) -> None:
    """Keep a store open, and append when told; say the id or the error.

    However long it takes on a busy machine, it stays in the queue until it is its turn.
    """
    db = SessionDB(path, settings=StoreSettings(write_patience_s=240.0))
    db.get_session(session_id)
    link.send("ready")
    link.recv()
    try:
        link.send(db.append_message(session_id, "user", "late"))
    except SessionNotFoundError as error:
        link.send(error.session_id)
    db.close()


def read_then_append(link: Connection, path: str, session_id: str) -> None:
    """Read, wait until somebody else has written, then append."""
    with SessionDB(path) as db:
        before = db.message_count()
        link.send(before)
        link.recv()
        link.send(db.append_message(session_id, "user", "after the other"))


def create_session(link: Connection, path: str, session_id: str) -> None:
    """Create a session the moment the test says so."""
    with SessionDB(path) as db:
        link.send("ready")
        link.recv()
        link.send(db.create_session(session_id, "cli", title="Same"))


def come_and_go(link: Connection, path: str, rounds: int) -> None:
    """Open the store by plain SQL, change every session alike, and close, again and again."""
    link.send("ready")
    for number in range(1, rounds + 1):
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("UPDATE sessions SET input_tokens = ?", (number,))
        connection.close()
    link.send("done")


def come_once(link: Connection, path: str) -> None:
    """Open the store by plain SQL, read, and close; the last one to close cleans up."""
    connection = sqlite3.connect(path, isolation_level=None)
    link.send(connection.execute("SELECT count(*) FROM sessions").fetchone())
    connection.close()
