"""The commands that change one session or several: rename, end, archive, pin, delete, prune."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import click

from sessionstore.cli.asking import confirm, dry_run_option, yes_option
from sessionstore.cli.output import Failure, json_option, named, talk, write_json
from sessionstore.cli.progress import Progress
from sessionstore.cli.store import opened, resolve_session, resolve_sessions, store_options
from sessionstore.export.text import one_line
from sessionstore.filters import SessionFilter
from sessionstore.options import asks_for_times, asks_something, fields_of, filter_options
from sessionstore.records import SkippedSession
from sessionstore.store import SessionDB
from sessionstore.wording import at_time, plural

_one = click.argument("session")
_several = click.argument("sessions", nargs=-1, required=True)
_sessions_dir = click.option(
    "--sessions-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Also delete <id>.json, <id>.jsonl and request_dump_<id>_*.json there.",
)
_DEFAULT_AGE_DAYS = 90
_DAY_S = 86400


class _Line(TypedDict):
    """What is told of a session that is to be deleted or archived."""

    id: str
    title: str | None
    source: str
    messages: int
    last_active: float


@click.command()
@_one
@click.argument("title")
@store_options
def rename(*, session: str, title: str) -> None:
    """Change the title of a session.

    An empty TITLE removes it. A title belongs to one session; one that is taken is refused, and
    its holder named.
    """
    with opened(to_write=True) as db:
        session_id = resolve_session(db, session)
        _require(db.set_session_title(session_id, title), session_id)
        kept = db.get_session_title(session_id)
    told = "no title" if kept is None else f"the title {one_line(kept)}"
    click.echo(f"{one_line(session_id)} has {told}")


@click.command()
@_several
@click.option("--reason", default="ended_by_hand", show_default=True, help="Why it ends.")
@store_options
def end(*, sessions: Sequence[str], reason: str) -> None:
    """End sessions; one that has already ended stays as it is."""
    with opened(to_write=True) as db:
        for session_id in resolve_sessions(db, sessions):
            ended = db.end_session(session_id, reason)
            click.echo(f"{one_line(session_id)} {'ended' if ended else 'had ended already'}")


@click.command()
@_several
@store_options
def reopen(*, sessions: Sequence[str]) -> None:
    """Reopen sessions that have ended."""
    with opened(to_write=True) as db:
        for session_id in resolve_sessions(db, sessions):
            _require(db.reopen_session(session_id), session_id)
            click.echo(f"{one_line(session_id)} is open")


def _flag_command(
    name: str, told: str, text: str, change: Callable[[SessionDB, str], bool]
) -> click.Command:
    """Make a command that sets a mark on the chains of some sessions."""

    @click.command(name, help=text)
    @_several
    @store_options
    def command(*, sessions: Sequence[str]) -> None:
        with opened(to_write=True) as db:
            for session_id in resolve_sessions(db, sessions):
                _require(change(db, session_id), session_id)
                click.echo(f"{one_line(session_id)} {told}")

    return command


unarchive = _flag_command(
    "unarchive",
    "is back",
    "Unarchive sessions: show them in lists again.\n\nEach with its whole chain.",
    lambda db, session_id: db.set_session_archived(session_id, False),
)
pin = _flag_command(
    "pin",
    "is pinned",
    "Pin sessions: listed first, never pruned.\n\nEach with its whole chain.",
    lambda db, session_id: db.set_session_pinned(session_id, True),
)
unpin = _flag_command(
    "unpin",
    "is pinned no more",
    "Unpin sessions.\n\nEach with its whole chain.",
    lambda db, session_id: db.set_session_pinned(session_id, False),
)


@click.command()
@click.argument("sessions", nargs=-1)
@filter_options(include_open=False)
@dry_run_option
@yes_option
@json_option
@store_options
def archive(
    *, sessions: Sequence[str], wanted: SessionFilter, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Archive sessions: hide them from lists.

    Search still finds them, and they are never pruned. Name them, or choose them by filters;
    each is archived with its whole chain. With filters it shows them and asks first, and leaves
    out chains whose latest part is open or was active later than the filters say.
    """
    if bool(sessions) == asks_something(wanted):
        raise click.UsageError("either name sessions or choose them by filters")
    with opened(to_write=not dry_run) as db:
        found = resolve_sessions(db, sessions) if sessions else db.session_ids(wanted)
        chains = _chains(db, found)
        if not sessions:
            # Also asked of the other parts: a conversation that goes on is in use.
            at_rest = SessionFilter(before=wanted.before, include_open=wanted.include_open)
            resting = set(db.session_ids(at_rest))
            left = [chain for chain in chains if not resting.issuperset(chain)]
            chains = [chain for chain in chains if resting.issuperset(chain)]
            if left:
                talk(f"{plural(len(left), 'conversation')} left that went on since")
        ids = [each for chain in chains for each in chain if not _of(db, each)["archived"]]
        if not as_json and (dry_run or not sessions):
            _show([_line(db, each) for each in ids])
        if not dry_run and ids:
            if not sessions:
                confirm(f"Put {plural(len(ids), 'session')} away?", yes=yes)
            with Progress("conversations", len(chains)) as bar:
                for chain in chains:
                    db.set_session_archived(chain[0], True)
                    bar.step()
    if as_json:
        write_json({"archived": ids, "dry_run": dry_run})
    else:
        click.echo(f"{plural(len(ids), 'session')} {_done('archived', dry_run=dry_run)}")


