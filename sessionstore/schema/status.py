"""What a database is at, and whether this package may work with it."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sessionstore.errors import SchemaOutdatedError, SchemaTooNewError, StoreUnavailableError
from sessionstore.location import Location
from sessionstore.models import HERMES_LEVEL, SCHEMA_REVISION

# What every revision has.
_OURS = ("sessions", "messages", "schema_version")
# The revisions of this package, told without loading them.
KNOWN = frozenset(f"{number:04d}" for number in range(1, int(SCHEMA_REVISION) + 1))

# The schemas that a connection is told to look into and may not, where it may look into none.
_CLOSED_SCHEMAS = """
SELECT quote_ident(n.nspname) FROM pg_catalog.pg_namespace AS n
JOIN unnest(string_to_array(current_setting('search_path'), ',')) AS named(name)
    ON n.nspname = btrim(named.name, ' "')
WHERE current_schema() IS NULL AND NOT has_schema_privilege(n.oid, 'USAGE')
"""


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What a database is at.

    Attributes:
        revision: What `alembic_version` says; None where it says nothing.
        hermes_level: What `schema_version` says of a file of Hermes that was not adopted
            yet, 0 where the table has no row; None for any other database.
        empty: Nothing was ever stored here.
        foreign: There are tables, and they are some other program's.
        changes: How often the schema was changed by then, as SQLite counts; None: not counted.
    """

    revision: str | None = None
    hermes_level: int | None = None
    empty: bool = False
    foreign: bool = False
    changes: int | None = field(default=None, compare=False)

    @property
    def up_to_date(self) -> bool:
        """Nothing is to be done."""
        return self.revision == SCHEMA_REVISION

    @property
    def label(self) -> str:
        """The status in words, such as `0004`, `Hermes level 6` or `empty`."""
        if self.revision is not None:
            return self.revision
        if self.hermes_level is not None:
            return f"Hermes level {self.hermes_level}"
        return "empty" if self.empty else "unknown tables"


def read_status(connection: Connection) -> SchemaStatus:
    """Say what a database is at.

    Where `alembic_version` is there, that takes a query and a PRAGMA, on a server two queries.
    """
    if connection.dialect.name == "postgresql":
        return _read_status_of_schema(connection)
    return replace(_read_status_of_file(connection), changes=changes(connection))


def changes(connection: Connection) -> int:
    """Give SQLite's count of the changes of a file's schema, in some four microseconds.

    https://www.sqlite.org/pragma.html#pragma_schema_version
    """
    raw: Any = connection.connection.driver_connection
    (count,) = raw.execute("PRAGMA schema_version").fetchone()
    return int(count)


def _read_status_of_file(connection: Connection) -> SchemaStatus:
    try:
        # `alembic_version` alone proves little: other programs use Alembic too.
        rows = connection.exec_driver_sql(
            "SELECT version_num, typeof(version_num), (SELECT count(*) FROM sqlite_master "
            "WHERE type = 'table' AND name IN "
            "('alembic_version', 'sessions', 'messages', 'schema_version')) FROM alembic_version"
        ).all()
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
            raise  # else there is no such table
        rows = []
    if rows:
        revision = _one_revision([row[0] for row in rows])
        # The name of a revision is text, and stands in a table of Alembic's.
        strange = any(kind != "text" for _, kind, _ in rows)
        lacking = revision in KNOWN and rows[0][2] < len(_OURS) + 1
        return SchemaStatus(None if strange else revision, foreign=strange or lacking)
    tables = set(
        connection.exec_driver_sql(
            "SELECT lower(name) FROM sqlite_master WHERE type IN ('table', 'view') "
            r"AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"
        ).scalars()
    )
    if "alembic_version" in tables and not _has(connection, "alembic_version", "version_num"):
        return SchemaStatus(foreign=True)
    if _is_hermes(connection, tables):
        level = connection.exec_driver_sql(
            "SELECT max(version) FROM schema_version WHERE typeof(version) = 'integer'"
        ).scalar()
        return SchemaStatus(hermes_level=level or 0)
    # Going back to the base leaves `alembic_version`, without a row, and tables of others.
    if not tables or ("alembic_version" in tables and tables.isdisjoint(_OURS)):
        return SchemaStatus(empty=True)
    return SchemaStatus(foreign=True)


