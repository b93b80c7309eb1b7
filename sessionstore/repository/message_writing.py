"""Messages, stored and changed, with the counters of their session."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Connection, bindparam, delete, func, insert, select, text, update

from sessionstore import checks
from sessionstore.codec import (
    alike,
    decode_json,
    encode_content,
    encode_json,
    encode_text,
    is_plain,
)
from sessionstore.errors import ConflictError, MessageNotFoundError, SessionNotFoundError, shown
from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.records import MessageRecord
from sessionstore.repository import sessions
from sessionstore.repository.message_reading import ENCODED_TEXTS, LIVE, UNDONE, listing
from sessionstore.search import index_text, server_index
from sessionstore.search.keys import keys_of_row

_JSON = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
_FIELDS = ("role", "content", "timestamp", "token_count", *ENCODED_TEXTS, *_JSON)

# Built once: compiling them costs more than running them.
# The same for SQLite's driver: by way of Core it takes twice as long.
_STORED = (*_FIELDS, "content_encoding", "json_columns", "search_text")
_encoded = operator.itemgetter(*_STORED)
_INSERT_SQLITE = (
    f"INSERT INTO messages (session_id, {', '.join(_STORED)}) VALUES (?{', ?' * len(_STORED)})"
)
_INSERT = server_index.storing(("session_id", *_STORED))
_INSERT_MANY = server_index.storing(("id", "session_id", *_STORED))
_DRAW_IDS = text(
    "SELECT nextval(pg_get_serial_sequence('messages', 'id')) FROM generate_series(1, :count)"
)
_COUNT_UP = (
    update(SESSIONS)
    .where(SESSIONS.c.id == bindparam("of_session"))
    .values(
        message_count=func.coalesce(SESSIONS.c.message_count, 0) + bindparam("more_messages"),
        tool_call_count=func.coalesce(SESSIONS.c.tool_call_count, 0) + bindparam("more_calls"),
    )
)
_COUNT_UP_SQLITE = (
    "UPDATE sessions SET message_count = coalesce(message_count, 0) + ?, "
    "tool_call_count = coalesce(tool_call_count, 0) + ? WHERE id = ?"
)
_SET_COUNTS = (
    update(SESSIONS)
    .where(SESSIONS.c.id == bindparam("of_session"))
    .values(
        message_count=bindparam("new_messages"),
        tool_call_count=bindparam("new_calls"),
    )
)
_IDS = select(MESSAGES.c.id).order_by(MESSAGES.c.id)
_BUT_ID = [column for column in MESSAGES.columns if column.name != "id"]
_COPY = insert(MESSAGES).from_select(
    [column.name for column in _BUT_ID],
    select(*_BUT_ID).where(MESSAGES.c.id == bindparam("message_id")),
)
# What refers to the message goes along, its keys for search among it.
_TO_THE_END_ON_SERVER = text("UPDATE messages SET id = DEFAULT WHERE id = :message_id")


def new_message(
    message: Mapping[str, Any], *, now: float, on_server: bool = False
) -> dict[str, Any]:
    """Check and encode a message to be stored, all columns but the session's id; no database.

    Args:
        message: The fields of `records.NewMessage`; `timestamp` absent or None means `now`.
        now: Epoch seconds.
        on_server: It goes to a server: what the search index there needs comes with it.

    Raises:
        ValueError: An empty role, a time that is not finite, a number beyond 64 bits, a
            value that JSON cannot hold.
        TypeError: A field that is not known, or not what it must be.
    """
    if unknown := message.keys() - _FIELDS:
        msg = f"a message has no field {', '.join(sorted(map(str, unknown)))}"
        raise TypeError(msg)
    timestamp = message.get("timestamp")
    token_count = message.get("token_count")
    values: dict[str, Any] = {
        "role": checks.required_text("role", message.get("role")),
        "timestamp": checks.moment("timestamp", now if timestamp is None else timestamp),
        "token_count": None if token_count is None else checks.count("token_count", token_count),
    }
    values["content"], values["content_encoding"] = encode_content(message.get("content"))
    encoded: list[str] = []
    for name in ENCODED_TEXTS:
        text = checks.optional_text(name, message.get(name))
        if text is not None and not is_plain(text):
            text = encode_text(text)
            encoded.append(name)
        values[name] = text
    values["json_columns"] = ",".join(encoded) or None
    for name in _JSON:
        values[name] = encode_json(message.get(name))
    values["search_text"] = index_text(
        values["content"], values["content_encoding"], values["tool_name"], values["tool_calls"]
    )
    return with_keys(values) if on_server else values


def with_keys(row: dict[str, Any]) -> dict[str, Any]:
    """Add to an encoded message, unless it has it, what the search index of a server needs."""
    if "grams" in row:
        return row
    keys = keys_of_row(row["content"], row["content_encoding"], row["tool_name"], row["tool_calls"])
    return row | server_index.as_parameters(keys)


def calls_in(message: Mapping[str, Any]) -> int:
    """Count the tool calls a message makes; what a tool answers makes none."""
    calls = message.get("tool_calls")
    return len(calls) if isinstance(calls, list) and message.get("role") != "tool" else 0


def as_new_message(message: Mapping[str, Any], session_id: str) -> Mapping[str, Any]:
    """Give the fields of a message that may be a record of this very session's live ones.

    Raises:
        ValueError: It is a record of another session, or of a message that is not live.
        TypeError: It is no message.
    """
    if not isinstance(message, Mapping):
        msg = f"a message is a dict of its fields, not {type(message).__name__}"
        raise TypeError(msg)
    live = {"session_id": session_id, "active": True, "compacted": False}
    for name, value in live.items():
        if message.get(name, value) != value:
            msg = f"{name} of a message to be stored is {shown(value)}, not {shown(message[name])}"
            raise ValueError(msg)
    return {name: value for name, value in message.items() if name not in {"id", *live}}


def append(
    connection: Connection, session_id: str, rows: Sequence[Mapping[str, Any]], *, calls: int
) -> list[int]:
    """Store encoded messages at the end of a session, its counters with them; return the ids.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        counted = driver.execute(_COUNT_UP_SQLITE, (len(rows), calls, session_id))
    else:
        counted = connection.execute(
            _COUNT_UP,
            {"of_session": session_id, "more_messages": len(rows), "more_calls": calls},
        )
    if counted.rowcount == 0:
        raise SessionNotFoundError(
            session_id, f"no session has the id {session_id!r}; create it before appending to it"
        )
    return _insert(connection, session_id, rows)


