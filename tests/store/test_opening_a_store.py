"""Where a store is, with which modes its files come to be, and how it closes."""

from __future__ import annotations

import logging
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sessionstore import (
    SchemaOutdatedError,
    SchemaTooNewError,
    SessionDB,
    StoreClosedError,
    StoreUnavailableError,
)


def mode_of(path: Path | str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def start_clean(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name in ("SESSIONSTORE_URL", "HERMES_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))


def test_without_a_path_the_store_lies_under_the_home_folder(tmp_path, monkeypatch):
    start_clean(monkeypatch, tmp_path)
    with SessionDB() as db:
        db.create_session("s", "cli")
    assert (tmp_path / ".hermes" / "state.db").is_file()


def test_a_home_that_changed_after_the_import_counts_at_the_next_opening(tmp_path, monkeypatch):
    start_clean(monkeypatch, tmp_path)
    for profile in ("one", "two"):
        monkeypatch.setenv("HERMES_HOME", str(tmp_path / profile))
        with SessionDB() as db:
            db.create_session(profile, "cli")
    for profile in ("one", "two"):
        with SessionDB(tmp_path / profile / "state.db") as db:
            assert [each["id"] for each in db.search_sessions()] == [profile]


def test_a_url_in_the_environment_comes_before_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("SESSIONSTORE_URL", f"sqlite:///{tmp_path}/by-url.db")
    with SessionDB():
        pass
    assert (tmp_path / "by-url.db").is_file()
    assert not (tmp_path / "other").exists()


def test_a_tilde_means_home_and_absent_folders_are_made(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with SessionDB("~/deep/er/state.db"):
        pass
    assert (tmp_path / "deep" / "er" / "state.db").is_file()


def test_a_url_and_a_path_reach_the_same_store(path):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    with SessionDB(url=f"sqlite:///{path}") as db:
        assert db.session_count() == 1


def test_a_path_and_a_url_at_once_are_refused(path):
    with pytest.raises(ValueError, match="once"):
        SessionDB(path, url=f"sqlite:///{path}")
    assert not path.exists()


@pytest.mark.parametrize("url", ["mysql://host/name", "nonsense", "oracle://"])
def test_a_url_of_another_database_is_refused_in_one_line(url):
    with pytest.raises(ValueError) as caught:
        SessionDB(url=url)
    assert "\n" not in str(caught.value)
    assert "postgresql" in str(caught.value)


@pytest.mark.parametrize("name", [":memory:", ""])
def test_a_store_in_memory_is_refused_since_threads_could_not_share_it(name):
    with pytest.raises(StoreUnavailableError, match="file"):
        SessionDB(name)


@pytest.mark.parametrize("umask", ["022", "0", "077", "007"])
def test_new_files_are_private_whatever_the_umask(path, umask):
    script = f"""
import os
os.umask(0o{umask})
from sessionstore import SessionDB
db = SessionDB({str(path)!r})
db.create_session("s", "cli")
for suffix in ("", "-wal", "-shm", "-lock"):
    print(oct(os.stat({str(path)!r} + suffix).st_mode & 0o7777))
"""
    done = run(script)
    assert done.stdout.split() == ["0o600"] * 4, done.stderr


def test_an_existing_file_keeps_the_mode_its_owner_gave_it(path):
    with SessionDB(path):
        pass
    path.chmod(0o644)
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        assert [mode_of(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")] == [0o644] * 3
        # Only the owner may keep others waiting.
        assert mode_of(f"{path}-lock") == 0o600
    assert mode_of(path) == 0o644


def test_through_a_symbolic_link_the_same_store_is_meant(tmp_path):
    real, link = tmp_path / "real" / "state.db", tmp_path / "link.db"
    real.parent.mkdir()
    link.symlink_to(real)
    with SessionDB(link) as by_link:
        by_link.create_session("s", "cli")
        assert (real.parent / "state.db-wal").exists()
        assert not (tmp_path / "link.db-wal").exists()
        with SessionDB(real) as direct:
            assert direct.session_count() == 1
        assert by_link.append_message("s", "user", "still here") == 1
    assert link.is_symlink()
    assert mode_of(real) == 0o600


@pytest.mark.sqlite_only
def test_a_new_store_writes_ahead_and_keeps_what_a_commit_promised(store):
    with store._database.engine.connect() as connection:
        asked = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "journal_size_limit")
        }
    assert asked["journal_mode"] == "wal"
    assert asked["foreign_keys"] == 1
    assert asked["synchronous"] == 2
    assert 0 < asked["journal_size_limit"] <= 64 * 1024 * 1024


def test_migrate_false_names_the_command_that_upgrades(path):
    with pytest.raises(SchemaOutdatedError, match="sessionstore db upgrade") as caught:
        SessionDB(path, migrate=False)
    assert str(path) in str(caught.value)
    assert not path.exists()
    with SessionDB(path):
        pass
    with SessionDB(path, migrate=False) as db:
        assert db.session_count() == 0


def test_a_newer_file_is_refused_and_not_touched(path, sql):
    with SessionDB(path):
        pass
    sql("UPDATE alembic_version SET version_num = '9999'")
    before = (path.read_bytes(), sorted(path.parent.iterdir()))
    for options in ({}, {"migrate": False}, {"read_only": True}):
        with pytest.raises(SchemaTooNewError, match="9999"):
            SessionDB(path, **options)
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == before


def test_a_file_that_is_no_database_is_said_to_be_none(path):
    path.write_bytes(b"once upon a time " * 1000)
    with pytest.raises(StoreUnavailableError, match="not a SQLite database"):
        SessionDB(path)
    assert path.read_bytes() == b"once upon a time " * 1000


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path):
    with pytest.raises(StoreUnavailableError, match="folder"):
        SessionDB(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError, match="folder"):
        SessionDB(tmp_path / "file" / "state.db")


def test_the_database_of_another_program_is_left_alone(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE plants(name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailableError, match="another program"):
        SessionDB(path)
    assert path.read_bytes() == before


def test_after_close_every_call_says_that_the_store_is_closed(path):
    db = SessionDB(path)
    db.create_session("s", "cli")
    db.close()
    db.close()
    calls = [
        lambda: db.get_session("s"),
        lambda: db.create_session("t", "cli"),
        lambda: db.append_message("s", "user", "late"),
        db.list_sessions_rich,
        lambda: list(db.iter_export()),
        db.vacuum,
        db.purge_deleted,
        db.optimize,
        db.prune_sessions,
        lambda: db.search_messages("late"),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="open it again"):
            call()
    with SessionDB(path) as again:
        assert again.session_count() == 1
        assert again.message_count() == 0


def test_the_context_manager_closes_also_after_an_error(path):
    with pytest.raises(RuntimeError), SessionDB(path) as db:
        raise RuntimeError
    with pytest.raises(StoreClosedError):
        db.session_count()


def test_close_leaves_one_file_and_no_descriptor(path):
    def held() -> list[str]:
        links = [
            str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()
        ]
        return [link for link in links if link.startswith(str(path))]

    db = SessionDB(path)
    db.create_session("s", "cli")
    assert held()
    db.close()
    assert held() == []
    assert [each.name for each in path.parent.iterdir()] == ["state.db"]


def test_close_does_not_fail_when_the_files_are_gone(path):
    db = SessionDB(path)
    db.create_session("s", "cli")
    for each in list(path.parent.iterdir()):
        each.unlink()
    db.close()


def test_an_up_to_date_store_opens_without_alembic(path):
    with SessionDB(path):
        pass
    script = f"""
import sys
from sessionstore import SessionDB
SessionDB({str(path)!r}).close()
print([name for name in sys.modules if name.partition(".")[0] in ("alembic", "mako", "rich")])
"""
    done = run(script)
    assert done.stdout.strip() == "[]", done.stderr


def test_opening_leaves_the_logging_of_the_program_alone(path, caplog):
    logger = logging.getLogger("somebody.elses")
    with caplog.at_level(logging.INFO, logger="somebody.elses"), SessionDB(path):
        logger.info("after the upgrade")
    assert "after the upgrade" in caplog.text
    assert not logger.disabled


def kill_a_writer(path: Path) -> None:
    """Leave what a writer without a write-ahead log leaves that is killed as it writes."""
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_messages("s", [{"role": "user", "content": "x" * 2000}] * 200)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    run(f"""
import os, sqlite3
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
connection.execute("PRAGMA cache_size = 5")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE messages SET content = content || 'y'")
os.kill(os.getpid(), 9)
""")
    assert Path(f"{path}-journal").stat().st_size


def test_after_a_writer_was_killed_in_the_middle_the_store_opens_as_it_was_before(path):
    kill_a_writer(path)
    with SessionDB(path) as db:
        assert {each["content"] for each in db.get_messages("s")} == {"x" * 2000}


def test_reading_only_says_that_a_killed_writers_half_has_to_be_undone(path):
    kill_a_writer(path)
    with pytest.raises(StoreUnavailableError, match="killed while it wrote") as caught:
        SessionDB(path, read_only=True)
    assert "check the modes" not in str(caught.value)
    SessionDB(path).close()
    with SessionDB(path, read_only=True) as db:
        assert db.message_count("s") == 200


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_is_said_to_be_one(tmp_path, read_only):
    with pytest.raises(StoreUnavailableError, match="is a folder; name a file"):
        SessionDB(tmp_path, read_only=read_only)


def test_what_is_not_there_or_empty_is_not_called_old(path):
    with pytest.raises(SchemaOutdatedError, match="does not exist; to make"):
        SessionDB(path, migrate=False)
    path.touch()
    with pytest.raises(SchemaOutdatedError, match="is empty; to make"):
        SessionDB(path, migrate=False)


@pytest.mark.parametrize("name", ["~no-such-user/state.db", "a\0b"])
def test_a_path_that_can_be_none_is_refused_in_one_line(name):
    with pytest.raises(ValueError, match=r"home folder|NUL") as caught:
        SessionDB(name)
    assert "\n" not in str(caught.value)


def test_a_path_in_bytes_is_a_path(path):
    with SessionDB(bytes(path)):
        pass
    assert path.is_file()


@pytest.mark.parametrize(
    "url", ["postgresql+nodriver://host/name", "postgresql+psycopg://host:port/name"]
)
def test_a_url_with_no_such_driver_or_port_is_refused_in_one_line(url):
    with pytest.raises(ValueError, match="not a database URL"):
        SessionDB(url=url)


def test_a_driver_that_is_not_installed_is_named():
    with pytest.raises(StoreUnavailableError, match="pg8000 is not installed"):
        SessionDB(url="postgresql+pg8000://host/name")
