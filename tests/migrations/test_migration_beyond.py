"""Each revision after Hermes with rows in the tables: what was there, what became of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files
from schema_files import change, down

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


@pytest.fixture(scope="module")
def from_level_11(made: Made, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    path = tmp_path_factory.mktemp("expected") / "state.db"
    shutil.copy(made("hermes-11"), path)
    files.fill(path)
    with SessionDB(path) as db:
        return db.export_all()


@pytest.mark.parametrize("level", range(1, 12))
def test_every_level_ends_with_the_same_rows(
    level: int, old_file: OldFile, from_level_11: list[dict]
) -> None:
    with SessionDB(old_file(level)) as db:
        found = db.export_all()
    expected = from_level_11
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
        session("other blob", ", system_prompt", "CAST('Be quick.' AS BLOB)"),
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
        "other blob": sha256(b"Be quick."),
    }
    assert dict(files.ask(path, "SELECT id, system_prompt_hash FROM sessions")) == expected
    assert files.ask(path, "SELECT count(*) FROM sessions WHERE system_prompt IS NOT NULL") == [
        (0,)
    ]
    stored = {row["hash"].decode(): row["prompt"] for row in files.rows(path, "system_prompts")}
    assert stored == {
        brief: b"Be brief.",
        sha256(b"Be quick."): b"Be quick.",
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


# ---- 0024


OF_PARENTS = "SELECT sql FROM sqlite_master WHERE name = 'idx_sessions_parent'"
OF_ALL = "CREATE INDEX idx_sessions_parent ON sessions(parent_session_id)"


def test_only_children_are_indexed_by_their_parent_and_going_back_indexes_all(at: At) -> None:
    path = at("0023", session("s"), session("child", ", parent_session_id", "'s'"), "ANALYZE")
    statistics = "SELECT stat FROM sqlite_stat1 WHERE idx = 'idx_sessions_parent'"
    assert files.ask(path, statistics) == [("2 1",)]
    assert files.ask(path, OF_PARENTS) == [(OF_ALL,)]
    before = files.rows(path, "sessions")
    files.upgrade_file(path, "0024")
    # Else those of the old index would be taken for the new one's.
    assert files.ask(path, statistics) == []
    (indexed,) = files.ask(path, OF_PARENTS)[0]
    assert indexed.endswith("(parent_session_id, started_at) WHERE parent_session_id IS NOT NULL")
    change(path, "ANALYZE")
    assert files.ask(path, statistics) == [("1 1 1",)]
    down(path, "0023")
    assert files.ask(path, statistics) == []
    assert files.ask(path, OF_PARENTS) == [(OF_ALL,)]
    assert files.rows(path, "sessions") == before


@pytest.mark.parametrize("lost", ["DROP INDEX idx_sessions_parent", "SELECT 1"])
def test_a_program_that_makes_the_old_index_unless_it_exists_finds_the_new_one(
    lost: str, at: At
) -> None:
    path = at("0023", session("s"), lost)
    files.upgrade_file(path)
    indexed = files.ask(path, OF_PARENTS)
    change(path, OF_ALL.replace("INDEX", "INDEX IF NOT EXISTS"))
    assert files.ask(path, OF_PARENTS) == indexed
    assert "IS NOT NULL" in indexed[0][0]


# ---- 0025

CALLS = (r'["\u003cp"]', r'["{\"a\": \"\\u003cp\"}"]', r'["\\u5e7f"]', r'["\u5e7f"]', '["<p"]')


def with_calls(*values: str) -> list[str]:
    return [session("s"), *(message("tool_calls", f"'{each}'") for each in values)]


@pytest.mark.parametrize("reached", ["0025", "0024"])
def test_tool_calls_with_escapes_that_were_misread_are_read_again(reached: str, at: At) -> None:
    path = at("0024", *with_calls(*CALLS))
    # As the package before left them: none waits, each with the text it took them for.
    change(
        path,
        "UPDATE messages SET search_text = 'misread' WHERE id < 5",
        "DELETE FROM messages_fts_pending",
    )
    files.upgrade_file(path, "0025")
    if reached == "0024":
        change(path, "DELETE FROM messages_fts_pending")
        down(path, "0024")
    assert files.ask(path, "SELECT id FROM messages_fts_pending ORDER BY id") == [(1,), (2,), (3,)]
    with SessionDB(path) as db:
        for _ in range(2):
            assert sorted(hit["id"] for hit in db.search_messages("<p")) == [1, 2, 5]
            assert [hit["id"] for hit in db.search_messages(r"\u5e7f")] == [3]
            db.complete_search_index()
        assert db.check_search_index() == []


def test_a_file_that_lost_a_part_of_its_index_is_upgraded_all_the_same(at: At) -> None:
    path = at("0024", *with_calls(*CALLS), "DROP TABLE messages_fts_pending")
    with SessionDB(path) as db:
        assert len(db.search_messages("<p")) == 3
