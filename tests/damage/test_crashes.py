"""Killed in the middle, or the power gone: what was promised is there, and nothing by half."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from damage_helpers import PAGE, everything, messages_of, mostly_slow

from sessionstore import SessionDB

# A child does the work and is killed within it: before it opens, renames or removes a file, after
# a statement, or within one, at every so many steps of SQLite's machine. It is told how many of
# these to let pass, and says how many there were if that is more than the work has.
KILLED = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import Engine, event
from sessionstore import SessionDB, StoreSettings, upkeep
from sessionstore.location import locate

path, work, most = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
passed = 0


def step(*_):
    global passed
    passed += 1
    if passed == most:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def file_step(name, arguments):
    if name in ("open", "os.rename", "os.remove", "sqlite3.connect") and str(
        arguments[0]
    ).startswith((str(path.parent), "file://" + str(path.parent))):
        step()


# With times, so that two programs that do the same leave the same.
BIG = [
    {"role": "user", "content": f"quince {number} " + "x" * 500, "timestamp": 2.0}
    for number in range(30)
]
EXPORTED = [
    {"id": f"imported{n}", "source": "cli", "started_at": 1.0, "messages": BIG[:5]}
    for n in range(4)
]
WORKS = {
    "index": lambda db: db.rebuild_search_index(),
    "compaction": lambda db: db.archive_and_compact("s00", BIG),
    "import": lambda db: db.import_sessions(EXPORTED),
    "purge": lambda db: db.purge_deleted(),
    "delete": lambda db: db.delete_session("s00"),
    "vacuum": lambda db: db.vacuum(),
    "backup": lambda db: db.backup(path.with_name("copy.db"), progress=step),
}
if work in WORKS:
    with SessionDB(path) as db:
        for pooled in [db._database.engine.raw_connection() for _ in range(4)]:
            pooled.driver_connection.set_progress_handler(step, 5000)
            pooled.close()
        event.listen(Engine, "after_cursor_execute", step)
        sys.addaudithook(file_step)
        WORKS[work](db)
else:
    event.listen(Engine, "after_cursor_execute", step)
    sys.addaudithook(file_step)
    if work == "restore":
        upkeep.restore(path.with_name("other.db"), locate(path), StoreSettings(), progress=step)
    else:
        upkeep.recover(path, path.with_name("new.db"), progress=step)
print(passed)
"""


