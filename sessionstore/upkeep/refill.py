"""Put the rows of a damaged file into an empty one, and mend what they no longer refer to."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sessionstore.upkeep.pages import BrokenText, Value
from sessionstore.upkeep.salvage import Layout, Salvage, quoted

# Called with what is done, how many of how many.
Progress = Callable[[str, int, int], None]

# The source of a session that is lost, and of which only messages are left.
PLACEHOLDER = "recovered"

# What others refer to comes first. The new file has its own version and statistics.
_ORDER = ("system_prompts", "sessions", "messages")
_NOT_TAKEN = {"alembic_version", "schema_version", "sqlite_sequence"}
# What a damaged page may say beyond it would leave no ids for messages to come.
_LARGEST_ID = 2**53
_OF_SQLITE, _OF_SEARCH = "sqlite_", "messages_fts"


@dataclass
class Filled:
    """What was put in, and what had to be changed for it; see `RecoveryReport`."""

    saved: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    placeholders: list[str] = field(default_factory=list)
    short: dict[str, int] = field(default_factory=dict)
    without_parent: list[str] = field(default_factory=list)
    without_prompt: list[str] = field(default_factory=list)
    without_title: list[str] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)


def refill(raw: sqlite3.Connection, file: Salvage, progress: Progress | None) -> Filled:
    """Put all rows that can be read into an empty store of their revision; one transaction.

    Triggers are put aside meanwhile: what they keep is derived again afterwards.

    Args:
        raw: The store, which nobody else knows of.
        file: The damaged file.
        progress: Called as pages are read.
    """
    filling = _Filling(raw, file, progress)
    raw.text_factory = lambda held: held.decode("utf-8", "replace")
    # It is of no use to anybody before it is whole, so nothing has to be on the disk yet.
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("BEGIN IMMEDIATE")
    triggers = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        raw.execute(f"DROP TRIGGER {quoted(name)}")
    filling.reached()
    if file.pages.problems:
        filling.loose()
    filling.settle()
    for _, sql in triggers:
        raw.execute(sql)
    raw.execute("COMMIT")
    return filling.told


class _Filling:
    def __init__(self, raw: sqlite3.Connection, file: Salvage, progress: Progress | None) -> None:
        self.told = Filled()
        self._raw, self._file, self._progress = raw, file, progress
        self._columns: dict[str, dict[str, tuple[str, bool]]] = {}

    def reached(self) -> None:
        """Put in the rows that pages lead to."""
        layouts = self._file.layouts
        self.told.not_taken += self._file.unread
        rest = [name for name in layouts if name not in _ORDER and name not in _NOT_TAKEN]
        for name in (*_ORDER, *rest):
            layout = layouts.get(name)
            if layout is None or name.startswith(_OF_SQLITE):
                continue
            if name.startswith(_OF_SEARCH):
                self._pass_over(layout)
                continue
            if not self._made(layout):
                self.told.not_taken.append(name)
                continue
            for row in self._file.rows(layout):
                if not self._put(layout, row):
                    self._file.pages.problems.append(f"{name}: a row is there twice")
                self._step()

    def loose(self) -> None:
        """Put in the rows on pages that nothing leads to, but those that are there already."""
        for layout, row in self._file.loose():
            if not self._made(layout):
                self._file.pages.problems.append(f"{layout.table}: rows of it belong nowhere")
            elif self._put(layout, row):
                self.told.found[layout.table] += 1
            self._step()

    def settle(self) -> None:
        """Give what refers to a lost row something to refer to, or let it refer to nothing."""
        raw = self._raw
        for table in ("messages", "session_model_usage"):
            if not self._has(table):
                continue
            when = "timestamp" if table == "messages" else "first_seen"
            lost = raw.execute(
                f"SELECT DISTINCT session_id FROM {table} "
                "WHERE session_id NOT IN (SELECT id FROM sessions WHERE id IS NOT NULL)"
            ).fetchall()
            self.told.placeholders += [str(session_id) for (session_id,) in lost]
            raw.execute(
                f"INSERT INTO sessions(id, source, started_at) SELECT session_id, ?, min({when}) "
                f"FROM {table} WHERE session_id NOT IN "
                "(SELECT id FROM sessions WHERE id IS NOT NULL) GROUP BY session_id",
                (PLACEHOLDER,),
            )
        self.told.without_parent = self._let_go("parent_session_id", "sessions", "id")
        if self._has("system_prompts"):
            self.told.without_prompt = self._let_go("system_prompt_hash", "system_prompts", "hash")
        live = " AND active = 1" if "active" in self._fields("messages") else ""
        counted = f"(SELECT count(*) FROM messages WHERE session_id = sessions.id{live})"
        self.told.short = dict(
            raw.execute(
                f"SELECT id, message_count - {counted} FROM sessions "
                f"WHERE typeof(message_count) = 'integer' AND message_count > {counted}"
            ).fetchall()
        )
        self._keep_ids_unused()

    def _keep_ids_unused(self) -> None:
        """See that no message gets the id of one that was deleted."""
        layout = self._file.layouts.get("sqlite_sequence")
        for row in self._file.rows(layout) if layout else ():
            last = row["seq"]
            if row["name"] == "messages" and isinstance(last, int) and last <= _LARGEST_ID:
                self._raw.execute(
                    "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'messages'",
                    (last,),
                )

    def _let_go(self, column: str, table: str, key: str) -> list[str]:
        lost = (
            f"{column} IS NOT NULL AND {column} NOT IN "
            f"(SELECT {key} FROM {table} WHERE {key} IS NOT NULL)"
        )
        found = self._raw.execute(f"SELECT id FROM sessions WHERE {lost} ORDER BY id").fetchall()
        self._raw.execute(f"UPDATE sessions SET {column} = NULL WHERE {lost}")
        return [str(each) for (each,) in found]

    def _pass_over(self, layout: Layout) -> None:
        """Go through a part of the search index, so that its pages are not taken for lost ones.

        What is wrong with it is no loss: it is made anew.
        """
        before = len(self._file.pages.problems)
        for _ in self._file.rows(layout):
            self._step()
        del self._file.pages.problems[before:]

    def _made(self, layout: Layout) -> bool:
        """See that there is such a table with such columns; say whether there is."""
        if not self._has(layout.table):
            if layout.sql is None:
                return False
            self._raw.execute(layout.sql)
            self._columns.clear()
        there = self._fields(layout.table)
        for name, (kind, _) in zip(layout.columns, layout.kinds, strict=True):
            if name not in there:
                self._raw.execute(
                    f"ALTER TABLE {quoted(layout.table)} ADD COLUMN {quoted(name)} {quoted(kind)}"
                )
                self._columns.clear()
        return True

    def _put(self, layout: Layout, row: Mapping[str, Value]) -> bool:
        """Put a row in; False: there is one of its id already."""
        table = layout.table
        values = {name: self._filled_in(table, name, row[name]) for name in layout.columns}
        before = {} if layout.key else {"rowid": row["rowid"]}
        if table != "sessions":
            done = self._insert(table, before | values) or (
                bool(before) and self._insert(table, values)
            )
        else:
            done = self._insert(table, before | values) or self._insert(table, values)
            if not done and values.get("title") is not None:
                done = self._insert(table, values | {"title": None})
                if done:
                    self.told.without_title.append(str(values["id"]))
        self.told.saved[table] += done
        return done

    def _insert(self, table: str, values: Mapping[str, Value]) -> bool:
        marks = ", ".join(
            "CAST(? AS TEXT)" if isinstance(value, BrokenText) else "?" for value in values.values()
        )
        names = ", ".join(map(quoted, values))
        cursor = self._raw.execute(
            f"INSERT OR IGNORE INTO {quoted(table)}({names}) VALUES ({marks})",
            [bytes(value) if isinstance(value, BrokenText) else value for value in values.values()],
        )
        return cursor.rowcount > 0

    def _filled_in(self, table: str, name: str, value: Value) -> Value:
        """Give a value that is NULL where none may be something to stand for it."""
        kind, required = self._fields(table)[name]
        if value is not None or not required:
            return value
        return "unknown" if kind == "TEXT" else 0

    def _has(self, table: str) -> bool:
        return bool(self._fields(table))

    def _fields(self, table: str) -> dict[str, tuple[str, bool]]:
        """Give the columns of a table of the new file: their types, and whether NULL is barred."""
        if table not in self._columns:
            found = self._raw.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
            self._columns[table] = {row[1]: (row[2].upper(), bool(row[3])) for row in found}
        return self._columns[table]

    def _step(self) -> None:
        if self._progress is not None:
            pages = self._file.pages
            self._progress("pages", len(pages.seen), max(pages.count, len(pages.seen)))
