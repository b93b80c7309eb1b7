"""A tree to message ids, on PostgreSQL.

The rule is Python's, and so is the order by words: the index names candidates by numbers (see
`keys`), newest first or the most promising first, and each is read and verified. Messages that
have no keys yet are candidates as well. What is found, and in what order, is what SQLite gives.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Select, bindparam, column, select, text
from sqlalchemy.sql.expression import TextualSelect

from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import SearchSort
from sessionstore.search import ranking, server_index
from sessionstore.search.body import folded_text
from sessionstore.search.index import PART_MISSING, warn_once
from sessionstore.search.keys import TIMES, asked_grams, word_key
from sessionstore.search.query import (
    MAX_ASKED_LEAVES,
    And,
    Leaf,
    Node,
    Not,
    Or,
    Prefix,
    as_words,
    wanted,
)
from sessionstore.search.ranking import K1, Alternative, B, Count, Run
from sessionstore.search.reading import (
    BLOCK,
    FIRST_BLOCK,
    Found,
    Match,
    Page,
    by_reading,
    is_quickly_read,
    page_of,
    scan,
    verified,
)
from sessionstore.search.scope import Scope

# So many messages are read to count phrases and beginnings of words, which the index does not
# count. With more of them the newest so many stand for all.
_MOST_READ = 5000
# Sets of numbers are looked up in their index and nowhere else: the planner, which knows
# nothing of what is in them, would now and then rather read and unpack them all.
_SETTINGS = "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
_TEXTS = select(
    MESSAGES.c.id,
    MESSAGES.c.content,
    MESSAGES.c.content_encoding,
    MESSAGES.c.tool_name,
    MESSAGES.c.tool_calls,
).where(MESSAGES.c.id.in_(bindparam("ids", expanding=True)))
_TOTALS = "SELECT count(*), coalesce(sum(word_count), 0) FROM messages_fts"


def find(
    connection: Connection, tree: Node, scope: Scope, sort: SearchSort, page: Page
) -> list[int]:
    """List the ids of one page of hits, in order.

    Raises:
        DBAPIError: The database failed.
    """
    if not page.limit:
        return []
    if not server_index.is_whole(connection):
        warn_once(connection, PART_MISSING)
    elif not is_quickly_read(connection, scope, sort):
        # Before the planner is told what not to do: this one is for all there is.
        totals = connection.exec_driver_sql(_TOTALS).one() if sort == "rank" else None
        connection.exec_driver_sql(_SETTINGS)
        return page_of(_by_index(connection, tree, scope, sort, totals), page)
    return page_of(by_reading(connection, tree, scope, sort, page), page)


def _by_index(
    connection: Connection,
    tree: Node,
    scope: Scope,
    sort: SearchSort,
    totals: Sequence[Any] | None,
) -> Iterator[Found]:
    """Yield hits by the index; by rank: as words by BM25, then all others, newest first.

    Args:
        connection: A transaction.
        tree: What is asked for.
        scope: Where.
        sort: In which order.
        totals: Of the order by rank: how many messages are indexed, and their words.
    """
    literal = _literal(connection, tree, scope, oldest=sort == "oldest")
    seen: set[int] = set()
    strict = as_words(tree)
    if totals is not None and (alternatives := ranking.ranked(strict)) is not None:
        for found in _scored(connection, alternatives, strict, scope, totals, tree):
            seen.add(found[0])
            yield found
    for found, _ in literal:
        if found[0] not in seen:
            yield found


@dataclass(slots=True)
class _Sql:
    """What is put together of a statement: the values that its names stand for."""

    values: dict[str, Any] = field(default_factory=dict)

    def bound(self, value: Any, kind: str) -> str:
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f"CAST(:{name} AS {kind})"

    def run(self, statement: str | Select[Any], connection: Connection) -> Any:
        """Ask, one part after the other."""
        asked = text(statement) if isinstance(statement, str) else statement
        return connection.execute(
            asked.execution_options(stream_results=True, max_row_buffer=FIRST_BLOCK), self.values
        )


def _literal(connection: Connection, tree: Node, scope: Scope, *, oldest: bool) -> Iterator[Match]:
    """Yield each match with its folded text, by id."""
    sql = _Sql()
    condition = _grams(tree, sql) if len(wanted(tree)) <= MAX_ASKED_LEAVES else None
    if condition is None:
        yield from scan(connection, tree, scope, oldest=oldest)
        return
    found = (
        f"SELECT id FROM messages_fts WHERE {condition} "
        "UNION ALL SELECT id FROM messages_fts_pending"
    )
    with sql.run(_in_scope(found, scope, oldest=oldest), connection) as ids:
        yield from verified(connection, tree, scope, ids.scalars())


def _in_scope(found: str, scope: Scope, *, oldest: bool) -> Select[Any]:
    """Order ids, and leave out early what a filter leaves out anyway."""
    # An expression, so that what is found is sorted, and not sorted messages looked through.
    candidates = _ids(found).subquery("found")
    key = candidates.c.id + 0
    chosen = select(candidates.c.id).order_by(key.asc() if oldest else key.desc())
    return _narrowed(chosen, candidates.c.id, scope)


def _ids(statement: str, *more: str) -> TextualSelect:
    return text(statement).columns(column("id"), *map(column, more))


def _narrowed(chosen: Select[Any], message_id: Any, scope: Scope) -> Select[Any]:
    if not scope.narrows:
        return chosen
    return (
        chosen.join(MESSAGES, MESSAGES.c.id == message_id)
        .join(SESSIONS, SESSIONS.c.id == MESSAGES.c.session_id)
        .where(*scope.conditions())
    )


def _grams(node: Node, sql: _Sql) -> str | None:
    """Give a condition on `messages_fts` that every match meets; None: nothing to go by."""
    match node:
        case And(parts):
            conditions = [_grams(part, sql) for part in parts if not isinstance(part, Not)]
            told = [each for each in conditions if each is not None]
            return f"({' AND '.join(told)})" if told else None
        case Or(parts):
            either = [_grams(part, sql) for part in parts]
            told = [each for each in either if each is not None]
            return f"({' OR '.join(told)})" if len(told) == len(either) else None
        case Not():
            return None
        case _:
            return _grams_of(node, sql)


def _grams_of(leaf: Leaf, sql: _Sql) -> str | None:
    asked = asked_grams(leaf)
    if asked is None:
        return None
    either = [f"grams @> {sql.bound(each, 'integer[]')}" for each in asked]
    return f"({' OR '.join(either)})"


def _words_of(run: Run, sql: _Sql) -> str | None:
    """Give a condition that every text meets which has the words of a run."""
    whole = run.words[:-1] if run.begins else run.words
    told = [f"words && {sql.bound(_every_number(word), 'bigint[]')}" for word in whole]
    # Of the word alone: BM25 counts the texts with `ki*` for `@ki*` too.
    if run.begins and (begins := _grams_of(Prefix(run.words[-1]), sql)) is not None:
        told.append(begins)
    return f"({' AND '.join(told)})" if told else None


def _every_number(word: str) -> list[int]:
    first = word_key(word)
    return [first + more for more in range(TIMES)]


def _scored(
    connection: Connection,
    alternatives: Sequence[Alternative],
    strict: Node,
    scope: Scope,
    totals: Sequence[Any],
    tree: Node,
) -> Iterator[Found]:
    """Yield the matches in which every term is a word for the index, best first, then newest."""
    messages, word_count = totals
    runs = [run for side in alternatives for run in side.runs]
    if not word_count:
        return
    average = float(word_count) / float(messages)
    # The weight of a single run is the same for all.
    known = len(runs) == 1
    weights = [
        [1.0 if known else ranking.weight(messages, _holding(connection, run)) for run in side.runs]
        for side in alternatives
    ]

    def score(counted: Count) -> float:
        return ranking.score(counted, weights, average)

    if all(run.is_word for run in runs):
        promising = _by_bound(connection, alternatives, weights, average, scope)
    else:
        promising = _by_reading_all(connection, alternatives, score, scope, tree)
    # What waits is better than all that is still to come only once that is known.
    waiting: list[tuple[float, int, Found]] = []
    size = FIRST_BLOCK
    # Whatever fails meanwhile, its cursor on the server is closed now. Left to the collector
    # it would be closed in some later transaction, which does not know it and is aborted.
    with closing(promising):
        block = list(islice(promising, size))
        while block:
            bounds = dict(block)
            for found, body in verified(connection, strict, scope, iter(bounds)):
                if counted := ranking.count(alternatives, body):
                    worth = min(score(counted), bounds[found[0]])
                    heapq.heappush(waiting, (-worth, -found[0], found))
            size = min(2 * size, BLOCK)
            block = list(islice(promising, size))
            to_come = (-block[0][1], -block[0][0]) if block else (math.inf, 0)
            while waiting and waiting[0][:2] <= to_come:
                yield heapq.heappop(waiting)[2]


def _by_bound(
    connection: Connection,
    alternatives: Sequence[Alternative],
    weights: Sequence[Sequence[float]],
    average: float,
    scope: Scope,
) -> Generator[tuple[int, float]]:
    """Yield candidates with a score that they have at most, the highest first, then the newest.

    It is the score itself where no word comes oftener than the index tells times apart.
    """
    sql = _Sql()
    sides: list[_Side] = []
    for side, weighed in zip(alternatives, weights, strict=True):
        words = [sql.bound(_every_number(run.words[0]), "bigint[]") for run in side.runs]
        sides.append(_Side(sum(len(each.words) for each in sides), words, weighed))
    found = [each for side in sides for each in side.found()]
    if len(found) == 1:  # nothing to put together
        worth = _worth("times", weights[0][0], average, sql)
        statement = f"SELECT id, {worth} AS bound FROM ({found[0]}) AS counted"
    else:
        columns = ", ".join(each for side in sides for each in side.columns())
        worth = " + ".join(each for side in sides for each in side.worth(average, sql))
        statement = (
            f"SELECT id, {worth} AS bound "
            f"FROM (SELECT id, max(word_count) AS word_count, {columns} "
            f"FROM ({' UNION ALL '.join(found)}) AS found GROUP BY id) AS counted "
            f"WHERE {' OR '.join(f'({side.whole})' for side in sides)}"
        )
    candidates = _ids(statement, "bound").subquery("found")
    chosen = select(candidates.c.id, candidates.c.bound).order_by(
        candidates.c.bound.desc(), candidates.c.id.desc()
    )
    with sql.run(_narrowed(chosen, candidates.c.id, scope), connection) as rows:
        for row in rows:
            yield row.id, row.bound


@dataclass(frozen=True, slots=True)
class _Side:
    """An alternative of single words, as its parts of the statement that counts them.

    Attributes:
        first: The number of its first word among those of all alternatives.
        words: All numbers of each word, bound.
        weights: What each word weighs.
    """

    first: int
    words: Sequence[str]
    weights: Sequence[float]

    @property
    def times(self) -> list[str]:
        """The column of each word: how often a text has it, NULL for never."""
        return [f"times{self.first + place}" for place in range(len(self.words))]

    @property
    def whole(self) -> str:
        """The condition under which a text has all of the words."""
        return " AND ".join(f"{times} IS NOT NULL" for times in self.times)

    def found(self) -> Iterator[str]:
        """Write a query for each word: which texts have it, and the others, and how often it."""
        for place, numbers in enumerate(self.words):
            others = [*self.words[:place], *self.words[place + 1 :]]
            beside = "".join(f" AND words && {each}" for each in others)
            yield (
                f"SELECT f.id, f.word_count, {self.first + place} AS run, "
                f"CASE WHEN k.times < {TIMES} "
                f"THEN k.times ELSE greatest(f.word_count, {TIMES}) END AS times "
                f"FROM unnest({numbers}) WITH ORDINALITY AS k(number, times) CROSS JOIN LATERAL "
                "(SELECT id, word_count FROM messages_fts "
                f"WHERE words @> ARRAY[k.number]{beside}) AS f"
            )

    def columns(self) -> Iterator[str]:
        """Write the column of each word, over all that was found of a text."""
        for number, times in enumerate(self.times, self.first):
            yield f"max(times) FILTER (WHERE run = {number}) AS {times}"

    def worth(self, average: float, sql: _Sql) -> Iterator[str]:
        """Write what each word is worth in a text: nothing where another one is missing."""
        for times, weight in zip(self.times, self.weights, strict=True):
            yield f"CASE WHEN {self.whole} THEN {_worth(times, weight, average, sql)} ELSE 0 END"


def _worth(times: str, weight: float, average: float, sql: _Sql) -> str:
    """Say in SQL what `ranking.score` says of one run, step for step."""
    factor, whole, free = (
        sql.bound(each, "double precision") for each in (weight, average, K1 + 1.0)
    )
    k1, b, rest = (sql.bound(each, "double precision") for each in (K1, B, 1 - B))
    length = f"({rest} + {b} * word_count / {whole})"
    return f"{factor} * (({times} * {free}) / ({times} + {k1} * {length}))"


def _by_reading_all(
    connection: Connection,
    alternatives: Sequence[Alternative],
    score: Callable[[Count], float],
    scope: Scope,
    tree: Node,
) -> Generator[tuple[int, float]]:
    """Yield candidates with their score, the highest first; those that were not read follow."""
    sql = _Sql()
    sides = []
    for side in alternatives:
        told = [each for run in side.runs if (each := _words_of(run, sql)) is not None]
        sides.append(f"({' AND '.join(told) or 'TRUE'})")
    # The words decide the order; what is found also matches the query to the letter, though
    # perhaps by another alternative than the one whose words it has.
    literal = _grams(tree, sql) or "TRUE"
    found = f"SELECT id FROM messages_fts WHERE ({' OR '.join(sides)}) AND {literal}"
    with sql.run(_in_scope(found, scope, oldest=False), connection) as rows:
        ids = rows.scalars()
        read = [
            (score(counted), message_id)
            for message_id, counted in _counted(connection, alternatives, islice(ids, _MOST_READ))
        ]
        for scored, message_id in sorted(read, reverse=True):
            yield message_id, scored
        for message_id in ids:
            yield message_id, -1.0


def _holding(connection: Connection, run: Run) -> float:
    """Count the messages that have a run; where they are too many to be read, by a part."""
    sql = _Sql()
    condition = _words_of(run, sql) or "TRUE"
    counted = f"SELECT count(*) FROM messages_fts WHERE {condition}"
    candidates: int = connection.execute(text(counted), sql.values).scalar_one()
    if run.is_word or not candidates:
        return candidates
    found = f"SELECT id FROM messages_fts WHERE {condition}"
    newest = _in_scope(found, Scope(include_inactive=True), oldest=False).limit(_MOST_READ)
    with sql.run(newest, connection) as rows:
        holding = sum(1 for _ in _counted(connection, [Alternative((run,))], rows.scalars()))
    return holding * max(1.0, candidates / _MOST_READ)


def _counted(
    connection: Connection, alternatives: Sequence[Alternative], ids: Iterator[int]
) -> Iterator[tuple[int, Count]]:
    """Read messages, and yield those that have what is asked for."""
    while block := list(islice(ids, BLOCK)):
        for row in connection.execute(_TEXTS, {"ids": block}):
            body = folded_text(*row[1:])
            if counted := ranking.count(alternatives, body):
                yield row[0], counted
