"""Figures, times and snippets as people read them, the same on a terminal and on a page."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from sessionstore.records import ModelUsage, SessionRecord

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MOST_DOLLARS = 1e15
_UNKNOWN = "unknown"
_MARKED = re.compile(r">>>(.*?)<<<", re.DOTALL)


def at_time(moment: float | None, form: str = "%Y-%m-%d %H:%M") -> str:
    """Write a time in the local zone; one that no calendar has is unknown."""
    try:
        return datetime.fromtimestamp(moment, UTC).astimezone().strftime(form)  # type: ignore[arg-type] # None is unknown too
    except (TypeError, ValueError, OverflowError, OSError):
        return _UNKNOWN


def utc_offset_s() -> int:
    """Say how far local time is ahead of UTC now, in seconds."""
    return time.localtime().tm_gmtoff


def ago(moment: float | None) -> str:
    """Write how long ago it was; beyond a month, or in the future, the date."""
    if moment is None or not -_MINUTE < (gone := time.time() - moment) < 31 * _DAY:
        return at_time(moment, "%Y-%m-%d")
    if gone < _MINUTE:
        return "now"
    if gone < _HOUR:
        return f"{gone // _MINUTE:.0f} min ago"
    if gone < _DAY:
        return f"{gone // _HOUR:.0f} h ago"
    return f"{gone // _DAY:.0f} d ago"


def short(number: int) -> str:
    """Write a count in at most five characters or so: 999, 1.2k, 34k, 5.6M."""
    size = float(number)
    for unit in ("", "k", "M", "G"):
        if size < 999.5:  # noqa: PLR2004 - what would be written as 1000
            return f"{size:.1f}{unit}" if unit and size < 9.95 else f"{size:.0f}{unit}"  # noqa: PLR2004
        size /= 1000
    return f"{size:,.0f}T"


def plural(number: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def dollars(amount: float | None) -> str:
    """Write an amount; an unknown one is not nothing, and one no money counts is no long line."""
    if amount is None:
        return _UNKNOWN
    return f"${amount:,.4f}" if abs(amount) < _MOST_DOLLARS else f"${amount:.4g}"


def marked_pieces(snippet: str) -> list[str]:
    """Part a snippet at its marks: every second piece, from the second on, stood between two."""
    return _MARKED.split(snippet)


def known_cost(used: SessionRecord | ModelUsage) -> float | None:
    """Give what something cost: the actual cost, else the estimate, else None."""
    actual = used["actual_cost_usd"]
    return used["estimated_cost_usd"] if actual is None else actual


def cost(used: SessionRecord | ModelUsage) -> str:
    """Write what something cost; an estimate says that it is one."""
    amount = known_cost(used)
    about = "about " if amount is not None and used["actual_cost_usd"] is None else ""
    return about + dollars(amount)


def byte_size(size: int) -> str:
    """Write the size of a file."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:  # noqa: PLR2004 - the next unit
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"
