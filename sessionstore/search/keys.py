"""What a text is found by on a server: numbers for its words, and for every bit of it.

A server has no index that would look into a text the way the rule does: those it has go by the
locale of the database, know letters only, or refuse what has too many words. So a text becomes
two sets of numbers, which any index of sets can hold, and a query becomes numbers that a
text must have to match. Two texts may share a number by chance: what has the numbers is a
candidate, and the rule decides. How a number is made is part of the schema.

A *gram* is a piece without white space: three characters in a row, none of them CJK; two, not
both of them ASCII letters or digits; one, unless it is such. Of ASCII letters and digits there
also are whole words of one or two, and beginnings of words so long, each marked as what it is.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from sessionstore.search.body import folded_text, readable
from sessionstore.search.fold import has_cjk, words
from sessionstore.search.query import Edge, Leaf, Phrase, Prefix, Term, forms, is_short_word

_LENGTH = 3
# So many grams of one literal are asked for, spread over it: more would rule out hardly any
# message and take time each.
_MOST_GRAMS = 16
# What makes 32 bits a number with a sign.
_HALF = 1 << 31
_WHOLE, _BEGINNING = "\1", "\2"
_SHORT_WORD = re.compile("(?<![a-z0-9])[a-z0-9]{1,2}(?![a-z0-9])")
_BEGINNING_OF_WORD = re.compile("(?<![a-z0-9])[a-z0-9]{1,2}")

# What the tokenizer `unicode61` of SQLite takes for a word, so that the order of hits is the
# same: letters, digits, private use - and what Unicode 6.1 did not know yet, such as newer
# emoji (https://www.sqlite.org/fts5.html#unicode61_tokenizer). Of the latter the blocks of
# symbols are told here; what else is newer than that is in no writing of today.
_NEWER = (
    "[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
    "\u2065-\u2069\u20ba-\u20cf\u20f1-\u20ff\u218a-\u218f\u23f4-\u23ff\u2427-\u243f\u244b-\u245f"
    "\u2700\u2b4d-\u2b4f\u2b5a-\u2bff\u2e3c-\u2e7f\u2e9a\u2ef4-\u2eff\u2fd6-\u2fef\u2ffc-\u2fff"
    "\U0001f02c-\U0001f02f\U0001f094-\U0001f09f\U0001f0af-\U0001f0b0\U0001f0bf-\U0001f0c0"
    "\U0001f0d0\U0001f0e0-\U0001f0ff\U0001f12f\U0001f16c-\U0001f16f\U0001f19b-\U0001f1e5"
    "\U0001f203-\U0001f20f\U0001f23b-\U0001f23f\U0001f249-\U0001f24f\U0001f252-\U0001f2ff"
    "\U0001f321-\U0001f32f\U0001f336\U0001f37d-\U0001f37f\U0001f394-\U0001f39f\U0001f3c5"
    "\U0001f3cb-\U0001f3df\U0001f3f1-\U0001f3ff\U0001f43f\U0001f441\U0001f4f8"
    "\U0001f4fd-\U0001f4ff\U0001f53e-\U0001f53f\U0001f544-\U0001f54f\U0001f568-\U0001f5fa"
    "\U0001f641-\U0001f644\U0001f650-\U0001f67f\U0001f6c6-\U0001f6ff\U0001f774-\U0001ffff]"
)
_LETTERS_ONLY = re.compile(r"[^\W_]+")
_IS_NEWER = re.compile(_NEWER)
_TOKEN = re.compile(rf"(?:[^\W_]|{_NEWER})+")

# A word's number says how often the text has it: the lowest bits are that less one.
TIMES = 16


@dataclass(frozen=True, slots=True)
class Keys:
    """What the index holds of a message.

    Attributes:
        grams: Of 32 bits, in order.
        words: Of 64 bits, in order.
        word_count: How many words the text has, each as often as it comes.
    """

    grams: list[int]
    words: list[int]
    word_count: int


def keys_of_row(
    content: str | None, encoding: str | None, tool_name: str | None, tool_calls: str | None
) -> Keys:
    """Give the keys of a message as it is stored."""
    return keys_of(folded_text(content, encoding, tool_name, tool_calls))


def keys_of(body: str) -> Keys:
    """Give the keys of a folded, readable text."""
    listed = tokens(body)
    times = Counter(listed)
    held = [word_key(word) + min(count, TIMES) - 1 for word, count in times.items()]
    # A piece that comes twice says nothing new.
    pieces = " ".join(set(body.split()))
    grams = _within(pieces)
    grams.update(_WHOLE + each for each in set(_SHORT_WORD.findall(pieces)))
    for begins in set(_BEGINNING_OF_WORD.findall(pieces)):
        grams.add(_BEGINNING + begins)
        grams.add(_BEGINNING + begins[0])
    codes = {number - _HALF for number in map(crc32, map(str.encode, grams))}
    return Keys(sorted(codes), sorted(held), len(listed))


def tokens(body: str) -> list[str]:
    """Split a folded text into what the order of hits takes for words."""
    if body.isascii() or not _IS_NEWER.search(body):
        # One class, for which the engine has a loop of its own.
        return _LETTERS_ONLY.findall(body)
    return _TOKEN.findall(body)


@lru_cache(maxsize=1 << 14)
def word_key(word: str) -> int:
    """Give a word's number for a single occurrence; for n of them it is n - 1 more."""
    digest = blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) & -TIMES


