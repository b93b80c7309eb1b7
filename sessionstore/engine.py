"""From a location to connections: what is set on each, how it begins, in which pool it is.

Those to a server are made by `server`. SQLite: one engine, one pool. The driver is kept from
beginning transactions by itself; a listener says BEGIN, IMMEDIATE for a writer and DEFERRED for
a reader. A reader that turned writer in the middle would get SQLITE_BUSY_SNAPSHOT, which no
waiting can cure. No engine shows the parameters of a statement: they are what people said, and
errors end up in logs.
"""

from __future__ import annotations

import functools
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from sessionstore import forking, server
from sessionstore.errors import StoreBusyError, StoreUnavailableError
from sessionstore.location import Location
from sessionstore.queueing import WriterQueue
from sessionstore.reporting import reporting_errors
from sessionstore.retry import is_contention, retrying
from sessionstore.settings import StoreSettings
from sessionstore.turns import LastingPool

T = TypeVar("T")

logger = logging.getLogger("sessionstore")

# How often a read of a file that nobody seems to have open is tried anew when it changed.
_SETTLE_ATTEMPTS = 20

# What keeps a file from being switched to WAL that says nothing of the file system.
_NOT_NOW = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL})

# Longer than the coarsest tick of a kernel's clock.
_TICK_S = 0.015

# Serialises the creation of files within this process: whoever finds the file there may
# open it only after the descriptor that made it is closed again, since closing a
# descriptor drops every lock that this process holds on the file
# (https://www.sqlite.org/howtocorrupt.html, 2.2).
_creation_lock = threading.Lock()