def _insert(
    connection: Connection, session_id: str, rows: Iterable[Mapping[str, Any]]
) -> list[int]:
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        return [
            driver.execute(_INSERT_SQLITE, (session_id, *_encoded(row))).lastrowid for row in rows
        ]
    values = [{**with_keys({**row}), "session_id": session_id} for row in rows]
    if len(values) == 1:
        return [connection.execute(_INSERT, values[0]).scalar_one()]
    # With ids drawn before, all go to the server in one go, each a statement of its own.
    ids = list(connection.execute(_DRAW_IDS, {"count": len(values)}).scalars())
    if ids:
        connection.execute(
            _INSERT_MANY, [{**row, "id": each} for row, each in zip(values, ids, strict=True)]
        )
    return ids


def sync(
    connection: Connection,
    session_id: str,
    messages: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
) -> list[int]:
    """Append what a caller's whole list has beyond the stored one; return the new ids.

    Two messages are the same if role, content, tool calls and tool call id are, and so is
    whatever else of them the caller's copy names, save time and token count.

    Raises:
        SessionNotFoundError: There is no such session.
        ConflictError: The stored messages are not a prefix of the list.
    """
    sessions.hold(connection, session_id)
    stored = listing(connection, session_id)
    for position, record in enumerate(stored):
        if position == len(messages) or not _same(messages[position], record):
            held = "ends before it" if position == len(messages) else "differs from it"
            msg = (
                f"session {session_id} stores {len(stored)} messages and the given list "
                f"{held} at position {position + 1}; nothing was written. Load the session "
                "again, or replace_messages to mean it"
            )
            raise ConflictError(msg)
    beyond = len(stored)
    if beyond == len(messages):
        return []
    calls = sum(calls_in(message) for message in messages[beyond:])
    return append(connection, session_id, rows[beyond:], calls=calls)


def _same(given: Mapping[str, Any], stored: MessageRecord) -> bool:
    held = cast("Mapping[str, Any]", stored)
    always = ("role", "content", "tool_calls", "tool_call_id")
    named = (name for name in given if name not in {*always, "timestamp", "token_count"})
    return all(alike(given.get(name), held[name]) for name in (*always, *named))


def replace(
    connection: Connection, session_id: str, rows: Sequence[Mapping[str, Any]], *, calls: int
) -> list[int]:
    """Put encoded messages in the place of the live ones; return the new ids.

    Compacted and undone messages stay.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    sessions.hold(connection, session_id)
    connection.execute(delete(MESSAGES).where(MESSAGES.c.session_id == session_id, LIVE))
    _set_counts(connection, session_id, messages=len(rows), calls=calls)
    return _insert(connection, session_id, rows)


def clear(connection: Connection, session_id: str) -> int:
    """Delete every message of a session and set its counters to 0; return how many went.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    sessions.hold(connection, session_id)
    gone = connection.execute(delete(MESSAGES).where(MESSAGES.c.session_id == session_id))
    _set_counts(connection, session_id, messages=0, calls=0)
    return gone.rowcount


