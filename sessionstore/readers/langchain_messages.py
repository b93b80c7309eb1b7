"""Messages of LangChain, as its `message_to_dict` tells them, each one message of the store.

What the columns do not hold of a message is kept beside them, so that it can be put together
again. (https://reference.langchain.com/python/langchain-core/messages)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sessionstore.codec import is_plain
from sessionstore.readers.kept import keep, tool_call

# Of a message that says nothing beside its content the role is enough.
_PLAIN = {"human": "user", "ai": "assistant", "system": "system"}
# The last chunk of a stream, or the sum of all, is stored as it is by who wrote it so.
_ROLES = {
    **_PLAIN,
    "tool": "tool",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
# What a message has in a field that says nothing; the last two are of earlier releases.
_UNSAID: dict[str, Any] = {
    "additional_kwargs": {},
    "response_metadata": {},
    "name": None,
    "id": None,
    "tool_calls": [],
    "invalid_tool_calls": [],
    "usage_metadata": None,
    "example": False,
    "is_chunk": False,
}


def message_of(told: Mapping[str, Any], program: str) -> dict[str, Any]:
    """Give the message for one of LangChain's.

    Args:
        told: Its type and its data.
        program: Under which name the rest is kept.

    Raises:
        ValueError, TypeError: It is no such message, or holds what JSON cannot say.
    """
    kind, data = told.get("type"), told.get("data")
    if not isinstance(kind, str) or not isinstance(data, dict):
        msg = "a message of LangChain has a type and data"
        raise TypeError(msg)
    content = data.get("content")
    role = data.get("role")
    own_role = role if isinstance(role, str) and is_plain(role) else None
    row = {"role": _ROLES.get(kind) or own_role or kind, "content": content}
    if calls := data.get("tool_calls"):
        if not isinstance(calls, list) or not all(isinstance(each, dict) for each in calls):
            msg = "tool_calls is a list of objects"
            raise TypeError(msg)
        row["tool_calls"] = [
            tool_call(
                call.get("id"), call.get("name"), json.dumps(call.get("args"), ensure_ascii=False)
            )
            for call in calls
        ]
    if _ROLES.get(kind) == "tool":
        row["tool_call_id"], row["tool_name"] = data.get("tool_call_id"), data.get("name")
    if kind not in _PLAIN or any(map(_is_said, data, data.values())):
        rest = {**data, "content": None}
        row["codex_message_items"] = keep(program, {**told, "data": rest})
    return row


def _is_said(field: str, value: Any) -> bool:
    """Say whether a field holds what neither the columns nor the role of a message do."""
    if field in ("content", "type"):
        return False
    unsaid = _UNSAID.get(field, ...)
    return type(value) is not type(unsaid) or bool(value != unsaid)
