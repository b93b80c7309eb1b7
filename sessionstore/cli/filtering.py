"""One set of options that choose sessions, for every command that takes many of them."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import click

from sessionstore.cli.output import Count, safe
from sessionstore.records import SessionFilter, age_in_seconds

F = TypeVar("F", bound=Callable[..., Any])

_TIMES = ("older_than", "before", "newer_than", "after")
_COUNT = Count()
# As a number of days it would be more than five years ago; whoever types it means the year.
_YEAR = re.compile(r"(?:19|20|21)\d\d", re.ASCII)


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
        click.UsageError: There is no such option, or its value is none.
    """
    command = _reader()
    flags = {each.opts[0]: each for each in command.params if each.secondary_opts}
    words = []
    for name, value in given.items():
        flag = flags.get(f"--{name}")
        if flag is None:
            words.append(f"--{name}={value}")
        elif value in ("yes", "no"):
            words.append((flag.opts if value == "yes" else flag.secondary_opts)[0])
        else:
            raise click.UsageError(f"{safe(name)} is yes or no, not {safe(value)!r}")
    wanted: SessionFilter = command.main(words, standalone_mode=False)
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
        _time("--older-than", "AGE", "Last active before then: 5h, 2d, 1w, 90 (days), a date."),
        _time("--newer-than", "AGE", "Last active then or later."),
        _time("--before", "TIME", "The same as --older-than."),
        _time("--after", "TIME", "The same as --newer-than."),
        _text("--source", "Exactly this source."),
        _text("--user", "Exactly this user.", name="user_id"),
        _text("--title", "The title contains this; literal, case ignored."),
        _text("--end-reason", "The reason of the end contains this."),
        _text("--model", "The model's name contains this."),
        _text("--provider", "The provider's name contains this."),
    ]
    for what, noun, kind in (
        ("messages", "messages", _COUNT),
        ("tokens", "tokens, in and out", _COUNT),
        ("cost", "dollars, if the cost is known", click.FloatRange(min=0)),
        ("tool-calls", "tool calls", _COUNT),
    ):
        options += [
            click.option(f"--min-{what}", type=kind, metavar="N", help=f"At least N {noun}."),
            click.option(f"--max-{what}", type=kind, metavar="N", help=f"At most N {noun}."),
        ]
    return [
        *options,
        click.option(
            "--archived/--no-archived", default=None, help="Only what was put away, or was not."
        ),
        click.option("--pinned/--no-pinned", default=None, help="Only what is pinned, or is not."),
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
    until = [moment for moment in (older, before) if moment is not None]
    since = [moment for moment in (newer, after) if moment is not None]
    try:
        # Ages are turned into times once, so that what is shown is what is done.
        return SessionFilter(
            before=min(until, default=None), after=max(since, default=None), **given
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
    if _YEAR.fullmatch(value):
        raise click.BadParameter(
            f"{value} may be a year or days; write {value}-01-01 or {value}d", param=parameter
        )
    try:
        return time.time() - age_in_seconds(value)
    except ValueError:
        pass  # a time, then
    try:
        return datetime.fromisoformat(value).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise click.BadParameter(
            f"{safe(value)!r} is no age or time; write 5h, 2d, 1w, a number of days, "
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
        raise click.BadParameter("this is no text in UTF-8") from error
    return value
