"""Whole sessions, as they leave a store and enter another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from sqlalchemy import Connection, bindparam, delete, insert, select, text, update

from sessionstore import checks
from sessionstore.errors import ImportRejectedError, shown
from sessionstore.models import MESSAGES, MODEL_USAGE, SESSIONS
from sessionstore.records import (
    COSTS,
    COUNTERS,
    SESSION_COUNTERS,
    ExportedSession,
    ImportReport,
    MessageRecord,
    ModelUsageLine,
    SessionRecord,
)
from sessionstore.repository import (
    message_reading,
    message_writing,
    prompts,
    sessions,
    titles,
    usage,
)
from sessionstore.repository.dialects import one_at_a_time
from sessionstore.search import server_index

_AT_ONCE = 500

# Old stores hold titles that are longer than a new one may be; an index of PostgreSQL takes
# 2,704 bytes at most.
LONGEST_TITLE = 500
# Messages that come after need ids too: beyond 2**63 - 1 there are none.
_LARGEST_ID = 2**53

# Built once: compiling them costs more than running them.
_INSERT_SESSION, _INSERT_MESSAGE, _INSERT_USAGE = map(insert, (SESSIONS, MESSAGES, MODEL_USAGE))

_MESSAGE_STATES = ("active", "compacted")
# Kept by triggers, or told by another field: taken from a record, not into a row.
_DERIVED = ("last_active_at", "system_prompt_hash")


def exported(connection: Connection, session_id: str) -> ExportedSession | None:
    """Return a session with its messages of every state and what it used by model, or None.

    One whose id is no text, but bytes of other hands, is found by what is shown of it.
    """
    record = sessions.find(connection, session_id)
    if record is None:
        key = sessions.damaged_key(connection, session_id)
        if key is None:
            return None
        (damaged,) = sessions.find_many(connection, [key])
        held = sessions.id_at(key)
        return ExportedSession(
            **damaged,
            messages=message_reading.listing_at(connection, held),
            model_usage=usage.lines_of(connection, held),
        )
    return ExportedSession(
        **record,
        messages=message_reading.listing(connection, session_id, include_inactive=True),
        model_usage=usage.lines_of(connection, session_id),
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A session that was checked and encoded, ready for its rows.

    Attributes:
        session: Its columns, with `system_prompt` as text and `parent_session_id` as given.
        messages: Theirs, in order, each with the `id` it had or None.
        usage: Its lines by model.
    """

    session: dict[str, Any]
    messages: list[dict[str, Any]]
    usage: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Give what JSON can hold; `Prepared(**…)` takes it back."""
        return asdict(self)


def prepare(given: Any, line: int) -> Prepared:
    """Check and encode one exported session; no database.

    Raises:
        ImportRejectedError: It is no exported session.
    """
    try:
        return _prepared(given)
    except (ValueError, TypeError, KeyError) as error:
        said = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        msg = f"line {line}: {said}; nothing was imported"
        raise ImportRejectedError(msg, line=line) from error


def _prepared(given: Any) -> Prepared:
    if not isinstance(given, Mapping):
        msg = f"a session is an object, not {type(given).__name__}"
        raise TypeError(msg)
    known = {*SessionRecord.__annotations__, "messages", "model_usage"}
    _refuse_unknown("a session", given, known)
    session = sessions.new_session(
        given["id"],
        given["source"],
        started_at=given["started_at"],
        **{
            name: given.get(name)
            for name in ("model", "model_config", "system_prompt", "user_id", "relation")
        },
    )
    # As they are: old stores hold circles of parents, and titles that nobody cleaned.
    session["parent_session_id"] = checks.plain_text(
        "parent_session_id", given.get("parent_session_id")
    )
    session["title"] = _title(given.get("title"))
    for name in ("ended_at", *COSTS):
        value = given.get(name)
        session[name] = None if value is None else checks.moment(name, value)
    for name in SESSION_COUNTERS:
        session[name] = _count(name, given.get(name))
    for name in ("archived", "pinned"):
        session[name] = int(_flag(name, given.get(name, False)))
    for name in _SESSION_TEXTS:
        session[name] = checks.plain_text(name, given.get(name))
    rows = given["messages"]
    if not isinstance(rows, list):
        msg = "messages must be a list"
        raise TypeError(msg)
    lines = given.get("model_usage")
    prepared = [_prepared_message(row, session["id"]) for row in rows]
    # Written by hand, or by a program that does not count; 0 would be a figure.
    live = [row for row, made in zip(rows, prepared, strict=True) if made["active"]]
    if given.get("message_count") is None:
        session["message_count"] = len(live)
    if given.get("tool_call_count") is None:
        session["tool_call_count"] = sum(map(message_writing.calls_in, live))
    return Prepared(
        session,
        prepared,
        _seeded(session, prepared) if lines is None else _prepared_usage(lines),
    )


def _prepared_usage(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        msg = "model_usage must be a list"
        raise TypeError(msg)
    by_key: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in map(_prepared_line, given):
        key = tuple(line[name] for name in _USAGE_KEY)
        if key in by_key:
            msg = f"model_usage has two lines of model, provider and task {key}"
            raise ValueError(msg)
        by_key[key] = line
    return list(by_key.values())


_USAGE_KEY = ("model", "billing_provider", "task")


def _title(given: Any) -> str | None:
    title = checks.plain_text("title", given) or None
    if title is not None and len(title) > LONGEST_TITLE:
        msg = f"title too long: {len(title)} characters, at most {LONGEST_TITLE}"
        raise ValueError(msg)
    return title


def _count(name: str, given: Any) -> int:
    return 0 if given is None else checks.count(name, given)


_SESSION_TEXTS = (
    "end_reason",
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


def _prepared_message(given: Any, session_id: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        msg = f"a message is an object, not {type(given).__name__}"
        raise TypeError(msg)
    _refuse_unknown("a message", given, MessageRecord.__annotations__.keys())
    of = given.get("session_id", session_id)
    if of != session_id:
        msg = f"a message of session {shown(of)} stands in session {shown(session_id)}"
        raise ValueError(msg)
    apart = {"id", "session_id", *_MESSAGE_STATES}
    fields = {name: value for name, value in given.items() if name not in apart}
    row = message_writing.new_message(fields, now=checks.moment("timestamp", given["timestamp"]))
    row["active"] = int(_flag("active", given.get("active", True)))
    row["compacted"] = int(_flag("compacted", given.get("compacted", False)))
    if row["active"] and row["compacted"]:
        msg = "a message cannot be both active and compacted"
        raise ValueError(msg)
    message_id = given.get("id")
    # Old stores number as they like; what no new message could have is not kept.
    row["id"] = None if message_id is None else checks.count("id", message_id, least=-(2**63))
    return row


def _prepared_line(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        msg = f"a line of model_usage is an object, not {type(given).__name__}"
        raise TypeError(msg)
    _refuse_unknown("a line of model_usage", given, ModelUsageLine.__annotations__.keys())
    line: dict[str, Any] = {
        name: checks.plain_text(name, given.get(name)) or "" for name in _USAGE_KEY
    }
    for name in COUNTERS:
        line[name] = _count(name, given.get(name))
    for name in COSTS:
        value = given.get(name)
        line[name] = None if value is None else checks.moment(name, value)
    for name in ("first_seen", "last_seen"):
        line[name] = checks.moment(name, given[name])
    return line


def _seeded(session: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Make one line of the totals, for a session from before there were lines."""
    used = {name: session[name] for name in (*COUNTERS, *COSTS)}
    if all(value in (0, None) for value in used.values()):
        return []
    times = [row["timestamp"] for row in rows]
    return [
        {
            "model": session["model"] or "",
            "billing_provider": session["billing_provider"] or "",
            "task": "",
            **used,
            "first_seen": session["started_at"],
            "last_seen": max(times, default=session["started_at"]),
        }
    ]


