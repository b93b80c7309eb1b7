"""What a query means: text to a syntax tree, and a tree against a folded text. No database.

A *word character* is a letter, a digit or a mark upon one; the underscore is none. A *word*
is a run of them. Where CJK and another script meet without a blank, as in `使用AI技术`, one
word ends and another begins - except for the order of hits, where a word is what the index
takes for one, so that whole run.

An occurrence is *whole* when it neither begins nor ends inside a word. An edge that is no
word character, such as the `%` of `100%`, cuts no word and is always whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from sessionstore.errors import QueryError
from sessionstore.search.fold import fold, has_cjk, is_word_character, words

MAX_QUERY_CHARACTERS = 2048
# Beyond so many leaves in a statement, reading all messages is the simpler way.
MAX_ASKED_LEAVES = 64

_OPERATORS = ("AND", "OR", "NOT")
_SHORT_WORD = re.compile("[a-z0-9]{1,2}")
_ASCII_WORD = re.compile("[a-z0-9]+")


class Edge(Enum):
    """What an occurrence may be cut out of."""

    ANY = "any"  # anything, a word too
    WORD = "word"  # no word; one ends where CJK and another script meet
    RUN = "run"  # no word as the index takes them, whatever the scripts


@dataclass(frozen=True, slots=True)
class Term:
    """A literal piece of text.

    Attributes:
        text: Folded, never empty.
        edge: What it may be cut out of.
    """

    text: str
    edge: Edge = Edge.ANY


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words one after another, anything but word characters between them; or its literal text.

    Attributes:
        text: Folded, never blank.
        edge: What the run of words may be cut out of: whole words in either case. The literal
            text may stand inside of words with `Edge.WORD`, and may not with `Edge.RUN`.
    """

    text: str
    edge: Edge = Edge.WORD


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a word; with CJK characters in it, literal text like a term's.

    Attributes:
        text: Folded, with at least one word character.
        edge: Where the word may begin.
    """

    text: str
    edge: Edge = Edge.WORD


@dataclass(frozen=True, slots=True)
class And:
    """All of them match; at least one is no `Not`."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of them matches, or several."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """It does not match. Stands inside an `And` only."""

    part: Leaf


Leaf: TypeAlias = Term | Phrase | Prefix
Node: TypeAlias = Term | Phrase | Prefix | And | Or | Not


def parse(query: str) -> Node | None:
    """Read a query; None when there is nothing in it to look for.

    Operators are the words AND, OR and NOT in capitals, between two operands. Those that
    dangle go, of several in a row the last counts, and a query of nothing else is words. A
    phrase begins where a term could, with a quote that is closed later and has something
    inside. Parentheses group nothing. Everything that is no operator is text to be found.

    Raises:
        QueryError: It is longer than `MAX_QUERY_CHARACTERS`.
    """
    if len(query) > MAX_QUERY_CHARACTERS:
        msg = (
            f"the query has {len(query):,} characters; "
            f"at most {MAX_QUERY_CHARACTERS:,} are searched for"
        )
        raise QueryError(msg)
    tokens = list(_tokens(query))
    while tokens and isinstance(tokens[-1], str):
        tokens.pop()
    if not tokens:
        folded = map(fold, query.split())
        return _join(And, [_term(text) for text in folded if text])
    alternatives: list[list[Node]] = [[]]
    operator = "AND"
    for token in tokens:
        if isinstance(token, str):
            operator = token
            continue
        if operator == "OR" and alternatives[-1]:
            alternatives.append([token])
        elif operator == "NOT" and alternatives[-1]:
            alternatives[-1].append(Not(_excluding(token)))
        else:
            alternatives[-1].append(token)
        operator = "AND"
    return _join(Or, [_join(And, parts) for parts in alternatives])


def matches(node: Node, body: str) -> bool:
    """Say whether a folded text has what the tree asks for."""
    match node:
        case And(parts):
            return all(matches(part, body) for part in parts)
        case Or(parts):
            return any(matches(part, body) for part in parts)
        case Not(part):
            return not matches(part, body)
        case Term(text, Edge.ANY) if '"' not in text and "\\" not in text:
            return text in body
        case _:
            return next(occurrences(node, body), None) is not None


def may_match(node: Node, text: str) -> bool:
    """Say no only where no line of a folded text of many lines can match.

    Costs one search by the C library for each term, which is what makes a scan quick.
    """
    match node:
        case And(parts):
            return all(may_match(part, text) for part in parts)
        case Or(parts):
            return any(may_match(part, text) for part in parts)
        case Not():
            return True
        case Term(word, Edge.WORD) if word.isascii():
            # Rules out at least the letters that stand in every English word.
            return re.search(f"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", text) is not None
        case Phrase():
            return node.text in text or all(
                word in text for word in words(node.text) or [node.text]
            )
        case _:
            return any(form in text for form in forms(node.text))


