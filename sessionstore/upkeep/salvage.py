"""Tell the rows of a damaged file by table: by its own schema, or else by what they look like."""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sqlalchemy import Table

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
from sessionstore.upkeep.pages import Pages, Value, open_pages, read_log

# What a session and a message had at first; later revisions and levels add columns at the end,
# and a row that was written before keeps its length.
_FIRST_COLUMNS = {"sessions": 14, "messages": 9}
_OURS = (
    *(SYSTEM_PROMPTS, SESSIONS, MESSAGES, MODEL_USAGE),
    *(STATE_META, DELIVERIES, GATEWAY_ROUTES, COMPRESSION_LOCKS),
)
_NAMES = {table.name for table in _OURS}
# A file that Hermes made anew at a later level has these in another order.
_NATIVE = {
    "sessions": (
        *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
        *("billing_provider", "billing_base_url", "billing_mode"),
        *("estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source"),
        *("pricing_version", "title", "api_call_count"),
        *("handoff_state", "handoff_platform", "handoff_error"),
    ),
    "messages": (
        *("finish_reason", "reasoning", "reasoning_content", "reasoning_details"),
        *("codex_reasoning_items", "codex_message_items"),
    ),
}
_SQLITE_SELECT = 21
_LITERAL = re.compile(r"\(?(?:(?P<number>-?\d+(?:\.\d+)?)|'(?P<text>[^']*)')\)?")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are to be read.

    Attributes:
        table: Its name.
        columns: Their names, in the order of the file.
        kinds: Their declared types, and what a row has that was written before there was
            such a column.
        key: The column that stands for the id of the row; None where the table has none.
        root: The page where the table begins; None if only its rows are there.
        sql: The statement that makes it; None if it is not there.
    """

    table: str
    columns: tuple[str, ...]
    kinds: tuple[tuple[str, Value], ...]
    key: str | None
    root: int | None = None
    sql: str | None = None

    def named(self, rowid: int, values: tuple[Value, ...]) -> dict[str, Value] | None:
        """Give a row by its columns; None if it cannot be one of this table."""
        if len(values) > len(self.columns):
            return None
        later = (default for _, default in self.kinds[len(values) :])
        row = dict(zip(self.columns, (*values, *later), strict=True))
        if self.key is not None:
            if row[self.key] is not None:
                return None
            row[self.key] = rowid
        return row


class Salvage:
    """A damaged file, open to be read; also a context manager.

    Args:
        path: The file. No store of this process may have it open: when this is closed, the
            locks of the process on it go.
        use_log: Whether the log beside it counts.
    """

    def __init__(self, path: Path, *, use_log: bool = True) -> None:
        self._files = [os.open(path, os.O_RDONLY)]
        self.pages: Pages = open_pages(self._files[0], os.fstat(self._files[0]).st_size)
        self.log_damaged = False
        if use_log:
            self._read_log(Path(f"{path}-wal"))
        self.layouts: dict[str, Layout] = {}
        self.unread: list[str] = []
        self._read_master()

    def __enter__(self) -> Self:
        """Read the file until the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the file."""
        for each in self._files:
            os.close(each)

    def _read_log(self, path: Path) -> None:
        try:
            log = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        self._files.append(log)
        found = read_log(log, os.fstat(log).st_size, self.pages.size)
        self.log_damaged = bool(found.damaged)
        if found.damaged:
            self.pages.problems.append(f"the log: {found.damaged} of its pages are damaged")
        if found.places:
            self.pages.log = (log, found.places)
            self.pages.count = found.count
            self.pages.last = max(self.pages.last, *found.places)
            own = os.fstat(self._files[0]).st_size
            cut = f"the file ends after {own:,} of "
            self.pages.problems = [p for p in self.pages.problems if not p.startswith(cut)]

    def _read_master(self) -> None:
        listed = [values for _, values in self.pages.walk(1, "schema") if _is_entry(values)]
        if self.pages.problems:
            # The schema takes several pages, each of which may be there without the others.
            for number in list(self.pages.leaves()):
                found = list(self.pages.rows(number, "lost pages"))
                if found and all(_is_entry(values) for _, values in found):
                    self.pages.seen.add(number)
                    listed += [values for _, values in found]
        for kind, name, _, root, sql in listed:
            if (
                kind != "table"
                or not isinstance(name, str)
                or not isinstance(root, int)
                or not root
            ):
                continue
            layout = _declared(name, root, sql) if isinstance(sql, str) else None
            if layout is not None:
                self.layouts.setdefault(name, layout)
            elif name not in _NAMES and not name.startswith(("sqlite_", "messages_fts")):
                self.unread.append(name)

    def rows(self, layout: Layout) -> Iterator[dict[str, Value]]:
        """Yield the rows of a table, as far as its pages lead to them."""
        if layout.root is None:
            return
        for rowid, values in self.pages.walk(layout.root, layout.table):
            row = layout.named(rowid, values)
            if row is None:
                self.pages.problems.append(
                    f"{layout.table}: row {rowid} does not belong to this table"
                )
            else:
                yield row | {"rowid": rowid}

    def words(self, table: str, column: str) -> list[Value]:
        """List what stands in the column of a small table; of any page, if its own is lost."""
        layout = self.layouts.get(table)
        if layout is not None and column in layout.columns:
            return [row[column] for row in self.rows(layout)]
        with self._quietly():
            rows = (row for number in self.pages.leaves() for row in self.pages.rows(number, table))
            return [values[0] for _, values in rows if len(values) == 1]

    def columns(self) -> dict[str, set[str]]:
        """Say which columns the tables have, by the schema or else by the longest row."""
        found = {table: set(layout.columns) for table, layout in self.layouts.items()}
        if "sessions" not in found or "messages" not in found:
            with self._quietly():
                for layout, _, length in self._told():
                    if layout.table not in self.layouts:
                        found.setdefault(layout.table, set()).update(layout.columns[:length])
        return found

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Look at pages that are read again later, so that each problem is told once."""
        before = len(self.pages.problems)
        yield
        del self.pages.problems[before:]

    def loose(self) -> Iterator[tuple[Layout, dict[str, Value]]]:
        """Yield the rows on pages that nothing leads to, with the table they look like."""
        for layout, row, _ in self._told():
            yield layout, row

    def _told(self) -> Iterator[tuple[Layout, dict[str, Value], int]]:
        known = self._known()
        for number in list(self.pages.leaves()):
            for rowid, values in self.pages.rows(number, "lost pages"):
                for strictly in (True, False):
                    fitting = (_fits(layout, rowid, values, strictly=strictly) for layout in known)
                    if found := next(filter(None, fitting), None):
                        yield *found, len(values)
                        break
                else:
                    if len(values) >= _TOLD_BY and not _is_entry(values):
                        self.pages.problems.append(
                            f"lost pages: nobody can tell of which table row {rowid} on page "
                            f"{number} is"
                        )

    def _known(self) -> list[Layout]:
        """List the layouts that lost rows can have, the likelier of two first."""
        known = [self.layouts.get(each.name) or _ours(each) for each in _OURS]
        native = [
            _ours(each, native=True)
            for each in _OURS
            if each.name in _NATIVE and each.name not in self.layouts
        ]
        fitting: Counter[Layout] = Counter()
        if native:
            with self._quietly():
                for number in list(self.pages.leaves()):
                    for rowid, values in self.pages.rows(number, "lost pages"):
                        for layout in (*known, *native):
                            if _fits(layout, rowid, values, strictly=True):
                                fitting[layout] += 1
        # One order fits both where a file is older than the columns that differ.
        ours = {each.table: each for each in known}
        for each in native:
            if fitting[each] > fitting[ours[each.table]]:
                ours[each.table] = each
        return list(dict.fromkeys([*ours.values(), *known, *native]))


