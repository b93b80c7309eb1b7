"""What counts as the same text: the fold, and where a word ends.

Both the query and the messages are folded before they meet. The fold is part of what is
stored (an index is fed with folded text), so a change of it is a change of schema.
"""

from __future__ import annotations

import re
import unicodedata

# Letters and digits outside ASCII, in runs. `\w` less the underscore is `str.isalnum`.
_FOREIGN_WORDS = re.compile(r"[^\W_a-zA-Z0-9]+")
_MARKS = re.compile("[\u0300-\u036f]+")

# Anything but characters whose fold is their lower case, one for one, whatever stands beside
# them. Not every such character, only whole blocks of what is common: ASCII, punctuation,
# symbols, kana, Han, Hangul, emoji. A test holds each of them against the long way.
_UNUSUAL = re.compile(
    "[^\x00-\xa9\u2002-\u2064\u20a0-\u20bf\u2500-\u27bf\u3000-\u3029\u3041-\u3096\u30a0-\u30fe"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\ufe0f\uff01-\uff0f\uff1a-\uff20"
    "\U0001f300-\U0001f6d7\U0001f900-\U0001fa53\U00020000-\U0002a6df]"
)

# Scripts written without blanks between words: Han with its radicals and marks, kana,
# bopomofo, Hangul, half-width forms, and the supplementary planes of the same.
_CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u30ff"
    "\u3105-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb"
    "\uf900-\ufaff\uff66-\uffdc\U0001aff0-\U0001b16f\U00020000-\U0003fffd"
)
_HAS_CJK = re.compile(f"[{_CJK}]")


def fold(text: str) -> str:
    """Reduce a text to what search compares.

    In this order: NFC; runs of letters and digits (`str.isalnum`) by their NFKC form;
    casefold; letters and digits decomposed; the marks U+0300-U+036F removed; NFC.
    Punctuation, symbols and spaces keep their width and their strokes: `，` is not `,` and
    `≠` is not `=`. Voicing marks stay, since they are another letter in Japanese.
    Folding twice changes nothing, and the fold of lines is the lines' folds.
    """
    if is_plain(text):
        return text.lower()
    text = unicodedata.normalize("NFC", text)
    text = _FOREIGN_WORDS.sub(_compatible, text).casefold()
    text = _MARKS.sub("", _FOREIGN_WORDS.sub(_decomposed, text))
    return unicodedata.normalize("NFC", text)


def is_plain(text: str) -> bool:
    """Say whether the fold is sure to be the lower case, character for character."""
    return text.isascii() or _UNUSUAL.search(text) is None


def _compatible(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", found[0])


def _decomposed(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFD", found[0])


def is_word_character(character: str) -> bool:
    """Say whether it belongs to a word: a letter, a digit, or a mark upon one.

    The underscore does not, as in the `unicode61` tokenizer that the index uses.
    """
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def has_cjk(text: str) -> bool:
    """Say whether the text has a character of a script that puts no blanks between words."""
    return _HAS_CJK.search(text) is not None


def words(text: str) -> list[str]:
    """Split a folded text into its words: the longest runs of word characters."""
    kept = "".join(each if is_word_character(each) else " " for each in text)
    return kept.split()