def run(path: Path, work: str, most: int) -> int | None:
    """Run some work and kill it at a step; None: it was killed, else how many steps it had."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), work, str(most)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -9), done.stderr
    return int(done.stdout) if done.returncode == 0 else None


def contents(path: Path) -> str:
    return json.dumps(
        [
            {name: value for name, value in each.items() if name != "last_active_at"}
            for each in everything(path)
        ],
        sort_keys=True,
    )


def is_sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as raw:
        return (
            raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            and not raw.execute("PRAGMA foreign_key_check").fetchall()
        )


WORKS = (
    *("index", "compaction", "import", "purge", "delete"),
    *("vacuum", "backup", "restore", "recover"),
)


@pytest.mark.parametrize(
    ("work", "kills"),
    mostly_slow(itertools.product(WORKS, (1, 40)), [("import", 1), ("restore", 1)]),
)
def test_a_program_that_is_killed_leaves_the_state_before_or_after(template, tmp_path, work, kills):
    whole = tmp_path / "whole" / "state.db"
    whole.parent.mkdir()
    shutil.copy(template, whole)
    other = whole.with_name("other.db")
    shutil.copy(template, other)
    with SessionDB(other) as db:
        db.create_session("of the backup", "cli", started_at=1.0)
    steps = run(whole, work, 0)
    assert steps is not None
    before, after = contents_of_copy(template, tmp_path), contents(whole)
    draw = random.Random(work)
    for number in range(kills):
        at = 1 + steps * number // kills + draw.randrange(max(1, steps // kills))
        path = tmp_path / str(number) / "state.db"
        path.parent.mkdir()
        shutil.copy(template, path)
        shutil.copy(other, path.with_name("other.db"))
        if run(path, work, at) is not None:
            continue
        assert contents(path) in (before, after), at
        assert is_sound(path)
        with SessionDB(path) as db:
            assert db.append_message("s01", "user", "kumquat")
            assert len(db.search_messages("kumquat")) == 1
            db.complete_search_index()
            assert db.check_search_index() == []
        # What a copy was to be called is not there, or is whole.
        for name in ("copy.db", "new.db"):
            if path.with_name(name).exists():
                assert is_sound(path.with_name(name))


def contents_of_copy(template: Path, tmp_path: Path) -> str:
    copy = tmp_path / "before.db"
    shutil.copy(template, copy)
    return contents(copy)


def committed(path: Path) -> tuple[Path, list[tuple[int, int]]]:
    """Write 40 messages one by one; note how long the log is as each call returns.

    With synchronous = FULL a call returns when the log is on the disk up to there.
    """
    marks = []
    log = Path(f"{path}-wal")
    with SessionDB(path) as db:
        db.set_meta("key", "log begun")
        for number in range(40):
            said = db.append_message(
                "s00", "user", f"kumquat {number} " + "x" * (number * 97 % 3000)
            )
            marks.append((log.stat().st_size, said))
        folder = path.with_name("lost power")
        folder.mkdir()
        shutil.copy(path, folder / "state.db")
        shutil.copy(log, folder / "state.db-wal")
    return folder / "state.db", marks


@pytest.mark.parametrize("seed", mostly_slow(range(40), [0]))
def test_what_was_synced_survives_a_power_cut_and_what_was_not_is_not_there_by_half(filled, seed):
    """Simulated: beyond the last sync the log is cut, zeroed, garbled, or partly there.

    The database file itself is written at checkpoints only, each behind a sync of the log.
    """
    path, marks = committed(filled)
    draw = random.Random(seed)
    log = Path(f"{path}-wal")
    content, whole = log.read_bytes(), path.read_bytes()
    for _ in range(4):
        survived = draw.randrange(len(marks))
        synced = marks[survived][0]
        tail = bytearray(content[synced:])
        kind = draw.choice(("cut", "zeros", "garbage", "pages"))
        if kind == "cut":
            del tail[draw.randrange(len(tail) + 1) :]
        elif kind == "zeros":
            tail[:] = bytes(len(tail))
        elif kind == "garbage":
            tail[:] = draw.randbytes(len(tail))
        else:  # the disk wrote some blocks and not others, in any order
            for at in range(0, len(tail), 512):
                if draw.random() < 0.5:
                    tail[at : at + 512] = bytes(len(tail[at : at + 512]))
        path.write_bytes(whole)
        log.write_bytes(content[:synced] + bytes(tail))
        Path(f"{path}-shm").unlink(missing_ok=True)
        with SessionDB(path) as db:
            found = [
                row["id"]
                for row in db.get_messages("s00")
                if str(row["content"]).startswith("kumquat")
            ]
            ids = [said for _, said in marks]
            # All that was promised, and of the rest whole messages in order.
            assert found[: survived + 1] == ids[: survived + 1]
            assert found == ids[: len(found)]
            assert db.get_session("s00")["message_count"] == 40 + len(found)
            assert len(db.search_messages("kumquat", limit=99)) == len(found)
            assert db.check_search_index() == []
        assert is_sound(path)


def test_power_lost_within_a_checkpoint_loses_nothing(filled: Path):
    """Some pages of the file are new, some old and some half written; the log has them all."""
    path, marks = committed(filled)
    log, old = Path(f"{path}-wal").read_bytes(), path.read_bytes()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    new = path.read_bytes()
    draw = random.Random(1)
    for _ in range(2):
        mixed = bytearray()
        for at in range(0, len(new), PAGE):
            one, two = new[at : at + PAGE], old[at : at + PAGE].ljust(PAGE, b"\0")
            cut = draw.choice((0, 512, 2048, PAGE))
            mixed += one[:cut] + two[cut:]
        path.write_bytes(mixed)
        Path(f"{path}-wal").write_bytes(log)
        Path(f"{path}-shm").unlink(missing_ok=True)
        with SessionDB(path) as db:
            found = messages_of(db.export_all())
            assert {said for _, said in marks} <= found.keys()
            assert db.check_search_index() == []
        assert is_sound(path)
