"""`import --from openai-agents-sqlite` and `langchain-sqlite`: files their packages made."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB

HISTORIES = Path(__file__).parents[1] / "data" / "histories"
FILES = {
    "openai-agents-sqlite": "openai-agents-0.24.db",
    "langchain-sqlite": "langchain-community-0.4.db",
}
MADE = 1_796_080_620.0  # 2026-11-30 23:17:00 UTC, as the file says


@pytest.fixture
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the file of the program that is asked for."""
    return Path(shutil.copy(HISTORIES / FILES[request.param], tmp_path / "history.db"))


def told(target: Path, session_id: str, *names: str) -> list[tuple[Any, ...]]:
    with SessionDB(target, read_only=True) as db:
        rows = db.get_messages(session_id)
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize("file", ["openai-agents-sqlite"], indirect=True)
def test_sessions_of_the_openai_agents_sdk(take_in, file: Path, target: Path):
    before = hashlib.sha256(file.read_bytes()).digest()

    result = take_in("openai-agents-sqlite", file)

    assert result.stdout == "2 sessions imported, 7 messages\n"
    assert hashlib.sha256(file.read_bytes()).digest() == before
    assert [each.name for each in file.parent.glob("history.db*")] == ["history.db"]
    assert told(target, "talk-1", "role", "content", "tool_name", "timestamp") == [
        ("user", "What is the weather in Oslo?", None, MADE),
        ("assistant", None, None, MADE),
        ("assistant", None, None, MADE),
        ("tool", "rain", "weather", MADE),
        (
            "assistant",
            [{"type": "output_text", "text": "It rains in Oslo.", "annotations": []}],
            None,
            MADE,
        ),
    ]
    assert told(target, "talk-2", "role", "content")[1] == ("assistant", "salut")
    with SessionDB(target, read_only=True) as db:
        session = db.get_session("talk-1")
    assert session
    assert (session["source"], session["tool_call_count"]) == ("openai-agents", 1)


@pytest.mark.parametrize("file", ["openai-agents-sqlite"], indirect=True)
def test_every_item_can_be_put_together_again(take_in, file: Path, target: Path):
    take_in("openai-agents-sqlite", file)

    given = [
        json.loads(data)
        for (data,) in sqlite3.connect(file).execute(
            "SELECT message_data FROM agent_messages WHERE session_id = 'talk-1' ORDER BY id"
        )
    ]
    with SessionDB(target, read_only=True) as db:
        rows = db.get_messages("talk-1")
    for row, item in zip(rows, given, strict=True):
        if row["codex_reasoning_items"]:
            assert row["codex_reasoning_items"] == [item]
            continue
        (beside,) = row["codex_message_items"]
        field, rest = beside["value"]
        calls = row["tool_calls"]
        rest[field] = row["content"] if calls is None else calls[0]["function"]["arguments"]
        assert json.dumps(rest) == json.dumps(item)


@pytest.mark.parametrize("file", ["langchain-sqlite"], indirect=True)
def test_histories_of_langchain(take_in, file: Path, target: Path):
    result = take_in("langchain-sqlite", file)

    assert result.stdout == "2 sessions imported, 6 messages\n"
    assert told(target, "s-1", "role", "content", "tool_name", "tool_call_id") == [
        ("user", "Find the leak", None, None),
        ("assistant", "Looking.", None, None),
        ("tool", "pipe.c:3", "grep", "c1"),
        ("assistant", "In pipe.c", None, None),
        ("system", "be brief", None, None),
    ]
    ((content,),) = told(target, "s-2", "content")
    assert [part["type"] for part in content] == ["text", "image_url"]
    with SessionDB(target, read_only=True) as db:
        session = db.get_session("s-1")
    assert session
    assert (session["source"], session["model"]) == ("langchain", "m-1")
    assert (session["input_tokens"], session["cache_read_tokens"]) == (10, 3)
    # The file says no time.
    assert (session["started_at"], session["last_active_at"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("file", "program", "table", "column", "message", "session_id"),
    [
        (
            "openai-agents-sqlite",
            "openai-agents-sqlite",
            "agent_messages",
            "message_data",
            {"role": "user", "content": "more"},
            "talk-1",
        ),
        (
            "langchain-sqlite",
            "langchain-sqlite",
            "message_store",
            "message",
            {"type": "human", "data": {"content": "more"}},
            "s-1",
        ),
    ],
    indirect=["file"],
)
def test_a_file_that_grew_adds_what_is_new_and_a_damaged_row_is_named(
    take_in,
    file: Path,
    target: Path,
    program: str,
    table: str,
    column: str,
    message: Any,
    session_id: str,
):
    take_in(program, file)
    assert "2 sessions here already, unchanged" in take_in(program, file).stdout
    insert = f"INSERT INTO {table} (id, session_id, {column}) VALUES (?, '{session_id}', ?)"
    connection = sqlite3.connect(file)
    connection.execute(insert, (50, json.dumps(message)))
    connection.commit()

    grown = take_in(program, file)

    assert grown.stdout.splitlines() == [
        "0 sessions imported, 1 message",
        "1 session here already, gained what is new",
        "1 session here already, unchanged",
    ]
    assert told(target, session_id, "role", "content")[-1] == ("user", "more")
    connection.execute(insert, (51, "{"))
    connection.commit()
    connection.close()
    refused = take_in(program, file)
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"Error: {file}: row 51 of {table}: ")


