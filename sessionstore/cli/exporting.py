"""The command that writes sessions down: export. It opens the store read-only."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import click

from sessionstore.cli.output import Failure, harmless_json, is_terminal
from sessionstore.cli.store import opened, resolve_session, store_options
from sessionstore.engine import Location
from sessionstore.export import lines
from sessionstore.records import ExportedSession, SessionFilter
from sessionstore.store import SessionDB

_PROGRESS_S = 0.1


@click.command()
@click.option("-o", "--output", "wanted", metavar="FILE", help="Where to; without it to stdout.")
@click.option(
    "--session", "names", multiple=True, metavar="SESSION", help="Only this one; may be repeated."
)
@click.option("--source", help="Only this source.")
@store_options
def export(*, wanted: str | None, names: Sequence[str], source: str | None) -> None:
    """Write sessions as JSON Lines: one a line, its messages under "messages".

    Always UTF-8. A FILE is replaced when all is written, and only its owner may read it.
    """
    with opened() as db:
        chosen = list(dict.fromkeys(resolve_session(db, name) for name in names))
        sessions = _exported(db, chosen, source)
        total = len(chosen) if chosen else db.session_count(source)
        text = lines(_with_progress(sessions, total))
        if wanted is None or wanted == "-":
            _write_to_stdout(text)
            return
        target = Path(wanted)
        _refuse_store(db.location, target)
        _write_to_file(text, target)


def _exported(
    db: SessionDB, chosen: Sequence[str], source: str | None
) -> Iterator[ExportedSession]:
    if not chosen:
        yield from db.iter_export(SessionFilter(source=source))
        return
    for session_id in chosen:
        session = db.export_session(session_id)
        if session is not None and source in (None, session["source"]):
            yield session


def _with_progress(sessions: Iterator[ExportedSession], total: int) -> Iterator[ExportedSession]:
    """Count on stderr what goes by, on one line, when somebody watches."""
    watched = is_terminal(sys.stderr)
    count, last = 0, 0.0
    for session in sessions:
        yield session
        count += 1
        if watched and (now := time.monotonic()) - last > _PROGRESS_S:
            last = now
            click.echo(f"\r{count:,} of {total:,} sessions", err=True, nl=False)
    if watched:
        click.echo(f"\r{count:,} of {total:,} sessions", err=True)


def _write_to_stdout(text: Iterator[str]) -> None:
    seen = is_terminal(sys.stdout)
    stdout = sys.stdout.buffer
    for line in text:
        stdout.write((harmless_json(line) if seen else line).encode())
    stdout.flush()


def _refuse_store(location: Location, target: Path) -> None:
    if location.path is None:
        return
    files = {Path(f"{location.path}{side}") for side in ("", "-wal", "-shm", "-journal")}
    if Path(os.path.realpath(target)) in files:
        raise Failure(f"{target} is the store itself; name another file")


def _write_to_file(text: Iterator[str], target: Path) -> None:
    def write(stream: BinaryIO) -> None:
        stream.writelines(line.encode() for line in text)

    try:
        special = not stat.S_ISREG(target.stat().st_mode)
    except FileNotFoundError:
        special = False
    if special:  # a pipe or a device is written to, never replaced
        with target.open("wb") as stream:
            write(stream)
    else:
        _replace(Path(os.path.realpath(target)), write)


def _replace(target: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write beside the target and take its place at the end: a failure keeps the old one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