def _refuse_unknown(what: str, given: Mapping[Any, Any], known: Any) -> None:
    if unknown := given.keys() - known:
        msg = f"{what} has no field {', '.join(sorted(map(str, unknown)))}"
        raise ValueError(msg)


def _flag(name: str, value: Any) -> bool:
    if value in (True, False):
        return bool(value)
    msg = f"{name} must be true or false, not {shown(value)}"
    raise TypeError(msg)


def store(
    connection: Connection, prepared: Callable[[], Iterator[Prepared]], *, extend: bool = False
) -> ImportReport:
    """Put prepared sessions in, and say what became of each.

    Args:
        connection: An open transaction that writes.
        prepared: Gives them from the first one on each time it is called.
        extend: Let a session that is here gain what the other copy of it has beyond.
    """
    report = ImportReport(
        imported=[], extended=[], unchanged=[], conflicts=[], detached=[], retitled={}, messages=0
    )
    one_at_a_time(connection, "import of sessions")
    late: list[tuple[str, str]] = []
    for each in prepared():
        session_id, parent_id = each.session["id"], each.session["parent_session_id"]
        if (held := _stored(connection, session_id)) is not None:
            became = _met(connection, each, held, report, extend=extend)
            if became is not None:
                report[became].append(session_id)
                continue
        title = _free_title(connection, each.session["title"])
        if title != each.session["title"]:
            report["retitled"][session_id] = cast("str", title)
        parent_is_here = parent_id is not None and sessions.exists(connection, parent_id)
        if parent_id is not None and not parent_is_here:
            late.append((session_id, parent_id))
        _insert_session(connection, each, title, parent_id if parent_is_here else None)
        report["imported"].append(session_id)
        report["messages"] += len(each.messages)
    # A parent may come after its child, or be the child itself.
    for session_id, parent_id in late:
        if sessions.exists(connection, parent_id):
            connection.execute(
                update(SESSIONS)
                .where(SESSIONS.c.id == session_id)
                .values(parent_session_id=parent_id)
            )
        else:
            report["detached"].append(session_id)
    return report


