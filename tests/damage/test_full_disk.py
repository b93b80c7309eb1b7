"""The disk is full, or must not be written: a typed error, nothing by half, and on it goes."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from damage_helpers import at_revision, everything, messages_of, mostly_slow

from sessionstore import MigrationError, SessionDB, StoreUnavailableError
from sessionstore.cli import main
from sessionstore.upkeep import recover

MB = 1024 * 1024
ROOT = os.geteuid() == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of six megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(disk: Path, leave: int = 0) -> Path:
    """Take all the room there is but for some bytes."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(max(free - leave, 0)))
    return ballast


BIG = [{"role": "user", "content": f"quince {number} " + "x" * 4000} for number in range(100)]
EXPORTED = {
    "id": "imported",
    "source": "cli",
    "started_at": 1.0,
    "messages": [{**each, "timestamp": 2.0} for each in BIG],
}


CALLS: dict[str, Callable[[SessionDB, Path], Any]] = {
    "append": lambda db, _: db.append_messages("s00", BIG),
    "import": lambda db, _: db.import_sessions([EXPORTED]),
    "compaction": lambda db, _: db.archive_and_compact("s00", BIG),
    "index": lambda db, _: db.rebuild_search_index(),
    "vacuum": lambda db, _: db.vacuum(),
    "purge": lambda db, _: db.purge_deleted(),
    "backup": lambda db, folder: db.backup(folder / "copy.db"),
}


@pytest.mark.parametrize(
    ("call", "leave"),
    mostly_slow(
        itertools.product(CALLS, (0, 10_000, 50_000, 100_000)),
        [(call, 0 if call in ("append", "index") else 100_000) for call in CALLS],
    ),
)
def test_a_call_on_a_full_disk_fails_whole_and_works_once_there_is_room(
    template, truth, disk, call, leave
):
    path = disk / "state.db"
    shutil.copy(template, path)
    with SessionDB(path) as db:
        ballast = fill_up(disk, leave)
        with pytest.raises(StoreUnavailableError) as caught:
            CALLS[call](db, disk)
        assert "\n" not in str(caught.value)
        assert "full" in str(caught.value) or "No space" in str(caught.value)
        # Reading goes on, and says what was there.
        assert len(db.get_messages("s01")) == 42
        assert len(db.search_messages("quince", limit=5)) == 0
        assert not (disk / "copy.db").exists()
        assert {each.name.partition("-")[0] for each in disk.iterdir()} <= {"state.db", "ballast"}
        ballast.unlink()
        CALLS[call](db, disk)
        assert db.check_search_index() == []
        found = [row["content"] for row in messages_of(db.export_all()).values()]
        added = 100 if call in ("append", "import", "compaction") else 0
        assert len(found) == len(messages_of(truth)) + added
        assert db.append_message("s00", "user", "goes on")


def test_an_upgrade_on_a_full_disk_leaves_whole_revisions(disk: Path):
    path = disk / "state.db"
    at_revision(path, "0009")
    before = path.stat().st_size
    ballast = fill_up(disk)
    with pytest.raises((StoreUnavailableError, MigrationError)) as caught:
        SessionDB(path)
    assert "\n" not in str(caught.value)
    assert path.stat().st_size == before
    ballast.unlink()
    assert len(messages_of(everything(path))) == 60


def test_recover_and_export_on_a_full_disk_make_no_file(template: Path, disk: Path):
    fill_up(disk, leave=40_000)
    with pytest.raises(StoreUnavailableError) as caught:
        recover(template, disk / "saved.db")
    assert "\n" not in str(caught.value)
    result = CliRunner().invoke(
        main, ["--db", str(template), "export", "-o", str(disk / "talks.jsonl")]
    )
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert [each.name for each in disk.iterdir()] == ["ballast"]


LIMITED = """
import resource, signal, sys
from sessionstore import SessionDB, SessionStoreError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
db = SessionDB(sys.argv[1])
stored = db.message_count()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    while True:
        db.append_message("s00", "user", "x" * 20_000)
        stored += 1
except SessionStoreError as error:
    print(type(error).__name__, str(error).count("\\n"))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
db.append_message("s00", "user", "goes on")
print(stored + 1, db.message_count())
"""


def test_a_file_that_may_not_grow_further_loses_nothing(filled: Path):
    """Anywhere, root or not: as with a quota, writing beyond a size is refused."""
    limit = str(filled.stat().st_size + 200_000)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(filled), limit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    error, counts = done.stdout.splitlines()
    assert error == "StoreUnavailableError 0"
    expected, found = counts.split()
    assert expected == found
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    with SessionDB(filled) as db:
        assert db.message_count() == int(found)
        assert db.check_search_index() == []


# What a user sees who may not write; root may all, so another user's id is taken.
UNPRIVILEGED = """
import logging, os, sys, tempfile
from sessionstore import SessionDB, SessionStoreError

logging.basicConfig()

# All that is loaded late is loaded before another user, who may not reach it, takes over.
with tempfile.TemporaryDirectory() as folder, SessionDB(folder + "/first.db") as db:
    db.backup(folder + "/copy.db")
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)

path = sys.argv[1]
def says(call):
    try:
        return repr(call())
    except SessionStoreError as error:
        return type(error).__name__ + " " + str(error)

print(says(lambda: SessionDB(path, read_only=True).message_count()))
print(says(lambda: SessionDB(path).append_message("s00", "user", "x")))
print(says(lambda: SessionDB(os.path.join(os.path.dirname(path), "new.db"))))
print(says(lambda: SessionDB(path, read_only=True).backup(os.path.join(sys.argv[2], "b.db"))))
"""


def unprivileged(path: Path, other: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(path), str(other)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The mode of a file is no fault of its file system.
    assert "write-ahead" not in done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that another user can reach, if there is one."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="sessionstore-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_in_a_folder_that_may_not_be_written_reading_works_and_writing_says_why(
    public: Path, template: Path, truth
):
    path = public / "state.db"
    shutil.copy(template, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    path.chmod(0o444)
    public.chmod(0o555)
    counted, appended, made, copied = unprivileged(path, public)
    public.chmod(0o755)
    assert counted == str(sum(row["active"] for row in messages_of(truth).values()))
    for said in (appended, made, copied):
        assert said.startswith("StoreUnavailableError"), said
    assert [each.name for each in public.iterdir()] == ["state.db"]
    assert path.read_bytes() == before


def test_a_folder_that_may_not_be_entered_is_said(public: Path, template: Path):
    inner = public / "inner"
    inner.mkdir()
    shutil.copy(template, inner / "state.db")
    inner.chmod(0o700 if ROOT else 0)
    said = unprivileged(inner / "state.db", public)
    inner.chmod(0o755)
    assert len(said) == 4
    assert all(each.startswith("StoreUnavailableError") for each in said), said
    assert all(str(inner) in each for each in said)
