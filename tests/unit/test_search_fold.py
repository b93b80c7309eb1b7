"""What counts as the same text, and what the fold may never do."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessionstore.search.fold import fold, has_cjk, is_plain, words

# Every kind of trouble at once: marks, jamo, half-width kana, ligatures, sigma, surrogates.
TRICKY = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aàÀİıßẞſΣςσﬁＡ１①²ﾊﾞﾟががᄒ한ᆫㄱㅏ≠≠́̈ͅ\u0323\u3099é，,\0\ud83d\ude00 \n"),
    ),
    max_size=30,
)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("ＡＢＣ", "abc"),
        ("ﬁle", "file"),
        ("ORÇAMENTO", "orcamento"),
        ("ПРИВЕТ", "привет"),
        ("Ёлкой", "елкои"),
        ("İstanbul", "istanbul"),
        ("STRASSE", "straße"),
        ("résumé", "RE\u0301SUME\u0301"),
        ("x\u0302", "X"),
        (unicodedata.normalize("NFD", "한국어"), "한국어"),
        ("ㄱㅏ", "가"),
        ("ﾊﾞﾅﾅ", "バナナ"),
        ("か\u3099", "が"),
        ("２０２５", "2025"),
        ("ΟΔΟΣ", "οδος"),
        ("\u212bngström", "angstrom"),
    ],
)
def test_texts_that_a_reader_takes_for_the_same(left: str, right: str) -> None:
    assert fold(left) == fold(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("，", ","),
        ("！", "!"),
        ("か", "が"),
        ("ハ", "パ"),
        ("≠", "="),
        ("　", " "),
        ("㈱", "(株)"),
        ("™", "tm"),
    ],
)
def test_texts_that_stay_different(left: str, right: str) -> None:
    assert fold(left) != fold(right)


@pytest.mark.parametrize(
    "text", ["今天去广西旅游，看漓江", "東京タワーの写真", "서울 날씨", "👨‍👩‍👧", "plain, old"]
)
def test_ordinary_text_folds_to_itself_and_costs_nothing_twice(text: str) -> None:
    assert fold(text) == text
    assert is_plain(text)


def test_the_short_way_gives_what_the_long_way_gives_for_every_character() -> None:
    taken = [chr(code) for code in range(0x110000) if is_plain(chr(code))]
    assert len(taken) > 80_000
    # The mark forces the long way, and folds to nothing.
    assert [each for each in taken if fold("x\u0301" + each) != "x" + fold(each)] == []
    assert all(len(each.lower()) == 1 for each in taken)


@settings(deadline=None)
@given(TRICKY)
@example("A\u0345\u0301")
def test_folding_twice_changes_nothing(text: str) -> None:
    once = fold(text)
    assert fold(once) == once


def test_folding_twice_changes_no_single_letter() -> None:
    letters = [each for each in map(chr, range(0x110000)) if each.isalnum() and not is_plain(each)]
    assert [each for each in letters if fold(fold(each)) != fold(each)] == []


@settings(deadline=None)
@given(st.lists(TRICKY, max_size=5))
def test_the_fold_of_lines_is_the_lines_folds(lines: list[str]) -> None:
    assert fold("\n".join(lines)) == "\n".join(map(fold, lines))


def test_words_are_letters_and_digits_with_their_marks() -> None:
    assert words("chat_send v2.14 -- it's हिन्दी 网络ai") == [
        "chat", "send", "v2", "14", "it", "s", "हिन्दी", "网络ai",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["漢", "々", "か", "カ", "ｶ", "한", "ᄒ", "𠀋", "ㄅ"])
def test_cjk_is_han_kana_bopomofo_and_hangul(text: str) -> None:
    assert has_cjk(f"abc{text}")
    assert not has_cjk("abc é привет 😀 ，")
