"""Bring a database to the schema this package works with, and refuse what it cannot work with.

The migration history does all of the work, for a new database as for an old one. A file of
Hermes walks it from the beginning: each revision looks at what is there before it acts.

One revision is one transaction, and the lock that keeps two programs from upgrading the same
database is the one that transaction holds anyway: SQLite's write lock, an advisory lock on
PostgreSQL. Whoever gets it reads the revision again and does the next step, so several
programs may take turns, and one that is killed leaves a whole number of revisions.

The only module that imports Alembic, late: opening an up-to-date store does without.
"""

from __future__ import annotations

import shlex
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sessionstore.engine import (
    WRITE_OPTION,
    Database,
    Location,
    locate,
    open_database,
    open_read_only,
    reporting_errors,
)
from sessionstore.errors import (
    MigrationError,
    SchemaOutdatedError,
    SchemaTooNewError,
    StoreBusyError,
    StoreUnavailableError,
)
from sessionstore.models import HERMES_LEVEL, SCHEMA_REVISION
from sessionstore.retry import is_contention, retry_on_contention
from sessionstore.settings import StoreSettings

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext, RevisionStep

P = ParamSpec("P")
T = TypeVar("T")

# Alembic keeps the context of a run in module globals.
_alembic_lock = threading.Lock()

