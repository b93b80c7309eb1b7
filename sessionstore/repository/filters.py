"""`SessionFilter` as SQL: one meaning for list, export and prune."""

from __future__ import annotations

import functools
import sys
import unicodedata
from typing import Any

from sqlalchemy import Connection

from sessionstore.filters import SessionFilter


def activity(session: str) -> str:
    """Write the time of a session's latest message, or else of its start.

    Exactly the expression of the index ix_sessions_activity, so that it can serve.
    """
    return f"coalesce({session}.last_active_at, {session}.started_at)"


def conditions(
    connection: Connection, wanted: SessionFilter, session: str, *, now: float
) -> tuple[list[str], dict[str, Any]]:
    """Write the conditions under which the row `session` passes, and their parameters."""
    # Two counters of 64 bits have a sum of more; as floats they have it on either back end.
    tokens = f"(1.0 * coalesce({session}.input_tokens, 0) + coalesce({session}.output_tokens, 0))"
    cost = f"coalesce({session}.actual_cost_usd, {session}.estimated_cost_usd)"
    since, until = wanted.activity_window(now=now)
    chosen: list[tuple[str, str, Any]] = [
        ("source", f"{session}.source = :source", wanted.source),
        ("user_id", f"{session}.user_id = :user_id", wanted.user_id),
        ("since", f"{activity(session)} >= :since", since),
        ("until", f"{activity(session)} < :until", until),
    ]
    texts: dict[str, str] = {}
    for name, column in (
        ("title", "title"),
        ("end_reason", "end_reason"),
        ("model", "model"),
        ("provider", "billing_provider"),
    ):
        value = getattr(wanted, name)
        if value is None:
            continue
        # A text in the other normal form is the same text.
        forms = {
            f"{name}_{form.lower()}": unicodedata.normalize(form, value.casefold())
            for form in ("NFC", "NFD")
        }
        found = (_contains(connection, f"{session}.{column}", form) for form in forms)
        chosen.append((name, f"({' OR '.join(found)})", value))
        texts |= forms
    for what, measure in (
        ("messages", f"coalesce({session}.message_count, 0)"),
        ("tokens", tokens),
        ("cost", cost),
        ("tool_calls", f"coalesce({session}.tool_call_count, 0)"),
    ):
        for bound, sign in (("min", ">="), ("max", "<=")):
            name = f"{bound}_{what}"
            chosen.append((name, f"{measure} {sign} :{name}", getattr(wanted, name)))
    chosen += [
        (flag, f"{session}.{flag} = :{flag}", None if asked is None else int(asked))
        for flag, asked in (("archived", wanted.archived), ("pinned", wanted.pinned))
    ]
    meant = [(name, condition, value) for name, condition, value in chosen if value is not None]
    written = [condition for _, condition, _ in meant]
    if not wanted.include_open:
        written.append(f"{session}.ended_at IS NOT NULL")
    return written, {name: value for name, _, value in meant} | texts


def _contains(connection: Connection, column: str, parameter: str) -> str:
    """Write that a text column holds a casefolded parameter, literally (no LIKE pattern)."""
    if connection.dialect.name == "postgresql":
        return f"strpos({_casefold_on_server(column)}, :{parameter}) > 0"
    # As bytes: the driver fails a statement whose function is given text that is no UTF-8.
    return f"instr(casefold(CAST({column} AS BLOB)), :{parameter}) > 0"


def _casefold_on_server(column: str) -> str:
    """Write what Python's casefold() makes of a column.

    The server's lower() knows what the locale of its database knows, of "C" ASCII alone, and
    leaves ß as it is.
    """
    singles, longer = _foldings()
    folded = f"translate({column}, '{''.join(singles)}', '{''.join(singles.values())}')"
    for character, fold in longer.items():
        folded = f"replace({folded}, '{character}', '{fold}')"
    # Where each character is one byte all are ASCII.
    return (
        f"(CASE WHEN octet_length({column}) = length({column}) THEN lower({column}) "
        f"ELSE {folded} END)"
    )


@functools.cache
def _foldings() -> tuple[dict[str, str], dict[str, str]]:
    """Map the characters that casefold() changes: to one other, and to several."""
    changed = {
        character: fold
        for character in map(chr, range(sys.maxunicode + 1))
        if (fold := character.casefold()) != character
    }
    return (
        {character: fold for character, fold in changed.items() if len(fold) == 1},
        {character: fold for character, fold in changed.items() if len(fold) > 1},
    )
