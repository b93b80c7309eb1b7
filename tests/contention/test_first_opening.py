"""Many programs open the same file for the first time at the same moment."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sessionstore import SessionDB, StoreSettings, schema
from sessionstore.engine import open_database
from sessionstore.location import locate


def shape(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    assert connection.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    return found


def old_store(path: Path) -> None:
    """Make a store of the first revision with 3 sessions and 40 messages."""
    settings = StoreSettings()
    database = open_database(locate(path), settings)
    schema.upgrade(database, settings, to="0001")
    database.close()
    connection = sqlite3.connect(path)
    connection.executemany(
        "INSERT INTO sessions(id, source, started_at) VALUES (?, 'cli', 1)",
        [("a",), ("b",), ("c",)],
    )
    connection.executemany(
        "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', 'kiwi', 1)",
        [("abc"[number % 3],) for number in range(40)],
    )
    connection.commit()
    connection.close()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """What a file looks like that one program opened alone."""
    path = tmp_path_factory.mktemp("fresh") / "state.db"
    SessionDB(path).close()
    return shape(path)


@pytest.fixture(scope="module")
def fresh_from_old(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    path = tmp_path_factory.mktemp("old") / "state.db"
    old_store(path)
    SessionDB(path).close()
    return shape(path)


def open_at_once(path: Path, start, holds: list[int], programs: int) -> None:
    started = [start("open_store", path) for _ in range(programs)]
    threads = start("open_many", path, 4)
    for each in (*started, threads):
        assert each.hear() == "ready"
    for each in (threads, *started):
        each.tell()
    assert [each.rest() for each in started] == [[holds]] * programs
    assert threads.rest() == [[holds] * 4]


ROUNDS = pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=pytest.mark.slow)])


@ROUNDS
def test_all_open_an_absent_file(tmp_path, start, fresh, rounds):
    for number in range(rounds):
        path = tmp_path / str(number) / "state.db"
        open_at_once(path, start, [0, 0], programs=8)
        assert shape(path) == fresh
        assert [each.name for each in path.parent.iterdir()] == ["state.db"]


@ROUNDS
def test_all_open_an_old_file_and_it_is_upgraded_once(tmp_path, start, fresh_from_old, rounds):
    for number in range(rounds):
        path = tmp_path / f"{number}.db"
        old_store(path)
        open_at_once(path, start, [3, 40], programs=8)
        assert shape(path) == fresh_from_old
        with SessionDB(path) as db:
            assert len(db.search_messages("kiwi", limit=100)) == 40
