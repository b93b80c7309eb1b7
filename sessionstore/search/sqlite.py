"""A tree to message ids, on SQLite.

The rule is Python's: each candidate is verified against it. The trigram index says which
messages are candidates, the word index puts those in order in which every term is a word.
What the index cannot tell of is read from the messages by the same rule: the part of a large
file that is not indexed yet, or everything, where the index is missing or damaged.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import isqrt
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    column,
    literal_column,
    select,
    table,
)
from sqlalchemy.exc import DBAPIError

from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import SearchSort
from sessionstore.search.candidates import Candidates, Frequencies, candidates
from sessionstore.search.definitions import INDEXED_FROM
from sessionstore.search.index import PART_MISSING, IndexState, is_index_trouble, state, warn_once
from sessionstore.search.query import And, Node, Not, Or, as_words, matches, wanted
from sessionstore.search.ranking import MAX_RANKED_LEAVES, asked_words
from sessionstore.search.reading import (
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

_WORDS = table("messages_fts", column("rowid"), column("messages_fts"))
_RANKED = (
    "SELECT rowid FROM messages_fts WHERE messages_fts MATCH :asked "
    "ORDER BY rank, rowid DESC LIMIT :most OFFSET :start"
)
_IS_WORD = "SELECT 1 FROM messages_fts WHERE messages_fts MATCH :asked AND rowid = :id"
_PENDING = "SELECT id FROM messages_fts_pending WHERE id >= :indexed_from ORDER BY id"
_VOID = (
    "SELECT NOT EXISTS (SELECT 1 FROM messages_fts_vocab) AND EXISTS (SELECT 1 FROM messages) "
    f"AND NOT EXISTS (SELECT 1 FROM state_meta WHERE key = '{INDEXED_FROM}')"
)
_LOWEST_ID = -(2**63)

# What is rare in so many of the newest messages is rare in the others.
_NEWEST = 1000
_HAVE_LATELY = (
    "SELECT {0}, count(*) FROM messages_fts_trigram WHERE messages_fts_trigram MATCH :t{0} "
    "AND rowid > (SELECT max(id) FROM messages) - :newest"
)

_HIGHEST = "SELECT coalesce(max(id), 0) FROM messages WHERE id > 0"


def find(
    connection: Connection, tree: Node, scope: Scope, sort: SearchSort, page: Page
) -> list[int]:
    """List the ids of one page of hits, in order.

    Raises:
        DBAPIError: The database failed; trouble of the index alone costs only the order.
    """
    if not page.limit:
        return []
    now = state(connection)
    if not now.whole:
        warn_once(connection, PART_MISSING)
    elif not is_quickly_read(connection, scope, sort):
        try:
            hits = page_of(_by_index(connection, now, tree, scope, sort, page), page)
            if hits or not _is_void(connection):
                return hits
            warn_once(connection, "there is nothing in it")
        except DBAPIError as error:
            if not is_index_trouble(error):
                raise
            warn_once(connection, error.orig)
    return page_of(by_reading(connection, tree, scope, sort, page), page)


def _is_void(connection: Connection) -> bool:
    """Say whether an index that gave no hit has lost all it held, which FTS5 does not notice."""
    return bool(connection.exec_driver_sql(_VOID).scalar())


def _by_index(
    connection: Connection,
    now: IndexState,
    tree: Node,
    scope: Scope,
    sort: SearchSort,
    page: Page,
) -> Iterator[Found]:
    """Yield hits by the index; by rank: as words by BM25, then all others, newest first."""
    literal = _literal(connection, now, tree, scope, oldest=sort == "oldest")
    if sort != "rank":
        for found, _ in literal:
            yield found
        return
    strict = as_words(tree)
    asked = _match_expression(strict) if len(wanted(strict)) <= MAX_RANKED_LEAVES else None
    if asked is not None:
        yield from _scored(connection, asked, strict, scope, page)
    for found, body in literal:
        if asked is None or not (
            matches(strict, body)
            and connection.exec_driver_sql(_IS_WORD, {"asked": asked, "id": found[0]}).first()
        ):
            yield found


def _literal(
    connection: Connection, now: IndexState, tree: Node, scope: Scope, *, oldest: bool
) -> Iterator[Match]:
    """Yield each match with its folded text, by id, from the index and from what it lacks."""
    chosen = candidates(tree, oldest=oldest, frequencies=_frequencies(connection))
    if chosen is None:
        yield from scan(connection, tree, scope, oldest=oldest)
        return
    lowest = _LOWEST_ID if now.indexed_from is None else now.indexed_from
    sql = chosen.sql
    if now.indexed_from is None and chosen.unsorted and _are_many(connection, chosen):
        sql = chosen.streamed
    if oldest and now.indexed_from is not None:
        yield from scan(connection, tree, scope, oldest=True, below=lowest)
    pending = _PENDING + ("" if oldest else " DESC")
    with (
        connection.exec_driver_sql(sql, chosen.parameters) as indexed,
        connection.exec_driver_sql(pending, {"indexed_from": lowest}) as unfolded,
    ):
        merged = heapq.merge(indexed.scalars(), unfolded.scalars(), reverse=not oldest)
        ids = (each for each in _once(merged) if lowest <= each)
        yield from verified(connection, tree, scope, ids)
    if not oldest and now.indexed_from is not None:
        yield from scan(connection, tree, scope, below=lowest)


def _frequencies(connection: Connection) -> Frequencies:
    """Give a function that counts those of the newest messages that have a trigram."""

    def frequencies(trigrams: Sequence[str]) -> list[int]:
        counted = " UNION ALL ".join(_HAVE_LATELY.format(n) for n in range(len(trigrams)))
        asked = {f"t{n}": '"' + each.replace('"', '""') + '"' for n, each in enumerate(trigrams)}
        rows = connection.exec_driver_sql(counted, {**asked, "newest": _NEWEST})
        return [count for _, count in sorted(map(tuple, rows))]

    return frequencies


def _are_many(connection: Connection, chosen: Candidates) -> bool:
    """Say whether a walk through the texts fills a page sooner than a sort of the candidates.

    Each candidate costs as much as two texts, and of n texts with c candidates a page of 20
    takes a walk through 20 n / c: equal where c is the root of 10 n, about.
    """
    highest: int = connection.exec_driver_sql(_HIGHEST).scalar_one()
    counted = f"SELECT 1 FROM ({chosen.unsorted}) LIMIT 1 OFFSET {isqrt(10 * highest)}"
    return connection.exec_driver_sql(counted, chosen.parameters).first() is not None


def _once(ordered: Iterable[int]) -> Iterator[int]:
    last = None
    for each in ordered:
        if each != last:
            yield each
        last = each


def _scored(
    connection: Connection, asked: str, strict: Node, scope: Scope, page: Page
) -> Iterator[Found]:
    """Yield the matches that the word index knows, best first, then newest first.

    FTS5 keeps only the best so many of a sort with a limit, so a page costs no memory for
    the rest; a second run is for what filters and the rule left too little of.
    """
    most = -1 if page.enough is None else 2 * page.enough + FIRST_BLOCK
    for offset, limit in ((0, most), (most, -1)):
        taken = 0

        def counted(ids: Iterable[int]) -> Iterator[int]:
            nonlocal taken
            for each in ids:
                taken += 1
                yield each

        bounds = {"asked": asked, "most": limit, "start": offset}
        # Without filters more than twice as quick past Core, and it says nothing of a row.
        with (
            connection.execute(_ranked(scope), bounds)
            if scope.narrows
            else connection.exec_driver_sql(_RANKED, bounds)
        ) as result:
            for found, _ in verified(connection, strict, scope, counted(result.scalars())):
                yield found
        if limit < 0 or taken < limit:
            return


@lru_cache(maxsize=64)
def _ranked(scope: Scope) -> Select[*tuple[Any, ...]]:
    return (
        select(_WORDS.c.rowid)
        .join(MESSAGES, MESSAGES.c.id == _WORDS.c.rowid)
        .join(SESSIONS, SESSIONS.c.id == MESSAGES.c.session_id)
        .where(_WORDS.c.messages_fts.op("MATCH")(bindparam("asked")), *scope.conditions())
        .order_by(literal_column("messages_fts.rank"), _WORDS.c.rowid.desc())
        .limit(bindparam("most"))
        .offset(bindparam("start"))
    )


def _match_expression(strict: Node) -> str | None:
    """Give FTS5 the words of a tree, each in quotes; None where it could not help.

    A text that the tree matches contains them, as far as the index has the same text. Only
    word characters and blanks get inside the quotes, so no query is ever syntax.
    https://www.sqlite.org/fts5.html#full_text_query_syntax
    """
    match strict:
        case And(parts):
            asked = [_match_expression(part) for part in parts if not isinstance(part, Not)]
            barred = [_match_expression(part.part) for part in parts if isinstance(part, Not)]
            told = " AND ".join(each for each in asked if each)
            return " NOT ".join([f"({told})", *(each for each in barred if each)]) if told else None
        case Or(parts):
            either = [_match_expression(part) for part in parts]
            return f"({' OR '.join(each for each in either if each)})" if all(either) else None
        case Not():
            return None
        case _:
            run, begins = asked_words(strict)
            return f'"{" ".join(run)}"' + (" *" if begins else "") if run else None
