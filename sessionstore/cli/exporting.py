"""The command that writes sessions down: export. It opens the store read-only."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from sessionstore.cli.output import Failure, harmless_json, is_terminal, talk
from sessionstore.cli.progress import Progress
from sessionstore.cli.store import opened, resolve_sessions, store_options
from sessionstore.engine import make_private_folder
from sessionstore.export import FORMS, pieces
from sessionstore.export.text import file_name, safe
from sessionstore.filters import SessionFilter
from sessionstore.location import Location
from sessionstore.options import filter_options
from sessionstore.records import ExportedSession
from sessionstore.store import SessionDB
from sessionstore.upkeep.backup import files_of, temporary_beside
from sessionstore.wording import plural

Sessions = Iterator[ExportedSession]

# The others write all sessions into one.
_ONE_FILE_EACH = ("md", "qmd")
_SLASHES = (os.sep, os.altsep or os.sep)
_NEEDS_EXTRA = "the page needs three more packages: pip install 'sessionstore[html]'"


@dataclass(frozen=True, slots=True)
class _Shape:
    """How sessions are to leave."""

    form: str
    logical: bool
    live_only: bool
    redacted: bool

    def of(self, session: ExportedSession) -> ExportedSession:
        """Cut a session, and take its secrets out, as was asked."""
        from sessionstore.export import shaping

        if self.live_only:
            session = shaping.live_only(session)
        return shaping.redacted(session) if self.redacted else session


@click.command()
@click.option(
    "-o",
    "--output",
    "wanted_at",
    metavar="FILE",
    help="File or folder to write; stdout if not given.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    help="Format. Default: by the ending of FILE, else jsonl.",
)
@click.option(
    "--session",
    "names",
    multiple=True,
    metavar="SESSION",
    help="Only this session; may be repeated.",
)
@click.option(
    "--lineage",
    type=click.Choice(["single", "logical"]),
    default="single",
    show_default=True,
    help="Each session by itself, or a chain of continued sessions as one conversation.",
)
@click.option(
    "--redact/--no-redact",
    "wants_redaction",
    default=None,
    help="Remove secrets, or keep them. Default: keep, except for trace.",
)
@click.option("--live-only", is_flag=True, help="Leave out compacted and undone messages.")
@click.option("--force", is_flag=True, help="Replace existing .md and .qmd files.")
@filter_options()
@store_options
def export(
    *,
    wanted_at: str | None,
    form: str | None,
    names: Sequence[str],
    lineage: str,
    wants_redaction: bool | None,
    live_only: bool,
    force: bool,
    wanted: SessionFilter,
) -> None:
    """Write conversations as JSON Lines, Markdown or a page.

    jsonl has one session per line, complete, and can be imported again. md and qmd (Quarto) make
    one file per session in the folder that -o names; for a single session -o may name a .md or
    .qmd file. html is one self-contained page. trace has one message per line, as Claude Code
    writes them.

    Always UTF-8. FILE is replaced once all is written, and only its owner may read it. Secrets
    (keys, passwords, tokens) stay in unless --redact is given.
    """
    target = None if wanted_at in (None, "-") else Path(str(wanted_at))
    chosen = form or _form_of(target)
    is_folder = target is not None and (target.is_dir() or str(wanted_at).endswith(_SLASHES))
    if is_folder and chosen not in _ONE_FILE_EACH:
        raise click.UsageError(f"{chosen} is one file; name it, or add --format md for a folder")
    shape = _Shape(
        chosen,
        logical=lineage == "logical",
        live_only=live_only,
        redacted=chosen == "trace" if wants_redaction is None else wants_redaction,
    )
    with opened() as db:
        ids = _ids(db, names, wanted, logical=shape.logical)
        written: list[str] = []
        with Progress("sessions", len(ids)) as bar:
            sessions = _exported(db, ids, shape, bar, written)
            _write(db, sessions, len(ids), shape, target, force=force)
    if target is not None:
        told = plural(len(written), "conversation" if shape.logical else "session")
        talk(f"{told} {'is' if len(written) == 1 else 'are'} in {target}")
    if not ids:
        talk("No session matches.")
    elif not shape.redacted:
        talk("Note: secrets may be inside, such as keys and passwords; --redact takes them out.")


def _form_of(target: Path | None) -> str:
    ending = "" if target is None else target.suffix.lower().removeprefix(".")
    return {"htm": "html"}.get(ending, ending if ending in FORMS else "jsonl")


def _ids(
    db: SessionDB, names: Sequence[str], wanted: SessionFilter, *, logical: bool
) -> list[list[str]]:
    """List what is to be written: the sessions of each conversation, first to last."""
    if names:
        passing = None if wanted == SessionFilter() else frozenset(db.session_ids(wanted))
        ids = [each for each in resolve_sessions(db, names) if passing is None or each in passing]
    else:
        ids = db.session_ids(wanted, damaged=True)
    if not logical:
        return [[each] for each in ids]
    chains: dict[str, list[str]] = {}
    for session_id in ids:
        chain = db.get_chain(session_id)
        chains.setdefault(chain[-1], chain)
    return list(chains.values())


def _exported(
    db: SessionDB, ids: Iterable[Sequence[str]], shape: _Shape, bar: Progress, read: list[str]
) -> Iterator[tuple[str, ExportedSession]]:
    """Read one conversation after another, with the id it has; one that went is left out.

    The ids of those that were read are added to `read`.
    """
    from sessionstore.export import shaping

    for chain in ids:
        found = [part for each in chain if (part := db.export_session(each)) is not None]
        if found:
            read.append(chain[-1])
            yield chain[-1], shape.of(shaping.joined(found))
        bar.step()


def _write(
    db: SessionDB,
    sessions: Iterator[tuple[str, ExportedSession]],
    count: int,
    shape: _Shape,
    target: Path | None,
    *,
    force: bool,
) -> None:
    if target is not None:
        _refuse_store(db.location, target)
    if shape.form in _ONE_FILE_EACH and (count != 1 or (target is not None and _folder(target))):
        if target is None:
            raise click.UsageError(f"{shape.form} makes a file for each; name a folder with -o")
        if not _folder(target):
            several = plural(count, "session")
            raise click.UsageError(f"{target} is one file, for {several}; name a folder with -o")
        _write_files(sessions, shape, target, force=force)
        return
    text = _text((session for _, session in sessions), shape)
    if target is None:
        _write_to_stdout(text, as_json=shape.form in ("jsonl", "trace"))
        return
    if shape.form in _ONE_FILE_EACH:
        _refuse_existing(target, force=force)
    _write_to_file(text, target)


def _text(sessions: Sessions, shape: _Shape) -> Iterator[str]:
    try:
        return pieces(sessions, shape.form, note="secrets were taken out" if shape.redacted else "")
    except ModuleNotFoundError as error:
        raise Failure(_NEEDS_EXTRA) from error


def _folder(target: Path) -> bool:
    return target.is_dir() or target.suffix.lower() not in (".md", ".qmd")


def _write_files(
    sessions: Iterator[tuple[str, ExportedSession]], shape: _Shape, folder: Path, *, force: bool
) -> None:
    """Write a file for each session into a folder, which is made, mode 0700."""
    if folder.exists() and not folder.is_dir():
        raise Failure(f"{folder} is a file; name a folder with -o")
    make_private_folder(folder)
    for session_id, session in sessions:
        shown = _redacted(session_id) if shape.redacted else None
        target = folder / f"{file_name(session_id, shown)}.{shape.form}"
        _refuse_existing(target, force=force)
        _write_to_file(_text(iter([session]), shape), target)


def _redacted(text: str) -> str:
    from sessionstore.redact import redact

    return redact(text)


def _refuse_existing(target: Path, *, force: bool) -> None:
    if not force and (target.exists() or target.is_symlink()):
        raise Failure(f"{target} is there already; --force replaces it")


def _write_to_stdout(text: Iterator[str], *, as_json: bool) -> None:
    seen = is_terminal(sys.stdout)
    harmless = harmless_json if as_json else safe
    stdout = sys.stdout.buffer
    for piece in text:
        stdout.write(_encoded(harmless(piece) if seen else piece))
    stdout.flush()


def _encoded(text: str) -> bytes:
    # What JSON escapes already is whole; other formats write half a pair out, as they show it.
    return text.encode("utf-8", "backslashreplace")


def _refuse_store(location: Location, target: Path) -> None:
    if location.path is not None and Path(os.path.realpath(target)) in files_of(location.path):
        raise Failure(f"{target} is the store itself; name another file")


def _write_to_file(text: Iterator[str], target: Path) -> None:
    """Write beside the target and take its place at the end: a failure keeps the old one."""
    encoded = (_encoded(piece) for piece in text)
    try:
        special = not stat.S_ISREG(target.stat().st_mode)
    except FileNotFoundError:
        special = False
    if special:  # a pipe or a device is written to, never replaced
        with target.open("wb") as stream:
            stream.writelines(encoded)
        return
    place = Path(os.path.realpath(target))
    if not place.parent.is_dir():
        raise Failure(f"{place.parent} is not a folder; create it, or name another file")
    with temporary_beside(place) as made:
        with made.open("wb") as stream:
            stream.writelines(encoded)
        made.replace(place)
