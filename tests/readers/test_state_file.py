"""A `state.db` is read as it lies: newer ones, our own, damaged ones, and not one byte changes."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB, StoreBusyError, StoreUnavailableError, engine, schema
from sessionstore.engine import open_database
from sessionstore.location import locate
from sessionstore.readers.statefile import StateFile, is_state_file
from sessionstore.settings import StoreSettings

HERMES = Path(__file__).parents[1] / "data" / "hermes"
MANIFEST = json.loads((HERMES / "hermes-v11.json").read_text())
CHAIN = MANIFEST["compression_chain"]
FIRST = CHAIN[0]

# What newer programs may have added, as far as it can be known: first what this package has too.
NEWER = (
    "ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE messages ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE messages ADD COLUMN platform_message_id TEXT",
    "ALTER TABLE sessions ADD COLUMN rewind_count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN relation TEXT",
    "ALTER TABLE sessions ADD COLUMN system_prompt_hash TEXT",
    "CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL, made_at REAL)",
    "ALTER TABLE sessions ADD COLUMN cwd TEXT",
    'ALTER TABLE messages ADD COLUMN "odd : ""name" TEXT',
    "ALTER TABLE messages ADD COLUMN unused TEXT",
    "CREATE TABLE plugin (id INTEGER PRIMARY KEY, note TEXT)",
    "CREATE TABLE nothing_in_it (id INTEGER PRIMARY KEY)",
    "INSERT INTO plugin (note) VALUES ('a'), ('b')",
    "INSERT INTO system_prompts VALUES ('abc', 'Shared prompt.', 1.0)",
    "UPDATE sessions SET system_prompt = NULL, system_prompt_hash = 'abc'",
    f"UPDATE sessions SET archived = 1, rewind_count = 2, cwd = '/w' WHERE id = '{FIRST}'",
    f"UPDATE sessions SET relation = 'branch' WHERE parent_session_id = '{FIRST}'",
    "UPDATE sessions SET relation = 'friend' WHERE parent_session_id IS NULL",
    'UPDATE messages SET active = 0, compacted = 1, "odd : ""name" = \'x\' WHERE id = 1',
    "UPDATE messages SET active = 0 WHERE id = 2",
    "UPDATE messages SET platform_message_id = 'p3' WHERE id = 3",
    "UPDATE messages SET compacted = 1 WHERE id = 4",
)


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


def state(path: Path) -> tuple[Any, ...]:
    """Everything about a file and what lies beside it."""
    found = sorted(each.name for each in path.parent.iterdir())
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns, found


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Every session of a file, which stays as it is."""
    before = state(path)
    with StateFile(path) as file:
        sessions = list(file.sessions())
    assert state(path) == before
    with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as raw:
        (count,) = raw.execute("SELECT count(*) FROM sessions WHERE id <> ''").fetchone()
    raw.close()
    assert len(sessions) == count
    return {each["id"]: each for each in sessions}


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A real file of level 11, to be changed."""
    return Path(shutil.copy(HERMES / "hermes-v11.db", tmp_path / "state.db"))


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """Where a store for what was read may be made."""
    (tmp_path / "into").mkdir()
    return tmp_path / "into" / "state.db"


# ---- newer files


@pytest.mark.parametrize("level", range(12, 21))
def test_a_newer_file_is_read_and_says_what_was_not(level: int, real: Path):
    # Of the later levels more is there.
    statements = NEWER if level > 15 else NEWER[: 2 + level - 12]
    change(real, *statements, f"UPDATE schema_version SET version = {level}")

    sessions = read(real)

    assert len(sessions) == MANIFEST["counts"]["sessions"]
    assert sum(len(each["messages"]) for each in sessions.values()) == 36
    with StateFile(real) as file:
        assert file.level == level
        if level > 15:
            assert file.unknown_columns() == {'messages.odd : "name': 1, "sessions.cwd": 1}
            assert file.unread_tables() == {"plugin": 2, "state_meta": 2}
        else:
            assert file.unknown_columns() == {}
            assert file.unread_tables() == {"state_meta": 2}
        assert file.left_out() == {}


def test_states_prompts_titles_and_chains_come_along(real: Path, into: Path):
    change(real, *NEWER, "UPDATE schema_version SET version = 17")

    with StateFile(real) as file, SessionDB(into) as db:
        report = db.import_sessions(file.sessions())

        assert len(report["imported"]) == 11
        assert [report[each] for each in ("conflicts", "detached", "retitled")] == [[], [], {}]
        states = {
            m["id"]: (m["active"], m["compacted"])
            for each in db.export_all()
            for m in each["messages"]
        }
        assert states.pop(1) == (False, True)
        assert states.pop(2) == (False, False)
        assert states.pop(4) == (False, True)
        assert set(states.values()) == {(True, False)}
        assert {each["system_prompt"] for each in db.export_all()} == {"Shared prompt."}
        for each in MANIFEST["sessions"]:
            assert db.get_session_title(each["id"]) == each["title"]
            assert db.get_session(each["id"])["parent_session_id"] == each["parent_session_id"]
            stored = [m["id"] for m in db.get_messages(each["id"], include_inactive=True)]
            assert stored == MANIFEST["order_by_id"].get(each["id"], [])
        assert db.get_session(FIRST)["archived"] is True
        assert db.get_session(FIRST)["rewind_count"] == 2
        assert db.get_session(CHAIN[1])["relation"] == "branch"
        assert db.get_session(FIRST)["relation"] is None
        assert db.get_compression_tip(CHAIN[1]) == CHAIN[2]

        again = db.import_sessions(file.sessions())

    assert again["imported"] == again["conflicts"] == []


@pytest.mark.parametrize("level", ["01", "04", "06", "11"])
def test_a_file_reads_the_same_as_the_file_taken_over(level: str, tmp_path: Path, into: Path):
    path = Path(shutil.copy(HERMES / f"hermes-v{level}.db", tmp_path / "state.db"))
    sessions = read(path)

    with SessionDB(into) as db:
        db.import_sessions(sessions.values())
        came_in = db.export_all()
    with SessionDB(path) as db:
        assert came_in == db.export_all()


# ---- our own


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of this package with one of everything."""
    path = tmp_path_factory.mktemp("full") / "state.db"
    with SessionDB(path) as db:
        db.create_session("a", "cli", system_prompt="Be brief.", title="T", model_config={"x": [1]})
        db.append_messages(
            "a",
            [
                {"role": "user", "content": "text"},
                {"role": "user", "content": ["list", {"网": None}]},
                {"role": "user", "content": "nul\0 and half \ud83d"},
                {
                    "role": "user",
                    "content": "\ud83d\ude00 apart",
                    "reasoning": "\0",
                    "tool_name": "",
                },
                {"role": "assistant", "tool_calls": [{"id": "1"}], "reasoning": "\ud83d\ude00"},
                {"role": "user", "content": "last", "platform_message_id": "p"},
            ],
        )
        db.update_token_counts("a", input_tokens=5, model="m")
        db.update_token_counts("a", input_tokens=6, model="m2", actual_cost_usd=0.5)
        db.rewind_to_message("a", db.get_messages("a")[-1]["id"])
        db.continue_session("a", "b")
        db.set_session_pinned("a", True)
        db.add_delivery("a", "chat", {"text": "owed"})
    return path


