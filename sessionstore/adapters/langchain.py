"""A chat message history of LangChain (`BaseChatMessageHistory`), kept in the store.

Each message is one of the store's, so that it is listed, shown and found like any other, and
comes back equal. Messages of other programs are read as LangChain's too.

Made for langchain-core 1.8, which calls that class deprecated, to go in 2.0
(https://reference.langchain.com/python/langchain-core/chat_history).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from sessionstore.adapters.common import Store, awaited, from_extra, located, opened
from sessionstore.errors import SessionNotFoundError
from sessionstore.readers import langchain_messages
from sessionstore.readers.kept import kept
from sessionstore.records import MessageRecord
from sessionstore.store import SessionDB

with from_extra("langchain"):
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ChatMessage,
        HumanMessage,
        SystemMessage,
        ToolCall,
        ToolMessage,
        message_to_dict,
        messages_from_dict,
    )

T = TypeVar("T")

FRAMEWORK = "langchain"


class SessionStoreChatMessageHistory(BaseChatMessageHistory):
    """The history of one conversation, in a store with full-text search.

    ```python
    with_history = RunnableWithMessageHistory(
        chain, lambda session_id: SessionStoreChatMessageHistory(session_id, "state.db")
    )
    ```

    Cheap to make: a place is opened by the first call, once in a process. Each call is one
    transaction and safe beside other programs.

    Args:
        session_id: The conversation; made when the first messages come.
        store: A `SessionDB`, or a path or URL; None is the default place.
        source: The source of a session that is made.
        user_id: Whose it is.
    """

    def __init__(
        self,
        session_id: str,
        store: Store = None,
        *,
        source: str = FRAMEWORK,
        user_id: str | None = None,
    ) -> None:
        self.session_id = session_id
        self._at = located(store)
        self._source, self._user_id = source, user_id

    @property
    def _store(self) -> SessionDB:
        return opened(self._at)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override] # the SDK's own way
        """List the messages, oldest first."""
        return [message_of(record) for record in self._store.get_messages(self.session_id)]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages at the end, all or none.

        Raises:
            ValueError, TypeError: One of them is nothing that JSON can hold.
        """
        new = [row_of(message) for message in messages]
        if not new:
            return
        try:
            self._store.append_messages(self.session_id, new)
        except SessionNotFoundError:
            self._store.ensure_session(self.session_id, self._source, user_id=self._user_id)
            self._store.append_messages(self.session_id, new)

    def clear(self) -> None:
        """Delete all messages; the session and its title stay."""
        try:
            self._store.clear_messages(self.session_id)
        except SessionNotFoundError:
            return

    async def aget_messages(self) -> list[BaseMessage]:
        """List the messages, oldest first."""
        return await self._awaited(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Do what `add_messages` does; one that is cancelled is done or not when it ends."""
        await self._awaited(lambda: self.add_messages(messages))

    async def aclear(self) -> None:
        """Do what `clear` does."""
        await self._awaited(self.clear)

    async def _awaited(self, call: Callable[[], T]) -> T:
        return await awaited(self._at).run(lambda _: call())


def row_of(message: BaseMessage) -> dict[str, Any]:
    """Give the message of the store for one of LangChain's.

    Raises:
        ValueError, TypeError: It is nothing that JSON can hold, or no message.
    """
    if not isinstance(message, BaseMessage):
        msg = f"a message of LangChain is a BaseMessage, not {type(message).__name__}"
        raise TypeError(msg)
    row = langchain_messages.message_of(message_to_dict(message), FRAMEWORK)
    # What comes back is what JSON makes of it, such as a list of a tuple.
    return cast("dict[str, Any]", json.loads(json.dumps(row)))


def message_of(record: MessageRecord) -> BaseMessage:
    """Give LangChain's message for one of the store, whoever stored it."""
    content, role = record["content"], record["role"]
    told = kept(FRAMEWORK, record["codex_message_items"])
    if isinstance(told, dict) and isinstance(told.get("data"), dict):
        told["data"]["content"] = content
        # Of a class that is not LangChain's own it knows no more than the role.
        with suppress(LookupError, TypeError, ValueError):
            (message,) = messages_from_dict([told])
            return message
    said = _said(content)
    if role == "assistant":
        return AIMessage(said, tool_calls=list(_calls_of(record["tool_calls"])))
    if role == "tool":
        called, name = record["tool_call_id"] or "", record["tool_name"]
        return ToolMessage(said, tool_call_id=called, name=name)
    if role == "user":
        return HumanMessage(said)
    return SystemMessage(said) if role == "system" else ChatMessage(content=said, role=role)


def _said(content: Any) -> Any:
    """Give content as LangChain takes it: a text, or a list of texts and dicts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return [
        part if isinstance(part, str | dict) else json.dumps(part, ensure_ascii=False)
        for part in parts
    ]


def _calls_of(calls: Any) -> Iterator[ToolCall]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        try:
            args = json.loads(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            args = None
        # Arguments that are no dict are shown to the model as they were written.
        read = args if isinstance(args, dict) else {"arguments": arguments}
        called = call.get("id")
        yield ToolCall(
            name=str(function.get("name")), args=read, id=None if called is None else str(called)
        )
