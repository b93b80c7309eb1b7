"""A session of the OpenAI Agents SDK (`agents.memory.Session`), kept in the store.

Each item is one message, so that it is listed, shown and found like any other. What the
columns do not hold is kept beside them, and the item comes back as it was given: equal, and
the same text as JSON. Messages of other programs are read as items too.

Made for openai-agents 0.24 (https://openai.github.io/openai-agents-python/sessions/).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from sessionstore.adapters.common import AsyncStore, awaited, from_extra
from sessionstore.errors import SessionNotFoundError
from sessionstore.readers.kept import kept, opaque
from sessionstore.readers.openai_items import ROLES, message_of
from sessionstore.records import MessageRecord
from sessionstore.search.body import text_of

with from_extra("openai-agents"):
    from agents import RunResult, RunResultStreaming, SessionSettings, TResponseInputItem
    from agents.memory.session_settings import coerce_session_settings

FRAMEWORK = "openai-agents"


class SessionStoreSession:
    """The history of one conversation, in a store with full-text search.

    ```python
    session = SessionStoreSession("user-1", "state.db")
    await Runner.run(agent, "Hello", session=session)
    ```

    Each call is one transaction and safe beside other programs. A call that is cancelled has
    been done or has not when the CancelledError comes out.

    Args:
        session_id: The conversation; made when the first items come.
        store: A `SessionDB`, an `AsyncSessionDB`, or a path or URL; None is the default
            place. A place is opened by the first call, once in a process, and shared.
        session_settings: `limit` is how many items `get_items` gives unless it is told.
        source: The source of a session that is made.
        user_id: Whose it is.
    """

    def __init__(
        self,
        session_id: str,
        store: AsyncStore = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        *,
        source: str = FRAMEWORK,
        user_id: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = (
            SessionSettings()
            if session_settings is None
            else coerce_session_settings(session_settings)
        )
        self._store = awaited(store)
        self._source, self._user_id = source, user_id

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """List the items, oldest first.

        Args:
            limit: The latest so many; None is what the settings say, and all if they say
                nothing. A negative number is all, as the SDK's own sessions have it.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit < 0:
            limit = None
        # A message is one item at least.
        records = await self._store.get_messages(self.session_id, last=limit)
        items = [item for record in records for item in items_of(record)]
        start = 0 if limit is None else max(len(items) - limit, 0)
        return cast("list[TResponseInputItem]", items[start:])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items at the end, all or none.

        Raises:
            ValueError, TypeError: An item is nothing that JSON can hold.
        """
        new = list(messages_of(cast("list[dict[str, Any]]", items)))
        if not new:
            return
        try:
            await self._store.append_messages(self.session_id, new)
        except SessionNotFoundError:
            await self._store.ensure_session(self.session_id, self._source, user_id=self._user_id)
            await self._store.append_messages(self.session_id, new)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; None if there is none."""
        while True:
            records = await self._store.get_messages(self.session_id, last=1)
            if not records:
                return None
            *before, item = items_of(records[0])
            # A message of another program may hold several items; the others stay.
            if await self._store.delete_message(
                self.session_id, records[0]["id"], instead=messages_of(before)
            ):
                return cast("TResponseInputItem", item)

    async def clear_session(self) -> None:
        """Delete all items; the session, its title and what it used stay."""
        try:
            await self._store.clear_messages(self.session_id)
        except SessionNotFoundError:
            return

    async def store_run_usage(self, result: RunResult | RunResultStreaming) -> None:
        """Add what a run used to the session: tokens, requests and, if it has a name, the model.

        Not idempotent: call it once for a run, after it.
        """
        usage = result.context_wrapper.usage
        model = result.last_agent.model
        await self._store.update_token_counts(
            self.session_id,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.input_tokens_details.cached_tokens,
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
            api_call_count=usage.requests,
            model=model if isinstance(model, str) else None,
        )

    def close(self) -> None:
        """Do nothing: its owner closes the store, and a shared one goes with the process."""


def messages_of(items: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Give the message for each item."""
    names: dict[str, str] = {}
    for item in items:
        # As the SDK's own sessions do: what comes back is what JSON makes of an item.
        try:
            told = json.loads(json.dumps(item))
        except RecursionError as error:
            msg = "an item is nested deeper than JSON can be read"
            raise ValueError(msg) from error
        if not isinstance(told, dict):
            msg = f"an item is a dict, not {type(item).__name__}"
            raise TypeError(msg)
        yield message_of(told, FRAMEWORK, names)


def items_of(record: MessageRecord) -> list[dict[str, Any]]:
    """Give the items that a message is, at least one."""
    found = kept(FRAMEWORK, record["codex_message_items"])
    if _is_kept(found):
        field, item = found
        if field in ("arguments", "input"):
            item[field] = _arguments_of(record["tool_calls"])
        elif field is not None:
            item[field] = record["content"]
        return [item]
    return list(_items_of_others(record)) or [_plain(record)]


def _is_kept(found: Any) -> bool:
    """Say whether this is a field and the rest of its item, and not what other hands made of it."""
    return isinstance(found, list) and len(found) == 2 and isinstance(found[1], dict)  # noqa: PLR2004 - a pair


def _arguments_of(calls: Any) -> str:
    try:
        return str(calls[0]["function"]["arguments"])
    except (LookupError, TypeError):
        # Other hands changed the message.
        return "{}"


def _items_of_others(record: MessageRecord) -> Iterator[dict[str, Any]]:
    yield from opaque(record["codex_reasoning_items"])
    if record["role"] == "tool":
        yield {
            "call_id": record["tool_call_id"] or "",
            "output": text_of(record["content"]),
            "type": "function_call_output",
        }
        return
    if said := opaque(record["codex_message_items"]):
        yield from said
    elif record["content"]:
        yield _plain(record)
    for call in record["tool_calls"] if isinstance(record["tool_calls"], list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield {
                "arguments": function.get("arguments", "{}"),
                "call_id": call.get("id", ""),
                "name": function.get("name", ""),
                "type": "function_call",
            }


def _plain(record: MessageRecord) -> dict[str, Any]:
    role, content = record["role"], record["content"]
    if isinstance(content, list):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [
            part | {"type": kind} if isinstance(part, dict) and part.get("type") == "text" else part
            for part in content
        ]
    return {
        "content": "" if content is None else content,
        "role": role if role in ROLES else "user",
    }
