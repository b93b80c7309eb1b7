"""What the adapters share: one store for each place."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from sessionstore.aio import AsyncSessionDB, opened_later
from sessionstore.location import Location, locate
from sessionstore.settings import StoreSettings
from sessionstore.store import SessionDB, open_at

# SQLite and PostgreSQL hold whole numbers of 64 bits.
_LARGEST = 2**63 - 1

# What an adapter may be given as its store, and one whose calls are awaited.
Store: TypeAlias = SessionDB | str | os.PathLike[str] | None
AsyncStore: TypeAlias = AsyncSessionDB | Store


class _Place:
    """A place in one process: the store there, opened by who needs it first.

    Attributes:
        awaited: The calls of that store for asyncio.
    """

    def __init__(self, where: Location) -> None:
        self._where, self._settings = where, StoreSettings()
        self._opening = threading.Lock()
        self._store: SessionDB | None = None
        # Of the process that opens it, if that was forked off since.
        self.awaited = opened_later(where, self._settings, lambda: opened(where))

    def opened(self) -> SessionDB:
        """Give the store; it is closed when the process ends."""
        with self._opening:
            if self._store is None:
                self._store = open_at(self._where, settings=self._settings)
                atexit.register(_close, os.getpid(), self._store)
            return self._store


# By process: one that was forked off must not use the connections of the one before it.
_places: dict[tuple[int, Location], _Place] = {}


@contextmanager
def from_extra(name: str) -> Iterator[None]:
    """Import a framework; where it is missing, say which extra brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        msg = f"{error.name} is not installed: pip install 'sessionstore[{name}]'"
        raise ModuleNotFoundError(msg, name=error.name) from error


def located(store: Store | Location) -> SessionDB | Location:
    """Work out which place an adapter was told to use; nothing is opened.

    A path, a URL or None names a place, see `SessionDB`; None is looked up now.

    Raises:
        ValueError, StoreUnavailableError: It can be seen to name no place.
    """
    if isinstance(store, SessionDB | Location):
        return store
    return locate(url=store) if isinstance(store, str) and "://" in store else locate(store)


def opened(store: Store | Location) -> SessionDB:
    """Give the store that an adapter was told to use.

    A place is opened once in a process, however many adapters are made for it, and closed
    when the process ends. A store that is given is its owner's to close.
    """
    where = located(store)
    return where if isinstance(where, SessionDB) else _place(where).opened()


def awaited(store: AsyncStore | Location) -> AsyncSessionDB:
    """Give the store of an adapter whose calls are awaited; the first call opens a place.

    Raises:
        ValueError, StoreUnavailableError: It can be seen to name no place.
    """
    if isinstance(store, AsyncSessionDB):
        return store
    where = located(store)
    return AsyncSessionDB.over(where) if isinstance(where, SessionDB) else _place(where).awaited


def _place(where: Location) -> _Place:
    key = os.getpid(), where
    return _places.get(key) or _places.setdefault(key, _Place(where))


def _close(process: int, store: SessionDB) -> None:
    if process == os.getpid():
        store.close()


def countable(tokens: int | None) -> int | None:
    """Give a number of tokens that a column can hold; of another the framework's form tells."""
    return tokens if tokens is not None and 0 <= tokens <= _LARGEST else None