# Rows of fewer columns are those of a search index, or say little.
_TOLD_BY = 4


def _is_entry(values: tuple[Value, ...]) -> bool:
    """Say whether a row is one of the schema: type, name, table, root page, statement."""
    return (
        [type(value) for value in values[1:3]] == [str, str]
        and len(values) == 5  # noqa: PLR2004 - as listed
        and values[0] in ("table", "index", "trigger", "view")
        and isinstance(values[3], int)
    )


def _declared(name: str, root: int, sql: str) -> Layout | None:
    """Read a layout from the statement that made a table, in a database of its own."""
    if name == "sqlite_sequence":
        kinds = (("TEXT", None), ("INTEGER", None))
        return Layout(name, ("name", "seq"), kinds, None, root)
    with closing(sqlite3.connect(":memory:")) as scratch:
        # The text is a stranger's: it may make a table, and compute nothing.
        scratch.set_authorizer(lambda action, *_: int(action == _SQLITE_SELECT))
        try:
            scratch.execute(sql)
            scratch.set_authorizer(None)
            found = scratch.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall()
            scratch.execute(f"SELECT rowid FROM {quoted(name)}")  # noqa: S608 - quoted
        except sqlite3.Error:
            return None  # no such statement, or a table that is an index
    key = [column for _, column, kind, _, _, place in found if place and kind.upper() == "INTEGER"]
    alone = len([None for *_, place in found if place]) == 1
    return Layout(
        name,
        tuple(row[1] for row in found),
        tuple((row[2].upper(), _default(row[4])) for row in found),
        key[0] if key and alone else None,
        root,
        sql,
    )


