"""Read a `state.db`: of Hermes at any level, newer ones too, or of this package.

The file is read as it lies, by the names of its columns: one that is missing has its default,
one that nobody here knows is counted and named. What a column with a known name means is what
this package's own schema says of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, text

from sessionstore.codec import JSON, parse_content, parse_json
from sessionstore.engine import locate, open_read_only, reporting_errors
from sessionstore.errors import StoreUnavailableError
from sessionstore.records import MessageRecord, ModelUsageLine, SessionRecord
from sessionstore.settings import StoreSettings

logger = logging.getLogger("sessionstore")

# Before there was a column for it, content that is not plain text was marked within.
_MARK = "\x00json:"

_JSON_COLUMNS = (
    "tool_calls",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
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
_COUNTS = (
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
    "rewind_count",
)


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
        self._location = locate(path)
        self._database = open_read_only(self._location, StoreSettings())
        try:
            self._columns = self._read(_columns)
        except BaseException:
            self.close()
            raise
        for table, needed in (
            ("sessions", {"id"}),
            ("messages", {"id", "session_id", "role"}),
        ):
            if not needed <= self._columns.get(table, set()):
                self.close()
                msg = f"{self._location} has no {table} to read; name a state.db"
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
        level: int | None = self._read(
            lambda db: db.execute(text("SELECT max(version) FROM schema_version")).scalar()
        )
        return level

    def unknown_columns(self) -> dict[str, int]:
        """Count the rows that say something in a column that is not read, by `table.column`."""
        counts: dict[str, int] = {}
        for table, known in _KNOWN.items():
            for name in sorted(self._columns.get(table, set()) - known - _ABOUT_STORAGE[table]):
                quoted = name.replace('"', '""')
                counted = text(f'SELECT count("{quoted}") FROM {table}')  # noqa: S608 - quoted
                rows = self._read(lambda db, query=counted: db.execute(query).scalar_one())
                if rows:
                    counts[f"{table}.{name}"] = rows
        return counts

    def unread_tables(self) -> list[str]:
        """List the tables that are not read, but for those that make up a search index."""
        read = {*_KNOWN, "system_prompts", "schema_version", "alembic_version", "state_meta"}
        return sorted(
            name
            for name in self._columns
            if name not in read and not name.startswith(("messages_fts", "sqlite_"))
        )

    def session_count(self) -> int:
        """Count the sessions."""
        counted: int = self._read(
            lambda db: db.execute(text("SELECT count(*) FROM sessions")).scalar_one()
        )
        return counted

    def sessions(self) -> Iterator[dict[str, Any]]:
        """Yield each session with its messages, oldest first, as an export has them."""
        order = "started_at, id" if "started_at" in self._columns["sessions"] else "id"
        ids = self._read(
            lambda db: list(
                db.execute(text(f"SELECT id FROM sessions ORDER BY {order}")).scalars()  # noqa: S608
            )
        )
        for session_id in ids:
            if (
                exported := self._read(lambda db, of=session_id: self._exported(db, of))
            ) is not None:
                yield exported

    def _read(self, unit: Any) -> Any:
        with reporting_errors(self._location):
            return self._database.read(unit)

    def _exported(self, db: Connection, session_id: str) -> dict[str, Any] | None:
        row = (
            db.execute(text("SELECT * FROM sessions WHERE id = :id"), {"id": session_id})
            .mappings()
            .first()
        )
        if row is None:
            return None
        rows = db.execute(
            text("SELECT * FROM messages WHERE session_id = :id ORDER BY id"), {"id": session_id}
        ).mappings()
        session = _session(dict(row))
        session["messages"] = [_message(dict(each), session) for each in rows]
        if session.get("system_prompt") is None:
            session["system_prompt"] = self._prompt(db, row.get("system_prompt_hash"))
        if "session_id" in self._columns.get("session_model_usage", set()):
            session["model_usage"] = [
                _usage_line(dict(each), session)
                for each in db.execute(
                    text("SELECT * FROM session_model_usage WHERE session_id = :id"),
                    {"id": session_id},
                ).mappings()
            ]
        return session

    def _prompt(self, db: Connection, prompt_hash: str | None) -> str | None:
        if prompt_hash is None or not {"hash", "prompt"} <= self._columns.get(
            "system_prompts", set()
        ):
            return None
        found: str | None = db.execute(
            text("SELECT prompt FROM system_prompts WHERE hash = :hash"), {"hash": prompt_hash}
        ).scalar()
        return found


def _columns(db: Connection) -> dict[str, set[str]]:
    found = db.execute(
        text(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
            "WHERE m.type = 'table'"
        )
    )
    columns: dict[str, set[str]] = {}
    for table, name in found:
        columns.setdefault(table, set()).add(name)
    return columns


def _session(row: Mapping[str, Any]) -> dict[str, Any]:
    session = {name: row[name] for name in SessionRecord.__annotations__ if name in row}
    session["id"] = str(session["id"])
    session["source"] = session.get("source") or "unknown"
    session["started_at"] = session.get("started_at") or 0.0
    session["model_config"] = _json(session.get("model_config"))
    for name in _COUNTS:
        # A damaged counter is counted as nothing; the messages themselves are all there.
        session[name] = max(_whole(session.get(name)), 0)
    for name in ("archived", "pinned"):
        session[name] = bool(session.get(name))
    if session.get("relation") not in {None, "continuation", "branch", "subagent"}:
        session["relation"] = None
    return session


def _message(row: Mapping[str, Any], session: Mapping[str, Any]) -> dict[str, Any]:
    message = {name: row[name] for name in MessageRecord.__annotations__ if name in row}
    message["session_id"] = session["id"]
    message["content"] = _content(row)
    for name in _JSON_COLUMNS:
        message[name] = _json(message.get(name))
    for name in (row.get("json_columns") or "").split(","):
        if name in message:
            message[name] = _json(message[name])
    if not isinstance(message.get("timestamp"), int | float):
        message["timestamp"] = session["started_at"]
    if message.get("active") is None:
        message["active"] = True
    if message.get("compacted") is None:
        message["compacted"] = False
    message["active"] = bool(message["active"]) and not message["compacted"]
    message["compacted"] = bool(message["compacted"])
    return message


def _usage_line(row: Mapping[str, Any], session: Mapping[str, Any]) -> dict[str, Any]:
    line = {name: row[name] for name in ModelUsageLine.__annotations__ if name in row}
    for name in ("first_seen", "last_seen"):
        if line.get(name) is None:
            line[name] = session["started_at"]
    return line


def _content(row: Mapping[str, Any]) -> Any:
    stored, encoding = row.get("content"), row.get("content_encoding")
    if isinstance(stored, str) and encoding is None and stored.startswith(_MARK):
        stored, encoding = stored[len(_MARK) :], JSON
        try:
            return parse_content(stored, encoding)
        except ValueError:
            return row["content"]
    try:
        return parse_content(stored, encoding)
    except ValueError:
        return stored


def _json(stored: Any) -> Any:
    """Read a JSON column; what does not parse is kept as the text it is."""
    if not isinstance(stored, str):
        return stored
    try:
        return parse_json(stored)
    except ValueError:
        return stored


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
