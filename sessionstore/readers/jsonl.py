"""JSON Lines as other programs write them: one value a line, each line numbered and bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from sessionstore.errors import ImportRejectedError
from sessionstore.export.text import one_line

_MB = 10**6
# A JSON value takes up to twenty times its text in memory, so this stays below some 2 GB.
LONGEST_MB = 100
LONGEST_BYTES = LONGEST_MB * _MB
_SHOWN = 40
# What gzip and zstd begin with.
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class UnreadableError(ImportRejectedError):
    """A line that is no JSON, or says what no record can.

    Attributes:
        name: Of the file; `line` counts in it.
    """

    def __init__(self, name: str, line: int, said: str) -> None:
        super().__init__(f"line {line}: {said}; nothing was imported", line=line)
        self.name = name


class _TwiceError(ValueError):
    """An object names a field twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its fields; of two with one name a parser would drop one unsaid."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value] # None, so it goes on
        msg = f"an object has the field {one_line(twice)[:_SHOWN]!r} twice"
        raise _TwiceError(msg)
    return fields


_READER = json.JSONDecoder(object_pairs_hook=_once)


def numbered_lines(stream: BinaryIO, name: str, longest: int) -> Iterator[tuple[int, bytes]]:
    """Number the lines, and hold no more of one than may be.

    Raises:
        UnreadableError: One is longer.
    """
    number = 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest and not line.endswith(b"\n"):
            said = f"it is longer than {longest // _MB:,} MB; --longest-line allows more"
            raise UnreadableError(name, number, said)
        yield number, line


def documents(
    stream: BinaryIO,
    name: str,
    *,
    longest: int = LONGEST_BYTES,
    unfinished: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield each line's number, from 1, and its value.

    Args:
        stream: The bytes.
        name: How an error names them.
        longest: At most so many bytes a line.
        unfinished: Called when the last line has no end yet and is no JSON, as of a file that
            somebody writes; without it, that is an error like any other.

    Raises:
        UnreadableError: A line is no JSON in UTF-8, names a field twice, or is too long.
    """
    for number, line in numbered_lines(stream, name, longest):
        if number == 1 and line.startswith(_COMPRESSED):
            raise UnreadableError(name, number, "this is compressed; unpack it first")
        try:
            value = _READER.decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError) as error:
            if unfinished is not None and not line.endswith(b"\n"):
                unfinished()
                return
            if not line.strip() and not stream.read(1):
                return  # an empty line at the end
            raise UnreadableError(name, number, _said(error)) from error
        yield number, value


def _said(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"this is not JSON ({error.msg.removesuffix(' at')} at {error.pos + 1})"
    return str(error) if isinstance(error, _TwiceError) else f"this is not JSON ({error})"
