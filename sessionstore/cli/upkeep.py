"""The commands that care for a store: optimize, vacuum, purge, backup, restore, recover, copy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from sessionstore import schema
from sessionstore.cli.asking import confirm, yes_option
from sessionstore.cli.output import Failure, is_terminal, json_option, named, talk, write_json
from sessionstore.cli.progress import Progress
from sessionstore.cli.store import (
    chosen_location,
    existing_location,
    opened,
    require_none_chosen,
    store_options,
)
from sessionstore.errors import SchemaOutdatedError
from sessionstore.export.text import one_line, safe
from sessionstore.location import locate
from sessionstore.models import SCHEMA_REVISION
from sessionstore.settings import StoreSettings
from sessionstore.store import SessionDB, size_of
from sessionstore.wording import byte_size, plural

if TYPE_CHECKING:
    from sessionstore.upkeep import RecoveryReport


def _changed(what: str, change: Callable[[SessionDB], None], *, as_json: bool) -> None:
    """Do something to the file, and say how large it was and is."""
    before = size_of(existing_location())
    with opened(to_write=True) as db:
        if is_terminal(sys.stderr):
            talk(f"{what} ...")
        change(db)
    after = size_of(existing_location())
    if as_json:
        write_json({"bytes_before": before, "bytes_after": after})
    elif before is None or after is None:
        click.echo("done")
    else:
        click.echo(f"from {byte_size(before)} to {byte_size(after)}")


@click.command()
@json_option
@store_options
def optimize(*, as_json: bool) -> None:
    """Merge the search index, and refresh statistics.

    Searches get faster; no text changes. Prints the size before and after.
    """
    _changed("Merging the search index", lambda db: db.optimize(), as_json=as_json)


@click.command()
@json_option
@store_options
def vacuum(*, as_json: bool) -> None:
    """Give free space back to the disk.

    The file is rewritten, which takes its own size again in free disk space; meanwhile others can
    read but not write. Prints the size before and after.
    """
    _changed("Writing the file anew", lambda db: db.vacuum(), as_json=as_json)


@click.command()
@json_option
@store_options
def purge(*, as_json: bool) -> None:
    """Erase every trace of deleted text from the file.

    The search index and then the file are rewritten, and the log is emptied. Copies of the file,
    such as backups, keep what they have. Prints the size before and after.
    """
    _changed(
        "Making the search index and the file anew", lambda db: db.purge_deleted(), as_json=as_json
    )


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@store_options
def backup(*, file: Path, force: bool, as_json: bool) -> None:
    """Copy the store into FILE while it is in use.

    The copy is of one moment and readable by its owner only. It gets its name once it has been
    verified: its integrity, and its number of sessions and messages.
    """
    try:
        with opened() as db, Progress("pages") as bar:
            report = db.backup(file, overwrite=force, progress=bar.at)
    except SchemaOutdatedError as error:
        # Who upgrades wants a copy of before.
        raise Failure(
            f"{error}; to have a copy of it as it is, cp it while no program has it open"
        ) from error
    if as_json:
        write_json(report)
        return
    click.echo(
        f"{safe(report['path'])} holds {plural(report['sessions'], 'session')} with "
        f"{plural(report['messages'], 'message')} ({byte_size(report['bytes'])}, checked)"
    )


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--even-if-damaged",
    is_flag=True,
    help="Also replace a store that cannot be opened, though nobody can tell who uses it.",
)
@yes_option
@json_option
@store_options
def restore(*, file: Path, even_if_damaged: bool, yes: bool, as_json: bool) -> None:
    """Replace the store by a backup.

    FILE is verified first, and refused if it is damaged or from a newer release. The store must
    not be in use; it is renamed and kept beside the new one. Asks first.
    """
    from sessionstore import upkeep

    location = chosen_location()
    upkeep.check_backup(file, location)
    confirm(f"Put {file} in the place of {location}?", yes=yes)
    with Progress("pages") as bar:
        report = upkeep.restore(
            file, location, StoreSettings(), even_if_damaged=even_if_damaged, progress=bar.at
        )
    if as_json:
        write_json(report)
        return
    click.echo(
        f"{safe(report['path'])} has {plural(report['sessions'], 'session')} with "
        f"{plural(report['messages'], 'message')}"
    )
    if report["kept_as"]:
        talk(f"What was there is kept as {report['kept_as']}")
    if report["revision"] != SCHEMA_REVISION:
        talk("The backup is older than this release; `sessionstore db upgrade` brings it up.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="NEW",
    help="The new store; it must not exist yet.",
)
@json_option
@store_options
def recover(*, file: Path, output: Path, as_json: bool) -> None:
    """Save what can be read of a damaged FILE into a new store.

    FILE is read page by page and not changed; no program may have it open. Losses are reported:
    rows on damaged pages, and references to them. A message whose session is lost is kept
    under a session of that id with the source `recovered`. The exit status is 1 if anything
    was damaged. The store that --db names is not touched.
    """
    from sessionstore import upkeep

    with _Phases() as phases:
        report = upkeep.recover(file, output, StoreSettings(), progress=phases.at)
    if as_json:
        write_json(report)
    else:
        _show_recovery(report)
    if not report["whole"]:
        click.get_current_context().exit(1)


class _Phases:
    """One bar after the other, for work that counts different things."""

    def __init__(self) -> None:
        self._noun = ""
        self._bars = ExitStack()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        """Begin; nothing is drawn before the first step."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the line."""
        self._bars.close()

    def at(self, noun: str, done: int, total: int) -> None:
        """Say how many of how many are done of what."""
        if self._bar is None or noun != self._noun:
            self._bars.close()
            self._noun, self._bar = noun, self._bars.enter_context(Progress(noun))
        self._bar.at(done, total)


