"""The stretch of a message that is shown for a hit.

Matches are found in folded text and shown in the real one, so offsets have to be carried
back. A text is cut where nothing before can change the fold of what follows; between two
such cuts the folds are counted.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Self

from sessionstore.search.fold import fold, is_plain
from sessionstore.search.query import Leaf, Node, occurrences, wanted

# A snippet is at most about 200 characters or 40 words; room is left for its marks.
_CHARACTERS = 180
_WORDS = 40
# How much of either stands before the first match.
_LEAD_CHARACTERS = 60
_LEAD_WORDS = 12

_BLOCK = 512
_WORD = re.compile(r"\S+")
# Jamo and half-width voicing marks, which are letters yet join with what stands before.
_JOINING = re.compile("[\u1160-\u11ff\u3131-\u318f\ud7b0-\ud7fb\uff9e-\uffdc]")
_JOINER = "\u200d"


def snippet(tree: Node, text: str) -> str:
    """Cut out the surroundings of the first match, each match between `>>>` and `<<<`."""
    view = _View.of(text)
    leaves = wanted(tree)
    first = _first_match(leaves, view.folded)
    start, end = _window(text, *view.real(*first))
    low, high = view.folded_offset(start), view.folded_offset(end)
    found = {first}
    for leaf in leaves:
        around = len(leaf.text)
        found.update(occurrences(leaf, view.folded, max(0, low - around), high + around))
    pieces = ["..." if start else ""]
    at = start
    for begin, after in _merged([view.real(*span) for span in found]):
        begin, after = max(begin, start), min(after, end)  # noqa: PLW2901 - cut to the window
        if begin < after:
            pieces += [text[at:begin], ">>>", text[begin:after], "<<<"]
            at = after
    pieces += [text[at:end], "..." if end < len(text) else ""]
    return "".join(pieces)


def _first_match(leaves: list[Leaf], folded: str) -> tuple[int, int]:
    firsts = [span for leaf in leaves for span in islice(occurrences(leaf, folded), 1)]
    if not firsts:
        return 0, 0
    nearest = min(firsts)
    # Another spelling of the same leaf may stand before it.
    return min([nearest, *(s for each in leaves for s in occurrences(each, folded, 0, nearest[0]))])


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, after in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(after, merged[-1][1]))
        else:
            merged.append((begin, after))
    return merged


def _window(text: str, begin: int, after: int) -> tuple[int, int]:
    """Choose what to show around a match: whole words where there are blanks nearby."""
    start = max(0, min(begin - _LEAD_CHARACTERS, len(text) - _CHARACTERS))
    start = begin if after - start > _CHARACTERS else start
    end = min(len(text), start + _CHARACTERS)
    after = min(after, end)
    if 0 < start < begin and not text[start - 1].isspace():
        blank = re.search(r"\s+", text[start:begin])
        start += blank.end() if blank else 0
    if after < end < len(text) and not text[end].isspace():
        last = text[after:end].rsplit(maxsplit=1)
        end -= len(last[-1]) if len(last) > 1 or text[after].isspace() else 0
    before = [found.start() for found in _WORD.finditer(text, start, begin)]
    if len(before) > _LEAD_WORDS:
        start = before[-_LEAD_WORDS]
    shown = [found.end() for found in _WORD.finditer(text, start, end)]
    if len(shown) > _WORDS:
        end = max(after, shown[_WORDS - 1])
    while 0 < start < begin and _goes_on(text, start):
        start += 1
    while after < end < len(text) and _goes_on(text, end):
        end -= 1
    return start, end


def _goes_on(text: str, at: int) -> bool:
    """Say whether a cut here would part what is seen as one character."""
    return not _begins(text[at]) or _JOINER in text[at - 1 : at + 1]


def _begins(character: str) -> bool:
    """Say whether the fold of what follows is the same whatever stands before."""
    if character.isascii():
        return True
    return unicodedata.category(character)[0] != "M" and not _JOINING.match(character)


@dataclass(frozen=True, slots=True)
class _View:
    """A text, its fold, and which offset in the one is which in the other.

    Attributes:
        text: The real text.
        folded: Its fold.
        cuts: Where the blocks of the text begin, and its end.
        folded_cuts: Where their folds begin, and the end.
    """

    text: str
    folded: str
    cuts: list[int]
    folded_cuts: list[int]

    @classmethod
    def of(cls, text: str) -> Self:
        if is_plain(text):
            # One block whose offsets are its own.
            return cls(text, fold(text), [], [])
        cuts = [0]
        while (cut := cuts[-1] + _BLOCK) < len(text):
            while cut < len(text) and not _begins(text[cut]):
                cut += 1
            cuts.append(cut)
        if cuts[-1] < len(text):
            cuts.append(len(text))
        folds = [fold(text[a:b]) for a, b in pairwise(cuts)]
        return cls(text, "".join(folds), cuts, list(accumulate(map(len, folds), initial=0)))

    def real(self, begin: int, after: int) -> tuple[int, int]:
        """Give the real stretch that folds to this one, whole characters."""
        if not self.cuts:
            return begin, after
        start, _ = self._character(begin)
        end = start if after <= begin else self._character(after - 1)[1]
        return start, end

    def folded_offset(self, at: int) -> int:
        """Give where the fold of what stands before a real offset ends."""
        if not self.cuts:
            return at
        block = bisect_right(self.cuts, at) - 1
        return self.folded_cuts[block] + len(fold(self.text[self.cuts[block] : at]))

    def _character(self, at: int) -> tuple[int, int]:
        """Give begin and end of the real character, marks included, that folds to an offset."""
        block = min(bisect_right(self.folded_cuts, at), len(self.folded_cuts) - 1) - 1
        left = at - self.folded_cuts[block]
        begin, stop = self.cuts[block], self.cuts[block + 1]
        while begin < stop:
            end = begin + 1
            while end < stop and not _begins(self.text[end]):
                end += 1
            left -= len(fold(self.text[begin:end]))
            if left < 0:
                return begin, end
            begin = end
        return stop, stop