@dataclass(frozen=True)
class Database:
    """An open store: where it is and the engine that reaches it.

    Attributes:
        location: Where it is.
        engine: Its connections.
        read_only: Nothing may be written, locked or created.
        queue: Where its writers queue, behind those of other stores.
        guard: Looks at each transaction as it begins, and raises if it must not go on; on a
            server at those that find the schema at another revision than `revision`.
        revision: What the schema was at when `guard` was made.
        inode: Of the file whose descriptors its connections keep; None: they keep none.
    """

    location: Location
    engine: Engine
    read_only: bool
    queue: WriterQueue = field(default_factory=lambda: WriterQueue(None, 0.0))
    guard: Callable[[Connection], None] | None = None
    revision: str | None = None
    inode: int | None = None

    def __post_init__(self) -> None:
        """Be known, while it is open, to a process that is forked off."""
        path = None if self.read_only else self.location.path
        forking.watch(self.engine, path, self.queue)

    @property
    def inherited(self) -> bool:
        """Whether this process was forked off while the store was open."""
        return self.queue.forgotten

    def read(self, unit: Callable[[Connection], T]) -> T:
        """Run a unit in one DEFERRED transaction: it sees one state of the database.

        Raises:
            StoreBusyError: A read-only file changed under every attempt.
        """
        if not (self.read_only and self.location.path):
            with self.engine.connect() as connection:
                return self._run(connection, unit)
        # A file that nobody has open is read as it lies, without a lock or a side file. A
        # writer that comes meanwhile shows in what stat says, and the unit is run again.
        began_at = time.monotonic()
        for _ in range(_SETTLE_ATTEMPTS):
            before = _fingerprint_at_rest(self.location.path)
            unlocked = True
            try:
                with self.engine.connect() as connection:
                    unlocked = isinstance(connection.connection.driver_connection, _Unlocked)
                    result = self._run(connection, unit)
            except (DBAPIError, sqlite3.Error):
                if not unlocked or before == _fingerprint(self.location.path):
                    raise
            else:
                if not unlocked or before == _fingerprint(self.location.path):
                    return result
        msg = f"{self.location} changed during each of {_SETTLE_ATTEMPTS} reads; try again"
        raise StoreBusyError(msg, attempts=_SETTLE_ATTEMPTS, waited_s=time.monotonic() - began_at)

    def ask(self, unit: Callable[[Connection], T], settings: StoreSettings | None = None) -> T:
        """Do what `read` does, again while others are in the way, and raise this package's errors.

        Args:
            unit: What to run.
            settings: How long to try; None: as usual.
        """
        patient = retrying(settings or StoreSettings(), writes=False)
        with reporting_errors(self.location, writes=False):
            return patient(self.read)(unit)

    def write(self, unit: Callable[[Connection], T]) -> T:
        """Run a unit in one transaction that holds the write lock from its first moment."""
        with self._writer.connect() as connection:
            return self._run(connection, unit)

    @functools.cached_property
    def _writer(self) -> Engine:
        """The engine, the same connections, as those who write see it."""
        return self.engine.execution_options(**{server.WRITE_OPTION: True})

    def _run(self, connection: Connection, unit: Callable[[Connection], T]) -> T:
        """Run a unit in a transaction; if it meets damaged text, again and marking it.

        A text factory of ours takes a sixth of a load, and damage is rare.
        """
        if self.location.path is None:
            where = str(self.location)
            return server.run(connection, unit, where, revision=self.revision, guard=self.guard)
        raw: Any = connection.connection.driver_connection
        raw.text_factory = str
        try:
            return self._guarded(connection, unit)
        except OperationalError as error:
            # The driver's own complaint, of text that is no UTF-8, comes without a code.
            if hasattr(error.orig, "sqlite_errorcode"):
                raise
        finally:
            raw.text_factory = _decode_text
        return self._guarded(connection, unit)

    def _guarded(self, connection: Connection, unit: Callable[[Connection], T]) -> T:
        with connection.begin():
            self._require_in_place()
            if self.guard is not None:
                self.guard(connection)
            return unit(connection)

    def _require_in_place(self) -> None:
        """Refuse a file that was moved, removed or replaced since it was opened.

        Who keeps its descriptor could go on with it, and what it wrote nobody would find. In a
        rollback journal SQLite refuses as much by itself, by the same sign, but not in WAL
        (https://www.sqlite.org/rescode.html#readonly_dbmoved).

        Raises:
            StoreUnavailableError: It was.
        """
        if self.inode is None or self.location.path is None:
            return
        try:
            if self.location.path.stat().st_ino == self.inode:
                return
        except OSError as error:
            msg = (
                f"{self.location} is not where it was opened ({error.strerror or error}); "
                "nothing was written. Put it back, or close this store and open it anew"
            )
            raise StoreUnavailableError(msg) from error
        msg = (
            f"{self.location} is another file than the one that was opened, which was moved or "
            "removed; nothing was written. Close this store and open it anew"
        )
        raise StoreUnavailableError(msg)

    def outside_transaction(self, unit: Callable[[Any], T]) -> T:
        """Run a unit on a driver connection, for statements that no transaction may hold."""
        pooled = self.engine.raw_connection()
        try:
            return unit(pooled.driver_connection)
        finally:
            pooled.close()

    def close(self) -> None:
        """Give every connection back; a call that still reads finishes first."""
        if self.inherited:
            return  # they are the parent's
        shared = Path(f"{self.location.path}-shm")
        self.engine.dispose()
        self.queue.close(last=lambda: not shared.exists())
        forking.unwatch(self.engine)


