"""Each revision after Hermes with rows in the tables: what was there, what became of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files

from sessionstore import SessionDB

Made = Callable[[str], Path]
OldFile = Callable[[int], Path]
At = Callable[..., Path]


@pytest.fixture
def at(made: Made, tmp_path: Path) -> At:
    """Give a file at a revision after these statements ran on it."""

    def make(revision: str, *statements: str) -> Path:
        path = tmp_path / f"at-{revision}.db"
        shutil.copy(made(str(int(revision))), path)
        change(path, *statements)
        return path

    return make


def change(path: Path, *statements: str) -> None:
    with files.raw(path) as connection:
        for statement in statements:
            connection.execute(statement)


def down(path: Path, to: str) -> None:
    with files.database(path) as opened:
        files.downgrade(opened, to=to)


def session(name: str, columns: str = "", *values: str) -> str:
    more = "".join(f", {value}" for value in values)
    into = f"INSERT INTO sessions (id, source, started_at{columns})"
    return f"{into} VALUES ('{name}', 'cli', 5.0{more})"


def message(columns: str, *values: str, of: str = "s", at: str = "1.0") -> str:
    more = "".join(f", {value}" for value in values)
    return (
        f"INSERT INTO messages (session_id, role, timestamp, {columns}) "
        f"VALUES ('{of}', 'user', {at}{more})"
    )


def sha256(prompt: bytes) -> str:
    return hashlib.sha256(prompt).hexdigest()


# ---- every level ends with the same rows


def known_at(level: int, exported: dict) -> dict:
    """What of an exported session a file of this level could say."""
    of_session = files.declared(files.SESSIONS_ADDED, level)
    of_message = files.declared(files.MESSAGES_ADDED, level)
    return {
        **{name: value for name, value in exported.items() if name in of_session},
        "messages": [
            {name: value for name, value in each.items() if name in of_message}
            for each in exported["messages"]
        ],
    }


@pytest.mark.parametrize("level", range(1, 12))
def test_every_level_ends_with_the_same_rows(level: int, old_file: OldFile) -> None:
    with SessionDB(old_file(level)) as db:
        found = db.export_all()
    with SessionDB(old_file(11)) as db:
        expected = db.export_all()
    assert [known_at(level, each) for each in found] == [known_at(level, e) for e in expected]
    assert {each["system_prompt"] for each in found} == {"Be brief."}
    assert {each["last_active_at"] for each in found} == {
        1781773226.453548,
        1781773226.453548 - 5,
        None,
    }


@pytest.mark.parametrize("level", ["01", "04", "06", "11"])
def test_a_real_file_reads_as_its_manifest_says(level: str, tmp_path: Path) -> None:
    path = files.real_file(level, tmp_path)
    manifest = json.loads((files.HERMES / f"hermes-v{level}.json").read_text())
    with SessionDB(path) as db:
        sessions = {each["id"]: each for each in db.export_all()}
    assert len(sessions) == manifest["counts"]["sessions"]
    for said in manifest["sessions"]:
        found = sessions[said["id"]]
        for name, value in said.items():
            if name == "model_config" and value is not None:
                assert found[name] == json.loads(value)
            else:
                assert (found[name] or value) == value, name
        stored = manifest["messages"].get(said["id"], [])
        assert [each["id"] for each in found["messages"]] == [each["id"] for each in stored]
        for raw, read in zip(stored, found["messages"], strict=True):
            content = raw["content"]
            if content is not None and content.startswith("\0json:"):
                content = json.loads(content.removeprefix("\0json:"))
            assert read["content"] == content
            calls = raw["tool_calls"]
            assert read["tool_calls"] == (calls and json.loads(calls))
            assert (read["active"], read["compacted"]) == (True, False)
        assert found["last_active_at"] == max((m["timestamp"] for m in stored), default=None)
    assert files.ask(path, "SELECT count(*) FROM messages WHERE hex(content) LIKE '006A736F6E%'")[
        0
    ] == (0,)


# ---- 0012: prompts


def test_prompts_move_and_come_back(at: At) -> None:
    path = at(
        "0011",
        session("a", ", system_prompt", "'Be brief.'"),
        session("b", ", system_prompt", "'Be brief.'"),
        session("empty", ", system_prompt", "''"),
        session("none"),
        session("chinese", ", system_prompt", "'要简短'"),
        session("damaged", ", system_prompt", "CAST(x'ff61fe' AS TEXT)"),
        session("nul", ", system_prompt", "'a' || char(0) || 'b'"),
        session("blob", ", system_prompt", "CAST('Be brief.' AS BLOB)"),
    )
    before = files.rows(path, "sessions")
    files.upgrade_file(path, "0012")
    brief = sha256(b"Be brief.")
    expected = {
        "a": brief,
        "b": brief,
        "empty": sha256(b""),
        "none": None,
        "chinese": sha256("要简短".encode()),
        "damaged": sha256(b"\xffa\xfe"),
        "nul": sha256(b"a\0b"),
        "blob": brief,
    }
    assert dict(files.ask(path, "SELECT id, system_prompt_hash FROM sessions")) == expected
    assert files.ask(path, "SELECT count(*) FROM sessions WHERE system_prompt IS NOT NULL") == [
        (0,)
    ]
    stored = {row["hash"].decode(): row["prompt"] for row in files.rows(path, "system_prompts")}
    assert stored == {
        brief: b"Be brief.",
        sha256(b""): b"",
        sha256("要简短".encode()): "要简短".encode(),
        sha256(b"\xffa\xfe"): b"\xffa\xfe",
        sha256(b"a\0b"): b"a\0b",
    }
    assert files.ask(path, "SELECT DISTINCT typeof(prompt) FROM system_prompts") == [("text",)]
    down(path, "0011")
    assert files.rows(path, "sessions") == before


def test_a_prompt_that_another_program_wrote_since_wins_when_going_back(at: At) -> None:
    path = at("0011", session("a", ", system_prompt", "'old'"))
    files.upgrade_file(path, "0012")
    change(path, "UPDATE sessions SET system_prompt = 'newer'")
    down(path, "0011")
    assert files.ask(path, "SELECT system_prompt FROM sessions") == [("newer",)]


def test_more_prompts_than_are_read_at_once_all_move(at: At) -> None:
    path = at(
        "0011",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 450) "
        "INSERT INTO sessions (id, source, started_at, system_prompt) "
        "SELECT 's' || i, 'cli', i, 'prompt ' || (i % 300) FROM n",
    )
    files.upgrade_file(path, "0012")
    read = files.ask(
        path,
        "SELECT s.id, p.prompt FROM sessions s JOIN system_prompts p ON p.hash = "
        "s.system_prompt_hash WHERE s.system_prompt IS NULL",
    )
    assert dict(read) == {f"s{i}": f"prompt {i % 300}" for i in range(1, 451)}
    assert files.ask(path, "SELECT count(*) FROM system_prompts") == [(300,)]


# ---- 0013: content that is no plain text

# What a level 11 file holds -> content and encoding after, and the value that is read.
CONTENTS = {
    "a list": (
        '\0json:[{"type": "text", "text": "网络"}]',
        "json",
        [{"type": "text", "text": "网络"}],
    ),
    "a dict": ('\0json:{"a": 1.50, "b": null}', "json", {"a": 1.5, "b": None}),
    "an empty list": ("\0json:[]", "json", []),
    "plain text": ("hello", None, "hello"),
    "an empty text": ("", None, ""),
    "JSON without a mark": ('["a"]', None, '["a"]'),
    "a marked text": ('\0json:"marked"', None, "marked"),
    "a marked text with NUL": ('\0json:"a\\u0000b"', "json", "a\0b"),
    "a marked half of a pair": ('\0json:"\\ud83d"', "json", "\ud83d"),
    "broken JSON behind the mark": ("\0json:[1,", None, "\0json:[1,"),
    "NaN behind the mark": ("\0json:[NaN]", None, "\0json:[NaN]"),
    "nothing behind the mark": ("\0json:", None, "\0json:"),
    "a number behind the mark": ("\0json:5", None, "\0json:5"),
    "too deep behind the mark": (
        "\0json:" + "[" * 100_000 + "]" * 100_000,
        None,
        "\0json:" + "[" * 100_000 + "]" * 100_000,
    ),
    "a huge number behind the mark": (
        "\0json:[1" + "0" * 5000 + "]",
        None,
        "\0json:[1" + "0" * 5000 + "]",
    ),
    "NUL elsewhere": ("a\0json:[1]", None, "a\0json:[1]"),
    "the mark without NUL": ("json:[1]", None, "json:[1]"),
    "another case": ("\0JSON:[1]", None, "\0JSON:[1]"),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_content_is_told_beside_and_within_again(kind: str, at: At) -> None:
    stored, encoding, value = CONTENTS[kind]
    path = at("0011", session("s"))
    with files.raw(path) as connection:
        connection.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES ('s', 'user', ?, 1.0)",
            (stored,),
        )
    before = files.rows(path, "messages")
    files.upgrade_file(path, "0013")
    assert files.ask(path, "SELECT content_encoding FROM messages") == [(encoding,)]
    down(path, "0012")
    marked = kind.startswith("a marked") or stored.startswith("\0json:")
    if encoding == "json" or not marked:
        assert files.rows(path, "messages") == before
    else:
        # As JSON of a text, so that nobody takes it for anything else.
        (held,) = files.ask(path, "SELECT content FROM messages")[0]
        assert held == value or json.loads(held.removeprefix("\0json:")) == value
    files.upgrade_file(path)
    with SessionDB(path) as db:
        (read,) = db.get_messages("s")
    assert read["content"] == value
    assert type(read["content"]) is type(value)


def test_other_texts_in_the_old_form_are_converted(at: At) -> None:
    path = at(
        "0011",
        session("s"),
        message(
            "reasoning, tool_name", "char(0) || 'json:\"a\\u0000b\"'", "char(0) || 'json:\"t\"'"
        ),
        message("reasoning", "char(0) || 'json:[1]'"),
        message("content", "x'006a736f6e3a5b315d'"),
        message("content", "CAST(x'006a736f6e3aff' AS TEXT)"),
    )
    files.upgrade_file(path, "0013")
    found = files.rows(path, "messages")
    assert [row["json_columns"] for row in found] == [b"reasoning", None, None, None]
    assert found[0]["reasoning"] == b'"a\\u0000b"'
    assert found[0]["tool_name"] == b"t"
    assert found[1]["reasoning"] == b"\0json:[1]"
    assert found[2]["content"] == b"\0json:[1]"
    assert files.ask(path, "SELECT typeof(content) FROM messages WHERE id = 3") == [("blob",)]
    assert found[3]["content"] == b"\0json:\xff"
    for table in files.INDEXES:
        change(path, f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 1)")


# ---- 0014 to 0016: flags


def test_every_message_becomes_live_and_stays_when_going_back(at: At) -> None:
    path = at("0013", session("s"), message("content", "'one'"), message("content", "'two'"))
    before = files.all_rows(path)
    files.upgrade_file(path, "0016")
    assert files.ask(path, "SELECT active, compacted FROM messages") == [(1, 0)] * 2
    assert files.ask(path, "SELECT rewind_count, archived, pinned, relation FROM sessions") == [
        (0, 0, 0, None)
    ]
    change(path, "UPDATE messages SET active = 0, compacted = 1 WHERE id = 1")
    down(path, "0013")
    assert files.all_rows(path) == before


# ---- 0017: activity


def test_activity_is_the_highest_time_though_clocks_step_back(at: At) -> None:
    path = at(
        "0016",
        session("s"),
        session("silent"),
        session("odd"),
        message("content", "'a'", at="100.0"),
        message("content", "'b'", at="40.0"),
        message("content", "'c'", at="99.5"),
        message("content", "'d'", of="odd", at="'yesterday'"),
        message("content", "'e'", of="odd", at="7"),
        message("content", "'f'", of="odd", at="x'00'"),
        message("content", "'g'", of="nowhere", at="9.0"),
    )
    files.upgrade_file(path, "0017")

    def active() -> dict:
        return dict(files.ask(path, "SELECT id, last_active_at FROM sessions"))

    assert active() == {"s": 100.0, "silent": None, "odd": 7.0}
    steps = [
        (message("content", "'h'", at="50.0"), {"s": 100.0}),
        (message("content", "'i'", at="200.0"), {"s": 200.0}),
        (message("content", "'j'", at="'tomorrow'"), {"s": 200.0}),
        (message("content", "'k'", of="silent", at="'tomorrow'"), {"silent": None}),
        (message("content", "'l'", of="silent", at="3"), {"silent": 3.0}),
        ("UPDATE messages SET timestamp = 60.0 WHERE timestamp = 200.0", {"s": 100.0}),
        (
            "UPDATE messages SET session_id = 'silent' WHERE content = 'a'",
            {"s": 99.5, "silent": 100.0},
        ),
        ("UPDATE messages SET content = 'x' WHERE content = 'c'", {"s": 99.5}),
        ("DELETE FROM messages WHERE timestamp = 99.5", {"s": 60.0}),
        ("DELETE FROM messages WHERE session_id = 's'", {"s": None}),
    ]
    expected = active()
    for statement, changed in steps:
        change(path, statement)
        expected |= changed
        assert active() == expected, statement
    down(path, "0016")
    assert "last_active_at" not in files.columns(path, "sessions")
    change(path, message("content", "'still writable'"))


def test_activity_is_kept_without_reading_all_messages(made: Made) -> None:
    plan = files.ask(
        made("head"),
        "EXPLAIN QUERY PLAN UPDATE sessions SET last_active_at = (SELECT max(timestamp) "
        "FROM messages WHERE messages.session_id = sessions.id "
        "AND typeof(timestamp) IN ('real', 'integer')) WHERE id = 's'",
    )
    assert any("COVERING INDEX idx_messages_session" in step for *_, step in plan)
    assert not any(step.startswith("SCAN messages") for *_, step in plan)


# ---- 0018: usage


def test_what_was_used_becomes_a_line_each(at: At) -> None:
    path = at(
        "0017",
        session("full", ", input_tokens, model, billing_provider", "3000000000", "'m'", "'p'"),
        session("cost", ", actual_cost_usd, output_tokens", "0.25", "NULL"),
        session("unused"),
        session("nulls", ", input_tokens, output_tokens, api_call_count", "NULL", "NULL", "NULL"),
        session("damaged", ", input_tokens, estimated_cost_usd", "'many'", "'dear'"),
        session("half", ", input_tokens, output_tokens", "'many'", "7"),
        session("late", ", reasoning_tokens", "1"),
        message("content", "'x'", of="late", at="50.0"),
        "INSERT INTO sessions (source, started_at, input_tokens) VALUES ('cli', 1.0, 5)",
    )
    before = files.rows(path, "sessions")
    files.upgrade_file(path, "0018")
    lines = files.ask(
        path,
        "SELECT session_id, model, billing_provider, task, input_tokens, output_tokens, "
        "reasoning_tokens, actual_cost_usd, first_seen, last_seen FROM session_model_usage",
    )
    assert sorted(lines) == [
        ("cost", "", "", "", 0, 0, 0, 0.25, 5.0, 5.0),
        ("full", "m", "p", "", 3000000000, 0, 0, None, 5.0, 5.0),
        ("half", "", "", "", 0, 7, 0, None, 5.0, 5.0),
        ("late", "", "", "", 0, 0, 1, None, 5.0, 50.0),
    ]
    assert files.rows(path, "sessions") == before
    down(path, "0017")
    assert files.rows(path, "sessions") == before


def test_lines_of_usage_go_with_their_session(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "head.db"
    shutil.copy(made("head"), path)
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.update_token_counts("s", input_tokens=5)
        db.delete_session("s")
    assert files.ask(path, "SELECT count(*) FROM session_model_usage") == [(0,)]


# ---- 0019, 0020


def test_a_hand_over_that_hermes_noted_is_kept(old_file: OldFile) -> None:
    path = old_file(11)
    change(
        path,
        "ALTER TABLE sessions ADD COLUMN handoff_state TEXT",
        "ALTER TABLE sessions ADD COLUMN handoff_platform TEXT",
        "ALTER TABLE sessions ADD COLUMN handoff_error TEXT",
        "UPDATE sessions SET handoff_state = 'failed', handoff_platform = 'telegram', "
        "handoff_error = 'gone' WHERE id = 'child'",
    )
    with SessionDB(path) as db:
        assert db.get_handoff_state("child") == {
            "state": "failed",
            "platform": "telegram",
            "error": "gone",
        }
        assert db.get_handoff_state("parent") is None
    assert not [name for name in files.columns(path, "sessions") if "before" in name]


def test_ids_of_a_platform_are_forgotten_when_going_back(at: At) -> None:
    path = at("0020", session("s"), message("platform_message_id", "'p1'"))
    down(path, "0019")
    files.upgrade_file(path)
    assert files.ask(path, "SELECT platform_message_id FROM messages") == [(None,)]


# ---- odd files: names of ours are there already


COLUMNS_THERE = {
    "sessions.system_prompt_hash": ("TEXT", "'nowhere'", None),
    "messages.content_encoding": ("TEXT", "'gzip'", None),
    "messages.json_columns": ("BLOB", "x'00'", None),
    "messages.active": ("TEXT", "'yes'", 1),
    "messages.compacted": ("INTEGER", "1", 1),
    "sessions.rewind_count": ("INTEGER NOT NULL DEFAULT 0", "-1", 0),
    "sessions.archived": ("TEXT", "1", 1),
    "sessions.pinned": ("INTEGER NOT NULL DEFAULT 0", "7", 0),
    "sessions.relation": ("TEXT", "'friend'", None),
    "sessions.last_active_at": ("TEXT", "'today'", 1781773226.453548),
    "sessions.handoff_state": ("INTEGER", "5", "5"),
    "messages.platform_message_id": ("INTEGER", "12", "12"),
}


@pytest.mark.parametrize("which", COLUMNS_THERE)
def test_a_column_of_the_name_that_means_something_else_steps_aside(
    which: str, old_file: OldFile
) -> None:
    table, _, name = which.partition(".")
    kind, value, becomes = COLUMNS_THERE[which]
    path = old_file(11)
    change(
        path,
        f"ALTER TABLE {table} ADD COLUMN {name} {kind}",
        f"UPDATE {table} SET {name} = {value} WHERE rowid = 1",
    )
    before = files.ask(path, f"SELECT rowid, {name} FROM {table}")
    shape = files.columns(path, table)
    files.open_store(path)
    (aside,) = (found for found in files.columns(path, table) if found.startswith(f"{name}_before"))
    assert files.ask(path, f"SELECT rowid, {aside} FROM {table}") == before
    declared = {"sessions": files.SESSIONS_ADDED, "messages": files.MESSAGES_ADDED}[table]
    assert files.columns(path, table)[name] == files.declared(declared, 20)[name]
    found = dict(files.ask(path, f"SELECT rowid, {name} FROM {table}"))
    if which == "sessions.system_prompt_hash":
        assert found[1] == sha256(b"Be brief.")
    else:
        assert found[1] == becomes
    assert files.ask(path, "SELECT count(*) FROM messages WHERE active = 1")[0][0] >= 9
    down(path, "0011")
    assert files.columns(path, table) == shape
    assert files.ask(path, f"SELECT rowid, {name} FROM {table}") == before


def test_columns_declared_as_ours_are_taken_with_their_values(old_file: OldFile) -> None:
    path = old_file(11)
    change(
        path,
        "ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE messages ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0",
        "UPDATE messages SET active = 0, compacted = 1 WHERE id = 1",
        "UPDATE sessions SET archived = 1 WHERE id = 'child'",
    )
    files.open_store(path)
    assert files.ask(path, "SELECT id FROM messages WHERE compacted = 1") == [(1,)]
    assert files.ask(path, "SELECT id FROM sessions WHERE archived = 1") == [("child",)]
    assert not [name for name in files.columns(path, "messages") if "before" in name]


TABLES_THERE = [table for table in files.TABLES_ADDED if table != "state_meta"]


@pytest.mark.parametrize("table", TABLES_THERE)
def test_a_table_of_the_name_that_is_another_programs_steps_aside(
    table: str, old_file: OldFile, made: Made
) -> None:
    path = old_file(11)
    change(
        path,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, note TEXT)",
        f"INSERT INTO {table} VALUES (1, 'kept')",
        f"CREATE INDEX ix_delivery_obligations_state_available_at ON {table}(note)",
    )
    revision = files.TABLES_ADDED[table][0]
    files.open_store(path)
    assert files.columns(path, table) == files.TABLES_ADDED[table][1]
    assert files.ask(path, f"SELECT * FROM {table}_before_{revision:04d}") == [(1, "kept")]
    assert files.texts(path) == files.texts(made("head"))
    assert files.ask(path, "PRAGMA foreign_key_check") == []
    down(path, "0011")
    assert files.ask(path, f"SELECT * FROM {table}") == [(1, "kept")]


@pytest.mark.parametrize("table", TABLES_THERE)
def test_a_table_made_as_ours_is_taken_with_its_rows(
    table: str, old_file: OldFile, made: Made
) -> None:
    path = old_file(11)
    columns = files.TABLES_ADDED[table][1]
    values = ", ".join(
        {"TEXT": "'parent'", "REAL": "1.0", "INTEGER": "5"}[kind] for kind, *_ in columns.values()
    )
    change(
        path,
        files.master(made("head"))[table],
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})",
    )
    files.open_store(path)
    kept = "'parent' IN (" + ", ".join(columns) + ")"
    assert files.ask(path, f"SELECT count(*) FROM {table} WHERE {kept}") == [(1,)]
    assert set(files.columns(path, table)) == set(columns)
    assert f"{table}_before_{files.TABLES_ADDED[table][0]:04d}" not in files.master(path)
    assert files.ask(path, "PRAGMA foreign_key_check") == []
    with SessionDB(path) as db:
        db.create_session("new", "cli", system_prompt="Another.")
        db.update_token_counts("new", input_tokens=1)


# What old tables, declared by nobody knows whom, let stand in them.
ODD = {
    "numbers for ids": [
        "INSERT INTO sessions (id, source, started_at, system_prompt) VALUES (7, 'cli', 1, 'p')"
    ],
    "a blob for an id": [
        "INSERT INTO sessions (id, source, started_at, system_prompt) VALUES (x'01', 'cli', 1, 'p')"
    ],
    "no id": ["INSERT INTO sessions (source, started_at, input_tokens) VALUES ('cli', 1, 5)"],
    "texts for times": [
        "UPDATE sessions SET started_at = 'then', input_tokens = 'many'",
        "UPDATE messages SET timestamp = 'then' WHERE id = 1",
    ],
    "times without end": [
        "UPDATE sessions SET started_at = 9e999",
        "UPDATE messages SET timestamp = -9e999",
    ],
    "messages of no session": ["UPDATE messages SET session_id = 'nowhere' WHERE id > 5"],
    "ids of messages far apart": ["UPDATE messages SET id = -id * 1000000000000"],
    "a prompt that is a number": ["UPDATE sessions SET system_prompt = 12"],
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_file_goes_up_and_down_with_every_row(
    kind: str, old_file: OldFile, made: Made
) -> None:
    path = old_file(11)
    change(path, *ODD[kind])
    files.upgrade_file(path, "0011")
    before = files.all_rows(path)
    files.open_store(path)
    assert files.texts(path) == files.texts(made("head"))
    with SessionDB(path) as db:
        if kind != "a blob for an id":  # lists do not know such
            db.list_sessions_rich()
            db.export_all()
        assert db.session_count() == len(before["sessions"])
    down(path, "0011")
    assert files.all_rows(path) == before


def test_a_damaged_search_index_does_not_stop_an_upgrade(old_file: OldFile) -> None:
    path = old_file(11)
    change(path, "UPDATE messages SET content = char(0) || 'json:[\"kiwi\"]' WHERE id = 3")
    files.upgrade_file(path, "0011")
    change(path, "DROP TABLE messages_fts_data")
    files.open_store(path)
    with SessionDB(path) as db:
        assert db.get_messages("parent")[2]["content"] == ["kiwi"]
