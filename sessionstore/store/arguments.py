"""What every public call is given must be what its signature says."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from sessionstore import checks
from sessionstore.filters import SessionFilter
from sessionstore.records import ListPlace

C = TypeVar("C", bound=type)

Check = Callable[[str, Any], Any]


def _text(name: str, value: Any) -> str:
    # No session, title or name is "": what is looked up by None is not there. A query is not
    # looked up, and one that is None is a mistake that should not look like no hits.
    if name == "query" and value is None:
        msg = "query must be text, not None"
        raise TypeError(msg)
    return checks.optional_text(name, value) or ""


def _a(kind: type) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            msg = f"{name} must be a {kind.__name__}, not {type(value).__name__}"
            raise TypeError(msg)
        return value

    return check


def _or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


# By the annotation as it is written: nothing else needs a reader of types.
_CHECKS: dict[str, Check] = {
    "str": _text,
    "str | None": checks.optional_text,
    "int": checks.row_id,
    "int | None": _or_none(checks.row_id),
    "float": checks.moment,
    "float | None": _or_none(checks.moment),
    "bool": checks.flag,
    "SessionFilter | None": _or_none(_a(SessionFilter)),
    "ListPlace | None": _or_none(_a(ListPlace)),
}


def checked(call: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method refuse wrong arguments before it does anything.

    Texts, whole numbers of 64 bits, finite numbers, bools, filters and places are looked at,
    and None where a text is meant is the empty one. Everything else is up to the method.

    Raises:
        TypeError: An argument is of another type; a bool is no number, and no number a bool.
        ValueError: A number is not finite or beyond 64 bits.
    """
    parameters = list(inspect.signature(call).parameters.values())
    by_place = [(each.name, _CHECKS.get(str(each.annotation))) for each in parameters]
    by_name = {name: check for name, check in by_place if check is not None}

    @functools.wraps(call)
    def checking(*args: Any, **kwargs: Any) -> Any:
        given = [
            value if check is None else check(name, value)
            for (name, check), value in zip(by_place, args, strict=False)
        ]
        for name in kwargs.keys() & by_name.keys():
            kwargs[name] = by_name[name](name, kwargs[name])
        return call(*given, *args[len(given) :], **kwargs)

    return checking


def checked_calls(calls: C) -> C:
    """Hold the public methods that a class itself defines to their signatures; see `checked`.

    Said by each class of calls for itself, and so not of what a program adds in a class that it
    derives from `SessionDB`.
    """
    for name, call in list(vars(calls).items()):
        if inspect.isfunction(call) and not name.startswith("_"):
            setattr(calls, name, checked(call))
    return calls
