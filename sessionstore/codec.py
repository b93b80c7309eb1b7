"""What a message or a JSON column holds, as text in the database and back.

A value comes back equal and of the same type, or it is refused before anything is written.
So only what JSON itself says is taken: None, bool, int, finite float, str, list, and dict with
str keys; no tuple, no subclass. One thing is not told apart: a high surrogate directly before
a low one is the character that the two stand for.

Content that is not plain text is marked in the column itself, as the files of this schema have
it: a NUL character, `json:`, then JSON of the value.
"""

from __future__ import annotations

import json
import logging
from typing import Any, NoReturn, cast

from sessionstore.records import Content

logger = logging.getLogger("sessionstore")


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


# `json.loads` with an option makes a reader for each call, which takes as long as reading.
_READER = json.JSONDecoder(parse_constant=_refuse_constant)

_MARK = "\x00json:"

# Deeper values would be written and then not be read again: the standard parser recurses, and
# the reader may stand lower in its stack (1,000 frames by default) than the writer did.
MAX_DEPTH = 400


def encode_content(value: Content) -> str | None:
    """Give the stored form of a message's content; None is NULL.

    Raises:
        TypeError: It is no text, list or dict, or holds what JSON cannot say.
        ValueError: It holds NaN or infinity, or lies deeper than `MAX_DEPTH`.
    """
    if value is None:
        return None
    if type(value) is str:
        plain = not value.startswith(_MARK) and _is_unicode(value)
        return value if plain else _MARK + _dump(value)
    if type(value) in (list, dict):
        return _MARK + _dump(value)
    msg = f"content must be text, a list or a dict, not {type(value).__name__}"
    raise TypeError(msg)


def decode_content(stored: str | None) -> Content:
    """Give back what `encode_content` was given; a damaged value is its text, and a warning."""
    if type(stored) is str and not stored.startswith(_MARK):
        return stored
    try:
        return parse_content(stored)
    except TypeError:
        # SQLite keeps bytes in a text column if other hands put them there.
        logger.warning("the content of a message is bytes; it is read as text")
        return cast("bytes", stored).decode("utf-8", "replace")
    except ValueError:
        logger.warning("the content of a message is marked as JSON but is not; it is read as text")
        return stored


def parse_content(stored: str | None) -> Content:
    """Give back what `encode_content` was given.

    Raises:
        ValueError: It is marked as JSON but is not, or not of a text, list or dict.
    """
    if stored is None or not stored.startswith(_MARK):
        return stored
    value = parse_json(stored[len(_MARK) :])
    if isinstance(value, str | list | dict):
        return value
    msg = f"content cannot be {type(value).__name__}"
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
        return _READER.decode(text)
    except TypeError as error:
        msg = f"JSON must be text, not {type(text).__name__}"
        raise ValueError(msg) from error
    except RecursionError as error:
        msg = "the JSON is nested too deep"
        raise ValueError(msg) from error


def _dump(value: Any) -> str:
    _require_json(value)
    # Real characters, unless one of them is half of a pair: UTF-8 has no form for that.
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if _is_unicode(text) else json.dumps(value, allow_nan=False)


def _is_unicode(text: str) -> bool:
    """Say whether UTF-8 can hold the text: it has no lone surrogate."""
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