def _is_same(connection: Connection, given: Prepared, held: ExportedSession) -> bool:
    try:
        here = _prepared(held)
    except (ValueError, TypeError):
        return False  # what is here is damaged, and what can be imported is not
    return bool(_comparable(connection, given) == _comparable(connection, here))


def _met(
    connection: Connection,
    given: Prepared,
    held: ExportedSession,
    report: ImportReport,
    *,
    extend: bool,
) -> Literal["extended", "unchanged", "conflicts"] | None:
    """Say what becomes of a session that is here; None: it was deleted since it was read."""
    if not extend:
        return "unchanged" if _is_same(connection, given, held) else "conflicts"
    found = _beyond(connection, given, held)
    if isinstance(found, _Gain):
        # Looked at once more when nobody else can write to it.
        if not sessions.held(connection, held["id"]):
            return None
        found = _beyond(connection, given, exported(connection, held["id"]) or held)
    if isinstance(found, _Gain):
        report["messages"] += _extend(connection, held["id"], found)
        return "extended"
    return found


def _stored(connection: Connection, session_id: str) -> ExportedSession | None:
    return exported(connection, session_id) if sessions.exists(connection, session_id) else None


@dataclass(frozen=True, slots=True)
class _Gain:
    """What another copy of a session has beyond the one that is here.

    Attributes:
        values: The columns of the session that change.
        states: The messages whose state changes, each with its new one.
        messages: Those that are not here yet, in order.
        usage: All lines by model; None: they stay.
    """

    values: dict[str, Any]
    states: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    usage: list[dict[str, Any]] | None


def _beyond(
    connection: Connection, given: Prepared, held: ExportedSession
) -> _Gain | Literal["unchanged", "conflicts"]:
    """Say what another copy of a session has beyond the one that is here.

    The messages here must be those the other copy begins with, whatever became of them since;
    the other way round there is nothing to add. Then the states of all messages are those of
    the other copy, and so are the counters where they are higher; of the fields only those
    are taken that say nothing here.
    """
    try:
        here = _prepared(held)
    except (ValueError, TypeError):
        return "conflicts"  # what is here is damaged
    ours, theirs = list(map(_said, here.messages)), list(map(_said, given.messages))
    shorter = min(len(ours), len(theirs))
    if here.session["source"] != given.session["source"] or ours[:shorter] != theirs[:shorter]:
        return "conflicts"
    values = _gained(connection, here.session, given.session)
    states: list[dict[str, Any]] = []
    if len(theirs) > len(ours):
        states = [
            {"of_row": row["id"], **{f"new_{name}": new[name] for name in _MESSAGE_STATES}}
            for row, new in zip(here.messages, given.messages, strict=False)
            if any(row[name] != new[name] for name in _MESSAGE_STATES)
        ]
        values |= {name: given.session[name] for name in ("message_count", "tool_call_count")}
    if not values:
        return "unchanged"
    lines = _higher(here.usage, given.usage)
    return _Gain(
        values, states, given.messages[len(ours) :], None if lines == here.usage else lines
    )


def _extend(connection: Connection, session_id: str, gain: _Gain) -> int:
    """Add to a session what it gains; return how many messages came."""
    if gain.states:
        connection.execute(_SET_STATE, gain.states)
    _insert_messages(connection, [_without_id(row, session_id) for row in gain.messages])
    connection.execute(update(SESSIONS).where(SESSIONS.c.id == session_id).values(gain.values))
    if gain.usage is not None:
        connection.execute(delete(MODEL_USAGE).where(MODEL_USAGE.c.session_id == session_id))
        connection.execute(
            _INSERT_USAGE, [line | {"session_id": session_id} for line in gain.usage]
        )
    return len(gain.messages)


_SET_STATE = (
    update(MESSAGES)
    .where(MESSAGES.c.id == bindparam("of_row"))
    .values({name: bindparam(f"new_{name}") for name in _MESSAGE_STATES})
)


