"""Read a `state.db`: of Hermes at any level, newer ones too, or of this package.

The file is read as it lies, by the names of its columns: one that is missing has its default,
one that nobody here knows is counted and named. What a column with a known name means is what
this package's own schema says of it. What is damaged is read as what it can be - text with
U+FFFD, JSON as its text, a figure or a time that is none as nothing - and the rest is whole.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, text

from sessionstore.codec import JSON, as_text, encode_json, parse_content, parse_json, parse_text
from sessionstore.engine import open_read_only
from sessionstore.errors import StoreUnavailableError
from sessionstore.location import locate
from sessionstore.records import (
    COSTS,
    COUNTERS,
    RELATIONS,
    SESSION_COUNTERS,
    MessageRecord,
    ModelUsageLine,
    SessionRecord,
)
from sessionstore.reporting import sqlite_code
from sessionstore.settings import StoreSettings

T = TypeVar("T")

# Before there was a column for it, content that is not plain text was marked within.
_MARK = "\x00json:"

# Columns of this package that say how a row is stored, and what other fields of a record tell.
_ABOUT_STORAGE = {
    "sessions": {"system_prompt_hash"},
    "messages": {"content_encoding", "json_columns", "search_text"},
    "session_model_usage": {"session_id"},
}
_KNOWN: dict[str, set[str]] = {
    "sessions": {*SessionRecord.__annotations__},
    "messages": {*MessageRecord.__annotations__},
    "session_model_usage": {*ModelUsageLine.__annotations__},
}
_READ = {*_KNOWN, "system_prompts", "schema_version", "alembic_version"}
_NEEDED = {"sessions": {"id"}, "messages": {"id", "session_id", "role"}}

_SESSION_TEXTS = (
    "user_id",
    "model",
    "system_prompt",
    "parent_session_id",
    "end_reason",
    "title",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "cost_status",
    "cost_source",
    "pricing_version",
    "handoff_state",
    "handoff_platform",
    "handoff_error",
)
_MESSAGE_TEXTS = (
    "content",
    "tool_call_id",
    "tool_name",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "platform_message_id",
)
_MESSAGE_JSON = (
    "tool_calls",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
_UNKNOWN = "unknown"
# One page (https://www.sqlite.org/fileformat.html#page_size); less counts as empty to SQLite.
_SMALLEST = 512


def is_state_file(path: str | os.PathLike[str]) -> bool:
    """Say whether a file is a SQLite database, by its content; an empty one is none.

    Raises:
        StoreUnavailableError: It cannot be read.
    """
    database = open_read_only(locate(path), StoreSettings())
    try:
        file = database.location.path
        if file is None or file.stat().st_size < _SMALLEST:
            return False
        database.ask(lambda db: db.exec_driver_sql("PRAGMA schema_version").scalar())
    except StoreUnavailableError as error:
        if sqlite_code(error) == sqlite3.SQLITE_NOTADB:
            return False
        raise
    else:
        return True
    finally:
        database.close()


class StateFile:
    """An open `state.db`, to be read and no more; also a context manager.

    ```python
    with StateFile("state.db") as file, SessionDB() as db:
        report = db.import_sessions(file.sessions())
    ```

    Args:
        path: The file. Not one byte of it changes, and no file is made beside it.

    Raises:
        StoreUnavailableError: It is no such file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._database = open_read_only(locate(path), StoreSettings())
        try:
            self._columns = self._read(_columns)
        except BaseException:
            self.close()
            raise
        for table, needed in _NEEDED.items():
            if missing := needed - self._columns.get(table, set()):
                self.close()
                lacks = f"{table} with column {min(missing)}"
                if table not in self._columns:
                    lacks = f"table {table}"
                msg = f"{self._database.location} has no {lacks}; name a state.db"
                raise StoreUnavailableError(msg)

    def __enter__(self) -> Self:
        """Read the file until the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @property
    def level(self) -> int | None:
        """The level of Hermes schema that the file names; None where it names none."""
        if "version" not in self._columns.get("schema_version", set()):
            return None
        named = self._read(
            lambda db: db.execute(text("SELECT max(version) FROM schema_version")).scalar()
        )
        return named if isinstance(named, int) else None

    def unknown_columns(self) -> dict[str, int]:
        """Count the rows that say something in a column that is not read, by `table.column`."""
        counts: dict[str, int] = {}
        for table, known in _KNOWN.items():
            for name in sorted(self._columns.get(table, set()) - known - _ABOUT_STORAGE[table]):
                if rows := self._count(f"count({_quoted(name)})", table):
                    counts[f"{table}.{name}"] = rows
        return counts

    def unread_tables(self) -> dict[str, int]:
        """Count the rows of the tables that are not read, but for those of a search index."""
        counts: dict[str, int] = {}
        for name in sorted(self._columns.keys() - _READ):
            if name.startswith(("messages_fts", "sqlite_")):
                continue
            try:
                rows = self._count("count(*)", name)
            except StoreUnavailableError:
                continue  # a virtual table whose module is not here keeps no rows of its own
            if rows:
                counts[name] = rows
        return counts

    def left_out(self) -> dict[str, int]:
        """Count what is in the tables that are read, and still does not come along."""
        owner = "SELECT id FROM sessions WHERE id IS NOT NULL"
        counts = {
            "sessions without an id": self._count(
                "count(*)", "sessions", "WHERE id IS NULL OR CAST(id AS TEXT) = ''"
            ),
            "messages of no session": self._count(
                "count(*)", "messages", f"WHERE session_id IS NULL OR session_id NOT IN ({owner})"
            ),
        }
        return {what: count for what, count in counts.items() if count}

    def sessions(self) -> Iterator[dict[str, Any]]:
        """Yield each session with its messages, oldest first, as an export has them."""
        order = "started_at, id" if "started_at" in self._columns["sessions"] else "id"
        rows = self._read(
            lambda db: list(
                db.execute(
                    text(f"SELECT rowid FROM sessions WHERE {_HAS_ID} ORDER BY {order}")  # noqa: S608 - constants
                ).scalars()
            )
        )
        for row in rows:
            exported = self._read(lambda db, at=row: self._exported(db, at))
            if exported is not None:
                yield exported

    def _count(self, what: str, table: str, where: str = "") -> int:
        counted = text(f"SELECT {what} FROM {_quoted(table)} {where}")  # noqa: S608 - quoted
        return int(self._read(lambda db: db.execute(counted).scalar_one()))

    def _read(self, unit: Callable[..., T]) -> T:
        return self._database.ask(unit)

    def _exported(self, db: Connection, rowid: int) -> dict[str, Any] | None:
        row = (
            db.execute(text("SELECT * FROM sessions WHERE rowid = :row"), {"row": rowid})
            .mappings()
            .first()
        )
        if row is None:
            return None
        of_session = {"id": row["id"]}
        session = _session(row)
        if session["system_prompt"] is None:
            session["system_prompt"] = self._prompt(db, row.get("system_prompt_hash"))
        session["messages"] = [
            _message(each, session)
            for each in db.execute(
                text("SELECT * FROM messages WHERE session_id = :id ORDER BY id"), of_session
            ).mappings()
        ]
        if "session_id" in self._columns.get("session_model_usage", set()):
            lines = db.execute(
                text("SELECT * FROM session_model_usage WHERE session_id = :id"), of_session
            ).mappings()
            # Where there is none, the totals make one.
            session["model_usage"] = _usage_lines(lines, session) or None
        return session

    def _prompt(self, db: Connection, prompt_hash: Any) -> str | None:
        if prompt_hash is None or not {"hash", "prompt"} <= self._columns.get(
            "system_prompts", set()
        ):
            return None
        found = db.execute(
            text("SELECT prompt FROM system_prompts WHERE hash = :hash"), {"hash": prompt_hash}
        ).scalar()
        return _plain(found)


_HAS_ID = "id IS NOT NULL AND CAST(id AS TEXT) <> ''"


def _quoted(name: str) -> str:
    # A colon would begin a parameter.
    return '"' + name.replace('"', '""').replace(":", "\\:") + '"'


def _columns(db: Connection) -> dict[str, set[str]]:
    tables = db.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
    columns: dict[str, set[str]] = {}
    for table in map(str, tables):
        columns[table] = set()
        # Of others nothing is asked: a virtual table may need a module that is not here.
        if table in _READ:
            told = db.execute(text("SELECT name FROM pragma_table_info(:t)"), {"t": table})
            columns[table] = set(told.scalars())
    return columns


def _session(row: Mapping[Any, Any]) -> dict[str, Any]:
    config, relation = row.get("model_config"), row.get("relation")
    session: dict[str, Any] = {name: _plain(row.get(name)) for name in _SESSION_TEXTS}
    return session | {
        "id": _plain(row["id"]),
        "source": _plain(row.get("source")) or _UNKNOWN,
        "started_at": _number(row.get("started_at")) or 0.0,
        "ended_at": _number(row.get("ended_at")),
        "model_config": _json(config),
        "relation": relation if relation in RELATIONS else None,
        **{name: _whole(row.get(name)) for name in SESSION_COUNTERS},
        **{name: _number(row.get(name)) for name in COSTS},
        **{name: _is_set(row.get(name)) for name in ("archived", "pinned")},
    }


def _message(row: Mapping[Any, Any], session: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {name: _text(row.get(name)) for name in _MESSAGE_TEXTS}
    message["content"] = _content(message["content"], _text(row.get("content_encoding")))
    for name in (_text(row.get("json_columns")) or "").split(","):
        if name in _MESSAGE_TEXTS:
            message[name] = _encoded_text(message[name])
    timestamp = _number(row.get("timestamp"))
    token_count = row.get("token_count")
    compacted = _is_set(row.get("compacted"))
    return message | {
        "id": row["id"],
        "session_id": session["id"],
        "role": _plain(row["role"]) or _UNKNOWN,
        "timestamp": session["started_at"] if timestamp is None else timestamp,
        "token_count": None if token_count is None else _whole(token_count),
        "active": not compacted and _is_set(row.get("active", 1), unsaid=True),
        "compacted": compacted,
        **{name: _json(row.get(name)) for name in _MESSAGE_JSON},
    }


def _usage_lines(
    rows: Iterator[Mapping[Any, Any]] | Any, session: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Read the lines of a session; two that say the same of model, provider, task are one."""
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(_plain(row.get(name)) or "" for name in ("model", "billing_provider", "task"))
        figures = {name: _whole(row.get(name)) for name in COUNTERS}
        costs = {name: _number(row.get(name)) for name in COSTS}
        first, last = (_number(row.get(name)) for name in ("first_seen", "last_seen"))
        line = lines.setdefault(
            key,
            {
                **dict(zip(("model", "billing_provider", "task"), key, strict=True)),
                **dict.fromkeys(COUNTERS, 0),
                **dict.fromkeys(COSTS),
                "first_seen": session["started_at"] if first is None else first,
                "last_seen": session["started_at"] if last is None else last,
            },
        )
        for name, figure in figures.items():
            line[name] += figure
        for name, cost in costs.items():
            line[name] = cost if line[name] is None else line[name] + (cost or 0.0)
    return list(lines.values())


