"""The order by words, counted by hand: what FTS5 makes of a query, and its BM25.

Hits have the same order on every back end because this does, number for number, what
`bm25()` of SQLite does (https://www.sqlite.org/fts5.html#the_bm25_function).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sessionstore.search.fold import words
from sessionstore.search.keys import tokens
from sessionstore.search.query import And, Leaf, Node, Not, Or, Prefix, wanted

K1, B = 1.2, 0.75
# What `bm25()` takes for the weight of a word that half of all messages have.
_LEAST_WEIGHT = 1e-6
# A tree of FTS5 is at most 256 deep, and the order by so many words at once says little.
MAX_RANKED_LEAVES = 64


@dataclass(frozen=True, slots=True)
class Run:
    """Words one after another.

    Attributes:
        words: As the order of hits takes them.
        begins: The last one need only begin so.
    """

    words: tuple[str, ...]
    begins: bool

    @property
    def is_word(self) -> bool:
        """Whether it is one whole word, which the index knows the times of."""
        return len(self.words) == 1 and not self.begins

    def count(self, told: str) -> int:
        """Count where it occurs in words with a blank on either side of each."""
        needle = f" {' '.join(self.words)}" + ("" if self.begins else " ")
        found, at = 0, told.find(needle)
        while at >= 0:
            found += 1
            at = told.find(needle, at + 1)
        return found


@dataclass(frozen=True, slots=True)
class Alternative:
    """What one side of an OR asks for: all of these runs, and none of the barred."""

    runs: tuple[Run, ...]
    barred: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """What a text has of a query: how often each run, alternative by alternative, and its words."""

    times: tuple[tuple[int, ...], ...]
    word_count: int

    def __bool__(self) -> bool:
        """Whether one alternative is there."""
        return any(map(any, self.times))


def ranked(strict: Node) -> tuple[Alternative, ...] | None:
    """Give what the words of a tree ask for; None where there is no order by words.

    A text that the tree matches has these words, as far as a word here is one there.
    """
    if len(wanted(strict)) > MAX_RANKED_LEAVES:
        return None
    sides = [_alternative(part) for part in (strict.parts if isinstance(strict, Or) else [strict])]
    told = tuple(side for side in sides if side is not None)
    return told if len(told) == len(sides) else None


def _alternative(node: Node) -> Alternative | None:
    parts = node.parts if isinstance(node, And) else (node,)
    runs = [_run(part) for part in parts if not isinstance(part, (And, Or, Not))]
    barred = [_run(part.part) for part in parts if isinstance(part, Not)]
    asked = tuple(run for run in runs if run is not None)
    return Alternative(asked, tuple(run for run in barred if run is not None)) if asked else None


def asked_words(leaf: Leaf) -> tuple[list[str], bool]:
    """List the words of a leaf, and say whether the last one need only begin so.

    There is none where the index has no word for any of it: `100%` has one, `😀` has none, and
    neither has `❤️`, which ends in a mark.
    """
    run = words(leaf.text)
    if not tokens(" ".join(run)):
        return [], False
    return run, isinstance(leaf, Prefix) and leaf.text.endswith(run[-1])


def _run(leaf: Leaf) -> Run | None:
    run, begins = asked_words(leaf)
    return Run(tuple(tokens(" ".join(run))), begins) if run else None


def count(alternatives: Sequence[Alternative], body: str) -> Count:
    """Count in a folded text; a side of which something is missing counts nothing."""
    listed = tokens(body)
    told = f" {' '.join(listed)} "
    times = []
    for side in alternatives:
        found = tuple(run.count(told) for run in side.runs)
        whole = all(found) and not any(run.count(told) for run in side.barred)
        times.append(found if whole else (0,) * len(found))
    return Count(tuple(times), len(listed))


def weight(messages: int, holding: float) -> float:
    """Weigh a run by how many of how many messages have it."""
    weighed = math.log((messages - holding + 0.5) / (holding + 0.5))
    return weighed if weighed > 0 else _LEAST_WEIGHT


def score(counted: Count, weights: Sequence[Sequence[float]], average: float) -> float:
    """Add up what the runs are worth in a text; the same steps in the same order as FTS5."""
    total = 0.0
    for times, weighed in zip(counted.times, weights, strict=True):
        for often, each in zip(times, weighed, strict=True):
            total += each * (
                (often * (K1 + 1.0)) / (often + K1 * (1 - B + B * counted.word_count / average))
            )
    return total
