"""One byte of the file is another: a right answer, a typed error, or doctor knows.

There is no checksum in the file, so within a text another letter is another letter. What has
to hold: nothing but the store's own errors comes out, and where messages are missing, doubled
or out of order without an error, `doctor` says that something is wrong.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from damage_helpers import PAGE, everything, fill, mostly_slow

from sessionstore import SessionDB, SessionStoreError
from sessionstore.cli import main

EACH = 15


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[dict[str, Any]]]:
    """A store of few messages with every kind of page, and what is in it."""
    path = tmp_path_factory.mktemp("small") / "state.db"
    fill(path, sessions=11, messages=9)
    return path.read_bytes(), everything(path)


def flip(content: bytearray, draw: random.Random, page: int) -> tuple[int, int]:
    """Flip a bit of a page, as often as not where the page says what is on it."""
    at = draw.choice((draw.randrange(64), draw.randrange(PAGE)))
    bit = 1 << draw.randrange(8)
    content[page * PAGE + at] ^= bit
    return at, bit


def told(error: SessionStoreError) -> SessionStoreError:
    """One sentence, on one line."""
    assert str(error)
    assert "\n" not in str(error)
    return error


def ask(path: Path, name: str, ids: list[str]) -> Any:
    """Ask a store one thing; give the answer, or the error if it is the store's own."""
    try:
        with SessionDB(path, read_only=True) as db:
            if name == "messages":
                return {
                    each: [row["id"] for row in db.get_messages(each, include_inactive=True)]
                    for each in ids
                }
            if name == "list":
                return sorted(each["id"] for each in db.search_sessions(limit=99))
            if name == "export":
                return [
                    (each["id"], [m["id"] for m in each["messages"]]) for each in db.export_all()
                ]
            return sorted(hit["id"] for hit in db.search_messages("quokka", limit=999))
    except SessionStoreError as error:
        return told(error)


def doctor_is_content(path: Path) -> bool:
    result = CliRunner().invoke(main, ["--db", str(path), "doctor", "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.stdout.startswith("{"):
        return json.loads(result.stdout)["ok"]
    return result.exit_code == 0


ASKED = ("messages", "list", "export", "search")


@pytest.mark.parametrize("part", mostly_slow(range(134), range(3)))
def test_a_flipped_bit_is_an_error_or_known_to_doctor_or_within_a_text(small, path, part):
    content, truth = small
    ids = [each["id"] for each in truth]
    path.write_bytes(content)
    right = {name: ask(path, name, ids) for name in ASKED}
    draw = random.Random(part)
    pages = len(content) // PAGE
    unseen = []
    for number in range(EACH):
        page = (part * EACH + number) * 7 % pages if part else draw.randrange(pages)
        damaged = bytearray(content)
        where = flip(damaged, draw, page)
        path.write_bytes(damaged)
        os.utime(path, (1, 1))  # long ago, so that no reading waits for the clock's next tick
        found = {name: ask(path, name, ids) for name in ASKED}
        wrong = {
            name: answer
            for name, answer in found.items()
            if answer != right[name] and not isinstance(answer, SessionStoreError)
        }
        if wrong and doctor_is_content(path) and not within_a_text(found, right):
            unseen.append((page + 1, *where, wrong))
    assert unseen == []


def within_a_text(found: dict[str, Any], right: dict[str, Any]) -> bool:
    """Say whether all rows are there, and only what they say is another."""
    same = {name: found[name] == right[name] for name in ASKED}
    return same["messages"] and same["list"] and same["export"]


@pytest.mark.parametrize("part", mostly_slow(range(20), [0]))
def test_writing_to_a_file_with_a_flipped_bit_is_an_error_or_stored(small, path, part):
    content, _ = small
    draw = random.Random(1000 + part)
    for _ in range(EACH // 3):
        damaged = bytearray(content)
        flip(damaged, draw, draw.randrange(len(content) // PAGE))
        path.write_bytes(damaged)
        try:
            with SessionDB(path) as db:
                said = db.append_message("s00", "user", "kumquat")
                assert said in [row["id"] for row in db.get_messages("s00")]
        except SessionStoreError as error:
            told(error)
        for side in ("-wal", "-shm"):
            Path(f"{path}{side}").unlink(missing_ok=True)
