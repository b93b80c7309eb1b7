"""A tree to message ids, on SQLite.

The rule is Python's: each candidate is verified against it. The word index contributes the
order by BM25 and is not relied upon for which messages match: its table may be missing,
stale or damaged, and in this schema it does not see folded or structured text.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias
from weakref import WeakSet

from sqlalchemy import (
    Connection,
    Engine,
    column,
    func,
    literal_column,
    select,
    table,
)
from sqlalchemy.exc import DBAPIError

from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import SearchSort
from sessionstore.search.body import stored_text
from sessionstore.search.fold import fold, words
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

# A tree of FTS5 is at most 256 deep, and the order by so many words at once says little.
_MAX_RANKED_LEAVES = 64

_WORDS = table("messages_fts", column("rowid"), column("messages_fts"))
_SCORE = func.bm25(literal_column("messages_fts"))

# The codes with which SQLite says that a virtual table is missing or unusable: there is no
# code of its own for it (https://www.sqlite.org/rescode.html, SQLITE_ERROR, SQLITE_CORRUPT).
_INDEX_TROUBLE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT}

_warned: WeakSet[Engine] = WeakSet()

_TEXT_COLUMNS = (
    MESSAGES.c.id,
    MESSAGES.c.session_id,
    MESSAGES.c.content,
    MESSAGES.c.content_encoding,
    MESSAGES.c.tool_name,
    MESSAGES.c.tool_calls,
)
# The plus keeps the planner from going by session, which would sort whole texts.
_ITS_SESSION = SESSIONS.c.id == literal_column("+messages.session_id")

_Found: TypeAlias = tuple[int, str]


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
        DBAPIError: The database failed; trouble of the word index alone costs only the order.
    """
    if not page.limit:
        return []
    if sort == "rank":
        stream = _ranked(connection, tree, scope, page)
    else:
        stream = (found for found, _ in _scan(connection, tree, scope, oldest=sort == "oldest"))
    if page.per_session is not None:
        stream = _at_most(page.per_session, stream)
    return [found[0] for found in islice(stream, page.offset, page.offset + page.limit)]


def index_trouble(connection: Connection) -> str | None:
    """Say in one sentence why the word index cannot be used; None: it can."""
    probe = select(_WORDS.c.rowid).where(_WORDS.c.messages_fts.op("MATCH")('"a"')).limit(1)
    try:
        connection.execute(probe).all()
    except DBAPIError as error:
        if not is_index_trouble(error):
            raise
        return (
            f"the search index cannot be used ({error.orig}); messages are found by reading "
            "all of them, without an order by rank, until the index is rebuilt"
        )
    return None


def _ranked(connection: Connection, tree: Node, scope: Scope, page: Page) -> Iterator[_Found]:
    """Yield by BM25 where each term is a word, then the other such, then all others.

    The middle ones are what the index does not know; newest first, as are the last.
    """
    strict = as_words(tree)
    known: set[int] = set()
    for found in _scored(connection, strict, scope):
        known.add(found[0])
        yield found
    later: list[_Found] = []
    of_session: Counter[str] = Counter()
    for found, body in _scan(connection, tree, scope):
        if found[0] in known:
            continue
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


def _at_most(per_session: int, stream: Iterator[_Found]) -> Iterator[_Found]:
    of_session: Counter[str] = Counter()
    for found in stream:
        of_session[found[1]] += 1
        if of_session[found[1]] <= per_session:
            yield found


def _scored(connection: Connection, strict: Node, scope: Scope) -> Iterator[_Found]:
    """Yield the matches that the word index knows, best first, then newest first."""
    expression = _match_expression(strict)
    if expression is None or len(wanted(strict)) > _MAX_RANKED_LEAVES:
        return
    ranked = (
        select(MESSAGES.c.id)
        .select_from(_WORDS)
        .join(MESSAGES, MESSAGES.c.id == _WORDS.c.rowid)
        .join(SESSIONS, SESSIONS.c.id == MESSAGES.c.session_id)
        .where(_WORDS.c.messages_fts.op("MATCH")(expression), *scope.conditions())
        .order_by(_SCORE, MESSAGES.c.id.desc())
    )
    try:
        # The sort needs every row, so what can fail of the index fails here and not later.
        result = connection.execute(ranked)
    except DBAPIError as error:
        if not is_index_trouble(error):
            raise
        _warn(connection, error)
        return
    with result:
        for ids in result.scalars().partitions(_BLOCK):
            texts = select(*_TEXT_COLUMNS).where(MESSAGES.c.id.in_(ids))
            rows = {row[0]: row for row in connection.execute(texts)}
            for row in (rows[each] for each in ids):
                if matches(strict, fold(stored_text(*row[2:]))):
                    yield row[0], row[1]


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
    connection: Connection, tree: Node, scope: Scope, *, oldest: bool = False
) -> Iterator[tuple[_Found, str]]:
    """Yield each match with its folded text, by id, by reading every message in scope."""
    by_id = MESSAGES.c.id.asc() if oldest else MESSAGES.c.id.desc()
    texts = (
        select(*_TEXT_COLUMNS)
        .select_from(MESSAGES)
        .join(SESSIONS, _ITS_SESSION)
        .where(*scope.conditions())
        .order_by(by_id)
    )
    with connection.execute(texts) as result:
        for rows in result.partitions(_BLOCK):
            bodies = [_body(row) for row in rows]
            if not may_match(tree, fold("\n".join(bodies))):
                continue
            for row, body in zip(rows, bodies, strict=True):
                folded = fold(body)
                if matches(tree, folded):
                    yield (row[0], row[1]), folded


def _body(row: Sequence[Any]) -> str:
    content: str | None
    _, _, content, encoding, tool_name, tool_calls = row
    # Most messages are text and nothing else.
    if tool_calls is None and tool_name is None and encoding is None and content:
        return content
    return stored_text(content, encoding, tool_name, tool_calls)


def is_index_trouble(error: DBAPIError) -> bool:
    """Say whether a statement over a full-text table failed for what that table is."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _INDEX_TROUBLE


def _warn(connection: Connection, error: DBAPIError) -> None:
    if connection.engine not in _warned:
        _warned.add(connection.engine)
        logger.warning(
            "the search index cannot be used (%s); searching without it, in order of time",
            error.orig,
        )