# Any 64-bit number that other programs on the server are unlikely to lock: "sessions".
_ADVISORY_KEY = int.from_bytes(b"sessions", "big")
# Filling a new index of a large store takes minutes; a statement that hangs shall end.
_STATEMENT_TIMEOUT_S = 30 * 60


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What a database is at.

    Attributes:
        revision: What `alembic_version` says; None where it says nothing.
        hermes_level: What `schema_version` says of a file of Hermes that was not adopted
            yet, 0 where the table has no row; None for any other database.
        empty: Nothing was ever stored here.
        foreign: There are tables, and they are some other program's.
    """

    revision: str | None = None
    hermes_level: int | None = None
    empty: bool = False
    foreign: bool = False

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


@dataclass(frozen=True, slots=True)
class RevisionInfo:
    """One step of the history.

    Attributes:
        id: The zero-padded number of the schema it leads to.
        summary: The first line of its docstring.
    """

    id: str
    summary: str


def read_status(connection: Connection) -> SchemaStatus:
    """Say what a database is at; one query where `alembic_version` is there."""
    if connection.dialect.name == "postgresql":
        return _read_status_of_schema(connection)
    try:
        # `alembic_version` alone proves little: other programs use Alembic too.
        rows = connection.exec_driver_sql(
            "SELECT version_num, (SELECT count(*) FROM sqlite_master WHERE type = 'table' "
            "AND name IN ('sessions', 'messages', 'schema_version')) FROM alembic_version"
        ).all()
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
            raise  # else there is no such table
        rows = []
    if rows:
        revision = _one_revision([row[0] for row in rows])
        return SchemaStatus(revision, foreign=_is_known(revision) and rows[0][1] != 3)  # noqa: PLR2004 - the three names above
    tables = set(
        connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
            r"AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"
        ).scalars()
    )
    if _is_hermes(connection, tables):
        level = connection.exec_driver_sql(
            "SELECT max(version) FROM schema_version WHERE typeof(version) = 'integer'"
        ).scalar()
        return SchemaStatus(hermes_level=level or 0)
    # Going back to the base leaves `alembic_version`, without a row.
    if not tables or "alembic_version" in tables:
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
    return SchemaStatus(empty=True)


def _one_revision(rows: Sequence[object]) -> str:
    return ", ".join(sorted(str(row) for row in rows))


def _is_known(revision: str) -> bool:
    return revision in _KNOWN


_KNOWN = frozenset(f"{number:04d}" for number in range(1, int(SCHEMA_REVISION) + 1))


def _is_hermes(connection: Connection, tables: set[str]) -> bool:
    """Tell a file of Hermes from one of the many others with a table `schema_version`."""

    def has(table: str, *columns: str) -> bool:
        found = connection.exec_driver_sql(f"PRAGMA table_info({table})")
        return {name for _, name, *_ in found}.issuperset(columns)

    if not has("schema_version", "version"):
        return False
    if not tables & {"sessions", "messages"}:
        return tables <= {"schema_version", "state_meta", "alembic_version"}
    return ("sessions" not in tables or has("sessions", "id", "started_at")) and (
        "messages" not in tables or has("messages", "id", "session_id")
    )


def check_supported(status: SchemaStatus, location: Location) -> None:
    """Refuse a database that a newer program, or another one, made.

    Raises:
        SchemaTooNewError: The revision is unknown, or the level of Hermes is too high.
        StoreUnavailableError: The tables in it are another program's.
    """
    _check_supported(status, location, _KNOWN, SCHEMA_REVISION)


def _check_supported(
    status: SchemaStatus, location: Location, known: frozenset[str], newest: str
) -> None:
    if status.foreign:
        msg = (
            f"{location} is a database of another program: it has tables, but not those of a "
            "session store; name another one. Nothing was changed"
        )
        raise StoreUnavailableError(msg)
    if status.hermes_level is not None and status.hermes_level > HERMES_LEVEL:
        msg = (
            f"{location} was made by a newer Hermes: it is at level {status.hermes_level}, and "
            f"levels up to {HERMES_LEVEL} are taken over in place. To read it without changing "
            f"it: sessionstore import {shlex.quote(str(location))}"
        )
        raise SchemaTooNewError(msg, found=status.label, supported=f"Hermes level {HERMES_LEVEL}")
    if status.revision is not None and status.revision not in known:
        msg = (
            f"{location} is at revision {status.revision}, and this sessionstore knows revisions "
            f"up to {newest}; use the newer release that made it. Nothing was changed"
        )
        raise SchemaTooNewError(msg, found=status.label, supported=newest)


def require_current(status: SchemaStatus, location: Location) -> None:
    """Refuse a database that has to be upgraded first.

    Raises:
        SchemaOutdatedError: It says the command that upgrades.
    """
    if status.up_to_date:
        return
    option = "--db" if location.path else "--url"
    msg = (
        f"{location} is at {status.label}, and this sessionstore works with "
        f"{SCHEMA_REVISION}; upgrade it: sessionstore db upgrade {option} "
        f"{shlex.quote(str(location))}"
    )
    raise SchemaOutdatedError(msg, found=status.label, expected=SCHEMA_REVISION)


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
        status = _look_at_file(location, settings)
        if not migrate:
            require_current(status, location)
        database = open_database(location, settings)
        if status.up_to_date:
            return database
    try:
        with reporting_errors(location):
            status = _retrying(settings)(database.read)(read_status)
        check_supported(status, location)
        if read_only or not migrate:
            require_current(status, location)
        elif not status.up_to_date:
            upgrade(database, settings)
    except BaseException:
        database.close()
        raise
    return database


def _look_at_file(location: Location, settings: StoreSettings) -> SchemaStatus:
    """Say what a file is at, and refuse it or not, without touching it."""
    try:
        absent = location.path is None or location.path.stat().st_size == 0
    except OSError:
        absent = True  # or out of reach; opening it will say so
    if absent:
        return SchemaStatus(empty=True)
    database = open_read_only(location, settings)
    try:
        with reporting_errors(location):
            status = _retrying(settings)(database.read)(read_status)
    finally:
        database.close()
    check_supported(status, location)
    return status


def upgrade(
    database: Database,
    settings: StoreSettings,
    *,
    to: str = "head",
    progress: Callable[[str], None] | None = None,
    folder: Path | None = None,
) -> list[str]:
    """Run the revisions that are missing, one transaction each.

    Idempotent, and safe beside other programs that do the same. A new database runs every
    revision like an old one.

    Args:
        database: An open store.
        settings: How long to try for the lock.
        to: The revision to stop at; one that is behind already is no error.
        progress: Called with the id of each revision after its commit.
        folder: Another history than the one that comes with the package, for tests.

    Returns:
        The ids of the revisions this call ran, oldest first.

    Raises:
        SchemaTooNewError: The database is at an unknown revision.
        MigrationError: A revision failed; the database is as it was before that one.
        StoreBusyError: The lock was not had within the patience.
    """
    history = _History(folder or migrations_folder())
    target = history.place(history.ids[-1] if to == "head" else to)

    def next_up(status: SchemaStatus) -> str | None:
        place = history.place(status.revision)
        return history.ids[place] if place < target else None

    return _walk(database, settings, history, next_up, progress)


def downgrade(
    database: Database, settings: StoreSettings, *, to: str, folder: Path | None = None
) -> list[str]:
    """Undo revisions, one transaction each; their docstrings say what each of them loses.

    Args:
        database: An open store.
        settings: How long to try for the lock.
        to: The revision to go back to, or `base` for a database without any table.
        folder: Another history than the one that comes with the package, for tests.

    Returns:
        The ids of the revisions that were undone, newest first.

    Raises:
        SchemaTooNewError: The database is at an unknown revision.
        MigrationError: A revision failed; the database is as it was before that one.
        StoreBusyError: The lock was not had within the patience.
    """
    history = _History(folder or migrations_folder())
    target = history.place(None if to == "base" else to)

    def next_down(status: SchemaStatus) -> str | None:
        place = history.place(status.revision)
        return history.ids[place - 1] if place > target else None

    return _walk(database, settings, history, next_down, None, down=True)


def history() -> list[RevisionInfo]:
    """List the revisions that come with the package, oldest first."""
    return _History(migrations_folder()).revisions


def migrations_folder() -> Path:
    """Find the revisions: inside the package once installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


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
        _look_at_file(location, settings)
    database = open_database(location, settings)
    try:
        with (
            reporting_errors(location),
            _write_lock(database, settings) as connection,
            _keeping_references(connection),
        ):
            check_supported(read_status(connection), location)
            yield connection
    except OperationalError as error:
        if not is_contention(error):
            raise
        msg = f"{location}: another program holds the write lock; nothing was written. Try again"
        raise StoreBusyError(msg, attempts=1, waited_s=settings.busy_timeout_s) from error
    finally:
        database.close()


