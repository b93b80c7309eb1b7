"""The command that takes sessions in: import."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click

from sessionstore.cli.asking import dry_run_option
from sessionstore.cli.output import Failure, is_terminal, json_option, named, write_json
from sessionstore.cli.store import chosen_location, store_options
from sessionstore.errors import ImportRejectedError
from sessionstore.export.text import safe
from sessionstore.location import Location, locate
from sessionstore.options import Count
from sessionstore.readers.histories import HISTORIES
from sessionstore.readers.history import History
from sessionstore.readers.jsonl import LONGEST_MB, UnreadableError, documents
from sessionstore.readers.statefile import StateFile, is_state_file
from sessionstore.records import ImportReport
from sessionstore.store import SessionDB, open_at
from sessionstore.wording import plural

_PROGRESS_S = 0.1
_STDIN = "-"
_MB = 10**6


@click.command("import")
@click.argument("file", nargs=-1, required=True)
@click.option(
    "--from",
    "program",
    type=click.Choice(list(HISTORIES)),
    help="FILE is a history of this program, or a folder of them.",
)
@dry_run_option
@click.option(
    "--longest-line",
    "longest_mb",
    type=Count(least=1),
    default=LONGEST_MB,
    show_default=True,
    metavar="MB",
    help="Refuse files with longer lines; a line is held in memory.",
)
@json_option
@store_options
def import_(
    *, file: Sequence[str], program: str | None, dry_run: bool, longest_mb: int, as_json: bool
) -> None:
    """Import exports, state.db files and other agents' histories.

    FILE is what `export` wrote, or a state.db of any Hermes, newer ones included, or of this
    program; the content tells which. - reads an export from stdin. The files are not changed.
    Everything is imported, or nothing. A session that exists here already stays as it is; if
    the two differ that is reported, and the exit status is still 0. An absent store is
    created, an old one upgraded.

    An export is refused for its first bad line, which is named: one that is not JSON in UTF-8,
    repeats a field, is too long, or holds no session that can be stored.

    With --from, FILE is what that program keeps: ~/.claude/projects for claude-code,
    ~/.codex for codex, the database of an OpenAI Agents SQLiteSession or of a LangChain
    SQLChatMessageHistory. A session that exists here gains what is new in its file, so that
    importing again is all it takes to keep up.
    """
    location, longest = chosen_location(), longest_mb * _MB
    with ExitStack() as opened:
        sources = (
            [opened.enter_context(_source(name, location, longest)) for name in file]
            if program is None
            else [_of_history(name, program, location, longest) for name in file]
        )
        with _target(location, dry_run=dry_run) as db:
            try:
                report = db.import_sessions(
                    _counted(_all(sources)),
                    on_conflict="skip" if program is None else "extend",
                    dry_run=dry_run,
                )
            except ImportRejectedError as error:
                _say_where(error, sources)
        if as_json:
            told = [each.about for each in sources]
            write_json({**report, "dry_run": dry_run, "files": told})
        else:
            _show(report, sources, dry_run=dry_run)


@dataclass
class _Source:
    """A file to import.

    Attributes:
        name: As it was named.
        sessions: What is in it, to be gone through once.
        about: What can be said of it before.
        line: How the number of a session is told: it is a line of an export.
        history: The reader, where it is the history of another program.
        begun: Whether it is being read, or was.
        count: How many sessions of it went by.
    """

    name: str
    sessions: Iterator[Mapping[str, Any]]
    about: dict[str, Any]
    line: str
    begun: bool = field(default=False)
    count: int = field(default=0)
    history: History | None = field(default=None)


@contextmanager
def _source(name: str, target: Location, longest: int) -> Iterator[_Source]:
    about: dict[str, Any] = {"file": name, "kind": "export"}
    if name == _STDIN:
        yield _Source("stdin", _lines(sys.stdin.buffer, "stdin", longest), about, "line")
        return
    path = Path(name)
    if path.is_dir():
        raise Failure(f"{name} is a folder; name the files in it, or say --from which program")
    _refuse_the_store(path, target)
    if path.is_file() and is_state_file(path):
        with StateFile(path) as read:
            about = {
                "file": name,
                "kind": "state.db",
                "hermes_level": read.level,
                "unknown_columns": read.unknown_columns(),
                "unread_tables": read.unread_tables(),
                "left_out": read.left_out(),
            }
            yield _Source(name, read.sessions(), about, "session")
    else:
        with path.open("rb") as stream:
            yield _Source(name, _lines(stream, name, longest), about, "line")


def _of_history(name: str, program: str, target: Location, longest: int) -> _Source:
    path = Path(name)
    if not path.exists():
        raise Failure(f"{name} does not exist")
    _refuse_the_store(path, target)
    history = HISTORIES[program](path, longest=longest)
    about: dict[str, Any] = {"file": name, "kind": program}

    def sessions() -> Iterator[Mapping[str, Any]]:
        yield from history.sessions()
        about["unkept"] = dict(history.unkept.most_common())
        about["other_files"] = history.other_files
        about["unfinished"] = history.unfinished

    return _Source(name, sessions(), about, "session", history=history)


def _refuse_the_store(path: Path, target: Location) -> None:
    if target.path is not None and Path(os.path.realpath(path)) == target.path:
        raise Failure(f"{path} is the store itself; name another file, or another store")


def _lines(stream: BinaryIO, name: str, longest: int) -> Iterator[Mapping[str, Any]]:
    """Read an export; the number of a session is that of its line."""
    return (value for _, value in documents(stream, name, longest=longest))


def _all(sources: Sequence[_Source]) -> Iterator[Mapping[str, Any]]:
    for source in sources:
        source.begun = True
        for session in source.sessions:
            source.count += 1
            yield session


def _say_where(error: ImportRejectedError, sources: Sequence[_Source]) -> NoReturn:
    """Name the file and the place in it: each session is checked as soon as it is read."""
    said = str(error) if error.line is None else str(error).partition(": ")[2]
    source = next(each for each in reversed(sources) if each.begun)
    if isinstance(error, UnreadableError):
        where = f"{error.name}, line {error.line}"
    elif source.history is not None:
        where = source.history.current
    else:
        where = f"{source.name}, {source.line} {source.count}"
    raise Failure(f"{where}: {said}") from error


@contextmanager
def _target(location: Location, *, dry_run: bool) -> Iterator[SessionDB]:
    with ExitStack() as opened:
        path = location.path
        if dry_run and path is not None and not (path.exists() and path.stat().st_size):
            # What would come into a store that is made for it: the same as into an empty one.
            folder = opened.enter_context(tempfile.TemporaryDirectory())
            location = locate(Path(folder) / "empty.db")
            dry_run = False
        try:
            db = opened.enter_context(open_at(location, migrate=not dry_run))
            yield db
        except ValueError as error:
            raise Failure(str(error)) from error


def _counted(sessions: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Count on stderr what goes by, on one line, when somebody watches."""
    watched = is_terminal(sys.stderr)
    count, last = 0, 0.0
    for session in sessions:
        yield session
        count += 1
        if watched and (now := time.monotonic()) - last > _PROGRESS_S:
            last = now
            click.echo(f"\r{plural(count, 'session')} read", err=True, nl=False)
    if watched:
        click.echo(f"\r{plural(count, 'session')} read", err=True)


