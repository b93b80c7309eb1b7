"""backup and restore: whole, private, checked first, and never in the way of others."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from cli_helpers import Run, files_in, process, sha256

from sessionstore import SessionDB, StoreUnavailableError


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_private_whatever_the_umask(tmp_path: Path):
    umask, path = 0o000, tmp_path / "state.db"
    script = (
        "import os, sys; os.umask(int(sys.argv[1])); from sessionstore import SessionDB\n"
        "db = SessionDB(sys.argv[2]); db.create_session('s', 'cli')\n"
        "import pathlib\n"
        "print([oct(os.stat(sys.argv[2] + end).st_mode & 0o777) for end in ('', '-wal', '-shm')])\n"
    )
    run = [sys.executable, "-c", script, str(umask), str(path)]
    assert subprocess.run(run, capture_output=True, check=True, text=True).stdout == (
        "['0o600', '0o600', '0o600']\n"
    )
    previous = os.umask(umask)
    try:
        assert process("backup", str(tmp_path / "b.db"), "--db", str(path)).returncode == 0
    finally:
        os.umask(previous)
    assert mode_of(tmp_path / "b.db") == 0o600


def test_a_backup_of_a_live_store_has_all_that_was_written(tmp_path: Path, path: Path):
    copy = tmp_path / "copy.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        for number in range(100):
            db.append_message("s", "user", f"row {number}")
        assert Path(f"{path}-wal").stat().st_size > 0  # nothing was moved into the file yet

        done = process("backup", str(copy), "--json", "--db", str(path))

    report = json.loads(done.stdout)
    assert (report["sessions"], report["messages"]) == (1, 100)
    assert mode_of(copy) == 0o600
    assert files_in(tmp_path) == {"copy.db", "state.db"}
    with closing(sqlite3.connect(copy)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("SELECT count(*) FROM messages").fetchone() == (100,)


def test_a_backup_is_of_the_moment_it_began_though_others_write_meanwhile(
    tmp_path: Path, filled: Path
):
    with SessionDB(filled) as db, SessionDB(filled) as other:
        before = db.message_count()

        def write_beside(_done: int, _of: int) -> None:
            other.append_message("lone", "user", "meanwhile")

        report = db.backup(tmp_path / "copy.db", progress=write_beside)
        assert report["messages"] == before < db.message_count()
    with SessionDB(tmp_path / "copy.db", read_only=True) as copy:
        assert copy.message_count() == before


def test_no_helper_of_this_process_loses_anothers_lock(path: Path, tmp_path: Path):
    """Closing a descriptor of the file would drop every lock that the process holds on it."""
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "x")
        log = Path(f"{path}-wal")
        inode = log.stat().st_ino
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            from click.testing import CliRunner

            from sessionstore.cli import main

            for number, arguments in enumerate(
                (
                    ["stats"],
                    ["list"],
                    ["export"],
                    ["db", "check"],
                    ["backup", str(tmp_path / "copy.db")],
                )
            ):
                result = CliRunner().invoke(main, ["--db", str(path), *arguments])
                assert result.exit_code == 0, (number, result.output)
            db.backup(tmp_path / "other.db")
            db.file_sizes()
            script = (
                "import sqlite3, sys\n"
                "c = sqlite3.connect(sys.argv[1], timeout=0.1, isolation_level=None)\n"
                "c.execute('BEGIN IMMEDIATE')"
            )
            other = subprocess.run(
                [sys.executable, "-c", script, str(path)], capture_output=True, check=False
            )
            assert b"database is locked" in other.stderr
        finally:
            holder.execute("ROLLBACK")
            holder.close()
        assert log.stat().st_ino == inode


def test_a_backup_never_takes_a_name_that_is_taken(run: Run, filled: Path, tmp_path: Path):
    copy = tmp_path / "copy.db"
    copy.write_text("mine")

    assert run("backup", str(copy)).exit_code == 1
    assert copy.read_text() == "mine"
    assert run("backup", str(copy), "--force").exit_code == 0
    assert copy.read_bytes()[:6] == b"SQLite"
    for own in (filled, Path(f"{filled}-wal"), Path(f"{filled}-lock")):
        assert run("backup", str(own), "--force").exit_code == 1
    assert run("backup", str(tmp_path / "no" / "copy.db")).exit_code == 1
    assert files_in(tmp_path) == {"copy.db", "state.db"}


def test_a_copy_that_is_not_whole_gets_no_name(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from sessionstore.upkeep import backup

    whole = backup.copy_database

    def half(source: sqlite3.Connection, target: Path, progress: object) -> None:
        whole(source, target, None)
        os.truncate(target, target.stat().st_size // 2)

    monkeypatch.setattr(backup, "copy_database", half)
    with SessionDB(filled, read_only=True) as db, pytest.raises(StoreUnavailableError):
        db.backup(tmp_path / "copy.db")
    assert files_in(tmp_path) == {"state.db"}


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    """A backup of the store, in a folder of its own."""
    (tmp_path / "backups").mkdir()
    made = tmp_path / "backups" / "copy.db"
    assert run("backup", str(made)).exit_code == 0
    return made


def test_a_restore_brings_back_and_keeps_what_was_there(run: Run, filled: Path, copy: Path):
    run("delete", "lone", "--yes")
    backup = sha256(copy)
    assert run("restore", str(copy)).exit_code == 1  # nobody can be asked

    result = run("restore", str(copy), "--yes")

    assert result.exit_code == 0
    assert "lone" in run("list").stdout
    assert mode_of(filled) == 0o600
    (kept,) = filled.parent.glob("state.db.before-restore-*")
    assert "lone" not in run("list", db=kept).stdout
    assert str(kept) in result.stderr
    with SessionDB(filled) as db:  # and it can be written to as ever
        db.append_message("lone", "user", "goes on")
    assert sha256(copy) == backup


def test_what_is_no_backup_is_refused_before_anything_is_asked(
    run: Run, filled: Path, tmp_path: Path
):
    text = tmp_path / "text"
    text.write_text("hello\n" * 1000)
    for file, said in (
        (tmp_path / "absent.db", "does not exist; name a backup"),
        (text, "not a SQLite database"),
        (filled, "is the store itself"),
    ):
        result = run("restore", str(file))
        assert (result.exit_code, result.stdout) == (1, "")
        assert said in result.stderr
        assert "--yes" not in result.stderr


def test_a_restore_makes_an_absent_store(run: Run, copy: Path, tmp_path: Path):
    absent = tmp_path / "new" / "state.db"

    assert run("restore", str(copy), "--yes", db=absent).exit_code == 0
    assert "lone" in run("list", db=absent).stdout


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.98])
def test_a_backup_that_is_cut_is_refused(run: Run, filled: Path, copy: Path, part: float):
    os.truncate(copy, int(copy.stat().st_size * part))
    before = sha256(filled)

    result = run("restore", str(copy), "--yes")

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "copy.db" in result.stderr
    assert sha256(filled) == before
    assert files_in(filled.parent) == {"state.db", "backups"}


def test_a_backup_with_a_damaged_page_is_refused(run: Run, filled: Path, copy: Path):
    content = bytearray(copy.read_bytes())
    for at in range(4096, len(content) - 8192, 8192):
        content[at + 100 : at + 3000] = b"\xa5" * 2900
    copy.write_bytes(content)
    before = sha256(filled)

    assert run("restore", str(copy), "--yes").exit_code == 1
    assert sha256(filled) == before


def test_a_newer_backup_and_another_programs_file_are_refused(
    run: Run, filled: Path, copy: Path, tmp_path: Path
):
    before = sha256(filled)
    with closing(sqlite3.connect(copy)) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
        raw.commit()
    assert "9999" in run("restore", str(copy), "--yes").stderr
    foreign = tmp_path / "backups" / "foreign.db"
    with closing(sqlite3.connect(foreign)) as raw:
        raw.execute("CREATE TABLE notes(x)")
        raw.commit()
    for other in (foreign, tmp_path / "absent.db", filled):
        assert run("restore", str(other), "--yes").exit_code == 1
    assert sha256(filled) == before


def test_a_store_in_use_is_not_replaced(run: Run, filled: Path, copy: Path):
    with SessionDB(filled) as db:
        db.append_message("lone", "user", "newest")

        result = process("restore", str(copy), "--yes", "--db", str(filled))

        assert result.returncode == 1
        assert b"in use by another program" in result.stderr
        db.append_message("lone", "user", "goes on")
        assert db.message_count("lone") == 3
    assert files_in(filled.parent) == {"state.db", "backups"}


def test_a_store_that_cannot_be_opened_is_replaced_only_if_that_is_said(
    run: Run, filled: Path, copy: Path
):
    filled.write_bytes(b"\xa5" * 100_000)

    refused = run("restore", str(copy), "--yes")
    assert refused.exit_code == 1
    assert "--even-if-damaged" in refused.stderr
    assert run("restore", str(copy), "--yes", "--even-if-damaged").exit_code == 0
    assert "lone" in run("list").stdout
    assert len(list(filled.parent.glob("state.db.before-restore-*"))) == 1


def descriptors() -> int:
    """Count the open descriptors of this process; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def test_short_threads_leave_no_descriptor(filled: Path):
    with SessionDB(filled) as db:
        before = descriptors()

        def look() -> None:
            db.list_sessions_rich()
            db.file_sizes()

        for _ in range(100):
            threads = [threading.Thread(target=look) for _ in range(5)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        assert abs(descriptors() - before) <= 2


def test_a_copy_onto_an_old_store_with_data_leaves_it_as_it_was(filled: Path, tmp_path: Path):
    old = tmp_path / "old.db"
    shutil.copy(Path(__file__).parents[1] / "data" / "hermes" / "hermes-v06.db", old)
    before = old.read_bytes()

    refused = process("copy", str(filled), str(old))

    assert refused.returncode == 1
    assert b"is at Hermes level 6, not " in refused.stderr
    assert b"name an absent or empty store, or upgrade it first: " in refused.stderr
    assert old.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("old")] == ["old.db"]


def test_a_backup_of_an_old_file_says_how_to_have_a_copy_before_the_upgrade(tmp_path: Path):
    old = tmp_path / "old.db"
    old.write_bytes((Path(__file__).parents[1] / "data/hermes/hermes-v06.db").read_bytes())
    refused = process("backup", str(tmp_path / "copy.db"), "--db", str(old))
    assert refused.returncode == 1
    said = refused.stderr.decode()
    assert f"upgrade it: sessionstore db upgrade --db {old}; " in said
    assert said.endswith("; to have a copy of it as it is, cp it while no program has it open\n")
    assert not (tmp_path / "copy.db").exists()
