"""A tree to message ids, on SQLite.

The rule is Python's: each candidate is verified against it. The trigram index says which
messages are candidates, the word index puts those in order in which every term is a word.
What the index cannot tell of is read from the messages by the same rule: the part of a large
file that is not indexed yet, or everything, where the index is missing or damaged.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import isqrt
from typing import Any, TypeAlias
from weakref import WeakSet

from sqlalchemy import (
    Connection,
    Double,
    Engine,
    Select,
    bindparam,
    column,
    func,
    literal_column,
    select,
    table,
    true,
)
from sqlalchemy.exc import DBAPIError

from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import SearchSort
from sessionstore.search.body import stored_text
from sessionstore.search.candidates import Candidates, Frequencies, candidates
from sessionstore.search.fold import fold, is_plain, words
from sessionstore.search.index import IndexState, is_index_trouble, state
from sessionstore.search.query import (
    And,
    Node,
    Not,
    Or,
    Prefix,
    as_words,
    matches,
    may_match,
    wanted,
)
from sessionstore.search.scope import Scope

logger = logging.getLogger("sessionstore")

# Messages that are read and folded at a time. Large enough that the work for a whole block
# drowns the work for a row, small enough that a block of long messages fits into memory.
_BLOCK = 128
# Of candidates a page is mostly filled by the first few.
_FIRST_BLOCK = 32

# A tree of FTS5 is at most 256 deep, and the order by so many words at once says little.
_MAX_RANKED_LEAVES = 64

# A session of so few messages is read rather than looked for in the index of all.
_SHORT_SESSION = 1000

_WORDS = table("messages_fts", column("rowid"), column("messages_fts"))
_RANKED = (
    "SELECT rowid FROM messages_fts WHERE messages_fts MATCH :asked "
    "ORDER BY rank, rowid DESC LIMIT :most OFFSET :start"
)
_IS_WORD = "SELECT 1 FROM messages_fts WHERE messages_fts MATCH :asked AND rowid = :id"
_PENDING = "SELECT id FROM messages_fts_pending WHERE id >= :indexed_from ORDER BY id"
_VOID = (
    "SELECT NOT EXISTS (SELECT 1 FROM messages_fts_vocab) AND EXISTS (SELECT 1 FROM messages) "
    "AND NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from')"
)
_LOWEST_ID = -(2**63)

# What is rare in so many of the newest messages is rare in the others.
_NEWEST = 1000
_HAVE_LATELY = (
    "SELECT {0}, count(*) FROM messages_fts_trigram WHERE messages_fts_trigram MATCH :t{0} "
    "AND rowid > (SELECT max(id) FROM messages) - :newest"
)

_HIGHEST = "SELECT coalesce(max(id), 0) FROM messages WHERE id > 0"

_warned: WeakSet[Engine] = WeakSet()

_TEXT_COLUMNS = (
    MESSAGES.c.id,
    MESSAGES.c.session_id,
    MESSAGES.c.content,
    MESSAGES.c.content_encoding,
    MESSAGES.c.tool_name,
    MESSAGES.c.tool_calls,
    MESSAGES.c.role,
    MESSAGES.c.compacted,
)
# The concatenation keeps the planner from going by session, which would sort whole texts.
_ITS_SESSION = SESSIONS.c.id == MESSAGES.c.session_id.concat("")
# Without bounds of time all live messages count.
_SAID = select(
    MESSAGES.c.content,
    MESSAGES.c.content_encoding,
    MESSAGES.c.tool_name,
    MESSAGES.c.tool_calls,
    MESSAGES.c.role,
).where(
    MESSAGES.c.session_id == bindparam("of_session"),
    MESSAGES.c.active == 1,
    func.coalesce(MESSAGES.c.timestamp >= bindparam("since", type_=Double), true()),
    func.coalesce(MESSAGES.c.timestamp <= bindparam("until", type_=Double), true()),
)

_Found: TypeAlias = tuple[int, str]
_Match: TypeAlias = tuple[_Found, str]
_IsRepeated: TypeAlias = Callable[[Sequence[Any]], bool]


@dataclass(frozen=True, slots=True)
class Page:
    """Which of the hits are wanted.

    Attributes:
        limit: At most so many, after the offset.
        offset: So many of the first are left out.
        per_session: At most so many of one session, counted before both; None: all.
    """

    limit: int
    offset: int
    per_session: int | None = None

    @property
    def enough(self) -> int | None:
        """How many hits of an ordered stream are sure to fill the page; None: cannot be said."""
        return self.limit + self.offset if self.per_session is None else None


def find(
    connection: Connection, tree: Node, scope: Scope, sort: SearchSort, page: Page
) -> list[int]:
    """List the ids of one page of hits, in order.

    Raises:
        DBAPIError: The database failed; trouble of the index alone costs only the order.
    """
    if not page.limit:
        return []
    if connection.dialect.name != "sqlite":
        return _page(_by_reading(connection, tree, scope, sort, page), page)
    now = state(connection)
    if not now.whole:
        _warn(connection, "a part of it is missing")
    elif not _is_quickly_read(connection, scope, sort):
        try:
            hits = _page(_by_index(connection, now, tree, scope, sort, page), page)
            if hits or not _is_void(connection):
                return hits
            _warn(connection, "there is nothing in it")
        except DBAPIError as error:
            if not is_index_trouble(error):
                raise
            _warn(connection, error.orig)
    return _page(_by_reading(connection, tree, scope, sort, page), page)


def _is_void(connection: Connection) -> bool:
    """Say whether an index that gave no hit has lost all it held, which FTS5 does not notice."""
    return bool(connection.exec_driver_sql(_VOID).scalar())


def _page(stream: Iterator[_Found], page: Page) -> list[int]:
    if page.per_session is not None:
        stream = _at_most(page.per_session, stream)
    return [found[0] for found in islice(stream, page.offset, page.offset + page.limit)]


def _is_quickly_read(connection: Connection, scope: Scope, sort: SearchSort) -> bool:
    """Say whether the scope is one short session; the order by rank needs the index anyway."""
    if scope.session_id is None or sort == "rank":
        return False
    beyond = select(MESSAGES.c.id).where(MESSAGES.c.session_id == scope.session_id)
    return connection.execute(beyond.offset(_SHORT_SESSION).limit(1)).first() is None


def _by_reading(
    connection: Connection, tree: Node, scope: Scope, sort: SearchSort, page: Page
) -> Iterator[_Found]:
    """Yield hits without the index; by rank: those in which every term is a word come first."""
    if sort != "rank":
        for found, _ in _scan(connection, tree, scope, oldest=sort == "oldest"):
            yield found
        return
    strict = as_words(tree)
    later: list[_Found] = []
    of_session: Counter[str] = Counter()
    for found, body in _scan(connection, tree, scope):
        if matches(strict, body):
            yield found
        elif _is_wanted(found, later, of_session, page):
            later.append(found)
    yield from later


def _is_wanted(found: _Found, later: list[_Found], of_session: Counter[str], page: Page) -> bool:
    """Say whether a hit behind these could still get on the page; keeps what waits small."""
    if page.enough is not None:
        return len(later) < page.enough
    of_session[found[1]] += 1
    return page.per_session is None or of_session[found[1]] <= page.per_session


def _by_index(
    connection: Connection,
    now: IndexState,
    tree: Node,
    scope: Scope,
    sort: SearchSort,
    page: Page,
) -> Iterator[_Found]:
    """Yield hits by the index; by rank: as words by BM25, then all others, newest first."""
    literal = _literal(connection, now, tree, scope, oldest=sort == "oldest")
    if sort != "rank":
        for found, _ in literal:
            yield found
        return
    strict = as_words(tree)
    asked = _match_expression(strict) if len(wanted(strict)) <= _MAX_RANKED_LEAVES else None
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
) -> Iterator[_Match]:
    """Yield each match with its folded text, by id, from the index and from what it lacks."""
    chosen = candidates(tree, oldest=oldest, frequencies=_frequencies(connection))
    if chosen is None:
        yield from _scan(connection, tree, scope, oldest=oldest)
        return
    lowest = _LOWEST_ID if now.indexed_from is None else now.indexed_from
    sql = chosen.sql
    if now.indexed_from is None and chosen.unsorted and _are_many(connection, chosen):
        sql = chosen.streamed
    if oldest and now.indexed_from is not None:
        yield from _scan(connection, tree, scope, oldest=True, below=lowest)
    pending = _PENDING + ("" if oldest else " DESC")
    with (
        connection.exec_driver_sql(sql, chosen.parameters) as indexed,
        connection.exec_driver_sql(pending, {"indexed_from": lowest}) as unfolded,
    ):
        merged = heapq.merge(indexed.scalars(), unfolded.scalars(), reverse=not oldest)
        ids = (each for each in _once(merged) if lowest <= each)
        yield from _verified(connection, tree, scope, ids)
    if not oldest and now.indexed_from is not None:
        yield from _scan(connection, tree, scope, below=lowest)


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


def _verified(
    connection: Connection, tree: Node, scope: Scope, ids: Iterator[int]
) -> Iterator[_Match]:
    """Yield those of these messages that match and are in scope, in their order."""
    repeated = _repetition(connection, scope)
    size = _FIRST_BLOCK
    texts = _these_texts(scope)
    while block := list(islice(ids, size)):
        there = {row[0]: row for row in connection.execute(texts, {"ids": block})}
        rows = [there[each] for each in block if each in there]
        yield from _matching(tree, rows, repeated)
        size = min(2 * size, _BLOCK)


@lru_cache(maxsize=64)
def _these_texts(scope: Scope) -> Select[*tuple[Any, ...]]:
    return _texts(scope).where(MESSAGES.c.id.in_(bindparam("ids", expanding=True)))


def _texts(scope: Scope) -> Select[*tuple[Any, ...]]:
    return (
        select(*_TEXT_COLUMNS)
        .select_from(MESSAGES)
        .join(SESSIONS, _ITS_SESSION)
        .where(*scope.conditions())
    )


def _repetition(connection: Connection, scope: Scope) -> _IsRepeated:
    """Give a test for a compacted message that a live one of its session says to the letter.

    Of a session that has one, the live messages are read once, and kept as their hashes.
    """

    @lru_cache(maxsize=8)
    def live(session_id: str) -> frozenset[int]:
        return frozenset(
            hash(tuple(row))
            for row in connection.execute(
                _SAID, {"of_session": session_id, "since": scope.since, "until": scope.until}
            )
        )

    def is_repeated(row: Sequence[Any]) -> bool:
        return bool(row[7]) and hash(tuple(row[2:7])) in live(row[1])

    return is_repeated


def _at_most(per_session: int, stream: Iterator[_Found]) -> Iterator[_Found]:
    of_session: Counter[str] = Counter()
    for found in stream:
        of_session[found[1]] += 1
        if of_session[found[1]] <= per_session:
            yield found


def _scored(
    connection: Connection, asked: str, strict: Node, scope: Scope, page: Page
) -> Iterator[_Found]:
    """Yield the matches that the word index knows, best first, then newest first.

    FTS5 keeps only the best so many of a sort with a limit, so a page costs no memory for
    the rest; a second run is for what filters and the rule left too little of.
    """
    most = -1 if page.enough is None else 2 * page.enough + _FIRST_BLOCK
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
            for found, _ in _verified(connection, strict, scope, counted(result.scalars())):
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
            run = words(strict.text)
            if not run:
                return None
            begins = isinstance(strict, Prefix) and strict.text.endswith(run[-1])
            return f'"{" ".join(run)}"' + (" *" if begins else "")


def _scan(
    connection: Connection,
    tree: Node,
    scope: Scope,
    *,
    oldest: bool = False,
    below: int | None = None,
) -> Iterator[_Match]:
    """Yield each match with its folded text, by id, by reading every message in scope.

    Or only those below an id.
    """
    repeated = _repetition(connection, scope)
    texts = _texts(scope).order_by(MESSAGES.c.id.asc() if oldest else MESSAGES.c.id.desc())
    if below is not None:
        texts = texts.where(MESSAGES.c.id < below)
    with connection.execute(texts) as result:
        for rows in result.partitions(_BLOCK):
            yield from _matching(tree, rows, repeated)


def _matching(tree: Node, rows: Sequence[Sequence[Any]], repeated: _IsRepeated) -> Iterator[_Match]:
    """Yield those of a block that match; a block without any costs one look at all its text."""
    bodies = [_body(row) for row in rows]
    together = "\n".join(bodies)
    if is_plain(together):
        if not may_match(tree, together.lower()):
            return
        folded = [body.lower() for body in bodies]
    else:
        # One unusual letter would make the fold of the whole block the slow one.
        folded = [fold(body) for body in bodies]
        if not may_match(tree, "\n".join(folded)):
            return
    for row, body in zip(rows, folded, strict=True):
        if matches(tree, body) and not repeated(row):
            yield (row[0], row[1]), body


def _body(row: Sequence[Any]) -> str:
    _, _, content, encoding, tool_name, tool_calls, *_ = row
    # Most messages are text and nothing else.
    if tool_calls is None and tool_name is None and encoding is None and type(content) is str:
        return content
    return stored_text(content, encoding, tool_name, tool_calls)


def _warn(connection: Connection, reason: object) -> None:
    if connection.engine not in _warned:
        _warned.add(connection.engine)
        logger.warning(
            "the search index cannot be used (%s); messages are found by reading all of them, in "
            "order of time, until `sessionstore doctor --fix` rebuilds it",
            reason,
        )
