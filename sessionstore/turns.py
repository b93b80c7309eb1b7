"""Taking turns within one process, so that nothing is lost when a call is interrupted.

KeyboardInterrupt may strike between any two steps of Python: after a lock was taken and
before the `try` that would give it back, or within the `finally` that does. So nothing here
rests on being given back. Who holds a thing is known by an object of the holder's call; when
that is gone, the thing is free. `with` on a lock of C is safe: the interpreter looks for
signals only once the block is entered or the lock is free again.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from sessionstore.retry import OtherThreadsError

# What was lost rings no bell: whoever waits looks for it so often.
_LOOK_S = 0.05


class _Bell:
    """Wakes one of those who wait; a ring that is missed costs them `_LOOK_S`."""

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, ends_at: float) -> bool:
        """Wait for a ring or the next look; False once the time is over."""
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            return False
        with suppress(Empty):
            self._rings.get(timeout=min(left_s, _LOOK_S))
        return True


class _Place:
    """A place in a line; it lives as long as the call that stands there."""

    def __init__(self) -> None:
        self.bell = _Bell()


class _Line:
    """Calls in the order in which they came.

    Measured without one: of eight threads that wrote all the time one had no turn in 20
    seconds, and of five that read over four connections one had none in six.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._places: deque[weakref.ref[_Place]] = deque()

    @property
    def empty(self) -> bool:
        """Whether nobody stands in it, nor did who is gone since."""
        return not self._places

    def join(self) -> _Place:
        """Stand at the end; to be followed by `leave`."""
        place = _Place()
        with self._mutex:
            self._places.append(weakref.ref(place))
        return place

    def is_first(self, place: _Place) -> bool:
        with self._mutex:
            return self._first() is place

    def leave(self, place: _Place) -> None:
        with self._mutex:
            self._places = deque(each for each in self._places if each() not in (None, place))
        self.ring()

    def ring(self) -> None:
        """Wake the first one."""
        if self.empty:
            return
        with self._mutex:
            first = self._first()
        if first is not None:
            first.bell.ring()

    def _first(self) -> _Place | None:
        while self._places:
            if (first := self._places[0]()) is not None:
                return first
            self._places.popleft()
        return None


class Turn:
    """A lock that is free again once the call that took it is over, however it ended."""

    def __init__(self) -> None:
        # The first one holds it.
        self._line = _Line()

    @contextmanager
    def taken(self, timeout_s: float) -> Iterator[None]:
        """Hold it for a block.

        Raises:
            OtherThreadsError: Other threads held it for so long.
        """
        ends_at = time.monotonic() + timeout_s
        place = self._line.join()
        try:
            while not self._line.is_first(place):
                if not place.bell.wait(ends_at):
                    msg = "other threads of this process were writing"
                    raise OtherThreadsError(msg)
            yield
        finally:
            self._line.leave(place)


class LastingPool(Pool):
    """As many connections as it is told and never more; a lost one is replaced.

    QueuePool counts what it handed out, and what an interrupt lost stays counted.
    """

    def __init__(
        self,
        creator: Callable[..., Any],
        # Not keyword-only: create_engine looks for their names among the plain ones.
        pool_size: int,
        timeout: float,
        **options: Any,
    ) -> None:
        super().__init__(creator, **options)
        self._size, self._timeout_s = pool_size, timeout
        self._mutex = threading.Lock()
        self._line = _Line()
        self._idle: deque[ConnectionPoolEntry] = deque()
        self._made: list[weakref.ref[ConnectionPoolEntry]] = []
        self._disposed = False

    def _do_get(self) -> ConnectionPoolEntry:
        if self._line.empty and (found := self._find()) is not None:
            return found
        ends_at = time.monotonic() + self._timeout_s
        place = self._line.join()
        try:
            while not self._line.is_first(place) or (found := self._find()) is None:
                if not place.bell.wait(ends_at):
                    # An interrupt may have left one to the garbage collector.
                    gc.collect()
                    if (found := self._find()) is None:
                        msg = "other threads of this process had every connection"
                        raise PoolTimeoutError(msg)
                    break
            return found
        finally:
            self._line.leave(place)

    def _find(self) -> ConnectionPoolEntry | None:
        with suppress(IndexError):
            return self._idle.pop()
        with self._mutex:
            self._made = [made for made in self._made if made() is not None]
            if len(self._made) >= self._size:
                return None
            entry = self._create_connection()
            self._made.append(weakref.ref(entry))
            return entry

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        self._idle.append(record)
        if self._disposed:
            self.dispose()
        self._line.ring()

    def dispose(self) -> None:
        """Close what is idle, and what is in use when it comes back."""
        self._disposed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def recreate(self) -> LastingPool:
        """Make another that is like this one at its beginning."""
        return LastingPool(
            self._creator,
            pool_size=self._size,
            timeout=self._timeout_s,
            recycle=self._recycle,
            echo=self.echo,
            logging_name=self._orig_logging_name,
            reset_on_return=self._reset_on_return,
            pre_ping=self._pre_ping,
            _dispatch=self.dispatch,
            dialect=self._dialect,
        )

    def status(self) -> str:
        """Say how many there are, and how many of them wait."""
        return f"{len(self._idle)} of {len(self._made)} connections are idle"
