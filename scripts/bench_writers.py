"""Measure how long writers of many processes wait for each other; part of bench.py.

Sixteen processes append as fast as they can, for some seconds each way, in turn: plain
`sqlite3` with its own busy handler; the store without its line, once as SQLite's handler lets
it wait and once with short random pauses instead; and the store as it is.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from sessionstore import SessionDB, StoreSettings

TEXT = "The quick brown fox jumps over the lazy dog, and 12 more words follow it here. " * 4

PATIENT = StoreSettings(write_patience_s=120.0)
SHORT = StoreSettings(
    write_patience_s=120.0, busy_timeout_s=0.0, retry_pause_s=(0.001, 0.010), write_min_attempts=1
)
KINDS = {
    "plain sqlite3": None,
    "store, SQLite's busy handler": PATIENT,
    "store, short random pauses": SHORT,
    "store": PATIENT,
}

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["sessionstore"])


@contextmanager
def appending(path: Path, kind: str) -> Iterator[Callable[[], object]]:
    """Open a store one way or another, and give what appends one message to it."""
    from bench import append_by_hand, plain_connection

    settings = KINDS[kind]
    if settings is None:
        with plain_connection(path, timeout_s=120.0) as plain:
            yield lambda: append_by_hand(plain, TEXT)
        return
    with SessionDB(path, settings=settings) as db:
        if kind != "store":
            db._database.queue._aside = True  # noqa: SLF001 - there is no other use for it
        yield lambda: db.append_message("s", "user", TEXT)


def write(link: Connection, path: Path, kind: str, seconds: float, pause_s: float) -> None:
    """Append until the time is over, and say how long each took."""
    draw = random.Random()
    took: list[float] = []
    with appending(path, kind) as append:
        link.send("ready")
        link.recv()
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            if pause_s:
                time.sleep(draw.uniform(0, 2 * pause_s))
            began = time.perf_counter()
            append()
            took.append(time.perf_counter() - began)
    link.send(took)


def together(kind: str, writers: int, seconds: float, pause_s: float) -> list[float]:
    """Let so many processes write to a new store at once; give all their times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        with SessionDB(path) as db:
            db.create_session("s", "cli")
        running = []
        for _ in range(writers):
            ours, theirs = _processes.Pipe()
            process = _processes.Process(
                target=write, args=(theirs, path, kind, seconds, pause_s), daemon=True
            )
            process.start()
            running.append((ours, process))
        for link, _ in running:
            link.recv()
        for link, _ in running:
            link.send("go")
        took = [each for link, _ in running for each in link.recv()]
        for _, process in running:
            process.join()
        return took


def main(arguments: Sequence[str] | None = None) -> int:
    """Let them write each way in turn, some rounds, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0, help="each way, in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.0, help="mean pause of a writer, seconds")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    options = parser.parse_args(arguments)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            times[kind] += together(kind, options.writers, options.seconds, options.pause)
    seconds = options.seconds * options.rounds
    print(f"{options.writers} writers{'':20}{'appends/s':>12}{'p50':>11}{'p99':>11}{'worst':>11}")
    for kind, took in times.items():
        took.sort()
        shown = (took[len(took) // 2], took[int(len(took) * 0.99)], took[-1])
        cells = "".join(f"{each * 1000:8.1f} ms" for each in shown)
        print(f"{kind:30}{len(took) / seconds:12.0f}{cells}")
    plain, store = times["plain sqlite3"], times["store"]
    worst, rate = store[-1] / plain[-1], len(store) / len(plain)
    met = worst <= 0.1 and rate >= 1.0  # noqa: PLR2004 - the targets, printed below
    wanted = f" (at most 0.1x, at least 1x): {'met' if met else 'MISSED'}"
    print(
        f"of plain sqlite3: worst wait {worst:.2f}x, appends {rate:.2f}x"
        f"{'' if options.pause else wanted}"  # who seldom writes seldom waits
    )
    return int(options.check and not met and not options.pause)


if __name__ == "__main__":
    sys.exit(main())
