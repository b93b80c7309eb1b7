"""Save what can be read of a damaged file into a new store.

The rows are read page by page, put into a file of the revision they are of, and taken to the
newest one by the same history as any old file.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from sqlalchemy import Connection

from sessionstore import schema, search
from sessionstore.engine import open_database
from sessionstore.errors import StoreBusyError, StoreUnavailableError
from sessionstore.location import Location, locate
from sessionstore.models import HERMES_LEVEL, SCHEMA_REVISION
from sessionstore.reporting import reporting_errors
from sessionstore.schema import SchemaStatus, check_supported
from sessionstore.schema.status import KNOWN
from sessionstore.settings import StoreSettings
from sessionstore.upkeep.backup import SIDE_FILES, put_in_place, temporary_beside, verify
from sessionstore.upkeep.derived import repair
from sessionstore.upkeep.refill import Progress, refill
from sessionstore.upkeep.salvage import Salvage

# What a column tells of the revision of a file whose own word for it is lost, newest first. A
# revision without a column of its own leaves rows as they are.
_TELLS = (
    ("0020", "messages", "platform_message_id"),
    ("0019", "delivery_obligations", "delivery_id"),
    ("0018", "session_model_usage", "session_id"),
    ("0017", "sessions", "last_active_at"),
    ("0016", "sessions", "relation"),
    ("0015", "sessions", "archived"),
    ("0014", "messages", "active"),
    ("0013", "messages", "content_encoding"),
    ("0012", "sessions", "system_prompt_hash"),
    ("0009", "messages", "codex_message_items"),
    ("0008", "sessions", "api_call_count"),
    ("0007", "messages", "reasoning_content"),
    ("0006", "messages", "reasoning"),
    ("0005", "sessions", "cache_read_tokens"),
    ("0003", "sessions", "title"),
    ("0002", "messages", "finish_reason"),
)
_REVISION = re.compile(r"\d{4}")
_SHOWN = 50


class RecoveryReport(TypedDict):
    """What was saved, and what was not.

    Attributes:
        path: The new store.
        source: The damaged file.
        revision: What the file was at, as far as it says so or its columns do.
        whole: All that the file held was saved; nothing of it was damaged.
        sessions: How many are in the new store, placeholders among them.
        messages: How many are.
        saved: Rows by table.
        found: Of those, the rows on pages that nothing led to any more, by table.
        log: What became of the log or journal beside it: `none` is there, it was `read`, or it
            was `left out`, since it is another file's.
        placeholders: Ids of sessions that are lost and of which messages are saved.
        short: How many messages sessions lack of what they counted, by id.
        without_parent: Ids of sessions whose parent is lost.
        without_prompt: Ids of sessions whose system prompt is lost.
        without_title: Ids of sessions with a title that another one has.
        not_taken: Tables of other programs whose rows could not be taken over.
        problem_count: How many problems there were.
        problems: The first of them, a sentence each.
    """

    path: str
    source: str
    revision: str
    whole: bool
    sessions: int
    messages: int
    saved: dict[str, int]
    found: dict[str, int]
    log: str
    placeholders: list[str]
    short: dict[str, int]
    without_parent: list[str]
    without_prompt: list[str]
    without_title: list[str]
    not_taken: list[str]
    problem_count: int
    problems: list[str]


def recover(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    settings: StoreSettings | None = None,
    *,
    progress: Progress | None = None,
) -> RecoveryReport:
    """Save every row of a file that can be read into a new store at the newest schema.

    The file is read as it lies, with the log beside it, and is not changed. Messages keep
    their ids and states; counters are counted and the search index is made anew. A row whose
    page is damaged is lost, and what is lost is told. Text that was changed within a whole
    row cannot be told from text that was written so.

    Args:
        source: The file, of any level of Hermes up to 11 or of this package. No program may
            have it open, and no store of this process.
        target: The new store, mode 0600; nothing may be there.
        settings: See `StoreSettings`.
        progress: Called with what is done, how many of how many.

    Raises:
        StoreUnavailableError: The file is not there or holds no session and no message, or
            the new store cannot be written.
        SchemaTooNewError: A newer program made it.
        StoreBusyError: It changed while it was read.
    """
    chosen = settings or StoreSettings()
    origin, place = locate(source), locate(target)
    if origin.path is None or place.path is None:
        msg = "recover reads a file and writes a file"
        raise StoreUnavailableError(msg)
    _refuse(origin.path, place.path)
    before = _state(origin.path)
    with temporary_beside(place.path) as copy:
        report = _rescue(origin, origin.path, copy, chosen, progress)
        if _state(origin.path) != before:
            msg = f"{origin} changed while it was read; end the programs that use it"
            raise StoreBusyError(msg, attempts=1, waited_s=0.0)
        put_in_place(copy, place.path)
    return report | {"path": str(place)}


def _refuse(source: Path, place: Path) -> None:
    if not source.exists():
        msg = f"{source} does not exist; name the damaged file"
    elif not source.is_file():
        msg = f"{source} is not a file; name the damaged file"
    elif not os.access(source, os.R_OK):
        msg = f"{source} may not be read; check its mode"
    elif source.stat().st_size == 0:
        msg = f"{source} is empty; there is nothing in it to save"
    elif place in {Path(f"{source}{side}") for side in ("", *SIDE_FILES)}:
        msg = f"{place} is the damaged file itself; name another for the new store"
    elif not place.parent.is_dir():
        msg = f"{place.parent} is not a folder; create it, or name another file"
    elif os.path.lexists(place):
        msg = f"{place} is there already; name another file"
    else:
        left = [side for side in SIDE_FILES if Path(f"{place}{side}").exists()]
        if not left:
            return
        msg = f"{place}{left[0]} is there without its store; move it away, or name another file"
    raise StoreUnavailableError(msg)


def _state(path: Path) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-journal")):
        try:
            stat = each.stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found


def _rescue(
    origin: Location,
    path: Path,
    copy: Path,
    settings: StoreSettings,
    progress: Progress | None,
) -> RecoveryReport:
    with ExitStack() as opened:
        file, log = _opened(path, copy, opened)
        revision = _revision(file, origin)
        with reporting_errors(origin):
            new = open_database(locate(copy), settings)
            try:
                schema.upgrade(new, settings, to=revision)
            finally:
                new.close()
            with closing(sqlite3.connect(copy, isolation_level=None)) as raw:
                filled = refill(raw, file, progress)
        if not filled.saved["sessions"] and not filled.saved["messages"]:
            msg = f"{origin} holds no session and no message that can be read; nothing was made"
            raise StoreUnavailableError(msg)
        problems = list(dict.fromkeys(file.pages.problems))
    with reporting_errors(origin):
        _complete(locate(copy), settings, progress)
        counted = verify(copy, None)
    return RecoveryReport(
        path=str(copy),
        source=str(origin),
        revision=revision,
        whole=not (problems or filled.without_title or filled.not_taken),
        sessions=counted["sessions"],
        messages=counted["messages"],
        saved=dict(filled.saved),
        found=dict(filled.found),
        log=log,
        placeholders=filled.placeholders,
        short=filled.short if problems else {},
        without_parent=filled.without_parent,
        without_prompt=filled.without_prompt,
        without_title=filled.without_title,
        not_taken=filled.not_taken,
        problem_count=len(problems),
        problems=problems[:_SHOWN],
    )


def _opened(path: Path, copy: Path, opened: ExitStack) -> tuple[Salvage, str]:
    """Open the file with the log or journal beside it, and say what was done with that.

    Neither names the file it belongs to. If the file is whole without it and not with it, it
    is another's. One that is a whole database by itself cannot be told so; SQLite would go by
    it as well.
    """
    beside = [side for side in ("-journal", "-wal") if _size(f"{path}{side}")]
    if not beside:
        return opened.enter_context(Salvage(path)), "none"
    file = Salvage(path)
    opened.push(file)
    if file.log_damaged:
        return file, "read"
    folder = Path(opened.enter_context(TemporaryDirectory(prefix=f".{copy.name}", dir=copy.parent)))
    both, alone = folder / "both.db", folder / "alone.db"
    for each in (both, alone):
        shutil.copyfile(path, each)
    for side in beside:
        shutil.copyfile(f"{path}{side}", f"{both}{side}")
    # SQLite undoes what a killed program left half written, or takes over what is in the log.
    whole = _is_whole(both)
    if not whole and _is_whole(alone):
        return opened.enter_context(Salvage(path, use_log=False)), "left out"
    if whole or "-journal" in beside:
        return opened.enter_context(Salvage(both, use_log=False)), "read"
    return file, "read"


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except FileNotFoundError:
        return 0


def _is_whole(copy: Path) -> bool:
    """Let SQLite check a copy, which it may change."""
    try:
        with closing(sqlite3.connect(copy)) as raw:
            return raw.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    except (sqlite3.Error, UnicodeDecodeError):  # the driver stumbles over a damaged name
        return False


def _revision(file: Salvage, origin: Location) -> str:
    """Say of which revision the rows are; a newer one is refused.

    Raises:
        SchemaTooNewError: A newer program made the file.
    """
    found = [str(each) for each in file.words("alembic_version", "version_num")]
    levels = file.words("schema_version", "version")
    if known := [each for each in found if each in KNOWN]:
        return known[0]
    unknown = next((each for each in found if _REVISION.fullmatch(each)), None)
    level = max((each for each in levels if isinstance(each, int)), default=0)
    if unknown is not None or level > HERMES_LEVEL:
        check_supported(SchemaStatus(unknown, hermes_level=None if unknown else level), origin)
    there = file.columns()
    for revision, table, column in _TELLS:
        if column in there.get(table, ()):
            return SCHEMA_REVISION if revision == _TELLS[0][0] else revision
    return "0001"


def _complete(location: Location, settings: StoreSettings, progress: Progress | None) -> None:
    """Bring the new store to the newest schema, count its counters, and make its index."""
    new = schema.open_current(location, settings, read_only=False, migrate=True)
    try:

        def derive(connection: Connection) -> None:
            repair(connection, {})
            search.index.rebuild(connection)

        new.write(derive)
        told = None if progress is None else functools.partial(progress, "messages indexed")
        search.index.fill(new.read, new.write, told)
    finally:
        new.close()
    with closing(sqlite3.connect(location.path or "", isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
