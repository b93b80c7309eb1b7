"""db upgrade, current, check, history, and what every command does to old and newer files."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import Run, files_in, sha256

from sessionstore import StoreSettings
from sessionstore.models import SCHEMA_REVISION

HERMES = Path(__file__).parents[1] / "data" / "hermes"
READING = (["list"], ["show", "x"], ["search", "x"], ["stats"], ["export"])
CARING = (["db", "upgrade"], ["db", "current"], ["db", "check"])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of Hermes at level 6, alone in its folder."""
    folder = tmp_path / "old"
    folder.mkdir()
    copy = Path(shutil.copyfile(HERMES / "hermes-v06.db", folder / "state.db"))
    copy.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return copy


@pytest.fixture
def newer(tmp_path: Path, template: bytes) -> Path:
    """A store that a later release made."""
    folder = tmp_path / "newer"
    folder.mkdir()
    made = folder / "state.db"
    made.write_bytes(template)
    connection = sqlite3.connect(made)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return made


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_an_old_file_is_not_upgraded_by_looking(run: Run, old: Path, arguments: list[str]):
    before = sha256(old)

    result = run(*arguments, db=old)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert f"sessionstore db upgrade --db {old}" in result.stderr
    assert sha256(old) == before
    assert files_in(old.parent) == {"state.db"}


def test_the_command_that_is_named_upgrades(run: Run, old: Path):
    result = run("db", "upgrade", "--db", str(old))

    assert result.exit_code == 0
    assert [line[:4] for line in result.stderr.splitlines()] == [
        f"{number:04d}" for number in range(1, int(SCHEMA_REVISION) + 1)
    ]
    assert f"from Hermes level 6 to {SCHEMA_REVISION}" in result.stdout
    assert "Docker 网络调试" in run("list", db=old).stdout
    assert f"at {SCHEMA_REVISION} already" in run("db", "upgrade", db=old).stdout


def test_an_absent_store_is_made_by_an_upgrade_alone(run: Run, tmp_path: Path):
    absent = tmp_path / "new" / "state.db"

    assert run("db", "current", db=absent).exit_code == 1
    assert not absent.parent.exists()
    result = run("db", "upgrade", db=absent)
    assert f"went from empty to {SCHEMA_REVISION}" in result.stdout
    assert run("db", "check", db=absent).exit_code == 0


@pytest.mark.parametrize("arguments", [*READING, *CARING], ids=" ".join)
def test_a_newer_file_is_refused_in_one_line_and_not_touched(
    run: Run, newer: Path, arguments: list[str]
):
    before, beside = sha256(newer), files_in(newer.parent)

    result = run(*arguments, db=newer)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "9999" in result.stderr
    assert SCHEMA_REVISION in result.stderr
    assert sha256(newer) == before
    assert files_in(newer.parent) == beside


@pytest.mark.parametrize("arguments", [*READING, *CARING], ids=" ".join)
def test_what_is_no_store_is_one_line(run: Run, tmp_path: Path, arguments: list[str]):
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, and long enough to be read as a header\n" * 100)
    before = sha256(text)

    result = run(*arguments, db=text)

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert sha256(text) == before


def test_current_says_revision_and_level(run: Run, old: Path):
    assert run("db", "current").stdout.splitlines() == [
        f"revision      {SCHEMA_REVISION} (the newest)",
        "Hermes level  11",
    ]
    assert json.loads(run("db", "current", "--json", db=old).stdout) == {
        "location": str(old),
        "revision": None,
        "newest_revision": SCHEMA_REVISION,
        "up_to_date": False,
        "hermes_level": 6,
    }


def test_history_lists_every_revision(run: Run, tmp_path: Path):
    listed = json.loads(run("db", "history", "--json", db=tmp_path / "absent.db").stdout)

    assert listed[-1]["id"] == SCHEMA_REVISION
    assert all(each["summary"] for each in listed)
    assert run("db", "history").stdout.splitlines()[0] == f"0001  {listed[0]['summary']}"


def test_check_is_content_with_a_good_store(run: Run):
    result = run("db", "check")

    assert result.exit_code == 0
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == [
        "file",
        "references",
        "schema",
        "search index",
    ]
    assert json.loads(run("db", "check", "--json").stdout)["ok"] is True


def test_check_finds_a_broken_reference(run: Run, filled: Path):
    connection = sqlite3.connect(filled)
    connection.execute("UPDATE messages SET session_id = 'gone' WHERE session_id = 'lone'")
    connection.commit()
    connection.close()

    result = run("db", "check")

    assert result.exit_code == 1
    assert "of messages refers to a row of sessions that is not there" in result.stdout
    assert json.loads(run("db", "check", "--json").stdout)["ok"] is False


def test_check_finds_a_damaged_page(run: Run, filled: Path):
    content = bytearray(filled.read_bytes())
    for at in range(4096, len(content) - 8192, 8192):
        content[at + 100 : at + 3000] = b"\xa5" * 2900
    filled.write_bytes(content)

    result = run("db", "check")

    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_check_says_when_a_store_is_old(run: Run, old: Path):
    result = run("db", "check", db=old)

    assert result.exit_code == 1
    assert "at Hermes level 6" in result.stdout


@pytest.mark.parametrize("arguments", [*READING, *CARING], ids=" ".join)
def test_a_locked_file_is_one_line(
    run: Run, filled: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
):
    hasty = StoreSettings(write_patience_s=0.1, write_min_attempts=2, busy_timeout_s=0.05)
    for module in ("cli.database", "engine", "store.base"):
        # The command waits as long as a program does, for which no test has the time.
        monkeypatch.setattr(sys.modules[f"sessionstore.{module}"], "StoreSettings", lambda: hasty)
    connection = sqlite3.connect(filled, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("BEGIN EXCLUSIVE")
    # A journal that is written to says that the file is in use.
    connection.execute("UPDATE sessions SET title = NULL")

    result = run(*arguments)
    connection.close()

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "the store was busy: 2 attempts" in result.stderr


def test_check_calls_an_empty_file_empty(run: Run, tmp_path: Path):
    empty = tmp_path / "empty.db"
    empty.touch()

    assert "nothing was ever stored here" in run("db", "check", db=empty).stdout


def test_a_writer_that_was_killed_is_no_obstacle_to_an_upgrade(run: Run, filled: Path):
    journal = filled.with_name(filled.name + "-journal")
    script = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA journal_mode = DELETE')\n"
        "connection.execute('PRAGMA cache_size = 1')\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "connection.execute('UPDATE messages SET content = hex(randomblob(50000))')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(filled)], check=False)
    assert journal.stat().st_size

    assert "sessionstore db upgrade" in run("list").stderr
    assert run("db", "upgrade").exit_code == 0
    assert "Fix the build" in run("list").stdout
