"""Let many programs use one store at once, kill some of them, and look what is left.

    python scripts/stress.py                     # half a minute: 1, 4 and 8 processes
    python scripts/stress.py --long              # some minutes: up to 32 processes
    python scripts/stress.py --processes 16 --seconds 60 --seed 7

Each process has several threads on one store, which append, alone and by threes, read, list
and search. Beside them one process prunes, one vacuums and one makes backups, and every now and
then one of the writers is killed as by `kill -9` and another takes its place. Then nothing may
be lost: each append that returned is there; nothing is there twice; the counters equal the
rows; the file, its references and its search index are sound. No call may fail, not even for
being busy. The longest waits are printed. The exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from sessionstore import SessionDB

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["sessionstore"])

SHARED = "shared"
KILL_EVERY_S = 0.4
START_S = 60.0
SHORT, LONG = (1, 4, 8), (1, 4, 8, 16, 32)
SHORT_S, LONG_S = 6.0, 30.0


class Moment(Protocol):
    """A time that all processes share, monotonic."""

    value: float


class Diary:
    """What the threads of a process were told, written down at once: a kill loses no line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def stored(self, began: float, session_id: str, *texts: str) -> None:
        """Write down messages whose append has returned, and how long that took."""
        took_ms = (time.monotonic() - began) * 1000
        lines = [f"stored\t{took_ms:.3f}\t{session_id}\t{text}\n" for text in texts]
        os.write(self._file, "".join(lines).encode())

    def failed(self, error: BaseException) -> None:
        """Write down what a caller should not have seen."""
        os.write(self._file, f"failed\t0\t-\t{type(error).__name__}: {error}\n".encode())


def write(db: SessionDB, diary: Diary, name: str, ends_at: Moment) -> None:
    """What a thread does until the time is over: append, read, list and search."""
    draw = random.Random(name)
    own, number = f"own-{name}", 0
    try:
        db.create_session(own, "cli")
        while time.monotonic() < ends_at.value:
            number += 1
            session_id = draw.choice((own, SHARED))
            texts = [f"{name} kiwi {number} {part}" for part in range(draw.choice((1, 1, 1, 3)))]
            began = time.monotonic()
            if len(texts) == 1:
                db.append_message(session_id, "user", texts[0])
            else:
                batch = [{"role": "assistant", "content": text} for text in texts]
                db.append_messages(session_id, batch)
            diary.stored(began, session_id, *texts)
            read(db, draw, own, number)
    except BaseException as error:  # noqa: BLE001 - written down, and judged at the end
        diary.failed(error)


def read(db: SessionDB, draw: random.Random, own: str, number: int) -> None:
    """Look at the store now and then, and leave something to prune."""
    chance = draw.random()
    if chance < 0.2:  # noqa: PLR2004 - a fifth
        db.get_messages(own, limit=20)
    elif chance < 0.25:  # noqa: PLR2004
        db.list_sessions_rich(limit=10)
    elif chance < 0.3:  # noqa: PLR2004
        db.search_messages("kiwi", limit=3)
    elif chance < 0.33:  # noqa: PLR2004
        brief = f"brief-{own}-{number}"
        db.create_session(brief, "cli")
        db.append_message(brief, "user", f"{brief} will go")
        db.end_session(brief, "user_exit")


def writer(path: Path, diary: Path, name: str, threads: int, ends_at: Moment) -> None:
    """Write in several threads of one process."""
    kept = Diary(diary)
    try:
        with SessionDB(path) as db:
            db.create_session(SHARED, "cli")
            running = [
                threading.Thread(target=write, args=(db, kept, f"{name}.{number}", ends_at))
                for number in range(threads)
            ]
            for each in running:
                each.start()
            for each in running:
                each.join()
    except BaseException as error:  # noqa: BLE001 - as above
        kept.failed(error)


def keeper(path: Path, diary: Path, name: str, pause_s: float, ends_at: Moment) -> None:
    """Prune, vacuum or back up, again and again."""
    kept = Diary(diary)
    try:
        with SessionDB(path) as db:
            calls: dict[str, Callable[[], object]] = {
                "prune": lambda: db.prune_sessions(0),
                "vacuum": db.vacuum,
                "backup": lambda: db.backup(path.with_name("copy.db"), overwrite=True),
            }
            while time.monotonic() < ends_at.value:
                calls[name]()
                time.sleep(pause_s)
    except BaseException as error:  # noqa: BLE001 - as above
        kept.failed(error)