@pytest.mark.parametrize("file", ["langchain-sqlite"], indirect=True)
@pytest.mark.parametrize(
    "message",
    ["[]", "null", '{"type": "ai"}', '{"type": "ai", "data": {"tool_calls": ["x"]}}', "[" * 9999],
)
def test_a_message_of_no_known_form_is_refused(take_in, file: Path, message: str, target: Path):
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO message_store VALUES (50, 's-1', ?)", (message,))
    connection.close()

    result = take_in("langchain-sqlite", file)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {file}: row 50 of message_store: ")
    with SessionDB(target, read_only=True) as db:
        assert db.session_count() == 0


@pytest.mark.parametrize("file", ["langchain-sqlite"], indirect=True)
def test_what_was_streamed_is_of_who_said_it(take_in, file: Path, target: Path):
    streamed = [
        '{"type": "AIMessageChunk", "data": {"content": "an answer", "type": "AIMessageChunk"}}',
        '{"type": "ToolMessageChunk", "data": {"content": "r", "tool_call_id": "c", "name": "f"}}',
    ]
    with sqlite3.connect(file) as connection:
        for message in streamed:
            connection.execute("INSERT INTO message_store VALUES (NULL, 's-9', ?)", (message,))
    connection.close()

    assert take_in("langchain-sqlite", file).exit_code == 0
    assert told(target, "s-9", "role", "content", "tool_name", "tool_call_id") == [
        ("assistant", "an answer", None, None),
        ("tool", "r", "f", "c"),
    ]
    ((items,), _) = told(target, "s-9", "codex_message_items")
    assert items[0]["value"]["type"] == "AIMessageChunk"


@pytest.mark.parametrize("file", ["langchain-sqlite"], indirect=True)
def test_messages_of_no_session_are_counted(take_in, file: Path):
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO message_store VALUES (50, NULL, '{}')")
    connection.close()

    assert "messages of no session (1 record)" in take_in("langchain-sqlite", file).stdout


@pytest.mark.parametrize("file", ["langchain-sqlite"], indirect=True)
def test_a_session_whose_id_is_no_text_comes_along(take_in, file: Path, target: Path):
    said = json.dumps({"type": "human", "data": {"content": "hi"}})
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM message_store")
        for odd in ("x'616263'", "CAST(x'64ff65' AS TEXT)", "x''", "7"):
            connection.execute(
                f"INSERT INTO message_store (session_id, message) VALUES ({odd}, ?)", (said,)
            )
    connection.close()

    result = take_in("langchain-sqlite", file)

    assert "3 sessions imported, 3 messages" in result.stdout
    assert "messages of no session (1 record)" in result.stdout
    for session_id in ("abc", "d\ufffde", "7"):
        assert told(target, session_id, "content") == [("hi",)]


def test_another_file_is_no_history(take_in, tmp_path: Path):
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()

    result = take_in("langchain-sqlite", other)

    assert result.exit_code == 1
    assert "it has no table message_store; nothing was imported" in result.stderr
