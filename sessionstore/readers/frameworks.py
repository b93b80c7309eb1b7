"""Read what two frameworks keep in SQLite: the OpenAI Agents SDK, and LangChain.

`SQLiteSession` has `agent_sessions(session_id, created_at, updated_at)` and
`agent_messages(id, session_id, message_data, created_at)`, an item of the Responses API as
JSON in each row (https://openai.github.io/openai-agents-python/sessions/sqlite_session).
`SQLChatMessageHistory` has `message_store(id, session_id, message)`, a message of LangChain as
JSON and no time (https://python.langchain.com/docs/integrations/memory/sqlite).

A message is stored as the adapter of that framework stores it, so that the framework finds the
session in the store and goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from sessionstore.codec import as_text
from sessionstore.engine import Database, open_read_only
from sessionstore.errors import ImportRejectedError
from sessionstore.location import locate
from sessionstore.readers import langchain_messages, openai_items
from sessionstore.readers.draft import Draft, figure, plain
from sessionstore.readers.history import History
from sessionstore.settings import StoreSettings


class _Tables(History):
    """The sessions of one database; each row of one table is a message."""

    patterns = ("*.db",)
    table: str
    message: str
    time: str

    def _files(self) -> list[Path]:
        return [self.path]

    def _sessions_of(self, file: Path) -> Iterator[dict[str, Any]]:
        database = open_read_only(locate(file), StoreSettings())
        try:
            for first, session_id in self._ids(database):
                draft = self._read(database, first)
                if draft.rows:
                    draft.fill_missing(id=session_id)
                    yield draft.exported()
        finally:
            database.close()

    def _ids(self, database: Database) -> list[tuple[int, str]]:
        """List the sessions: the first row of each, and what it is called."""

        def ids(db: Connection) -> list[tuple[int, str]] | None:
            named = {"name": self.table}
            there = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = :name"
            if not db.execute(text(there), named).scalar():
                return None
            grouped = (
                "SELECT min(id), session_id, count(*) "  # noqa: S608 - constants
                f"FROM {self.table} GROUP BY session_id ORDER BY 1"
            )
            found: list[tuple[int, str]] = []
            for first, session_id, count in db.execute(text(grouped)):
                if session_id in (None, "", b""):
                    self.unkept["messages of no session"] += count
                else:
                    found.append((first, as_text(session_id)))
            return found

        found = database.ask(ids)
        if found is None:
            msg = f"it has no table {self.table}; nothing was imported"
            raise ImportRejectedError(msg)
        return found

    def _read(self, database: Database, first: int) -> Draft:
        # The id itself may be what is no text, and would not be found again.
        chosen = (
            f"SELECT id, {self.message}, {self.time} FROM {self.table} WHERE session_id = "  # noqa: S608 - constants
            f"(SELECT session_id FROM {self.table} WHERE id = :first) ORDER BY id"
        )
        rows = database.ask(lambda db: db.execute(text(chosen), {"first": first}).all())
        draft, tools = Draft(self.program), dict[str, str]()
        for row_id, message, time in rows:
            draft.at(time)
            try:
                value = json.loads(message)
                if not isinstance(value, dict):
                    msg = f"a message is an object, not {type(value).__name__}"
                    raise TypeError(msg)  # noqa: TRY301 - told below like the others
                self._add(draft, value, tools)
            except (ValueError, TypeError, RecursionError) as error:
                msg = f"row {row_id} of {self.table}: {error}; nothing was imported"
                raise ImportRejectedError(msg) from error
        return draft

    def _add(self, draft: Draft, value: dict[str, Any], tools: dict[str, str]) -> None:
        raise NotImplementedError


class OpenAIAgents(_Tables):
    """A file of `SQLiteSession`, with the tables it makes unless it is told others."""

    program = "openai-agents"
    table, message, time = "agent_messages", "message_data", "created_at"

    def _add(self, draft: Draft, value: dict[str, Any], tools: dict[str, str]) -> None:
        row = openai_items.message_of(value, self.program, tools)
        draft.add(row.pop("role"), **row)


class LangChain(_Tables):
    """A file of `SQLChatMessageHistory`, with the table it makes unless it is told another."""

    program = "langchain"
    # It keeps no time.
    table, message, time = "message_store", "message", "NULL"

    def _add(self, draft: Draft, value: dict[str, Any], tools: dict[str, str]) -> None:
        del tools  # a result says the name itself
        row = langchain_messages.message_of(value, self.program)
        draft.add(row.pop("role"), **row)
        _use(draft, value["data"])


def _use(draft: Draft, data: Mapping[str, Any]) -> None:
    usage, told = data.get("usage_metadata"), data.get("response_metadata")
    model = plain(told.get("model_name")) if isinstance(told, dict) else None
    draft.fill_missing(model=model)
    if not isinstance(usage, dict):
        return
    into, out = usage.get("input_token_details"), usage.get("output_token_details")
    into, out = (each if isinstance(each, dict) else {} for each in (into, out))
    draft.use(
        model,
        {
            "input_tokens": figure(usage.get("input_tokens")),
            "output_tokens": figure(usage.get("output_tokens")),
            "cache_read_tokens": figure(into.get("cache_read")),
            "cache_write_tokens": figure(into.get("cache_creation")),
            "reasoning_tokens": figure(out.get("reasoning")),
            "api_call_count": 1,
        },
    )
