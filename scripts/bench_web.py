"""Measure the pages of a large store, and whether a writer notices them; part of bench.py.

    python scripts/bench.py web --check
    python scripts/bench.py web --file /a/store/that/may/be/written/to.db

A server is started as the command starts it. A page's time is what the processor worked on it
in the server (Linux only), since the machine has other things to do; what passed by the clock
stands beside it. Then one writer appends as fast as it can, in turn alone and while ten pages
reload, each once in so many seconds. A store that is named is topped up to as many sessions.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from bench_search import Corpus

from sessionstore import SessionDB

PAGES = 10
_TICKS = os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A running server."""

    process: subprocess.Popen[str]
    port: int
    cookie: str

    def ask(self, path: str) -> bytes:
        """Ask for one page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("GET", path, headers={"cookie": self.cookie})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status}")
        return body

    def worked_s(self) -> float:
        """Say for how long the processor has worked for the server so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def serving(path: Path) -> Iterator[Served]:
    """Start the command, and be let in."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sessionstore", "serve", "--db", path, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 - it was asked for
    address = urlsplit(process.stdout.readline().strip())
    try:
        connection = http.client.HTTPConnection("127.0.0.1", address.port or 0)
        connection.request("GET", f"/?{address.query}")
        cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
        connection.close()
        yield Served(process, address.port or 0, cookie)
    finally:
        process.terminate()
        process.communicate()


def fill(path: Path, sessions: int, messages: int) -> None:
    """Make sure that the store has as many sessions, and if it is new, as many messages."""
    corpus = Corpus()
    lots = random.Random(3)
    with SessionDB(path) as db:
        there = db.session_count()
        each = max(1, messages // sessions) if there == 0 else 1
        for number in range(there, sessions):
            name = f"filled-{number}"
            at = 1_700_000_000.0 + 900 * number
            db.create_session(name, lots.choice(("cli", "chat", "cron")), model="m", started_at=at)
            db.append_messages(
                name,
                [
                    {
                        "role": ("user", "assistant", "tool")[turn % 3],
                        "content": corpus.text(number * each + turn),
                        "timestamp": at + turn,
                    }
                    for turn in range(each)
                ],
            )
            db.update_token_counts(name, input_tokens=lots.randint(1, 90_000), output_tokens=900)


def times(served: Served, paths: Sequence[str], *, rounds: int) -> tuple[float, float, float]:
    """Give what a page of these takes: processor, clock in the middle, clock at worst, in ms."""
    for path in paths:  # what the system has not read yet is no page's fault
        served.ask(path)
    clock = []
    before = served.worked_s()
    for _ in range(rounds):
        for path in paths:
            began = time.perf_counter()
            served.ask(path)
            clock.append((time.perf_counter() - began) * 1000)
    worked = (served.worked_s() - before) * 1000 / len(clock)
    return worked, statistics.median(clock), max(clock)


def appends_a_second(path: Path, seconds: float) -> float:
    """Append as fast as one writer can."""
    with SessionDB(path) as db:
        db.create_session("writer", "bench")
        ends = time.monotonic() + seconds
        count = 0
        while time.monotonic() < ends:
            db.append_message("writer", "user", "The quick brown fox jumps. " * 12)
            count += 1
    return count / seconds


@contextmanager
def reloading(served: Served, every_s: float) -> Iterator[None]:
    """Have ten pages reload, each once in so many seconds, from now to the end."""
    over = threading.Event()

    def reload(number: int) -> None:
        path = ("/", "/session?id=writer&from=end", "/statistics")[number % 3]
        over.wait(every_s * number / PAGES)
        while not over.is_set():
            served.ask(path)
            over.wait(every_s)

    threads = [threading.Thread(target=reload, args=(number,)) for number in range(PAGES)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--file", type=Path, help="measure this store; it is written to")
    parser.add_argument("--seconds", type=float, default=3.0, help="of appending, each time")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between reloads")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "state.db"
        fill(path, options.sessions, options.messages)
        with SessionDB(path, read_only=True) as db:
            long = max(db.search_sessions(limit=50), key=lambda each: each["message_count"])["id"]
        met = _pages(path, long) & _writer(path, options.seconds, options.every)
    return int(options.check and not met)


def _pages(path: Path, long: str) -> bool:
    corpus = Corpus()
    words = [*corpus.latin[10:4000:800], *corpus.chinese[10:4000:800], "conf.item", "café"]
    told: list[tuple[str, list[str], int, float | None]] = [
        ("the first page", ["/"], 20, 200.0),
        ("search", [f"/search?q={quote(each)}" for each in words], 2, 300.0),
        ("a conversation", [f"/session?id={quote(long)}"], 10, None),
        ("statistics", ["/statistics"], 5, None),
    ]
    met = True
    print(f"{'':20}{'processor':>12}{'clock':>12}{'worst':>12}  target")
    with serving(path) as served:
        for name, paths, rounds, most in told:
            worked, middle, worst = times(served, paths, rounds=rounds)
            verdict = ""
            if most is not None:
                met &= worked <= most
                verdict = f"  at most {most:.0f} ms: {'met' if worked <= most else 'MISSED'}"
            print(f"{name:20}{worked:9.1f} ms{middle:9.1f} ms{worst:9.1f} ms{verdict}")
        began = time.perf_counter()
        counting = threading.Thread(target=served.ask, args=("/statistics/file",))
        counting.start()
        beside = times(served, ["/"], rounds=5)[1]
        counting.join()
        took = time.perf_counter() - began
        print(f"the parts of the file: {took:.1f} s; the first page meanwhile {beside:.1f} ms")
    return met


def _writer(path: Path, seconds: float, every_s: float) -> bool:
    alone: list[float] = []
    beside: list[float] = []
    with serving(path) as served:
        appends_a_second(path, 0.5)
        for _ in range(3):
            alone.append(appends_a_second(path, seconds))
            with reloading(served, every_s):
                beside.append(appends_a_second(path, seconds))
    ratio = statistics.median(beside) / statistics.median(alone)
    wanted = 0.8
    print(
        f"appends: {statistics.median(alone):.0f}/s alone, {statistics.median(beside):.0f}/s while "
        f"{PAGES} pages reload every {every_s:g} s: {ratio:.2f}x "
        f"(at least {wanted:g}x): {'met' if ratio >= wanted else 'MISSED'}"
    )
    return ratio >= wanted


if __name__ == "__main__":
    sys.exit(main())
