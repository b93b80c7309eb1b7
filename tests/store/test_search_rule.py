"""The rule of search, told a second time and as plainly as can be, against the store."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from search_backends import server_store

from sessionstore import SessionDB

__all__ = ["server_store"]

# A query is said as data, so that the telling needs no parser: ("term", t), ("phrase", t),
# ("prefix", t), ("and", a, b), ("or", a, b), ("not", a, b).
Query = tuple[Any, ...]


def plain(text: str) -> str:
    folded = unicodedata.normalize("NFC", text)
    folded = "".join(
        unicodedata.normalize("NFKC", c) if c.isalnum() else c for c in folded
    ).casefold()
    folded = "".join(unicodedata.normalize("NFD", c) if c.isalnum() else c for c in folded)
    return unicodedata.normalize("NFC", "".join(c for c in folded if not "\u0300" <= c <= "\u036f"))


def script(character: str) -> str:
    """Say what a character joins with."""
    if not (character.isalnum() or unicodedata.category(character).startswith("M")):
        return "none"
    name = unicodedata.name(character)
    return "cjk" if name.startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL")) else "other"


def parts_a_word(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return False
    return script(text[at - 1]) == script(text[at]) != "none"


def whole(needle: str, text: str) -> bool:
    spans = [(at, at + len(needle)) for at in range(len(text)) if text.startswith(needle, at)]
    return any(not parts_a_word(text, a) and not parts_a_word(text, b) for a, b in spans)


def holds(query: Query, text: str) -> bool:
    match query:
        case "and", left, right:
            return holds(left, text) and holds(right, text)
        case "or", left, right:
            return holds(left, text) or holds(right, text)
        case "not", left, right:
            return holds(left, text) and not has(right, text, excluded=True)
    return has(query, text)


def has(leaf: Query, text: str, *, excluded: bool = False) -> bool:
    kind, needle = leaf[0], plain(leaf[1])
    if kind == "term":
        longest = 1000 if excluded else 2
        if re.fullmatch(f"[a-z0-9]{{1,{longest}}}", needle):
            return whole(needle, text)
        return needle in text
    if kind == "prefix":
        if any(script(c) == "cjk" for c in needle):
            return needle in text
        return any(
            text.startswith(needle, at) and not parts_a_word(text, at) for at in range(len(text))
        )
    run = "".join(c if script(c) != "none" else " " for c in needle).split()
    if needle in text:
        return True
    between = r"(?:[^\w]|_)+"
    found = re.finditer("(?=(" + between.join(map(re.escape, run)) + "))", text) if run else []
    return any(
        not parts_a_word(text, f.start(1)) and not parts_a_word(text, f.end(1)) for f in found
    )


def said(query: Query) -> str:
    kind = query[0]
    if kind in ("and", "or", "not"):
        return f"{said(query[1])} {kind.upper()} {said(query[2])}"
    return {"term": "{}", "phrase": '"{}"', "prefix": "{}*"}[kind].format(query[1])


# Each piece alone and next to any other: short and long, in all scripts and forms.
PIECES = [
    "a", "ab", "abc", "AB", "go", "v2", "2", "ｇｏ", "café", "cafe\u0301", "CAFÉ", "й",
    "ﬁ", "fi", "ß", "ss", "İ", "网", "网络", "配置", "，", "タ", "東京", "バ", "ﾊﾞ",
    "서울", "한", unicodedata.normalize("NFD", "한"), "漢a",
    "-", "_", ".", "'", "%", "/", "😀", "👨‍👩‍👧", "(", "\\", "≠",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from([*PIECES, " ", " ", " ", "\n"]), max_size=10).map("".join)
NEEDLES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join)
WORDS = NEEDLES.filter(lambda text: any(script(c) != "none" for c in plain(text)))
LEAVES = st.one_of(
    st.tuples(st.just("term"), NEEDLES),
    st.tuples(st.just("term"), st.sampled_from(PIECES)),
    st.tuples(st.just("prefix"), WORDS),
    st.tuples(st.just("phrase"), st.lists(NEEDLES, min_size=1, max_size=3).map(" ".join)),
)
ALL_OF = st.one_of(
    LEAVES,
    st.tuples(st.just("and"), LEAVES, LEAVES),
    st.tuples(st.just("not"), LEAVES, LEAVES),
    st.tuples(st.just("not"), st.tuples(st.just("and"), LEAVES, LEAVES), LEAVES),
    st.tuples(st.just("and"), st.tuples(st.just("not"), LEAVES, LEAVES), LEAVES),
)
QUERIES = st.one_of(ALL_OF, st.tuples(st.just("or"), ALL_OF, ALL_OF))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    """One store for all examples, each of which clears its only session."""
    path: Path = tmp_path_factory.mktemp("rule") / "state.db"
    with SessionDB(path) as opened:
        opened.create_session("s", "cli")
        yield opened


@pytest.fixture(scope="module")
def shared_server(server_store: str) -> Iterator[SessionDB]:
    """The same on a server."""
    with SessionDB(url=server_store) as opened:
        yield opened


EXAMPLES = given(st.lists(TEXTS, min_size=1, max_size=8), st.lists(QUERIES, min_size=1, max_size=6))


def check(store: SessionDB, texts: list[str], queries: list[Query]) -> list[list[int]]:
    """Hold a store with these messages to the rule; list what was found, by place in the texts."""
    store.clear_messages("s")
    made = store.append_messages("s", [{"role": "user", "content": text} for text in texts])
    told: list[list[int]] = []
    for query in queries:
        right = [
            message for message, text in zip(made, texts, strict=True) if holds(query, plain(text))
        ]
        for sort in ("rank", "newest", "oldest"):
            hits = store.search_messages(said(query), sort=sort, limit=100)
            found = [hit["id"] for hit in hits]
            told.append([made.index(each) for each in found])
            assert sorted(found) == right, (said(query), sort)
            assert all(">>>" in hit["snippet"] for hit in hits), said(query)
        assert found == right
        pages = [store.search_messages(said(query), limit=3, offset=at) for at in range(0, 9, 3)]
        whole_order = [hit["id"] for hit in store.search_messages(said(query), limit=100)]
        assert [hit["id"] for page in pages for hit in page] == whole_order
    return told


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@EXAMPLES
def test_what_is_found_is_what_the_rule_says(
    shared: SessionDB, texts: list[str], queries: list[Query]
) -> None:
    check(shared, texts, queries)


@pytest.mark.postgres
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@EXAMPLES
def test_a_server_finds_the_same_in_the_same_order(
    shared: SessionDB,
    shared_server: SessionDB,
    texts: list[str],
    queries: list[Query],
) -> None:
    shared_server.ensure_session("s", source="cli")
    assert check(shared_server, texts, queries) == check(shared, texts, queries)
