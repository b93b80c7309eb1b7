"""What the adapters share: one store for each place."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from sessionstore.aio import AsyncSessionDB
from sessionstore.location import Location, locate
from sessionstore.store import SessionDB, open_at

# SQLite and PostgreSQL hold whole numbers of 64 bits.
_LARGEST = 2**63 - 1

# What an adapter may be given as its store, and one whose calls are awaited.
Store: TypeAlias = SessionDB | str | os.PathLike[str] | None
AsyncStore: TypeAlias = AsyncSessionDB | Store

# By process and place.
_shared: dict[tuple[int, Location], SessionDB] = {}
_opening = threading.Lock()


@contextmanager
def from_extra(name: str) -> Iterator[None]:
    """Import a framework; where it is missing, say which extra brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        msg = f"{error.name} is not installed: pip install 'sessionstore[{name}]'"
        raise ModuleNotFoundError(msg, name=error.name) from error


def opened(store: Store) -> SessionDB:
    """Give the store that an adapter was told to use.

    A path, a URL or None names a place, see `SessionDB`; it is opened once in a process,
    however many adapters are made for it, and closed when the process ends. A store that is
    given is its owner's to close.
    """
    if isinstance(store, SessionDB):
        return store
    where = locate(url=store) if isinstance(store, str) and "://" in store else locate(store)
    # A process that was forked must not use the connections of the one before it.
    key = os.getpid(), where
    with _opening:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = open_at(where)
            atexit.register(_close, key)
        return found


def _close(key: tuple[int, Location]) -> None:
    process, _ = key
    if process == os.getpid():
        _shared.pop(key).close()


def countable(tokens: int | None) -> int | None:
    """Give a number of tokens that a column can hold; of another the framework's form tells."""
    return tokens if tokens is not None and 0 <= tokens <= _LARGEST else None


def awaited(store: AsyncStore) -> AsyncSessionDB:
    """Give the store of an adapter whose calls are awaited; see `opened`."""
    return store if isinstance(store, AsyncSessionDB) else AsyncSessionDB.over(opened(store))
