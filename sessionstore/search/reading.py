"""Reading messages and holding them to the rule: what search does the same on every back end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import Connection, Double, Select, bindparam, func, select, true

from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import SearchSort
from sessionstore.search.body import stored_text
from sessionstore.search.fold import fold, is_plain
from sessionstore.search.query import Node, as_words, matches, may_match
from sessionstore.search.scope import Scope

# Messages that are read and folded at a time. Large enough that the work for a whole block
# drowns the work for a row, small enough that a block of long messages fits into memory.
BLOCK = 128
# Of candidates a page is mostly filled by the first few.
FIRST_BLOCK = 32

# A session of so few messages is read rather than looked for in the index of all.
_SHORT_SESSION = 1000

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

Found: TypeAlias = tuple[int, str]
Match: TypeAlias = tuple[Found, str]
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


def page_of(stream: Iterator[Found], page: Page) -> list[int]:
    """Take from hits in order the ids of those that are on the page."""
    if page.per_session is not None:
        stream = _at_most(page.per_session, stream)
    return [found[0] for found in islice(stream, page.offset, page.offset + page.limit)]


def is_quickly_read(connection: Connection, scope: Scope, sort: SearchSort) -> bool:
    """Say whether the scope is one short session; the order by rank needs the index anyway."""
    if scope.session_id is None or sort == "rank":
        return False
    beyond = select(MESSAGES.c.id).where(MESSAGES.c.session_id == scope.session_id)
    return connection.execute(beyond.offset(_SHORT_SESSION).limit(1)).first() is None


def by_reading(
    connection: Connection, tree: Node, scope: Scope, sort: SearchSort, page: Page
) -> Iterator[Found]:
    """Yield hits without the index; by rank: those in which every term is a word come first."""
    if sort != "rank":
        for found, _ in scan(connection, tree, scope, oldest=sort == "oldest"):
            yield found
        return
    strict = as_words(tree)
    later: list[Found] = []
    of_session: Counter[str] = Counter()
    for found, body in scan(connection, tree, scope):
        if matches(strict, body):
            yield found
        elif _is_wanted(found, later, of_session, page):
            later.append(found)
    yield from later


def _is_wanted(found: Found, later: list[Found], of_session: Counter[str], page: Page) -> bool:
    """Say whether a hit behind these could still get on the page; keeps what waits small."""
    if page.enough is not None:
        return len(later) < page.enough
    of_session[found[1]] += 1
    return page.per_session is None or of_session[found[1]] <= page.per_session


def verified(
    connection: Connection, tree: Node, scope: Scope, ids: Iterator[int]
) -> Iterator[Match]:
    """Yield those of these messages that match and are in scope, in their order."""
    repeated = _repetition(connection, scope)
    size = FIRST_BLOCK
    texts = _these_texts(scope)
    while block := list(islice(ids, size)):
        there = {row[0]: row for row in connection.execute(texts, {"ids": block})}
        rows = [there[each] for each in block if each in there]
        yield from _matching(tree, rows, repeated)
        size = min(2 * size, BLOCK)


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


def _at_most(per_session: int, stream: Iterator[Found]) -> Iterator[Found]:
    of_session: Counter[str] = Counter()
    for found in stream:
        of_session[found[1]] += 1
        if of_session[found[1]] <= per_session:
            yield found


def scan(
    connection: Connection,
    tree: Node,
    scope: Scope,
    *,
    oldest: bool = False,
    below: int | None = None,
) -> Iterator[Match]:
    """Yield each match with its folded text, by id, by reading every message in scope.

    Or only those below an id.
    """
    repeated = _repetition(connection, scope)
    texts = _texts(scope).order_by(MESSAGES.c.id.asc() if oldest else MESSAGES.c.id.desc())
    if below is not None:
        texts = texts.where(MESSAGES.c.id < below)
    # A server is asked for one block after the other, and not for all texts at once.
    texts = texts.execution_options(stream_results=True)
    with connection.execute(texts) as result:
        for rows in result.partitions(BLOCK):
            yield from _matching(tree, rows, repeated)


def _matching(tree: Node, rows: Sequence[Sequence[Any]], repeated: _IsRepeated) -> Iterator[Match]:
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