class _History:
    """The revisions in one folder, loaded once; a single line without branches.

    Attributes:
        revisions: Oldest first.
        ids: The same, ids only.
    """

    def __init__(self, folder: Path) -> None:
        with _alembic_lock:
            from alembic.config import Config
            from alembic.script import ScriptDirectory

            self._config = Config()
            # A percent sign would begin an interpolation.
            self._config.set_main_option("script_location", str(folder).replace("%", "%%"))
            self._scripts = ScriptDirectory.from_config(self._config)
            scripts = list(self._scripts.walk_revisions())
        self.revisions = [
            RevisionInfo(script.revision, script.doc.partition("\n")[0])
            for script in reversed(scripts)
        ]
        self.ids = [info.id for info in self.revisions]

    def place(self, revision: str | None) -> int:
        """How many revisions lead there: 0 for none, 1 for the first."""
        if revision is None:
            return 0
        if revision not in self.ids:
            msg = f"there is no revision {revision!r}; they are {self.ids[0]} to {self.ids[-1]}"
            raise MigrationError(msg)
        return self.ids.index(revision) + 1

    def run(self, connection: Connection, revision: str, *, down: bool) -> None:
        """Run one revision on a connection that is in a transaction, and stay in it."""

        def steps(heads: str, _context: MigrationContext) -> list[RevisionStep]:
            # What alembic.command does for its own commands.
            if down:
                return self._scripts._downgrade_revs("-1", heads)  # noqa: SLF001 - no public way
            return self._scripts._upgrade_revs(revision, heads)  # noqa: SLF001 - no public way

        with _alembic_lock:
            from alembic.runtime.environment import EnvironmentContext

            self._config.attributes["connection"] = connection
            with EnvironmentContext(self._config, self._scripts, fn=steps):
                self._scripts.run_env()


