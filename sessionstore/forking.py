"""What a process that is forked off may not touch: the stores that were open in its parent.

SQLite forbids to carry a connection across a fork, even to close it there
(https://www.sqlite.org/howtocorrupt.html, 2.6). Nor may such a process open the same file
anew. SQLite keeps, for all connections of a process together, which locks it has on a file,
and the child inherits that memory, but not the locks: it would believe to hold them. Measured
with 3.40.1: once the parent closes, the log is removed under the child, and what the child
commits is lost.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from sessionstore.errors import StoreForkedError
from sessionstore.queueing import WriterQueue

# The engines of all open stores, with their file, if they are not on a server.
_open: weakref.WeakKeyDictionary[Any, tuple[Path | None, WriterQueue]] = weakref.WeakKeyDictionary()
# In a child: what its parents had open, kept so that nothing of it is ever closed here …
_kept: list[object] = []
# … and the device and inode of each file.
_inherited: set[tuple[int, int]] = set()


def watch(engine: object, path: Path | None, queue: WriterQueue) -> None:
    """Remember that a store is open, until its engine is gone or `unwatch` is called."""
    _open[engine] = (path, queue)


def unwatch(engine: object) -> None:
    """Forget a store that was closed."""
    _open.pop(engine, None)


def refuse_inherited(path: Path) -> None:
    """Refuse to open a file that was open when this process was forked off.

    Raises:
        StoreForkedError: It was.
    """
    if not _inherited:
        return
    try:
        found = path.stat()
    except OSError:
        return
    if (found.st_dev, found.st_ino) in _inherited:
        raise forked(path)


def forked(store: object) -> StoreForkedError:
    """Say what is wrong with a store that was open before the fork, and what to do."""
    msg = (
        f"{store} was open when this process was forked off, so SQLite has locks here that it "
        "does not hold; start the process by spawn or forkserver, or open the store, in parent "
        "and child, after the fork"
    )
    return StoreForkedError(msg)


def _in_child() -> None:
    for engine, (path, queue) in list(_open.items()):
        _kept.append(engine)
        queue.forget()
        if path is None:
            continue
        try:
            found = path.stat()
        except OSError:
            continue
        _inherited.add((found.st_dev, found.st_ino))
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_in_child)