def _show_recovery(report: RecoveryReport) -> None:
    click.echo(
        f"{safe(report['path'])} holds {plural(report['sessions'], 'session')} with "
        f"{plural(report['messages'], 'message')}, read from {safe(report['source'])}"
    )
    if found := sum(report["found"].values()):
        click.echo(f"{plural(found, 'row')} saved from pages that nothing led to any more")
    if report["log"] == "left out":
        click.echo("The log or journal beside the file belongs to another one and was left out")
    for ids, said in (
        (report["placeholders"], "lost, of which messages are kept under a placeholder"),
        (list(report["short"]), "with fewer messages than they counted"),
        (report["without_parent"], "whose parent is lost"),
        (report["without_prompt"], "whose system prompt is lost"),
        (report["without_title"], "without their title, which another one has"),
    ):
        if ids:
            click.echo(f"{plural(len(ids), 'session')} {said}: {named(ids)}")
    if report["not_taken"]:
        click.echo(f"Tables that could not be taken over: {named(report['not_taken'])}")
    for problem in report["problems"]:
        click.echo(f"  {one_line(problem)}")
    if (more := report["problem_count"] - len(report["problems"])) > 0:
        click.echo(f"  and {more:,} more like these")
    click.echo(
        "Nothing was damaged"
        if report["whole"]
        else "Damaged: what is told above is all that is known of what is lost"
    )


@click.command()
@click.argument("source")
@click.argument("target")
@json_option
def copy(*, source: str, target: str, as_json: bool) -> None:
    """Copy a whole store into an empty one, a file or a server.

    SOURCE and TARGET are each a path or an SQLAlchemy URL. Everything is copied as stored, with
    its ids, and both are compared at the end; the source is only read. If it is interrupted,
    run the same command to resume. TARGET is created if it does not exist.
    """
    require_none_chosen()
    try:
        if (origin := locate(**_place(source))).path is not None and not origin.path.exists():
            raise Failure(f"{origin} does not exist; name an existing store")
        with (
            SessionDB(**_place(source), read_only=True, migrate=False) as here,
            _opened_target(target) as there,
            Progress("rows") as bar,
        ):
            report = there.copy_from(here, progress=bar.at)
    except ValueError as error:
        raise Failure(str(error)) from error
    if as_json:
        write_json(report)
        return
    click.echo(
        f"copied {plural(report['sessions'], 'session')} with "
        f"{plural(report['messages'], 'message')}, compared in full "
        f"(SHA-256 {report['sha256'][:16]})"
    )
    for table, count in report["left_out"].items():
        talk(f"{plural(count, 'row')} of {table} refer to a session that is not there: left out")
    if report["mended"]:
        talk(f"{plural(report['mended'], 'row')} held what no store can hold, and were mended")


def _opened_target(target: str) -> SessionDB:
    """Open what is empty, absent or current; an old store is not upgraded for this."""
    place = _place(target)
    location = locate(**place)
    status = schema.look_at(location, StoreSettings())
    if not status.empty and not status.up_to_date:
        msg = (
            f"{location} is at {status.label}, not {SCHEMA_REVISION}; name an absent or empty store"
        )
        raise Failure(f"{msg}, or upgrade it first: {schema.upgrade_command(location)}")
    return SessionDB(**place, migrate=status.empty)


def _place(store: str) -> dict[str, Any]:
    """Tell a URL from a path."""
    return {"url": store} if "://" in store else {"db_path": store}
