"""Stores to damage, and ways to damage them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB, StoreSettings, schema
from sessionstore.engine import open_database
from sessionstore.location import locate

PAGE = 4096
THEN = 1_750_000_000.0
HERMES = Path(__file__).parents[1] / "data" / "hermes"


def mostly_slow(values: Iterable[Any], quick: Sequence[Any]) -> list[Any]:
    """Parameters of which only some run without `--slow`."""
    return [
        pytest.param(
            *(each if isinstance(each, tuple) else (each,)),
            marks=[] if each in quick else [pytest.mark.slow],
        )
        for each in values
    ]


def fill(path: Path, sessions: int = 12, messages: int = 40) -> None:
    """Put in one of everything, over many pages: chains, states, long texts, prompts, routes."""
    with SessionDB(path, settings=StoreSettings(clock=lambda: THEN)) as db:
        for number in range(sessions):
            name = f"s{number:02d}"
            parent = {"parent_session_id": "s00", "relation": "subagent"} if number == 3 else {}
            db.create_session(
                name,
                "cli",
                title=f"Title {number}",
                model="m",
                system_prompt=f"Be brief {number % 3}",
                started_at=THEN + number,
                **parent,
            )
            db.append_messages(
                name,
                [
                    {
                        "role": "user" if each % 2 else "assistant",
                        "content": f"quokka {number} {each} 网络 " + "word " * (each * 7 % 60),
                        "tool_calls": [{"id": f"c{each}"}] if each % 8 == 0 else None,
                        "timestamp": THEN + number + each / 100,
                    }
                    for each in range(messages)
                ],
            )
            db.update_token_counts(name, input_tokens=10 + number, actual_cost_usd=0.5)
        db.append_message("s01", "tool", "long " * 20_000, tool_name="terminal")
        db.append_message("s01", "assistant", [{"type": "text", "text": "half \ud83d a pair"}])
        db.archive_and_compact("s02", [{"role": "user", "content": "a summary"}])
        first = next(each for each in db.get_messages("s04", last=4) if each["role"] == "user")
        db.rewind_to_message("s04", first["id"])
        db.set_session_archived("s05", True)
        db.set_session_pinned("s06", True)
        db.end_session("s07", "done")
        db.set_meta("key", "value")
        db.save_gateway_route("scope", "chat", {"to": 1})
        db.add_delivery("s08", "chat", {"text": "owed"}, delivery_id="d1")
        # Ids that were given once are not given again.
        db.append_message("s09", "user", "goes again")
        db.delete_session("s09")


def at_revision(path: Path, revision: str) -> None:
    """Make a file of an earlier revision, with rows by plain SQL."""
    opened = open_database(locate(path), StoreSettings())
    schema.upgrade(opened, StoreSettings(), to=revision)
    opened.close()
    with by_hand(path) as raw:
        for number in range(3):
            raw.execute(
                "INSERT INTO sessions(id, source, started_at, message_count, system_prompt) "
                "VALUES (?, 'cli', ?, 99, 'Be brief')",
                (f"s{number}", THEN + number),
            )
            raw.executemany(
                "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
                [
                    (f"s{number}", "user", f"quokka {each} " + "x" * 700, THEN + each)
                    for each in range(20)
                ],
            )
        marked = "reasoning = char(0) || 'json:[1]'" if revision < "0013" else "role = role"
        if revision >= "0006":
            raw.execute(f"UPDATE messages SET {marked} WHERE id = 2")


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection that commits at the end."""
    with closing(sqlite3.connect(path)) as raw:
        yield raw
        raw.commit()


def root_of(path: Path, name: str) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as raw:
        return raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[
            0
        ]


def pages_of(path: Path, name: str) -> list[int]:
    """The pages of a table or an index, by SQLite's own table of them or else by its tree."""
    content = path.read_bytes()

    def below(number: int) -> Iterator[int]:
        yield number
        at = (number - 1) * PAGE
        start = at + (100 if number == 1 else 0)
        if content[start] in (2, 5):
            cells = int.from_bytes(content[start + 3 : start + 5])
            for cell in range(cells):
                pointer = int.from_bytes(content[start + 12 + 2 * cell : start + 14 + 2 * cell])
                yield from below(int.from_bytes(content[at + pointer : at + pointer + 4]))
            yield from below(int.from_bytes(content[start + 8 : start + 12]))

    return list(below(root_of(path, name)))


def change(path: Path, how: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    how(content)
    path.write_bytes(content)


def wipe(path: Path, *pages: int, byte: bytes = b"\0") -> None:
    """Overwrite whole pages."""

    def over(content: bytearray) -> None:
        for number in pages:
            content[(number - 1) * PAGE : number * PAGE] = byte * PAGE

    change(path, over)


DERIVED = ("message_count", "tool_call_count", "last_active_at")


def everything(path: Path) -> list[dict[str, Any]]:
    """All sessions and messages, but for what is derived of them."""
    with SessionDB(path) as db:
        return [
            {name: value for name, value in each.items() if name not in DERIVED}
            for each in db.export_all()
        ]


def messages_of(sessions: Sequence[dict[str, Any]]) -> dict[int, Any]:
    return {row["id"]: row for each in sessions for row in each["messages"]}
