"""What people type, in a command's options or in an address: filters, times, whole numbers.

By click in either case, so that a page reads them as the command line does.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from sessionstore.export.text import safe
from sessionstore.filters import SessionFilter, age_in_seconds

F = TypeVar("F", bound=Callable[..., Any])

_TIMES = ("older_than", "before", "newer_than", "after")
# As a number of days it would be more than five years ago; whoever types it means the year.
_YEAR_OR_DAYS = re.compile(r"(?:19|20|21)\d\d", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_YEAR = re.compile(r"[1-9]\d{3}", re.ASCII)
_DAYS = re.compile(r"\d{1,3}", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}(\.\d*)?", re.ASCII)
# With its unit, since a bare number is epoch seconds.
_AGE = re.compile(r"\d{1,12}(\.\d*)?[smhdw]", re.ASCII)
# As click names it in a complaint, in quotes or without.
_AN_OPTION = re.compile(r"'?--([a-z-]+)'?")
# One less than SQLite counts to: a list asks for one more than it shows.
_WHOLE, _LARGEST_COUNT = re.compile(r"\d{1,19}", re.ASCII), 2**63 - 2


class Count(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on only
    """A whole number that the store can count to; help is not burdened with its bounds."""

    name = "integer"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number in ASCII digits."""
        text = str(value)
        if not _WHOLE.fullmatch(text) or not self._least <= int(text) <= _LARGEST_COUNT:
            self.fail(f"{safe(text)!r} is not a whole number of at least {self._least}", param, ctx)
        return int(text)


class Amount(click.FloatRange):
    """A number that is not negative."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(min=0)


def filter_options(*, include_open: bool = True) -> Callable[[F], F]:
    """Give a command the options that choose sessions, as one keyword, `wanted`.

    Args:
        include_open: Whether sessions that have not ended pass when nobody says.
    """

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_filter(**given: Any) -> Any:
            return command(
                wanted=_filter({name: given.pop(name) for name in FILTER_NAMES}), **given
            )

        decorated: Any = with_filter
        for option in reversed(_options(include_open=include_open)):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return] # click's options give back what they take

    return decorate


def read_filter(given: Mapping[str, str]) -> SessionFilter:
    """Read a filter from options by name, without their dashes, as an address has them.

    Args:
        given: Such as `{"source": "cli", "older-than": "2d", "archived": "yes"}`; a flag is
            `yes` or `no`.

    Raises:
        ValueError: There is no such filter, or its value is none; without a word of options.
    """
    command = _reader()
    options = {each.opts[0].removeprefix("--"): each for each in command.params}
    words = []
    for name, value in given.items():
        option = options.get(name)
        if option is None:
            raise ValueError(f"{safe(name)!r} is no filter; there are {', '.join(options)}")
        if not option.secondary_opts:
            words.append(f"--{name}={value}")
        elif value in ("yes", "no"):
            words.append((option.opts if value == "yes" else option.secondary_opts)[0])
        else:
            raise ValueError(f"{safe(name)} is yes or no, not {safe(value)!r}")
    try:
        wanted: SessionFilter = command.main(words, standalone_mode=False)
    except click.UsageError as error:
        raise ValueError(re.sub(_AN_OPTION, r"\1", error.format_message())) from error
    return wanted


@functools.cache
def _reader() -> click.Command:
    return click.command(add_help_option=False)(filter_options()(_as_it_is))


def _as_it_is(*, wanted: SessionFilter) -> SessionFilter:
    return wanted


def asks_something(wanted: SessionFilter) -> bool:
    """Say whether a filter leaves anything out but what a command's default leaves out."""
    return wanted != SessionFilter(include_open=wanted.include_open)


def fields_of(wanted: SessionFilter) -> dict[str, Any]:
    """Give a filter as the keywords that `list_sessions_rich` and `prune_report` take."""
    fields = {name: getattr(wanted, name) for name in SessionFilter.__dataclass_fields__}
    return {name: value for name, value in fields.items() if value is not None}


def asks_for_times(wanted: SessionFilter) -> bool:
    """Say whether a filter is about when a session was last active."""
    return wanted.before is not None or wanted.after is not None


