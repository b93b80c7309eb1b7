"""What of a message can be searched, and what of it is shown beside a hit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sessionstore.codec import parse_content, parse_json
from sessionstore.records import Content
from sessionstore.search.fold import fold, is_plain

# An odd number of backslashes before `u`: an escape of the JSON itself. Two, in a text that is
# JSON once more, as the arguments of tool calls are: an escape of that. Any others come from a
# text that really has backslashes.
_ESCAPE = re.compile(r"(\\+)u([0-9a-fA-F]{4})")
_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_BEGINS_JSON = re.compile(r'"(?:\s|\\[nrt])*[{\[]')
_FIRST_PRINTED = 0x20
_NESTED = 2

# No tokenizer reads on after NUL; UTF-8 has no half pairs; FTS5 takes the last two for U+FFFD.
_UNREAD = re.compile("[\0\ud800-\udfff\ufffe\uffff]")

_SIGHT_AND_SOUND = ("image", "audio", "video")
_DATA_URL = re.compile(r"data:[\w.+/-]*[;,]", re.ASCII)


def stored_text(
    content: str | None, encoding: str | None, tool_name: str | None, tool_calls: str | None
) -> str:
    """Join what a message can be found by, one below the other: text, tool name, tool calls.

    Tool calls count as their JSON with real characters, and what is damaged as it is. Not folded.
    """
    # Bytes, as other hands put them there, are read as the text they nearly are.
    content, tool_name, tool_calls = map(_text, (content, tool_name, tool_calls))
    if tool_calls is not None and "\\u" in tool_calls:
        with suppress(ValueError):
            parse_json(tool_calls)
            tool_calls = _with_real_characters(tool_calls)
    value: Content = content
    with suppress(ValueError):
        value = parse_content(content, encoding)
    return _joined(text_of(value), tool_name, tool_calls)


def _text(stored: str | bytes | None) -> str | None:
    return stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored


def index_text(
    content: str | None, encoding: str | None, tool_name: str | None, tool_calls: str | None
) -> str | None:
    """Give `messages.search_text` of a message as it is stored.

    None where the tokenizers' own lower case makes of its texts what the fold does.
    """
    stored = (content, tool_name, tool_calls)
    if (
        encoding is None
        and (tool_calls is None or "\\u" not in tool_calls)
        and all(each is None or (isinstance(each, str) and is_plain(each)) for each in stored)
        and not any(each and "\0" in each for each in stored)
    ):
        return None
    return folded_text(content, encoding, tool_name, tool_calls)


def folded_text(
    content: str | None, encoding: str | None, tool_name: str | None, tool_calls: str | None
) -> str:
    """Give the searchable text of a message as it is stored, folded, as an index holds it."""
    return readable(fold(stored_text(content, encoding, tool_name, tool_calls)))


def readable(folded: str) -> str:
    """Give a folded text as the index holds it: with U+FFFD for what no tokenizer reads."""
    return _UNREAD.sub("\ufffd", folded)


def text_of(content: Content) -> str:
    """Give the text of a content: itself, or its text parts, one below the other.

    A part is a text, or a dict with `text` or with `content` that holds parts. Nothing else
    of a dict counts, and nothing of an image, a sound or a data URL.
    """
    return content if isinstance(content, str) else "\n".join(_text_parts(content))


def _text_parts(value: Any) -> Iterator[str]:
    # A stack of our own: what the parser could read may be deeper than we may recurse.
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            if part and not _DATA_URL.match(part):
                yield part
        elif isinstance(part, list):
            pending.extend(reversed(part))
        elif isinstance(part, dict) and not _is_sight_or_sound(part.get("type")):
            pending.extend((part.get("content"), part.get("text")))


def _is_sight_or_sound(kind: Any) -> bool:
    return isinstance(kind, str) and any(word in kind for word in _SIGHT_AND_SOUND)


def _joined(*texts: str | None) -> str:
    return "\n".join(text for text in texts if text)


def _with_real_characters(text: str) -> str:
    replaced = _JSON_TEXT.sub(_real_text, text)
    # Two escapes of one character beyond U+FFFF are two halves by now.
    return replaced.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _real_text(found: re.Match[str]) -> str:
    text = found[0]
    if "\\u" not in text:
        return text
    nested = _BEGINS_JSON.match(text) is not None

    def real(escape: re.Match[str]) -> str:
        slashes, character = len(escape[1]), chr(int(escape[2], 16))
        inner = nested and slashes == _NESTED
        if ord(character) < _FIRST_PRINTED or not (slashes % 2 or inner):
            return escape[0]
        if character in '"\\':
            # As JSON usually writes them, and as a query looks for them.
            character = f"\\{character}"
            if inner:
                character = character.replace("\\", "\\\\").replace('"', '\\"')
        return "\\" * (0 if inner else slashes - 1) + character

    return _ESCAPE.sub(real, text)
