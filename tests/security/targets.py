"""What is fed with anything at all: each target takes bytes and fails if a promise is broken.

`scripts/fuzz.py` runs them guided by coverage, `test_targets.py` with Hypothesis.
"""

from __future__ import annotations

import functools
import io
import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sessionstore.cli import importing
from sessionstore.codec import MAX_DEPTH, decode_content, encode_content, parse_content
from sessionstore.errors import ImportRejectedError, QueryError
from sessionstore.export.text import file_name, one_line, safe
from sessionstore.readers.statefile import StateFile
from sessionstore.redact import REDACTED, redact, redact_value
from sessionstore.repository import transfer
from sessionstore.search.fold import fold
from sessionstore.search.query import MAX_QUERY_CHARACTERS, matches, may_match, parse
from sessionstore.search.snippet import snippet

KEY = "sk-proj-" + "A1b2C3d4E5f6G7h8"
OBEYED = {*map(chr, range(9)), *map(chr, range(0x0B, 0x20)), *map(chr, range(0x7F, 0xA0))} | {
    *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
}
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
RESERVED = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
}


def text_of(data: bytes) -> str:
    """Read bytes as text, and what is no UTF-8 as halves of surrogate pairs."""
    return data.decode("utf-8", "surrogateescape")


def two(data: bytes) -> tuple[str, str]:
    """Read bytes as two texts, with 0xFF between them."""
    first, _, second = data.partition(b"\xff")
    return text_of(first), text_of(second)


def query(data: bytes) -> None:
    """No query is an error but for its length, and what matches is never passed over."""
    asked, body = two(data)
    try:
        tree = parse(asked)
    except QueryError:
        assert len(asked) > MAX_QUERY_CHARACTERS
        return
    if tree is None:
        return
    folded = fold(body)
    assert fold(folded) == folded
    if matches(tree, folded):
        assert may_match(tree, folded)


def snippets(data: bytes) -> None:
    """What is shown of a hit is a piece of its text, and short."""
    asked, body = two(data)
    tree = None if len(asked) > MAX_QUERY_CHARACTERS else parse(asked)
    if tree is None or ">>>" in body or "<<<" in body:
        return
    shown = snippet(tree, body)
    bare = shown.replace(">>>", "").replace("<<<", "").removeprefix("...").removesuffix("...")
    assert " ".join(bare.split()) in " ".join(body.split()) or bare.strip(".") in body


