"""What a user finds with a query, in what order, and what is shown of it."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from search_backends import (
    SERVER,
    either,
    server_store,
    sql,
    store,
    where,
)

from sessionstore import QueryError, SessionDB

# Fixtures are found by their names in the module that uses them.
__all__ = ["server_store", "sql", "store", "where"]

CORPUS = [
    "run chat-send then check sp_new1 in user_auth.log",
    "open C:\\Users\\demo\\notes.txt with the C++ tool",
    "it's 100% done, don't retry; ratio 1000",
    "error:timeout at namespace::value, see https://example.test/a/b?x=1",
    "mail demo.user@example.test about v2.14.3",
    "今天去广西旅游，看漓江和桂林",
    "修改youer服务端的计划，检查网络配置",
    "東京タワーの写真を整理する",
    "서울 날씨를 알려줘",
    "Café ORÇAMENTO İstanbul",
    "ＡＢＣ ﬁle 全角",
    "deploy 😀 finished 👨‍👩‍👧",
    "hello AND goodbye (maybe) NOT today NEAR here",
    unicodedata.normalize("NFD", "한국어 검색 résumé"),
    "user-auth and userXauth differ",
]


def fill(
    store: SessionDB, texts: Iterable[Any], session_id: str = "s", **session: Any
) -> list[int]:
    store.ensure_session(session_id, **{"source": "cli", **session})
    return store.append_messages(session_id, [{"role": "user", "content": each} for each in texts])


def ids(store: SessionDB, query: str, **options: Any) -> list[int]:
    return [hit["id"] for hit in store.search_messages(query, **{"limit": 1000, **options})]


def fill_corpus(store: SessionDB) -> None:
    for number, text in enumerate(CORPUS, 1):
        fill(store, [text], f"D{number}")


@pytest.fixture(scope="module", params=["file", SERVER])
def corpus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SessionDB]:
    """Fifteen sessions of one message each, `D1` to `D15`; only read."""
    with either(request, tmp_path_factory.mktemp("corpus")) as opened:
        fill_corpus(opened)
        yield opened


def found_in(store: SessionDB, query: str, **options: Any) -> set[str]:
    return {hit["session_id"] for hit in store.search_messages(query, limit=100, **options)}


@pytest.mark.parametrize("sort", ["rank", "newest", "oldest"])
@pytest.mark.parametrize(
    ("query", "documents"),
    [
        ("chat-send", "D1"),
        ("C:\\Users", "D2"),
        ("C++", "D2"),
        ("100%", "D3"),
        ("don't", "D3"),
        ("error:timeout", "D4"),
        ("namespace::value", "D4"),
        ("https://example.test/a/b?x=1", "D4"),
        ("demo.user@example.test", "D5"),
        ("v2.14.3", "D5"),
        ("v2", "D5"),
        ("广西", "D6"),
        ("网络", "D7"),
        ("youer", "D7"),
        ("計画", ""),
        ("東京", "D8"),
        ("서울", "D9"),
        ("café", "D10"),
        ("cafe", "D10"),
        ("orcamento", "D10"),
        ("orçamento", "D10"),
        ("istanbul", "D10"),
        ("İSTANBUL", "D10"),
        ("ABC", "D11"),
        ("file", "D11"),
        ("😀", "D12"),
        ("hello AND", "D13"),
        ("(maybe)", "D13"),
        ("NOT", "D2 D13"),
        ("-hello", ""),
        ('"', ""),
        ("*", ""),
        ("", ""),
        ("   ", ""),
        ("^", ""),
        ("한국어", "D14"),
        ("resume", "D14"),
        ("user-auth", "D15"),
        ("NEAR", "D13"),
        ("1000 OR 漓江", "D3 D6"),
        ("hello NOT goodbye", ""),
        ('"user auth"', "D1 D15"),
        ("用户", ""),
    ],
)
def test_hostile_query_corpus(
    corpus: SessionDB, query: str, documents: str, sort: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert found_in(corpus, query, sort=sort) == set(documents.split())
    assert caplog.records == []


def test_no_query_raises_for_what_it_says(
    corpus: SessionDB, caplog: pytest.LogCaptureFixture, pytestconfig: pytest.Config
) -> None:
    # Over a socket each takes some milliseconds.
    quick = corpus.location.path is not None or pytestconfig.getoption("--slow")
    lots = random.Random(16)
    pieces = [
        *"\"*^:()-+{}\\%_'/.@ ",
        " AND ",
        " OR ",
        " NOT ",
        " NEAR ",
        "广",
        "西",
        "😀",
        "\0",
        "\ud83d",
    ]
    for _ in range(5000 if quick else 200):
        corpus.search_messages("".join(lots.choices(pieces, k=lots.randint(1, 12))), limit=3)
    assert caplog.records == []


def test_a_long_query_of_many_words_is_answered(
    corpus: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    for operator in (" ", " OR ", " AND ", " NOT "):
        query = operator.join(["hello", *(f"w{number}" for number in range(100))])
        assert found_in(corpus, query) == ({"D13"} if operator in (" OR ", " NOT ") else set())
        # As many as the index is asked for, in short and in long.
        for few in (f"w{{}}{operator}" * 60, f"word{{}}\\{operator}" * 60):
            query = f"hello{operator}" + few.format(*range(60))
            assert found_in(corpus, query) == ({"D13"} if operator in (" OR ", " NOT ") else set())
    with pytest.raises(QueryError):
        corpus.search_messages("x" * 2049)
    assert caplog.records == []


def test_mixed_scripts_and_lengths_in_one_query(store: SessionDB) -> None:
    corpus = store
    fill_corpus(corpus)
    fill(corpus, ["网络 配置"], "D16")
    assert found_in(corpus, "广西 OR 桂林") == {"D6"}
    assert found_in(corpus, "漓江 OR youer") == {"D6", "D7"}
    assert found_in(corpus, "网络") == {"D7", "D16"}
    assert found_in(corpus, "网络 youer") == {"D7"}
    # Where it stands as a word comes first, then the newest.
    assert [hit["session_id"] for hit in corpus.search_messages("网络")] == ["D16", "D7"]
    assert found_in(corpus, "网络", role_filter=["assistant"]) == set()
    assert found_in(corpus, "网络", role_filter=["user"]) == {"D7", "D16"}


class TestContent:
    """What of a message can be found."""

    def test_text_parts_are_found_and_image_data_is_not(self, store: SessionDB) -> None:
        image = {"type": "image", "data": "aGVsbG8gd29ybGQ" * 70_000}
        (message,) = fill(store, [[{"type": "text", "text": "kiwi ＡＢＣ"}, image]])
        assert ids(store, "kiwi") == [message]
        assert ids(store, "abc") == [message]
        assert ids(store, "aGVsbG8gd29ybGQ") == []
        assert ids(store, "image") == []

    def test_tool_names_and_calls_are_found_in_any_script(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        calls = [
            {
                "function": {
                    "name": "lookup",
                    "arguments": json.dumps({"città": "广西", "at": "C:\\Users"}),
                }
            }
        ]
        call = store.append_message("s", "assistant", None, tool_calls=calls)
        result = store.append_message("s", "tool", "ok", tool_name="weather_report")
        for query in ("广西", "citta", "C:\\Users", '"città":', "lookup"):
            assert ids(store, query) == [call], query
        assert ids(store, "weather_report") == [result]
        assert ">>>广西<<<" in store.search_messages("广西")[0]["snippet"]
        assert ">>>weather_report<<<" in store.search_messages("weather_report")[0]["snippet"]

    def test_calls_that_another_program_wrote_with_escapes_are_found(
        self, store: SessionDB, sql: Callable[..., Any]
    ) -> None:
        fill(store, ["x"])
        sql("UPDATE messages SET tool_calls = ?", json.dumps([{"arguments": "网络 😀"}]))
        assert len(ids(store, "网络")) == 1
        assert len(ids(store, "😀")) == 1
        sql("UPDATE messages SET tool_calls = ?", '[{"arguments": "broken')
        assert len(ids(store, "broken")) == 1

    def test_arguments_are_found_by_what_their_escapes_stand_for(self, store: SessionDB) -> None:
        # As an encoder of JSON for web pages writes them.
        arguments = r'{"html": "\u003cp class=\u0022a\u0022\u003ea \u0026 b, it\u0027s"}'
        store.create_session("s", "cli")
        store.append_message("s", "assistant", tool_calls=[{"arguments": arguments}])
        for query in ("<p", 'class="a">', "a & b", "it's"):
            assert len(store.search_messages(query)) == 1, query
        assert store.search_messages("003c") == []
        (hit,) = store.search_messages("<p")
        assert ">>><p<<< class=" in hit["snippet"]

    def test_code_is_found_by_the_escapes_that_stand_in_it(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        code = r'const close = "\u003c/p>" // \u5e7f'
        store.append_message("s", "assistant", tool_calls=[{"arguments": {"code": code}}])
        for query in (r"\u003c/p", r"\u5e7f"):
            assert len(store.search_messages(query)) == 1, query
        assert store.search_messages("广") == []

    def test_hostile_text_is_found(self, store: SessionDB) -> None:
        texts = [
            "bad \ud83d end",
            "qz\0zq9",
            "\ufeffbom",
            "x" * 1_000_000,
            " ".join(f"w{n}" for n in range(200_000)),
        ]
        half, nul, mark, long, wide = fill(store, texts)
        assert ids(store, "zq9") == [nul]
        assert ids(store, "qz\0z") == [nul]
        assert ids(store, "\ud83d") == [half]
        assert ids(store, "\ufeff") == [mark]
        assert ids(store, "xxxx") == [long]
        assert ids(store, "w199999") == [wide]


class TestOrder:
    """Which hit comes first, and that pages neither overlap nor gap."""

    @pytest.mark.sqlite_only
    def test_many_in_a_short_text_come_before_one_in_a_long_text(self, store: SessionDB) -> None:
        long, short = fill(store, ["zebra " + "other words " * 200, "zebra " * 5])
        later = fill(store, ["zebra " + "more words " * 200])[0]
        assert ids(store, "zebra")[0] == short
        assert set(ids(store, "zebra")) == {long, short, later}

    def test_whole_words_come_before_parts_and_parts_newest_first(self, store: SessionDB) -> None:
        part, word, folded, newer = fill(store, ["xzebrax", "a zebra", "a ｚｅｂｒａ", "zebras"])
        assert ids(store, "zebra") == [folded, word, newer, part]
        assert ids(store, "zebra", sort="newest") == [newer, folded, word, part]
        assert ids(store, "zebra", sort="oldest") == [part, word, folded, newer]

    @pytest.mark.parametrize("text", ["the same zebra", "azebraz", "ｚｅｂｒａ"])
    @pytest.mark.parametrize("sort", ["rank", "newest", "oldest"])
    def test_equal_hits_have_one_order_over_runs_and_pages(
        self, store: SessionDB, text: str, sort: Any
    ) -> None:
        made = fill(store, [text] * 20)
        whole = ids(store, "zebra", sort=sort)
        assert sorted(whole) == made
        assert whole == ids(store, "zebra", sort=sort)
        for size in (1, 3, 7):
            pages = [
                ids(store, "zebra", sort=sort, limit=size, offset=at) for at in range(0, 21, size)
            ]
            assert [each for page in pages for each in page] == whole

    def test_pages_over_all_three_kinds_of_hits(self, store: SessionDB) -> None:
        fill(
            store,
            [
                "zebra",
                "zebra here",
                "ｚｅｂｒａ",
                "xzebra",
                [{"text": "a zebra"}],
                "zebras",
                "zebra",
            ]
            * 3,
        )
        whole = ids(store, "zebra")
        assert len(set(whole)) == 21
        for size in (2, 5):
            pages = [ids(store, "zebra", limit=size, offset=at) for at in range(0, 22, size)]
            assert [each for page in pages for each in page] == whole

    def test_per_session_keeps_the_best_of_each_and_limit_counts_the_rest(
        self, store: SessionDB
    ) -> None:
        fill(store, ["a kiwi"] * 10, "A")
        for name in "BCDE":
            fill(store, ["kiwifruit"], name)
        hits = store.search_messages("kiwi", limit=5, per_session=1)
        assert [hit["session_id"] for hit in hits] == ["A", "E", "D", "C", "B"]
        best = fill(store, ["kiwi kiwi kiwi"], "B")
        assert ids(store, "kiwi", per_session=1, limit=1) == best
        assert len(ids(store, "kiwi", per_session=3)) == 3 + 2 + 3
        assert len(ids(store, "kiwi", per_session=3, offset=6)) == 2


@pytest.fixture(scope="module", params=["file", SERVER])
def many(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SessionDB]:
    """One hit of a person and sixty newer ones of a timer; only read."""
    with either(request, tmp_path_factory.mktemp("many")) as store:
        store.create_session("one", "cli", user_id="u1")
        store.append_message("one", "user", "the kiwi", timestamp=100.0)
        store.create_session("two", "cron", user_id="u2")
        for number in range(60):
            store.append_message("two", "assistant", "a kiwi", timestamp=200.0 + number)
        yield store


class TestFilters:
    """Filters apply before the limit."""

    @pytest.mark.parametrize("sort", ["rank", "newest", "oldest"])
    @pytest.mark.parametrize(
        ("options", "count"),
        [
            ({}, 61),
            ({"source_filter": ["cli"], "limit": 10}, 1),
            ({"source_filter": ("cli", "cron")}, 61),
            ({"source_filter": []}, 0),
            ({"source_filter": ["\ud83d"]}, 0),
            ({"source_filter": ["nowhere"]}, 0),
            ({"exclude_sources": ["cron"], "limit": 10}, 1),
            ({"exclude_sources": []}, 61),
            ({"role_filter": ["user"], "limit": 10}, 1),
            ({"role_filter": []}, 61),
            ({"role_filter": ["\ud83d"]}, 0),
            ({"session_id": "one"}, 1),
            ({"session_id": "none"}, 0),
            ({"user_id": "u1", "limit": 10}, 1),
            ({"user_id": "u3"}, 0),
            ({"since": 259.0}, 1),
            ({"until": 100.0}, 1),
            ({"until": 99.9}, 0),
            ({"since": 100.0, "until": 200.0}, 2),
            ({"since": 201}, 59),
            ({"limit": 0}, 0),
            ({"offset": 60}, 1),
            ({"offset": 61}, 0),
            ({"limit": sys.maxsize}, 61),
            ({"limit": sys.maxsize, "offset": 1}, 60),
            ({"limit": sys.maxsize, "per_session": sys.maxsize}, 61),
            ({"offset": sys.maxsize}, 0),
            ({"source_filter": ["cron"], "role_filter": ["user"]}, 0),
        ],
    )
    def test_filters(self, many: SessionDB, options: dict[str, Any], count: int, sort: Any) -> None:
        assert len(ids(many, "kiwi", sort=sort, **options)) == count

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"source_filter": "cli"}, TypeError),
            ({"exclude_sources": "cli"}, TypeError),
            ({"role_filter": "user"}, TypeError),
            ({"role_filter": [1]}, TypeError),
            ({"limit": -1}, ValueError),
            ({"offset": -1}, ValueError),
            ({"limit": True}, TypeError),
            ({"limit": 1.0}, TypeError),
            ({"limit": None}, TypeError),
            ({"per_session": 0}, ValueError),
            ({"sort": "best"}, ValueError),
            ({"since": float("nan")}, ValueError),
            ({"until": float("nan")}, ValueError),
            ({"since": "yesterday"}, TypeError),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self, many: SessionDB, options: dict[str, Any], error: type[Exception]
    ) -> None:
        for query in ("kiwi", ""):
            with pytest.raises(error):
                many.search_messages(query, **options)

    def test_a_query_that_is_no_text_is_refused(self, many: SessionDB) -> None:
        with pytest.raises(TypeError):
            many.search_messages(None)  # type: ignore[arg-type]


class TestHits:
    """What a hit shows."""

    def test_a_hit_has_what_one_needs_to_go_there(self, store: SessionDB) -> None:
        store.create_session("s", "brand-new", model="m1", title="Fruit", started_at=50.0)
        message = store.append_message("s", "tool", "a kiwi", tool_name="fruit", timestamp=60.0)
        assert store.search_messages("kiwi") == [
            {
                "id": message,
                "session_id": "s",
                "role": "tool",
                "timestamp": 60.0,
                "tool_name": "fruit",
                "snippet": "a >>>kiwi<<<\nfruit",
                "context": [{"role": "tool", "content": "a kiwi"}],
                "source": "brand-new",
                "model": "m1",
                "title": "Fruit",
                "session_started": 50.0,
            }
        ]

    def test_context_is_the_neighbours_in_the_same_session(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.append_message("s", "user", "x" * 500)
        fill(store, ["between"] * 150, "other")
        store.append_message("s", "assistant", "kiwi")
        fill(store, ["between"] * 150, "other")
        image = {"type": "image", "data": "aGVsbG8="}
        store.append_message("s", "user", [image])
        store.append_message("s", "user", [image, {"type": "text", "text": "plum"}])
        store.append_message("s", "assistant", None)
        assert store.search_messages("kiwi")[0]["context"] == [
            {"role": "user", "content": "x" * 200},
            {"role": "assistant", "content": "kiwi"},
            {"role": "user", "content": "[multimodal content]"},
        ]
        assert store.search_messages("plum")[0]["context"] == [
            {"role": "user", "content": "[multimodal content]"},
            {"role": "user", "content": "plum"},
            {"role": "assistant", "content": ""},
        ]
