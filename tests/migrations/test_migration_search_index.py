"""Rows of every kind walk to the small index and back; a walk that is broken off goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files

from sessionstore import SessionDB, schema
from sessionstore.search import index_text

# content, content_encoding, tool_name, tool_calls
ROWS = [
    ("Plain text, 今天去广西", None, None, None),
    ("Café ＡＢＣ ﬁle", None, "ÜBER", None),
    (None, None, None, json.dumps([{"a": "网络 😀"}])),
    (None, None, None, '[{"a": "\\ud83d broken'),
    (json.dumps([{"type": "text", "text": "Kiwi"}, {"type": "image"}]), "json", "t", None),
    (json.dumps("qz\0zq9"), "json", None, None),
    (json.dumps(["\ud83d", "\ude00 é"]), "json-pieces", None, None),
    ("{damaged", "json", None, None),
    ("e\u0301 \ufffe", None, None, None),
    ("", None, None, ""),
]  # fmt: skip


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A file of revision 0020 with those rows, and one that is no UTF-8."""
    path = tmp_path / "filled.db"
    files.upgrade_file(path, "0020")
    with files.raw(path) as connection:
        connection.execute("INSERT INTO sessions(id, source, started_at) VALUES ('s', 'cli', 1.0)")
        for row in ROWS:
            connection.execute(
                "INSERT INTO messages(session_id, role, content, content_encoding, tool_name, "
                "tool_calls, timestamp) VALUES ('s', 'user', ?, ?, ?, ?, 1.0)",
                row,
            )
        connection.execute(
            "INSERT INTO messages(session_id, role, content, timestamp) "
            "VALUES ('s', 'user', CAST(x'6b697769ff' AS TEXT), 1.0)"
        )
    return path


def test_existing_messages_get_the_text_they_are_found_by(filled: Path) -> None:
    files.upgrade_file(filled)
    told = [
        row[0] for row in files.ask(filled, "SELECT search_text FROM messages ORDER BY id LIMIT 10")
    ]
    assert told == [index_text(*row) for row in ROWS]
    assert told[0] is None
    assert told[1] == "cafe abc file\nuber"
    with SessionDB(filled) as store:
        assert store.search_index_left() == 0
        assert store.check_search_index() == []
        for query, count in {
            "广西": 1,
            "cafe": 1,
            "网络": 1,
            "kiwi": 2,
            "zq9": 1,
            "damaged": 1,
        }.items():
            assert len(store.search_messages(query)) == count, query


def test_going_back_makes_the_old_index_as_it_was(filled: Path) -> None:
    find = "SELECT rowid FROM messages_fts_trigram WHERE messages_fts_trigram MATCH ? ORDER BY 1"
    before, shape = files.all_rows(filled), files.shape(filled)
    found = [files.ask(filled, find, query) for query in ("plain", "kiwi", "今天去")]
    with files.database(filled) as opened:
        files.upgrade(opened)
        files.downgrade(opened, "0020")
    assert files.all_rows(filled) == before
    assert files.shape(filled) == shape
    assert [files.ask(filled, find, query) for query in ("plain", "kiwi", "今天去")] == found
    assert found[0] == [(1,)]


@pytest.mark.parametrize("last", ["0009", "0010", "0011", "0021"])
def test_a_walk_that_was_broken_off_goes_on(
    last: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "old.db"
    files.upgrade_file(path, "0009")
    files.fill(path)

    def stop(revision: str) -> None:
        if revision == last:
            raise KeyboardInterrupt

    with files.database(path) as opened:
        if last > "0009":
            with pytest.raises(KeyboardInterrupt):
                schema.upgrade(opened, files.SETTINGS, progress=stop)
        assert files.status(path).revision == last
    with SessionDB(path) as store:
        assert store.check_search_index() == []
        for number in range(10):
            assert len(store.search_messages(files.word(number))) == 1
    assert files.texts(path) == files.texts(made("head"))
