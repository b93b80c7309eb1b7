"""Items of the Responses API of OpenAI, each one message of the store.

What the columns do not hold of an item is kept beside them, under the name of the program
whose it is, so that the item can be put together again.
(https://platform.openai.com/docs/api-reference/responses)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessionstore.codec import is_plain
from sessionstore.readers.kept import is_bare, is_finite, keep, tool_call
from sessionstore.search.body import text_of

ROLES = ("user", "assistant", "system", "developer")
# Names and marks; not what people look for.
_UNSAID = ("type", "id", "call_id", "status", "encrypted_content", "role", "phase")


def message_of(item: Mapping[str, Any], program: str, names: dict[str, str]) -> dict[str, Any]:
    """Give the message for an item.

    Args:
        item: What JSON made of it.
        program: Whose item it is.
        names: The names of the tools by the ids of their calls; it gains that of this item.
    """
    kind, call_id = item.get("type", "message"), item.get("call_id")
    role = _role_of(item)
    if isinstance(call_id, str) and isinstance(item.get("name"), str):
        names[call_id] = item["name"]
    if kind == "message" and role and _holds(item, "content"):
        return _message(item, role, program)
    if kind == "reasoning":
        return _reasoning(item, program)
    if isinstance(call_id, str) and str(kind).endswith("_call"):
        for field in ("arguments", "input"):
            if isinstance(item.get(field), str):
                call = tool_call(call_id, item.get("name", kind), item[field])
                return {
                    "role": "assistant",
                    "tool_calls": [call],
                    **_beside(item, field, program),
                }
    if isinstance(call_id, str) and str(kind).endswith("_output") and _holds(item, "output"):
        return {
            "role": "tool",
            "content": item["output"],
            "tool_call_id": call_id,
            "tool_name": names.get(call_id),
            **_beside(item, "output", program),
        }
    shown = {
        "role": "tool" if str(kind).endswith("_output") else "assistant",
        "tool_name": str(kind),
    }
    if kind == "message":
        shown = {"role": role or "assistant"}
    said = "\n".join(texts(item)) or None
    return {**shown, "content": said, "codex_message_items": keep(program, [None, item])}


def _role_of(item: Mapping[str, Any]) -> str | None:
    """Give the role if it is one that a column can hold."""
    role = item.get("role")
    return role if isinstance(role, str) and is_plain(role) else None


def _message(item: Mapping[str, Any], role: str, program: str) -> dict[str, Any]:
    content = item["content"]
    if list(item) == ["content", "role"] and isinstance(content, str) and role in ROLES:
        return {"role": role, "content": content}
    if refusals := _refusals(content):
        # To others they are no text, so they are told as one.
        shown = {"role": role, "content": text_of([content, refusals])}
        return {**shown, "codex_message_items": keep(program, [None, item])}
    return {"role": role, "content": content, **_beside(item, "content", program)}


def _refusals(content: Any) -> list[Any]:
    parts = content if isinstance(content, list) else ()
    refused = (part.get("refusal") for part in parts if isinstance(part, dict))
    return [each for each in refused if isinstance(each, str)]


def _reasoning(item: Mapping[str, Any], program: str) -> dict[str, Any]:
    said = text_of([item.get("summary"), item.get("content")])
    shown = {"role": "assistant", "reasoning": said or None}
    if is_bare(item):
        return {**shown, "codex_reasoning_items": [item]}
    return {**shown, "codex_message_items": keep(program, [None, item])}


def _holds(item: Mapping[str, Any], field: str) -> bool:
    value = item.get(field, ...)
    if isinstance(value, str | None):
        return True
    return isinstance(value, list | dict) and is_finite(value)


def _beside(item: Mapping[str, Any], field: str, program: str) -> dict[str, Any]:
    """Keep an item without the one field that the columns of its message hold."""
    return {"codex_message_items": keep(program, [field, {**item, field: None}])}


def texts(value: Any) -> Iterator[str]:
    """List what is said in a value of a kind that is not known."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name not in _UNSAID:
                yield from texts(each)