def _read_status_of_schema(connection: Connection) -> SchemaStatus:
    # Other tables beside ours are usual on a server; under our names they are in the way.
    tables = set(
        connection.exec_driver_sql(
            "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema() "
            "AND tablename IN ('alembic_version', 'sessions', 'messages')"
        ).scalars()
    )
    if "alembic_version" in tables:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version")
        if rows := list(found.scalars()):
            return SchemaStatus(_one_revision(rows))
    if tables & {"sessions", "messages"}:
        return SchemaStatus(foreign=True)
    for name in connection.exec_driver_sql(_CLOSED_SCHEMAS).scalars():
        # A schema that the role may not use is looked past as if it were not there, so that a
        # store in it would be called empty. Asked for by name, the server says what is wrong.
        connection.exec_driver_sql(f"SELECT 1 FROM {name}.alembic_version")  # noqa: S608 - quoted by the server
    return SchemaStatus(empty=True)


def _one_revision(rows: Sequence[object]) -> str:
    return ", ".join(sorted(str(row) for row in rows))


def _has(connection: Connection, table: str, *columns: str) -> bool:
    found = connection.exec_driver_sql(f"PRAGMA table_info({table})")
    return {name.lower() for _, name, *_ in found}.issuperset(columns)


def _is_hermes(connection: Connection, tables: set[str]) -> bool:
    """Tell a file of Hermes from one of the many others with a table `schema_version`."""

    def has(table: str, *columns: str) -> bool:
        return _has(connection, table, *columns)

    if not has("schema_version", "version"):
        return False
    if not tables & {"sessions", "messages"}:
        return tables <= {"schema_version", "state_meta", "alembic_version"}
    return (
        "sessions" not in tables
        or has("sessions", "id", "source")
        or has("sessions", "id", "started_at")
    ) and ("messages" not in tables or has("messages", "id", "session_id"))


def check_supported(status: SchemaStatus, location: Location) -> None:
    """Refuse a database that a newer program, or another one, made.

    Raises:
        SchemaTooNewError: The revision is unknown, or the level of Hermes is too high.
        StoreUnavailableError: The tables in it are another program's.
    """
    check_supported_by(status, location, KNOWN, SCHEMA_REVISION)


def check_supported_by(
    status: SchemaStatus, location: Location, known: frozenset[str], newest: str
) -> None:
    """Refuse as `check_supported` does, by the revisions of any one history."""
    if status.foreign:
        msg = (
            f"{location} is a database of another program: its tables, or its alembic_version, "
            "are not those of a session store; name another one. Nothing was changed"
        )
        raise StoreUnavailableError(msg)
    if status.hermes_level is not None and status.hermes_level > HERMES_LEVEL:
        msg = (
            f"{location} was made by a newer Hermes: it is at level {status.hermes_level}, and "
            f"levels up to {HERMES_LEVEL} are taken over in place. To read it without changing "
            f"it: sessionstore import {shlex.quote(str(location))} --db NEW.db"
        )
        raise SchemaTooNewError(msg, found=status.label, supported=f"Hermes level {HERMES_LEVEL}")
    if status.revision is not None and status.revision not in known:
        msg = (
            f"{location} is at revision {status.revision}, and this sessionstore knows revisions "
            f"up to {newest}; use the newer release that made it. Nothing was changed"
        )
        raise SchemaTooNewError(msg, found=status.label, supported=newest)


def upgrade_command(location: Location) -> str:
    """Give the command that upgrades a store, ready for a shell."""
    option = "--db" if location.path else "--url"
    return f"sessionstore db upgrade {option} {shlex.quote(str(location))}"


def require_current(status: SchemaStatus, location: Location) -> None:
    """Refuse a database that has to be upgraded first.

    Raises:
        SchemaOutdatedError: It says the command that upgrades.
    """
    if status.up_to_date:
        return
    command = upgrade_command(location)
    if status.empty:
        absent = location.path is not None and not location.path.exists()
        found = "does not exist" if absent else "is empty"
        msg = f"{location} {found}; to make a store of it: {command}"
    else:
        msg = (
            f"{location} is at {status.label}, and this sessionstore works with "
            f"{SCHEMA_REVISION}; upgrade it: {command}"
        )
    raise SchemaOutdatedError(msg, found=status.label, expected=SCHEMA_REVISION)