def depth_of(value: Any) -> int:
    """Count how deep a value lies, without recursion."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for each in level
            if isinstance(each, list | dict)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def content(data: bytes) -> None:
    """Stored content is read or refused, and what is read comes back the same again."""
    stored = data.decode("utf-8", "replace")  # no database holds other text
    for encoding in (None, "json", "json-pieces", "gzip"):
        decode_content(stored, encoding)
        try:
            value = parse_content(stored, encoding)
        except ValueError:
            continue
        if depth_of(value) > MAX_DEPTH:
            continue
        try:
            again = encode_content(value)
        except ValueError:
            # Numbers like 1e999 are read as infinity, which nothing stores.
            assert "e" in stored.lower()
            continue
        back = parse_content(*again)
        assert (back, type(back)) == (value, type(value))


def redactor(data: bytes) -> None:
    """Redacting again changes nothing, a key goes wherever it stands, a JSON value stays one."""
    before, after = two(data)
    for text in (before, after):
        once = redact(text)
        assert redact(once) == once
    for surroundings in (
        f"{before} {KEY} {after}",
        f"**{KEY}** <b>{KEY}</b> `{KEY}` [{KEY}]({KEY})",
    ):
        assert KEY not in redact(surroundings)
    cleaned = redact_value({"a": [before, {"password": after}], "n": 1})
    assert json.loads(json.dumps(cleaned))["n"] == 1
    assert redact(f"{before} {KEY}").endswith(REDACTED) or KEY not in redact(f"{before} {KEY}")


def importer(data: bytes) -> None:
    """An export comes in or is refused with the line; there is no third thing."""
    number, refused = 0, None
    try:
        for each in importing._lines(io.BytesIO(data), "file", 10**6):
            number += 1
            prepared = transfer.prepare(each, number)
            json.loads(json.dumps(prepared.as_json()))
    except ImportRejectedError as error:
        refused = error
    if refused is not None:
        assert refused.line in (number, number + 1)
        assert "nothing was imported" in str(refused)


@functools.cache
def _hermes() -> Path:
    path = Path(tempfile.mkdtemp(prefix="sessionstore-fuzz-")) / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("CREATE TABLE sessions (id, source, started_at, title, model_config)")
        raw.execute("CREATE TABLE messages (id, session_id, role, content, tool_calls, timestamp)")
    return path


def reader(data: bytes) -> None:
    """What lies in another program's file is read as what it can be, and can be imported."""
    text, _, other = data.partition(b"\xff")
    path = _hermes()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("DELETE FROM sessions")
        raw.execute("DELETE FROM messages")
        values = {"text": text, "other": other}
        raw.execute(
            "INSERT INTO sessions VALUES ('s', CAST(:text AS TEXT), :other, CAST(:other AS TEXT), "
            "CAST(:text AS TEXT))",
            values,
        )
        raw.execute(
            "INSERT INTO messages VALUES (1, 's', CAST(:other AS TEXT), "
            "char(0) || 'json:' || CAST(:text AS TEXT), CAST(:text AS TEXT), :text), "
            "(2, 's', :other, CAST(:text AS TEXT), :other, CAST(:other AS TEXT))",
            values,
        )
    with StateFile(path) as file:
        (session,) = file.sessions()
    assert len(session["messages"]) == 2
    if len(session["title"] or "") <= 500:
        transfer.prepare(session, 1)


def names(data: bytes) -> None:
    """A name made of an id is a name on any system, and of two ids there are two."""
    first, second = two(data)
    for session_id in (first, second):
        name = file_name(session_id)
        assert name.isascii()
        assert 0 < len(name) < 120
        assert not set(name) & set('/\\:*?"<>|\0 ')
        assert name[0] not in ".-"
        assert name[-1] not in ". "
        assert name.partition(".")[0].lower() not in RESERVED
    if first != second:
        assert file_name(first).lower() != file_name(second).lower()


def terminal(data: bytes) -> None:
    """Nothing that a terminal obeys is left of any text."""
    text = text_of(data)
    assert not OBEYED & set(safe(text))
    assert not (OBEYED | {"\n", "\t"}) & set(one_line(text))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "query": query,
    "snippet": snippets,
    "content": content,
    "redact": redactor,
    "import": importer,
    "reader": reader,
    "names": names,
    "terminal": terminal,
}

# What was found once, and what the targets are about, to begin with.
SEEDS: dict[str, list[bytes]] = {
    "query": [
        b'"chat send" OR cha* NOT x\xffChat -- SEND',
        "网络".encode() + b"\xff" + "检查网络".encode(),
    ],
    "snippet": [b"send\xffrun chat-send now", "é".encode() + b"\xff" + "cafe\u0301".encode()],
    "content": [
        b'["a", {"b": 1.5}]',
        b'"\\ud83d"',
        b'["\\ud83d", "\\ude00"]',
        b"[1e999]",
        b'["\\ud83d\xde\xd3\xdf\\ude00"]',
    ],
    "redact": [
        b"password: x\xffAPI_KEY=sk-abc",
        b"https://u:p@h/x",
        b"-----BEGIN PRIVATE KEY-----",
    ],
    "import": [
        b'{"id": "a", "source": "c", "started_at": 1, "messages": []}\n',
        (
            b'{"id": "a", "source": "c", "started_at": 1, "messages": [{"role": "user", '
            b'"timestamp": 1, "content": "x", "id": 1}], "model_usage": []}'
        ),
    ],
    "reader": [b'[1, "x"]\xff5.5', b'{"a": NaN}\xff\x00'],
    "names": [b"../../x\xffCON.txt", b"A\xffa"],
    "terminal": [b"\x1b]52;c;eA==\x07\r\xc2\x9b2J", "\u202e".encode()],
}