def _show(report: ImportReport, sources: Sequence[_Source], *, dry_run: bool) -> None:
    done = "would be imported" if dry_run else "imported"
    click.echo(
        f"{plural(len(report['imported']), 'session')} {done}, "
        f"{plural(report['messages'], 'message')}"
    )
    for ids, said in (
        (report["extended"], "here already, gained what is new"),
        (report["unchanged"], "here already, unchanged"),
        (report["conflicts"], "here already with other content, left as they are here"),
        (report["detached"], "without the parent they name, which is nowhere"),
    ):
        if ids:
            expected = ids is report["unchanged"] or ids is report["extended"]
            which = "" if expected else f": {named(ids)}"
            click.echo(f"{plural(len(ids), 'session')} {said}{which}")
    if report["retitled"]:
        titles = [f"{each} is {title!r}" for each, title in report["retitled"].items()]
        click.echo(
            f"{plural(len(titles), 'session')} with a title that is taken got the next number: "
            f"{named(titles)}"
        )
    for source in sources:
        for key, said, noun in (
            ("unknown_columns", "columns that are not known", "row"),
            ("unread_tables", "tables that are not read", "row"),
            ("left_out", "left out", "row"),
            ("unkept", "records that are not kept", "record"),
        ):
            if counts := source.about.get(key):
                rows = [f"{name} ({plural(count, noun)})" for name, count in counts.items()]
                click.echo(f"{safe(source.name)}: {said}: {named(rows)}")
        if others := source.about.get("other_files"):
            click.echo(f"{safe(source.name)}: {plural(others, 'file')} of other kinds not read")
        for file in source.about.get("unfinished", ()):
            click.echo(f"{safe(file)}: the last line is half written and left for the next time")
