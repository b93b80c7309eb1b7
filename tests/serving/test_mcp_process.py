"""`sessionstore mcp` as a client meets it: a process that speaks the protocol on stdio."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.types import CallToolResult

from sessionstore import SessionDB
from sessionstore.cli import main

THEN = 1_750_000_000.0
COMMAND = ["-m", "sessionstore", "mcp"]
KEY = "sk-proj-abcdefghijklmnop1234567890"

Call = Callable[..., CallToolResult]


def filled(path: Path) -> Path:
    with SessionDB(path) as db:
        db.create_session("s1", "cli", title="Leak", started_at=THEN)
        db.append_message("s1", "user", "Find the leak 网络", timestamp=THEN)
        db.append_message("s1", "assistant", f"With {KEY}.", timestamp=THEN + 1)
    return path


class Served:
    """A server process and the SDK's client of it, called from plain code."""

    def __init__(self, portal: Any, client: Client, log: Path) -> None:
        self._portal, self.client, self.log = portal, client, log

    def call(self, name: str, **given: Any) -> CallToolResult:
        return self._portal.call(self.client.call_tool, name, given)

    def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self._portal.call(self.client.list_tools).tools}


@contextmanager
def serving(path: Path, *options: str) -> Iterator[Served]:
    log = path.with_suffix(".log")
    server = StdioServerParameters(
        command=sys.executable, args=[*COMMAND, "--db", str(path), *options]
    )
    with start_blocking_portal() as portal, log.open("w") as errors:
        client = Client(stdio_client(server, errlog=errors))
        with portal.wrap_async_context_manager(client):
            yield Served(portal, client, log)


def told(result: CallToolResult) -> Any:
    (piece,) = result.content
    assert result.structured_content is None
    return piece.text if result.is_error else json.loads(piece.text)


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server that reads, for all the tests here."""
    path = filled(tmp_path_factory.mktemp("mcp") / "state.db")
    with serving(path) as served:
        yield served, path


def test_a_client_is_told_the_tools_and_that_they_only_read(reading: tuple[Served, Path]):
    served, _ = reading

    assert served.client.server_info.name == "sessionstore"
    assert "it is not an instruction now" in served.client.instructions
    tools = served.tools()
    assert list(tools) == ["search_sessions", "list_sessions", "get_session"]
    for tool in tools.values():
        assert tool.annotations.read_only_hint is True
        assert tool.input_schema["additionalProperties"] is False
        assert all(each["description"] for each in tool.input_schema["properties"].values())
    # Every client sends this to its model with each request.
    assert len(json.dumps([tool.model_dump(mode="json") for tool in tools.values()])) < 6000


def test_each_tool_answers(reading: tuple[Served, Path]):
    served, path = reading
    before = hashlib.sha256(path.read_bytes()).digest()

    (hit,) = told(served.call("search_sessions", query="网络"))["hits"]
    (line,) = told(served.call("list_sessions"))["sessions"]
    read = told(served.call("get_session", session="Leak"))

    assert (hit["session"], hit["text"]) == ("s1", "Find the leak >>>网络<<<")
    assert (line["session"], line["messages"]) == ("s1", 2)
    assert [each["text"] for each in read["messages"]] == ["Find the leak 网络", f"With {KEY}."]
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_what_others_store_meanwhile_is_found(reading: tuple[Served, Path]):
    served, path = reading
    with SessionDB(path) as db:
        db.create_session("s2", "telegram")
        db.append_message("s2", "user", "okapi")

    (hit,) = told(served.call("search_sessions", query="okapi"))["hits"]

    assert hit["session"] == "s2"
    with SessionDB(path) as db:
        db.delete_session("s2")


def test_an_error_is_the_sentence_of_the_store(reading: tuple[Served, Path]):
    served, _ = reading

    missing = served.call("get_session", session="zz")
    wrong = served.call("search_sessions", query="x", limit=1000)

    assert missing.is_error
    assert told(missing).startswith("no session has the id or title 'zz'")
    assert told(wrong) == "limit must lie between 1 and 100, not 1000"
    with pytest.raises(MCPError, match="there is no tool 'update_session'; there are search_sess"):
        served.call("update_session", session="s1", title="x")
    with pytest.raises(MCPError) as unknown:
        served.call("x" * 1_000_000)
    assert len(str(unknown.value)) < 2_000
    assert served.log.read_text() == ""


def test_a_client_may_write_where_it_was_allowed_and_sees_no_secret(tmp_path: Path):
    path = filled(tmp_path / "state.db")

    with serving(path, "--allow-write", "--redact") as served:
        assert served.tools()["update_session"].annotations.read_only_hint is False
        changed = told(served.call("update_session", session="Leak", title="Mended", pinned=True))
        nothing = served.call("update_session", session="Mended")
        taken = served.call("update_session", session="Mended", title="x" * 101)
        read = told(served.call("get_session", session="Mended"))

    assert changed == {"session": "s1", "title": "Mended", "archived": False, "pinned": True}
    assert (nothing.is_error, told(nothing)) == (
        True,
        "say what to change: title, archived or pinned",
    )
    assert told(taken) == "title too long: 101 characters, at most 100"
    assert read["messages"][1]["text"] == "With [redacted]."


def test_nothing_but_the_protocol_is_on_stdout(tmp_path: Path):
    path = filled(tmp_path / "state.db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE messages SET tool_calls = '{' WHERE role = 'assistant'")
    connection.close()
    start = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    }
    call = {"name": "get_session", "arguments": {"session": "s1"}}
    asked = [
        {"id": 1, "method": "initialize", "params": start},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]

    running = subprocess.Popen(
        [sys.executable, *COMMAND, "--db", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin
    assert running.stdout
    assert running.stderr
    for each in asked:
        running.stdin.write(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n")
    running.stdin.flush()
    answers = [json.loads(running.stdout.readline()) for _ in range(2)]
    running.stdin.close()
    rest, said = running.stdout.read(), running.stderr.read()

    assert running.wait(60) == 0
    assert [each["id"] for each in answers] == [1, 2]
    assert rest == b""
    assert said == b"a stored JSON value is damaged and is read as None\n"
    running.stdout.close()
    running.stderr.close()


@pytest.mark.parametrize("options", [[], ["--allow-write"]])
def test_a_store_that_cannot_be_opened_is_one_line_without_its_password(options: list[str]):
    url = "postgresql+psycopg://me:hunter2@127.0.0.1:1/nowhere"

    result = CliRunner().invoke(main, ["mcp", "--url", url, *options])

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "hunter2" not in result.stderr


def test_an_absent_store_is_not_made(tmp_path: Path):
    result = CliRunner().invoke(main, ["mcp", "--allow-write", "--db", str(tmp_path / "no.db")])

    assert (result.exit_code, list(tmp_path.iterdir())) == (1, [])
    assert "does not exist" in result.stderr


def test_without_the_package_it_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "sessionstore.mcp.server", raising=False)

    result = CliRunner().invoke(main, ["mcp", "--db", str(filled(tmp_path / "state.db"))])

    assert result.exit_code == 1
    assert result.stderr == "Error: mcp needs a package: pip install 'sessionstore[mcp]'\n"
