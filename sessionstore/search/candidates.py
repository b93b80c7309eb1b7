"""A tree to SQL that asks the trigram index: every message it may match, and few others.

A literal of three characters or more is in a message only if each of its trigrams is. One of
one or two characters is where a trigram begins with it; two newlines at the end of every text
give its last characters trigrams too. What `NOT` excludes is left to whoever verifies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sessionstore.search.body import readable
from sessionstore.search.fold import words
from sessionstore.search.query import (
    MAX_ASKED_LEAVES,
    And,
    Edge,
    Leaf,
    Node,
    Not,
    Or,
    Phrase,
    Term,
    forms,
    wanted,
)

_LENGTH = 3
# Each trigram costs a walk through all messages that have it, and each after the first few
# rules out hardly any more. So of one literal at most so many, spread over it, are looked at,
# and of all that must be there the rarest few are asked for.
_MOST_LOOKED_AT = 12
_MOST_ASKED_FOR = 4
_LAST_CHARACTER = "\U0010ffff"
_BEHIND_ASCII_WORDS = (("", "/"), (":", "`"), ("{", _LAST_CHARACTER))


@dataclass(frozen=True, slots=True)
class _Trigrams:
    """Three characters each, all of them."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Begins:
    """A literal shorter than a trigram."""

    text: str
    whole: bool


@dataclass(frozen=True, slots=True)
class _AllOf:
    parts: tuple[_Asked, ...]


@dataclass(frozen=True, slots=True)
class _AnyOf:
    parts: tuple[_Asked, ...]


_Asked: TypeAlias = _Trigrams | _Begins | _AllOf | _AnyOf

# Gives for each of several trigrams how many of the newest messages have it.
Frequencies: TypeAlias = Callable[[Sequence[str]], Sequence[int]]


@dataclass(slots=True)
class Candidates:
    """A SELECT of ids in order, and its parameters.

    Attributes:
        sql: The statement.
        parameters: What its names stand for.
        unsorted: The ids in no order, where `sql` has to find them all to sort them.
        streamed: The same as `sql` by a walk through the texts, quicker where the ids are many.
    """

    sql: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    unsorted: str | None = None
    streamed: str = ""


def candidates(tree: Node, *, oldest: bool, frequencies: Frequencies) -> Candidates | None:
    """Give a SELECT of the ids of all messages that may match, newest or oldest first.

    None for a query of so many parts that reading all messages is the simpler way.
    """
    if len(wanted(tree)) > MAX_ASKED_LEAVES:
        return None
    made = Candidates()
    asked = _ask(tree)
    order = "ASC" if oldest else "DESC"
    sql = _sql(asked, made.parameters, frequencies)
    said = _said(tree, made.parameters)
    if _is_match(asked) or (isinstance(asked, _AllOf) and _is_match(asked.parts[0])):
        # In the order of the index itself, so that nothing is sorted. Texts that have each
        # trigram are many, and SQLite rules out a text twenty times as quick as we do.
        made.sql = (
            f"{sql} AND EXISTS (SELECT 1 FROM messages_search AS said "
            f"WHERE said.id = messages_fts_trigram.rowid AND {said}) ORDER BY rowid {order}"
        )
    else:
        made.unsorted = sql
        made.sql = f"SELECT DISTINCT id FROM ({sql}) ORDER BY id {order}"
        made.streamed = f"SELECT id FROM messages_search AS said WHERE {said} ORDER BY id {order}"
    return made


def _said(node: Node, parameters: dict[str, str]) -> str:
    """Give a condition that is true of each text that matches, and of few others.

    What the index is fed with is folded but for the lower case of ASCII.
    """
    match node:
        case And(parts) | Or(parts):
            joint = " AND " if isinstance(node, And) else " OR "
            told = (_said(part, parameters) for part in parts if not isinstance(part, Not))
            return f"({joint.join(told)})"
        case Not():
            return "1"
        case Phrase(phrase):
            run = words(phrase)
            literal = _holds(phrase, parameters)
            alone = not run or run == [phrase]
            return literal if alone else f"({literal} OR {_in_a_row(run, parameters)})"
        case Term(text, Edge.WORD):
            return _in_a_row([text], parameters)
        case _:
            return f"({' OR '.join(_holds(form, parameters) for form in forms(node.text))})"


def _in_a_row(run: Sequence[str], parameters: dict[str, str]) -> str:
    """Give a condition for words one after another, nothing but the ends of words between.

    In plain ASCII that is what the word index takes for it. Beyond it a word may end where
    the script changes, which that index knows nothing of.
    """
    phrase = _bound('"' + " ".join(run) + '"', parameters)
    each = " AND ".join(_holds(word, parameters) for word in run)
    return (
        f"(said.id IN (SELECT rowid FROM messages_fts WHERE messages_fts MATCH {phrase}) "
        f"OR length(said.body) <> length(CAST(said.body AS BLOB)) AND {each})"
    )


def _holds(text: str, parameters: dict[str, str]) -> str:
    text = readable(text)
    if "\ufffd" in text:
        return "1"  # which also stands for bytes that are no text
    return f"instr(lower(said.body), {_bound(text, parameters)}) > 0"


