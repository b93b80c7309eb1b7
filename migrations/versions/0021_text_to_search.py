"""Say of a message what it is found by, where that is not its text as it stands.

`messages.search_text` is NULL where an index may be fed with content, tool name and tool
calls as they are, since the tokenizers' own lower case makes of them what search compares:
ASCII, ordinary Chinese and Japanese, Hangul, emoji. Else it is the folded text: letters with
accents or of another width, decomposed text, structured content, escapes in tool calls. What
no tokenizer reads on - NUL, half a surrogate pair - stands in it as U+FFFD.

Existing messages get theirs here, unless there are so many that it would take more than a
second; 0022 then has them read step by step. Going back drops the column and loses nothing.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from alembic import op
from sqlalchemy import text

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

# Up to here all messages are read within this transaction: about a second.
MOST_MESSAGES = 10_000
MOST_BYTES = 8 * 1024 * 1024
AT_ONCE = 500

# What is folded by lower case alone, whatever stands beside it.
UNUSUAL = re.compile(
    "[^\x01-\xa9\u2002-\u2064\u20a0-\u20bf\u2500-\u27bf\u3000-\u3029\u3041-\u3096\u30a0-\u30fe"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\ufe0f\uff01-\uff0f\uff1a-\uff20"
    "\U0001f300-\U0001f6d7\U0001f900-\U0001fa53\U00020000-\U0002a6df]"
)
WORDS = re.compile(r"[^\W_a-zA-Z0-9]+")
MARKS = re.compile("[\u0300-\u036f]+")
UNREAD = re.compile("[\0\ud800-\udfff\ufffe\uffff]")
ESCAPE = re.compile(r"(\\+)u([0-9a-fA-F]{4})")
DATA_URL = re.compile(r"data:[\w.+/-]*[;,]", re.ASCII)
FIRST_BEYOND_ASCII = 0x80
NESTED = 2


def upgrade() -> None:
    """Add the column and fill it where that is quick."""
    if "search_text" not in _columns():
        op.execute("ALTER TABLE messages ADD COLUMN search_text TEXT")
    if op.get_context().dialect.name == "sqlite" and _are_few():
        with _without_triggers():
            _fill()


@contextmanager
def _without_triggers() -> Iterator[None]:
    """Take the triggers of the search index away for a while.

    It does not look at this column, and one that is damaged would fail every update.
    """
    triggers = (
        op.get_bind()
        .execute(
            text(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
                "AND tbl_name = 'messages' AND name LIKE 'messages_fts%'"
            )
        )
        .all()
    )
    for name, _ in triggers:
        op.execute(f'DROP TRIGGER "{name}"')
    yield
    for _, definition in triggers:
        op.get_bind().exec_driver_sql(definition)


def _fill() -> None:
    bind = op.get_bind()
    after: int | None = None
    while True:
        # As bytes, so that what is no UTF-8 in old files is read all the same.
        rows = bind.execute(
            text(
                "SELECT id, CAST(content AS BLOB), content_encoding, CAST(tool_name AS BLOB), "
                "CAST(tool_calls AS BLOB) FROM messages WHERE :after IS NULL OR id > :after "
                f"ORDER BY id LIMIT {AT_ONCE}"
            ),
            {"after": after},
        ).all()
        for message_id, content, encoding, tool_name, tool_calls in rows:
            told = search_text(
                _decoded(content), encoding, _decoded(tool_name), _decoded(tool_calls)
            )
            if told is not None:
                bind.execute(
                    text("UPDATE messages SET search_text = :told WHERE id = :id"),
                    {"told": told, "id": message_id},
                )
        if not rows:
            return
        after = rows[-1][0]


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE messages DROP COLUMN search_text")


def _are_few() -> bool:
    bind = op.get_bind()
    if bind.execute(text(f"SELECT 1 FROM messages LIMIT 1 OFFSET {MOST_MESSAGES}")).first():
        return False
    size = bind.execute(
        text(
            "SELECT sum(length(CAST(content AS BLOB))), sum(length(CAST(tool_calls AS BLOB))) "
            "FROM messages"
        )
    ).one()
    return sum(each or 0 for each in size) <= MOST_BYTES


def search_text(
    content: str | None, encoding: str | None, tool_name: str | None, tool_calls: str | None
) -> str | None:
    """Give the folded text by which a message is found; None where it is plain."""
    plain = all(UNUSUAL.search(each) is None for each in (content, tool_name, tool_calls) if each)
    if plain and encoding is None and "\\u" not in (tool_calls or ""):
        return None
    if tool_calls is not None and "\\u" in tool_calls:
        with suppress(ValueError):
            _json(tool_calls)
            tool_calls = _with_real_characters(tool_calls)
    parts = "\n".join(_text_parts(content, encoding))
    joined = "\n".join(each for each in (parts, tool_name, tool_calls) if each)
    return UNREAD.sub("\ufffd", _fold(joined))


def _text_parts(content: str | None, encoding: str | None) -> Iterator[str]:
    value = _value(content, encoding)
    if isinstance(value, str):
        yield value
        return
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            if part and not DATA_URL.match(part):
                yield part
        elif isinstance(part, list):
            pending.extend(reversed(part))
        elif isinstance(part, dict):
            kind = part.get("type")
            if not (isinstance(kind, str) and re.search("image|audio|video", kind)):
                pending.extend((part.get("content"), part.get("text")))


def _value(content: str | None, encoding: str | None) -> Any:
    if content is None or encoding is None:
        return content
    with suppress(ValueError):
        value = _json(content)
        if encoding == "json-pieces" and isinstance(value, list):
            return "".join(piece for piece in value if isinstance(piece, str))
        if encoding == "json" and isinstance(value, str | list | dict):
            return value
    return content


def _json(stored: str) -> Any:
    try:
        return json.loads(stored, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def _refuse(constant: str) -> None:
    msg = f"{constant} is no JSON"
    raise ValueError(msg)


def _with_real_characters(stored: str) -> str:
    replaced = ESCAPE.sub(_real_character, stored)
    return replaced.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _real_character(found: re.Match[str]) -> str:
    slashes, code = len(found[1]), int(found[2], 16)
    if code < FIRST_BEYOND_ASCII or not (slashes % 2 or slashes == NESTED):
        return found[0]
    return "\\" * (0 if slashes == NESTED else slashes - 1) + chr(code)


def _fold(told: str) -> str:
    told = unicodedata.normalize("NFC", told)
    told = WORDS.sub(lambda run: unicodedata.normalize("NFKC", run[0]), told).casefold()
    told = WORDS.sub(lambda run: unicodedata.normalize("NFD", run[0]), told)
    return unicodedata.normalize("NFC", MARKS.sub("", told))


def _decoded(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode("utf-8", "replace")


def _columns() -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql("PRAGMA table_info(messages)")
    return {name for _, name, *_ in rows}