def delete_one(
    connection: Connection,
    session_id: str,
    message_id: int,
    rows: Sequence[Mapping[str, Any]],
    *,
    calls: int,
) -> bool:
    """Delete a live message, and if it was there store encoded ones; say whether it was."""
    live = (MESSAGES.c.session_id == session_id) & (MESSAGES.c.id == message_id) & LIVE
    found = connection.execute(
        delete(MESSAGES).where(live).returning(MESSAGES.c.role, MESSAGES.c.tool_calls)
    ).first()
    if found is None:
        return False
    role, tool_calls = found
    gone = calls_in({"role": role, "tool_calls": decode_json(tool_calls)})
    connection.execute(
        _COUNT_UP,
        {
            "of_session": session_id,
            "more_messages": len(rows) - 1,
            "more_calls": calls - gone,
        },
    )
    _insert(connection, session_id, rows)
    return True


def archive_and_compact(
    connection: Connection,
    session_id: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    through_id: int | None,
) -> int:
    """Let encoded messages stand for the live ones up to an id; return how many are compacted.

    What arrived after that id stays live and comes after the new messages: order is the
    order of ids, so those messages get new ones.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    sessions.hold(connection, session_id)
    live = (MESSAGES.c.session_id == session_id) & LIVE
    late: list[int] = []
    if through_id is not None:
        arrived = live & (MESSAGES.c.id > through_id)
        late = list(connection.execute(_IDS.where(arrived)).scalars())
        live &= MESSAGES.c.id <= through_id
    compacted = connection.execute(update(MESSAGES).where(live).values(active=0, compacted=1))
    _insert(connection, session_id, rows)
    for message_id in late:
        # Within the database, so that what is damaged in it stays as it is.
        if connection.dialect.name == "postgresql":
            connection.execute(_TO_THE_END_ON_SERVER, {"message_id": message_id})
        else:
            connection.execute(_COPY, {"message_id": message_id})
            connection.execute(delete(MESSAGES).where(MESSAGES.c.id == message_id))
    _recount(connection, session_id)
    return compacted.rowcount


def rewind(connection: Connection, session_id: str, message_id: int) -> int:
    """Undo the live messages from a user message on; return how many.

    Raises:
        MessageNotFoundError: The session has no such live message.
        ValueError: It is no user message.
    """
    sessions.held(connection, session_id)
    of_session = MESSAGES.c.session_id == session_id
    role = connection.execute(
        select(MESSAGES.c.role).where(of_session, LIVE, MESSAGES.c.id == message_id)
    ).scalar_one_or_none()
    if role is None:
        raise MessageNotFoundError(
            message_id, f"session {session_id!r} has no live message {message_id}"
        )
    if role != "user":
        msg = f"message {message_id} is of role {shown(role)}; rewind to a user message"
        raise ValueError(msg)
    undone = connection.execute(
        update(MESSAGES)
        .where(of_session, LIVE, MESSAGES.c.id >= message_id)
        .values(active=0, compacted=0)
    )
    connection.execute(
        update(SESSIONS)
        .where(SESSIONS.c.id == session_id)
        .values(rewind_count=SESSIONS.c.rewind_count + 1)
    )
    _recount(connection, session_id)
    return undone.rowcount


def make_live(connection: Connection, session_id: str, live: Collection[int]) -> None:
    """Make these messages of a session the live ones; any other live one is undone."""
    held = set(
        connection.execute(
            select(MESSAGES.c.id).where(MESSAGES.c.session_id == session_id, LIVE)
        ).scalars()
    )
    change = (
        update(MESSAGES)
        .where(MESSAGES.c.id == bindparam("of_message"), MESSAGES.c.session_id == session_id)
        .values(active=bindparam("is_active"), compacted=0)
    )
    changed = [(each, 0) for each in held.difference(live)]
    changed += [(each, 1) for each in set(live) - held]
    if changed:
        connection.execute(
            change, [{"of_message": each, "is_active": active} for each, active in changed]
        )
        _recount(connection, session_id)


def restore(connection: Connection, session_id: str, since_id: int) -> int:
    """Make the undone messages from an id on live again; return how many.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    sessions.hold(connection, session_id)
    restored = connection.execute(
        update(MESSAGES)
        .where(MESSAGES.c.session_id == session_id, UNDONE, MESSAGES.c.id >= since_id)
        .values(active=1)
    )
    _recount(connection, session_id)
    return restored.rowcount


def _recount(connection: Connection, session_id: str) -> None:
    """Let the counters of a session follow its live messages."""
    live = connection.execute(
        select(MESSAGES.c.role, MESSAGES.c.tool_calls).where(
            MESSAGES.c.session_id == session_id, LIVE
        )
    ).all()
    calls = sum(
        calls_in({"role": role, "tool_calls": decode_json(tool_calls)}) for role, tool_calls in live
    )
    _set_counts(connection, session_id, messages=len(live), calls=calls)


def _set_counts(connection: Connection, session_id: str, *, messages: int, calls: int) -> None:
    connection.execute(
        _SET_COUNTS, {"of_session": session_id, "new_messages": messages, "new_calls": calls}
    )