def _options(*, include_open: bool) -> list[Callable[[Any], Any]]:
    options = [
        _time(
            "--older-than",
            "AGE",
            "Last active before then: 5h, 2d, 1w, 90 (days) ago, or before a date.",
        ),
        _time("--newer-than", "AGE", "Last active since then."),
        _time("--before", "TIME", "The same as --older-than."),
        _time("--after", "TIME", "The same as --newer-than."),
        _text("--source", "Exactly this source."),
        _text("--user", "Exactly this user.", name="user_id"),
        _text("--title", "The title contains this; literal, case ignored."),
        _text("--end-reason", "The end reason contains this."),
        _text("--model", "The model's name contains this."),
        _text("--provider", "The provider's name contains this."),
    ]
    for what, noun, kind in (
        ("messages", "messages", Count()),
        ("tokens", "tokens, in and out", Count()),
        ("cost", "dollars, if the cost is known", Amount()),
        ("tool-calls", "tool calls", Count()),
    ):
        options += [
            click.option(f"--min-{what}", type=kind, metavar="N", help=f"At least N {noun}."),
            click.option(f"--max-{what}", type=kind, metavar="N", help=f"At most N {noun}."),
        ]
    return [
        *options,
        click.option(
            "--archived/--no-archived",
            default=None,
            help="Only archived sessions, or only the others.",
        ),
        click.option(
            "--pinned/--no-pinned", default=None, help="Only pinned sessions, or only the others."
        ),
        click.option(
            "--include-open/--no-open",
            default=include_open,
            show_default=True,
            help="Also sessions that have not ended.",
        ),
    ]


def _time(option: str, metavar: str, text: str) -> Callable[[Any], Any]:
    return click.option(option, callback=_moment, metavar=metavar, help=text)


def _text(option: str, text: str, *, name: str | None = None) -> Callable[[Any], Any]:
    named = (option, name) if name else (option,)
    return click.option(*named, callback=_characters, metavar="TEXT", help=text)


FILTER_NAMES = (
    *_TIMES,
    *("source", "user_id", "title", "end_reason", "model", "provider"),
    *(f"{bound}_{what}" for what in ("messages", "tokens", "cost", "tool_calls")
      for bound in ("min", "max")),
    *("archived", "pinned", "include_open"),
)  # fmt: skip


def _filter(given: dict[str, Any]) -> SessionFilter:
    older, before, newer, after = (given.pop(name) for name in _TIMES)
    ends = [moment for moment in (older, before) if moment is not None]
    begins = [moment for moment in (newer, after) if moment is not None]
    try:
        # Ages are turned into times once, so that what is shown is what is done.
        return SessionFilter(
            before=min(ends, default=None), after=max(begins, default=None), **given
        )
    except ValueError as error:
        raise click.UsageError(_as_options(str(error))) from error


def _as_options(message: str) -> str:
    """Name the bounds of a message as they are typed: min_tool_calls is --min-tool-calls."""
    return re.sub(r"\b(min|max)_(\w+)", lambda found: f"--{found[0].replace('_', '-')}", message)


def _moment(
    _ctx: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:  # fmt: skip
    """Read an age (`5h`, `2d`, `1w`, a number of days) or an ISO time as epoch seconds.

    Local time unless it names a zone; a bare date means its first moment. What may be a year
    or a number of days is refused: by it sessions are deleted.
    """
    if value is None:
        return None
    if _YEAR_OR_DAYS.fullmatch(value):
        raise click.BadParameter(
            f"{value} may be a year or days; write {value}-01-01 or {value}d", param=parameter
        )
    try:
        moment = time.time() - age_in_seconds(value)
    except ValueError:
        pass  # a time, then
    else:
        if moment < -_LARGEST_COUNT:
            raise click.BadParameter(f"{safe(value)!r} is further back than any time")
        return moment
    try:
        return datetime.fromisoformat(value).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise click.BadParameter(
            f"{safe(value)!r} is not an age or a time; write 5h, 2d, 1w, a number of days, "
            "2026-01-31 or 2026-01-31T18:30"
        ) from error


def _characters(
    _ctx: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:  # fmt: skip
    """Refuse what no stored text could contain: bytes that are no UTF-8."""
    if value is None:
        return None
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter("this is not UTF-8") from error
    return value


def since(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Read an option as epoch seconds: an ISO date or time, an age, a year, or epoch seconds.

    Local time unless it names a zone; a bare date or year means its first moment. Four digits
    are a year: as epoch seconds they would be within the first three hours of 1970.
    """
    return _bound(value, last=False)


def until(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Read an option as `since` does, but a bare date or year means its last moment."""
    return _bound(value, last=True)


def _bound(value: str | None, *, last: bool) -> float | None:
    try:
        return None if value is None else moment_of(value, last=last)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def moment_of(value: str, *, last: bool) -> float:
    """Read a time as `since` does, or as `until`, where a bare date means its last moment.

    Raises:
        ValueError: It is none, or might be a number of days as well.
    """
    if _DAYS.fullmatch(value):  # as it is where sessions are filtered
        raise ValueError(f"{value} may be days or epoch seconds; write {value}d or {value}.0")
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
        if _AGE.fullmatch(value):
            return time.time() - age_in_seconds(value)
        return datetime.fromisoformat(value).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{safe(value)!r} is not a time; write 2026-01-31, 2026-01-31T18:30, 7d, 2026 or "
            "epoch seconds"
        ) from error