def run(folder: Path, processes: int, threads: int, seconds: float, seed: int) -> list[str]:
    """Let them all run for a while, kill some, and list what is wrong afterwards."""
    path, diaries = folder / "state.db", folder / "diaries"
    diaries.mkdir()
    SessionDB(path).close()
    # Without a lock: who is killed while it looks would keep it for ever.
    ends_at = _processes.Value("d", time.monotonic() + START_S, lock=False)
    draw = random.Random(seed)
    count = 0

    def start() -> multiprocessing.process.BaseProcess:
        nonlocal count
        count += 1
        process = _processes.Process(
            target=writer, args=(path, diaries / f"w{count}", f"w{count}", threads, ends_at)
        )
        process.start()
        return process

    writers = [start() for _ in range(processes)]
    expected = [diaries / f"w{number}" for number in range(1, processes + 1)]
    for diary in expected:
        diary.touch()
    keepers = [
        _processes.Process(target=keeper, args=(path, diaries / name, name, pause_s, ends_at))
        for name, pause_s in (("prune", 0.3), ("vacuum", 1.0), ("backup", 1.0))
    ]
    for each in keepers:
        each.start()
    # The time counts from when all have begun, which takes long on a busy machine.
    while not all(diary.stat().st_size for diary in expected) and time.monotonic() < ends_at.value:
        time.sleep(0.01)
    ends_at.value = time.monotonic() + seconds
    killed = 0
    while time.monotonic() < ends_at.value - 2 * KILL_EVERY_S:
        time.sleep(draw.uniform(0, 2 * KILL_EVERY_S))
        place = draw.randrange(processes)
        writers[place].kill()
        writers[place].join()
        killed += 1
        writers[place] = start()
    wrong = []
    for each in (*writers, *keepers):
        each.join(120)
        if each.exitcode != 0:
            wrong.append(f"a process ended with {each.exitcode}")
            each.kill()
    told = [
        line.split("\t", 3)
        for diary in sorted(diaries.iterdir())
        for line in diary.read_text().splitlines()
    ]
    wrong += [what for kind, _, _, what in told if kind == "failed"]
    stored = [(session_id, text) for kind, _, session_id, text in told if kind == "stored"]
    waits = sorted(float(took) for kind, took, _, _ in told if kind == "stored")
    wrong += judge(path, stored)
    p99, worst = (waits[int(len(waits) * 0.99)], waits[-1]) if waits else (0.0, 0.0)
    print(
        f"{processes:3} x {threads} writers, {killed:3} killed: {len(stored):6} messages, "
        f"{len(stored) / seconds:6.0f}/s; an append took {p99:.0f} ms at p99, {worst:.0f} ms at "
        f"worst; {'; '.join(wrong) or 'nothing lost, nothing double, all sound'}",
        flush=True,
    )
    return wrong


def judge(path: Path, stored: Sequence[tuple[str, str]]) -> list[str]:
    """List what is wrong with a store of which one knows what it must hold."""
    wrong = []
    with SessionDB(path) as db:
        wrong += db.check_search_index()
    if left := [each.name for each in path.parent.glob("state.db?*")]:
        wrong.append(f"left beside the store: {left}")
    raw = sqlite3.connect(path)
    for check, fine in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
        if (found := raw.execute(f"PRAGMA {check}").fetchall()) != fine:
            wrong.append(f"{check}: {found[:3]}")
    rows = raw.execute("SELECT session_id, content FROM messages ORDER BY id").fetchall()
    counted = raw.execute(
        "SELECT s.id, s.message_count, (SELECT count(*) FROM messages WHERE session_id = s.id) "
        "FROM sessions s"
    ).fetchall()
    raw.close()
    there = Counter(rows)
    if lost := [each for each in stored if each not in there]:
        wrong.append(f"{len(lost)} messages lost, such as {lost[0]}")
    if double := [each for each, times in there.items() if times > 1]:
        wrong.append(f"{len(double)} messages double, such as {double[0]}")
    if bad := [each for each in counted if each[1] != each[2]]:
        wrong.append(f"{len(bad)} counters wrong, such as {bad[0]}")
    order: dict[tuple[str, str], int] = {}
    for session_id, content in rows:
        who, _, rest = content.partition(" kiwi ")
        number = int(rest.split()[0]) if rest else 0
        if number < order.get((session_id, who), 0):
            wrong.append(f"{content!r} stands after a later one")
        order[session_id, who] = number
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the numbers of processes that were named, each on a new store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--long", action="store_true", help=f"{LONG} processes, {LONG_S:.0f} s each"
    )
    parser.add_argument("--processes", type=int, action="append", help="how many; may be repeated")
    parser.add_argument("--threads", type=int, default=2, help="in each process")
    parser.add_argument("--seconds", type=float, help="for each number of processes")
    parser.add_argument("--seed", type=int, default=1, help="draws who is killed, and when")
    options = parser.parse_args(arguments)
    seconds = options.seconds or (LONG_S if options.long else SHORT_S)
    wrong = []
    for processes in options.processes or (LONG if options.long else SHORT):
        with tempfile.TemporaryDirectory() as folder:
            wrong += run(Path(folder), processes, options.threads, seconds, options.seed)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
