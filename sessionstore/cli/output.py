"""What goes out: text that cannot drive a terminal, JSON, figures, times. No rich here."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import click

from sessionstore.export import json_text
from sessionstore.export.jsonl import escaped
from sessionstore.export.text import one_line, safe
from sessionstore.location import Location

__all__ = [
    "Count",
    "Failure",
    "ago",
    "at_time",
    "byte_size",
    "dollars",
    "harmless_json",
    "is_terminal",
    "moment_of",
    "one_line",
    "plural",
    "safe",
    "short",
    "since",
    "size_of",
    "talk",
    "until",
    "write_json",
]

_BEYOND_ASCII = re.compile("[^\x00-\x7f]+")
_OBEYED_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_YEAR = re.compile(r"[1-9]\d{3}", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}(\.\d*)?", re.ASCII)
# One less than SQLite counts to: a list asks for one more than it shows.
_WHOLE, _LARGEST_COUNT = re.compile(r"\d{1,19}", re.ASCII), 2**63 - 2
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNKNOWN = "unknown"


class Count(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on only
    """A whole number that the store can count to; help is not burdened with its bounds."""

    name = "integer"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number in ASCII digits."""
        text = str(value)
        if not _WHOLE.fullmatch(text) or not self._least <= int(text) <= _LARGEST_COUNT:
            self.fail(f"{safe(text)!r} is no whole number from {self._least} on", param, ctx)
        return int(text)


class Failure(click.ClickException):
    """The command cannot do it; one line on stderr, exit status 1."""

    def format_message(self) -> str:
        """Give the message as one harmless line."""
        return safe(self.message).replace("\n", " ").replace("\t", " ")


def talk(message: str) -> None:
    """Say something beside the results, on stderr."""
    click.echo(safe(message), err=True)


def write_json(value: Any) -> None:
    """Write a value to stdout as one JSON document, in real characters where stdout has them."""
    text = json_text(value, indent=2)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = _BEYOND_ASCII.sub(escaped, text)
    click.echo(harmless_json(text))


def harmless_json(text: str) -> str:
    """Escape what a terminal obeys and JSON lets stand, see `safe`; it says the same."""
    return _OBEYED_IN_JSON.sub(escaped, text)


def is_terminal(stream: IO[Any]) -> bool:
    """Say whether somebody sees it as it comes."""
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def at_time(moment: float | None, form: str = "%Y-%m-%d %H:%M") -> str:
    """Write a time in the local zone; one that no calendar has is unknown."""
    try:
        return datetime.fromtimestamp(moment, UTC).astimezone().strftime(form)  # type: ignore[arg-type] # None is unknown too
    except (TypeError, ValueError, OverflowError, OSError):
        return _UNKNOWN


def ago(moment: float | None, *, now: float | None = None) -> str:
    """Write how long ago it was; beyond a month, or in the future, the date."""
    current = time.time() if now is None else now
    if moment is None or not -_MINUTE < (gone := current - moment) < 31 * _DAY:
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
    """Write an amount; an unknown one is not nothing."""
    return _UNKNOWN if amount is None else f"${amount:,.4f}"


def byte_size(size: int) -> str:
    """Write the size of a file."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:  # noqa: PLR2004 - the next unit
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def size_of(location: Location) -> int | None:
    """Add up the files of a store; a server keeps that to itself."""
    if location.path is None:
        return None
    total = location.path.stat().st_size
    log = Path(f"{location.path}-wal")
    return total + log.stat().st_size if log.exists() else total


def since(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Read an option as epoch seconds: an ISO date or time, a year, or epoch seconds.

    Local time unless it names a zone; a bare date or year means its first moment. Four digits
    are a year: as epoch seconds they would be within the first three hours of 1970.
    """
    return None if value is None else moment_of(value, last=False)


def until(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Read an option as `since` does, but a bare date or year means its last moment."""
    return None if value is None else moment_of(value, last=True)


def moment_of(value: str, *, last: bool) -> float:
    """Read a time as `since` does, or as `until`, where a bare date means its last moment.

    Raises:
        click.BadParameter: It is none.
    """
    try:
        if _DATE.fullmatch(value):
            # Messages bear times to the microsecond.
            day = datetime.fromisoformat(value) + timedelta(days=1 if last else 0)
            return day.astimezone().timestamp() - (1e-6 if last else 0)
        if _YEAR.fullmatch(value):
            first = datetime(int(value) + (1 if last else 0), 1, 1).astimezone()
            return first.timestamp() - (1e-6 if last else 0)
        if _SECONDS.fullmatch(value):
            return float(value)
        return datetime.fromisoformat(value).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise click.BadParameter(
            f"{safe(value)!r} is no time; write 2026-01-31, 2026-01-31T18:30, 2026 or epoch seconds"
        ) from error
