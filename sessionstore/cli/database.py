"""The commands that care for the schema and the file: `db upgrade | current | check | history`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from sqlalchemy import Connection, func, select

from sessionstore import schema
from sessionstore.cli.output import talk, write_json
from sessionstore.cli.store import chosen_location, existing_location, opened, store_options
from sessionstore.engine import Database, open_database, open_read_only
from sessionstore.errors import StoreUnavailableError
from sessionstore.export.text import one_line, safe
from sessionstore.location import Location
from sessionstore.models import SCHEMA_REVISION, SchemaVersionRow
from sessionstore.reporting import reporting_errors
from sessionstore.retry import retrying
from sessionstore.schema import SchemaStatus
from sessionstore.settings import StoreSettings
from sessionstore.store import open_at

T = TypeVar("T")

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
# A damaged file may have a finding for every page.
_FINDINGS = 5


@click.group("db")
@store_options
def database() -> None:
    """Upgrade the store, or say what it is at."""


@database.command()
@store_options
def upgrade() -> None:
    """Bring the store to the newest schema; a file of Hermes is adopted in place.

    One transaction for each revision, so an upgrade that is broken off goes on where it
    was; so does the search index of a large store, which is completed then. An absent store
    is made. A newer one is refused, untouched.
    """
    location, settings = chosen_location(), StoreSettings()
    before = schema.look_at(location, settings)
    if before.up_to_date:
        _complete_index(location)
        click.echo(f"{safe(str(location))} is at {before.label} already")
        return
    summaries = {info.id: info.summary for info in schema.history()}
    store = open_database(location, settings)
    try:
        done = schema.upgrade(
            store, settings, progress=lambda revision: talk(f"{revision}  {summaries[revision]}")
        )
        after = _status(store)
    finally:
        store.close()
    _complete_index(location)
    count = f"{len(done)} revision{'' if len(done) == 1 else 's'}"
    click.echo(f"{safe(str(location))} went from {before.label} to {after.label} ({count})")


def _complete_index(location: Location) -> None:
    """Index what a revision left to be indexed: the messages of a large file."""
    with open_at(location, migrate=False) as db:
        db.complete_search_index(
            lambda done, of: talk(f"search index  {done:,} of {of:,} messages")
        )


@database.command()
@_as_json
@store_options
def current(*, as_json: bool) -> None:
    """Say which revision the store is at, and which level of Hermes."""
    location = existing_location()
    with _to_look_at(location) as store:
        status = _status(store)
        level = _read(store, _hermes_level) if status.revision else status.hermes_level
    if as_json:
        write_json(
            {
                "location": str(location),
                "revision": status.revision,
                "newest_revision": SCHEMA_REVISION,
                "up_to_date": status.up_to_date,
                "hermes_level": level,
            }
        )
        return
    newest = "the newest" if status.up_to_date else f"the newest is {SCHEMA_REVISION}"
    click.echo(f"revision      {status.revision or 'none'} ({newest})")
    click.echo(f"Hermes level  {'none' if level is None else one_line(str(level))}")


@database.command()
@_as_json
@store_options
def check(*, as_json: bool) -> None:
    """Look for damage: the file, its references, its schema, and whether search has its index.

    Changes nothing. The exit status is 1 if anything is wrong. It does not compare the index
    with the messages; doctor does.
    """
    location = existing_location()
    with _to_look_at(location) as store:
        status = _status(store)
        findings = [*_file_findings(store), _Finding("schema", _schema_trouble(status))]
    if status.up_to_date:
        with opened() as db:
            findings.append(_Finding("search index", db.search_index_trouble()))
    if as_json:
        write_json(
            {
                "location": str(location),
                "ok": not any(each.trouble for each in findings),
                "checks": {each.subject: each.trouble for each in findings},
            }
        )
    else:
        for each in findings:
            click.echo(f"{each.subject:<14}{safe(each.trouble or 'ok')}")
    if any(each.trouble for each in findings):
        click.get_current_context().exit(1)


@database.command()
@_as_json
@store_options
def history(*, as_json: bool) -> None:
    """List the revisions that this release knows, oldest first."""
    revisions = schema.history()
    if as_json:
        write_json([{"id": info.id, "summary": info.summary} for info in revisions])
        return
    for info in revisions:
        click.echo(f"{info.id}  {info.summary}")


@dataclass(frozen=True, slots=True)
class _Finding:
    """What was looked at, and what is wrong with it; None is nothing."""

    subject: str
    trouble: str | None


@contextmanager
def _to_look_at(location: Location) -> Iterator[Database]:
    """Open a store of any age to read, unless it is newer or another program's."""
    store = open_read_only(location, StoreSettings())
    try:
        schema.check_supported(_status(store), location)
        yield store
    finally:
        store.close()


def _status(store: Database) -> SchemaStatus:
    return _read(store, schema.read_status)


def _read(store: Database, unit: Callable[[Connection], T]) -> T:
    with reporting_errors(store.location, writes=False):
        return retrying(StoreSettings(), writes=False)(store.read)(unit)


def _hermes_level(connection: Connection) -> int | None:
    return connection.execute(select(func.max(SchemaVersionRow.version))).scalar()


def _schema_trouble(status: SchemaStatus) -> str | None:
    if status.up_to_date:
        return None
    if status.empty:
        return "nothing was ever stored here; `sessionstore db upgrade` makes a store of it"
    return f"at {status.label}, not {SCHEMA_REVISION}; run `sessionstore db upgrade`"


def _file_findings(store: Database) -> Iterator[_Finding]:
    if store.location.path is None:
        return  # a server looks after its files and references
    yield _Finding("file", _trouble(store, "PRAGMA integrity_check", _as_told))
    yield _Finding("references", _trouble(store, "PRAGMA foreign_key_check", _broken_reference))


def _trouble(
    store: Database, pragma: str, describe: Callable[[Sequence[Any]], str | None]
) -> str | None:
    """Run a check of SQLite's own; its first findings in one sentence, or None."""
    try:
        rows = _read(store, lambda connection: connection.exec_driver_sql(pragma).all())
    except StoreUnavailableError as error:
        return str(error)  # too damaged to be checked
    found = [text for row in rows if (text := describe(row)) is not None]
    more = f"; and {len(found) - _FINDINGS} more" if len(found) > _FINDINGS else ""
    return "; ".join(found[:_FINDINGS]) + more or None


def _as_told(row: Sequence[Any]) -> str | None:
    return None if row[0] == "ok" else " ".join(str(row[0]).split())


def _broken_reference(row: Sequence[Any]) -> str:
    return f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
