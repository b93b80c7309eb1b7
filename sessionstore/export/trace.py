"""JSON Lines as Claude Code writes its transcripts: a line a message, linked one to the next."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from sessionstore.export.jsonl import json_text
from sessionstore.export.text import calls_of, iso_time, read_call
from sessionstore.records import ExportedSession, MessageRecord

# Names the lines, so that the same message has the same uuid in every export.
_NAMESPACE = uuid.UUID("6d5e3d0e-57f0-5c0f-9b1a-6f2f3f8a4c11")


def trace(session: ExportedSession) -> Iterator[str]:
    """Write a session, a line at a time: its title, its prompt, its messages in order.

    Times are those of the messages. Tool results are lines of type `user`, as the API has
    them; a message that was compacted or undone says so in `isSidechain`, which readers of
    such files leave out of the conversation.
    """
    session_id = session["id"]
    last: str | None = None
    if session["title"]:
        leaf = session["messages"][-1]["id"] if session["messages"] else 0
        yield _line(
            {"type": "summary", "summary": session["title"], "leafUuid": _uuid(session_id, leaf)}
        )
    common = {"sessionId": session_id, "userType": "external", "version": "sessionstore"}
    if session["system_prompt"]:
        last = _uuid(session_id, "system")
        yield _line(
            {
                "type": "system",
                "uuid": last,
                "parentUuid": None,
                **common,
                "timestamp": iso_time(session["started_at"]),
                "content": session["system_prompt"],
            }
        )
    for message in session["messages"]:
        this = _uuid(session_id, message["id"])
        yield _line(
            {
                "type": "assistant" if message["role"] == "assistant" else "user",
                "uuid": this,
                "parentUuid": last,
                "isSidechain": not message["active"],
                **common,
                "timestamp": iso_time(message["timestamp"]),
                "message": _message(session, message),
            }
        )
        last = this


def _line(value: dict[str, Any]) -> str:
    return json_text(value) + "\n"


def _uuid(session_id: str, message: object) -> str:
    text = f"{session_id}\0{message}".encode("utf-8", "backslashreplace").decode()
    return str(uuid.uuid5(_NAMESPACE, text))


def _message(session: ExportedSession, message: MessageRecord) -> dict[str, Any]:
    if message["role"] == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            "content": message["content"],
        }
        return {"role": "user", "content": [result]}
    if message["role"] != "assistant":
        return {"role": message["role"], "content": message["content"]}
    blocks: list[Any] = []
    if message["reasoning"] or message["reasoning_content"]:
        thought = message["reasoning"] or message["reasoning_content"]
        blocks.append({"type": "thinking", "thinking": thought})
    content = message["content"]
    if isinstance(content, list):
        blocks += content
    elif content:
        blocks.append({"type": "text", "text": content} if isinstance(content, str) else content)
    blocks += [_tool_use(each) for each in calls_of(message["tool_calls"])]
    return {
        "role": "assistant",
        "type": "message",
        "model": session["model"],
        "content": blocks,
        "stop_reason": message["finish_reason"],
    }


def _tool_use(call: Any) -> dict[str, Any]:
    call_id, name, arguments, is_json = read_call(call)
    given = arguments if is_json else {"arguments": arguments}
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}
