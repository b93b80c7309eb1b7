"""The search index: it finds what reading finds, is small, and survives what befalls it."""

from __future__ import annotations

import json
import logging
import random
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from sessionstore import SessionDB, schema
from sessionstore.engine import open_database
from sessionstore.location import locate
from sessionstore.search import sqlite as sqlite_search
from sessionstore.search.definitions import TABLES, TRIGGERS
from sessionstore.settings import StoreSettings

# The index of a file; a server has one of its own.
pytestmark = pytest.mark.sqlite_only

Sql = Callable[..., list[tuple[Any, ...]]]
SORTS = ("newest", "oldest", "rank")

PIECES = [
    "a", "ab", "abc", "AB", "go", "is", "v2.14", "ｇｏ", "café", "cafe\u0301", "ПРИВЕТ", "й",
    "ﬁle", "straße", "İ", "网", "网络", "配置检查", "，", "タワー", "東京", "バ", "ﾊﾞ", "서울",
    unicodedata.normalize("NFD", "한국어"), "漢a", "-", "_", ".", "'", "%", '"', "\\", "/x/",
    "😀", "👨‍👩‍👧", "(", "≠", "\0", "\ufffe", "हिन्दी",
]  # fmt: skip


def ids(store: SessionDB, query: str, **options: Any) -> list[int]:
    return [hit["id"] for hit in store.search_messages(query, **{"limit": 100_000, **options})]


@contextmanager
def no_index(path: Path) -> Iterator[None]:
    """Let searches meanwhile read all messages: one of the triggers is gone."""
    name = "messages_fts_trigram_insert"
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute(f"DROP TRIGGER {name}")
    try:
        yield
    finally:
        raw.execute(TRIGGERS[name])
        raw.close()


def same_as_reading(store: SessionDB, path: Path, queries: list[str]) -> None:
    """The index finds what reading finds: the same by id, all of it by rank, page by page."""
    found = {(query, sort): ids(store, query, sort=sort) for query in queries for sort in SORTS}
    for query in queries:
        for sort in SORTS:
            pages = [ids(store, query, sort=sort, limit=9, offset=at) for at in (0, 9)]
            assert [*pages[0], *pages[1]] == found[query, sort][:18], (query, sort)
    with no_index(path):
        for (query, sort), hits in found.items():
            read = ids(store, query, sort=sort)
            assert sorted(hits) == sorted(read), (query, sort)
            assert sort == "rank" or hits == read, (query, sort)


