"""Measure the store against plain `sqlite3` that does the same work, in one run.

    python scripts/bench.py append load open
    python scripts/bench.py --check append
    python scripts/bench.py search --messages 100000
    python scripts/bench.py writers --pause 0.1
    python scripts/bench.py peers
    python scripts/bench.py web

Times on a shared machine mean little, ratios of medians a good deal: the store and the plain
code take turns, call by call, on files of the same shape, with the same triggers, pragmas and
transactions. With `--check` a missed target makes the exit code 1. What has a file of its own,
as bench_search.py, has arguments of its own too, and is not among the default ones.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sessionstore import SessionDB

TEXT = "The quick brown fox jumps over the lazy dog, and 12 more words follow it here. " * 4


class Line(NamedTuple):
    """One result: what was measured, both medians in ms, the ratio, and what is wanted of it."""

    what: str
    store_ms: float
    plain_ms: float
    target: str = ""
    met: bool = True

    @property
    def ratio(self) -> float:
        """How many times as long as plain `sqlite3` the store takes."""
        return self.store_ms / self.plain_ms


@contextmanager
def plain_connection(path: Path, *, timeout_s: float = 1.0) -> Iterator[sqlite3.Connection]:
    """Open a file as the store does, without the store."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=timeout_s)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_size_limit = 8388608")
    yield connection
    connection.close()


