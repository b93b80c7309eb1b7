"""Walk the migration history, up or down, one locked transaction for each revision."""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from sessionstore import server
from sessionstore.engine import Database
from sessionstore.errors import MigrationError
from sessionstore.location import Location
from sessionstore.models import SCHEMA_REVISION
from sessionstore.reporting import reporting_errors
from sessionstore.retry import is_contention, retrying
from sessionstore.schema.complete import add_missing_columns
from sessionstore.schema.status import SchemaStatus, check_supported_by, read_status
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
class RevisionInfo:
    """One step of the history.

    Attributes:
        id: The zero-padded number of the schema it leads to.
        summary: The first line of its docstring.
    """

    id: str
    summary: str


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
    history = _history(folder or migrations_folder())
    target = history.place(history.ids[-1] if to == "head" else to)

    def next_up(status: SchemaStatus) -> str | None:
        place = history.place(status.revision)
        return history.ids[place] if place < target else None

    end = history.ids[target - 1] if target else "base"
    return _walk(database, settings, history, next_up, progress, end=end)


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
    history = _history(folder or migrations_folder())
    target = history.place(None if to == "base" else to)

    def next_down(status: SchemaStatus) -> str | None:
        place = history.place(status.revision)
        if place < target:
            msg = f"{database.location} is at {status.label}, which is not after {to}"
            raise MigrationError(msg)
        return history.ids[place - 1] if place > target else None

    return _walk(database, settings, history, next_down, None, end=to, down=True)


def history() -> list[RevisionInfo]:
    """List the revisions that come with the package, oldest first."""
    return _history(migrations_folder()).revisions


def migrations_folder() -> Path:
    """Find the revisions: inside the package once installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


@functools.cache
def _history(folder: Path) -> _History:
    """Load a history once in a process: reading it takes longer than a revision does."""
    return _History(folder)


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

    def run(self, connection: Connection, revision: str, *, down: bool, end: str) -> None:
        """Run one revision on a connection that is in a transaction, and stay in it.

        Args:
            connection: The connection.
            revision: The revision to do or to undo.
            down: Undo it.
            end: The revision where the walk ends; revisions may ask for it.
        """

        def steps(heads: str, _context: MigrationContext) -> list[RevisionStep]:
            # What alembic.command does for its own commands.
            if down:
                return self._scripts._downgrade_revs("-1", heads)  # noqa: SLF001 - no public way
            return self._scripts._upgrade_revs(revision, heads)  # noqa: SLF001 - no public way

        with _alembic_lock:
            from alembic.runtime.environment import EnvironmentContext

            self._config.attributes["connection"] = connection
            try:
                with EnvironmentContext(self._config, self._scripts, fn=steps, destination_rev=end):
                    self._scripts.run_env()
            finally:
                del self._config.attributes["connection"]


def _walk(
    database: Database,
    settings: StoreSettings,
    history: _History,
    choose: Callable[[SchemaStatus], str | None],
    progress: Callable[[str], None] | None,
    *,
    end: str,
    down: bool = False,
) -> list[str]:
    """Do one step after the other until there is none to choose."""
    known = frozenset(history.ids)

    def step() -> str | None:
        with write_lock(database, settings) as connection:
            status = read_status(connection)
            check_supported_by(status, database.location, known, history.ids[-1])
            revision = choose(status)
            if revision is None:
                return None
            try:
                with keeping_references(connection):
                    history.run(connection, revision, down=down, end=end)
                    if revision == SCHEMA_REVISION and not down:
                        add_missing_columns(connection)
            except Exception as error:
                if is_contention(error) or _is_of_the_server(error):
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
        # Whoever does the next revision may need long for it, and the others wait for that.
        patient = retrying(settings, patience_s=settings.upgrade_patience_s)
        while (revision := patient(database.queue.run)(step)) is not None:
            done.append(revision)
            if progress:
                progress(revision)
    return done


def _is_of_the_server(error: Exception) -> bool:
    """Say whether a role lacks a privilege, or a server takes no writes: no revision's fault."""
    original = error.orig if isinstance(error, DBAPIError) else None
    return getattr(original, "sqlstate", None) in server.NOT_LET


def _first_line(error: Exception) -> str:
    # An error of SQLAlchemy goes on with the statement; the driver's own words suffice.
    return str(getattr(error, "orig", None) or error or type(error).__name__).partition("\n")[0]


@contextmanager
def write_lock(database: Database, settings: StoreSettings) -> Iterator[Connection]:
    """Begin a transaction that nobody else upgrades beside; it commits at the end.

    SQLite does not enforce foreign keys meanwhile: it could neither change a table that
    others refer to, nor keep a row whose parent is missing already. The PRAGMA is ignored
    inside a transaction (https://www.sqlite.org/pragma.html#pragma_foreign_keys).
    """
    sqlite = database.location.path is not None
    with database.engine.connect().execution_options(**{server.WRITE_OPTION: True}) as connection:
        raw = connection.connection.driver_connection
        if raw is not None and sqlite:
            raw.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection.begin():
                if not sqlite:
                    _lock_schema(connection, database.location, settings)
                yield connection
        finally:
            if raw is not None and sqlite:
                raw.execute("PRAGMA foreign_keys = ON")


def _lock_schema(connection: Connection, location: Location, settings: StoreSettings) -> None:
    # lock_timeout holds for the advisory lock too; what it raises is retried. A statement that
    # waits behind a long reader so lets those go first who came after it.
    for statement in (
        f"SET LOCAL lock_timeout = {settings.busy_timeout_s * 1000:.0f}",
        f"SET LOCAL statement_timeout = {_STATEMENT_TIMEOUT_S * 1000:.0f}",
        f"SELECT pg_advisory_xact_lock({_ADVISORY_KEY:d})",
    ):
        connection.exec_driver_sql(statement)
    named = server.schema_of(location.url)
    if named and connection.exec_driver_sql("SELECT current_schema()").scalar() is None:
        connection.exec_driver_sql(f'CREATE SCHEMA "{named}"')


@contextmanager
def keeping_references(connection: Connection) -> Iterator[None]:
    """Make sure that no reference breaks which was whole before; old files have broken ones."""
    if connection.dialect.name != "sqlite":
        yield
        return
    before = _broken_references(connection)
    yield
    after = _broken_references(connection)
    if before is not None and after is not None and (broken := after - before):
        table, row, parent = min(broken, key=str)
        msg = f"{len(broken)} rows lost what they refer to, such as {table} {row} in {parent}"
        raise MigrationError(msg)


def _broken_references(connection: Connection) -> set[tuple[str, int | None, str]] | None:
    """List them, or None where a table that is not ours makes the check itself fail."""
    try:
        found = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
            raise
        return None
    # Without the number of the key, which counts from the newest and so shifts with each.
    return {(table, row, parent) for table, row, parent, _ in found}
