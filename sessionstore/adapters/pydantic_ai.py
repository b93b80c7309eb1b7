"""A conversation store of Pydantic AI (`ConversationStore`), kept in the store.

A conversation is a session, its record is the session's config, and an entry is a message:
the entry's id is the message's outer id, its parent is kept beside the message. The live
messages of the session are the history; what a branch or a rewrite leaves is undone, not
deleted. So `sessionstore show` shows the history, and search finds it, as it does any other.

A fork gets copies of the entries it shares, under the ids they have: each session is whole by
itself, survives the deletion of the other, and an export of it is complete. Deleting erases.

A history is read in one query, mostly of the live messages alone; it needs no recursion, since
a session holds every entry that its own can point at.

Made for pydantic-ai-slim 2.68 (https://ai.pydantic.dev/api/conversation_store/).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from sessionstore.adapters.common import AsyncStore, awaited, countable, from_extra
from sessionstore.errors import ConflictError, SessionNotFoundError
from sessionstore.readers.kept import keep, kept, tool_call
from sessionstore.readers.openai_items import texts
from sessionstore.records import MessageRecord, SessionRecord
from sessionstore.store import SessionDB

with from_extra("pydantic-ai"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        FilePart,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelResponse,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

FRAMEWORK = "pydantic-ai"
_RECORDS = TypeAdapter(ConversationRecord)
# Ends of histories; what is not noted is looked up.
_NOTED = 10_000


class SessionStoreConversationStore(ConversationStore):
    """Conversations in a store with full-text search.

    ```python
    store = SessionStoreConversationStore("state.db")
    conversation = await store.load("c1") or Conversation(conversation_id="c1")
    await store.save(await agent.run("Hello", conversation=conversation))
    ```

    The scope of a conversation is the user of its session. A record and its new entries are
    one transaction. Deleting a conversation erases its entries, and no other's.

    Args:
        store: A `SessionDB`, an `AsyncSessionDB`, or a path or URL; None is the default
            place. A place is opened by the first call, once in a process, and shared.
        source: The source of the sessions that are made and listed.
    """

    def __init__(self, store: AsyncStore = None, *, source: str = FRAMEWORK) -> None:
        self._store = awaited(store)
        self._source = source
        # Where the histories end that were read or written here: the session of each.
        self._ends: dict[str, str] = {}

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None."""
        session = await self._store.get_session(conversation_id)
        record = None if session is None else _record_of(session)
        if record is not None:
            self._note(record)
        return record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """List the records, or those of a scope, the one that was saved last first."""
        sessions = await self._store.search_sessions(self._source, None, user_id=scope)
        found = [record for each in sessions if (record := _record_of(each)) is not None]
        found = [record for record in found if scope is None or record.scope == scope]
        found.sort(key=lambda record: record.updated_at, reverse=True)
        return found if limit is None else found[:limit]

    def _note(self, record: ConversationRecord) -> None:
        if len(self._ends) > _NOTED:
            self._ends.clear()
        for entry_id in (record.head_id, *record.branches):
            if entry_id is not None:
                self._ends[entry_id] = record.conversation_id

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries, all or nothing.

        Raises:
            ConversationConflict: The stored revision is another, the head is no entry, or a
                session of another program has the id.
        """
        told = _RECORDS.dump_python(record, mode="json")
        rows = [_row_of(entry) for entry in new_entries]

        def write(db: SessionDB) -> None:
            session = db.get_session(record.conversation_id)
            stored = None if session is None else _record_of(session)
            if (stored.revision if stored else None) != expected_revision:
                raise ConversationConflict(record.conversation_id)
            if stored is None:
                if session is not None and (session["model_config"] or session["message_count"]):
                    raise ConversationConflict(record.conversation_id)
                db.create_session(record.conversation_id, self._source, user_id=record.scope)
            first = new_entries[0].parent_id if new_entries else record.head_id
            if new_entries and record.head_id != new_entries[-1].id:
                raise ConversationConflict(record.conversation_id)
            copied: list[Mapping[str, Any]] = []
            live: list[int] | None = None
            if first != (stored.head_id if stored else None):
                copied, live = _moved_to(db, record, first)
            db.append_if_unchanged(
                record.conversation_id,
                [*copied, *rows],
                model_config=keep(FRAMEWORK, told)[0],
                expected_config=session["model_config"] if session else None,
                live=live,
            )

        self._note(record)
        try:
            await self._store.run(write)
        except (ConflictError, SessionNotFoundError) as error:
            raise ConversationConflict(record.conversation_id) from error

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation and its entries.

        Raises:
            ConversationConflict: The stored revision is another.
        """

        def delete(db: SessionDB) -> None:
            session = db.get_session(conversation_id)
            stored = None if session is None else _record_of(session)
            if session is None or stored is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            # From here on no other writer's revision is the stored one.
            db.append_if_unchanged(
                conversation_id,
                [],
                model_config=None,
                expected_config=session["model_config"],
                live=(),
            )
            db.delete_session(conversation_id)

        try:
            await self._store.run(delete)
        except (ConflictError, SessionNotFoundError) as error:
            raise ConversationConflict(conversation_id) from error

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry.

        Raises:
            LookupError: There is none with this id.
        """

        def read(db: SessionDB) -> ConversationEntry:
            message = db.get_message_by_platform_id(entry_id)
            if message is None or (entry := _entry_of(message)) is None:
                raise _no_entry(entry_id)
            return entry

        return await self._store.run(read)

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """List the entries from the first one to the head, or the last so many of them.

        Raises:
            LookupError: One of them is not there.
        """
        if head_id is None or limit == 0:
            return []
        near = self._ends.get(head_id)
        chain = await self._store.run(lambda db: _chain(db, head_id, limit, near))
        return [cast("ConversationEntry", _entry_of(each)) for each in chain]


def _no_entry(entry_id: str) -> LookupError:
    return LookupError(f"no entry has the id {entry_id!r}")


def _record_of(session: SessionRecord) -> ConversationRecord | None:
    told = kept(FRAMEWORK, [session["model_config"]])
    return None if told is None else _RECORDS.validate_python(told)


def _chain(
    db: SessionDB, head_id: str, limit: int | None, near: str | None = None
) -> list[MessageRecord]:
    """Read the messages of the entries up to a head, all or the last so many.

    Args:
        db: The store.
        head_id: The last entry.
        limit: The last so many.
        near: The session to look at first.
    """
    if near is not None:
        # Mostly the live messages are it.
        live = db.get_messages(near, last=limit)
        found = _walk(live, head_id, limit)
        if found is None:
            found = _walk(db.get_messages(near, include_inactive=True), head_id, limit)
        if found is not None:
            return found
    head = db.get_message_by_platform_id(head_id)
    if head is not None and head["session_id"] != near:
        return _chain(db, head_id, limit, head["session_id"])
    raise _no_entry(f"{head_id} or one before it")


def _walk(
    messages: Sequence[MessageRecord], head_id: str, limit: int | None
) -> list[MessageRecord] | None:
    """Go from parent to parent; None if one is not among these."""
    by_entry = {each["platform_message_id"]: each for each in messages}
    chain: list[MessageRecord] = []
    entry_id: str | None = head_id
    while entry_id is not None and (limit is None or len(chain) < limit):
        message = by_entry.get(entry_id)
        held = None if message is None else kept(FRAMEWORK, message["codex_message_items"])
        if message is None or held is None:
            return None
        chain.append(message)
        entry_id = held["parent_id"]
    return chain[::-1]


def _moved_to(
    db: SessionDB, record: ConversationRecord, entry_id: str | None
) -> tuple[list[Mapping[str, Any]], list[int]]:
    """Say what to copy and what is live, for a history that goes on after this entry."""
    if entry_id is None:
        return [], []
    own = db.get_messages(record.conversation_id, include_inactive=True)
    chain = _walk(own, entry_id, None)
    if chain is not None:
        return [], [each["id"] for each in chain]
    try:
        chain = _chain(db, entry_id, None)
    except LookupError as error:
        raise ConversationConflict(record.conversation_id) from error
    unsaid = {"id", "session_id", "active", "compacted"}
    copies = [{name: value for name, value in each.items() if name not in unsaid} for each in chain]
    return cast("list[Mapping[str, Any]]", copies), []


def _entry_of(message: MessageRecord) -> ConversationEntry | None:
    held = kept(FRAMEWORK, message["codex_message_items"])
    if held is None:
        return None
    (told,) = ModelMessagesTypeAdapter.validate_python([held["message"]])
    return ConversationEntry(
        id=cast("str", message["platform_message_id"]),
        parent_id=held["parent_id"],
        message=told,
        kind=held["kind"],
    )


def _row_of(entry: ConversationEntry) -> dict[str, Any]:
    (told,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    held = {"parent_id": entry.parent_id, "kind": entry.kind, "message": told}
    return {
        **_columns_of(entry.message, told),
        "platform_message_id": entry.id,
        "codex_message_items": keep(FRAMEWORK, held),
    }


def _columns_of(message: ModelMessage, told: Mapping[str, Any]) -> dict[str, Any]:
    """Give what is shown and found of a message.

    Args:
        message: The message.
        told: The same as JSON has it, for what only that can write, such as bytes.
    """
    parts = list(zip(message.parts, told["parts"], strict=True))
    said = _joined(text for part, as_json in parts for text in _said(part, as_json))
    if isinstance(message, ModelResponse):
        calls = [
            tool_call(part.tool_call_id, part.tool_name, _as_text(as_json["args"] or {}))
            for part, as_json in parts
            if isinstance(part, ToolCallPart)
        ]
        thoughts = [part.content for part in message.parts if isinstance(part, ThinkingPart)]
        return {
            "role": "assistant",
            "content": said,
            "reasoning": _joined(thoughts),
            "tool_calls": calls or None,
            "finish_reason": message.finish_reason,
            "token_count": countable(message.usage.output_tokens),
        }
    is_user = any(
        isinstance(part, UserPromptPart) or getattr(part, "speaker", None) == "user"
        for part in message.parts
    )
    answered = next((part for part, _ in parts if isinstance(part, ToolReturnPart)), None)
    return {
        "role": "user" if is_user else "tool" if answered else "system",
        "content": said,
        "tool_call_id": answered.tool_call_id if answered else None,
        "tool_name": answered.tool_name if answered else None,
    }


def _said(part: Any, as_json: Mapping[str, Any]) -> Iterator[str]:
    """List what a part says, but for a thought, and a call that the columns hold."""
    if isinstance(part, ThinkingPart | FilePart | ToolCallPart):
        return
    if isinstance(part, ToolReturnPart):
        yield _answer_of(part, as_json)
    elif isinstance(part, UserPromptPart):
        for each in [part.content] if isinstance(part.content, str) else part.content:
            text = each if isinstance(each, str) else getattr(each, "content", None)
            if isinstance(text, str):
                yield text
    elif isinstance(as_json.get("content"), str):
        yield as_json["content"]
    else:
        # What the provider's own tools were asked and answered, what was spoken, and the rest.
        yield from texts([as_json.get(field) for field in ("content", "args", "transcript")])


def _answer_of(part: ToolReturnPart, as_json: Mapping[str, Any]) -> str:
    try:
        return part.model_response_str()
    except ValueError:
        # It holds what only JSON's escapes can write, such as half a surrogate pair.
        return _as_text(as_json["content"])


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _joined(texts: Iterable[str]) -> str | None:
    return "\n".join(texts) or None
