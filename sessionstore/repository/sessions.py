"""Sessions: making, finding, ending, deleting."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Double,
    Insert,
    Row,
    ScalarSelect,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    select,
    update,
)

from sessionstore import checks
from sessionstore.codec import as_number, as_text, decode_json, encode_json
from sessionstore.errors import ConflictError, SessionNotFoundError, shown
from sessionstore.models import COMPRESSION_LOCKS, MESSAGES, SESSIONS, SYSTEM_PROMPTS
from sessionstore.records import RELATIONS, SESSION_COUNTERS, SessionRecord
from sessionstore.repository import chains, prompts, titles
from sessionstore.repository.dialects import insert_into
from sessionstore.rows_by_key import in_order

UNKNOWN_SOURCE = "unknown"
COMPRESSION = "compression"

_FLAGS = ("archived", "pinned")

_COLUMNS = tuple(column.name for column in SESSIONS.columns)
_NUMBERS = tuple(column.name for column in SESSIONS.columns if isinstance(column.type, Double))
_TEXTS = tuple(
    column.name
    for column in SESSIONS.columns
    if isinstance(column.type, Text) and column.name != "model_config"
)
# The prompt where the hash points, unless another program wrote one into the row itself.
_PROMPT = func.coalesce(
    SESSIONS.c.system_prompt,
    select(SYSTEM_PROMPTS.c.prompt)
    .where(SYSTEM_PROMPTS.c.hash == SESSIONS.c.system_prompt_hash)
    .scalar_subquery(),
)
ALL_COLUMNS = tuple(
    _PROMPT if column.name == "system_prompt" else column for column in SESSIONS.columns
)
_SELECT = select(*ALL_COLUMNS)


def record_of(row: Row[Any] | Sequence[Any]) -> SessionRecord:
    """Turn a row of every column, in the order of the mapped table, into a record.

    What other hands put in is marked: bytes are their text with U+FFFD, a figure that is none
    is 0 where there must be one, else None.
    """
    record = dict(zip(_COLUMNS, row, strict=True))
    record["model_config"] = decode_json(record["model_config"])
    for name in SESSION_COUNTERS:
        if type(record[name]) is not int:
            record[name] = 0
    for name in _FLAGS:
        record[name] = record[name] not in (0, None)
    for name in _NUMBERS:
        if type(record[name]) is not float:
            record[name] = as_number(record[name])
    for name in _TEXTS:
        if type(record[name]) is not str and record[name] is not None:
            record[name] = as_text(record[name])
    record["started_at"] = record["started_at"] or 0.0
    for name in ("id", "source"):
        record[name] = as_text(record[name])
    # Some programs write "" for no title.
    record["title"] = record["title"] or None
    return cast("SessionRecord", record)


def new_session(
    session_id: str,
    source: str,
    *,
    started_at: float,
    model: str | None = None,
    model_config: Any = None,
    system_prompt: str | None = None,
    user_id: str | None = None,
    title: str | None = None,
    parent_session_id: str | None = None,
    relation: str | None = None,
) -> dict[str, Any]:
    """Check, encode and hash a session to be made; no database.

    Raises:
        ValueError: Id or source is empty, the title too long, the time not finite, the
            relation none of `RELATIONS`, the session its own parent, or a value such that it
            cannot be stored.
        TypeError: A field is not what it must be.
    """
    if parent_session_id is not None and parent_session_id == session_id:
        msg = f"session {shown(session_id)} cannot be its own parent"
        raise ValueError(msg)
    if relation is not None and relation not in RELATIONS:
        msg = f"relation must be one of {', '.join(RELATIONS)}, not {shown(relation)}"
        raise ValueError(msg)
    prompt = checks.plain_text("system_prompt", system_prompt)
    return {
        "id": checks.required_text("session_id", session_id),
        "source": checks.required_text("source", source),
        "user_id": checks.plain_text("user_id", user_id),
        "model": checks.plain_text("model", model),
        "model_config": encode_json(model_config),
        "system_prompt": prompt,
        "system_prompt_hash": None if prompt is None else prompts.hash_of(prompt),
        "parent_session_id": checks.plain_text("parent_session_id", parent_session_id),
        "relation": relation,
        "started_at": checks.moment("started_at", started_at),
        "title": titles.sanitize_title(title),
    }


# What of a new session is stored by other statements than its own.
_APART = ("title", "system_prompt")


def create(connection: Connection, new: dict[str, Any]) -> str:
    """Make a session, or give an existing one what it lacks, and return its id.

    Raises:
        SessionNotFoundError: The parent does not exist.
        TitleTakenError: Another session holds the title.
        ConflictError: The parent descends from this very session.
    """
    values = {name: value for name, value in new.items() if name not in _APART}
    session_id: str = values["id"]
    parent_id = values["parent_session_id"]
    continued_before = chains.continued_by(connection, session_id)
    if parent_id is not None:
        if not exists(connection, parent_id):
            raise SessionNotFoundError(parent_id, f"no parent session has the id {parent_id!r}")
        # One that has a parent keeps it, and so no circle is closed.
        if _has_no_parent(connection, session_id) and session_id in chains.lineage(
            connection, parent_id
        ):
            msg = f"session {parent_id} descends from {session_id} and cannot be its parent"
            raise ConflictError(msg)
    if new["system_prompt"] is not None:
        prompts.keep(connection, new["system_prompt_hash"], new["system_prompt"])
    connection.execute(_upsert(connection.dialect.name), values)
    prompts.collect(connection, new["system_prompt_hash"])
    if not continued_before:
        _join_chain(connection, session_id)
    if new["title"] is not None and titles.get_title(connection, session_id) is None:
        titles.set_title(connection, session_id, new["title"])
    return session_id


def _has_no_parent(connection: Connection, session_id: str) -> bool:
    """Say whether a session is there and has no parent."""
    found = connection.execute(
        select(SESSIONS.c.id).where(
            SESSIONS.c.id == session_id, SESSIONS.c.parent_session_id.is_(None)
        )
    )
    return found.first() is not None


def _join_chain(connection: Connection, session_id: str) -> None:
    """Put a session away or pin it if it continues one that is: a chain is that as a whole."""
    continued = chains.continued_by(connection, session_id)[:1]
    flags = connection.execute(
        select(*(SESSIONS.c[flag] for flag in _FLAGS)).where(SESSIONS.c.id.in_(continued))
    ).first()
    on = {flag: 1 for flag, value in zip(_FLAGS, flags or (), strict=False) if value}
    if on:
        connection.execute(update(SESSIONS).where(SESSIONS.c.id == session_id).values(on))


@functools.cache
def _upsert(dialect: str) -> Insert:
    """Insert a session; one that is there keeps what it has and gains what it lacks."""
    made = insert_into(SESSIONS, dialect)
    gains: dict[str, ColumnElement[Any]] = {
        name: func.coalesce(SESSIONS.c[name], made.excluded[name])
        for name in ("user_id", "model", "model_config", "parent_session_id", "relation")
    }
    gains["system_prompt_hash"] = case(
        (
            SESSIONS.c.system_prompt.is_(None),
            func.coalesce(SESSIONS.c.system_prompt_hash, made.excluded.system_prompt_hash),
        ),
        else_=SESSIONS.c.system_prompt_hash,
    )
    gains["source"] = case(
        (SESSIONS.c.source == UNKNOWN_SOURCE, made.excluded.source), else_=SESSIONS.c.source
    )
    return made.on_conflict_do_update(index_elements=[SESSIONS.c.id], set_=gains)


# What a continuation has of the session it continues, unless it says otherwise.
_CARRIED = ("user_id", "model", "model_config")
_CARRIED_BILLING = ("billing_provider", "billing_base_url", "billing_mode")


def continue_from(
    connection: Connection, parent_id: str, new: dict[str, Any], *, now: float
) -> str:
    """End a session by compression and make its continuation; one there is stays the one.

    Args:
        connection: An open transaction that writes.
        parent_id: The session that goes on.
        new: See `new_session`; what it leaves open comes from the parent.
        now: Epoch seconds.

    Returns:
        The id of the continuation, whoever made it.

    Raises:
        SessionNotFoundError: There is no such parent.
        ConflictError: The new id is another session's.
        TitleTakenError: Another session holds the title.
    """
    hold(connection, parent_id)
    parent = connection.execute(select(SESSIONS).where(SESSIONS.c.id == parent_id)).one()
    made = chains.next_in_chain(connection, parent_id)
    if made is not None:
        return made
    if exists(connection, new["id"]):
        msg = f"session {new['id']} exists and does not continue {parent_id}; choose another id"
        raise ConflictError(msg)
    end(connection, parent_id, COMPRESSION, now)
    carried = {name: getattr(parent, name) for name in _CARRIED if new[name] is None}
    if new["source"] == UNKNOWN_SOURCE:
        carried["source"] = parent.source
    if new["title"] is None and parent.title is not None:
        carried["title"] = titles.next_in_lineage(connection, parent.title)
    ended_at = now if parent.ended_at is None else parent.ended_at
    carried["started_at"] = max(new["started_at"], ended_at)
    create(connection, new | carried)
    billing = {name: getattr(parent, name) for name in _CARRIED_BILLING}
    connection.execute(update(SESSIONS).where(SESSIONS.c.id == new["id"]).values(billing))
    return str(new["id"])


def exists(connection: Connection, session_id: str) -> bool:
    """Say whether there is such a session."""
    found = connection.execute(select(SESSIONS.c.id).where(SESSIONS.c.id == session_id))
    return found.first() is not None


def require(connection: Connection, session_id: str) -> None:
    """Make sure that there is such a session.

    Raises:
        SessionNotFoundError: There is none.
    """
    if not exists(connection, session_id):
        raise SessionNotFoundError(session_id)


def exchange_config(
    connection: Connection, session_id: str, before: str | None, after: str | None
) -> None:
    """Set a session's config, encoded, that has to be `before` until now.

    Raises:
        SessionNotFoundError: There is no such session.
        ConflictError: It is another.
    """
    of_session = SESSIONS.c.id == session_id
    held = connection.execute(
        select(SESSIONS.c.model_config).where(of_session).with_for_update()
    ).first()
    if held is None:
        raise SessionNotFoundError(session_id)
    (stored,) = held
    # What another program wrote may be spaced otherwise.
    if stored != before and (
        None in (stored, before) or decode_json(stored) != decode_json(before)
    ):
        msg = (
            f"the config of session {session_id} was changed meanwhile; nothing was written. "
            "Read it again"
        )
        raise ConflictError(msg)
    if stored != after:
        connection.execute(update(SESSIONS).where(of_session).values(model_config=after))


def hold(connection: Connection, session_id: str) -> None:
    """Make sure that there is such a session, and keep other writers off it until the end.

    On a server each transaction that reads before it writes begins so, and those on one
    session follow one another; SQLite has one writer at a time and ignores the lock.

    Raises:
        SessionNotFoundError: There is none.
    """
    if not held(connection, session_id):
        raise SessionNotFoundError(session_id)


def held(connection: Connection, session_id: str) -> bool:
    """Do what `hold` does, and say whether there is such a session."""
    return connection.execute(_HELD, {"of_session": session_id}).first() is not None


# Whoever only refers to the row, as a new child does, goes on beside it.
_HELD = (
    select(SESSIONS.c.id)
    .where(SESSIONS.c.id == bindparam("of_session"))
    .with_for_update(key_share=True)
)
# Nobody may refer to a row that is about to go.
_HELD_TO_DELETE = (
    select(SESSIONS.c.id).where(SESSIONS.c.id == bindparam("of_session")).with_for_update()
)


def find(connection: Connection, session_id: str) -> SessionRecord | None:
    """Return one session, or None."""
    row = connection.execute(_SELECT.where(SESSIONS.c.id == session_id)).first()
    return None if row is None else record_of(row)


def row_key(connection: Connection, session: str) -> str:
    """Write what finds the row `session` again, whatever other hands made of its id.

    SQLite keeps bytes, broken UTF-8 and NULL as an id; only the number of a row is sound.
    """
    return f"{session}.{'id' if connection.dialect.name == 'postgresql' else 'rowid'}"


def find_many(connection: Connection, keys: Sequence[Any]) -> list[SessionRecord]:
    """List the sessions of these keys (see `row_key`), in their order."""
    key: ColumnElement[Any] = literal_column(row_key(connection, "sessions"))
    found = connection.execute(select(key, *ALL_COLUMNS).where(is_one_of(connection, keys)))
    records = {row[0]: record_of(row[1:]) for row in found}
    return in_order(connection, records, keys)


def damaged_key(connection: Connection, shown: str) -> int | None:
    """Find the row whose id is no text and is shown so (see `as_text`); its key, or None."""
    if "\ufffd" not in shown or connection.dialect.name != "sqlite":
        return None
    ids = connection.exec_driver_sql("SELECT rowid, CAST(id AS BLOB) FROM sessions")
    return next((key for key, held in ids if as_text(held) == shown), None)


def id_at(key: int) -> ScalarSelect[Any]:
    """Give the id of the row of a key as the database has it, for a condition."""
    return select(SESSIONS.c.id).where(literal_column("sessions.rowid") == key).scalar_subquery()


def is_one_of(connection: Connection, keys: Sequence[Any]) -> ColumnElement[bool]:
    """Say that a session's key is one of these, however many.

    They are one parameter: SQLite takes at most 32,766 (https://www.sqlite.org/limits.html).
    """
    if connection.dialect.name == "postgresql":
        return SESSIONS.c.id == func.any(bindparam("keys", list(keys), ARRAY(Text)))
    listed = func.json_each(json.dumps(list(keys))).table_valued("value")
    return literal_column(row_key(connection, "sessions")).in_(select(listed.c.value))


def end(connection: Connection, session_id: str, end_reason: str, ended_at: float) -> bool:
    """End a session unless it has ended; say whether this call did it."""
    done = connection.execute(
        update(SESSIONS)
        .where(SESSIONS.c.id == session_id, SESSIONS.c.ended_at.is_(None))
        .values(ended_at=ended_at, end_reason=end_reason)
    )
    return done.rowcount > 0


def reopen(connection: Connection, session_id: str) -> bool:
    """Open a session again; say whether there is such a session."""
    done = connection.execute(
        update(SESSIONS).where(SESSIONS.c.id == session_id).values(ended_at=None, end_reason=None)
    )
    return done.rowcount > 0


def update_system_prompt(connection: Connection, session_id: str, prompt: str | None) -> None:
    """Replace the system prompt.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    hold(connection, session_id)
    before = prompts.hash_in(connection, session_id)
    after = None if prompt is None else prompts.hash_of(prompt)
    if prompt is not None and after is not None:
        prompts.keep(connection, after, prompt)
    connection.execute(
        update(SESSIONS)
        .where(SESSIONS.c.id == session_id)
        .values(system_prompt=None, system_prompt_hash=after)
    )
    prompts.collect(connection, before)


def find_ids(connection: Connection, prefix: str) -> list[str]:
    """List the ids that begin with a text, ascending by code point; case counts.

    Compared with substr and not LIKE, so that `%` and `_` are ordinary characters.
    """
    begins = func.substr(SESSIONS.c.id, 1, len(prefix)) == prefix
    in_range = SESSIONS.c.id >= prefix
    found = connection.execute(
        select(SESSIONS.c.id).where(and_(in_range, begins)).order_by(SESSIONS.c.id)
    )
    return [each for each in found.scalars() if isinstance(each, str)]


def resolve_id(connection: Connection, text: str) -> str | None:
    """Return the session that has exactly this id, or the only one whose id begins so."""
    if exists(connection, text):
        return text
    matches = find_ids(connection, text)
    return matches[0] if len(matches) == 1 else None


def sources(connection: Connection) -> dict[str, int]:
    """Count the sessions of every source that occurs, most frequent first."""
    counted = func.count().label("sessions")
    found = connection.execute(
        select(SESSIONS.c.source, counted)
        .group_by(SESSIONS.c.source)
        .order_by(counted.desc(), SESSIONS.c.source)
    )
    counts: dict[str, int] = {}
    for source, number in found:
        named = as_text(source)
        counts[named] = counts.get(named, 0) + number
    return counts


def delete_with_messages(connection: Connection, session_id: str) -> int | None:
    """Delete a session with its messages and all that is only about it.

    Its children lose their parent and keep, written down, what they were to it.

    Returns:
        How many messages went, or None if there is no such session.
    """
    if connection.execute(_HELD_TO_DELETE, {"of_session": session_id}).first() is None:
        return None
    chains.write_down_relations(connection, session_id)
    connection.execute(
        update(SESSIONS)
        .where(SESSIONS.c.parent_session_id == session_id)
        .values(parent_session_id=None)
    )
    prompt = prompts.hash_in(connection, session_id)
    gone = connection.execute(delete(MESSAGES).where(MESSAGES.c.session_id == session_id))
    connection.execute(
        delete(COMPRESSION_LOCKS).where(COMPRESSION_LOCKS.c.session_id == session_id)
    )
    connection.execute(delete(SESSIONS).where(SESSIONS.c.id == session_id))
    prompts.collect(connection, prompt)
    return gone.rowcount


def set_flag(connection: Connection, session_id: str, flag: str, on: bool) -> bool:
    """Archive or pin the whole chain of a session, or undo it; say whether it exists."""
    chain = chains.whole_chain(connection, session_id)
    if not chain:
        return False
    connection.execute(update(SESSIONS).where(SESSIONS.c.id.in_(chain)).values({flag: int(on)}))
    return True
