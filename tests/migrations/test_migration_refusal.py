"""What is not to be touched is refused in one line, and not one byte of it changes."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files
from sqlalchemy import event

from sessionstore import schema
from sessionstore.errors import (
    SchemaOutdatedError,
    SchemaTooNewError,
    SessionStoreError,
    StoreUnavailableError,
)
from sessionstore.location import locate
from sessionstore.models import SCHEMA_REVISION

Made = Callable[[str], Path]

WAYS = {
    "to write": {},
    "to write, no upgrade": {"migrate": False},
    "to read": {"read_only": True},
}


def refused(path: Path, kind: type[SessionStoreError], **how: bool) -> SessionStoreError:
    """Open a file in vain, and see that it is as it was."""
    before = (files.digest(path), path.stat().st_mtime_ns, path.stat().st_mode)
    with pytest.raises(kind) as caught:
        files.open_store(path, **how)
    assert (files.digest(path), path.stat().st_mtime_ns, path.stat().st_mode) == before
    assert files.side_files(path) == []
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture(params=WAYS)
def how(request: pytest.FixtureRequest) -> dict[str, bool]:
    return WAYS[request.param]


@pytest.mark.parametrize("level", [12, 13, 999])
def test_a_newer_hermes_file_is_not_touched(level: int, how: dict, tmp_path: Path) -> None:
    path = files.real_file("11", tmp_path)
    with files.raw(path) as connection:
        connection.execute("UPDATE schema_version SET version = ?", (level,))
    error = refused(path, SchemaTooNewError, **how)
    assert f"sessionstore import {path}" in str(error)
    assert error.found == f"Hermes level {level}"
    assert error.supported == "Hermes level 11"


def test_a_newer_level_in_the_second_row_counts(tmp_path: Path) -> None:
    path = files.real_file("11", tmp_path)
    with files.raw(path) as connection:
        connection.execute("INSERT INTO schema_version VALUES (12)")
    refused(path, SchemaTooNewError)


@pytest.mark.parametrize("revision", ["0999", "deadbeef", "", "00011"])
def test_an_unknown_revision_is_not_touched(
    revision: str, how: dict, made: Made, tmp_path: Path
) -> None:
    path = tmp_path / "newer.db"
    path.write_bytes(made("head").read_bytes())
    with files.raw(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    error = refused(path, SchemaTooNewError, **how)
    assert revision in str(error)
    assert SCHEMA_REVISION in str(error)
    assert (error.found, error.supported) == (revision, SCHEMA_REVISION)


def test_two_revisions_at_once_are_not_touched(how: dict, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    path.write_bytes(made("head").read_bytes())
    with files.raw(path) as connection:
        connection.execute("INSERT INTO alembic_version VALUES ('0003')")
    assert refused(path, SchemaTooNewError, **how).found == f"0003, {SCHEMA_REVISION}"


FOREIGN = {
    "places": ["CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url TEXT)"],
    "another schema_version": [
        "CREATE TABLE schema_version (version INTEGER)",
        "INSERT INTO schema_version VALUES (3)",
        "CREATE TABLE users (id INTEGER)",
    ],
    "another schema_version, of another shape": [
        "CREATE TABLE schema_version (applied TEXT)",
        "CREATE TABLE sessions (id TEXT, source TEXT)",
    ],
    "web sessions": ["CREATE TABLE sessions (id TEXT, data BLOB, expires REAL)"],
    "web sessions with a version": [
        "CREATE TABLE schema_version (version INTEGER)",
        "CREATE TABLE sessions (id TEXT, data BLOB, expires REAL)",
    ],
    "another program's 0004": [
        "CREATE TABLE alembic_version (version_num VARCHAR(32))",
        "INSERT INTO alembic_version VALUES ('0004')",
        "CREATE TABLE users (id INTEGER)",
    ],
    "a view only": ["CREATE VIEW one AS SELECT 1"],
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_another_programs_database_is_not_touched(kind: str, how: dict, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with files.raw(path) as connection:
        for statement in FOREIGN[kind]:
            connection.execute(statement)
    assert "another program" in str(refused(path, StoreUnavailableError, **how))


@pytest.mark.parametrize("content", [b"no database at all", b"x" * 5000, b"SQLite format 3\0cut"])
def test_what_is_no_database_is_not_touched(content: bytes, how: dict, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    refused(path, StoreUnavailableError, **how)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        files.open_store(tmp_path)


@pytest.mark.parametrize("how", [{"read_only": True}, {"migrate": False}])
def test_an_old_file_is_not_upgraded_unasked(how: dict, tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    folder.mkdir()
    path = files.real_file("06", folder)
    error = refused(path, SchemaOutdatedError, **how)
    assert f"sessionstore db upgrade --db '{path}'" in str(error)
    assert (error.found, error.expected) == ("Hermes level 6", SCHEMA_REVISION)


def test_an_absent_file_is_not_made_unasked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "absent.db"
    with pytest.raises(SchemaOutdatedError, match="does not exist; to make"):
        files.open_store(path, migrate=False)
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        files.open_store(path, read_only=True)
    assert not path.parent.exists()


def test_an_empty_file_becomes_a_store(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(SchemaOutdatedError):
        files.open_store(path, migrate=False)
    assert path.stat().st_size == 0
    files.open_store(path)
    assert files.texts(path) == files.texts(made("head"))


def test_upgrade_itself_refuses_what_came_meanwhile(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "meanwhile.db"
    path.write_bytes(made("4").read_bytes())
    with files.database(path) as opened:
        with files.raw(path) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '0999'")
        with pytest.raises(SchemaTooNewError):
            files.upgrade(opened)
        with pytest.raises(SchemaTooNewError):
            files.downgrade(opened, "base")


def test_an_up_to_date_file_opens_with_one_query_and_without_alembic(
    made: Made, tmp_path: Path
) -> None:
    path = tmp_path / "current.db"
    path.write_bytes(made("head").read_bytes())
    program = (
        "import sys\n"
        "from sqlalchemy import Engine, event\n"
        "import schema_files as files\n"
        "asked = []\n"
        "@event.listens_for(Engine, 'before_cursor_execute')\n"
        "def _(connection, cursor, statement, *rest): asked.append(statement)\n"
        "for how in ({}, {'migrate': False}, {'read_only': True}):\n"
        "    asked.clear()\n"
        "    files.open_store(files.Path(sys.argv[1]), **how)\n"
        "    asked = [s for s in asked if not s.startswith('BEGIN')]\n"
        "    assert len(asked) == 1 and 'alembic_version' in asked[0], asked\n"
        "assert 'alembic' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(path)], check=True, cwd=Path(__file__).parent
    )


def test_a_url_in_the_advice_hides_its_password() -> None:
    location = locate(url="postgresql+psycopg://ann:geheim@db.example.test/store")
    with pytest.raises(SchemaOutdatedError) as caught:
        schema.require_current(schema.SchemaStatus("0003"), location)
    assert "geheim" not in str(caught.value)
    assert "db upgrade --url" in str(caught.value)


# ---- full-text search that cannot be had


def deny_virtual_tables(action: int, *_: object) -> int:
    forbidden = (sqlite3.SQLITE_CREATE_VTABLE, sqlite3.SQLITE_DROP_VTABLE)
    return sqlite3.SQLITE_DENY if action in forbidden else sqlite3.SQLITE_OK


@pytest.mark.parametrize("level", [0, 1, 6, 10, 11])
def test_without_fts5_all_but_full_text_search_works(
    level: int,
    old_file: Callable[[int], Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = old_file(level) if level else tmp_path / "new.db"
    if level == 11:  # an index that would have to be made anew
        with files.raw(path) as connection:
            connection.execute("DROP TABLE messages_fts")
            connection.execute("DELETE FROM messages_fts_trigram")
    before = files.all_rows(path) if level else None
    with files.database(path) as opened:

        @event.listens_for(opened.engine, "checkout")
        def _(raw: sqlite3.Connection, *_: object) -> None:
            raw.set_authorizer(deny_virtual_tables)

        with caplog.at_level(logging.WARNING, "sessionstore"):
            files.upgrade(opened, "0011")
    assert len(caplog.records) == 1
    assert "searching the full text is out" in caplog.text
    assert not [
        name for name in files.texts(path) if name.startswith("messages_fts_") and "insert" in name
    ]
    if before:
        after = files.all_rows(path)
        assert [row["id"] for row in after["messages"]] == [row["id"] for row in before["messages"]]
    with files.raw(path) as connection:
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
        connection.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'u', 'x', 1)"
        )
        connection.execute("UPDATE messages SET content = 'y'")
        connection.execute("DELETE FROM messages")
    with files.database(path) as opened:
        files.downgrade(opened, "base")
        files.upgrade(opened, "0011")
    assert "messages_fts_insert" in files.texts(path)