class Lots:
    """Random texts and queries, the same in each run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        return "".join(self.random.choices([*PIECES, " ", " ", " ", "\n"], k=12))

    def leaf(self) -> str:
        needle = "".join(self.random.choices(PIECES, k=self.random.choice((1, 1, 2, 3))))
        kind = self.random.randrange(5)
        if kind == 0:
            return f'"{needle} {self.random.choice(PIECES)}"'
        return f"{needle}*" if kind == 1 else needle

    def query(self) -> str:
        parts = [self.leaf()]
        while self.random.random() < 0.4:
            parts += [self.random.choice(("AND", "OR", "NOT", "")), self.leaf()]
        return " ".join(parts)

    def message(self) -> dict[str, Any]:
        kind = self.random.randrange(8)
        if kind == 0:
            return {"role": "user", "content": [{"type": "text", "text": self.text()}]}
        if kind == 1:
            calls = [{"arguments": json.dumps({"q": self.text()})}]
            return {"role": "assistant", "content": None, "tool_calls": calls}
        if kind == 2:
            return {"role": "tool", "content": self.text(), "tool_name": self.random.choice(PIECES)}
        return {"role": "user", "content": self.text()}


@pytest.mark.parametrize("seed", range(3))
def test_the_index_finds_what_reading_finds(
    store: SessionDB, path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed == 2:  # what is done for very common queries, with a few messages
        monkeypatch.setattr(sqlite_search, "_are_many", lambda *_: True)
    lots = Lots(seed)
    for name in "ab":
        store.create_session(name, "cli")
    foreign = sqlite3.connect(path, isolation_level=None, timeout=10)
    foreign.execute("PRAGMA synchronous = OFF")
    for turn in range(4):
        for name in "ab":
            store.append_messages(name, [lots.message() for _ in range(12)])
        held = [row[0] for row in foreign.execute("SELECT id FROM messages")]
        for each in lots.random.sample(held, 4):
            foreign.execute(
                "UPDATE messages SET content = ?, tool_name = NULL, content_encoding = NULL "
                "WHERE id = ?",
                (lots.text(), each),
            )
        for each in lots.random.sample(held, 3):
            foreign.execute("DELETE FROM messages WHERE id = ?", (each,))
        foreign.execute(
            "INSERT INTO messages(session_id, role, content, tool_calls, timestamp) "
            "VALUES ('a', 'user', ?, ?, 1.0)",
            (lots.text(), json.dumps([lots.text()])),
        )
        if turn == 2:
            last = store.get_messages("a")[-1]
            store.archive_and_compact(
                "a", [lots.message(), {"role": last["role"], "content": last["content"]}]
            )
        same_as_reading(store, path, [lots.query() for _ in range(6)])
    foreign.close()
    assert [each for each in store.check_search_index() if "not indexed yet" not in each] == []
    store.complete_search_index()
    assert store.check_search_index() == []
    same_as_reading(store, path, [lots.query() for _ in range(6)])


def test_what_the_index_holds_is_the_fold_whatever_the_character(
    store: SessionDB, sql: Sql
) -> None:
    """No character may be folded by the tokenizer to something that a query does not say."""
    store.create_session("s", "cli")
    characters = [chr(code) for code in range(1, 0x30000) if not 0xD800 <= code < 0xE000]
    blocks = ["".join(characters[at : at + 500]) for at in range(0, len(characters), 500)]
    store.append_messages("s", [{"role": "user", "content": block} for block in blocks])
    lots = random.Random(5)
    for block in lots.sample(blocks, 60):
        at = lots.randrange(480)
        piece = block[at : at + 3]
        if not any(each.isspace() for each in piece) and piece[-1] != "*":
            with_short = [piece, piece[:2], piece[0]]
            for query in with_short:
                assert ids(store, query), [hex(ord(each)) for each in query]
    assert sql("SELECT count(*) FROM messages_fts_pending") == [(0,)]


def test_plain_text_is_stored_once(store: SessionDB, sql: Sql) -> None:
    store.create_session("s", "cli")
    for text in ("Plain ASCII, C:\\Users", "今天去广西旅游，看漓江", "東京タワー", "서울", "😀"):
        store.append_message("s", "user", text, tool_name="look")
    assert sql("SELECT DISTINCT search_text FROM messages") == [(None,)]
    store.clear_messages("s")
    store.append_message("s", "user", "Café")
    store.append_message("s", "user", "qz\0zq9")
    store.append_message("s", "user", [{"text": "ＡＢＣ"}, {"type": "image", "data": "eA=="}])
    store.append_message("s", "assistant", None, tool_calls=[{"a": "\x1b \ud83d"}])
    assert sql("SELECT search_text FROM messages ORDER BY id") == [
        ("cafe",),
        ("qz\ufffdzq9",),
        ("abc",),
        ('[{"a": "\\u001b \ufffd"}]',),
    ]
    assert sql("SELECT count(*) FROM messages_fts_pending") == [(0,)]


def test_edits_and_deletes_leave_the_index_whole(store: SessionDB, sql: Sql) -> None:
    store.create_session("s", "cli")
    store.append_message("s", "user", "alpha")
    assert (len(ids(store, "alpha")), len(ids(store, "beta"))) == (1, 0)
    sql("UPDATE messages SET content = 'beta'")
    assert (len(ids(store, "alpha")), len(ids(store, "beta"))) == (0, 1)
    assert store.check_search_index() == []
    sql("UPDATE messages SET content = 'Bêta'")
    assert (len(ids(store, "alpha")), len(ids(store, "beta"))) == (0, 1)
    assert store.complete_search_index() == 1
    assert (len(ids(store, "alpha")), len(ids(store, "beta"))) == (0, 1)
    sql("UPDATE messages SET content = 'gamma'")
    assert (len(ids(store, "beta")), len(ids(store, "gamma"))) == (0, 1)
    sql("DELETE FROM messages")
    assert (len(ids(store, "beta")), len(ids(store, "gamma"))) == (0, 0)
    assert store.check_search_index() == []


def test_flipping_the_state_of_messages_touches_no_index(store: SessionDB, sql: Sql) -> None:
    store.create_session("s", "cli")
    store.append_messages("s", [{"role": "user", "content": f"word {n}"} for n in range(1000)])

    def shadows() -> list[Any]:
        return [
            sql(f"SELECT * FROM {table}_{part} ORDER BY 1, 2")
            for table in ("messages_fts", "messages_fts_trigram")
            for part in ("data", "idx")
        ]

    before = shadows()
    sql("UPDATE messages SET active = 0, compacted = 1")
    sql("UPDATE messages SET active = 1, compacted = 0")
    store.archive_and_compact("s", [])
    assert shadows() == before


def test_the_index_is_small(store: SessionDB, sql: Sql) -> None:
    """Of 2.5 MB of text, words of all frequencies in two scripts: at most twice the text.

    The index of level 11, which kept places and text, took 6 times.
    """
    lots = random.Random(2)
    latin = ["".join(lots.choices("aeioulnrst", k=lots.randint(2, 9))) for _ in range(3000)]
    han = [chr(code) for code in range(0x4E00, 0x5600)]
    chinese = ["".join(lots.choices(han, k=lots.choice((1, 2, 2, 2, 3)))) for _ in range(3000)]
    weights = [1 / (rank + 5) for rank in range(3000)]
    store.create_session("s", "cli")
    size, batch = 0, []
    while size < 2_500_000:
        if len(batch) % 3:
            text = " ".join(lots.choices(latin, weights, k=80))
        else:
            text = "".join(lots.choices(chinese, weights, k=80)) + "。"
        size += len(text.encode())
        batch.append({"role": "user", "content": text})
    store.append_messages("s", batch)
    store.optimize()
    ((held,),) = sql(
        "SELECT sum(length(block)) FROM (SELECT block FROM messages_fts_data "
        "UNION ALL SELECT block FROM messages_fts_trigram_data)"
    )
    assert held < 2 * size, held / size
    assert sql("SELECT count(*) FROM sqlite_master WHERE name = 'messages_fts_content'") == [(0,)]


class TestDamage:
    """A damaged index costs time and order, never a message."""

    @pytest.mark.parametrize(
        "damage",
        [
            "DROP TABLE messages_fts_data",
            "DROP TABLE messages_fts_trigram_data",
            "DROP TABLE messages_fts_trigram_config",
            "DELETE FROM messages_fts_data",
            "DROP TABLE messages_fts",
            "DROP TABLE messages_fts_vocab",
            "DROP TABLE messages_fts_pending",
            "DROP VIEW messages_search",
            "DROP TRIGGER messages_fts_trigram_delete",
        ],
    )
    def test_messages_are_stored_and_found_and_a_rebuild_cures(
        self, store: SessionDB, path: Path, sql: Sql, damage: str, caplog: Any
    ) -> None:
        store.create_session("s", "cli")
        store.append_message("s", "user", "zebra " + "word " * 50)
        sql(damage)
        with SessionDB(path) as other:
            made = [other.append_message("s", "user", f"zebra {n} 网络") for n in range(5)]
            assert sorted(ids(other, "zebra"))[1:] == made
            assert ids(other, "网络", sort="oldest") == made
            assert other.search_index_trouble() is not None
            assert other.check_search_index() != []
            warned = [each for each in caplog.records if each.levelno == logging.WARNING]
            assert 1 <= len(warned) <= 2  # of storing, and of searching
            assert other.rebuild_search_index() == 6
            assert other.search_index_trouble() is None
            assert other.check_search_index() == []
            assert ids(other, "zebra")[-1] == made[0] - 1
        assert store.message_count("s") == 6

    def test_a_wrong_text_deleted_is_found_out(self, store: SessionDB, sql: Sql) -> None:
        store.create_session("s", "cli")
        message = store.append_message("s", "user", "a zebra")
        for table in ("messages_fts", "messages_fts_trigram"):
            sql(
                f"INSERT INTO {table}({table}, rowid, body) VALUES ('delete', ?, 'a zebr')", message
            )
            assert sql("PRAGMA integrity_check") == [("ok",)]
            assert len(store.check_search_index()) == 1
            store.rebuild_search_index()
            assert store.check_search_index() == []

    def test_what_fails_for_another_reason_leaves_the_index(
        self, store: SessionDB, sql: Sql
    ) -> None:
        store.create_session("s", "cli")
        sql(
            "CREATE TRIGGER broken BEFORE INSERT ON messages BEGIN "
            "INSERT INTO nowhere VALUES (1); END"
        )
        with pytest.raises(Exception, match="nowhere"):
            store.append_message("s", "user", "zebra")
        sql("DROP TRIGGER broken")
        store.append_message("s", "user", "zebra")
        assert store.check_search_index() == []

    def test_without_fts5_all_else_works(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def deny(action: int, *_: object) -> int:
            made = action == sqlite3.SQLITE_CREATE_VTABLE
            return sqlite3.SQLITE_DENY if made else sqlite3.SQLITE_OK

        settings = StoreSettings()
        database = open_database(locate(path), settings)
        event.listen(database.engine, "checkout", lambda raw, *_: raw.set_authorizer(deny))
        schema.upgrade(database, settings)
        database.close()
        with SessionDB(path) as store:
            store.create_session("s", "cli")
            message = store.append_message("s", "user", "Zebra 网络")
            for query in ("zebra", "网络", "zeb*", '"zebra 网络"'):
                assert ids(store, query) == [message]
            assert "missing" in str(store.search_index_trouble())
            store.optimize()
            # A SQLite that can makes the index when it is asked to.
            store.rebuild_search_index()
            assert store.check_search_index() == []
        assert any("read" in each.message for each in caplog.records)

    def test_a_store_opened_to_read_searches_and_says_what_is_missing(
        self, store: SessionDB, path: Path
    ) -> None:
        store.create_session("s", "cli")
        message = store.append_message("s", "user", "Café 网络 zebra")
        store.close()
        with SessionDB(path, read_only=True) as reader:
            for query in ("cafe", "网络", "网", '"网络 zebra"'):
                assert ids(reader, query) == [message]
            assert reader.check_search_index() == []
            assert reader.search_index_left() == 0


class TestLargeFiles:
    """A large file opens at once and is indexed step by step, right all the while."""

    @pytest.fixture
    def large(self, tmp_path: Path) -> Path:
        """A file of revision 0009 with more messages than one transaction indexes."""
        path = tmp_path / "large.db"
        settings = StoreSettings()
        database = open_database(locate(path), settings)
        schema.upgrade(database, settings, to="0009")
        database.close()
        raw = sqlite3.connect(path)
        raw.execute("INSERT INTO sessions(id, source, started_at) VALUES ('s', 'cli', 1.0)")
        for event_name in ("insert", "delete", "update"):
            raw.execute(f"DROP TRIGGER messages_fts_{event_name}")
        raw.executemany(
            "INSERT INTO messages(id, session_id, role, content, timestamp) "
            "VALUES (?, 's', 'user', ?, 1.0)",
            (
                (number * 2, f"Zebra{number % 500}x Café{number % 700} 网络{number % 900}。")
                for number in range(1, 10_101)
            ),
        )
        raw.commit()
        raw.close()
        return path

    def check(self, store: SessionDB, raw: sqlite3.Connection) -> None:
        rows = raw.execute("SELECT id, content FROM messages ORDER BY id").fetchall()
        texts = {each: text.casefold().replace("é", "e") for each, text in rows}
        wanted: dict[str, Callable[[str], bool]] = {
            "zebra7x": lambda text: "zebra7x" in text,
            "cafe69": lambda text: "cafe69" in text,
            "网络89。": lambda text: "网络89。" in text,
            "zebra7x NOT cafe7": lambda text: "zebra7x" in text and "cafe7 " not in text,
            "络58": lambda text: "络58" in text,
            "new0 OR zebra499x": lambda text: "new0" in text or "zebra499x" in text,
        }
        for query, matches in wanted.items():
            right = [each for each, text in texts.items() if matches(text)]
            assert ids(store, query, sort="oldest") == right, query
            assert ids(store, query, sort="newest", limit=5) == right[::-1][:5], query
            assert sorted(ids(store, query)) == right, query

    def test_killed_while_it_indexes_and_written_to_meanwhile(self, large: Path) -> None:
        lots = random.Random(9)
        with SessionDB(large) as store:
            assert store.search_index_left() > 10_000
            assert store.search_index_trouble() is None
            store.append_message("s", "user", "new0")
        raw = sqlite3.connect(large, isolation_level=None, timeout=10)
        program = (
            "import sys; from sessionstore import SessionDB; db = SessionDB(sys.argv[1]); "
            "print('go', flush=True); "
            "db.complete_search_index(lambda *_: print('step', flush=True))"
        )
        for turn in range(4):
            with subprocess.Popen(
                [sys.executable, "-c", program, str(large)], stdout=subprocess.PIPE, text=True
            ) as other:
                assert other.stdout is not None
                assert other.stdout.readline() == "go\n"
                for _ in range(turn % 2 + 1):
                    other.stdout.readline()
                time.sleep(lots.random() * 0.1)
                other.send_signal(signal.SIGKILL)
            with SessionDB(large) as store:
                left = store.search_index_left()
                assert 0 < left < 10_101
                # Of what is not indexed yet, and of what is: gone, changed, new, low ids too.
                for each in (turn * 2 + 2, 20_000 - turn * 2):
                    raw.execute("DELETE FROM messages WHERE id = ?", (each,))
                    raw.execute(
                        "UPDATE messages SET content = 'Zebra7x é new0' WHERE id = ?", (each + 100,)
                    )
                    raw.execute(
                        "INSERT INTO messages(id, session_id, role, content, timestamp) "
                        "VALUES (?, 's', 'user', 'new0 Zebra7x 网络5', 1.0)",
                        (each + 101,),
                    )
                self.check(store, raw)
                assert all("not indexed yet" in each for each in store.check_search_index())
        with SessionDB(large) as store:
            said: list[tuple[int, int]] = []
            done = store.complete_search_index(lambda *told: said.append(told))
            assert said[-1] == (done, done)
            assert store.search_index_left() == 0
            self.check(store, raw)
            assert store.check_search_index() == []
        raw.close()

    def test_writes_index_a_little_each_until_all_is(self, large: Path) -> None:
        with SessionDB(large) as store:
            left = store.search_index_left()
            for _ in range(24):
                store.append_message("s", "user", "new0")
            assert store.search_index_left() == left - 300
            raw = sqlite3.connect(large)
            self.check(store, raw)
            raw.close()

    def test_a_fresh_file_and_a_completed_one_are_made_alike(
        self, large: Path, sql: Sql, store: SessionDB
    ) -> None:
        store.close()
        fresh = dict(sql("SELECT name, sql FROM sqlite_master"))
        with SessionDB(large) as completed:
            completed.optimize()
            assert completed.check_search_index() == []
        raw = sqlite3.connect(large)
        upgraded = dict(raw.execute("SELECT name, sql FROM sqlite_master").fetchall())
        raw.close()
        for name, definition in (TABLES | TRIGGERS).items():
            assert upgraded[name] == fresh[name] == definition

    def test_an_upgrade_to_an_old_revision_fills_its_index(self, large: Path) -> None:
        settings = StoreSettings()
        database = open_database(locate(large), settings)
        schema.upgrade(database, settings, to="0011")
        raw = sqlite3.connect(large)
        find = "SELECT count(*) FROM messages_fts_trigram WHERE messages_fts_trigram MATCH '网络8'"
        assert raw.execute(find).fetchone() > (1000,)
        raw.close()
        schema.upgrade(database, settings)
        schema.downgrade(database, settings, to="0011")
        raw = sqlite3.connect(large)
        assert raw.execute(find).fetchone() > (1000,)
        raw.close()
        database.close()


def test_a_compacted_original_and_its_live_copy_are_one_hit(store: SessionDB) -> None:
    store.create_session("s", "cli")
    texts = [{"role": "user", "content": f"zebra {number}"} for number in range(1500)]
    store.append_messages("s", texts)
    store.archive_and_compact("s", texts)
    store.append_message("s", "user", "zebra once")
    began = time.process_time()
    for sort in SORTS:
        hits = ids(store, "zebra", sort=sort, limit=10_000)
        assert len(hits) == len(set(hits)) == 1501
    assert time.process_time() - began < 10  # comparing each with each takes minutes


def test_a_search_costs_memory_for_its_page_and_not_for_all_hits(store: SessionDB) -> None:
    store.create_session("s", "cli")
    store.append_messages(
        "s", [{"role": "user", "content": f"common {n} " + "x" * 200} for n in range(5_000)]
    )
    store.search_messages("common", limit=5)
    for query in ("common", "mmo", '"common 1"'):
        for sort in SORTS:
            tracemalloc.start()
            store.search_messages(query, sort=sort, limit=5)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 800_000, (query, sort)
