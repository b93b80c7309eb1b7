"""Which sessions a list, an export or a prune is about, and ages as people write them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict

from sessionstore.errors import shown

# `5h`, `2d`, `1w`; a bare number is days.
Age: TypeAlias = float | str | timedelta

_AGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", re.ASCII)
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 86400.0}


def age_in_seconds(age: Age) -> float:
    """Read an age: a timedelta, a number of days, or a text such as `5h`, `2d`, `1w`.

    Raises:
        ValueError: It is no such text, negative or not finite.
        TypeError: It is none of these.
    """
    if isinstance(age, timedelta):
        seconds = age.total_seconds()
    elif isinstance(age, str):
        found = _AGE.fullmatch(age)
        if found is None:
            msg = f"{shown(age)} is not an age; write 90m, 5h, 2d, 1w or a number of days"
            raise ValueError(msg)
        seconds = float(found[1]) * _UNIT_S[found[2]]
    elif isinstance(age, bool) or not isinstance(age, (int, float)):
        msg = f"an age is a number of days, a text or a timedelta, not {type(age).__name__}"
        raise TypeError(msg)
    else:
        try:
            seconds = float(age) * 86400.0
        except OverflowError:
            seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        msg = f"{shown(age)} is not a valid age; it must be finite and not negative"
        raise ValueError(msg)
    return seconds


class FilterFields(TypedDict, total=False):
    """The fields of `SessionFilter`, for calls that take them as keywords beside a source."""

    older_than: Age | None
    newer_than: Age | None
    before: float | None
    after: float | None
    title: str | None
    end_reason: str | None
    model: str | None
    provider: str | None
    user_id: str | None
    min_messages: int | None
    max_messages: int | None
    min_tokens: int | None
    max_tokens: int | None
    min_cost: float | None
    max_cost: float | None
    min_tool_calls: int | None
    max_tool_calls: int | None
    archived: bool | None
    pinned: bool | None
    include_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions a list, an export or a prune is about; None asks nothing.

    Attributes:
        older_than: Last active at least this long ago (see `age_in_seconds`).
        newer_than: Last active at most this long ago.
        before: Last active before this time.
        after: Last active at or after this time.
        source: Exactly this source.
        user_id: Exactly this user.
        title: The title contains this, as do the next three; literal, case ignored.
        end_reason: See title.
        model: See title.
        provider: The billing provider; see title.
        min_messages: At least so many messages; 0 is a value. The other bounds alike,
            inclusive: tokens are input and output, cost is the actual one, else the
            estimated one, and a session of unknown cost meets no bound of cost.
        archived: Only those that are, or are not.
        pinned: Only those that are, or are not.
        include_open: False leaves out the sessions that have not ended.
    """

    older_than: Age | None = None
    newer_than: Age | None = None
    before: float | None = None
    after: float | None = None
    source: str | None = None
    title: str | None = None
    end_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    user_id: str | None = None
    min_messages: int | None = None
    max_messages: int | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    min_tool_calls: int | None = None
    max_tool_calls: int | None = None
    archived: bool | None = None
    pinned: bool | None = None
    include_open: bool = True

    def __post_init__(self) -> None:
        """Refuse a filter that nothing could ever pass.

        Raises:
            ValueError: A number is not finite or beyond 64 bits, or a window is empty.
            TypeError: A field is not what it must be.
        """
        for name in _FILTER_TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                msg = f"{name} must be text, not {type(value).__name__}"
                raise TypeError(msg)
        for name in _FILTER_NUMBERS:
            _require_number(name, getattr(self, name))
        for name in ("archived", "pinned", "include_open"):
            value = getattr(self, name)
            if not isinstance(value, bool) and (value is not None or name == "include_open"):
                msg = f"{name} must be True or False, not {type(value).__name__}"
                raise TypeError(msg)
        for what in _MEASURES:
            low, high = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            if low is not None and high is not None and low > high:
                msg = f"min_{what} {low} is above max_{what} {high}, so nothing can match"
                raise ValueError(msg)
        _require_window(self.after, self.before)
        now = 0.0  # what two ages leave between them does not depend on it
        _require_window(*_of_ages(self.newer_than, self.older_than, now=now))

    def activity_window(self, *, now: float) -> tuple[float | None, float | None]:
        """Give the times of last activity that pass: at or after the first, before the second.

        Raises:
            ValueError: At this moment there is none.
        """
        newer, older = _of_ages(self.newer_than, self.older_than, now=now)
        since = [each for each in (self.after, newer) if each is not None]
        until = [each for each in (self.before, older) if each is not None]
        window = max(since, default=None), min(until, default=None)
        _require_window(*window)
        return window


_MEASURES = ("messages", "tokens", "cost", "tool_calls")
_FILTER_TEXTS = ("source", "title", "end_reason", "model", "provider", "user_id")
_FILTER_NUMBERS = (
    "before",
    "after",
    *(f"{bound}_{what}" for bound in ("min", "max") for what in _MEASURES),
)


def _require_number(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"{name} must be a number, not {type(value).__name__}"
        raise TypeError(msg)
    if not (-(2.0**63) <= value < 2.0**63):  # nor is NaN
        msg = f"{name} must be finite and of 64 bits, not {value}"
        raise ValueError(msg)


def _of_ages(
    newer_than: Age | None, older_than: Age | None, *, now: float
) -> tuple[float | None, float | None]:
    return (
        None if newer_than is None else now - age_in_seconds(newer_than),
        None if older_than is None else now - age_in_seconds(older_than),
    )


def _require_window(since: float | None, until: float | None) -> None:
    if since is not None and until is not None and since >= until:
        msg = "the window of time is empty: its beginning is not before its end"
        raise ValueError(msg)