def test_our_own_file_reads_as_it_exports(full: Path, into: Path):
    sessions = read(full)

    with SessionDB(full, read_only=True) as db:
        exported = db.export_all()
    with SessionDB(into) as db:
        db.import_sessions(sessions.values())
        assert db.export_all() == exported
    with StateFile(full) as file:
        assert file.unknown_columns() == {}
        assert file.unread_tables() == {"delivery_obligations": 1}


@pytest.mark.parametrize("revision", [1, 5, 9, *range(11, 21)])
def test_our_own_file_of_any_revision_is_read(
    revision: int, full: Path, tmp_path: Path, into: Path
):
    path = Path(shutil.copy(full, tmp_path / "state.db"))
    database = open_database(locate(path), StoreSettings())
    schema.downgrade(database, StoreSettings(), to=f"{revision:04d}")
    database.close()

    sessions = read(path)

    # As it was: going back loses the seam between two halves of a pair.
    with SessionDB(full, read_only=True) as db:
        expected = db.get_messages("a", include_inactive=True)
    for stored, found in zip(expected, sessions["a"]["messages"], strict=True):
        assert found["content"] == stored["content"] or (
            revision < 13 and "apart" in found["content"]
        )
        assert found["tool_calls"] == stored["tool_calls"]
    assert sessions["a"]["system_prompt"] == "Be brief."
    assert sessions["b"]["parent_session_id"] == "a"
    with SessionDB(into) as db:
        assert db.import_sessions(sessions.values())["imported"] == ["a", "b"]


