r"""JSON Lines: one session a line, its messages under `messages`.

Real characters throughout. Half of a surrogate pair has no form in UTF-8 and is written as
the escape `\udXXX`, so a reader gets the very text back. Keys keep the order of the record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from sessionstore.records import ExportedSession

_SURROGATES = re.compile("[\ud800-\udfff]")


def lines(exported: Iterable[ExportedSession]) -> Iterator[str]:
    """Write each session as one line, in pieces: its fields, each message, the newline."""
    for session in exported:
        apart = ("messages", "model_usage")
        before = {name: value for name, value in session.items() if name not in apart}
        after = {"model_usage": session["model_usage"]}
        yield f'{json_text(before)[:-1]}, "messages": ['
        lead = ""
        for message in session["messages"]:
            yield lead + json_text(message)
            lead = ", "
        yield f"], {json_text(after)[1:]}\n"


def json_text(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """Write a value as JSON that UTF-8 can hold and every parser reads.

    What a damaged file may hold and JSON cannot say does not spoil the rest: a number that is
    not finite is null, bytes are their text.
    """
    try:
        text = _dump(value, indent, compact=compact)
    except ValueError:
        text = _dump(_finite(value), indent, compact=compact)
    return _SURROGATES.sub(escaped, text)


def escaped(found: re.Match[str]) -> str:
    """Write the characters of a match as JSON escapes, two for one beyond U+FFFF."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _dump(value: Any, indent: int | None, *, compact: bool) -> str:
    return json.dumps(
        value,
        ensure_ascii=False,
        allow_nan=False,
        indent=indent,
        separators=(",", ":") if compact else None,
        default=_damaged,
    )


def _damaged(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
