"""A PostgreSQL server: how it is reached, how a transaction begins and ends on it.

Nothing here lives longer than a transaction: no setting of a connection, no prepared
statement, no lock. So a pooler that gives a server connection to each transaction
(PgBouncer's `transaction` mode) may stand between.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from sessionstore.errors import StoreUnavailableError
from sessionstore.settings import StoreSettings
from sessionstore.turns import LastingPool

T = TypeVar("T")

# The part of a URL's query that names the schema of a store, for several on one database.
SCHEMA = "schema"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

# How a connection is told to begin; read by the listener below, and the one for SQLite.
WRITE_OPTION = "sessionstore_write"
# The revision that the schema has to be at; read there too.
REVISION_OPTION = "sessionstore_revision"

# A host that does not answer at all would be waited for without end.
_CONNECT_TIMEOUT_S = 10

# PQTRANS_INERROR (https://www.postgresql.org/docs/current/libpq-status.html).
_IN_ERROR = 3

# Asked in the same message as BEGIN, so that it takes no time, and so in the only way in which
# SQL fails by itself. It locks the table until the transaction ends: an upgrade waits for that,
# or the transaction for the upgrade (`let_open_stores_finish` in migrations/env.py).
_IS_AT = "; SELECT 1 / count(*) FROM alembic_version WHERE version_num = '{}'"
# division_by_zero; undefined_table, where there is not even an `alembic_version`.
_OTHER_REVISION = frozenset({"22012", "42P01"})

# read_only_sql_transaction, insufficient_privilege.
NOT_LET = frozenset({"25006", "42501"})
# https://www.postgresql.org/docs/current/errcodes-appendix.html, what makes a store
# unusable as it is: whole codes, and classes of two characters.
_UNAVAILABLE = {
    "25006": (
        "the server takes no writes: it is a standby, or read-only by its settings; name the "
        "primary server, or open it with read_only"
    ),
    "42501": "the role lacks a privilege that this needs; docs/postgresql.md says which",
    "57014": "a statement took longer than the server lets it, and was ended",
    "3D000": "there is no such database; create it first",
    "3F000": "there is no such schema; create it first",
    "53": "the server has run out of something, such as disk or connections",
    "54": "this is more than the server can hold in one value",
    "28": "the server refuses the user or the password",
}


def schema_of(url: URL) -> str | None:
    """Say which schema a URL names by `?schema=`, or None.

    Raises:
        ValueError: It names several, or none that could be one.
    """
    named = url.query.get(SCHEMA)
    if named is None:
        return None
    if not isinstance(named, str) or not _NAME.fullmatch(named):
        msg = f"schema={named!r} is not a valid schema name: letters, digits and _, at most 63"
        raise ValueError(msg)
    return named


def engine_for(url: URL, settings: StoreSettings, *, read_only: bool) -> Engine:
    """Make the engine of a store on a server; nothing is connected to yet.

    Raises:
        ImportError: The driver is not installed.
    """
    schema = schema_of(url)
    # Without prepared statements, which a pooler would have to know of
    # (https://www.psycopg.org/psycopg3/docs/advanced/prepare.html#using-prepared-statements-with-pgbouncer).
    given: dict[str, Any] = {"application_name": "sessionstore", "prepare_threshold": None}
    if "connect_timeout" not in url.query:
        given["connect_timeout"] = _CONNECT_TIMEOUT_S
    engine = create_engine(
        url.difference_update_query([SCHEMA]),
        poolclass=LastingPool,
        pool_size=settings.connections,
        pool_timeout=settings.busy_timeout_s,
        # A lost connection shows at BEGIN, before which nothing was done, and the unit is run
        # again: to ask before each transaction whether it is there would take as long as BEGIN.
        pool_pre_ping=False,
        hide_parameters=True,
        # BEGIN is said below, with what holds for the transaction, in one message.
        connect_args={**given, "autocommit": True},
        # Or each new connection asks the server for a type that is not used here.
        use_native_hstore=False,
    )
    said = [
        f"SET LOCAL lock_timeout = {settings.busy_timeout_s * 1000:.0f}",
        # To compile the statement of a list took 7 s, where to run it takes milliseconds.
        "SET LOCAL jit = off",
    ]
    if schema is not None:
        # Nothing after it: what is missing there must not be found in the store of another.
        said.append(f'SET LOCAL search_path = "{schema}"')
    writes = "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *said])
    # All statements of a call that reads see one state.
    reads = "; ".join(["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", *said])

    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        message = writes if options.get(WRITE_OPTION) and not read_only else reads
        if (revision := options.get(REVISION_OPTION)) is not None:
            message += _IS_AT.format(revision)
        connection.exec_driver_sql(message)

    event.listen(engine, "begin", begin)
    return engine


def run(
    connection: Connection,
    unit: Callable[[Connection], T],
    where: str,
    *,
    revision: str | None = None,
    guard: Callable[[Connection], None] | None = None,
) -> T:
    """Run a unit in one transaction.

    Args:
        connection: A connection of an engine of this module.
        unit: What to do.
        where: The store, for errors.
        revision: What the schema has to be at when the transaction begins; None: anything.
        guard: Looks closer where it is not, and raises if the unit must not run.

    Raises:
        StoreUnavailableError: The connection was lost while the server was told to commit, so
            that nobody knows whether it did; or an error was passed over within the unit.
    """
    raw: Any = connection.connection.driver_connection
    try:
        transaction = connection.execution_options(**{REVISION_OPTION: revision}).begin()
    except DBAPIError as error:
        if guard is None or getattr(error.orig, "sqlstate", None) not in _OTHER_REVISION:
            raise
        raw.rollback()
        transaction = connection.execution_options(**{REVISION_OPTION: None}).begin()
        guard(connection)
    with transaction:
        result = unit(connection)
        if raw.info.transaction_status == _IN_ERROR:
            # COMMIT would then roll back without a word.
            msg = f"{where}: a statement failed and was passed over; nothing was written"
            raise StoreUnavailableError(msg)
        writes = connection.get_execution_options().get(WRITE_OPTION)
        try:
            transaction.commit()
        except DBAPIError as error:
            if not writes or not error.connection_invalidated:
                raise
            msg = (
                f"{where}: the connection was lost while the server was told to commit, so it "
                "is not known whether this call was stored; look before you make it again"
            )
            raise StoreUnavailableError(msg) from error
    return result


def reason(error: BaseException) -> str | None:
    """Say in words what makes a store unusable, where the server's code tells."""
    code = getattr(error, "sqlstate", None) or ""
    return _UNAVAILABLE.get(code) or _UNAVAILABLE.get(code[:2])
