"""A session that is put together while the history of another program is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sessionstore.records import COUNTERS
from sessionstore.store import SessionDB

_LONGEST_TITLE = 100
_CUT = "…"


class Draft:
    """One session: messages at the end only, their states and what was used as it is told.

    What a message says must not depend on what comes after it in the source, so that a source
    that has grown begins as it did.

    Args:
        source: The program whose history it is.
    """

    def __init__(self, source: str) -> None:
        self.fields: dict[str, Any] = {"source": source}
        self.rows: list[dict[str, Any]] = []
        self.now: float | None = None
        self._first: float | None = None
        self._usage: dict[str, dict[str, Any]] = {}

    def at(self, timestamp: Any) -> None:
        """Set the time of what comes next; what is no time leaves it as it was."""
        moment = epoch(timestamp)
        if moment is not None:
            self.now = moment
            self._first = moment if self._first is None else self._first

    def fill_missing(self, **fields: Any) -> None:
        """Fill fields of the session that say nothing yet."""
        for name, value in fields.items():
            if value not in (None, "", {}) and self.fields.get(name) is None:
                self.fields[name] = plain(value) if isinstance(value, str) else value

    def add(self, role: str, **fields: Any) -> None:
        """Add a message at the time that was told last; fields of None are absent."""
        row = {name: value for name, value in fields.items() if value is not None}
        content = row.get("content")
        if not isinstance(content, str | list | dict | None):
            row["content"] = [content]
        self.rows.append(
            {"role": plain(role) or "unknown", **row, "active": True, "compacted": False}
        )
        self.rows[-1]["timestamp"] = self.now

    def compact(self, *, before: int | None = None, keep: Collection[int] = ()) -> None:
        """Let what is live be what a summary stands for.

        Args:
            before: Only rows before this place.
            keep: Places of rows that stay live.
        """
        for place, row in enumerate(self.rows[:before]):
            if row["active"] and place not in keep:
                row["active"], row["compacted"] = False, True

    def undo(self, places: Collection[int]) -> None:
        """Let the messages at these places be undone."""
        for place in places:
            self.rows[place]["active"] = self.rows[place]["compacted"] = False

    def use(
        self, model: str | None, figures: Mapping[str, int], *, moment: float | None = None
    ) -> None:
        """Add what was used of a model, at the time that was told last or at another."""
        moment = self.now if moment is None else moment
        line = self._usage.setdefault(
            plain(model) or "", {**dict.fromkeys(COUNTERS, 0), "first_seen": moment}
        )
        for name in COUNTERS:
            line[name] += figures.get(name, 0)
        line["last_seen"] = moment

    def exported(self) -> dict[str, Any]:
        """Give the session as `import_sessions` takes it; without a time it began at 0."""
        start = self._first or 0.0
        for row in self.rows:
            row["timestamp"] = start if row["timestamp"] is None else row["timestamp"]
        live = [row for row in self.rows if row["active"]]
        lines = [
            {
                "model": model,
                **line,
                **{
                    name: start if line[name] is None else line[name]
                    for name in ("first_seen", "last_seen")
                },
            }
            for model, line in self._usage.items()
            if any(line[name] for name in COUNTERS)
        ]
        return {
            **self.fields,
            "title": title(self.fields.get("title")),
            "started_at": start,
            "message_count": len(live),
            "tool_call_count": sum(
                len(row.get("tool_calls") or ()) for row in live if row["role"] != "tool"
            ),
            **{name: sum(line[name] for line in lines) for name in COUNTERS},
            "messages": self.rows,
            "model_usage": lines,
        }


def epoch(value: Any) -> float | None:
    """Read an ISO time as epoch seconds, UTC where it names no zone; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def plain(value: Any) -> str | None:
    """Read a text that every back end holds as it is: U+FFFD for NUL and half a pair."""
    if not isinstance(value, str):
        return None
    return (
        value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def title(given: Any) -> str | None:
    """Clean a title, and cut one that is too long."""
    if not isinstance(given, str):
        return None
    try:
        return SessionDB.sanitize_title(given)
    except ValueError:
        return SessionDB.sanitize_title(given[: _LONGEST_TITLE - 1] + _CUT)


def figure(value: Any) -> int:
    """Read a count of tokens; what is none is 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def as_content(parts: Any, *kinds: str) -> Any:
    """Give one part that is text and nothing else as its text, other content as it is."""
    if isinstance(parts, list) and len(parts) == 1:
        (part,) = parts
        if isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] in kinds:
            return part["text"]
    return parts