def _default(sql: str | None) -> Value:
    found = _LITERAL.fullmatch(sql or "")
    if found is None:
        return None
    if found["number"] is None:
        return found["text"]
    return float(found["number"]) if "." in found["number"] else int(found["number"])


def _ours(table: Table, *, native: bool = False) -> Layout:
    """Give the layout of one of our tables as the newest revision has it, or as Hermes had."""
    elsewhere = _NATIVE.get(table.name, ()) if native else ()
    names = [column.name for column in table.columns]
    first = names[: _FIRST_COLUMNS.get(table.name, len(names))]
    names = [*first, *elsewhere, *(each for each in names[len(first) :] if each not in elsewhere)]
    kinds = []
    for name in names:
        column = table.columns[name]
        kind = {"BIGINT": "INTEGER", "DOUBLE": "REAL"}.get(str(column.type), str(column.type))
        default = column.server_default
        kinds.append((kind, _default(str(default.arg)) if default is not None else None))  # type: ignore[attr-defined] # a DefaultClause
    return Layout(
        table.name, tuple(names), tuple(kinds), "id" if table.name == "messages" else None
    )


def _fits(
    layout: Layout, rowid: int, values: tuple[Value, ...], *, strictly: bool
) -> tuple[Layout, dict[str, Value]] | None:
    row = layout.named(rowid, values)
    if row is None or not _looks_right(layout, len(values), row, strictly=strictly):
        return None
    return layout, row | {"rowid": rowid}


def _looks_right(layout: Layout, length: int, row: Mapping[str, Value], *, strictly: bool) -> bool:
    """Say whether a row that nothing leads to can be one of a table; its types must fit."""
    if length < _FIRST_COLUMNS.get(layout.table, len(layout.columns)):
        return False
    for name, (kind, _) in zip(layout.columns[:length], layout.kinds, strict=False):
        value = row[name]
        if value is None:
            if name in _NEVER_NULL.get(layout.table, ()):
                return False
        elif not isinstance(value, _TYPES.get(kind, object)):
            return False
        if (
            strictly
            and name in _JSON
            and isinstance(value, str)
            and value[:1] not in ("[", "{", '"')
        ):
            return False
    return layout.table != "system_prompts" or bool(_HASH.fullmatch(str(row["hash"])))


_TYPES: dict[str, tuple[type, ...]] = {
    "TEXT": (str, bytes),
    "INTEGER": (int,),
    "REAL": (int, float),
}
_JSON = {"tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"}
# The id of a message stands beside its row.
_NEVER_NULL = {
    table.name: [
        column.name
        for column in table.columns
        if not (column.nullable or (table is MESSAGES and column.primary_key))
    ]
    for table in _OURS
}


def quoted(name: str) -> str:
    """Write a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
