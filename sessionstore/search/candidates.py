"""A tree to SQL that asks the trigram index: every message it may match, and few others.

A literal of three characters or more is in a message only if each of its trigrams is. One of
one or two characters is where a trigram begins with it; two newlines at the end of every text
give its last characters trigrams too. What `NOT` excludes is left to whoever verifies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from sessionstore.search.body import readable
from sessionstore.search.fold import words
from sessionstore.search.query import And, Edge, Leaf, Node, Not, Or, Phrase, Term, forms, wanted

_LENGTH = 3
# So many trigrams of one literal are asked for, spread over it: more would rule out hardly any
# message and take time each.
_MOST_TRIGRAMS = 16
_MOST_LEAVES = 64
_LAST_CHARACTER = "\U0010ffff"
_BEHIND_ASCII_WORDS = (("", "/"), (":", "`"), ("{", _LAST_CHARACTER))


@dataclass(frozen=True, slots=True)
class _Match:
    """An expression for MATCH on the trigrams."""

    expression: str


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


_Asked: TypeAlias = _Match | _Begins | _AllOf | _AnyOf


@dataclass(slots=True)
class Candidates:
    """A SELECT of ids in order, and its parameters.

    Attributes:
        sql: The statement.
        parameters: What its names stand for.
        unsorted: The ids in no order, where `sql` has to find them all to sort them.
    """

    sql: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    unsorted: str | None = None


def candidates(tree: Node, *, oldest: bool) -> Candidates | None:
    """Give a SELECT of the ids of all messages that may match, newest or oldest first.

    None for a query of so many parts that reading all messages is the simpler way.
    """
    if len(wanted(tree)) > _MOST_LEAVES:
        return None
    made = Candidates()
    asked = _ask(tree)
    order = "ASC" if oldest else "DESC"
    sql = _sql(asked, made.parameters)
    match asked:
        case _Match() | _AllOf((_Match(), *_)):
            # In the order of the index itself, so that nothing is sorted. Texts that have each
            # trigram are many, and SQLite rules out a text twenty times as quick as we do.
            said = _said(tree, made.parameters)
            made.sql = (
                f"{sql} AND EXISTS (SELECT 1 FROM messages_search AS said "
                f"WHERE said.id = messages_fts_trigram.rowid AND {said}) ORDER BY rowid {order}"
            )
        case _:
            made.unsorted = sql
            made.sql = f"SELECT DISTINCT id FROM ({sql}) ORDER BY id {order}"
    return made


def _said(node: Node, parameters: dict[str, str]) -> str:
    """Give a condition that is true of each text that matches, and of few others.

    What the index is fed with is folded but for the lower case of ASCII.
    """
    match node:
        case And(parts):
            conditions = [_said(part, parameters) for part in parts if not isinstance(part, Not)]
            return f"({' AND '.join(conditions)})"
        case Or(parts):
            return f"({' OR '.join(_said(part, parameters) for part in parts)})"
        case Not():
            return "1"
        case Phrase(phrase):
            run = words(phrase)
            each = [_holds(word, parameters) for word in run or [phrase]]
            if len(run) > 1:
                # In plain ASCII a run of words is what the word index takes for one. Beyond it
                # a word may end where the script changes, which that index knows nothing of.
                in_a_row = _bound('"' + " ".join(run) + '"', parameters)
                each.append(
                    f"({_holds(phrase, parameters)} "
                    "OR length(said.body) <> length(CAST(said.body AS BLOB)) "
                    "OR said.id IN (SELECT rowid FROM messages_fts "
                    f"WHERE messages_fts MATCH {in_a_row}))"
                )
            return f"({' AND '.join(each)})"
        case _:
            return f"({' OR '.join(_holds(form, parameters) for form in forms(node.text))})"


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
    if last < _MOST_TRIGRAMS:
        starts = list(range(last + 1))
    else:
        starts = [last * step // (_MOST_TRIGRAMS - 1) for step in range(_MOST_TRIGRAMS)]
    # Each its own phrase: without places in the index there are no longer ones.
    trigrams = dict.fromkeys(text[start : start + _LENGTH] for start in starts)
    return _Match(" AND ".join('"' + each.replace('"', '""') + '"' for each in trigrams))


def _all_of(parts: list[_Asked]) -> _Asked:
    matches = [part.expression for part in parts if isinstance(part, _Match)]
    others = [part for part in parts if not isinstance(part, _Match)]
    if matches:
        # A short ASCII word would let most of what the others find pass, and costs to look up.
        others = [part for part in others if not (isinstance(part, _Begins) and part.whole)]
    joined: list[_Asked] = (
        [_Match(" AND ".join(f"({each})" for each in matches))] if matches else []
    )
    joined += others
    return joined[0] if len(joined) == 1 else _AllOf(tuple(joined))


def _any_of(parts: list[_Asked]) -> _Asked:
    matches = [part.expression for part in parts if isinstance(part, _Match)]
    others = [part for part in parts if not isinstance(part, _Match)]
    joined: list[_Asked] = [_Match(" OR ".join(f"({each})" for each in matches))] if matches else []
    joined += others
    return joined[0] if len(joined) == 1 else _AnyOf(tuple(joined))


def _sql(asked: _Asked, parameters: dict[str, str]) -> str:
    match asked:
        case _Match(expression):
            return (
                "SELECT rowid AS id FROM messages_fts_trigram "
                f"WHERE messages_fts_trigram MATCH {_bound(expression, parameters)}"
            )
        case _Begins(text, whole):
            between = _BEHIND_ASCII_WORDS if whole else (("", _LAST_CHARACTER),)
            return " UNION ALL ".join(
                "SELECT doc AS id FROM messages_fts_vocab "
                f"WHERE term >= {_bound(text + low, parameters)} "
                f"AND term <= {_bound(text + high + _LAST_CHARACTER, parameters)}"
                for low, high in between
            )
        case _AnyOf(parts):
            return " UNION ALL ".join(
                f"SELECT id FROM ({_sql(part, parameters)})" for part in parts
            )
        case _AllOf((_Match() as first, *others)):
            # The plus keeps the planner from asking the index anew for each id of the others.
            return _sql(first, parameters) + "".join(
                f" AND +rowid IN ({_sql(part, parameters)})" for part in others
            )
        case _AllOf(parts):
            return " INTERSECT ".join(
                f"SELECT id FROM ({_sql(part, parameters)})" for part in parts
            )
