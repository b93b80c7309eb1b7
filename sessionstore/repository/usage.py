"""Tokens and cost: what a session used, added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select, update

from sessionstore.models import SESSIONS
from sessionstore.records import TokenTotals
from sessionstore.repository import checks

_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
_COSTS = ("estimated_cost_usd", "actual_cost_usd")
_LATEST = ("cost_status", "cost_source", "pricing_version")
_FIRST = ("model", "billing_provider", "billing_base_url", "billing_mode")


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
        if name in _COUNTERS:
            values[name] = checks.count(name, value)
        elif name in _COSTS:
            values[name] = checks.cost(name, value)
        else:
            values[name] = checks.plain_text(name, value)
    return values


def record(
    connection: Connection, session_id: str, values: Mapping[str, Any], *, absolute: bool
) -> None:
    """Add figures to a session that exists, or set them.

    A NULL counter counts as 0. A cost that is not given stays
    as it is, unknown or known. Texts of billing and the model fill only what is NULL; the
    status of a cost takes the latest.
    """
    changes: dict[str, Any] = {}
    for name, value in values.items():
        column = SESSIONS.c[name]
        if name in _FIRST:
            changes[name] = func.coalesce(column, value)
        elif name in _LATEST or absolute:
            changes[name] = value
        else:
            changes[name] = func.coalesce(column, 0) + value
    if changes:
        connection.execute(update(SESSIONS).where(SESSIONS.c.id == session_id).values(changes))


def top_sessions(connection: Connection, limit: int) -> list[TokenTotals]:
    """List the sessions that used most tokens, most first; ties by id."""
    input_tokens = func.coalesce(SESSIONS.c.input_tokens, 0)
    output_tokens = func.coalesce(SESSIONS.c.output_tokens, 0)
    total = input_tokens + output_tokens
    found = connection.execute(
        select(
            SESSIONS.c.id,
            SESSIONS.c.title,
            SESSIONS.c.source,
            SESSIONS.c.model,
            input_tokens,
            output_tokens,
            total,
        )
        .order_by(total.desc(), SESSIONS.c.id)
        .limit(limit)
    )
    return [
        TokenTotals(
            id=row[0],
            title=row[1],
            source=row[2],
            model=row[3],
            input_tokens=row[4],
            output_tokens=row[5],
            total_tokens=row[6],
        )
        for row in found
    ]
