"""`import --from claude-code`: transcripts come in as conversations, again and again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessionstore import ImportRejectedError, SessionDB
from sessionstore.readers.histories import HISTORIES

MAIN = "11111111-2222-4333-8444-555555555555"
THEN = 1_767_225_600.0  # 2026-01-01 00:00:00 UTC

Write = Callable[..., Path]


def record(kind: str, uuid: str, parent: str | None, second: int, **fields: Any) -> dict[str, Any]:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "cwd": "/srv/pipes",
        "sessionId": MAIN,
        "version": "2.1.0",
        "gitBranch": "leak",
        "type": kind,
        "uuid": uuid,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        **fields,
    }


def user(uuid: str, parent: str | None, second: int, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return record("user", uuid, parent, second, message=message, **fields)


def answer(
    uuid: str, parent: str, second: int, *blocks: Any, answer_id: str = "msg_1", **fields: Any
) -> dict[str, Any]:
    message = {
        "id": answer_id,
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": fields.pop("stop", None),
        "usage": {
            "input_tokens": 10,
            "output_tokens": fields.pop("output", 5),
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
        },
    }
    return record("assistant", uuid, parent, second, message=message, requestId="r", **fields)


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
THOUGHT = {"type": "thinking", "thinking": "Look for it.", "signature": "c2ln"}
CALL = {"type": "tool_use", "id": "t1", "name": "Grep", "input": {"pattern": "leak"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [text("pipe.c:3")]}
TALK = [
    user("u1", None, 1, [text("Find the leak"), IMAGE]),
    answer("a1", "u1", 2, THOUGHT),
    answer("a2", "a1", 3, CALL, stop="tool_use", output=9),
    user("u2", "a2", 4, [{**RESULT, "is_error": True}, text("and hurry")]),
    answer("a3", "u2", 5, text("In pipe.c."), answer_id="msg_2", stop="end_turn"),
]


@pytest.fixture
def transcript(tmp_path: Path, write: Write) -> Path:
    """One conversation of five records."""
    return write(tmp_path / "projects" / "-work-pipes" / f"{MAIN}.jsonl", TALK)


def kept(target: Path, session_id: str = MAIN) -> Any:
    with SessionDB(target, read_only=True) as db:
        return db.export_session(session_id)


def told(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_a_transcript_is_a_conversation(take_in, transcript: Path, target: Path):
    before = hashlib.sha256(transcript.read_bytes()).digest()

    result = take_in("claude-code", transcript)

    assert result.stdout == "1 session imported, 6 messages\n"
    assert hashlib.sha256(transcript.read_bytes()).digest() == before
    session = kept(target)
    assert session["source"] == "claude-code"
    assert session["model"] == "claude-x"
    assert session["model_config"] == {
        "cwd": "/srv/pipes",
        "git_branch": "leak",
        "version": "2.1.0",
    }
    assert session["started_at"] == THEN + 1
    assert (session["message_count"], session["tool_call_count"]) == (6, 1)
    rows = session["messages"]
    assert told(rows, "role", "content", "timestamp", "platform_message_id") == [
        ("user", [text("Find the leak"), IMAGE], THEN + 1, "u1"),
        ("assistant", None, THEN + 2, "a1"),
        ("assistant", None, THEN + 3, "a2"),
        ("tool", "pipe.c:3", THEN + 4, "u2"),
        ("user", "and hurry", THEN + 4, "u2"),
        ("assistant", "In pipe.c.", THEN + 5, "a3"),
    ]
    assert rows[1]["reasoning"] == "Look for it."
    assert rows[1]["reasoning_details"] == [THOUGHT]
    function = {"name": "Grep", "arguments": '{"pattern": "leak"}'}
    assert rows[2]["tool_calls"] == [{"id": "t1", "type": "function", "function": function}]
    assert told(rows[3:4], "tool_call_id", "tool_name", "finish_reason") == [
        ("t1", "Grep", "error")
    ]
    assert told(rows, "finish_reason")[-1] == ("end_turn",)


def test_what_an_answer_used_counts_once_however_many_records_it_has(
    take_in, transcript: Path, target: Path
):
    take_in("claude-code", transcript)

    session = kept(target)
    assert (session["input_tokens"], session["output_tokens"]) == (20, 14)
    assert (session["cache_read_tokens"], session["cache_write_tokens"]) == (200, 40)
    assert session["api_call_count"] == 2
    assert told(session["model_usage"], "model", "output_tokens", "first_seen", "last_seen") == [
        ("claude-x", 14, THEN + 2, THEN + 5)
    ]


def test_a_transcript_that_grew_adds_what_is_new(
    take_in, transcript: Path, target: Path, write: Write
):
    take_in("claude-code", transcript)
    with SessionDB(target) as db:
        db.set_session_title(MAIN, "My own title")
    first = kept(target)
    assert take_in("claude-code", transcript).stdout == (
        "0 sessions imported, 0 messages\n1 session here already, unchanged\n"
    )
    assert kept(target) == first
    write(
        transcript,
        [
            user("u3", "a3", 6, "Mend it"),
            answer("a4", "u3", 7, text("Done."), answer_id="msg_3"),
            {"type": "ai-title", "aiTitle": "A leak", "sessionId": MAIN},
        ],
    )

    grown = take_in("claude-code", transcript)

    assert grown.stdout == (
        "0 sessions imported, 2 messages\n1 session here already, gained what is new\n"
    )
    session = kept(target)
    assert session["messages"][:6] == first["messages"]
    assert told(session["messages"][6:], "role", "content") == [
        ("user", "Mend it"),
        ("assistant", "Done."),
    ]
    assert (session["message_count"], session["output_tokens"]) == (8, 19)
    assert session["title"] == "My own title"
    assert session["last_active_at"] == THEN + 7


def test_a_session_that_went_another_way_here_stays_as_it_is(
    take_in, transcript: Path, target: Path, write: Write
):
    take_in("claude-code", transcript)
    with SessionDB(target) as db:
        db.append_message(MAIN, "user", "said here")
    before = kept(target)
    assert "unchanged" in take_in("claude-code", transcript).stdout
    write(transcript, [user("u3", "a3", 6, "said there")])

    result = take_in("claude-code", transcript)

    assert result.exit_code == 0
    assert f"here already with other content, left as they are here: {MAIN}" in result.stdout
    assert kept(target) == before


def test_a_half_written_last_line_waits_for_the_next_time(take_in, transcript: Path, target: Path):
    whole = json.dumps(user("u3", "a3", 6, "Mend it"))
    with transcript.open("a") as file:
        file.write(whole[:40])

    result = take_in("claude-code", transcript)

    assert result.stdout.splitlines() == [
        "1 session imported, 6 messages",
        f"{transcript}: the last line is half written and left for the next time",
    ]
    with transcript.open("a") as file:
        file.write(whole[40:] + "\n")
    assert "0 sessions imported, 1 message\n" in take_in("claude-code", transcript).stdout
    assert kept(target)["messages"][-1]["content"] == "Mend it"


@pytest.mark.parametrize(
    "damage", [b'{"type": "user", \n', b"[1]\n", b"\xff\n", b'{"a":1,"a":2}\n']
)
def test_a_damaged_line_is_named_and_nothing_comes_in(
    take_in, transcript: Path, target: Path, damage: bytes
):
    lines = transcript.read_bytes().splitlines(keepends=True)
    transcript.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))

    result = take_in("claude-code", transcript.parent)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {transcript}, line 3: ")
    assert result.stderr.endswith("nothing was imported\n")
    with SessionDB(target, read_only=True) as db:
        assert db.session_count() == 0


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ('{"type": "user", ', "not JSON"),
        ("x" * 5000, "longer than"),
        (json.dumps(user("u9", None, 9, [float("nan")])), "Out of range"),
    ],
)
def test_the_file_of_what_is_refused_is_known_to_a_program(
    transcript: Path, target: Path, write: Write, last: str, said: str
):
    for name in ("0", "z"):
        write(transcript.with_name(f"{name}.jsonl"), [user(name, None, 1, "hi", sessionId=name)])
    with transcript.open("a") as file:
        file.write(f"{last}\n")
    history = HISTORIES["claude-code"](transcript.parent, longest=4000)

    with SessionDB(target) as db, pytest.raises(ImportRejectedError, match=said):
        db.import_sessions(history.sessions(), on_conflict="extend")

    assert history.current == str(transcript)


def test_a_dry_run_says_the_same_and_writes_nothing(take_in, transcript: Path, target: Path):
    before = target.read_bytes()

    shown = take_in("claude-code", "--dry-run", transcript)

    assert shown.stdout == "1 session would be imported, 6 messages\n"
    assert target.read_bytes() == before


def test_what_is_not_kept_is_counted_by_its_kind(take_in, transcript: Path, write: Write):
    write(
        transcript,
        [
            {"type": "file-history-snapshot", "snapshot": {}},
            {"type": "file-history-snapshot", "snapshot": {}},
            record("system", "s1", "a3", 8, subtype="turn_duration", durationMs=3),
            record("attachment", "x1", "a3", 8, attachment={"type": "todo_reminder"}),
            {"type": "brand-new"},
        ],
    )
    (transcript.parent / "sessions-index.json").write_text("{}")

    result = take_in("claude-code", "--json", transcript.parent)

    (file,) = json.loads(result.stdout)["files"]
    assert file["unkept"] == {
        "file-history-snapshot": 2,
        "system/turn_duration": 1,
        "attachment/todo_reminder": 1,
        "brand-new": 1,
    }
    assert file["other_files"] == 1
    kinds, others = take_in("claude-code", transcript.parent).stdout.splitlines()[2:]
    assert kinds.startswith(f"{transcript.parent}: records that are not kept: file-history-snap")
    assert "file-history-snapshot (2 records), system/turn_duration (1 record), " in kinds
    assert others == f"{transcript.parent}: 1 file of other kinds not read"


def test_what_was_typed_while_the_model_worked_is_a_message(
    take_in, transcript: Path, target: Path, write: Write
):
    queued = {"type": "queued_command", "prompt": "also the valve", "commandMode": "prompt"}
    write(transcript, [record("attachment", "q1", "a3", 8, attachment=queued)])

    take_in("claude-code", transcript)

    assert told(kept(target)["messages"][-1:], "role", "content") == [("user", "also the valve")]


def test_a_prompt_that_was_taken_back_is_undone_with_what_followed(
    take_in, transcript: Path, target: Path, write: Write
):
    take_in("claude-code", transcript)
    write(
        transcript,
        [
            user("u3", "a3", 6, "Paint it red"),
            answer("a4", "u3", 7, text("Red."), answer_id="msg_3"),
            user("u4", "a3", 8, "Paint it blue"),
            answer("a5", "u4", 9, text("Blue."), answer_id="msg_4"),
        ],
    )

    take_in("claude-code", transcript)

    session = kept(target)
    assert told(session["messages"][6:], "content", "active", "compacted") == [
        ("Paint it red", False, False),
        ("Red.", False, False),
        ("Paint it blue", True, False),
        ("Blue.", True, False),
    ]
    assert session["message_count"] == 8


def test_what_a_summary_stands_for_is_compacted_but_what_was_preserved(
    take_in, transcript: Path, target: Path, write: Write
):
    take_in("claude-code", transcript)
    boundary = {
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "logicalParentUuid": "a3",
        "compactMetadata": {"trigger": "auto", "preservedMessages": {"uuids": ["a3"]}},
    }
    write(
        transcript,
        [
            record("system", "b1", None, 6, **boundary),
            user("u3", "b1", 7, "This session is continued: a leak.", isCompactSummary=True),
        ],
    )

    grown = take_in("claude-code", transcript)

    assert "0 sessions imported, 1 message\n" in grown.stdout
    session = kept(target)
    assert told(session["messages"], "active", "compacted") == [
        *[(False, True)] * 5,
        (True, False),
        (True, False),
    ]
    assert session["message_count"] == 2
    with SessionDB(target, read_only=True) as db:
        given = db.get_messages_as_conversation(MAIN)
    assert [each["content"] for each in given] == [
        "In pipe.c.",
        "This session is continued: a leak.",
    ]


def test_subagents_are_children(take_in, transcript: Path, target: Path, write: Write):
    beside = {"isSidechain": True}
    write(
        transcript,
        [
            user("s1", None, 6, "Read the manual", **beside),
            answer("s2", "s1", 7, text("Read."), answer_id="msg_s", **beside),
        ],
    )
    apart = transcript.with_suffix("") / "subagents" / "agent-a7f.jsonl"
    write(apart, [user("v1", None, 8, "Count the pipes", agentId="a7f", **beside)])

    result = take_in("claude-code", transcript.parent)

    assert result.stdout == "3 sessions imported, 9 messages\n"
    inline, own = kept(target, f"agent-s1-{MAIN}"), kept(target, f"agent-a7f-{MAIN}")
    for child, said in ((inline, "Read the manual"), (own, "Count the pipes")):
        assert (child["parent_session_id"], child["relation"]) == (MAIN, "subagent")
        assert child["messages"][0]["content"] == said
    assert kept(target)["message_count"] == 6


def test_a_subagent_whose_file_is_read_first_is_a_child_all_the_same(
    take_in, tmp_path: Path, target: Path, write: Write
):
    main_id = MAIN.replace("1", "f")
    own = {"sessionId": main_id}
    write(tmp_path / "projects" / f"{main_id}.jsonl", [{**each, **own} for each in TALK])
    called = user("v1", None, 8, "Count the pipes", agentId="a7f", isSidechain=True)
    write(tmp_path / "projects" / "agent-a7f.jsonl", [{**called, **own}])

    report = json.loads(take_in("claude-code", "--json", tmp_path / "projects").stdout)

    assert report["imported"] == [f"agent-a7f-{main_id}", main_id]
    assert report["detached"] == []
    child = kept(target, f"agent-a7f-{main_id}")
    assert (child["parent_session_id"], child["relation"]) == (main_id, "subagent")


def test_a_fork_is_a_branch_of_what_it_was_made_from(take_in, transcript: Path, target, write):
    fork_id = MAIN.replace("1", "9")
    fork = transcript.with_name(f"{fork_id}.jsonl")
    forked = {"forkedFrom": {"sessionId": MAIN, "messageUuid": "u1"}, "sessionId": fork_id}
    write(fork, [{**TALK[0], **forked}, {**user("f1", "u1", 9, "Otherwise"), "sessionId": fork_id}])

    take_in("claude-code", transcript.parent)

    child = kept(target, fork_id)
    assert (child["parent_session_id"], child["relation"]) == (MAIN, "branch")


def test_a_title_is_the_users_then_the_models_then_a_summary_from_any_file(
    take_in, transcript: Path, target: Path, write: Write
):
    summaries = transcript.with_name("summaries.jsonl")
    write(summaries, [{"type": "summary", "summary": "Leak\nhunt", "leafUuid": "a3"}])
    write(summaries, [{"type": "summary", "summary": "Of another", "leafUuid": "zz"}])

    result = take_in("claude-code", transcript.parent)

    assert kept(target)["title"] == "Leak hunt"
    assert "summary of a session that is not here (1 record)" in result.stdout
    other = MAIN.replace("1", "9")
    named = {"type": "custom-title", "customTitle": "x" * 120, "sessionId": other}
    path = transcript.with_name(f"{other}.jsonl")
    write(path, [user("n1", None, 1, "hi"), named])
    write(path, [{"type": "ai-title", "aiTitle": "later, and still", "sessionId": other}])
    take_in("claude-code", path)
    assert kept(target, other)["title"] == "x" * 99 + "…"


@pytest.mark.parametrize("program", ["claude-code", "codex"])
def test_a_place_without_a_conversation_is_an_error(take_in, tmp_path: Path, program: str):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "rollout-1.jsonl").write_text('{"type": "summary", "summary": "x"}\n')

    for place in (empty, empty / "rollout-1.jsonl"):
        result = take_in(program, place)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            f"Error: {place}: no conversation of {program} is in it; nothing was imported\n"
        )
    assert "does not exist" in take_in(program, tmp_path / "nowhere").stderr
