"""What a message or a JSON column holds, as text in the database and back.

A value comes back equal and of the same type, or it is refused before anything is written.
So only what JSON itself says is taken: None, bool, int, finite float, str, list, and dict with
str keys; no tuple, no subclass. One thing is not told apart within a list or dict: a high
surrogate directly before a low one is the character that the two stand for.

Whether a stored text is the value itself stands beside it, never within it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

from sessionstore.records import Content

T = TypeVar("T")

logger = logging.getLogger("sessionstore")

# What `messages.content_encoding` says of `messages.content`; NULL is the text itself.
JSON = "json"
# A JSON list of texts that joined make the value: JSON has no other way to keep apart two
# halves of a surrogate pair that stand side by side.
JSON_PIECES = "json-pieces"

_PAIR_OF_HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


# `json.loads` with an option makes a reader for each call, which takes as long as reading.
_READER = json.JSONDecoder(parse_constant=_refuse_constant)

# Deeper values would be written and then not be read again: the standard parser recurses, and
# even a fresh stack has 1,000 frames by default.
MAX_DEPTH = 400


def encode_content(value: Content) -> tuple[str | None, str | None]:
    """Give the stored form of a message's content and its encoding; None is NULL.

    Raises:
        TypeError: It is no text, list or dict, or holds what JSON cannot say.
        ValueError: It holds NaN or infinity, or lies deeper than `MAX_DEPTH`.
    """
    if value is None:
        return None, None
    if type(value) is str:
        if is_plain(value):
            return value, None
        if _PAIR_OF_HALVES.search(value):
            return json.dumps(_PAIR_OF_HALVES.split(value)), JSON_PIECES
        return json.dumps(value), JSON
    if type(value) in (list, dict):
        return _dump(value), JSON
    msg = f"content must be text, a list or a dict, not {type(value).__name__}"
    raise TypeError(msg)


def decode_content(stored: str | None, encoding: str | None) -> Content:
    """Give back what `encode_content` was given; a damaged value is its text, and a warning."""
    if encoding is None and type(stored) is str:
        return stored
    try:
        return parse_content(stored, encoding)
    except ValueError as error:
        logger.warning("the content of a message is damaged and is read as text: %s", error)
        return as_text(stored)


def as_text(stored: object) -> str:
    """Read a text column that other hands may have filled: bytes with U+FFFD, NULL as U+FFFD."""
    if isinstance(stored, str):
        return stored
    if isinstance(stored, bytes):
        return stored.decode("utf-8", "replace")
    return "\ufffd" if stored is None else str(stored)


def as_number(stored: object) -> float | None:
    """Read a column of numbers that other hands may have filled; what is none is None."""
    return float(stored) if isinstance(stored, (int, float)) else None


def parse_content(stored: str | None, encoding: str | None) -> Content:
    """Give back what `encode_content` was given.

    Raises:
        ValueError: It is not what the encoding says.
    """
    if stored is None or (encoding is None and type(stored) is str):
        return stored
    value = parse_json(stored)
    if encoding == JSON and isinstance(value, str | list | dict):
        return value
    if encoding == JSON_PIECES and isinstance(value, list):
        return "".join(piece for piece in value if isinstance(piece, str))
    msg = f"{encoding} content cannot be {type(value).__name__}"
    raise ValueError(msg)


def encode_text(value: str) -> str:
    """Give JSON of a text that not every back end can hold; see `is_plain`."""
    pieces = _PAIR_OF_HALVES.split(value)
    return json.dumps(pieces if len(pieces) > 1 else value)


def decode_text(stored: str) -> str:
    """Give back what `encode_text` was given; a damaged value is its text, and a warning."""
    try:
        return parse_text(stored)
    except ValueError:
        logger.warning("a stored text is damaged and is read as it stands")
        return stored


def parse_text(stored: str) -> str:
    """Give back what `encode_text` was given.

    Raises:
        ValueError: It is nothing that `encode_text` gives.
    """
    value = parse_json(stored)
    if isinstance(value, list):
        return "".join(piece for piece in value if isinstance(piece, str))
    if isinstance(value, str):
        return value
    msg = f"a text cannot be {type(value).__name__}"
    raise ValueError(msg)


def encode_json(value: Any) -> str | None:
    """Give the text of a JSON column; None is NULL.

    Raises:
        TypeError: It holds what JSON cannot say.
        ValueError: It holds NaN or infinity, or lies deeper than `MAX_DEPTH`.
    """
    return None if value is None else _dump(value)


def decode_json(text: str | None) -> Any:
    """Read the text of a JSON column; NULL is None, and so is bad JSON, with a warning."""
    if text is None:
        return None
    try:
        return parse_json(text)
    except ValueError:
        logger.warning("a stored JSON value is damaged and is read as None")
        return None


def parse_json(text: str) -> Any:
    """Read JSON, and nothing but what the standard allows.

    Raises:
        ValueError: It is none, or nested deeper than the parser can follow.
    """
    try:
        return _on_fresh_stack(_READER.decode, text)
    except TypeError as error:
        msg = f"JSON must be text, not {type(text).__name__}"
        raise ValueError(msg) from error
    except RecursionError as error:
        msg = "the JSON is nested too deep"
        raise ValueError(msg) from error


def alike(one: Any, other: Any) -> bool:
    """Say whether two values are equal and of one type all the way down (1 is not True)."""
    if type(one) is not type(other):
        return False
    if not isinstance(one, (list, dict)):
        return bool(one == other)
    return _canonical_json(one) == _canonical_json(other)


def _canonical_json(value: Any) -> str:
    """Give one text for all values that JSON does not tell apart.

    Keys have no order, and two halves of a surrogate pair side by side are their character.
    """
    parsed = _on_fresh_stack(json.loads, _on_fresh_stack(json.dumps, value))
    return _on_fresh_stack(lambda: json.dumps(parsed, sort_keys=True))


def _on_fresh_stack(step: Callable[..., T], *given: Any) -> T:
    """Do a step that recurses; where the caller stands too low in its stack, in a thread."""
    try:
        return step(*given)
    except RecursionError:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(step, *given).result()


def _dump(value: Any) -> str:
    _require_json(value)
    # Real characters, unless one of them is half of a pair: UTF-8 has no form for that.
    text = _on_fresh_stack(lambda: json.dumps(value, ensure_ascii=False, allow_nan=False))
    return text if _is_unicode(text) else _on_fresh_stack(lambda: json.dumps(value))


def is_plain(text: str) -> bool:
    """Say whether every back end can hold this text: no NUL, no lone surrogate."""
    return "\0" not in text and _is_unicode(text)


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _require_json(value: Any) -> None:
    """Refuse what `json.dumps` would take and change, such as tuples and numbers as keys."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is list:
                below.extend(each)
            elif kind is dict:
                for key in each:
                    if type(key) is not str:
                        msg = f"JSON has only texts for keys, not {type(key).__name__}"
                        raise TypeError(msg)
                below.extend(each.values())
            elif each is not None and kind not in (str, int, float, bool):
                msg = f"JSON cannot say {kind.__name__} so that it comes back as one"
                raise TypeError(msg)
        if not below:
            return
        level = below
    msg = f"the value is nested deeper than {MAX_DEPTH} levels, or holds itself"
    raise ValueError(msg)