# ---- damaged

DAMAGE = {
    "text that is not UTF-8": [
        "UPDATE messages SET content = CAST(x'66ff' AS TEXT), role = CAST(x'ff' AS TEXT)",
        "UPDATE sessions SET system_prompt = CAST(x'fe' AS TEXT), model = CAST(x'ff' AS TEXT)",
    ],
    "JSON that does not parse": [
        "UPDATE messages SET tool_calls = '{broken', reasoning_details = '[NaN]'",
        "UPDATE sessions SET model_config = 'nope'",
    ],
    "JSON that is deep": [
        (
            "UPDATE messages SET tool_calls = replace(hex(zeroblob(300)), '00', '[[') || "
            "replace(hex(zeroblob(300)), '00', ']]')"
        ),
        "UPDATE messages SET content = char(0) || 'json:' || tool_calls",
    ],
    "no source and no times": [
        "UPDATE sessions SET source = NULL, started_at = NULL",
        "UPDATE messages SET timestamp = NULL",
    ],
    "no role": ["UPDATE messages SET role = NULL WHERE id = 1", "UPDATE messages SET role = ''"],
    "blobs for texts": [
        "UPDATE messages SET content = x'00ff', tool_calls = x'ff', tool_name = x'41'",
        "UPDATE messages SET role = x'42'",
        (
            "UPDATE sessions SET title = x'41' || id, source = x'43', system_prompt = x'44', "
            "model_config = x'ff', end_reason = x'45'"
        ),
    ],
    "text for numbers": [
        (
            "UPDATE sessions SET started_at = 'then', ended_at = 'now', message_count = 'many', "
            "input_tokens = 'many', actual_cost_usd = 'dear', api_call_count = x'00'"
        ),
        "UPDATE messages SET timestamp = 'then', token_count = 'some'",
    ],
    "numbers for texts": [
        "UPDATE messages SET content = 5, tool_name = 1.5",
        "UPDATE sessions SET source = 7, user_id = 8",
    ],
    "negative and endless figures": [
        "UPDATE sessions SET started_at = 9e999, input_tokens = -5, actual_cost_usd = -9e999",
        "UPDATE messages SET timestamp = -9e999, token_count = -1",
    ],
    "NUL in texts": [
        "UPDATE sessions SET title = 'a' || char(0) || id, system_prompt = char(0)",
        "UPDATE messages SET content = char(0), role = 'a' || char(0)",
    ],
    "ids of messages below one": ["UPDATE messages SET id = -id"],
    "parents nowhere and in a circle": [
        f"UPDATE sessions SET parent_session_id = '{CHAIN[2]}' WHERE id = '{FIRST}'",
        f"UPDATE sessions SET parent_session_id = 'nowhere' WHERE id = '{CHAIN[2]}'",
    ],
    "states of another type": [
        "ALTER TABLE messages ADD COLUMN active TEXT",
        "ALTER TABLE messages ADD COLUMN compacted TEXT",
        "ALTER TABLE sessions ADD COLUMN archived TEXT",
        "UPDATE messages SET active = '1', compacted = '0'",
        "UPDATE sessions SET archived = 'false'",
    ],
    "a search index that is broken": ["DROP TABLE messages_fts_data"],
    "encodings nobody knows": [
        "ALTER TABLE messages ADD COLUMN content_encoding TEXT",
        "ALTER TABLE messages ADD COLUMN json_columns TEXT",
        "UPDATE messages SET content_encoding = 'gzip', json_columns = 'reasoning,colour'",
    ],
    "usage that is damaged": [
        (
            "CREATE TABLE session_model_usage (session_id TEXT, model TEXT, billing_provider TEXT, "
            "input_tokens, first_seen)"
        ),
        (
            f"INSERT INTO session_model_usage VALUES ('{FIRST}', NULL, x'41', 'many', 'then'), "
            f"('{FIRST}', '', 'A', 3, 5.0)"
        ),
    ],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_read_whole_and_can_be_imported(kind: str, real: Path, into: Path):
    # A table without what the schema forbids.
    change(
        real,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') "
        "WHERE type = 'table' AND name IN ('sessions', 'messages')",
        "PRAGMA writable_schema = OFF",
        "DROP TRIGGER messages_fts_update",
        "DROP TRIGGER messages_fts_trigram_update",
    )
    change(real, *DAMAGE[kind])

    sessions = read(real)

    assert len(sessions) == 11
    assert sum(len(each["messages"]) for each in sessions.values()) == 36
    with SessionDB(into) as db:
        report = db.import_sessions(sessions.values())
        assert len(report["imported"]) == 11
        assert report["messages"] == 36
        assert db.import_sessions(sessions.values())["conflicts"] == []
        db.list_sessions_rich()
        db.export_all()


def test_what_damaged_values_become(real: Path):
    change(
        real,
        "UPDATE messages SET content = CAST(x'66ff' AS TEXT), tool_calls = '{broken' WHERE id = 1",
        "UPDATE messages SET content = x'616263', timestamp = 'then' WHERE id = 2",
        "UPDATE messages SET content = char(0) || 'json:[1,' WHERE id = 4",
        f"UPDATE sessions SET input_tokens = 'many', started_at = 'then' WHERE id = '{FIRST}'",
    )
    session = read(real)[FIRST]
    messages = {each["id"]: each for each in session["messages"]}
    assert (session["input_tokens"], session["started_at"]) == (0, 0.0)
    assert messages[1]["content"] == "f\ufffd"
    assert messages[1]["tool_calls"] == "{broken"
    assert (messages[2]["content"], messages[2]["timestamp"]) == ("abc", 0.0)
    assert messages[4]["content"] == "\0json:[1,"


def test_what_belongs_to_no_session_is_said(real: Path):
    change(
        real,
        "INSERT INTO messages (session_id, role, timestamp) VALUES ('nowhere', 'user', 1.0)",
        "INSERT INTO sessions (source, started_at) VALUES ('cli', 1.0)",
        "INSERT INTO sessions (id, source, started_at) VALUES ('', 'cli', 1.0)",
    )
    assert len(read(real)) == 11
    with StateFile(real) as file:
        assert file.left_out() == {"sessions without an id": 2, "messages of no session": 1}


# ---- no such file


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["DROP TABLE messages"], "has no table messages"),
        (["DROP TABLE sessions"], "has no table sessions"),
        (
            ["DROP TABLE sessions", "CREATE TABLE sessions (sid TEXT)"],
            "has no sessions with column id",
        ),
    ],
)
def test_a_file_without_our_tables_is_refused(real: Path, statements: list[str], said: str):
    change(real, *statements)
    before = state(real)

    with pytest.raises(StoreUnavailableError, match=said) as caught:
        StateFile(real)

    assert "\n" not in str(caught.value)
    assert state(real) == before


