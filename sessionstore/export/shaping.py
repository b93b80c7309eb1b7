"""What becomes of sessions before they are written: cut, joined, freed of secrets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from sessionstore.records import COSTS, SESSION_COUNTERS, ExportedSession
from sessionstore.redact import redact_value


def live_only(session: ExportedSession) -> ExportedSession:
    """Leave out the messages that were compacted or undone."""
    live = [each for each in session["messages"] if each["active"]]
    return cast("ExportedSession", {**session, "messages": live})


def joined(parts: Sequence[ExportedSession]) -> ExportedSession:
    """Make one conversation of the parts of a chain, given root first.

    It is the last part, with all messages, begun when the first part began, and with the
    counters of all. A known cost is not lost to an unknown one.
    """
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return last
    whole: dict[str, Any] = dict(last)
    whole["parent_session_id"] = first["parent_session_id"]
    whole["relation"] = first["relation"]
    whole["started_at"] = first["started_at"]
    for name in SESSION_COUNTERS:
        whole[name] = sum(_figure(part, name) or 0 for part in parts)
    for name in COSTS:
        known = [cost for part in parts if (cost := _figure(part, name)) is not None]
        whole[name] = sum(known) if known else None
    whole["messages"] = [
        message | {"session_id": last["id"]} for part in parts for message in part["messages"]
    ]
    whole["model_usage"] = _usage(parts)
    return cast("ExportedSession", whole)


def _figure(session: ExportedSession, name: str) -> Any:
    return session[name]  # type: ignore[literal-required] # names from records


def _usage(parts: Iterable[ExportedSession]) -> list[dict[str, Any]]:
    """Add up the lines by model of several sessions."""
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for part in parts:
        for line in part["model_usage"]:
            key = (line["model"], line["billing_provider"], line["task"])
            held = lines.get(key)
            if held is None:
                lines[key] = dict(line)
                continue
            for name, value in line.items():
                if name in ("first_seen", "last_seen"):
                    held[name] = (min if name == "first_seen" else max)(held[name], value)
                elif isinstance(value, int | float):
                    held[name] = (held[name] or 0) + value
    return [lines[key] for key in sorted(lines)]


def redacted(session: ExportedSession) -> ExportedSession:
    """Take the secrets out of every text of a session: title, prompt, calls, all of it."""
    return cast("ExportedSession", redact_value(session))