def _code(gram: str) -> int:
    return crc32(gram.encode()) - _HALF


def _within(pieces: str) -> set[str]:
    """Give the grams of pieces that every text which contains those has as well."""
    characters = range(len(pieces))
    found = {pieces[at : at + _LENGTH] for at in characters[: 1 - _LENGTH]}
    shorter = set(pieces)
    shorter.update(pieces[at : at + 2] for at in characters[:-1])
    if pieces.isascii():
        shorter = {each for each in shorter if not each.isalnum()}
    else:
        cjk = {each for each in shorter if len(each) == 1 and has_cjk(each)}
        found = {each for each in found if cjk.isdisjoint(each)}
        shorter = {each for each in shorter if not (each.isascii() and each.isalnum())}
    return {each for each in found | shorter if " " not in each}


def asked_grams(leaf: Leaf) -> list[list[int]] | None:
    """Give sets of grams, one of which a text must have whole for the leaf to occur in it.

    None where there is nothing to go by, such as two letters anywhere in a word.
    """
    match leaf:
        case Phrase():
            asked = [_in_a_row(leaf.text)]
        case Term(text, Edge.WORD) if is_short_word(text):
            asked = [[_code(_WHOLE + text)]]
        case Prefix(text) if is_short_word(text):
            asked = [[_code(_BEGINNING + text)]]
        case _:
            asked = [_literal(form) for form in forms(leaf.text)]
    return asked if all(asked) else None


def _in_a_row(phrase: str) -> list[int]:
    """Give what a text has with these words in a row, or with the phrase to the letter."""
    run = words(phrase)
    if not run:
        return _literal(phrase)
    asked = [each for word in run for each in _literal(word)]
    # All but the first begin after something that is no letter, either way.
    asked += [_code(_BEGINNING + word) for word in run[1:] if is_short_word(word)]
    return _spread(asked)


def _literal(text: str) -> list[int]:
    """Give what a text has that contains this one."""
    asked: list[int] = []
    for piece in readable(text).split():
        grams = sorted(_within(piece), key=lambda gram: (len(gram), piece.find(gram)))
        telling = [each for each in grams if len(each) == _LENGTH or _is_telling(each)]
        chosen = telling or [each for each in grams if len(each) > 1] or grams
        asked += map(_code, chosen)
    return _spread(asked)


def _is_telling(gram: str) -> bool:
    return len(gram) > 1 and has_cjk(gram)


def _spread(codes: list[int]) -> list[int]:
    codes = list(dict.fromkeys(codes))
    if len(codes) <= _MOST_GRAMS:
        return codes
    last = len(codes) - 1
    return [codes[last * step // (_MOST_GRAMS - 1)] for step in range(_MOST_GRAMS)]
