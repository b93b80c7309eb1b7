"""What the adapters share: one store for each place, and how a framework's own form is kept."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from typing import Any, TypeAlias

from sessionstore.aio import AsyncSessionDB
from sessionstore.engine import locate
from sessionstore.store import SessionDB

# What an adapter may be given as its store, and one whose calls are awaited.
Store: TypeAlias = SessionDB | str | os.PathLike[str] | None
AsyncStore: TypeAlias = AsyncSessionDB | Store

_FRAMEWORK, _VALUE = "kept_for", "value"

_shared: dict[str, SessionDB] = {}
_opening = threading.Lock()


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
    key = f"{os.getpid()} {where.url.render_as_string(hide_password=False)}"
    with _opening:
        found = _shared.get(key)
        if found is None:
            url = where.url.render_as_string(hide_password=False)
            found = SessionDB(where.path) if where.path else SessionDB(url=url)
            _shared[key] = found
            atexit.register(_close, key, os.getpid())
        return found


def _close(key: str, process: int) -> None:
    if process == os.getpid():
        _shared.pop(key).close()


def awaited(store: AsyncStore) -> AsyncSessionDB:
    """Give the store of an adapter whose calls are awaited; see `opened`."""
    return store if isinstance(store, AsyncSessionDB) else AsyncSessionDB.over(opened(store))


def keep(framework: str, value: Any) -> list[Any]:
    """Give what to store as the opaque items of a message, to find a value there again.

    The column is for what only one program reads; the name of that program says which.
    """
    return [{_FRAMEWORK: framework, _VALUE: value}]


def kept(framework: str, items: Any) -> Any:
    """Give what was kept for a framework, or None; what others kept is none of its business."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and item.get(_FRAMEWORK) == framework:
            return item.get(_VALUE)
    return None


def opaque(items: Any) -> list[dict[str, Any]]:
    """List the items of a provider that no adapter kept."""
    return [
        item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and _FRAMEWORK not in item
    ]


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Give a tool call as the store's callers write it, and as its pages show it."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
