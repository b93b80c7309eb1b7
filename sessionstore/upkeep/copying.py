"""Copy a whole store into another, on whichever back end each is: row by row, exactly.

Rows go in batches, ascending by key, each batch one transaction on the other side. What is
there already is compared and set right, so that a copy which was broken off goes on where it
was, also where the source has changed since. Sessions go twice: first without parent and title,
so that no parent has to come before its child, and whole at the end.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

from sessionstore.errors import ConflictError
from sessionstore.models import (
    COMPRESSION_LOCKS,
    DELIVERIES,
    GATEWAY_ROUTES,
    MESSAGES,
    MODEL_USAGE,
    SESSIONS,
    STATE_META,
    SYSTEM_PROMPTS,
)
from sessionstore.records import CopyReport
from sessionstore.repository import meta, transfer
from sessionstore.search import index
from sessionstore.upkeep.fitting import fitted

Row = dict[str, Any]
Key = tuple[Any, ...]
# Runs a unit in one transaction.
Unit = Callable[[Callable[[Connection], Any]], Any]

# The name in `state_meta` of what an unfinished copy is a copy of.
COPY_OF = "copy_of"
# What `state_meta` says of the copy itself, or of an index that the other side has its own of.
_OWN_META = (STATE_META.c.key == COPY_OF) | STATE_META.c.key.startswith("search_", autoescape=True)

# A batch ends at so many rows, or so much text: a message may have megabytes.
_ROWS = 500
_CHARACTERS = 4_000_000
# How many rows a server sends ahead.
_AHEAD = 50

# What is derived, and may be written otherwise on the other side.
_NOT_COMPARED = frozenset({"search_text"})
# Filled in at the end.
_LATER = ("title", "parent_session_id")


@dataclass(frozen=True, slots=True)
class _Part:
    """One table on its way.

    Attributes:
        table: The table.
        where: Which of its rows go; the others refer to what is not there.
        bare: Without what refers to another row of the same table.
        keep_extra: What the source has not is deleted at the very end, and not on the way.
    """

    table: Table
    where: ColumnElement[bool] | None = None
    bare: bool = False
    keep_extra: bool = False

    @property
    def key(self) -> list[str]:
        return [column.name for column in self.table.primary_key]

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.table.columns]


_HAS_SESSION = select(SESSIONS.c.id).where(SESSIONS.c.id == MESSAGES.c.session_id).exists()
_USES_SESSION = select(SESSIONS.c.id).where(SESSIONS.c.id == MODEL_USAGE.c.session_id).exists()
_PARTS = (
    _Part(SYSTEM_PROMPTS, keep_extra=True),
    _Part(SESSIONS, bare=True, keep_extra=True),
    _Part(MESSAGES, _HAS_SESSION),
    _Part(MODEL_USAGE, _USES_SESSION),
    _Part(SESSIONS, keep_extra=True),
    _Part(STATE_META, ~_OWN_META),
    _Part(COMPRESSION_LOCKS),
    _Part(GATEWAY_ROUTES),
    _Part(DELIVERIES),
)
_TABLES = tuple(dict.fromkeys(part.table for part in _PARTS))


@dataclass
class _Digest:
    """What is known of one table of one side: how many rows, and a hash of what they say."""

    rows: int = 0
    said: Any = field(default_factory=hashlib.sha256)

    def add(self, row: Mapping[Any, Any]) -> None:
        compared = {name: value for name, value in row.items() if name not in _NOT_COMPARED}
        self.said.update(json.dumps(compared, sort_keys=True).encode() + b"\n")
        self.rows += 1


def copy(
    source: Connection,
    read: Unit,
    write: Unit,
    *,
    source_name: str,
    progress: Callable[[int, int], None] | None = None,
) -> CopyReport:
    """Copy what a source holds at this moment, verify it, and say what was copied.

    Args:
        source: In a transaction that sees one state of it for as long as this takes.
        read: Runs a unit on the target in one transaction that reads.
        write: Runs a unit on the target in one transaction that writes.
        source_name: By which a broken-off copy is known again.
        progress: Called with how many of how many rows are done.

    Raises:
        ConflictError: The target holds other data; or it is not what the source is when all
            is copied, since somebody else wrote to it.
    """
    resumed = write(lambda db: _begin(db, source_name))
    run = _Run(source, write, fresh=not resumed, progress=progress)
    for part in _PARTS:
        run.copy(part)
    run.delete_extra()
    highest = _highest_id(source)
    write(lambda db: _reserve_ids(db, highest))
    # A server's index is filled after its rows; a search that comes sooner reads what is left.
    # Before the mark goes: killed here, a copy would be neither finished nor to be continued.
    index.fill(read, write)
    there = read(_digests)
    for table in _TABLES:
        here = run.digests[table.name]
        if (here.rows, here.said.digest()) != (
            there[table.name].rows,
            there[table.name].said.digest(),
        ):
            msg = (
                f"{table.name} has {here.rows} rows to copy and the copy has "
                f"{there[table.name].rows}, or they differ: somebody else wrote to the copy. "
                "Keep others off it and run the same again, which sets it right"
            )
            raise ConflictError(msg)
    write(lambda db: db.execute(delete(STATE_META).where(STATE_META.c.key == COPY_OF)))
    whole = hashlib.sha256(b"".join(run.digests[table.name].said.digest() for table in _TABLES))
    return CopyReport(
        sessions=run.digests["sessions"].rows,
        messages=run.digests["messages"].rows,
        rows={table.name: run.digests[table.name].rows for table in _TABLES},
        left_out={name: count for name, count in run.left_out().items() if count},
        mended=run.mended,
        resumed=resumed,
        sha256=whole.hexdigest(),
    )


def _begin(target: Connection, source_name: str) -> bool:
    """Mark an empty target as a copy that is on its way; say whether it was one before.

    Raises:
        ConflictError: It holds something else.
    """
    copy_of = meta.get(target, COPY_OF)
    if copy_of == source_name:
        return True
    if copy_of is not None:
        msg = f"the target holds an unfinished copy of {copy_of}; finish that, or name another"
        raise ConflictError(msg)
    for table in _TABLES:
        others = select(func.count()).select_from(table)
        if table is STATE_META:
            others = others.where(~_OWN_META)
        if count := target.execute(others).scalar_one():
            msg = (
                f"the target holds data of its own (rows of {table.name}: {count:,}); "
                "name an empty store. Nothing was written"
            )
            raise ConflictError(msg)
    meta.put(target, COPY_OF, source_name)
    return False


class _Run:
    """One run of a copy, table after table.

    Attributes:
        digests: What the source holds, by table.
        mended: How many rows a server could not hold as they are.
    """

    def __init__(
        self,
        source: Connection,
        write: Unit,
        *,
        fresh: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._source, self._write, self._fresh, self._progress = source, write, fresh, progress
        self._counts = {
            table.name: source.execute(select(func.count()).select_from(table)).scalar_one()
            for table in _TABLES
        }
        self._counts["state_meta"] -= source.execute(
            select(func.count()).select_from(STATE_META).where(_OWN_META)
        ).scalar_one()
        self._total = sum(self._counts[part.table.name] for part in _PARTS)
        self._done = 0
        self._extra: dict[str, set[Key]] = {"sessions": set(), "system_prompts": set()}
        self.digests = {table.name: _Digest() for table in _TABLES}
        self.mended = 0

    def copy(self, part: _Part) -> None:
        """Copy one table."""
        before: Key | None = None
        # Closed here even if a batch fails, and not by the collector in another transaction.
        with closing(self._batches(part)) as batches:
            for rows in batches:
                after = tuple(rows[-1][name] for name in part.key)
                self._put(part, rows, before, after)
                before = after
                self._done += len(rows)
                if self._progress is not None:
                    self._progress(self._done, self._total)
        if not self._fresh:
            self._put(part, [], before, None)

    def delete_extra(self) -> None:
        """Delete what the source has no more and others referred to until now."""
        for table in (SESSIONS, SYSTEM_PROMPTS):
            keys = self._extra[table.name]
            if keys:
                self._write(functools.partial(_delete, table=table, keys=sorted(keys)))

    def left_out(self) -> dict[str, int]:
        """Say how many rows of each table could not go."""
        return {name: count - self.digests[name].rows for name, count in self._counts.items()}

    def _batches(self, part: _Part) -> Generator[list[Row]]:
        key = [part.table.c[name] for name in part.key]
        chosen = select(part.table).where(*(column.is_not(None) for column in key)).order_by(*key)
        if part.where is not None:
            chosen = chosen.where(part.where)
        rows: list[Row] = []
        size = 0
        with self._source.execute(
            chosen, execution_options={"stream_results": True, "max_row_buffer": _AHEAD}
        ) as found:
            for each in found.mappings():
                row, was_mended = self._write_form(part.table, each)
                if part.bare:
                    row |= dict.fromkeys(_LATER)
                else:
                    self.mended += was_mended
                    self.digests[part.table.name].add(row)
                rows.append(row)
                size += sum(len(value) for value in row.values() if isinstance(value, str))
                if len(rows) >= _ROWS or size > _CHARACTERS:
                    yield rows
                    rows, size = [], 0
        if rows:
            yield rows

    def _write_form(self, table: Table, row: Mapping[Any, Any]) -> tuple[Row, bool]:
        written = dict(row)
        if table is SESSIONS:
            _let_go_of_what_is_not_there(self._source, written)
        return fitted(table, written)

    def _put(self, part: _Part, rows: list[Row], before: Key | None, after: Key | None) -> None:
        """Make the target hold just these rows between two keys."""

        def put(db: Connection) -> None:
            empty = self._fresh and (part.bare or part.table is not SESSIONS)
            held = {} if empty else _between(db, part, before, after)
            wanted = {tuple(row[name] for name in part.key): row for row in rows}
            extra = held.keys() - wanted.keys()
            if part.keep_extra:
                self._extra[part.table.name] |= extra
            elif extra:
                _delete(db, part.table, sorted(extra))
            if missing := [row for key, row in wanted.items() if key not in held]:
                db.execute(insert(part.table), missing)
            if changed := [row for key, row in wanted.items() if held.get(key, row) != row]:
                _update(db, part, changed)

        self._write(put)


def _let_go_of_what_is_not_there(source: Connection, session: Row) -> None:
    """Other programs leave references to what was deleted; a server has none."""
    for name, other in (
        ("parent_session_id", SESSIONS.c.id),
        ("system_prompt_hash", SYSTEM_PROMPTS.c.hash),
    ):
        if session[name] is not None:
            found = source.execute(select(other).where(other == session[name])).first()
            session[name] = None if found is None else session[name]


def _between(
    target: Connection, part: _Part, before: Key | None, after: Key | None
) -> dict[Key, Row]:
    """Read what the target holds after one key and up to another; None is no bound."""
    key = tuple_(*(part.table.c[name] for name in part.key))
    chosen = select(part.table)
    if part.table is STATE_META:
        chosen = chosen.where(~_OWN_META)
    if before is not None:
        chosen = chosen.where(key > before)
    if after is not None:
        chosen = chosen.where(key <= after)
    return {
        tuple(row[name] for name in part.key): dict(row)
        for row in target.execute(chosen).mappings()
    }


def _delete(target: Connection, table: Table, keys: Sequence[Key]) -> None:
    same = and_(*(column == bindparam(f"key_{column.name}") for column in table.primary_key))
    names = [f"key_{column.name}" for column in table.primary_key]
    target.execute(delete(table).where(same), [dict(zip(names, key, strict=True)) for key in keys])


def _update(target: Connection, part: _Part, rows: Sequence[Row]) -> None:
    table = part.table
    same = and_(*(table.c[name] == bindparam(f"key_{name}") for name in part.key))
    if table is SESSIONS:
        # A title may have moved from one of them to another.
        target.execute(
            update(table).where(same).values(title=None), [{"key_id": row["id"]} for row in rows]
        )
    target.execute(
        update(table)
        .where(same)
        .values({name: bindparam(f"new_{name}") for name in part.columns if name not in part.key}),
        [
            {f"{'key' if name in part.key else 'new'}_{name}": row[name] for name in part.columns}
            for row in rows
        ],
    )


def _digests(target: Connection) -> dict[str, _Digest]:
    found: dict[str, _Digest] = {}
    for table in _TABLES:
        key = list(table.primary_key)
        chosen = select(table).order_by(*key)
        if table is STATE_META:
            chosen = chosen.where(~_OWN_META)
        digest = found[table.name] = _Digest()
        with target.execute(
            chosen, execution_options={"stream_results": True, "max_row_buffer": _AHEAD}
        ) as rows:
            for row in rows.mappings():
                digest.add(row)
    return found


def _highest_id(source: Connection) -> int:
    """Say which id was the last to be given to a message, be it there still or not."""
    if source.dialect.name == "sqlite":
        given = text("SELECT seq FROM sqlite_sequence WHERE name = 'messages'")
    else:
        given = text("SELECT pg_sequence_last_value(pg_get_serial_sequence('messages', 'id'))")
    last = source.execute(given).scalar()
    highest = source.execute(select(func.max(MESSAGES.c.id))).scalar()
    return max(*(cast("int", each) for each in (last or 0, highest or 0)))


def _reserve_ids(target: Connection, highest: int) -> None:
    if target.dialect.name == "sqlite":
        # A row is there once a message was (https://www.sqlite.org/autoinc.html).
        for statement in (
            "UPDATE sqlite_sequence SET seq = :highest WHERE name = 'messages' AND seq < :highest",
            """INSERT INTO sqlite_sequence (name, seq) SELECT 'messages', :highest
            WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'messages')""",
        ):
            target.execute(text(statement), {"highest": highest})
    else:
        transfer.reserve_ids(target, highest)
