"""The life of a store: opening, units of work, checkpoints, closing."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, TypeVarTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sessionstore import schema, search
from sessionstore.errors import SessionStoreError, StoreClosedError, StoreUnavailableError
from sessionstore.forking import forked
from sessionstore.location import Location, locate
from sessionstore.reporting import reporting_errors
from sessionstore.repository import maintenance
from sessionstore.retry import OtherThreadsError, retrying
from sessionstore.settings import StoreSettings
from sessionstore.turns import Turn

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger("sessionstore")

# While a part of the search index is missing, so many writes are followed by one step towards
# the whole: some 30 ms for at most so many messages with so much text.
_INDEX_EVERY_WRITES = 8
# Once it is whole, only another program's messages can add to it.
_LOOK_EVERY_WRITES = 64
_INDEX_STEP = {"messages": 100, "characters": 100_000}


class StoreBase:
    """An open store and the two ways to use it: a unit that reads, a unit that writes."""

    def __init__(
        self,
        db_path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
        *,
        url: str | None = None,
        read_only: bool = False,
        migrate: bool = True,
        settings: StoreSettings | None = None,
    ) -> None:
        self._settings = settings or StoreSettings()
        self._location = locate(db_path, url=url)
        self._database = schema.open_current(
            self._location, self._settings, read_only=read_only, migrate=migrate
        )
        # Made once: each write looks at it.
        self._log = self._location.path and Path(f"{self._location.path}-wal")
        self._closed = False
        self._writes = 0
        self._completing = False
        self._next_indexing = _INDEX_EVERY_WRITES
        # Writers of one process queue here rather than at the database, where they would
        # wait in steps of the busy handler. It is free while a retry pauses.
        self._writer = Turn()
        self._read_with_retry = retrying(self._settings, writes=False)(self._database.read)
        self._write_with_retry = retrying(self._settings)(self._write_once)

    @property
    def location(self) -> Location:
        """Where the store is."""
        return self._location

    @property
    def read_only(self) -> bool:
        """Whether the store was opened only to read."""
        return self._database.read_only

    @property
    def settings(self) -> StoreSettings:
        """What was tuned about the store."""
        return self._settings

    def __enter__(self) -> Self:
        """Use the store until the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    def close(self) -> None:
        """Close the store; again is harmless, any other call after it is a StoreClosedError.

        Calls that run in other threads finish. What was written is moved from the
        write-ahead log into the file if nobody else is in the way. Never raises.
        """
        if self._closed:
            return
        self._closed = True
        if self._database.inherited:
            return
        try:
            with self._writer.taken(self._settings.busy_timeout_s):
                if self._writes:
                    self._database.queue.run(self._checkpoint_in_turn, "TRUNCATE")
                self._database.close()
        except OtherThreadsError as error:
            logger.debug("%s: the thread that writes closes it: %s", self._location, error)

    @property
    def _on_server(self) -> bool:
        return self._location.path is None

    def _now(self) -> float:
        return self._settings.clock()

    def _read(self, unit: Callable[[Connection], T]) -> T:
        """Run a unit in one transaction that reads."""
        self._require_open()
        with reporting_errors(self._location):
            return self._read_with_retry(unit)

    def _write(self, unit: Callable[[Connection], T]) -> T:
        """Run a unit in one transaction that writes, again if others were in the way."""
        self._require_writable()
        with reporting_errors(self._location):
            result = self._write_with_retry(unit)
        if self._writes >= self._next_indexing:
            self._next_indexing = self._writes + (
                _INDEX_EVERY_WRITES if self._index_some() else _LOOK_EVERY_WRITES
            )
        return result

    def _write_once(self, unit: Callable[[Connection], T]) -> T:
        # A turn that is not had is one attempt, as long as the database's own wait.
        return self._alone(self._write_in_turn, unit)

    def _write_in_turn(self, unit: Callable[[Connection], T]) -> T:
        if self._log_is_long():
            # SQLite cuts the log when a write begins it anew, which takes that all of it is in
            # the file; after a long reader only the next checkpoint would see to that.
            self._checkpoint_in_turn("PASSIVE")
        try:
            result = self._database.write(unit)
        except (DBAPIError, sqlite3.Error) as error:
            if not search.index.may_be_index_trouble(error):
                raise
            result = self._write_without_index(unit, error)
        self._writes += 1
        if self._writes % self._settings.checkpoint_every_writes == 0:
            self._checkpoint_in_turn("PASSIVE")
        return result

    def _write_without_index(
        self, unit: Callable[[Connection], T], error: DBAPIError | sqlite3.Error
    ) -> T:
        """Run a unit again without what keeps the search index, which may be what failed.

        Both in one transaction: if it was something else, it fails again and the index stays.
        """

        def alone(connection: Connection) -> T:
            if not search.index.suspend(connection):
                raise error
            return unit(connection)

        try:
            result = self._database.write(alone)
        except (DBAPIError, sqlite3.Error) as again:
            if search.index.is_index_trouble(again):
                raise error from None
            raise
        logger.warning(
            "%s: the search index failed (%s) and is left out; messages are stored and found "
            "all the same. Rebuild it",
            self._location,
            getattr(error, "orig", error),
        )
        return result

    def _index_some(self) -> bool:
        """Take one step towards a whole search index; say whether there may be more to do.

        Never raises.
        """
        if self._completing:
            return False
        try:
            with self._writer.taken(0.0):
                if not self._database.read(search.index.has_work):
                    return False
                self._database.queue.run(
                    self._database.write, lambda db: search.index.step(db, **_INDEX_STEP)
                )
        except (SQLAlchemyError, sqlite3.Error, OtherThreadsError, SessionStoreError) as error:
            # The write before is stored, even if another program has upgraded the file since,
            # which the next call says. What is not indexed yet is found by reading it; the
            # next step tries again.
            logger.debug("%s: indexing put off: %s", self._location, error)
        return True

    def _complete_index(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Take steps until the search index is whole; see `complete_search_index`."""
        self._completing = True
        try:
            return search.index.fill(self._read, self._write, progress)
        finally:
            self._completing = False

    def _outside_transaction(self, unit: Callable[[Any], T]) -> T:
        """Run a unit that no transaction may hold, such as VACUUM, when no thread writes."""
        self._require_writable()

        # A server's driver is spoken to directly, and its errors have to be known as such.
        told = self._telling(unit) if self._on_server else unit
        with reporting_errors(self._location):
            return retrying(self._settings)(self._alone)(self._database.outside_transaction, told)

    def _telling(self, unit: Callable[[Any], T]) -> Callable[[Any], T]:
        """Let a unit raise the driver's errors as SQLAlchemy does."""
        dialect = self._database.engine.dialect
        driver: Any = dialect.loaded_dbapi

        def telling(raw: Any) -> T:
            try:
                return unit(raw)
            except driver.Error as error:
                lost = dialect.is_disconnect(error, None, None)
                raise DBAPIError.instance(
                    None, None, error, driver.Error, connection_invalidated=lost, dialect=dialect
                ) from error

        return telling

    def _alone(self, call: Callable[[*Ts], T], /, *args: *Ts) -> T:
        """Call a function when no other thread writes, nor any other process that queues."""
        with self._writer.taken(self._settings.busy_timeout_s):
            try:
                return self._database.queue.run(call, *args)
            finally:
                if self._closed:
                    self._database.close()

    def _log_is_long(self) -> bool:
        if self._log is None:
            return False
        try:
            size = self._log.stat().st_size
        except OSError:
            return False
        return 0 <= self._settings.journal_size_limit_bytes < size

    def _checkpoint(self, mode: Literal["PASSIVE", "TRUNCATE"]) -> None:
        """Move the write-ahead log into the file, as far as others let it; never raises."""
        try:
            self._alone(self._checkpoint_in_turn, mode)
        except OtherThreadsError as error:
            logger.debug("%s: checkpoint put off: %s", self._location, error)

    def _checkpoint_in_turn(self, mode: Literal["PASSIVE", "TRUNCATE"]) -> None:
        if self._location.path is None:
            return
        try:
            self._database.outside_transaction(lambda raw: maintenance.checkpoint(raw, mode))
        except (sqlite3.Error, SQLAlchemyError) as error:
            # The log is whole without it; the next checkpoint does the work.
            logger.debug("%s: checkpoint put off: %s", self._location, error)

    def _require_writable(self) -> None:
        self._require_open()
        if self._database.read_only:
            msg = f"{self._location} was opened read-only; open it without read_only to write"
            raise StoreUnavailableError(msg)

    def _require_open(self) -> None:
        if self._database.queue.forgotten:
            raise forked(self._location)
        if self._closed:
            msg = f"{self._location} was closed; open it again"
            raise StoreClosedError(msg)
