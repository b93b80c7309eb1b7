"""Tokens and cost: what a session used, added up, and the sums over many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from sqlalchemy import Connection, Double, ScalarSelect, func, insert, select, text, update
from sqlalchemy import cast as cast_sql

from sessionstore import checks
from sessionstore.codec import as_number, as_text
from sessionstore.models import MODEL_USAGE, SESSIONS
from sessionstore.records import (
    COSTS,
    COUNTERS,
    DayUsage,
    GroupUsage,
    ModelUsage,
    ModelUsageLine,
    SourceUsage,
    TokenTotals,
    UsageSums,
)
from sessionstore.repository import sessions

_TOKENS = tuple(name for name in COUNTERS if name.endswith("_tokens"))
_LATEST = ("cost_status", "cost_source", "pricing_version")
_FIRST = ("model", "billing_provider", "billing_base_url", "billing_mode")
_HELD = select(*(SESSIONS.c[name] for name in (*COUNTERS, *COSTS, *_LATEST, *_FIRST)))


def usage_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the figures of one call and leave out those that say nothing; no database.

    Args:
        given: Counters, costs and texts by column name; None says nothing.

    Raises:
        ValueError: A figure is negative, not finite or beyond 64 bits.
        TypeError: A figure is no number, or a text no text.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in COUNTERS:
            values[name] = checks.count(name, value)
        elif name in COSTS:
            values[name] = checks.cost(name, value)
        else:
            values[name] = checks.plain_text(name, value)
    return values


def record(
    connection: Connection,
    session_id: str,
    values: Mapping[str, Any],
    *,
    task: str,
    absolute: bool,
    now: float,
) -> None:
    """Add figures to a session that is held, or set them; what that adds goes to its model too.

    What is added to it is added here, so this transaction has to have the session to itself:
    see `sessions.held`; one that it has just made is held as well.

    A NULL counter counts as 0. A cost that is not given stays as it is, unknown or known.
    Texts of billing and the model fill only what is NULL; the status of a cost takes the
    latest. The lines by model then add up to the totals of the session.
    """
    before = connection.execute(_HELD.where(SESSIONS.c.id == session_id)).mappings().one()
    changes: dict[str, Any] = {}
    for name, value in values.items():
        known = before[name]
        if name in _FIRST:
            changes[name] = value if known is None else known
        elif name in _LATEST or absolute:
            changes[name] = value
        else:
            total = _figure(name, known) + value
            # Two figures may be storable and their sum not.
            check = checks.count if name in COUNTERS else checks.cost
            changes[name] = check(f"the sum of {name}", total)
    if not changes:
        return
    connection.execute(update(SESSIONS).where(SESSIONS.c.id == session_id).values(changes))
    more = {
        name: changes[name] - _figure(name, before[name])
        for name in (*COUNTERS, *COSTS)
        if name in changes
    }
    if any(more.values()) or any(name in more for name in COSTS):
        line = {
            "session_id": session_id,
            **{
                name: values.get(name) or as_text(before[name] or "")
                for name in ("model", "billing_provider")
            },
            "task": task,
        }
        _add_to_line(connection, line, more, now=now)


def _figure(name: str, held: object) -> Any:
    """Give a stored figure; what is unknown, or was damaged by other hands, counts as 0."""
    if name in COUNTERS:
        return int(as_number(held) or 0) if type(held) is not int else held
    return as_number(held) or 0


def _add_to_line(
    connection: Connection, line: Mapping[str, str], more: Mapping[str, Any], *, now: float
) -> None:
    key = [MODEL_USAGE.c[name] == value for name, value in line.items()]
    found = connection.execute(select(MODEL_USAGE).where(*key)).mappings().first()
    new: dict[str, Any] = {}
    for name, value in more.items():
        held = 0 if found is None else _figure(name, found[name])
        new[name] = max(held + value, 0)
        if held + value < 0:
            _take_from_others(connection, line, name, -(held + value))
    if found is None:
        if any(new.values()) or any(more[name] >= 0 for name in COSTS if name in more):
            connection.execute(
                insert(MODEL_USAGE).values(**line, **new, first_seen=now, last_seen=now)
            )
        return
    connection.execute(update(MODEL_USAGE).where(*key).values(**new, last_seen=now))


def _take_from_others(
    connection: Connection, line: Mapping[str, str], name: str, too_much: float
) -> None:
    """Lower a figure in the other lines of a session, that of the last used one first."""
    key = MODEL_USAGE.primary_key.columns
    others = connection.execute(
        select(*key, MODEL_USAGE.c[name])
        .where(MODEL_USAGE.c.session_id == line["session_id"], MODEL_USAGE.c[name] > 0)
        .order_by(MODEL_USAGE.c.last_seen.desc(), *key)
    ).all()
    for *parts, held in others:
        same = [column == part for column, part in zip(key, parts, strict=True)]
        if dict(zip(key.keys(), parts, strict=True)) == line:
            continue
        figure = _figure(name, held)
        taken = min(figure, too_much)
        connection.execute(update(MODEL_USAGE).where(*same).values({name: figure - taken}))
        too_much -= taken
        if too_much <= 0:
            return


# SQLite refuses a sum of whole numbers that needs more than 64 bits
# (https://www.sqlite.org/lang_aggfunc.html#sumunc), so the upper and the lower half of each
# number are summed apart and put together outside the database. That is exact for up to 2**31
# rows, and takes a figure that is no whole number for its whole part.
_HALF = 32


def _halves(number: str) -> str:
    """Write two result columns, the sums of the two halves of an SQL expression."""
    return f"coalesce(sum(({number}) >> {_HALF}), 0), coalesce(sum(({number}) & {2**_HALF - 1}), 0)"


def _whole(upper: Any, lower: Any) -> int:
    """Put together what the two columns of `_halves` gave; PostgreSQL gives decimal numbers."""
    return (int(upper) << _HALF) + int(lower)


def _tokens(halves_of_both: Sequence[Any]) -> int:
    return _whole(*halves_of_both[:2]) + _whole(*halves_of_both[2:])


_KEY = ("model", "billing_provider", "task")
_BY_MODEL = ", ".join(
    (
        *(f"u.{name}" for name in _KEY),
        *(_halves(f"u.{name}") for name in COUNTERS),
        *(f"sum(u.{name})" for name in COSTS),
        "count(DISTINCT u.session_id)",
        "min(u.first_seen)",
        "max(u.last_seen)",
    )
)


def by_model(
    connection: Connection, session_id: str | None, source: str | None
) -> list[ModelUsage]:
    """Add up what was used of each model, most tokens first; ties by name."""
    asked = f"SELECT {_BY_MODEL} FROM session_model_usage u"
    if source is not None:
        asked += " JOIN sessions s ON s.id = u.session_id AND s.source = :source"
    if session_id is not None:
        asked += " WHERE u.session_id = :session_id"
    given = {"source": source, "session_id": session_id}
    found = connection.execute(
        text(f"{asked} GROUP BY u.model, u.billing_provider, u.task"),
        {name: value for name, value in given.items() if value is not None},
    )
    return sorted(map(_model_usage, found), key=_most_tokens_first)


def _model_usage(row: Sequence[Any]) -> ModelUsage:
    keys, rest = map(as_text, row[: len(_KEY)]), row[len(_KEY) :]
    sums = [_whole(*rest[2 * at : 2 * at + 2]) for at in range(len(COUNTERS))]
    used = dict(zip(COUNTERS, sums, strict=True))
    *costs, session_count, first_seen, last_seen = rest[2 * len(COUNTERS) :]
    total = used["input_tokens"] + used["output_tokens"]
    seen = (as_number(each) or 0.0 for each in (first_seen, last_seen))
    values = (*keys, *sums, *costs, total, session_count, *seen)
    return cast("ModelUsage", dict(zip(ModelUsage.__annotations__, values, strict=True)))


def _most_tokens_first(used: ModelUsage) -> tuple[int, str, str, str]:
    return -used["total_tokens"], used["model"], used["billing_provider"], used["task"]


def lines_of(connection: Connection, session_id: str | ScalarSelect[Any]) -> list[ModelUsageLine]:
    """List what one session used, a line each for model, provider and task, in that order."""
    names = [column.name for column in MODEL_USAGE.columns if column.name != "session_id"]
    found = connection.execute(
        select(*(MODEL_USAGE.c[name] for name in names))
        .where(MODEL_USAGE.c.session_id == session_id)
        .order_by(MODEL_USAGE.c.model, MODEL_USAGE.c.billing_provider, MODEL_USAGE.c.task)
    )
    return [_line_of(dict(zip(names, row, strict=True))) for row in found]


def _line_of(held: dict[str, Any]) -> ModelUsageLine:
    """Mark what other hands put into a line as `sessions.record_of` does in a session."""
    for name in _KEY:
        held[name] = as_text(held[name])
    for name in COUNTERS:
        held[name] = _figure(name, held[name])
    for name in COSTS:
        held[name] = as_number(held[name])
    for name in ("first_seen", "last_seen"):
        held[name] = as_number(held[name]) or 0.0
    return cast("ModelUsageLine", held)


def top_sessions(connection: Connection, limit: int) -> list[TokenTotals]:
    """List the sessions that used most tokens, most first; ties by id."""
    total = cast_sql(func.coalesce(SESSIONS.c.input_tokens, 0), Double) + cast_sql(
        func.coalesce(SESSIONS.c.output_tokens, 0), Double
    )
    found = connection.execute(
        select(*sessions.ALL_COLUMNS).order_by(total.desc(), SESSIONS.c.id).limit(limit)
    )
    return [
        TokenTotals(
            id=used["id"],
            title=used["title"],
            source=used["source"],
            model=used["model"],
            input_tokens=used["input_tokens"],
            output_tokens=used["output_tokens"],
            # Not by the database: the sum may need more than 64 bits.
            total_tokens=used["input_tokens"] + used["output_tokens"],
        )
        for used in map(sessions.record_of, found)
    ]


# The actual cost before the estimate.
_COSTS_TOLD = COSTS[::-1]
_SUMS = ", ".join(
    (
        "count(*)",
        *(_halves(name) for name in _TOKENS),
        *(f"sum({name}), count({name})" for name in _COSTS_TOLD),
    )
)
_INPUT_AND_OUTPUT = f"{_halves('input_tokens')}, {_halves('output_tokens')}"
_USED = (
    f"count(*), {_halves('message_count')}, {_INPUT_AND_OUTPUT}, "
    "sum(coalesce(actual_cost_usd, estimated_cost_usd)), "
    "count(coalesce(actual_cost_usd, estimated_cost_usd))"
)

# The days that have a name: of the years 1 to 9999, in epoch seconds.
_FIRST_DAY = -62_135_596_800
_AFTER_LAST_DAY = 253_402_300_800


def totals(connection: Connection) -> UsageSums:
    """Add up what all sessions used, and count the live messages."""
    count, *figures = connection.execute(text(f"SELECT {_SUMS} FROM sessions")).one()
    tokens = {name: _whole(*figures[2 * at : 2 * at + 2]) for at, name in enumerate(_TOKENS)}
    costs = figures[2 * len(_TOKENS) :]
    by_source = connection.execute(
        text(f"SELECT source, count(*), {_INPUT_AND_OUTPUT} FROM sessions GROUP BY source")
    )
    sources: dict[str, SourceUsage] = {}
    for source, number, *used in by_source:
        name = as_text(source or "unknown")
        # Two that other hands made no text may look the same.
        line = sources.setdefault(name, SourceUsage(source=name, sessions=0, total_tokens=0))
        line["sessions"] += number
        line["total_tokens"] += _tokens(used)
    live = connection.execute(text("SELECT count(*) FROM messages WHERE active = 1"))
    return cast(
        "UsageSums",
        {
            "sessions": count,
            "messages": live.scalar_one(),
            "total_tokens": tokens["input_tokens"] + tokens["output_tokens"],
            **tokens,
            "costs": {
                name: {"sum": costs[2 * at], "known_sessions": costs[2 * at + 1]}
                for at, name in enumerate(_COSTS_TOLD)
            },
            "sources": sorted(
                sources.values(), key=lambda each: (-each["sessions"], each["source"])
            ),
        },
    )


def by_day(connection: Connection, offset_s: int) -> list[DayUsage]:
    """Add up tokens and cost by the day a session started, oldest first, before them unknown ones.

    Args:
        connection: An open one.
        offset_s: How far local time is ahead of UTC, in seconds.
    """
    if connection.dialect.name == "postgresql":
        day = "to_char(to_timestamp(trunc({})) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
    else:
        # As a whole number, or half a millisecond before midnight is rounded to the next day.
        day = "date(CAST({} AS INTEGER), 'unixepoch')"
    local = "(started_at + :offset)"
    # Beyond what either calendar holds a server ends the statement, and the two count otherwise.
    day = f"CASE WHEN {local} >= :first AND {local} < :end THEN {day.format(local)} END"
    found = connection.execute(
        text(f"SELECT {day}, {_USED} FROM sessions GROUP BY 1 ORDER BY 1 NULLS FIRST"),
        {"offset": offset_s, "first": _FIRST_DAY, "end": _AFTER_LAST_DAY},
    )
    return [
        DayUsage(
            day=named or "unknown",
            sessions=sessions,
            messages=_whole(*figures[:2]),
            total_tokens=_tokens(figures[2:6]),
            cost_usd=cost,
            known_sessions=known,
        )
        for named, sessions, *figures, cost, known in found
    ]


def by_field(connection: Connection, field: Literal["source", "model"]) -> list[GroupUsage]:
    """Add up what sessions used by their source or model, most tokens first.

    From the counters of the sessions, so that a large store answers as quickly as a small one.
    """
    found = connection.execute(text(f"SELECT {field}, {_USED} FROM sessions GROUP BY 1"))
    used = [
        GroupUsage(
            name=as_text(named or "unknown"),
            sessions=sessions,
            messages=_whole(*figures[:2]),
            total_tokens=_tokens(figures[2:6]),
            cost_usd=cost,
            known_sessions=known,
        )
        for named, sessions, *figures, cost, known in found
    ]
    return sorted(used, key=lambda each: (-each["total_tokens"], -each["sessions"], each["name"]))
