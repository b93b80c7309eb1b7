"""What stands where the store should be is damaged, or something else: it is said, and kept."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from damage_helpers import (
    by_hand,
    change,
    everything,
    messages_of,
    mostly_slow,
    pages_of,
    wipe,
)

from sessionstore import SessionDB, SessionStoreError, StoreUnavailableError
from sessionstore.cli import main


def command(path: Path, *arguments: str, columns: int = 100) -> Result:
    result = CliRunner().invoke(
        main, ["--db", str(path), *arguments], env={"COLUMNS": str(columns)}
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def findings(path: Path) -> dict[str, Any]:
    told = json.loads(command(path, "doctor", "--json").stdout)
    return {each["subject"]: each for each in told["findings"]}


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link_to(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return make


def cut(part: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * part))


NO_STORE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a text": (lambda path: path.write_text("hello\n" * 2000), "not a SQLite database"),
    "a short text": (lambda path: path.write_text("hello"), "not a SQLite database"),
    "zeros": (lambda path: path.write_bytes(bytes(9000)), "not a SQLite database"),
    "a damaged header": (lambda path: change(path, _garble), "recover"),
    "a folder": (a_folder, "is a folder"),
    "a link to itself": (a_link_to("state.db"), "cannot"),
    "another format": (lambda path: path.write_bytes(b"\x1f\x8b" + bytes(5000)), "not a SQLite"),
}


def _garble(content: bytearray) -> None:
    content[:100] = random.Random(1).randbytes(100)


@pytest.mark.parametrize("kind", NO_STORE)
def test_what_is_no_store_is_refused_in_one_sentence_and_kept(filled: Path, kind: str):
    make, said = NO_STORE[kind]
    make(filled)
    before = filled.read_bytes() if filled.is_file() else None
    for options in ({}, {"read_only": True}, {"migrate": False}):
        with pytest.raises(SessionStoreError) as caught:
            SessionDB(filled, **options)
        assert "\n" not in str(caught.value)
        if kind != "a link to itself" or not options:
            assert said in str(caught.value)
    for arguments in (["list"], ["doctor"], ["doctor", "--fix"], ["export"], ["stats"]):
        result = command(filled, *arguments)
        assert result.exit_code == 1
        assert "Traceback" not in result.output
    assert (filled.read_bytes() if filled.is_file() else None) == before
    assert [each.name for each in filled.parent.iterdir()] == ["state.db"]


def test_doctor_says_once_what_is_no_database_and_keeps_to_60_columns(filled: Path):
    filled.write_text("hello\n" * 2000)
    said = command(filled, "doctor", columns=60).stdout
    assert said.count("not a SQLite database") == 1
    lines = [line for line in said.splitlines() if str(filled) not in line]
    assert max(map(len, lines)) <= 60
    assert "sessionstore recover" in " ".join(said.split())


def test_an_empty_file_is_a_store_to_be(path: Path):
    path.touch()
    with pytest.raises(SessionStoreError):
        SessionDB(path, read_only=True)
    assert command(path, "list").exit_code == 1
    assert path.stat().st_size == 0
    with SessionDB(path) as db:
        assert db.session_count() == 0


def test_a_link_to_nothing_yet_makes_the_store_where_it_points(tmp_path: Path):
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real.db")
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        SessionDB(link, read_only=True)
    with SessionDB(link) as db:
        db.create_session("s", "cli")
    assert (tmp_path / "real.db").is_file()
    assert link.is_symlink()


@pytest.mark.parametrize("part", [0.9, 0.5, 0.1])
def test_a_cut_file_is_never_taken_for_a_whole_one(filled: Path, part: float):
    cut(part)(filled)
    assert findings(filled)["file"]["state"] == "wrong"
    assert "recover" in json.dumps(findings(filled)["file"])
    with pytest.raises(StoreUnavailableError, match="damaged"), SessionDB(filled) as db:
        db.export_all()
    assert command(filled, "backup", str(filled.with_name("copy.db"))).exit_code == 1
    assert not filled.with_name("copy.db").exists()


@pytest.mark.parametrize("table", ["messages", "sessions", "ix_messages_session_id_active_id"])
@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_a_damaged_page_is_an_error_and_not_an_empty_answer(filled: Path, truth, table, byte):
    wipe(filled, *pages_of(filled, table), byte=byte)
    refused = 0
    with contextlib.suppress(StoreUnavailableError), SessionDB(filled, read_only=True) as db:
        for each in truth:
            try:
                assert db.get_session(each["id"])["title"] == each["title"]
                found = db.get_messages(each["id"], include_inactive=True)
            except StoreUnavailableError as error:
                refused += 1
                assert "recover" in str(error)  # noqa: PT017 - some sessions are read, some not
            else:
                assert [row["id"] for row in found] == [row["id"] for row in each["messages"]]
        assert refused or table.startswith("ix_")
    assert "WRONG  file" in command(filled, "doctor").stdout
    # What was stored is never changed to look sound.
    before = filled.read_bytes()
    command(filled, "doctor", "--fix")
    assert filled.read_bytes() == before


SHADOWS = [
    "messages_fts_docsize",
    *(
        f"{table}_{part}"
        for table in ("messages_fts", "messages_fts_trigram")
        for part in ("data", "idx", "config")
    ),
]


@pytest.mark.parametrize(
    ("how", "shadow"),
    mostly_slow(
        itertools.product(("DROP TABLE", "DELETE FROM"), SHADOWS),
        # The last is one that the check of FTS5 itself does not see.
        [
            ("DROP TABLE", "messages_fts_docsize"),
            ("DROP TABLE", "messages_fts_trigram_data"),
            ("DELETE FROM", "messages_fts_trigram_idx"),
        ],
    ),
)
def test_a_part_of_the_search_index_is_gone_and_doctor_makes_it_anew(filled, truth, shadow, how):
    with SessionDB(filled, read_only=True) as db:
        found_before = len(db.search_messages("quokka", limit=999))
    assert found_before > 400
    with by_hand(filled) as raw:
        raw.execute(f"{how} {shadow}")
    with SessionDB(filled) as db:
        assert db.append_message("s00", "user", "kumquat")
        assert len(db.get_messages("s00")) == 41
    if not (how == "DELETE FROM" and shadow.endswith("config")):  # its version has a default
        assert findings(filled)["search index"]["state"] == "wrong"
    result = command(filled, "doctor", "--fix")
    assert result.exit_code == 0, result.output
    assert findings(filled)["search index"]["state"] == "ok"
    with SessionDB(filled) as db:
        assert len(db.search_messages("kumquat")) == 1
        assert len(db.search_messages("quokka", limit=999)) == found_before
    rest = messages_of(everything(filled))
    assert {key: rest[key] for key in messages_of(truth)} == messages_of(truth)


@pytest.fixture
def beside(filled: Path, tmp_path: Path) -> Path:
    """A file with a message in its log only, as a copy of the two."""
    folder = tmp_path / "copied"
    folder.mkdir()
    with SessionDB(filled) as db:
        db.append_message("s00", "user", "kumquat")
        for each in ("state.db", "state.db-wal"):
            shutil.copy(filled.with_name(each), folder / each)
    return folder / "state.db"


def newest(path: Path, **options: bool) -> str:
    with SessionDB(path, **options) as db:
        return db.get_messages("s00", last=1)[0]["content"][:7]


@pytest.mark.parametrize("read_only", [False, True])
def test_the_log_counts_if_it_is_there(beside: Path, read_only: bool):
    assert newest(beside, read_only=read_only) == "kumquat"


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("spoilt", ["absent", "empty", "a part of its header", "cut", "garbage"])
def test_a_log_that_is_lost_or_spoilt_leaves_the_state_before(beside, read_only, spoilt):
    log = Path(f"{beside}-wal")
    content = log.read_bytes()
    if spoilt == "absent":
        log.unlink()
    else:
        log.write_bytes(
            {
                "empty": b"",
                "a part of its header": content[:20],
                "cut": content[: len(content) - 5],
                "garbage": b"\xff" * len(content),
            }[spoilt]
        )
    assert newest(beside, read_only=read_only) == "quokka "


def test_garbage_for_a_shm_is_made_anew(beside: Path):
    Path(f"{beside}-shm").write_bytes(random.Random(3).randbytes(32768))
    assert newest(beside) == "kumquat"
    assert "WRONG" not in command(beside, "doctor").stdout


def test_a_journal_that_was_left_over_is_undone(filled: Path, truth):
    with by_hand(filled) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(filled, isolation_level=None)) as raw:
        raw.execute("PRAGMA cache_size = 2")
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("UPDATE messages SET content = 'half done'")
        for each in ("state.db", "state.db-journal"):
            shutil.copy(filled.with_name(each), filled.with_name(f"left-{each}"))
        raw.execute("ROLLBACK")
    left = filled.with_name("left-state.db")
    with pytest.raises(StoreUnavailableError, match="killed while it wrote"):
        SessionDB(left, read_only=True)
    assert everything(left) == truth


@pytest.mark.parametrize("size", [1, 28, 512, 5000])
def test_a_journal_of_nonsense_harms_nothing(filled: Path, truth, size: int):
    Path(f"{filled}-journal").write_bytes(random.Random(size).randbytes(size))
    assert everything(filled) == truth


def test_bytes_and_broken_json_in_rows_cost_no_neighbour(filled: Path, truth):
    with by_hand(filled) as raw:
        raw.execute("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = 1")
        raw.execute("UPDATE messages SET tool_calls = '[1, ' WHERE id = 9")
        raw.execute("UPDATE messages SET reasoning_details = x'ff00' WHERE id = 2")
    after = messages_of(everything(filled))
    before = messages_of(truth)
    assert after[1]["content"] == "a\ufffdb"
    assert {key: row for key, row in after.items() if key not in (1, 2, 9)} == {
        key: row for key, row in before.items() if key not in (1, 2, 9)
    }


@pytest.mark.parametrize("name", [b"messages_se`\xf4ch", b"messages_se`rch"])
def test_a_damaged_name_in_the_schema_is_said_in_one_line(filled: Path, truth, name: bytes):
    change(filled, lambda content: content.__setitem__(slice(None), _renamed(content, name)))
    for options in ({}, {"read_only": True}):
        with pytest.raises(StoreUnavailableError, match="recover") as caught:
            SessionDB(filled, **options)
        assert "\n" not in str(caught.value)
    assert "WRONG  file" in command(filled, "doctor").stdout
    saved = filled.with_name("saved.db")
    assert command(filled, "recover", str(filled), "-o", str(saved)).exit_code == 0
    assert everything(saved) == truth


def _renamed(content: bytearray, name: bytes) -> bytes:
    made = b"CREATE VIEW "
    assert made + b"messages_search" in content
    return bytes(content).replace(made + b"messages_search", made + name)


def test_an_index_that_names_a_session_that_is_not_there_is_an_error(filled: Path):
    (page,) = pages_of(filled, "sessions")

    def renumber(content: bytearray) -> None:
        # The first cell: its length in two bytes, then the number of its row.
        at = (page - 1) * 4096
        cell = at + int.from_bytes(content[at + 8 : at + 10])
        assert content[cell + 2] == 1
        content[cell + 2] = 0x7F

    change(filled, renumber)
    with SessionDB(filled, read_only=True) as db:
        for call in (db.search_sessions, db.list_sessions_rich):
            with pytest.raises(StoreUnavailableError, match="recover"):
                call()


@pytest.mark.parametrize("held", ["CAST(x'61ff62' AS TEXT)", "x'80ff41'"])
def test_a_session_whose_id_is_no_text_is_exported_and_can_be_imported(filled, truth, held):
    with by_hand(filled) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for table, column in (
            ("sessions", "id"),
            ("messages", "session_id"),
            ("session_model_usage", "session_id"),
        ):
            raw.execute(f"UPDATE {table} SET {column} = {held} WHERE {column} = 's08'")
    target, imported = filled.with_name("talks.jsonl"), filled.with_name("imported.db")
    assert command(filled, "export", "-o", str(target)).exit_code == 0
    assert command(imported, "import", str(target)).exit_code == 0
    (was,) = [each for each in truth if each["id"] == "s08"]
    with SessionDB(imported) as db, SessionDB(filled, read_only=True) as old:
        assert db.session_count() == old.session_count() == len(truth)
        (shown,) = {each["id"] for each in db.export_all()} - {each["id"] for each in truth}
        assert "\ufffd" in shown
        for each in (db, old):
            exported = each.export_session(shown)
            assert exported["model_usage"] == was["model_usage"]
            assert [row["content"] for row in exported["messages"]] == [
                row["content"] for row in was["messages"]
            ]
        assert old.export_session("a\ufffdnobody") is None


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_store_whose_file_is_gone_stores_nothing_where_nobody_finds_it(filled: Path, how: str):
    away = filled.with_name("away.db")
    with SessionDB(filled) as db, SessionDB(filled, read_only=True) as reading:
        db.create_session("s", "cli")
        db.append_message("s", "user", "before")
        if how == "removed":
            filled.unlink()
        else:
            filled.rename(away)
        if how == "replaced":
            # As whoever puts a backup there by hand.
            for side in ("-wal", "-shm"):
                Path(f"{filled}{side}").rename(f"{away}{side}")
            with SessionDB(filled) as another:
                another.create_session("s", "cli")
        for call in (
            lambda: db.append_message("s", "user", "lost"),
            lambda: db.create_session("lost", "cli"),
            lambda: db.get_messages("s"),
            lambda: db.search_messages("before"),
        ):
            with pytest.raises(StoreUnavailableError, match="open it anew"):
                call()
        if how == "replaced":
            assert reading.get_messages("s") == []
            another = SessionDB(filled)
            another.append_message("s", "user", "of the other file")
        if how == "moved":
            away.rename(filled)
            assert db.append_message("s", "user", "after")
    if how == "replaced":
        # Whoever closes the old file leaves the new one and its log alone.
        another.append_message("s", "user", "and another")
        another.close()
        assert contents_of(filled) == ["of the other file", "and another"]
    if how != "removed":
        there = contents_of(filled if how == "moved" else away)
        assert there == {"moved": ["before", "after"], "replaced": ["before"]}[how]


def contents_of(path: Path) -> list[Any]:
    with SessionDB(path) as db:
        assert db.get_session("lost") is None
        return [each["content"] for each in db.get_messages("s")]
