"""Markdown, and Quarto's: front matter, a heading for each message, tool calls as JSON blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sessionstore.export.jsonl import json_text
from sessionstore.export.text import (
    calls_of,
    iso_time,
    one_line,
    read_call,
    safe,
    state_of,
    written,
)
from sessionstore.records import ExportedSession, MessageRecord

_FENCES = re.compile(r"`{3,}")
# What a heading's text could do to Markdown or to HTML within it.
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|$~!&])")


def markdown(session: ExportedSession, *, quarto: bool = False) -> Iterator[str]:
    """Write a session in pieces that joined are the file.

    What a message says stands as it is, in its own Markdown. Tool results and calls stand in
    fences that nothing within can end.

    Args:
        session: The session.
        quarto: Say in the front matter how Quarto is to render it: no code is ever run.
    """
    yield from _front_matter(session, quarto=quarto)
    yield f"\n# {_plain(session['title'] or session['id'])}\n"
    if session["system_prompt"]:
        yield f"\n## System prompt\n\n{_fenced(session['system_prompt'], 'text')}\n"
    for message in session["messages"]:
        yield _message(message)


def _front_matter(session: ExportedSession, *, quarto: bool) -> Iterator[str]:
    facts: dict[str, Any] = {
        "title": one_line(session["title"] or session["id"]),
        "session": session["id"],
        "source": session["source"],
        "model": session["model"],
        "user": session["user_id"],
        "parent": session["parent_session_id"],
        "date": iso_time(session["started_at"]),
        "ended": iso_time(session["ended_at"]),
        "end_reason": session["end_reason"],
        "messages": len(session["messages"]),
        "tool_calls": session["tool_call_count"],
        "input_tokens": session["input_tokens"],
        "output_tokens": session["output_tokens"],
        "cost_usd": session["actual_cost_usd"],
        "model_config": session["model_config"],
    }
    yield "---\n"
    for name, value in facts.items():
        if value is not None:
            # JSON in ASCII on one line is YAML too, whatever the text.
            yield f"{name}: {json.dumps(value, default=repr)}\n"
    if quarto:
        yield "format: html\nexecute:\n  enabled: false\n"
    yield "---\n"


def _message(message: MessageRecord) -> str:
    heading = f"## {_plain(message['role'] or 'unknown').capitalize()}"
    if message["tool_name"]:
        heading += f": {_plain(message['tool_name'])}"
    if state := state_of(message):
        heading += f" ({state})"
    parts = [heading]
    if when := iso_time(message["timestamp"]):
        parts.append(f"*{when}*")
    thoughts = (message["reasoning"], message["reasoning_content"])
    parts += [f"Reasoning:\n\n{_fenced(text, 'text')}" for text in thoughts if text]
    text = written(message["content"])
    if text:
        parts.append(_fenced(text, "text") if message["role"] == "tool" else safe(text))
    parts += [_call(each) for each in calls_of(message["tool_calls"])]
    return "\n" + "\n\n".join(parts) + "\n"


def _call(call: Any) -> str:
    call_id, name, arguments, _ = read_call(call)
    block = {"name": name, "arguments": arguments}
    if isinstance(call_id, str):
        block["id"] = call_id
    return f"Tool call:\n\n{_fenced(json_text(block, indent=2), 'json')}"


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{safe(text)}\n{fence}"


def _plain(text: str) -> str:
    return _MARKS.sub(r"\\\1", one_line(text))
