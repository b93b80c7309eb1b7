"""Messages, read back: those of a session in order, a page of them, or what a model is given."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import Connection, ScalarSelect, Select, bindparam, func, not_, select

from sessionstore import checks
from sessionstore.codec import (
    alike,
    as_number,
    as_text,
    decode_content,
    decode_json,
    decode_text,
)
from sessionstore.errors import MessageNotFoundError
from sessionstore.models import MESSAGES
from sessionstore.records import ConversationMessage, MessageRecord
from sessionstore.repository import chains

# Texts that may be more than every back end can hold; `json_columns` says which are JSON.
ENCODED_TEXTS = (
    "tool_name",
    "tool_call_id",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "platform_message_id",
)
# What a model is given of a message beside role and content, where there is something.
_OF_ALL = ("tool_call_id", "tool_name", "tool_calls")
_OF_ASSISTANTS = (
    *_OF_ALL,
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)

# All that a record says; what is derived for the search index stays where it is.
_COLUMNS = [column for column in MESSAGES.columns if column.name != "search_text"]
# Built once: compiling them costs more than running them.
_SELECT = select(*_COLUMNS).order_by(MESSAGES.c.id)
_OF_SESSION = _SELECT.where(MESSAGES.c.session_id == bindparam("of_session"))
LIVE = MESSAGES.c.active == 1
UNDONE = (MESSAGES.c.active == 0) & (MESSAGES.c.compacted == 0)


def _record_of(row: Sequence[Any]) -> MessageRecord:
    """Turn a row of `_COLUMNS` into a record.

    The hottest code of a load: spelt out, it takes 0.6 of the time of loops over the names.
    """
    (
        message_id,
        session_id,
        role,
        content,
        call_id,
        calls,
        tool_name,
        timestamp,
        token_count,
        finish_reason,
        reasoning,
        details,
        reasoning_items,
        reasoning_content,
        message_items,
        encoding,
        encoded_columns,
        active,
        compacted,
        platform_id,
    ) = row
    record: MessageRecord = {
        "id": message_id,
        "session_id": session_id if type(session_id) is str else as_text(session_id),
        "role": role if type(role) is str else as_text(role),
        "content": None if content is None else decode_content(content, encoding),
        "tool_call_id": call_id if call_id is None or type(call_id) is str else as_text(call_id),
        "tool_calls": None if calls is None else decode_json(calls),
        "tool_name": tool_name
        if tool_name is None or type(tool_name) is str
        else as_text(tool_name),
        "timestamp": timestamp if type(timestamp) is float else as_number(timestamp) or 0.0,
        "token_count": token_count if type(token_count) is int else None,
        "finish_reason": finish_reason
        if finish_reason is None or type(finish_reason) is str
        else as_text(finish_reason),
        "reasoning": reasoning
        if reasoning is None or type(reasoning) is str
        else as_text(reasoning),
        "reasoning_details": None if details is None else decode_json(details),
        "codex_reasoning_items": None if reasoning_items is None else decode_json(reasoning_items),
        "reasoning_content": reasoning_content
        if reasoning_content is None or type(reasoning_content) is str
        else as_text(reasoning_content),
        "codex_message_items": None if message_items is None else decode_json(message_items),
        "active": active == 1,
        "compacted": compacted == 1,
        "platform_message_id": platform_id
        if platform_id is None or type(platform_id) is str
        else as_text(platform_id),
    }
    if encoded_columns:
        texts = cast("dict[str, str | None]", record)
        for name in as_text(encoded_columns).split(","):
            if name in ENCODED_TEXTS and (text := texts[name]) is not None:
                texts[name] = decode_text(text)
    return record


def listing(
    connection: Connection,
    session_id: str,
    *,
    after_id: int | None = None,
    before_id: int | None = None,
    limit: int | None = None,
    last: int | None = None,
    include_inactive: bool = False,
) -> list[MessageRecord]:
    """List the live messages of a session, or all, by id: those between two, so many at most.

    With `last` the last so many, be it those before an id, still by id.
    """
    wanted = _OF_SESSION if include_inactive else _OF_SESSION.where(LIVE)
    cut = functools.partial(
        _cut,
        after_id=after_id,
        before_id=before_id,
        count=limit if last is None else last,
        from_end=last is not None,
    )
    if include_inactive and (limit is not None or last is not None):
        # The index has live and other messages apart, and so not in order of id: the page is
        # chosen by ids alone, which it holds, and only then are messages read.
        ids = cut(select(MESSAGES.c.id).where(MESSAGES.c.session_id == session_id)).subquery()
        page = connection.execute(_SELECT.where(MESSAGES.c.id.in_(select(ids.c.id)))).all()
        return [_record_of(row) for row in page]
    found = connection.execute(cut(wanted), {"of_session": session_id}).all()
    return [_record_of(row) for row in (found if last is None else reversed(found))]


def _cut(
    wanted: Select[*tuple[Any, ...]],
    *,
    after_id: int | None,
    before_id: int | None,
    count: int | None,
    from_end: bool,
) -> Select[*tuple[Any, ...]]:
    """Take the messages between two ids, the first so many of them or, backwards, the last."""
    if after_id is not None:
        wanted = wanted.where(MESSAGES.c.id > after_id)
    if before_id is not None:
        wanted = wanted.where(MESSAGES.c.id < before_id)
    order = MESSAGES.c.id.desc() if from_end else MESSAGES.c.id
    return wanted.order_by(None).order_by(order).limit(count)


def find_by_platform_id(connection: Connection, platform_message_id: str) -> MessageRecord | None:
    """Return the latest message with the id that a chat platform gave it, or None.

    Looks through the index of those ids, which begins with the session: some ms for 100,000.
    """
    has_it = MESSAGES.c.platform_message_id == platform_message_id
    # The sum keeps SQLite from going through the messages themselves, from the last one back.
    found = select(func.max(MESSAGES.c.id + 0)).where(
        has_it, MESSAGES.c.platform_message_id.is_not(None)
    )
    row = connection.execute(_SELECT.where(MESSAGES.c.id == found.scalar_subquery())).first()
    return None if row is None else _record_of(row)


def listing_at(connection: Connection, session_id: ScalarSelect[Any]) -> list[MessageRecord]:
    """List all messages of a session whose id is no text, by id."""
    found = connection.execute(_SELECT.where(MESSAGES.c.session_id == session_id))
    return [_record_of(row) for row in found]


def around(
    connection: Connection, session_id: str, message_id: int, window: int
) -> list[MessageRecord]:
    """List a message with up to `window` before and after it, by id; undone ones are left out.

    Raises:
        MessageNotFoundError: The session has no such message, or it was undone.
    """
    visible = (MESSAGES.c.session_id == session_id) & not_(UNDONE)
    before = (
        select(*_COLUMNS)
        .where(visible, MESSAGES.c.id <= message_id)
        .order_by(MESSAGES.c.id.desc())
        .limit(min(window + 1, checks.LARGEST))
    )
    rows = list(connection.execute(before))[::-1]
    if not rows or rows[-1].id != message_id:
        raise MessageNotFoundError(
            message_id, f"session {session_id!r} has no message {message_id}"
        )
    after = _SELECT.where(visible, MESSAGES.c.id > message_id).limit(window)
    rows.extend(connection.execute(after))
    return [_record_of(row) for row in rows]


def conversation(
    connection: Connection, session_id: str, *, include_ancestors: bool
) -> list[ConversationMessage]:
    """List what a model is given of a session, or of its whole line of ancestors before it.

    A user message that only repeats the previous user message, across the seam of two
    sessions, is left out.
    """
    line = chains.lineage(connection, session_id) if include_ancestors else [session_id]
    given: list[ConversationMessage] = []
    for position, member in enumerate(line):
        at_seam = position > 0
        for record in listing(connection, member):
            message = _as_given(record)
            if at_seam and record["role"] == "user":
                at_seam = False
                if _repeats(given, message):
                    continue
            given.append(message)
    return given


def _repeats(given: Sequence[ConversationMessage], message: ConversationMessage) -> bool:
    previous = next((earlier for earlier in reversed(given) if earlier["role"] == "user"), None)
    return previous is not None and alike(previous["content"], message["content"])


def _as_given(record: MessageRecord) -> ConversationMessage:
    message: ConversationMessage = {"role": record["role"], "content": record["content"]}
    for name in _OF_ASSISTANTS if record["role"] == "assistant" else _OF_ALL:
        if (value := record[name]) is not None:  # type: ignore[literal-required] # keys of both
            message[name] = value  # type: ignore[literal-required] # as above
    return message


def count(connection: Connection, session_id: str | None, *, include_inactive: bool) -> int:
    """Count the live messages, or all, of one session or of every session."""
    counted = select(func.count()).select_from(MESSAGES)
    if session_id is not None:
        counted = counted.where(MESSAGES.c.session_id == session_id)
    if not include_inactive:
        counted = counted.where(LIVE)
    return connection.execute(counted).scalar_one()
