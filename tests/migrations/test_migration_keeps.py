"""What is no column survives an upgrade: triggers, AUTOINCREMENT, partial indexes, loggers."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files

Made = Callable[[str], Path]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Level 4: two sessions, five messages, full-text triggers, a child table that cascades."""
    path = tmp_path / "old.db"
    files.upgrade_file(path, "0004")
    with files.raw(path) as connection:
        for statement in (
            (
                "CREATE TABLE notes (id INTEGER PRIMARY KEY, "
                "session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE)"
            ),
            "INSERT INTO sessions (id, source, started_at, title) VALUES ('p', 'cli', 1.0, 'P')",
            (
                "INSERT INTO sessions (id, source, started_at, parent_session_id) "
                "VALUES ('c', 'cli', 2.0, 'p')"
            ),
            "INSERT INTO notes (session_id) VALUES ('p'), ('c')",
        ):
            connection.execute(statement)
        for number in range(5):
            connection.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) "
                "VALUES (?, 'user', ?, 1.0)",
                ("p" if number < 3 else "c", f"{files.word(number)} said"),
            )
        connection.execute("DROP TABLE alembic_version")
    return path


def test_an_upgrade_keeps_what_is_no_column(old: Path, made: Made) -> None:
    files.open_store(old)
    assert files.ask(old, "SELECT count(*) FROM sessions") == [(2,)]
    assert files.ask(old, "SELECT count(*) FROM messages") == [(5,)]
    assert files.ask(old, "SELECT count(*) FROM notes") == [(2,)]
    assert files.ask(old, "PRAGMA foreign_key_check") == []
    assert files.texts(old) == files.texts(made("head"))
    with files.raw(old) as connection:
        connection.text_factory = str
        connection.execute("PRAGMA foreign_keys = ON")
        assert "AUTOINCREMENT" in files.master(old)["messages"]
        connection.execute("DELETE FROM messages WHERE id = 5")
        insert = (
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES ('c', 'user', 'anew', 2.0)"
        )
        assert connection.execute(insert).lastrowid == 6
        with pytest.raises(Exception, match="UNIQUE"):
            connection.execute("UPDATE sessions SET title = 'P' WHERE id = 'c'")
        with pytest.raises(Exception, match="FOREIGN KEY"):
            connection.execute("DELETE FROM sessions WHERE id = 'p'")
        connection.execute("UPDATE sessions SET parent_session_id = NULL")
        connection.execute("DELETE FROM messages WHERE session_id = 'p'")
        connection.execute("DELETE FROM sessions WHERE id = 'p'")
        assert connection.execute("SELECT session_id FROM notes").fetchall() == [("c",)]


@pytest.mark.parametrize("number", range(5))
def test_each_message_is_found_by_its_word_after_an_upgrade(number: int, old: Path) -> None:
    files.upgrade_file(old, "0011")
    for table in files.INDEXES:
        found = files.ask(
            old, f"SELECT rowid FROM {table} WHERE {table} MATCH ?", files.word(number)
        )
        assert found == [(number + 1,)]


def test_a_logger_configured_before_still_emits_after(tmp_path: Path) -> None:
    program = (
        "import logging, sys, pathlib\n"
        "logging.basicConfig(level=logging.INFO, format='%(name)s %(message)s')\n"
        "mine = logging.getLogger('application.part')\n"
        "mine.setLevel(logging.DEBUG)\n"
        "handlers = list(logging.getLogger().handlers)\n"
        "import schema_files as files\n"
        "files.open_store(pathlib.Path(sys.argv[1]))\n"
        "assert logging.getLogger().handlers == handlers\n"
        "assert logging.getLogger().level == logging.INFO\n"
        "assert not mine.disabled\n"
        "mine.debug('heard after')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "new.db")],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "application.part heard after" in done.stderr
    assert done.stdout == ""


def test_an_ordinary_upgrade_warns_of_nothing(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        files.open_store(old)
    assert caplog.records == []


def test_an_upgrade_waits_for_a_writer(old: Path) -> None:
    with files.raw(old) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES ('p', 'user', 'meanwhile', 1.0)"
        )
        opener = threading.Thread(target=files.open_store, args=(old,))
        opener.start()
        time.sleep(1.5)  # longer than SQLite itself waits
        assert opener.is_alive()
        writer.execute("COMMIT")
        opener.join(30)
    assert files.status(old).up_to_date
    assert files.ask(old, "SELECT count(*) FROM messages") == [(6,)]
