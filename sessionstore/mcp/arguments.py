"""What a tool takes: told to the client as a JSON Schema, and checked when it is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sessionstore.export.text import one_line
from sessionstore.filters import age_in_seconds

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_AGE = re.compile(r"\d+(\.\d+)?[smhdw]", re.ASCII)
_KINDS: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool.

    Attributes:
        kind: `string`, `integer` or `boolean`.
        about: What it means; the model reads it.
        required: Whether it must be given.
        default: What it is otherwise.
        least: The smallest number.
        most: The largest number.
        choices: All that it can be.
    """

    kind: str
    about: str
    required: bool = False
    default: Any = None
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Give it as JSON Schema."""
        told = {
            "type": self.kind,
            "description": self.about,
            "default": self.default,
            "minimum": self.least,
            "maximum": self.most,
            "enum": list(self.choices) or None,
        }
        return {name: value for name, value in told.items() if value is not None}

    def checked(self, name: str, value: Any) -> Any:
        """Give a value that was given for it.

        Raises:
            ValueError: It is not what the schema says.
        """
        # To Python a bool is a number; to a caller it is a mistake.
        if type(value) is not _KINDS[self.kind]:
            msg = f"{name} must be of type {self.kind}, not {type(value).__name__}"
            raise ValueError(msg)
        if self.choices and value not in self.choices:
            msg = f"{name} must be one of {', '.join(self.choices)}, not {_shown(value)}"
            raise ValueError(msg)
        if isinstance(value, int):
            low = self.least if self.least is not None else -(2**63)
            high = self.most if self.most is not None else 2**63 - 1
            if not low <= value <= high:
                msg = f"{name} must lie between {low} and {high}, not {value}"
                raise ValueError(msg)
        return value


def schema_of(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Give all arguments of a tool as a JSON Schema."""
    return {
        "type": "object",
        "properties": {name: each.schema() for name, each in arguments.items()},
        "required": [name for name, each in arguments.items() if each.required],
        "additionalProperties": False,
    }


def taken(arguments: Mapping[str, Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Give every argument its value; None, as some clients fill in, is not given.

    Raises:
        ValueError: One is not known, missing, or not what it must be.
    """
    if unknown := given.keys() - arguments.keys():
        names = ", ".join(arguments)
        msg = f"there is no argument {_shown(min(map(str, unknown)))}; there are {names}"
        raise ValueError(msg)
    values = {}
    for name, each in arguments.items():
        value = given.get(name)
        if value is None:
            if each.required:
                msg = f"{name} is missing: {each.about}"
                raise ValueError(msg)
            values[name] = each.default
        else:
            values[name] = each.checked(name, value)
    return values


def moment(name: str, value: str | None, *, now: float, last: bool = False) -> float | None:
    """Read a time: ISO, UTC unless it names a zone, or an age; a date is its first moment.

    Args:
        name: The argument.
        value: The text, or None.
        now: Epoch seconds, what an age counts from.
        last: A date means its last moment.

    Raises:
        ValueError: It is no time.
    """
    if value is None:
        return None
    try:
        if _AGE.fullmatch(value):
            return now - age_in_seconds(value)
        read = datetime.fromisoformat(value)
        if _DATE.fullmatch(value) and last:
            read += timedelta(days=1) - timedelta(microseconds=1)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        msg = (
            f"{name} {_shown(value)} is not a time; write 2026-01-31, 2026-01-31T18:30:00Z or an "
            "age such as 12h, 7d, 4w"
        )
        raise ValueError(msg) from error


def _shown(value: Any) -> str:
    text = one_line(str(value))
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
