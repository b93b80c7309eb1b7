"""Open a store at the newest schema, or refuse it untouched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import Connection

from sessionstore.engine import Database, open_database, open_read_only, undo_unfinished
from sessionstore.errors import StoreUnavailableError
from sessionstore.location import Location, locate
from sessionstore.models import SCHEMA_REVISION
from sessionstore.reporting import reporting_errors, sqlite_code
from sessionstore.schema.status import (
    SchemaStatus,
    changes,
    check_supported,
    read_status,
    require_current,
)
from sessionstore.schema.walk import keeping_references, upgrade, write_lock
from sessionstore.settings import StoreSettings


def open_current(
    location: Location, settings: StoreSettings, *, read_only: bool, migrate: bool
) -> Database:
    """Open a store whose schema is the newest, upgrading it where that is allowed.

    An existing file is first looked at without a lock or a side file, so that not one byte
    of a file that is refused changes.

    Args:
        location: Where the store is.
        settings: How to open it.
        read_only: Nothing may be written, so the schema must be the newest already.
        migrate: Create what is absent and upgrade what is old; otherwise refuse both.

    Raises:
        SchemaTooNewError: A newer program made it.
        SchemaOutdatedError: It is old or absent, and must not be changed.
        StoreUnavailableError: It cannot be opened, or is another program's.
        MigrationError: A revision failed.
        StoreBusyError: The write lock was not had within the patience.
    """
    if read_only:
        database = open_read_only(location, settings)
    elif location.path is None:
        database = open_database(location, settings)
    else:
        status = look_at(location, settings)
        if not migrate:
            require_current(status, location)
        database = open_database(location, settings)
        if status.up_to_date:
            return _guarded(database, status)
    try:
        status = database.ask(read_status, settings)
        check_supported(status, location)
        if read_only or not migrate:
            require_current(status, location)
        elif not status.up_to_date:
            upgrade(database, settings)
    except BaseException:
        database.close()
        raise
    return _guarded(database, status)


def _guarded(database: Database, looked_at: SchemaStatus) -> Database:
    """Let no transaction go on once another program has upgraded the schema below this one.

    Of a file, only where the schema was changed since the last look is the revision read again.
    (One that changes no file, since it is for servers, is noticed by the next opening.)
    """
    seen = looked_at

    def guard(connection: Connection) -> None:
        nonlocal seen
        if database.location.path and seen.up_to_date and changes(connection) == seen.changes:
            return
        status = read_status(connection)
        check_supported(status, database.location)
        require_current(status, database.location)
        seen = status

    return replace(database, guard=guard, revision=SCHEMA_REVISION)


def look_at(location: Location, settings: StoreSettings) -> SchemaStatus:
    """Say what a store is at before it is opened to write, and refuse it or not.

    A file is not touched, but for what a killed program left half done, if that has to be
    undone before it can be read.
    """
    try:
        absent = location.path is not None and location.path.stat().st_size == 0
    except OSError:
        absent = True  # or out of reach; opening it will say so
    if absent:
        return SchemaStatus(empty=True)
    try:
        status = _looked_at(location, settings)
    except StoreUnavailableError as error:
        if sqlite_code(error) != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        undo_unfinished(location, settings)
        status = _looked_at(location, settings)
    check_supported(status, location)
    return status


def _looked_at(location: Location, settings: StoreSettings) -> SchemaStatus:
    database = open_read_only(location, settings)
    try:
        return database.ask(read_status, settings)
    finally:
        database.close()


@contextmanager
def locked(url: str | None) -> Iterator[Connection]:
    """Hold the lock for `alembic` at a prompt: one transaction for the whole command.

    Args:
        url: The store; None for the default one.

    Raises:
        SessionStoreError: As `open_current` does.
    """
    location = locate(url=url)
    # A command cannot be run again from here, so the wait for the lock is one long wait.
    settings = StoreSettings(busy_timeout_s=20.0)
    if location.path:
        look_at(location, settings)
    database = open_database(location, settings)
    try:
        with (
            reporting_errors(location),
            write_lock(database, settings) as connection,
            keeping_references(connection),
        ):
            check_supported(read_status(connection), location)
            yield connection
    finally:
        database.close()
