"""The commands that care for the schema and the file: `db upgrade | current | check | history`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from sqlalchemy import Connection, func, select

from sessionstore import schema
from sessionstore.cli.output import json_option, talk, write_json
from sessionstore.cli.store import chosen_location, existing_location, opened, store_options
from sessionstore.engine import Database, open_database, open_read_only
from sessionstore.export.text import one_line, safe
from sessionstore.location import Location
from sessionstore.models import SCHEMA_REVISION, SchemaVersionRow
from sessionstore.settings import StoreSettings
from sessionstore.store import open_at
from sessionstore.upkeep import Finding, sound


@click.group("db")
@store_options
def database() -> None:
    """Upgrade the store, or show its schema revision."""


@database.command()
@store_options
def upgrade() -> None:
    """Bring the store to the newest schema; a file of Hermes is adopted in place.

    Each revision is one transaction, so an interrupted upgrade resumes where it stopped, and so
    does the search index of a large store, which is completed afterwards. An absent store is
    created. A newer one is refused, untouched.
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
        after = store.ask(schema.read_status)
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
@json_option
@store_options
def current(*, as_json: bool) -> None:
    """Show the schema revision of the store, and the schema level that Hermes reads in it."""
    location = existing_location()
    with _to_look_at(location) as store:
        status = store.ask(schema.read_status)
        level = store.ask(_hermes_level) if status.revision else status.hermes_level
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
@json_option
@store_options
def check(*, as_json: bool) -> None:
    """Check the file, its references, its schema, and that search has its index.

    Nothing is changed. The exit status is 1 if anything is wrong. The index is not compared with
    the messages; doctor does that.
    """
    location = existing_location()
    with _to_look_at(location) as store:
        checks = {each["subject"]: _trouble(each) for each in sound(store)}
    if checks["schema"] is None:
        with opened() as db:
            checks["search index"] = db.search_index_trouble()
    ok = not any(checks.values())
    if as_json:
        write_json({"location": str(location), "ok": ok, "checks": checks})
    else:
        for subject, trouble in checks.items():
            click.echo(f"{subject:<14}{safe(trouble or 'ok')}")
    if not ok:
        click.get_current_context().exit(1)


def _trouble(finding: Finding) -> str | None:
    if finding["state"] == "ok":
        return None
    return f"{finding['found']}. {finding['means']}"


@database.command()
@json_option
@store_options
def history(*, as_json: bool) -> None:
    """List the revisions that this release knows, oldest first."""
    revisions = schema.history()
    if as_json:
        write_json([{"id": info.id, "summary": info.summary} for info in revisions])
        return
    for info in revisions:
        click.echo(f"{info.id}  {info.summary}")


@contextmanager
def _to_look_at(location: Location) -> Iterator[Database]:
    """Open a store of any age to read, unless it is newer or another program's."""
    store = open_read_only(location, StoreSettings())
    try:
        schema.check_supported(store.ask(schema.read_status), location)
        yield store
    finally:
        store.close()


def _hermes_level(connection: Connection) -> int | None:
    return connection.execute(select(func.max(SchemaVersionRow.version))).scalar()
