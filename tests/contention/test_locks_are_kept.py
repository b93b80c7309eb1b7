"""Nothing a program does beside a transaction takes its locks away.

POSIX locks belong to the process: whoever opens and closes the database file, even only to
read it, drops them all (https://www.sqlite.org/howtocorrupt.html, 2.2).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sessionstore import SessionDB


def read_only(path: Path) -> None:
    with SessionDB(path, read_only=True) as db:
        db.list_sessions_rich()
        db.search_messages("kiwi")


def open_and_close(path: Path) -> None:
    SessionDB(path, migrate=False).close()


def export(path: Path) -> None:
    with SessionDB(path, read_only=True) as db:
        assert len(db.export_all()) == 1


def count(path: Path) -> None:
    with SessionDB(path) as db:
        assert db.session_count() == 1
        assert db.session_sources() == {"cli": 1}
        assert db.top_sessions_by_tokens()
        assert db.prune_report()["pruned"] == []


@pytest.mark.parametrize("helper", [read_only, open_and_close, export, count])
def test_a_helper_beside_a_transaction_does_not_cancel_its_lock(
    path, start, helper: Callable[[Path], None]
):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "kiwi")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    holder.execute("UPDATE sessions SET title = 'held'")
    other = start("try_write_lock", path)
    other.tell()
    assert other.hear() == "SQLITE_BUSY"
    inode = Path(f"{path}-wal").stat().st_ino
    for _ in range(3):
        helper(path)
        other.tell()
        assert other.hear() == "SQLITE_BUSY"
    # Whoever believes to be the last one cleans the log away as it closes.
    other.tell("enough")
    assert other.rest() == []
    for _ in range(2):
        assert start("come_once", path).rest() == [(1,)]
        assert Path(f"{path}-wal").stat().st_ino == inode
        helper(path)
    other = start("try_write_lock", path)
    other.tell()
    assert other.hear() == "SQLITE_BUSY"
    assert Path(f"{path}-wal").stat().st_ino == inode
    holder.execute("COMMIT")
    other.tell()
    assert other.hear() == "had"
    holder.close()
    with SessionDB(path) as db:
        assert db.get_session_title("s") == "held"


def test_stores_of_one_process_that_open_an_absent_file_do_not_drop_each_others_locks(path, start):
    first = SessionDB(path)
    first.create_session("s", "cli")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        SessionDB(path).close()
    inode = Path(f"{path}-wal").stat().st_ino
    assert start("come_once", path).rest() == [(1,)]
    assert Path(f"{path}-wal").stat().st_ino == inode
    other = start("try_write_lock", path)
    other.tell()
    assert other.hear() == "SQLITE_BUSY"
    holder.execute("ROLLBACK")
    holder.close()
    assert first.append_message("s", "user", "x") == 1
    first.close()