def _content(stored: str | None, encoding: str | None) -> Any:
    if stored is None:
        return None
    if encoding is None and stored.startswith(_MARK):
        held, encoding = stored[len(_MARK) :], JSON
    else:
        held = stored
    try:
        value = parse_content(held, encoding)
        if not isinstance(value, str):
            encode_json(value)
    except ValueError:
        return stored
    return value


def _encoded_text(stored: str | None) -> str | None:
    try:
        return None if stored is None else parse_text(stored)
    except ValueError:
        return stored


def _json(stored: Any) -> Any:
    """Read a JSON column; what does not parse, or lies too deep, is kept as its text."""
    held = _text(stored)
    if held is None:
        return None
    try:
        value = parse_json(held)
        encode_json(value)
    except ValueError:
        return held
    return value


def _text(value: Any) -> str | None:
    return None if value is None else as_text(value)


def _plain(value: Any) -> str | None:
    """Read a text that stands in a column as it is; NUL, which not every store holds, goes."""
    held = _text(value)
    return held if held is None else held.replace("\0", "\ufffd")


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def _whole(value: Any) -> int:
    return max(value, 0) if isinstance(value, int) else 0


def _is_set(value: Any, *, unsaid: bool = False) -> bool:
    if value is None:
        return unsaid
    return value not in {0, "0", "", "false", "False"}
