"""The commands that read: list, show, search, stats. They open the store read-only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import click

from sessionstore.cli import output
from sessionstore.cli.output import talk, write_json
from sessionstore.cli.store import opened, resolve_session, store_options
from sessionstore.engine import Location
from sessionstore.errors import SessionNotFoundError
from sessionstore.records import SearchSort, SessionRecord
from sessionstore.store import SessionDB

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
# Sessions are summed in pages: a million of them need not be in memory at once.
_PAGE = 5000


@click.command("list")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(min=0), help="How many at most."
)
@click.option("--source", help="Only this source.")
@click.option(
    "--sort",
    type=click.Choice(["active", "started"]),
    default="active",
    show_default=True,
    help="Latest activity first, or newest started first.",
)
@click.option(
    "--include-children", is_flag=True, help="Also subagents and the earlier parts of a chain."
)
@_as_json
@store_options
def list_sessions(
    *, limit: int, source: str | None, sort: str, include_children: bool, as_json: bool
) -> None:
    """List conversations, one line each."""
    with opened() as db:
        found = db.list_sessions_rich(
            source=source,
            limit=limit + 1,
            include_children=include_children,
            order_by_last_active=sort == "active",
        )
    shown = found[:limit]
    if as_json:
        write_json(shown)
        return
    if shown:
        from sessionstore.cli import render

        render.sessions(shown)
    if len(found) > limit:
        talk("There are more; --limit shows them.")
    elif not found:
        talk("No conversation is stored here." if source is None else f"None of source {source}.")


@click.command()
@click.argument("session")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N messages.")
@click.option("--full", is_flag=True, help="Tool calls, tool results and reasoning in full.")
@_as_json
@store_options
def show(*, session: str, last: int | None, full: bool, as_json: bool) -> None:
    """Show a conversation.

    SESSION is an id, a title, or the beginning of one id only.
    """
    with opened() as db:
        session_id = resolve_session(db, session)
        record = db.get_session(session_id)
        messages = db.get_messages(session_id)
    if record is None:
        raise SessionNotFoundError(session_id, f"session {session_id} was deleted just now")
    kept = messages[-last:] if last else messages
    if as_json:
        write_json({**record, "messages": kept})
        return
    from sessionstore.cli import render

    render.conversation(record, kept, left_out=len(messages) - len(kept), full=full)


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--source", "sources", multiple=True, help="Only this source; may be repeated.")
@click.option("--role", "roles", multiple=True, help="Only this role; may be repeated.")
@click.option(
    "--since", callback=output.since, metavar="TIME", help="Only messages of then or later."
)
@click.option(
    "--until", callback=output.until, metavar="TIME", help="Only messages of then or earlier."
)
@click.option(
    "--sort",
    type=click.Choice(["rank", "newest", "oldest"]),
    default="rank",
    show_default=True,
    help="Best match first, or by age.",
)
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(min=0),
    help="How many hits at most.",
)
@_as_json
@store_options
def search(
    *,
    query: tuple[str, ...],
    sources: Sequence[str],
    roles: Sequence[str],
    since: float | None,
    until: float | None,
    sort: str,
    limit: int,
    as_json: bool,
) -> None:
    """Find messages by what they say.

    A term is found wherever it stands, in any script, punctuation and all; case and accents
    do not count. "a phrase", begin*, AND, OR and NOT do what they say. Write -- before a
    QUERY that begins with a dash. A TIME is an ISO date or time, local unless it names a
    zone, or epoch seconds.
    """
    with opened() as db:
        hits = db.search_messages(
            " ".join(query),
            source_filter=list(sources) or None,
            role_filter=list(roles) or None,
            since=since,
            until=until,
            sort=cast("SearchSort", sort),
            limit=limit,
        )
        trouble = db.search_index_trouble()
    if trouble:
        talk(f"Note: {trouble}")
    if as_json:
        write_json(hits)
    elif hits:
        from sessionstore.cli import render

        render.search_hits(hits)
    else:
        talk("Nothing found.")


@click.command()
@_as_json
@store_options
def stats(*, as_json: bool) -> None:
    """Count sessions, messages, sources, tokens and costs.

    An unknown cost is shown as unknown, and a sum says how many sessions it knows.
    """
    with opened() as db:
        figures = _figures(_every_session(db), messages=db.message_count(), location=db.location)
    if as_json:
        write_json(figures)
        return
    from sessionstore.cli import render

    render.statistics(figures)


def _every_session(db: SessionDB) -> Iterator[SessionRecord]:
    offset = 0
    while page := db.search_sessions(limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)


def _figures(
    sessions: Iterator[SessionRecord], *, messages: int, location: Location
) -> dict[str, Any]:
    count = 0
    tokens = dict.fromkeys(_COUNTERS, 0)
    sources: Counter[str] = Counter()
    tokens_of: Counter[str] = Counter()
    costs: dict[str, list[float]] = {"actual_cost_usd": [], "estimated_cost_usd": []}
    for session in sessions:
        count += 1
        source = session["source"] or "unknown"
        sources[source] += 1
        tokens_of[source] += session["input_tokens"] + session["output_tokens"]
        for name in _COUNTERS:
            tokens[name] += session[name]  # type: ignore[literal-required] # names from above
        for name, known in costs.items():
            if (cost := session[name]) is not None:  # type: ignore[literal-required] # as before
                known.append(cost)
    return {
        "location": str(location),
        "size_bytes": _size_of(location),
        "sessions": count,
        "messages": messages,
        "sources": {
            source: {"sessions": number, "total_tokens": tokens_of[source]}
            for source, number in sorted(sources.items(), key=lambda each: (-each[1], each[0]))
        },
        "total_tokens": tokens["input_tokens"] + tokens["output_tokens"],
        **tokens,
        "costs": {
            name: {"sum": sum(known) if known else None, "known_sessions": len(known)}
            for name, known in costs.items()
        },
    }


def _size_of(location: Location) -> int | None:
    """Add up the files of a store; a server keeps that to itself."""
    if location.path is None:
        return None
    total = location.path.stat().st_size
    log = Path(f"{location.path}-wal")
    return total + log.stat().st_size if log.exists() else total