def _bound(value: str, parameters: dict[str, str]) -> str:
    name = f"p{len(parameters)}"
    parameters[name] = value
    return f":{name}"


def _ask(node: Node) -> _Asked:
    match node:
        case And(parts):
            return _all_of([_ask(part) for part in parts if not isinstance(part, Not)])
        case Or(parts):
            return _any_of([_ask(part) for part in parts])
        case Not():
            msg = "what is excluded cannot be asked for"
            raise TypeError(msg)
        case _:
            return _ask_leaf(node)


def _ask_leaf(leaf: Leaf) -> _Asked:
    if isinstance(leaf, Phrase):
        # As a run of words or to the letter, it holds each of its words.
        if run := words(leaf.text):
            long = [word for word in run if len(word) >= _LENGTH] or [max(run, key=len)]
            return _all_of([_literal(word) for word in long])
        return _literal(leaf.text)
    whole = isinstance(leaf, Term) and leaf.edge is Edge.WORD
    return _any_of([_literal(form, whole=whole) for form in forms(leaf.text)])


def _literal(text: str, *, whole: bool = False) -> _Asked:
    text = readable(text)
    if len(text) < _LENGTH:
        return _Begins(text, whole)
    last = len(text) - _LENGTH
    if last < _MOST_LOOKED_AT:
        starts = list(range(last + 1))
    else:
        starts = [last * step // (_MOST_LOOKED_AT - 1) for step in range(_MOST_LOOKED_AT)]
    return _Trigrams(tuple(dict.fromkeys(text[start : start + _LENGTH] for start in starts)))


def _is_match(asked: _Asked) -> bool:
    """Say whether one MATCH on the trigrams asks it."""
    match asked:
        case _Trigrams():
            return True
        case _Begins():
            return False
        case _AllOf(parts) | _AnyOf(parts):
            return all(_is_match(part) for part in parts)


def _all_of(parts: list[_Asked]) -> _Asked:
    trigrams = [each for part in parts if isinstance(part, _Trigrams) for each in part.texts]
    matches: list[_Asked] = [
        part for part in parts if _is_match(part) and not isinstance(part, _Trigrams)
    ]
    others = [part for part in parts if not _is_match(part)]
    if trigrams:
        matches.insert(0, _Trigrams(tuple(dict.fromkeys(trigrams))))
    if matches:
        # A short ASCII word would let most of what the others find pass, and costs to look up.
        others = [part for part in others if not (isinstance(part, _Begins) and part.whole)]
    return _joined(_AllOf, [_joined(_AllOf, matches), *others] if matches else others)


def _any_of(parts: list[_Asked]) -> _Asked:
    matches = [part for part in parts if _is_match(part)]
    others = [part for part in parts if not _is_match(part)]
    return _joined(_AnyOf, [_joined(_AnyOf, matches), *others] if matches else others)


def _joined(kind: type[_AllOf | _AnyOf], parts: Sequence[_Asked]) -> _Asked:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _expression(asked: _Asked, frequencies: Frequencies) -> str:
    """Write what MATCH asks the trigrams."""
    match asked:
        case _Trigrams(texts):
            if len(texts) > _MOST_ASKED_FOR:
                ranked = sorted(zip(frequencies(texts), texts, strict=True))
                texts = tuple(each for _, each in ranked[:_MOST_ASKED_FOR])
            # Each its own phrase: without places in the index there are no longer ones.
            return " AND ".join('"' + each.replace('"', '""') + '"' for each in texts)
        case _AllOf(parts) | _AnyOf(parts):
            joint = " AND " if isinstance(asked, _AllOf) else " OR "
            return joint.join(f"({_expression(part, frequencies)})" for part in parts)
        case _Begins():
            msg = "what is shorter than a trigram is no MATCH"
            raise TypeError(msg)


def _sql(asked: _Asked, parameters: dict[str, str], frequencies: Frequencies) -> str:
    if _is_match(asked):
        expression = _bound(_expression(asked, frequencies), parameters)
        return (
            "SELECT rowid AS id FROM messages_fts_trigram "
            f"WHERE messages_fts_trigram MATCH {expression}"
        )
    match asked:
        case _Begins(text, whole):
            between = _BEHIND_ASCII_WORDS if whole else (("", _LAST_CHARACTER),)
            return " UNION ALL ".join(
                "SELECT doc AS id FROM messages_fts_vocab "
                f"WHERE term >= {_bound(text + low, parameters)} "
                f"AND term <= {_bound(text + high + _LAST_CHARACTER, parameters)}"
                for low, high in between
            )
        case _AllOf((first, *others)) if _is_match(first):
            # The plus keeps the planner from asking the index anew for each id of the others.
            return _sql(first, parameters, frequencies) + "".join(
                f" AND +rowid IN ({_sql(part, parameters, frequencies)})" for part in others
            )
        case _AllOf(parts) | _AnyOf(parts):
            joint = " INTERSECT " if isinstance(asked, _AllOf) else " UNION ALL "
            return joint.join(
                f"SELECT id FROM ({_sql(part, parameters, frequencies)})" for part in parts
            )
        case _Trigrams():
            msg = "trigrams are a MATCH"
            raise TypeError(msg)
