"""A small store with one of everything, and the command to run on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import THEN, Run
from click.testing import CliRunner, Result

from sessionstore import SessionDB, StoreSettings
from sessionstore.cli import main


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times are shown in the local zone; here that is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store of three conversations and a subagent's, made once."""
    path = tmp_path_factory.mktemp("template") / "state.db"
    settings = StoreSettings(clock=lambda: THEN)
    with SessionDB(path, settings=settings) as db:
        db.create_session(
            "20250101_a1", "cli", model="m1", title="Fix the build", user_id="u1", started_at=THEN
        )
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "terminal", "arguments": '{"command":\n "ls 网络"}'},
        }
        db.append_messages(
            "20250101_a1",
            [
                {"role": "user", "content": "检查网络配置, then run chat-send", "timestamp": THEN},
                {"role": "assistant", "content": "Looking.", "tool_calls": [call]},
                {
                    "role": "tool",
                    "content": "line one\nline two " + "x" * 500,
                    "tool_name": "terminal",
                },
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "Done."}, {"type": "image"}],
                },
            ],
        )
        db.update_token_counts(
            "20250101_a1", input_tokens=12_000, output_tokens=345, actual_cost_usd=0.5
        )
        db.create_session("20250101_a1sub", "cli", parent_session_id="20250101_a1", started_at=THEN)
        db.create_session("20250101_a2", "brand-new", started_at=THEN + 60)
        db.append_message(
            "20250101_a2", "user", "now zebra, then chat-send", timestamp=THEN + 86_400
        )
        db.create_session("lone", "telegram", title="a_b%c 桂林", started_at=THEN + 120)
        db.append_message("lone", "user", "half \ud83d a pair \x1b[31m\x07\x9b2J", timestamp=THEN)
    return path.read_bytes()


@pytest.fixture
def filled(path: Path, template: bytes) -> Path:
    """A store of three conversations and a subagent's, the test's own."""
    path.write_bytes(template)
    return path


@pytest.fixture
def run(filled: Path) -> Run:
    """Run the command on the store and give what it said."""

    def invoke(*arguments: str, columns: int = 100, db: Path = filled, **env: str) -> Result:
        surroundings = {"COLUMNS": str(columns), **env}
        result = CliRunner().invoke(main, ["--db", str(db), *arguments], env=surroundings)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke
