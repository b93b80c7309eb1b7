"""The command that takes sessions in: import."""

from __future__ import annotations

import json
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

from sessionstore.cli.output import Count, Failure, is_terminal, one_line, plural, safe, write_json
from sessionstore.cli.store import chosen_location, store_options
from sessionstore.engine import Location
from sessionstore.errors import ImportRejectedError
from sessionstore.readers.statefile import StateFile, is_state_file
from sessionstore.records import ImportReport
from sessionstore.store import SessionDB

_PROGRESS_S = 0.1
_NAMED = 10
_SHOWN = 40
_STDIN = "-"
_MB = 10**6
# A JSON value takes up to twenty times its text in memory, so this stays below some 2 GB.
_LONGEST_LINE_MB = 100
_GZIP = b"\x1f\x8b"


@click.command("import")
@click.argument("file", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say what would come in, and write nothing.")
@click.option(
    "--longest-line",
    "longest_mb",
    type=Count(least=1),
    default=_LONGEST_LINE_MB,
    show_default=True,
    metavar="MB",
    help="Refuse an export with a longer line, that is session; it is held in memory.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@store_options
def import_(*, file: Sequence[str], dry_run: bool, longest_mb: int, as_json: bool) -> None:
    """Take in sessions from exports and state.db files.

    They stay as they are. FILE is what `export` wrote, or the state.db of any Hermes,
    newer ones too, or of this program; its content tells which. - is an export from
    stdin. All of them come in, or nothing does. A session that is here already stays as
    it is; where the two differ that is said, and the exit status is 0 all the same. An
    absent store is made, an old one upgraded.

    An export is refused for its first bad line, which is named: one that is no JSON in UTF-8
    or names a field twice, is too long, or holds no session that can be stored.
    """
    location = chosen_location()
    with ExitStack() as opened:
        sources = [opened.enter_context(_source(name, location, longest_mb * _MB)) for name in file]
        with _target(location, dry_run=dry_run) as db:
            try:
                report = db.import_sessions(_counted(_all(sources)), dry_run=dry_run)
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
        count: How many sessions of it went by.
    """

    name: str
    sessions: Iterator[Mapping[str, Any]]
    about: dict[str, Any]
    line: str
    count: int = field(default=0)


@contextmanager
def _source(name: str, target: Location, longest: int) -> Iterator[_Source]:
    about: dict[str, Any] = {"file": name, "kind": "export"}
    if name == _STDIN:
        yield _Source("stdin", _parsed(sys.stdin.buffer, "stdin", longest), about, "line")
        return
    path = Path(name)
    if path.is_dir():
        raise Failure(f"{name} is a folder; name the files in it")
    if target.path is not None and Path(os.path.realpath(path)) == target.path:
        raise Failure(f"{name} is the store itself; name another file, or another store")
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
            yield _Source(name, _parsed(stream, name, longest), about, "line")


class _UnreadableError(ImportRejectedError):
    """A line that is no JSON.

    Attributes:
        name: Of the file; `line` counts in it.
    """

    def __init__(self, name: str, line: int, said: str) -> None:
        super().__init__(f"line {line}: {said}; nothing was imported", line=line)
        self.name = name


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its fields; of two with one name a parser would drop one unsaid."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value] # None, so it goes on
        msg = f"an object has the field {one_line(twice)[:_SHOWN]!r} twice"
        raise _TwiceError(msg)
    return fields


class _TwiceError(ValueError):
    """An object names a field twice."""


_READER = json.JSONDecoder(object_pairs_hook=_once)


def _lines(stream: BinaryIO, name: str, longest: int) -> Iterator[tuple[int, bytes]]:
    """Number the lines, and hold no more of one than may be."""
    number = 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest and not line.endswith(b"\n"):
            said = f"it is longer than {longest // _MB:,} MB; --longest-line allows more"
            raise _UnreadableError(name, number, said)
        yield number, line


def _parsed(stream: BinaryIO, name: str, longest: int) -> Iterator[Mapping[str, Any]]:
    """Read JSON Lines; the number of a session is that of its line, so no line is passed over."""
    for number, line in _lines(stream, name, longest):
        if number == 1 and line.startswith(_GZIP):
            raise _UnreadableError(name, number, "this is compressed; unpack it first")
        try:
            yield _READER.decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except _TwiceError as error:
            raise _UnreadableError(name, number, str(error)) from error
        except RecursionError as error:
            raise _UnreadableError(name, number, "the JSON is nested too deep") from error
        except UnicodeDecodeError as error:
            raise _UnreadableError(name, number, f"byte {error.start + 1} is no UTF-8") from error
        except ValueError as error:
            if not line.strip() and not stream.read(1):
                return  # an empty line at the end
            said = (
                f"{error.msg} at {error.pos + 1}"
                if isinstance(error, json.JSONDecodeError)
                else error
            )
            raise _UnreadableError(name, number, f"this is no JSON ({said})") from error


def _all(sources: Sequence[_Source]) -> Iterator[Mapping[str, Any]]:
    for source in sources:
        for session in source.sessions:
            source.count += 1
            yield session


def _say_where(error: ImportRejectedError, sources: Sequence[_Source]) -> NoReturn:
    """Name the file, and the place in it: the import counts over all of them."""
    number, said = error.line or 0, str(error).partition(": ")[2]
    for source in sources:
        if isinstance(error, _UnreadableError):
            if error.name == source.name:
                break
        elif number <= source.count:
            break
        else:
            number -= source.count
    raise Failure(f"{source.name}, {source.line} {number}: {said}") from error


@contextmanager
def _target(location: Location, *, dry_run: bool) -> Iterator[SessionDB]:
    url = None if location.path else location.url.render_as_string(hide_password=False)
    with ExitStack() as opened:
        path = location.path
        if dry_run and path is not None and not (path.exists() and path.stat().st_size):
            # What would come into a store that is made for it: the same as into an empty one.
            path = Path(opened.enter_context(tempfile.TemporaryDirectory())) / "empty.db"
            dry_run = False
        try:
            db = opened.enter_context(SessionDB(path, url=url, migrate=not dry_run))
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
        (report["unchanged"], "here already, unchanged"),
        (report["conflicts"], "here already with other content, left as they are here"),
        (report["detached"], "without the parent they name, which is nowhere"),
    ):
        if ids:
            named = "" if ids is report["unchanged"] else f": {_named(ids)}"
            click.echo(f"{plural(len(ids), 'session')} {said}{named}")
    if report["retitled"]:
        titles = [f"{each} is {title!r}" for each, title in report["retitled"].items()]
        click.echo(
            f"{plural(len(titles), 'session')} with a title that is taken got the next number: "
            f"{_named(titles)}"
        )
    for source in sources:
        for key, said in (
            ("unknown_columns", "columns that are not known"),
            ("unread_tables", "tables that are not read"),
            ("left_out", "left out"),
        ):
            if counts := source.about.get(key):
                rows = [f"{name} ({plural(count, 'row')})" for name, count in counts.items()]
                click.echo(f"{safe(source.name)}: {said}: {_named(rows)}")


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(map(one_line, names[:_NAMED]))
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown
