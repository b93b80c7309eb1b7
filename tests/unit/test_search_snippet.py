"""What is shown of a hit: the real text around the first match, each match marked."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessionstore.search.fold import fold
from sessionstore.search.query import parse
from sessionstore.search.snippet import _View, snippet


def shown(query: str, text: str) -> str:
    tree = parse(query)
    assert tree is not None
    return snippet(tree, text)


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("send", "run chat-send now", "run chat->>>send<<< now"),
        ("网络", "修改网络，检查网络配置", "修改>>>网络<<<，检查>>>网络<<<配置"),
        ("网络", "网络网络", ">>>网络<<<>>>网络<<<"),
        ("orcamento", "Café ORÇAMENTO İstanbul", "Café >>>ORÇAMENTO<<< İstanbul"),
        ("istanbul", "Café ORÇAMENTO İstanbul", "Café ORÇAMENTO >>>İstanbul<<<"),
        ("abc", "ＡＢＣ ﬁle", ">>>ＡＢＣ<<< ﬁle"),
        ("f", "an F ﬁle", "an >>>F<<< ﬁle"),
        ("ile", "ＡＢＣ ﬁle", "ＡＢＣ >>>ﬁle<<<"),
        ("strasse", "die Straße hier", "die >>>Straße<<< hier"),
        ("バナナ", "黄色いﾊﾞﾅﾅだ", "黄色い>>>ﾊﾞﾅﾅ<<<だ"),
        ("resume", "my re\u0301sume\u0301 x", "my >>>re\u0301sume\u0301<<< x"),
        ('"chat send"', "a Chat -- SEND b", "a >>>Chat -- SEND<<< b"),
        ("cha*", "a chat b", "a >>>cha<<<t b"),
        ("one two", "two, one, two", ">>>two<<<, >>>one<<<, >>>two<<<"),
        ("python NOT java", "python javascript", ">>>python<<< javascript"),
        ("aa", "x aaaa aa", "x aaaa >>>aa<<<"),
        ("aaa", "x aaaa", "x >>>aaaa<<<"),
        ("😀", "deploy 😀 finished", "deploy >>>😀<<< finished"),
        (r"C:\Users", r'{"path": "C:\\Users"}', r'{"path": ">>>C:\\Users<<<"}'),
    ],
)
def test_the_real_text_with_its_matches_marked(query: str, text: str, expected: str) -> None:
    assert shown(query, text) == expected


def test_decomposed_hangul_is_marked_by_whole_syllables() -> None:
    text = unicodedata.normalize("NFD", "한국어 검색")
    syllable = unicodedata.normalize("NFD", "국")
    marked = shown("국", text)
    assert f">>>{syllable}<<<" in marked
    assert marked.replace(">>>", "").replace("<<<", "") == text


def test_a_long_text_is_cut_at_words_and_says_so() -> None:
    text = "before " * 100 + "needle " + "after " * 100
    marked = shown("needle", text)
    assert re.fullmatch(r"\.\.\.(before )+>>>needle<<<( after)+ ?\.\.\.", marked)
    assert len(marked) <= 200


@pytest.mark.parametrize("word", ["x", "elevenchars", "网络" * 150, "é" * 300])
@pytest.mark.parametrize("where", [0, 40, 400])
def test_a_snippet_has_at_most_40_words_and_200_characters(word: str, where: int) -> None:
    text = f"{word} " * where + "needle" + f" {word}" * 400
    marked = shown("needle", text)
    assert ">>>needle<<<" in marked
    assert len(marked) <= 200
    assert len(marked.split()) <= 41
    assert marked.strip(".").replace(">>>", "").replace("<<<", "") in text


def test_a_match_longer_than_a_snippet_is_cut() -> None:
    assert re.fullmatch(r">>>x{150,200}<<<\.\.\.", shown("x" * 500, "x" * 500))


def test_a_cut_parts_no_character() -> None:
    family = "👨‍👩‍👧"
    marked = shown("needle", family * 60 + "needle" + family * 60)
    inner = marked.strip(".").replace(">>>needle<<<", "|")
    assert set(inner.replace(family, "")) == {"|"}


def test_the_first_match_of_a_megabyte_is_found_quickly() -> None:
    text = "привет, мой друг! " * 60_000 + "needle ё"
    assert shown("needle", text).endswith(">>>needle<<< ё")


PIECES = st.text(
    st.one_of(st.characters(), st.sampled_from("aàÀİßﬁＡﾊﾞﾟがᄒ한ᆫㄱㅏ한≠́̈ͅ\u0323\u3099\u0e33 \n")),
    max_size=40,
)


@settings(deadline=None)
@given(PIECES, st.integers(1, 30))
@example("あ" * 511 + "か\u3099い", 1)
@example("x" * 511 + "ᄒ\u1161\u11abx", 1)
def test_a_view_folds_like_the_fold_and_leads_back(piece: str, times: int) -> None:
    text = piece * times
    view = _View.of(text)
    assert view.folded == fold(text)
    for at in range(0, len(view.folded), 7):
        begin, after = view.real(at, at + 1)
        assert begin < after
        assert view.folded_offset(begin) <= at < view.folded_offset(after)
        assert view.folded[at] in fold(text[begin:after])


@settings(deadline=None)
@given(
    st.text(st.sampled_from("ab 网络-éÉ\u0301ﬁ\n"), max_size=400),
    st.sampled_from(["a", "网", "e", "fi", '"a b"', "b*"]),
)
def test_a_snippet_without_its_marks_is_a_piece_of_the_text(text: str, query: str) -> None:
    marked = shown(query, text)
    plain = marked.replace(">>>", "").replace("<<<", "")
    assert plain.removeprefix("...").removesuffix("...") in text
