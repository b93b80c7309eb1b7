"""A search index in a file that is damaged or gone, and rows that are: nothing is lost."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_search import fill, fill_corpus, found_in, ids

from sessionstore import SessionDB, StoreUnavailableError

pytestmark = pytest.mark.sqlite_only


def test_two_chinese_characters_among_200000_messages_within_a_second(
    store: SessionDB, path: Path
) -> None:
    fill_corpus(store)
    # In plain SQL and past the triggers, since storing is not what is timed.
    raw = sqlite3.connect(path)
    triggers = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        raw.execute(f"DROP TRIGGER {name}")
    raw.executemany(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('D1', 'user', ?, 1.0)",
        ((f"filler number {number}，普通的内容",) for number in range(200_000)),
    )
    for _, definition in triggers:
        raw.execute(definition)
    raw.commit()
    raw.close()
    for sort in ("rank", "newest"):
        # Of this process alone: what else runs on the machine is not what is judged.
        begun = time.process_time()
        assert found_in(store, "网络", sort=sort) == {"D7"}
        assert time.process_time() - begun < 1.0


def test_a_file_of_other_programs_without_an_index_still_has_an_order(
    store: SessionDB, sql: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    part, word = fill(store, ["zebras", "zebra"])
    fill(store, ["nothing"])
    sql("DROP TABLE messages_fts_data")
    assert ids(store, "zebra") == [word, part]
    assert ids(store, "zebra", limit=1, offset=1) == [part]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_damaged_rows_are_found_and_shown_like_others(
    store: SessionDB, sql: Callable[..., Any]
) -> None:
    first, second, third = fill(store, ["kiwi", "kiwi", "kiwi"])
    sql("UPDATE messages SET content = CAST(x'6b697769ff' AS TEXT) WHERE id = ?", first)
    sql("UPDATE messages SET content = char(0) || 'json:[kiwi' WHERE id = ?", second)
    hits = store.search_messages("kiwi", sort="oldest")
    assert [hit["id"] for hit in hits] == [first, second, third]
    assert hits[0]["snippet"] == ">>>kiwi<<<\ufffd"


class TestTrouble:
    """An index that is damaged or gone costs the order, never a hit."""

    @pytest.mark.parametrize("damage", ["DROP TABLE messages_fts_data", "DROP TABLE messages_fts"])
    def test_search_goes_on_says_so_once_and_is_cured_by_a_rebuild(
        self,
        store: SessionDB,
        sql: Callable[..., Any],
        damage: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        assert store.search_index_trouble() is None
        long, short = fill(store, ["zebra " + "word " * 50, "zebra"])
        sql(damage)
        trouble = store.search_index_trouble()
        assert trouble is not None
        assert "rebuilt" in trouble
        for _ in range(3):
            assert sorted(ids(store, "zebra")) == [long, short]
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "whole words" in caplog.text
        assert "sessionstore doctor --fix" in caplog.text
        store.purge_deleted()
        assert store.search_index_trouble() is None
        assert ids(store, "zebra") == [short, long]

    def test_a_stale_index_invents_nothing_and_a_check_sees_it(
        self, store: SessionDB, sql: Callable[..., Any]
    ) -> None:
        gone, changed = fill(store, ["zebra one", "zebra two"])
        assert store.check_search_index() == []
        for table in ("messages_fts", "messages_fts_trigram"):
            sql(f"INSERT INTO {table}(rowid, body) VALUES (?, 'unicorn')", changed)
        assert ids(store, "unicorn") == []
        assert set(ids(store, "zebra")) == {gone, changed}
        assert len(store.check_search_index()) == 2

    def test_edited_and_deleted_text_is_not_found(
        self, store: SessionDB, sql: Callable[..., Any]
    ) -> None:
        fill(store, ["alpha"])
        assert len(ids(store, "alpha")) == 1
        sql("UPDATE messages SET content = 'beta'")
        assert (len(ids(store, "alpha")), len(ids(store, "beta"))) == (0, 1)
        sql("DELETE FROM messages")
        assert (len(ids(store, "alpha")), len(ids(store, "beta"))) == (0, 0)

    def test_a_database_error_is_no_empty_list(
        self, store: SessionDB, sql: Callable[..., Any]
    ) -> None:
        fill(store, ["kiwi"])
        sql("DROP TABLE sessions")
        for sort in ("rank", "newest"):
            with pytest.raises(StoreUnavailableError, match="not those of a session store"):
                store.search_messages("kiwi", sort=sort)