def as_words(node: Node) -> Node:
    """Give the stricter tree: each term that is asked for stands as a word by itself.

    A message that matches it comes first by rank. Of alternatives one is enough; what is
    excluded stays as it is.
    """
    match node:
        case And(parts):
            return And(tuple(as_words(part) for part in parts))
        case Or(parts):
            return Or(tuple(as_words(part) for part in parts))
        case Not():
            return node
        case _:
            return replace(node, edge=Edge.RUN)


def wanted(node: Node) -> list[Leaf]:
    """List what the query asks for, in its order, without what it excludes."""
    match node:
        case And(parts) | Or(parts):
            return [leaf for part in parts for leaf in wanted(part)]
        case Not():
            return []
        case _:
            return [node]


def occurrences(
    leaf: Leaf, body: str, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield where a leaf occurs in a folded text, as begin and end, within a stretch of it.

    Those of one spelling come in order; those of another spelling (a run of words and then
    the literal phrase, a term and then its escaped form) begin anew.
    """
    stop = len(body) if end is None else min(end, len(body))
    match leaf:
        case Phrase(text, edge):
            yield from _runs(words(text), body, start, stop, edge)
            within = Edge.ANY if edge is Edge.WORD else edge
            yield from _literal((text,), body, start, stop, within)
        case Prefix(text, edge):
            anywhere = edge is Edge.WORD and has_cjk(text)
            for begin, after in _literal(forms(text), body, start, stop, Edge.ANY):
                if anywhere or not _is_joined(body, begin, edge):
                    yield begin, after
        case Term(text, edge):
            yield from _literal(forms(text), body, start, stop, edge)


def is_short_word(text: str) -> bool:
    """Say whether it is one or two ASCII letters or digits, found as a whole word only."""
    return _SHORT_WORD.fullmatch(text) is not None


def _tokens(query: str) -> Iterator[Leaf | str]:
    """Yield leaves, and the names of operators; what folds to nothing is left out."""
    at = 0
    while at < len(query):
        if query[at].isspace():
            at += 1
            continue
        if query[at] == '"' and (close := query.find('"', at + 1)) > 0:
            phrase = fold(query[at + 1 : close])
            if phrase.strip():
                yield Phrase(phrase)
                at = close + 1
                continue
        begin = at
        while at < len(query) and not query[at].isspace():
            at += 1
        token = query[begin:at]
        if token in _OPERATORS:
            yield token
        elif text := fold(token):
            yield _term(text)


def _term(text: str) -> Leaf:
    stem = text[:-1]
    if text.endswith("*") and any(map(is_word_character, stem)):
        return Prefix(stem)
    return Term(text, Edge.WORD if is_short_word(text) else Edge.ANY)


def _excluding(leaf: Leaf) -> Leaf:
    plain = isinstance(leaf, Term) and _ASCII_WORD.fullmatch(leaf.text)
    return replace(leaf, edge=Edge.WORD) if plain else leaf


def _join(kind: type[And | Or], parts: Sequence[Node | None]) -> Node | None:
    there = tuple(part for part in parts if part is not None)
    if len(there) > 1:
        return kind(there)
    return there[0] if there else None


def forms(text: str) -> tuple[str, ...]:
    """Give the spellings of a literal: itself, then as JSON holds it, and JSON within JSON.

    Tool calls are searched as JSON, and their arguments usually are JSON in a text once more.
    """
    if '"' not in text and "\\" not in text:
        return (text,)
    once = _escape(text)
    return (text, once, _escape(once))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _find(needle: str, body: str, start: int, stop: int) -> Iterator[int]:
    at = body.find(needle, start, stop)
    while at >= 0:
        yield at
        at = body.find(needle, at + 1, stop)


def _literal(
    spellings: tuple[str, ...], body: str, start: int, stop: int, edge: Edge
) -> Iterator[tuple[int, int]]:
    for form in spellings:
        for begin in _find(form, body, start, stop):
            after = begin + len(form)
            if not (_is_joined(body, begin, edge) or _is_joined(body, after, edge)):
                yield begin, after


def _runs(
    run: list[str], body: str, start: int, stop: int, edge: Edge
) -> Iterator[tuple[int, int]]:
    if not run:
        return
    for begin in _find(run[0], body, start, stop):
        if _is_joined(body, begin, edge):
            continue
        at = begin + len(run[0])
        for word in run[1:]:
            gap = at
            while at < stop and not is_word_character(body[at]):
                at += 1
            if at == gap or not body.startswith(word, at):
                break
            at += len(word)
        else:
            if at <= stop and not _is_joined(body, at, edge):
                yield begin, at


def _is_joined(body: str, at: int, edge: Edge) -> bool:
    """Say whether a cut at this position would part a word that must stay whole."""
    if edge is Edge.ANY or at <= 0 or at >= len(body):
        return False
    before, after = body[at - 1], body[at]
    if not (is_word_character(before) and is_word_character(after)):
        return False
    return edge is Edge.RUN or has_cjk(before) == has_cjk(after)