def open_database(location: Location, settings: StoreSettings) -> Database:
    """Open a store to read and write; an absent file is created, mode 0600.

    Raises:
        StoreUnavailableError: The file or server cannot be opened.
        StoreBusyError: The switch to WAL found the file locked for too long.
    """
    if location.path is None:
        return Database(
            location, _server_engine(location, settings, read_only=False), read_only=False
        )
    forking.refuse_inherited(location.path)
    _create_private_file(location.path)
    uri = location.path.as_uri() + "?mode=rw"
    engine = create_engine(
        location.url,
        creator=lambda: _connect(uri, settings),
        poolclass=LastingPool,
        pool_size=settings.connections,
        pool_timeout=settings.busy_timeout_s,
        hide_parameters=True,
    )
    event.listen(engine, "begin", _begin)
    # Whoever holds the queue for longer than some attempts take has stopped, or has much to do.
    queue = WriterQueue(location.path, settings.write_patience_s / 4)
    database = Database(location, engine, read_only=False, queue=queue)
    try:
        with reporting_errors(location):
            retrying(settings)(database.outside_transaction)(lambda raw: _ensure_wal(raw, location))
            # All at once and never more: SQLite keeps the descriptor of a closed connection
            # until the last one of the process goes, so a pool that breathes would leak.
            pooled = [engine.connect() for _ in range(settings.connections)]
            for connection in pooled:
                connection.close()
        # Not sooner: a file system of layers may make another file of it when it is opened.
        database = replace(database, inode=_fingerprint(location.path).inode)
    except BaseException:
        database.close()
        raise
    return database


def open_read_only(location: Location, settings: StoreSettings) -> Database:
    """Open a store to read: no write, no lock, and no file is made, not even a `-shm`.

    But for one case: a file with something in its `-wal` and without a `-shm`, as a copy of
    the two has. SQLite makes a `-shm` to read it, which stays, and cannot in a folder that
    may not be written.

    Raises:
        StoreUnavailableError: There is no such file.
    """
    if location.path is None:
        engine = _server_engine(location, settings, read_only=True)
        return Database(location, engine, read_only=True)
    path = location.path
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"{path} does not exist; name an existing store, or open it without read_only"
        raise StoreUnavailableError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise StoreUnavailableError(msg) from error
    if stat.S_ISDIR(found.st_mode):
        raise _is_a_folder(path)
    forking.refuse_inherited(path)

    def connect() -> sqlite3.Connection:
        # A read-only connection to a WAL file would make -wal and -shm and leave them, so a
        # file that nobody has open is declared immutable (https://www.sqlite.org/wal.html).
        if _in_use(path):
            return _connect(f"{path.as_uri()}?mode=ro", settings, read_only=True)
        uri = f"{path.as_uri()}?mode=ro&immutable=1"
        return _connect(uri, settings, read_only=True, factory=_Unlocked)

    engine = create_engine(location.url, creator=connect, poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "begin", _begin)
    return Database(location, engine, read_only=True)