def _said(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("id", *_MESSAGE_STATES)}


def _without_id(row: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"} | {"session_id": session_id}


def _gained(
    connection: Connection, here: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Give the fields that a session gains from another copy of it."""
    values = {name: given[name] for name in COUNTERS if given[name] > here[name]}
    for name in ("model", "model_config", "relation"):
        if here[name] is None and given[name] is not None:
            values[name] = given[name]
    if here["title"] is None and given["title"] is not None:
        values["title"] = _free_title(connection, given["title"])
    parent_id = given["parent_session_id"]
    if here["parent_session_id"] is None and parent_id and sessions.exists(connection, parent_id):
        values["parent_session_id"] = parent_id
    return values


def _higher(
    here: Sequence[Mapping[str, Any]], given: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Join the lines of two copies: of each model the higher figures."""
    lines = {tuple(line[name] for name in _USAGE_KEY): dict(line) for line in here}
    for line in given:
        held = lines.setdefault(tuple(line[name] for name in _USAGE_KEY), dict(line))
        for name in (*COUNTERS, "last_seen"):
            held[name] = max(held[name], line[name])
    return list(lines.values())


def _insert_session(
    connection: Connection, new: Prepared, title: str | None, parent_id: str | None
) -> None:
    values = {name: value for name, value in new.session.items() if name != "system_prompt"}
    if new.session["system_prompt"] is not None:
        prompts.keep(connection, values["system_prompt_hash"], new.session["system_prompt"])
    connection.execute(_INSERT_SESSION, values | {"title": title, "parent_session_id": parent_id})
    session_id = values["id"]
    keep_ids = _are_free(connection, [row["id"] for row in new.messages])
    rows = [
        {
            name: value
            for name, value in (row | {"session_id": session_id}).items()
            if keep_ids or name != "id"
        }
        for row in new.messages
    ]
    if rows and keep_ids:
        reserve_ids(connection, cast("int", rows[-1]["id"]))
    _insert_messages(connection, rows)
    if new.usage:
        connection.execute(_INSERT_USAGE, [line | {"session_id": session_id} for line in new.usage])


def _insert_messages(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    if rows and connection.dialect.name == "sqlite":
        connection.execute(_INSERT_MESSAGE, rows)
    elif rows:
        connection.execute(
            server_index.storing(tuple(rows[0])), [message_writing.with_keys(row) for row in rows]
        )


_DRAWN = text("SELECT nextval(pg_get_serial_sequence('messages', 'id'))")
_DRAW_FROM = text("SELECT setval(pg_get_serial_sequence('messages', 'id'), :highest)")


def reserve_ids(connection: Connection, highest: int) -> None:
    """Let new messages have ids above this one; SQLite sees to that by itself.

    Ids that come along do not move the sequence of a server. It counts for others at once,
    committed or not; whoever drew one of these before has to draw again.
    """
    if connection.dialect.name == "postgresql":
        drawn = connection.execute(_DRAWN).scalar_one()
        # An id that was drawn and not used is a gap, and there are others.
        if drawn < highest:
            connection.execute(_DRAW_FROM, {"highest": highest})


def _are_free(connection: Connection, ids: Sequence[int | None]) -> bool:
    """Say whether messages may keep their ids: each has one, in order, that nobody has."""
    known = [each for each in ids if each is not None]
    if len(known) < len(ids) or known != sorted(set(known)):
        return False
    if known and not 1 <= known[0] <= known[-1] <= _LARGEST_ID:
        return False
    return not any(
        connection.execute(
            select(MESSAGES.c.id).where(MESSAGES.c.id.in_(ids[start : start + _AT_ONCE])).limit(1)
        ).first()
        for start in range(0, len(ids), _AT_ONCE)
    )


def _free_title(connection: Connection, title: str | None) -> str | None:
    if title is None or titles.find_by_title(connection, title) is None:
        return title
    return titles.next_in_lineage(connection, title)


def _comparable(connection: Connection, one: Prepared) -> Any:
    """Give what makes two copies of a session the same: all but ids and what import changes.

    That is a parent that is not there, and a title's number in its lineage.
    """
    session = {name: value for name, value in one.session.items() if name not in _DERIVED}
    parent_id = session["parent_session_id"]
    if parent_id is not None and not sessions.exists(connection, parent_id):
        session["parent_session_id"] = None
    if session["title"] is not None:
        session["title"] = titles.split_number(session["title"])[0]
    rows = [{name: value for name, value in row.items() if name != "id"} for row in one.messages]
    lines = sorted(one.usage, key=lambda line: [line[name] for name in _USAGE_KEY])
    return session, rows, lines
