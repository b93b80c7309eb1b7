"""How a program's own form of a message is kept beside the columns, and its calls in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Who keeps it, and what: as it is, or as a text where JSON has no word for a number in it.
_FRAMEWORK, _VALUE, _TEXT = "kept_for", "value", "json"


def keep(framework: str, value: Any) -> list[Any]:
    """Give what to store as the opaque items of a message, to find a value there again.

    The column is for what only one program reads; the name of that program says which. NaN and
    infinity, which a column refuses and Python's own JSON knows, are kept too: providers give
    such log probabilities.
    """
    if is_finite(value):
        return [{_FRAMEWORK: framework, _VALUE: value}]
    return [{_FRAMEWORK: framework, _TEXT: json.dumps(value)}]


def kept(framework: str, items: Any) -> Any:
    """Give what was kept for a framework, or None; what others kept is none of its business."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and item.get(_FRAMEWORK) == framework:
            return json.loads(item[_TEXT]) if _TEXT in item else item.get(_VALUE)
    return None


def is_bare(item: Mapping[str, Any]) -> bool:
    """Say whether a provider's item can be stored as it is, and is not taken for a kept one."""
    return _FRAMEWORK not in item and is_finite(item)


def is_finite(value: Any) -> bool:
    """Say whether a value that JSON can say has neither NaN nor infinity in it."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


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