def _chains(db: SessionDB, session_ids: Sequence[str]) -> list[list[str]]:
    """Give the whole chains of sessions, each once."""
    chains: list[list[str]] = []
    known: set[str] = set()
    for each in session_ids:
        if each not in known:
            chains.append(db.get_chain(each, all_ends=True))
            known.update(chains[-1])
    return chains


@click.command()
@_several
@click.option(
    "--purge", is_flag=True, help="Then erase every trace of them from the file; see purge."
)
@_sessions_dir
@dry_run_option
@yes_option
@json_option
@store_options
def delete(
    *,
    sessions: Sequence[str],
    purge: bool,
    sessions_dir: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete sessions with their messages, after asking.

    Their children stay, without a parent.
    """
    with opened(to_write=not dry_run) as db:
        doomed = [_line(db, each) for each in resolve_sessions(db, sessions)]
        messages = sum(each["messages"] for each in doomed)
        if not as_json:
            _show(doomed)
        if not dry_run:
            confirm(f"Delete {_counted(doomed, messages)} for good?", yes=yes)
            with Progress("sessions", len(doomed)) as bar:
                for each in doomed:
                    _require(db.delete_session(each["id"], sessions_dir), each["id"])
                    bar.step()
            if purge:
                db.purge_deleted()
    if as_json:
        write_json({"deleted": doomed, "messages": messages, "dry_run": dry_run})
    else:
        click.echo(f"{_counted(doomed, messages)} {_done('deleted', dry_run=dry_run)}")


@click.command()
@filter_options()
@_sessions_dir
@dry_run_option
@yes_option
@json_option
@store_options
def prune(
    *,
    wanted: SessionFilter,
    sessions_dir: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete old sessions: ended, and inactive for 90 days.

    A time filter replaces the 90 days. Open, pinned and archived sessions stay, and are counted.
    It shows what would go, and what stays and why (--json names all of it), then asks. Children
    of deleted sessions stay, without a parent.
    """
    chosen = fields_of(wanted)
    if not asks_for_times(wanted):
        chosen["before"] = time.time() - _DEFAULT_AGE_DAYS * _DAY_S
    chosen["older_than"] = None
    with opened(to_write=not dry_run) as db:
        plan = db.prune_report(**chosen)
        if not as_json:
            _show([_line(db, each) for each in plan["pruned"]])
            _show_skipped(plan["skipped"])
        if dry_run or not plan["pruned"]:
            report = plan
        else:
            asked = f"Delete {_counted(plan['pruned'], plan['messages'])} for good?"
            confirm(asked, yes=yes)
            with Progress("sessions") as bar:
                report = db.prune_report(
                    **chosen,
                    sessions_dir=sessions_dir,
                    dry_run=False,
                    progress=bar.at,
                    among=plan["pruned"],
                )
    # Those that the plan names stay for a reason; these were to go and could not, as the store
    # has said by now.
    failed = [] if report is plan else report["skipped"]
    stayed = plan["skipped"] + failed
    if as_json:
        write_json(report | {"skipped": stayed, "dry_run": dry_run})
    else:
        if plan["pruned"]:
            gone = f"{_counted(report['pruned'], report['messages'])} "
            gone += _done("deleted", dry_run=dry_run)
        else:
            gone = "nothing to delete"
        click.echo(f"{gone}; {len(stayed):,} skipped" if stayed else gone)
    if failed:
        click.get_current_context().exit(1)


def _require(found: bool, session_id: str) -> None:
    if not found:
        raise Failure(f"session {session_id} was deleted just now")


def _of(db: SessionDB, session_id: str) -> Any:
    record = db.get_session(session_id)
    _require(record is not None, session_id)
    return record


def _line(db: SessionDB, session_id: str) -> _Line:
    record = _of(db, session_id)
    return _Line(
        id=session_id,
        title=record["title"],
        source=record["source"],
        messages=db.message_count(session_id, include_inactive=True),
        last_active=record["last_active_at"] or record["started_at"],
    )


def _show(lines: Sequence[_Line]) -> None:
    for each in lines:
        facts = (
            at_time(each["last_active"], "%Y-%m-%d"),
            one_line(each["source"] or "unknown"),
            plural(each["messages"], "message"),
        )
        line = f"{one_line(each['id'])}  {', '.join(facts)}  {one_line(each['title'] or '')}"
        click.echo(line.rstrip())


def _show_skipped(skipped: Sequence[SkippedSession]) -> None:
    by_reason: dict[str, list[str]] = {}
    for each in skipped:
        by_reason.setdefault(each["reason"], []).append(each["id"])
    for reason, ids in by_reason.items():
        stay = "stays" if len(ids) == 1 else "stay"
        talk(f"{plural(len(ids), 'session')} {stay}, {reason}: {named(ids)}")


def _counted(sessions: Sequence[Any], messages: int) -> str:
    return f"{plural(len(sessions), 'session')} with {plural(messages, 'message')}"


def _done(what: str, *, dry_run: bool) -> str:
    return f"would be {what}" if dry_run else what
