"""How a program's own form of a message is kept beside the columns, and its calls in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FRAMEWORK, _VALUE = "kept_for", "value"


def keep(framework: str, value: Any) -> list[Any]:
    """Give what to store as the opaque items of a message, to find a value there again.

    The column is for what only one program reads; the name of that program says which.
    """
    return [{_FRAMEWORK: framework, _VALUE: value}]


def kept(framework: str, items: Any) -> Any:
    """Give what was kept for a framework, or None; what others kept is none of its business."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and item.get(_FRAMEWORK) == framework:
            return item.get(_VALUE)
    return None


def opaque(items: Any) -> list[dict[str, Any]]:
    """List the items of a provider that no adapter kept."""
    return [
        item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and _FRAMEWORK not in item
    ]


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Give a tool call as the store's callers write it, and as its pages show it."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
