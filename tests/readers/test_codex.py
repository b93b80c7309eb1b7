"""`import --from codex`: rollouts come in as conversations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB

ID = "0199a213-81c0-7800-8aa1-bbab2a035a53"
THEN = 1_767_225_600.0  # 2026-01-01 00:00:00 UTC

Write = Callable[..., Path]


def line(kind: str, second: int, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{second:02}.000Z", "type": kind, "payload": payload}


def item(kind: str, second: int, **fields: Any) -> dict[str, Any]:
    return line("response_item", second, type=kind, **fields)


def said(role: str, second: int, text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return item("message", second, role=role, content=[part], **fields)


def prompt(second: int, text: str) -> list[dict[str, Any]]:
    event = line("event_msg", second, type="user_message", message=text)
    return [said("user", second, text), event]


def count(second: int, into: int, cached: int, out: int, reasoning: int) -> dict[str, Any]:
    total = {
        "input_tokens": into,
        "cached_input_tokens": cached,
        "output_tokens": out,
        "reasoning_output_tokens": reasoning,
        "total_tokens": into + out,
    }
    return line("event_msg", second, type="token_count", info={"total_token_usage": total})


META = line(
    "session_meta",
    0,
    id=ID,
    timestamp="2026-01-01T00:00:00.000Z",
    cwd="/srv/pipes",
    originator="codex_cli_rs",
    cli_version="0.90.0",
    source="cli",
    model_provider="openai",
    base_instructions={"text": "You are Codex."},
    git={"commit_hash": "abc", "branch": "leak"},
)
REASONING = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Look for it."}],
    "encrypted_content": "gAAA",
}
TALK = [
    META,
    said("developer", 1, "<permissions>"),
    *prompt(1, "Find the leak"),
    line("turn_context", 1, cwd="/srv/pipes", model="gpt-x"),
    line("response_item", 2, **REASONING),
    item("function_call", 3, name="shell", arguments='{"command":["ls"]}', call_id="c1"),
    item("function_call_output", 4, call_id="c1", output="pipe.c"),
    item("custom_tool_call", 5, status="completed", call_id="c2", name="apply_patch", input="***"),
    item("custom_tool_call_output", 6, call_id="c2", output="Success"),
    count(7, 100, 40, 30, 10),
    count(7, 100, 40, 30, 10),
    said("assistant", 8, "In pipe.c.", phase="final_answer", id="msg_1"),
    line("event_msg", 8, type="agent_message", message="In pipe.c."),
    count(9, 300, 140, 50, 15),
]


@pytest.fixture
def rollout(tmp_path: Path, write: Write) -> Path:
    """One conversation."""
    folder = tmp_path / "sessions" / "2026" / "01" / "01"
    return write(folder / f"rollout-2026-01-01T00-00-00-{ID}.jsonl", TALK)


def kept(target: Path, session_id: str = ID) -> Any:
    with SessionDB(target, read_only=True) as db:
        return db.export_session(session_id)


def told(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_a_rollout_is_a_conversation(take_in, rollout: Path, target: Path):
    result = take_in("codex", rollout.parents[3])

    assert result.stdout == "1 session imported, 8 messages\n"
    session = kept(target)
    assert (session["source"], session["model"], session["billing_provider"]) == (
        "codex",
        "gpt-x",
        "openai",
    )
    assert session["system_prompt"] == "You are Codex."
    assert session["model_config"] == {
        "cwd": "/srv/pipes",
        "git_branch": "leak",
        "version": "0.90.0",
        "originator": "codex_cli_rs",
    }
    assert session["started_at"] == THEN
    rows = session["messages"]
    assert told(rows, "role", "content", "tool_name", "timestamp") == [
        ("developer", "<permissions>", None, THEN + 1),
        ("user", "Find the leak", None, THEN + 1),
        ("assistant", None, None, THEN + 2),
        ("assistant", None, None, THEN + 3),
        ("tool", "pipe.c", "shell", THEN + 4),
        ("assistant", None, None, THEN + 5),
        ("tool", "Success", "apply_patch", THEN + 6),
        ("assistant", "In pipe.c.", None, THEN + 8),
    ]
    assert rows[2]["reasoning"] == "Look for it."
    assert rows[2]["codex_reasoning_items"] == [REASONING]
    assert rows[3]["tool_calls"][0]["function"] == {
        "name": "shell",
        "arguments": '{"command":["ls"]}',
    }
    assert rows[5]["tool_calls"][0]["function"] == {"name": "apply_patch", "arguments": "***"}
    assert rows[7]["platform_message_id"] == "msg_1"
    (beside,) = rows[7]["codex_message_items"]
    assert beside["value"][1]["phase"] == "final_answer"
    assert rows[3]["codex_message_items"] is None


def test_tokens_are_the_last_totals_and_a_repeated_count_is_none(
    take_in, rollout: Path, target: Path, write: Write
):
    write(rollout, [count(10, 7, 0, 3, 0)])  # a new process begins to count anew

    take_in("codex", rollout)

    session = kept(target)
    assert (session["input_tokens"], session["output_tokens"]) == (307, 53)
    assert (session["cache_read_tokens"], session["reasoning_tokens"]) == (140, 15)
    assert session["api_call_count"] == 3
    assert told(session["model_usage"], "model", "input_tokens") == [("gpt-x", 307)]


def test_a_rollout_that_grew_adds_what_is_new(take_in, rollout: Path, target: Path, write: Write):
    take_in("codex", rollout)
    assert "unchanged" in take_in("codex", rollout).stdout
    renamed = line("event_msg", 10, type="thread_name_updated", thread_name="A leak")
    write(rollout, [*prompt(10, "Mend it"), renamed, count(11, 400, 140, 60, 15)])

    result = take_in("codex", rollout)

    assert "0 sessions imported, 1 message\n" in result.stdout
    session = kept(target)
    assert (session["message_count"], session["title"]) == (9, "A leak")
    assert session["input_tokens"] == 400


def test_turns_that_were_taken_back_are_undone(take_in, rollout: Path, target: Path, write: Write):
    write(
        rollout,
        [
            *prompt(10, "Paint it red"),
            said("assistant", 11, "Red."),
            line("event_msg", 12, type="thread_rolled_back", num_turns=1),
            *prompt(13, "Paint it blue"),
        ],
    )

    take_in("codex", rollout)

    session = kept(target)
    assert told(session["messages"][8:], "content", "active", "compacted") == [
        ("Paint it red", False, False),
        ("Red.", False, False),
        ("Paint it blue", True, False),
    ]
    assert session["message_count"] == 9


@pytest.mark.parametrize("whole", [True, False])
def test_a_compaction_puts_a_shorter_history_in_its_place(
    take_in, rollout: Path, target: Path, write: Write, whole: bool
):
    shorter = [said("user", 0, "Find the leak")["payload"], said("user", 0, "So far: x")["payload"]]
    given = {"message": "So far: x", **({"replacement_history": shorter} if whole else {})}
    write(rollout, [line("compacted", 10, **given), *prompt(11, "Mend it")])

    take_in("codex", rollout)

    with SessionDB(target, read_only=True) as db:
        live = [each["content"] for each in db.get_messages(ID)]
        compacted = [each["compacted"] for each in db.get_messages(ID, include_inactive=True)[:8]]
    assert live == [*(["Find the leak"] if whole else []), "So far: x", "Mend it"]
    assert compacted == [True] * 8


def test_subagents_and_forks_know_what_they_come_from(
    take_in, rollout: Path, target: Path, write: Write
):
    spawned, forked = ID.replace("0199", "0299"), ID.replace("0199", "0399")
    source = {"subagent": {"thread_spawn": {"parent_thread_id": ID, "depth": 1}}}
    for session_id, fields in ((spawned, {"source": source}), (forked, {"forked_from_id": ID})):
        meta = line("session_meta", 1, id=session_id, **fields)
        path = rollout.with_name(f"rollout-2026-01-01T00-00-01-{session_id}.jsonl")
        write(path, [meta, META, *prompt(2, "Go on")])

    result = take_in("codex", rollout.parent)

    assert "session_meta of another session (2 records)" in result.stdout
    assert told([kept(target, spawned), kept(target, forked)], "parent_session_id", "relation") == [
        (ID, "subagent"),
        (ID, "branch"),
    ]


def test_what_is_not_known_is_kept_as_it_is_or_counted(
    take_in, rollout: Path, target: Path, write: Write
):
    new = {"type": "hologram_call", "id": "h1", "shape": {"text": "a pipe in the air"}}
    write(
        rollout,
        [
            line("response_item", 10, **new),
            line("event_msg", 10, type="task_started"),
            line("world_state", 10, x=1),
        ],
    )

    result = take_in("codex", "--json", rollout)

    (file,) = json.loads(result.stdout)["files"]
    assert file["unkept"] == {"event_msg/task_started": 1, "world_state": 1}
    row = kept(target)["messages"][-1]
    assert (row["tool_name"], row["content"]) == ("hologram_call", "a pipe in the air")
    assert row["codex_message_items"] == [{"kept_for": "codex", "value": [None, new]}]


def test_a_rollout_from_before_there_were_payloads(take_in, target, tmp_path: Path, write: Write):
    path = tmp_path / f"rollout-2025-05-07T17-24-21-{ID}.jsonl"
    meta = {"id": ID, "timestamp": "2026-01-01T00:00:00.000Z", "instructions": "Be kind."}
    records = [said("user", 0, "Find the leak")["payload"], REASONING]
    write(path, [meta, {"record_type": "state"}, *records])

    result = take_in("codex", path)

    assert "state (1 record)" in result.stdout
    session = kept(target)
    assert (session["system_prompt"], session["started_at"]) == ("Be kind.", THEN)
    assert told(session["messages"], "content", "reasoning") == [
        ("Find the leak", None),
        (None, "Look for it."),
    ]
