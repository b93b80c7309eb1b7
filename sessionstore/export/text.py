"""Messages in words that cannot drive a terminal or turn a page around; names of files."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sessionstore.export.jsonl import json_text
from sessionstore.records import MessageRecord
from sessionstore.search.body import text_of

# C0 but for newline and tab, DEL, C1: a terminal obeys these. Then the direction overrides,
# which show a line in another order than it has, and halves of surrogate pairs.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 80
# Names that Windows keeps for devices, whatever follows the dot.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)


def safe(text: str) -> str:
    """Write out what a terminal would obey instead of show; newline and tab stay."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Make it one harmless line: runs of white space are one blank."""
    return safe(" ".join(text.split()))


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - a byte


def file_name(session_id: str, shown: str | None = None) -> str:
    """Give a name for a session's file that is no path, on any system, without its ending.

    What a name cannot hold is left out, and then, as with letters whose case some systems do
    not tell apart, a few digits of the id's hash make it the name of this session only.

    Args:
        session_id: The id.
        shown: What may be read of the id in the name; None is all of it.
    """
    text = session_id if shown is None else shown
    name = _NOT_IN_NAMES.sub("_", text).strip("._-")[:_LONGEST_NAME]
    if name and name == session_id and name == name.lower() and not _DEVICES.match(name):
        return name
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{name or 'session'}_{digest}" if not _DEVICES.match(name) else f"session_{digest}"


def written(content: Any) -> str:
    """Give the text of a message's content; of parts without text their kind."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = []
    for part in content if isinstance(content, list) else [content]:
        text = text_of([part])
        kind = part.get("type") if isinstance(part, dict) else None
        parts.append(text or (f"[{kind}]" if isinstance(kind, str) else json_text(part)))
    return "\n".join(parts)


def state_of(message: MessageRecord) -> str:
    """Say what became of a message that is not live any more; "" of one that is."""
    return "" if message["active"] else "compacted" if message["compacted"] else "undone"


def calls_of(tool_calls: Any) -> list[Any]:
    """List the tool calls of a message, whatever shape they came in."""
    if tool_calls is None:
        return []
    return tool_calls if isinstance(tool_calls, list) else [tool_calls]


def name_and_arguments(call: Any) -> tuple[str, Any]:
    """Read a call as the common makers write it; of another shape, give all of it."""
    inner = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        return "call", call
    return inner["name"], inner.get("arguments", inner.get("input", ""))


class ToolCall(NamedTuple):
    """A tool call that was read.

    Attributes:
        call_id: Its id, of whatever type; None if it has none.
        name: The tool.
        arguments: What it is given.
        is_json: False: the arguments are a text that is no JSON, or too deep to be read.
    """

    call_id: Any
    name: str
    arguments: Any
    is_json: bool


def read_call(call: Any) -> ToolCall:
    """Read a call as `name_and_arguments` does, and its arguments from their JSON."""
    name, arguments = name_and_arguments(call)
    call_id = call.get("id") if isinstance(call, dict) else None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return ToolCall(call_id, name, arguments, is_json=False)
    return ToolCall(call_id, name, arguments, is_json=True)


def iso_time(moment: float | None) -> str | None:
    """Write a time as ISO 8601 in UTC, to the microsecond; None if no calendar has it."""
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")[:-6] + "Z"  # type: ignore[arg-type] # None is no time either
    except (TypeError, ValueError, OverflowError, OSError):
        return None
