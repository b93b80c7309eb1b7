"""What a value must be before it comes near a transaction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sessionstore.codec import is_plain
from sessionstore.errors import shown

# SQLite's INTEGER and PostgreSQL's bigint: 64 bits with a sign.
LARGEST = 2**63 - 1
# As many rows as there will never be; a few times as many still fit into 64 bits.
_EVERY_ROW = 2**60


def required_text(name: str, value: object) -> str:
    """Return an identifying text: not empty, and storable on every back end as it is.

    Raises:
        ValueError: It is None, empty, or holds NUL or a lone surrogate.
        TypeError: It is no text.
    """
    if value is None or value == "":
        msg = f"{name} must not be empty"
        raise ValueError(msg)
    text = optional_text(name, value)
    if text is None or not is_plain(text):
        msg = f"{name} must not hold NUL or half a surrogate pair: {shown(value)}"
        raise ValueError(msg)
    return text


def optional_text(name: str, value: object) -> str | None:
    """Return a text or None.

    Raises:
        TypeError: It is neither.
    """
    if value is None or isinstance(value, str):
        return value
    msg = f"{name} must be text, not {type(value).__name__}"
    raise TypeError(msg)


def plain_text(name: str, value: object) -> str | None:
    """Return a text or None that every back end can hold as it is.

    Raises:
        ValueError: It holds NUL or a lone surrogate.
        TypeError: It is no text.
    """
    text = optional_text(name, value)
    if text is not None and not is_plain(text):
        msg = f"{name} must not hold NUL or half a surrogate pair: {shown(value)}"
        raise ValueError(msg)
    return text


def texts(name: str, value: object) -> list[str]:
    """Return a list of texts; None is an empty one.

    Raises:
        TypeError: It is a single text or no list, or holds something else.
    """
    if value is None:
        return []
    if isinstance(value, str):
        msg = f"{name} must be a list of texts, not a text; write [{shown(value)}]"
        raise TypeError(msg)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        msg = f"{name} must be a list of texts, not {type(value).__name__}"
        raise TypeError(msg)
    listed = list(value)
    for each in listed:
        if not isinstance(each, str):
            msg = f"{name} must hold texts, not {type(each).__name__}"
            raise TypeError(msg)
    return listed


def mapping(name: str, value: object) -> None:
    """Refuse what has no keys.

    Raises:
        TypeError: It is no mapping.
    """
    if not isinstance(value, Mapping):
        msg = f"{name} must map texts to values, not be {type(value).__name__}"
        raise TypeError(msg)


def moment(name: str, value: Any) -> float:
    """Return a finite number, such as a time in epoch seconds.

    Raises:
        ValueError: It is not finite.
        TypeError: It is no number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"{name} must be a number, not {type(value).__name__}"
        raise TypeError(msg)
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        msg = f"{name} must be finite, not {value}"
        raise ValueError(msg)
    return seconds


def flag(name: str, value: Any) -> bool:
    """Return whether something is so.

    Raises:
        TypeError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        msg = f"{name} must be True or False, not {type(value).__name__}"
        raise TypeError(msg)
    return value


def count(name: str, value: Any, *, least: int = 0) -> int:
    """Return a whole number that the database can hold.

    Raises:
        ValueError: It is below `least` or needs more than 64 bits.
        TypeError: It is no whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{name} must be a whole number, not {type(value).__name__}"
        raise TypeError(msg)
    if not least <= value <= LARGEST:
        msg = f"{name} must lie between {least} and {LARGEST}, not {value}"
        raise ValueError(msg)
    return value


def rows(name: str, value: Any, *, least: int = 0) -> int:
    """Return how many rows are meant, such that sums of a few of them need no more than 64 bits.

    Raises:
        ValueError: It is below `least` or needs more than 64 bits.
        TypeError: It is no whole number.
    """
    return min(count(name, value, least=least), _EVERY_ROW)


def row_id(name: str, value: Any) -> int:
    """Return the id of a message, be it there or not.

    Raises:
        ValueError: It needs more than 64 bits.
        TypeError: It is no whole number.
    """
    return count(name, value, least=-LARGEST)


def cost(name: str, value: Any) -> float:
    """Return an amount of US dollars.

    Raises:
        ValueError: It is negative or not finite.
        TypeError: It is no number.
    """
    amount = moment(name, value)
    if amount < 0:
        msg = f"{name} must not be negative: {value}"
        raise ValueError(msg)
    return amount


def one_page(limit: Any, offset: Any) -> tuple[int | None, int]:
    """Return limit and offset; a limit of None means no end.

    Raises:
        ValueError: One of them is negative.
        TypeError: One of them is no whole number.
    """
    return None if limit is None else rows("limit", limit), rows("offset", offset)