def in_turn(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Call each in turn, so many rounds, and give their medians in milliseconds."""
    took: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for call, times in zip(calls, took, strict=True):
                began = time.perf_counter()
                call()
                times.append(time.perf_counter() - began)
    finally:
        gc.enable()
    return [statistics.median(times) * 1000 for times in took]


def at_most(limit: float, what: str, store_ms: float, plain_ms: float) -> Line:
    """Make a line whose ratio must not be above a limit."""
    return Line(what, store_ms, plain_ms, f"at most {limit}x", store_ms <= limit * plain_ms)


def message(number: int) -> dict[str, Any]:
    """Make a message as agents have them: a fifth calls tools, another fifth answers."""
    kind = number % 5
    if kind == 1:
        calls = [{"id": f"c{number}", "function": {"name": "run", "arguments": '{"cmd": "ls"}'}}]
        return {"role": "assistant", "content": None, "tool_calls": calls, "reasoning": TEXT[:200]}
    if kind == 2:  # noqa: PLR2004 - the one after the call
        return {"role": "tool", "content": TEXT, "tool_call_id": f"c{number - 1}"}
    return {"role": "user" if kind == 0 else "assistant", "content": f"{number} {TEXT}"}


def append_by_hand(plain: sqlite3.Connection, text: str) -> None:
    """Do what the store does to append a message to the session `s`."""
    plain.execute("BEGIN IMMEDIATE")
    plain.execute(
        "UPDATE sessions SET message_count = coalesce(message_count, 0) + 1, "
        "tool_call_count = coalesce(tool_call_count, 0) + 0 WHERE id = ?",
        ("s",),
    )
    plain.execute(
        "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
        ("s", "user", text, time.time()),
    )
    plain.execute("COMMIT")


def bench_append(folder: Path) -> list[Line]:
    """Append messages, one transaction each; and 500 in one call against 500 calls."""
    for name in ("store", "plain"):
        with SessionDB(folder / f"{name}.db") as db:
            db.create_session("s", "cli")
    with SessionDB(folder / "store.db") as db, plain_connection(folder / "plain.db") as plain:

        def by_store() -> None:
            db.append_message("s", "user", TEXT)

        def by_hand() -> None:
            append_by_hand(plain, TEXT)

        store_ms, plain_ms = in_turn(1000, by_store, by_hand)
        batch = [message(number) for number in range(500)]
        batch_ms, *_ = in_turn(5, lambda: db.append_messages("s", batch))
    each_ms = batch_ms / len(batch)
    return [
        at_most(1.5, "append, per message", store_ms, plain_ms),
        at_most(1.0, "append 500 in one call, per message", each_ms, store_ms),
    ]


def bench_load(folder: Path) -> list[Line]:
    """Load a conversation of 2,000 messages."""
    path = folder / "load.db"
    with SessionDB(path) as db, plain_connection(path) as plain:
        db.create_session("s", "cli")
        db.append_messages("s", [message(number) for number in range(2000)])
        columns = [row[1] for row in plain.execute("PRAGMA table_info(messages)")]
        query = f"SELECT {', '.join(columns)} FROM messages WHERE session_id = ? ORDER BY id"

        def as_tuples() -> None:
            plain.execute(query, ("s",)).fetchall()

        def as_dicts() -> None:
            for row in plain.execute(query, ("s",)):
                record = dict(zip(columns, row, strict=True))
                for name in ("tool_calls", "reasoning_details"):
                    if record[name] is not None:
                        record[name] = json.loads(record[name])

        store_ms, given_ms, tuples_ms, dicts_ms = in_turn(
            40,
            lambda: db.get_messages("s"),
            lambda: db.get_messages_as_conversation("s"),
            as_tuples,
            as_dicts,
        )
    return [
        at_most(2.0, "load 2,000 messages, against bare tuples", store_ms, tuples_ms),
        Line("… against dicts with JSON read", store_ms, dicts_ms),
        at_most(2.0, "… as a conversation, against tuples", given_ms, tuples_ms),
    ]


def bench_open(folder: Path) -> list[Line]:
    """Open a store that is up to date, ask one thing, close it."""
    path = folder / "open.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    with tempfile.TemporaryDirectory() as elsewhere:
        # Walking the history has loaded Alembic here; what counts is an interpreter without it.
        settled = Path(elsewhere) / "open.db"
        shutil.copy(path, settled)
        for name in [name for name in sys.modules if name.partition(".")[0] == "alembic"]:
            del sys.modules[name]

        def by_store() -> None:
            with SessionDB(settled) as db:
                db.session_count()

        def by_hand() -> None:
            with plain_connection(settled) as plain:
                plain.execute("SELECT count(*) FROM sessions").fetchone()

        store_ms, plain_ms = in_turn(60, by_store, by_hand)
    limit_ms = 25.0
    loaded = "alembic" in sys.modules
    return [
        Line(
            "open, count and close" + (", Alembic loaded" if loaded else ""),
            store_ms,
            plain_ms,
            f"at most {limit_ms:.0f} ms, without Alembic",
            store_ms <= limit_ms and not loaded,
        )
    ]


BENCHES: dict[str, Callable[[Path], list[Line]]] = {
    "append": bench_append,
    "load": bench_load,
    "open": bench_open,
}


# What is measured by a file of its own, bench_NAME.py.
APART = ("peers", "search", "server", "web", "writers")


def show(lines: Sequence[Line], *, check: bool) -> int:
    """Print a table, and give the exit code."""
    print(f"{'':42}{'store':>10}{'plain':>10}{'ratio':>8}  target")
    for line in lines:
        verdict = "" if not line.target else ": met" if line.met else ": MISSED"
        print(
            f"{line.what:42}{line.store_ms:7.3f} ms{line.plain_ms:7.3f} ms"
            f"{line.ratio:7.2f}x  {line.target}{verdict}"
        )
    return int(check and not all(line.met for line in lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benches that were named, all of this file if none was, and print a table."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given and given[0] in APART:
        # This file under its name, so that what it defines is defined once.
        sys.modules["bench"] = sys.modules[__name__]
        apart = importlib.import_module(f"bench_{given[0]}")
        return int(apart.main(given[1:]))
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"By itself, with arguments of its own: {', '.join(APART)}.",
    )
    parser.add_argument("benches", nargs="*", metavar="|".join(BENCHES), help="default: all three")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    options = parser.parse_args(given)
    if unknown := set(options.benches) - set(BENCHES):
        parser.error(f"there is no bench {', '.join(sorted(unknown))}")
    lines: list[Line] = []
    for name in options.benches or BENCHES:
        with tempfile.TemporaryDirectory() as folder:
            lines += BENCHES[name](Path(folder))
    return show(lines, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