def _server_engine(location: Location, settings: StoreSettings, *, read_only: bool) -> Engine:
    try:
        return server.engine_for(location.url, settings, read_only=read_only)
    except ImportError as error:
        msg = (
            f"{location}: the driver {error.name} is not installed; "
            "install sessionstore[postgres] and write postgresql+psycopg://HOST/NAME"
        )
        raise StoreUnavailableError(msg) from error


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are not there, mode 0700 whatever the umask.

    Whoever may write a folder can put another file in the place of one in it. The mode of a
    folder that is there is its owner's business.

    Raises:
        OSError: It cannot be made.
    """
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _create_private_file(path: Path) -> None:
    """Make the file, mode 0600 from its first moment, unless there is one already.

    The mode of an existing file is its owner's business and stays. SQLite gives `-wal` and
    `-shm` the mode of the file they belong to, whatever the umask.
    """
    with _creation_lock:
        try:
            make_private_folder(path.parent)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if path.is_dir():
                raise _is_a_folder(path) from None
            if not path.parent.is_dir():
                msg = f"{path.parent} is not a folder, so {path} cannot be made"
                raise StoreUnavailableError(msg) from None
        except OSError as error:
            msg = f"{path} cannot be created: {error.strerror or error}"
            raise StoreUnavailableError(msg) from error


def _is_a_folder(path: Path) -> StoreUnavailableError:
    return StoreUnavailableError(f"{path} is a folder; name a file")


def undo_unfinished(location: Location, settings: StoreSettings) -> None:
    """Let SQLite undo what a program that was killed left half written, if anything.

    Only a connection that may write does it, when it first reads, and it writes nothing
    else (https://www.sqlite.org/atomiccommit.html#_hot_rollback_journals).
    """
    if location.path is not None:
        with reporting_errors(location):
            uri = location.path.as_uri() + "?mode=rw"
            retrying(settings)(lambda: _connect(uri, settings).close())()


class _Unlocked(sqlite3.Connection):
    """A connection that takes no lock, to a file that was declared immutable."""


def _connect(
    uri: str,
    settings: StoreSettings,
    *,
    read_only: bool = False,
    factory: type[sqlite3.Connection] = sqlite3.Connection,
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri,
        factory=factory,
        uri=True,
        timeout=settings.busy_timeout_s,
        # The driver begins no transaction by itself; `_begin` does.
        isolation_level=None,
        # The pool hands a connection to one thread at a time.
        check_same_thread=False,
    )
    try:
        # A damaged text comes back marked instead of failing the whole statement.
        connection.text_factory = _decode_text
        # SQLite's own lower() knows ASCII only; filters ignore case in every script.
        connection.create_function("casefold", 1, _casefold, deterministic=True)
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA foreign_keys = ON")
            # A commit that returned survives a power cut; NORMAL would lose the last ones.
            connection.execute("PRAGMA synchronous = FULL")
            # A long reader lets the log grow; this cuts it back at the next checkpoint.
            limit = settings.journal_size_limit_bytes
            connection.execute(f"PRAGMA journal_size_limit = {limit:d}")
            # Opens the log's descriptor and reads the schema now rather than in a call.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _decode_text(raw: bytes) -> str:
    """Decode stored text; bytes that are no UTF-8 come back as U+FFFD, their neighbours whole."""
    return raw.decode("utf-8", "replace")


def _casefold(value: bytes | None) -> str | None:
    return None if value is None else _decode_text(value).casefold()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(server.WRITE_OPTION)
    # By way of SQLAlchemy it takes three times as long, which each append would pay.
    raw: Any = connection.connection.driver_connection
    raw.execute("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")


def _ensure_wal(raw: sqlite3.Connection, location: Location) -> None:
    (mode,) = raw.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        return
    try:
        (mode,) = raw.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        if is_contention(error):
            raise
        if error.sqlite_errorcode & 0xFF in _NOT_NOW:
            return  # the first write says it; who only reads needs no log
        (mode,) = raw.execute("PRAGMA journal_mode = DELETE").fetchone()
    if mode != "wal":
        logger.warning(
            "%s: this file system refuses write-ahead logging; using the %s journal, "
            "so readers and the writer wait for each other",
            location,
            mode,
        )


class _Fingerprint(NamedTuple):
    inode: int
    size: int
    modified_ns: int
    in_use: bool


def _fingerprint(path: Path) -> _Fingerprint:
    """What can be told of a file without opening it: a closed descriptor would drop locks.

    Raises:
        StoreUnavailableError: It is not there any more.
    """
    try:
        found = path.stat()
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise StoreUnavailableError(msg) from error
    return _Fingerprint(found.st_ino, found.st_size, found.st_mtime_ns, _in_use(path))


def _fingerprint_at_rest(path: Path) -> _Fingerprint:
    """Take the fingerprint when the next change is sure to alter it.

    The kernel dates changes by its tick, 1 to 10 ms long, so of two changes within one tick
    the second leaves no trace. Git calls such a file racily clean.
    """
    found = _fingerprint(path)
    if not found.in_use and 0 <= time.time_ns() - found.modified_ns < _TICK_S * 1e9:
        time.sleep(_TICK_S)
        found = _fingerprint(path)
    return found


def _in_use(path: Path) -> bool:
    """Say whether the file's content may lie partly in a side file."""
    return _exists(f"{path}-shm") or _size(f"{path}-wal") > 0 or _size(f"{path}-journal") > 0


def _exists(name: str) -> bool:
    return Path(name).exists()


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except FileNotFoundError:
        return 0
