"""What a query says, and whether a text has it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessionstore.errors import QueryError
from sessionstore.search.fold import fold
from sessionstore.search.query import (
    And,
    Edge,
    Not,
    Or,
    Phrase,
    Prefix,
    Term,
    as_words,
    matches,
    may_match,
    parse,
    wanted,
)

HELLO, WORLD, JAVA = Term("hello"), Term("world"), Term("java")
WHOLE_JAVA = Term("java", Edge.WORD)


def found(query: str, text: str) -> bool:
    tree = parse(query)
    return tree is not None and matches(tree, fold(text))


@pytest.mark.parametrize(
    ("query", "tree"),
    [
        ("Hello", HELLO),
        ("hello world", And((HELLO, WORLD))),
        ("hello\u3000WORLD", And((HELLO, WORLD))),
        ("hello AND world", And((HELLO, WORLD))),
        ("hello OR world", Or((HELLO, WORLD))),
        ("hello world OR java hello", Or((And((HELLO, WORLD)), And((JAVA, HELLO))))),
        ("hello NOT java", And((HELLO, Not(WHOLE_JAVA)))),
        ("hello NOT java world", And((HELLO, Not(WHOLE_JAVA), WORLD))),
        ("hello OR world NOT java", Or((HELLO, And((WORLD, Not(WHOLE_JAVA)))))),
        ("hello NOT java.x", And((HELLO, Not(Term("java.x"))))),
        ('hello NOT "java x"', And((HELLO, Not(Phrase("java x"))))),
        ("hello NOT ja*", And((HELLO, Not(Prefix("ja"))))),
        ("hello and world", And((HELLO, Term("and"), WORLD))),
        ("ab", Term("ab", Edge.WORD)),
        ("Ｃ", Term("c", Edge.WORD)),
        ("c:", Term("c:")),
        ("é", Term("e", Edge.WORD)),
        ("网", Term("网")),
        ('"Hello  World"', Phrase("hello  world")),
        ('"hello"world', And((Phrase("hello"), WORLD))),
        ("hel*", Prefix("hel")),
        ("网络*", Prefix("网络")),
        # What cannot be an operator is text.
        ("*", Term("*")),
        ("**", Term("**")),
        ("^", Term("^")),
        ('"', Term('"')),
        ('""', Term('""')),
        ('" "', And((Term('"'), Term('"')))),
        ("(hello", Term("(hello")),
        ('"hello world', And((Term('"hello'), WORLD))),
        ('say:"hello', Term('say:"hello')),
        ("-hello", Term("-hello")),
        ("NEAR", Term("near")),
        # Operators that dangle, or follow one another.
        ("hello AND", HELLO),
        ("OR world", WORLD),
        ("NOT java", JAVA),
        ("AND OR NOT java NOT OR", JAVA),
        ("hello AND OR world", Or((HELLO, WORLD))),
        ("hello OR AND world", And((HELLO, WORLD))),
        ("hello OR NOT java", And((HELLO, Not(WHOLE_JAVA)))),
        ("NOT", Term("not")),
        ("AND OR", And((Term("and"), Term("or", Edge.WORD)))),
        # Nothing to look for.
        ("", None),
        (" \t\n\u3000", None),
        ("\u0301", None),
        ("\u0301 hello", HELLO),
    ],
)
def test_what_a_query_says(query: str, tree: object) -> None:
    assert parse(query) == tree


def test_a_query_of_2048_characters_is_read_and_a_longer_one_refused() -> None:
    assert parse("a" * 2048) == Term("a" * 2048)
    with pytest.raises(QueryError, match=r"2,049 characters.*2,048"):
        parse("a" * 2049)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("at-se", "run chat-send"),
        ("%", "100% done"),
        ("v2", "about v2.14.3"),
        ("v2", "about_v2_"),
        ("ai", "使用AI技术"),
        ("网络", "检查网络配置"),
        ("网", "检查网络配置"),
        ("😀", "deploy 😀 finished"),
        ('"chat send"', "run chat-send"),
        ('"chat send"', "run Chat\n\t -- SEND!"),
        ('"at-se"', "run chat-send"),
        ('"user-auth"', "the user auth"),
        ('"网络 配置"', "网络，配置"),
        ("cha*", "run chat-send"),
        ("youer*", "修改youer服务端"),
        ("络*", "检查网络配置"),
        ("python NOT java", "python and javascript"),
        ("a b OR c d", "c d"),
        ("qz\0z", "qz\0zq9"),
        ('"path":', r'{"arguments": "{\"path\": 1}"}'),
        (r"C:\Users", r'{"path": "C:\\Users"}'),
        (r"C:\Users", r'{"arguments": "{\"path\": \"C:\\\\Users\"}"}'),
        ("\ud83d", "half \ud83d of it"),
    ],
)
def test_what_is_found(query: str, text: str) -> None:
    assert found(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("user-auth", "check user_auth.log"),
        ("ai", "said again"),
        ("c", "abc"),
        ("2", "v2"),
        ('"chat send"', "chatsend"),
        ('"chat send"', "chat to send"),
        ('"chat send"', "chats send"),
        ("hat*", "run chat-send"),
        ("python NOT java", "python and Java"),
        ("python NOT java", "python或java"),
        ("网络 NOT 配置", "检查网络配置"),
        ("a b OR c d", "b c"),
        ("，", "a, b"),
    ],
)
def test_what_is_not_found(query: str, text: str) -> None:
    assert not found(query, text)


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("chat", "run chat-send", True),
        ("cha", "run chat-send", False),
        ("100%", "100% done", True),
        ("😀", "a😀b", True),
        ("网络", "网络 配置", True),
        ("网络", "检查网络配置", False),
        ("youer", "修改youer服务端", False),
        ("cha*", "run chat-send", True),
        ("络*", "检查网络配置", False),
        ("cha OR send", "run chat-send", True),
        ("cha send", "run chat-send", False),
        ("send NOT ru*", "a chat-send", True),
        ('"chat send"', "chat send", True),
        ('"hat sen"', "chat send", False),
    ],
)
def test_what_comes_first_by_rank(query: str, text: str, expected: bool) -> None:
    tree = parse(query)
    assert tree is not None
    assert matches(tree, fold(text))
    assert matches(as_words(tree), fold(text)) is expected


def test_what_is_excluded_is_never_marked() -> None:
    tree = parse("hello NOT java OR world")
    assert tree is not None
    assert wanted(tree) == [HELLO, WORLD]


WORDS = st.sampled_from(
    [
        "a",
        "ab",
        "abc",
        "网",
        "网络",
        "ab网",
        "a-b",
        '"',
        "\\",
        "*",
        "b*",
        "网*",
        '"a b"',
        '"b-',
        "AND",
        "OR",
        "NOT",
        "é",
    ]
)
TEXTS = st.lists(
    st.sampled_from(
        ["a", "b", "ab", "abc", "网", "络", "-", " ", "\n", '"', '\\"', "\\\\", "*", "é", "_"]
    ),
    max_size=12,
).map("".join)


@settings(deadline=None)
@given(st.lists(WORDS, max_size=6).map(" ".join), st.lists(TEXTS, max_size=4))
@example(r"C:\Users", [r'"C:\\Users"', "x"])
def test_a_block_is_only_passed_over_where_nothing_in_it_matches(
    query: str, texts: list[str]
) -> None:
    tree = parse(query)
    if tree is None:
        return
    folded = [fold(text) for text in texts]
    if any(matches(tree, each) for each in folded):
        assert may_match(tree, "\n".join(folded))
    for each in folded:
        if matches(as_words(tree), each):
            assert matches(tree, each)