def _walk(
    database: Database,
    settings: StoreSettings,
    history: _History,
    choose: Callable[[SchemaStatus], str | None],
    progress: Callable[[str], None] | None,
    *,
    down: bool = False,
) -> list[str]:
    """Do one step after the other until there is none to choose."""
    known = frozenset(history.ids)

    def step() -> str | None:
        with _write_lock(database, settings) as connection:
            status = read_status(connection)
            _check_supported(status, database.location, known, history.ids[-1])
            revision = choose(status)
            if revision is None:
                return None
            try:
                with _keeping_references(connection):
                    history.run(connection, revision, down=down)
            except Exception as error:
                if is_contention(error):
                    raise
                msg = (
                    f"{database.location}: revision {revision} failed ({_first_line(error)}); "
                    "the database is as it was before that revision. Keep a copy of it and "
                    "report this"
                )
                raise MigrationError(msg) from error
            return revision

    done: list[str] = []
    with reporting_errors(database.location):
        while (revision := _retrying(settings)(step)()) is not None:
            done.append(revision)
            if progress:
                progress(revision)
    return done


def _first_line(error: Exception) -> str:
    # An error of SQLAlchemy goes on with the statement; the driver's own words suffice.
    return str(getattr(error, "orig", None) or error or type(error).__name__).partition("\n")[0]


@contextmanager
def _write_lock(database: Database, settings: StoreSettings) -> Iterator[Connection]:
    """Begin a transaction that nobody else upgrades beside; it commits at the end.

    SQLite does not enforce foreign keys meanwhile: it could neither change a table that
    others refer to, nor keep a row whose parent is missing already. The PRAGMA is ignored
    inside a transaction (https://www.sqlite.org/pragma.html#pragma_foreign_keys).
    """
    sqlite = database.location.path is not None
    with database.engine.connect().execution_options(**{WRITE_OPTION: True}) as connection:
        raw = connection.connection.driver_connection
        if raw is not None and sqlite:
            raw.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection.begin():
                if not sqlite:
                    _lock_schema(connection, settings)
                yield connection
        finally:
            if raw is not None and sqlite:
                raw.execute("PRAGMA foreign_keys = ON")


def _lock_schema(connection: Connection, settings: StoreSettings) -> None:
    # lock_timeout holds for the advisory lock too; what it raises is retried.
    for statement in (
        f"SET LOCAL lock_timeout = {settings.busy_timeout_s * 1000:.0f}",
        f"SET LOCAL statement_timeout = {_STATEMENT_TIMEOUT_S * 1000:d}",
        f"SELECT pg_advisory_xact_lock({_ADVISORY_KEY:d})",
    ):
        connection.exec_driver_sql(statement)


@contextmanager
def _keeping_references(connection: Connection) -> Iterator[None]:
    """Make sure that no reference breaks which was whole before; old files have broken ones."""
    if connection.dialect.name != "sqlite":
        yield
        return
    before = _broken_references(connection)
    yield
    if broken := _broken_references(connection) - before:
        table, row, parent = min(broken, key=str)
        msg = f"{len(broken)} rows lost what they refer to, such as {table} {row} in {parent}"
        raise MigrationError(msg)


def _broken_references(connection: Connection) -> set[tuple[str, int | None, str]]:
    # Without the number of the key, which counts from the newest and so shifts with each.
    found = connection.exec_driver_sql("PRAGMA foreign_key_check")
    return {(table, row, parent) for table, row, parent, _ in found}


def _retrying(settings: StoreSettings) -> Callable[[Callable[P, T]], Callable[P, T]]:
    return retry_on_contention(
        patience_s=settings.write_patience_s,
        min_attempts=settings.write_min_attempts,
        pause_s=settings.retry_pause_s,
    )