def test_other_files_are_refused_in_a_sentence(tmp_path: Path):
    absent, empty, text, cut = (tmp_path / name for name in ("absent", "empty", "text", "cut"))
    empty.write_bytes(b"")
    text.write_text('{"id": "s"}\n' * 200)
    cut.write_bytes((HERMES / "hermes-v11.db").read_bytes()[:5000])
    for path, said in (
        (absent, "does not exist"),
        (empty, "has no table sessions"),
        (text, "not a SQLite database"),
        (cut, "damaged"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(StoreUnavailableError, match=said):
            StateFile(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cut", "empty", "text"]


def test_a_state_file_is_told_by_its_content(real: Path, tmp_path: Path):
    lines = tmp_path / "state.db.jsonl"
    for content in (b"", b"x", b'{"id": "s"}\n' * 1000):
        lines.write_bytes(content)
        assert not is_state_file(lines)
    assert is_state_file(real)
    assert is_state_file(real.rename(tmp_path / "lines.jsonl"))


# ---- beside a writer


def test_a_file_with_a_live_writer_is_read_as_it_is_now(real: Path):
    writer = sqlite3.connect(real, isolation_level=None)
    insert = (
        "INSERT INTO messages (session_id, role, content, timestamp) "
        f"VALUES ('{FIRST}', 'user', ?, 1.0)"
    )
    writer.execute(insert, ("committed",))
    writer.execute("BEGIN IMMEDIATE")
    writer.execute(insert, ("not yet",))
    beside = sorted(each.name for each in real.parent.iterdir())

    with StateFile(real) as file:
        found = {each["id"]: each for each in file.sessions()}[FIRST]["messages"]
        assert found[-1]["content"] == "committed"
        writer.execute("COMMIT")
        found = {each["id"]: each for each in file.sessions()}[FIRST]["messages"]
        assert found[-1]["content"] == "not yet"

    assert sorted(each.name for each in real.parent.iterdir()) == beside
    writer.execute(insert, ("still its own",))
    writer.close()


def test_a_writer_without_a_write_ahead_log_is_waited_for(real: Path):
    change(real, "PRAGMA journal_mode = DELETE")
    import threading

    writer = sqlite3.connect(real, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("UPDATE sessions SET model = 'during'")
    timer = threading.Timer(1.5, writer.execute, ("COMMIT",))
    timer.start()
    try:
        with StateFile(real) as file:
            assert {each["model"] for each in file.sessions()} == {"during"}
    finally:
        timer.join()
        writer.close()


def test_a_writer_that_does_not_let_go_is_said_to_keep_a_reader_from_reading(
    real: Path, monkeypatch: pytest.MonkeyPatch
):
    change(real, "PRAGMA journal_mode = DELETE")
    impatient = partial(
        StoreSettings, write_patience_s=0.1, write_min_attempts=2, busy_timeout_s=0.05
    )
    monkeypatch.setattr(engine, "StoreSettings", impatient)
    writer = sqlite3.connect(real, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("UPDATE sessions SET model = 'during'")

    with pytest.raises(StoreBusyError, match="nothing was read") as caught:
        StateFile(real)

    assert "find the program that locks the store" in str(caught.value)
    writer.close()


def test_what_a_killed_writer_left_beside_is_read_and_left(real: Path, tmp_path: Path):
    writer = sqlite3.connect(real, isolation_level=None)
    writer.execute("UPDATE sessions SET model = 'in the log'")
    folder = tmp_path / "left"
    folder.mkdir()
    for each in ("state.db", "state.db-wal"):
        shutil.copy(real.with_name(each), folder / each)
    writer.close()
    path = folder / "state.db"
    before = hashlib.sha256(path.read_bytes()).hexdigest()

    with StateFile(path) as file:
        assert {each["model"] for each in file.sessions()} == {"in the log"}

    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert path.with_name("state.db-wal").exists()
