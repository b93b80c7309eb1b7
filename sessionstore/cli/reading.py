"""The commands that read: list, show, search, stats. They open the store read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import click

from sessionstore.cli import paging
from sessionstore.cli.output import json_option, talk, write_json
from sessionstore.cli.store import opened, resolve_session, store_options
from sessionstore.errors import SessionNotFoundError
from sessionstore.filters import SessionFilter
from sessionstore.options import Count, asks_something, fields_of, filter_options, since, until
from sessionstore.records import SearchSort
from sessionstore.store import size_of
from sessionstore.wording import utc_offset_s


@click.command("list")
@click.option("--limit", default=20, show_default=True, type=Count(), help="At most this many.")
@click.option(
    "--sort",
    type=click.Choice(["active", "started"]),
    default="active",
    show_default=True,
    help="Latest activity first, or newest started first.",
)
@click.option("--all", "everything", is_flag=True, help="Include archived conversations.")
@click.option(
    "--include-children", is_flag=True, help="Include subagents and the earlier parts of chains."
)
@filter_options()
@json_option
@store_options
def list_sessions(
    *,
    limit: int,
    sort: str,
    everything: bool,
    include_children: bool,
    wanted: SessionFilter,
    as_json: bool,
) -> None:
    """List conversations, pinned ones first.

    Archived ones are left out: --archived lists only those, --all everything.
    """
    with opened() as db:
        found = db.list_sessions_rich(
            limit=limit + 1,
            include_children=include_children,
            order_by_last_active=sort == "active",
            include_archived=everything or wanted.archived is not None,
            pinned_first=True,
            **fields_of(wanted),
        )
        stored = bool(found) or db.session_count() > 0
    shown = found[:limit]
    if as_json:
        write_json(shown)
        return
    if shown:
        from sessionstore.cli import render

        render.sessions(shown)
    if len(found) > limit:
        talk("There are more; --limit shows them.")
    elif not stored:
        talk("No conversation is stored here.")
    elif not found:
        hint = "--all lists archived ones, --include-children those that agents started."
        talk("No conversation matches." if asks_something(wanted) else f"Nothing to list. {hint}")


@click.command()
@click.argument("session")
@click.option("--last", type=Count(least=1), metavar="N", help="Only the last N messages.")
@click.option(
    "--around",
    type=Count(least=1),
    metavar="ID",
    help="Only the message with this id and five before and after it.",
)
@click.option("--full", is_flag=True, help="Tool calls, tool results and reasoning in full.")
@click.option(
    "--pager/--no-pager",
    default=None,
    help="Use a pager, or do not. Default: for output longer than the terminal.",
)
@json_option
@store_options
def show(
    *,
    session: str,
    last: int | None,
    around: int | None,
    full: bool,
    pager: bool | None,
    as_json: bool,
) -> None:
    """Show a conversation.

    Tool calls and their results are folded to a line; --full unfolds them. SESSION is an id, a
    title, or the beginning of exactly one id.
    """
    if last is not None and around is not None:
        raise click.UsageError("--last and --around cannot be combined")
    with opened() as db:
        session_id = resolve_session(db, session)
        record = db.get_session(session_id)
        if around is not None:
            kept = db.get_messages_around(session_id, around)
            left_out = 0
        else:
            kept = db.get_messages(session_id, last=last)
            # Others may undo some between the two.
            left_out = max(db.message_count(session_id) - len(kept), 0) if last else 0
        end = db.get_compression_tip(session_id)
    if record is None:
        raise SessionNotFoundError(session_id, f"session {session_id} was deleted just now")
    if as_json:
        write_json({**record, "messages": kept})
        return
    from sessionstore.cli import render

    with paging.paged(wanted=pager):
        render.conversation(
            record,
            kept,
            goes_on_in=None if end == session_id else end,
            left_out=left_out,
            full=full,
            ids=around is not None,
        )


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--source", "sources", multiple=True, help="Only this source; may be repeated.")
@click.option("--role", "roles", multiple=True, help="Only this role; may be repeated.")
@click.option("--session", metavar="SESSION", help="Only this session.")
@click.option("--user", help="Only sessions of exactly this user.")
@click.option("--since", callback=since, metavar="TIME", help="Only messages since then.")
@click.option("--until", callback=until, metavar="TIME", help="Only messages up to then.")
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
    type=Count(),
    help="At most this many hits.",
)
@click.option("--offset", default=0, type=Count(), help="Leave out this many of the first hits.")
@json_option
@store_options
def search(
    *,
    query: tuple[str, ...],
    sources: Sequence[str],
    roles: Sequence[str],
    session: str | None,
    user: str | None,
    since: float | None,
    until: float | None,
    sort: str,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """Search the text of messages.

    A term is found wherever it stands, in any script, punctuation included; case and accents do
    not matter. "a phrase", begin*, AND, OR and NOT work as expected. Write -- before a QUERY
    that begins with a dash. TIME is an ISO date or time (local unless it names a zone), an age
    such as 7d, a year, or epoch seconds. To read what was said before and after a hit, give its
    id to `show SESSION --around ID`.
    """
    asked = " ".join(query)
    if since is not None and until is not None and since > until:
        raise click.UsageError("--since is later than --until: nothing could be found")
    with opened() as db:
        hits = db.search_messages(
            asked,
            source_filter=list(sources) or None,
            role_filter=list(roles) or None,
            session_id=None if session is None else resolve_session(db, session),
            user_id=user,
            since=since,
            until=until,
            sort=cast("SearchSort", sort),
            limit=limit + 1,
            offset=offset,
        )
    shown = hits[:limit]
    if as_json:
        write_json(shown)
        return
    if shown:
        from sessionstore.cli import render

        render.search_hits(shown)
    if len(hits) > limit:
        talk("There are more; --limit or --offset shows them.")
    elif not hits:
        talk("Nothing found." if asked.strip() else "Nothing found: the query is empty.")


@click.command()
@click.option(
    "--days",
    default=14,
    show_default=True,
    type=Count(),
    help="Show this many of the last days that have sessions.",
)
@json_option
@store_options
def stats(*, days: int, as_json: bool) -> None:
    """Count sessions, messages, tokens, costs and bytes.

    By source, by model and by day. COST is what was charged, ESTIMATE what was reckoned, and each
    may be unknown; a day adds up the first where it is known, else the second. Then the size of
    each part of the file: messages, the two search indexes, prompts, free pages.
    """
    with opened() as db:
        sums = db.usage_totals()
        by_day = db.usage_by_day(utc_offset_s())
        figures: dict[str, Any] = {
            "location": str(db.location),
            "size_bytes": size_of(db.location),
            **sums,
            "sources": {each["source"]: each for each in sums["sources"]},
            "models": db.usage_by_model(),
            "days": by_day[-days:] if days else [],
            "file": db.file_sizes(),
        }
    if as_json:
        write_json(figures)
        return
    from sessionstore.cli import tables

    tables.statistics(figures)
