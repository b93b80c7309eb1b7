"""The search index of a server: what a file gives, whatever is written and however it is lost."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from search_backends import both, run, server_store
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool
from test_search_index import SORTS, Lots, ids

from sessionstore import SessionDB, StoreSettings, schema
from sessionstore.engine import open_database
from sessionstore.location import locate
from sessionstore.search import postgres as postgres_search
from sessionstore.search import server_index

__all__ = ["both", "server_store"]

pytestmark = pytest.mark.postgres

Both = tuple[SessionDB, SessionDB]


@pytest.fixture
def server(both: Both) -> SessionDB:
    """An empty store on a server, with a session."""
    both[1].create_session("s", "cli")
    return both[1]


@pytest.fixture
def sql(server_store: str) -> Callable[..., Any]:
    """Run one statement there as any other program would."""
    return lambda statement, *parameters: run(server_store, statement, *parameters)


def same(file: SessionDB, server: SessionDB, queries: list[str], **options: Any) -> int:
    """Both find the same in the same order, page by page too; return how many hits that were."""
    hits = 0
    for query in queries:
        for sort in SORTS:
            found = ids(file, query, sort=sort, **options)
            assert ids(server, query, sort=sort, **options) == found, (query, sort)
            hits += len(found)
        pages = [ids(server, query, limit=3, offset=at, **options) for at in (0, 3)]
        assert [*pages[0], *pages[1]] == found[:6], query
    return hits


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 20))]
)
def test_the_ordered_ids_agree(both: Both, seed: int) -> None:
    lots = Lots(seed)
    messages = [lots.message() for _ in range(50)]
    for store in both:
        for name in "ab":
            store.create_session(name, "cli" if name == "a" else "cron", user_id=name)
            store.append_messages(name, messages[name == "b" :: 2])
    queries = [lots.query() for _ in range(20)]
    assert same(*both, queries) > 50
    for options in ({"source_filter": ["cli"]}, {"session_id": "a"}, {"per_session": 2}):
        same(*both, queries[:5], **options)
    assert both[1].search_index_left() == 0
    assert both[1].check_search_index() == []


def test_the_order_by_rank_agrees_however_often_a_word_comes(both: Both) -> None:
    lots = Lots(7).random
    words = ["kiwi", "plum", "fig", "网络", "kiwis", "pear", "user auth", "user-auth"]
    texts = [
        " ".join(lots.choices(words, [9, 5, 3, 1, 1, 2, 1, 1], k=lots.randint(1, 120)))
        for _ in range(40)
    ]
    for store in both:
        store.create_session("s", "cli")
        store.append_messages("s", [{"role": "user", "content": text} for text in texts])
    queries = [
        "kiwi", "fig", "网络", "kiwi plum", "fig OR pear", "kiwi fig OR plum 网络", "ki*",
        "pl* fig", '"user auth"', '"kiwi plum" fig', "kiwi NOT fig", "fig fig", '"kiwi kiwi"',
    ]  # fmt: skip
    assert same(*both, queries) > 400


def test_a_beginning_behind_punctuation_weighs_what_it_weighs_in_a_file(both: Both) -> None:
    texts = [f"kiwi {n}" for n in range(30)]
    texts += ["@kiwi @kiwi plum fig fig", "@kiwi plum plum fig", "plum fig", "plum plum", "kiwi"]
    for store in both:
        store.create_session("s", "cli")
        store.append_messages("s", [{"role": "user", "content": text} for text in texts])
    queries = ["@ki* plum", "plum @ki*", "@kiwi* fig OR plum", "@ki* OR plum", "ki* plum"]
    assert same(*both, queries) > 25


def test_a_heart_with_its_mark_does_not_cost_the_order_by_words(both: Both) -> None:
    texts = ["❤️ plum fig pear", "❤️ kiwi fig pear plum", "❤️ kiwi kiwi", "kiwi ❤️ fig", "fig"]
    for store in both:
        store.create_session("s", "cli")
        store.append_messages("s", [{"role": "user", "content": text} for text in texts])
    assert ids(both[0], "❤️ kiwi") == ids(both[0], "😀 kiwi".replace("😀", "❤")) == [3, 4, 2]
    queries = ["❤️ kiwi", "❤️ OR kiwi", "kiwi NOT ❤️*", '"❤️ kiwi" fig OR kiwi', "❤️", "❤️* kiwi"]
    assert same(*both, queries) > 30


def test_an_alternative_ranks_what_matches_by_another_as_in_a_file(both: Both) -> None:
    # To the index the second `plum` is no word, since a character of private use touches it.
    texts = ["plum", "kiwis \ue000plum\ue000 fig", "fig plum kiwi", "@kiwi", "plum plum", "kiwi"]
    for store in both:
        store.create_session("s", "cli")
        store.append_messages("s", [{"role": "user", "content": text} for text in texts])
    assert same(*both, ["@ki* OR plum", "@kiw* fig OR plum OR pear*"]) > 15


def test_phrases_in_more_messages_than_are_counted_stay_in_one_order(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_search, "_MOST_READ", 10)
    server = both[1]
    server.create_session("s", "cli")
    made = server.append_messages(
        "s", [{"role": "user", "content": "a kiwi plum " * (n % 5 + 1)} for n in range(40)]
    )
    for query in ('"kiwi plum"', 'ki* "a kiwi"'):
        whole = ids(server, query)
        assert sorted(whole) == made
        pages = [ids(server, query, limit=9, offset=at) for at in range(0, 45, 9)]
        assert [each for page in pages for each in page] == whole


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "en_US.UTF-8"])
def test_the_locale_of_the_database_makes_no_difference(
    postgres_server: Any, both: Both, locale: str
) -> None:
    file, _ = both
    name = f"sessionstore_{re.sub('[^a-z]', '_', locale.lower())}"
    admin = create_engine(postgres_server, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        known = connection.exec_driver_sql(
            "SELECT 1 FROM pg_collation WHERE replace(lower(collname), '-', '') = %s",
            (locale.lower().replace("-", ""),),
        ).first()
        if known is None:
            pytest.skip(f"this server has no locale {locale}")
        connection.exec_driver_sql(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE '{locale}'"
        )
        lots = Lots(11)
        messages = [lots.message() for _ in range(30)]
        url = make_url(str(postgres_server)).set(database=name).render_as_string(False)
        try:
            with SessionDB(url=url) as server:
                for store in (file, server):
                    store.create_session("s", "cli")
                    store.append_messages("s", messages)
                queries = [
                    "网",
                    "网络",
                    "配置检查",
                    "й",
                    "привет",
                    "😀",
                    "≠",
                    "가",
                    "타",
                    "go",
                    "v2.14",
                ]
                assert same(file, server, [*queries, *(lots.query() for _ in range(3))]) > 30
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


class TestWrittenByOthers:
    """Messages of other programs have no keys, and are found all the same."""

    INSERT = (
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)"
    )

    def test_they_are_found_at_once_and_indexed_by_the_next_writes(
        self, server: SessionDB, sql: Callable[..., Any]
    ) -> None:
        first = server.append_message("s", "user", "a zebra")
        sql(self.INSERT, "Ｚebra 网络")
        assert server.search_index_left() == 1
        assert ids(server, "网") == [first + 1]
        assert ids(server, "zebra") == [first, first + 1]
        assert ids(server, "zebra", sort="newest") == [first + 1, first]
        for number in range(64):
            server.append_message("s", "user", str(number))
        assert server.search_index_left() == 0
        assert ids(server, "zebra") == [first + 1, first]
        assert server.check_search_index() == []

    def test_what_they_change_is_found_as_it_is_now(
        self, server: SessionDB, sql: Callable[..., Any]
    ) -> None:
        message = server.append_message("s", "user", "alpha")
        sql("UPDATE messages SET content = 'Bêta'")
        assert (ids(server, "alpha"), ids(server, "beta")) == ([], [message])
        assert server.complete_search_index() == 1
        assert (ids(server, "alpha"), ids(server, "beta")) == ([], [message])
        sql("UPDATE messages SET id = 77")
        assert ids(server, "beta") == [77]
        sql("UPDATE messages SET tool_calls = ?", json.dumps(["网络"]))
        assert ids(server, "网络") == [77]
        sql("DELETE FROM messages")
        assert ids(server, "beta") == []
        assert server.check_search_index() == []

    def test_a_change_that_is_none_of_the_text_touches_no_index(
        self, server: SessionDB, sql: Callable[..., Any]
    ) -> None:
        server.append_messages("s", [{"role": "user", "content": f"word {n}"} for n in range(50)])
        rows = "SELECT id, xmin, ctid FROM messages_fts ORDER BY id"
        before = sql(rows.replace("xmin", "xmin::text").replace("ctid", "ctid::text"))
        sql("UPDATE messages SET active = 0, compacted = 1")
        server.archive_and_compact("s", [])
        assert sql(rows.replace("xmin", "xmin::text").replace("ctid", "ctid::text")) == before
        assert server.search_index_left() == 0


class TestUpkeep:
    """What fills the index, checks it and makes it anew."""

    def test_a_store_from_before_the_index_is_searched_at_once_and_filled_in_steps(
        self, postgres_url: str
    ) -> None:
        settings = StoreSettings()
        database = open_database(locate(url=postgres_url), settings)
        schema.upgrade(database, settings, to="0022")
        run(postgres_url, "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)")
        run(
            postgres_url,
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "SELECT 's', 'user', 'Café ' || n || ' 网络', 1 FROM generate_series(1, 250) AS n",
        )
        schema.upgrade(database, settings)
        database.close()
        with SessionDB(url=postgres_url) as store:
            assert store.search_index_left() == 250
            everything = list(range(250, 0, -1))
            assert ids(store, "cafe") == ids(store, "网") == everything
            for _ in range(8):
                store.set_meta("a", "write")
            assert store.search_index_left() == 150
            assert ids(store, "cafe 网", sort="newest") == everything
            assert sorted(ids(store, "cafe")) == everything[::-1]
            said: list[tuple[int, int]] = []
            assert store.complete_search_index(lambda *told: said.append(told)) == 150
            assert said == [(150, 150)]
            assert store.search_index_left() == 0
            assert ids(store, "cafe") == everything
            assert store.check_search_index() == []

    @pytest.mark.parametrize(
        "damage",
        [
            "DROP TRIGGER messages_fts_insert ON messages",
            "DROP INDEX ix_messages_fts_grams",
            "ALTER TABLE messages DISABLE TRIGGER messages_fts_update",
            "DROP TABLE messages_fts_pending",
        ],
    )
    def test_without_a_part_of_it_search_reads_says_so_and_a_rebuild_cures(
        self, postgres_url: str, damage: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with SessionDB(url=postgres_url) as store:
            store.create_session("s", "cli")
            part, word = store.append_messages(
                "s", [{"role": "user", "content": text} for text in ("zebras", "zebra")]
            )
            assert store.search_index_trouble() is None
            run(postgres_url, damage)
            for _ in range(2):
                assert ids(store, "zebra") == [word, part]
            assert [record.levelno for record in caplog.records] == [logging.WARNING]
            assert caplog.messages == [store.search_index_trouble()]
            assert "sessionstore doctor --fix" in caplog.text
            assert "rebuilt" in (store.search_index_trouble() or "")
            assert store.check_search_index() != []
            assert store.rebuild_search_index() == 2
            assert store.search_index_trouble() is None
            assert store.check_search_index() == []
            assert ids(store, "zebra") == [word, part]

    def test_a_check_sees_what_the_index_says_wrongly(
        self, server: SessionDB, sql: Callable[..., Any]
    ) -> None:
        wrong, lost = server.append_messages(
            "s", [{"role": "user", "content": text} for text in ("a zebra", "a kiwi")]
        )
        sql("UPDATE messages_fts SET words = '{1}' WHERE id = ?", wrong)
        sql("DELETE FROM messages_fts WHERE id = ?", lost)
        found = server.check_search_index()
        assert len(found) == 2
        assert f"message {wrong}" in found[1]
        assert server.rebuild_search_index() == 2
        assert server.check_search_index() == []

    def test_what_the_package_makes_is_what_the_revision_makes(self) -> None:
        folder = schema.migrations_folder() / "versions"
        scope: dict[str, Any] = {}
        exec((folder / "0023_search_on_a_server.py").read_text(), scope)  # noqa: S102 - ours
        made = (
            *server_index.TABLES.values(), server_index.STORAGE, *server_index.INDEXES.values(),
            server_index.FUNCTION, *server_index.TRIGGERS.values(), server_index.FILL,
        )  # fmt: skip
        assert made == scope["CREATE"]

    def test_messages_that_come_in_from_a_file_are_indexed_at_once(self, both: Both) -> None:
        file, server = both
        file.create_session("a", "cli")
        lots = Lots(3)
        file.append_messages("a", [lots.message() for _ in range(20)])
        server.import_sessions(file.export_all())
        assert server.search_index_left() == 0
        assert same(file, server, [lots.query() for _ in range(10)]) > 10
