"""The calls about the messages of a session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from sessionstore import checks
from sessionstore.codec import encode_json
from sessionstore.errors import ConflictError
from sessionstore.records import Content, ConversationMessage, MessageRecord, NewMessage
from sessionstore.repository import (
    coordination,
    message_reading,
    message_writing,
    meta,
    sessions,
)
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase


@checked_calls
class MessageCalls(StoreBase):
    """The messages of a session: storing, changing, reading and counting them."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Content = None,
        *,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        platform_message_id: str | None = None,
        timestamp: float | None = None,
    ) -> int:
        """Store a message at the end of a session and return its id.

        The counters of the session go with it: one message more, and as many tool calls as
        `tool_calls` lists (never for the role `tool`). Values come back equal and of the
        same type. When the call returns, the message survives a power cut.

        Args:
            session_id: The session.
            role: Such as `user`, `assistant`, `tool`.
            content: Text, or a list or dict of parts, or None.
            tool_name: The tool that answers.
            tool_calls: What the model calls: what JSON can hold, mostly a list.
            tool_call_id: The call that is answered.
            token_count: Tokens of this message.
            finish_reason: Why the model stopped.
            reasoning: What the model thought.
            reasoning_content: The same as another maker names it.
            reasoning_details: What JSON can hold, as are the next two.
            codex_reasoning_items: Opaque items of a provider.
            codex_message_items: Opaque items of a provider.
            platform_message_id: The id a chat platform gave it.
            timestamp: Epoch seconds; None is now. Never an order.

        Raises:
            SessionNotFoundError: There is no such session.
            ValueError: The role is empty, a number not finite or beyond 64 bits, a value
                such that JSON cannot hold it.
            TypeError: A value of the wrong type.
        """
        message = {
            "role": role,
            "content": content,
            "tool_name": tool_name,
            "tool_calls": tool_calls,
            "tool_call_id": tool_call_id,
            "token_count": token_count,
            "finish_reason": finish_reason,
            "reasoning": reasoning,
            "reasoning_content": reasoning_content,
            "reasoning_details": reasoning_details,
            "codex_reasoning_items": codex_reasoning_items,
            "codex_message_items": codex_message_items,
            "platform_message_id": platform_message_id,
            "timestamp": timestamp,
        }
        row = message_writing.new_message(message, now=self._now(), on_server=self._on_server)
        calls = message_writing.calls_in(message)
        return self._write(lambda db: message_writing.append(db, session_id, [row], calls=calls)[0])

    def append_messages(
        self, session_id: str, new_messages: Iterable[NewMessage | Mapping[str, Any]]
    ) -> list[int]:
        """Store many messages, all or none, and return their ids in order.

        Raises:
            SessionNotFoundError: There is no such session.
            ValueError, TypeError: As `append_message`; nothing is stored.
        """
        _, rows, calls = self._encoded(session_id, new_messages)
        return self._write(lambda db: message_writing.append(db, session_id, rows, calls=calls))

    def append_if_unchanged(
        self,
        session_id: str,
        new_messages: Iterable[NewMessage | Mapping[str, Any]],
        *,
        model_config: Any,
        expected_config: Any,
        values: Mapping[str, tuple[str | None, str]] | None = None,
        live: Collection[int] | None = None,
    ) -> list[int]:
        """Append messages and set the config, unless that changed meanwhile; return the ids.

        All of it in one transaction, or nothing: for callers that keep a state of their own
        with a session, in its config and in named values, such as the adapters of frameworks.
        Messages that others appended meanwhile are no change.

        Args:
            session_id: The session.
            new_messages: What to append; may be none.
            model_config: What the config of the session becomes.
            expected_config: What it has to be now, as `get_session` gave it.
            values: Named values of the store (`get_meta`): what each has to be now, None for
                absent, and what it becomes.
            live: The ids of the messages that are live from now on, beside the new ones; any
                other live one is undone. None: they stay as they are.

        Raises:
            SessionNotFoundError: There is no such session.
            ConflictError: The config or a value is another by now; nothing is stored.
            ValueError, TypeError: As `append_message`; nothing is stored.
        """
        _, rows, calls = self._encoded(session_id, new_messages)
        config, expected = encode_json(model_config), encode_json(expected_config)

        def store(db: Connection) -> list[int]:
            sessions.exchange_config(db, session_id, expected, config)
            for key, (before, after) in (values or {}).items():
                meta.exchange(db, key, before, after)
            if live is not None:
                message_writing.make_live(db, session_id, live)
            return message_writing.append(db, session_id, rows, calls=calls)

        return self._write(store)

    def sync_messages(
        self, session_id: str, all_messages: Iterable[NewMessage | Mapping[str, Any]]
    ) -> list[int]:
        """Store what a caller's whole list has beyond the stored one; return the new ids.

        For callers that hold the whole conversation, be it as `get_messages` gave it: called
        again, it stores nothing. Two messages are the same if role, content, tool calls and
        tool call id are, and so is whatever else the caller's copy names, save time and token
        count.

        Raises:
            SessionNotFoundError: There is no such session.
            ConflictError: The stored messages are not a prefix of the list; nothing is
                written, so a partial list in memory destroys nothing.
            ValueError, TypeError: As `append_message`; nothing is stored.
        """
        given, rows, _ = self._encoded(session_id, all_messages)
        return self._write(lambda db: message_writing.sync(db, session_id, given, rows))

    def replace_messages(
        self, session_id: str, new_messages: Iterable[NewMessage | Mapping[str, Any]]
    ) -> list[int]:
        """Put a list of messages in the place of the live ones; return the new ids.

        What was compacted or undone stays.

        Raises:
            SessionNotFoundError: There is no such session.
            ValueError, TypeError: As `append_message`; the old messages stay.
        """
        _, rows, calls = self._encoded(session_id, new_messages)
        return self._write(lambda db: message_writing.replace(db, session_id, rows, calls=calls))

    def delete_message(
        self,
        session_id: str,
        message_id: int,
        *,
        instead: Iterable[NewMessage | Mapping[str, Any]] = (),
    ) -> bool:
        """Delete one live message; return whether it was there.

        The counters follow. A message that was compacted or undone stays.

        Args:
            session_id: The session.
            message_id: The message.
            instead: Messages for the end of the session, stored only if it was there.

        Raises:
            ValueError, TypeError: As `append_message`; nothing is done.
        """
        _, rows, calls = self._encoded(session_id, instead)
        return self._write(
            lambda db: message_writing.delete_one(db, session_id, message_id, rows, calls=calls)
        )

    def clear_messages(self, session_id: str) -> int:
        """Delete every message of a session, of any state; return how many went.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        return self._write(lambda db: message_writing.clear(db, session_id))

    def archive_and_compact(
        self,
        session_id: str,
        new_messages: Iterable[NewMessage | Mapping[str, Any]],
        *,
        through_id: int | None = None,
        lock_holder: str | None = None,
    ) -> int:
        """Replace the live messages by a summary; return how many it replaces.

        They stay stored, as compacted: out of the conversation, found by search. Messages that
        arrived after `through_id` stay live, after the new ones, for which they get new ids.
        The counters follow the live messages.

        Args:
            session_id: The session.
            new_messages: What stands for the others.
            through_id: The last message that the summary is about; None: all.
            lock_holder: Go on only if this holder has the compression lock of the session.

        Raises:
            SessionNotFoundError: There is no such session.
            ConflictError: The lock is not, or no longer, the holder's; nothing is done.
            ValueError, TypeError: As `append_message`; nothing is done.
        """
        _, rows, _ = self._encoded(session_id, new_messages)
        now = self._now()

        def compact(db: Connection) -> int:
            if lock_holder is not None:
                holder = coordination.lock_holder(db, session_id, now=now)
                if holder != lock_holder:
                    msg = (
                        f"{lock_holder} does not hold the compression lock of session "
                        f"{session_id}, {holder or 'nobody'} does; nothing was compacted"
                    )
                    raise ConflictError(msg)
            return message_writing.archive_and_compact(db, session_id, rows, through_id=through_id)

        return self._write(compact)

    def rewind_to_message(self, session_id: str, message_id: int) -> int:
        """Undo a conversation from a user message on; return how many messages were undone.

        They stay stored and come back by `restore_rewound`. The counters follow the live
        messages and `rewind_count` goes up.

        Raises:
            MessageNotFoundError: The session has no such live message.
            ValueError: It is no user message.
        """
        return self._write(lambda db: message_writing.rewind(db, session_id, message_id))

    def restore_rewound(self, session_id: str, since_id: int) -> int:
        """Take an undo back: make the undone messages from an id on live; return how many.

        Compacted messages stay compacted.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        return self._write(lambda db: message_writing.restore(db, session_id, since_id))

    def get_messages(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        after_id: int | None = None,
        before_id: int | None = None,
        last: int | None = None,
        include_inactive: bool = False,
    ) -> list[MessageRecord]:
        """List the live messages of a session by id, never by time; none for an unknown one.

        Args:
            session_id: The session.
            limit: At most so many.
            after_id: Only those with a higher id: the next page after the last one seen.
            before_id: Only those with a lower id: with `last`, the page before the first one seen.
            last: Only the last so many, still by id; not beside `limit`.
            include_inactive: Also what was compacted or undone; see `active`, `compacted`.

        Raises:
            ValueError: A number is negative, or both `limit` and `last` are given.
        """
        wanted, _ = checks.one_page(limit, 0)
        tail = None if last is None else checks.count("last", last)
        if wanted is not None and tail is not None:
            msg = "limit counts from the first message and last from the last; give one of them"
            raise ValueError(msg)
        return self._read(
            lambda db: message_reading.listing(
                db,
                session_id,
                after_id=after_id,
                before_id=before_id,
                limit=wanted,
                last=tail,
                include_inactive=include_inactive,
            )
        )

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False
    ) -> list[ConversationMessage]:
        """List a session's messages in the form sent to a model: no ids, times or empty keys.

        Args:
            session_id: The session.
            include_ancestors: Begin with the root of its lineage. A user message that only
                repeats the previous user message across the seam is left out.
        """
        return self._read(
            lambda db: message_reading.conversation(
                db, session_id, include_ancestors=include_ancestors
            )
        )

    def get_messages_around(
        self, session_id: str, message_id: int, window: int = 5
    ) -> list[MessageRecord]:
        """List a message with up to `window` before and after it, by id; not what was undone.

        Raises:
            MessageNotFoundError: The session has no such message, or it was undone.
        """
        wanted = checks.rows("window", window)
        return self._read(lambda db: message_reading.around(db, session_id, message_id, wanted))

    def get_message_by_platform_id(self, platform_message_id: str) -> MessageRecord | None:
        """Return the message with the id that a chat platform gave it, or None.

        In any state; of several the latest.
        """
        return self._read(lambda db: message_reading.find_by_platform_id(db, platform_message_id))

    def message_count(
        self, session_id: str | None = None, *, include_inactive: bool = False
    ) -> int:
        """Count the live messages, or all, of one session or of the store: rows, not counters."""
        return self._read(
            lambda db: message_reading.count(db, session_id, include_inactive=include_inactive)
        )

    def _encoded(
        self, session_id: str, given: Iterable[NewMessage | Mapping[str, Any]]
    ) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]], int]:
        """Give messages as a list, encoded, and how many tool calls they make."""
        now = self._now()
        listed = [message_writing.as_new_message(each, session_id) for each in given]
        rows = [
            message_writing.new_message(message, now=now, on_server=self._on_server)
            for message in listed
        ]
        return listed, rows, sum(message_writing.calls_in(message) for message in listed)
