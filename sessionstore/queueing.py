"""A queue for the writers of all processes: an advisory lock on a file beside the database.

SQLite gives its write lock to whoever asks at the right moment: those who wait ask again after
pauses of up to 100 ms, so one of many writers may wait for seconds
(https://www.sqlite.org/c3ref/busy_timeout.html). The kernel wakes those who wait for a `flock`
in the order in which they came, but for some that it lets overtake on a busy machine. So writers
take that first, and then find SQLite's own lock free. That one stays the authority: where there
can be no queue, each goes on without it.

KeyboardInterrupt may strike between any two steps of Python, and leaves nothing held: the
interpreter looks for signals after a call into C, not before it, so a `finally` whose first
call is the one that unlocks gets as far as that.
"""

from __future__ import annotations

import _thread
import logging
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar, TypeVarTuple

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
except ImportError:  # Windows has no lock that one can wait for in order
    _POSSIBLE = False
else:
    _POSSIBLE = True
    _AT_ONCE = LOCK_EX | LOCK_NB

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger("sessionstore")

SUFFIX = "-lock"

# A store that closes holds the lock for far less; whoever sits on it keeps its file.
_CLOSING_ATTEMPTS, _CLOSING_PAUSE_S = 100, 0.005

# Where the lock would be the business of a server or of a program, if it is kept at all.
# WAL does not work across machines either (https://www.sqlite.org/wal.html).
_REMOTE = frozenset(
    {"9p", "afs", "ceph", "cifs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"}
    | {"smb3", "smbfs", "vboxsf", "virtiofs"}
)


class WriterQueue:
    """The queue of one store; used by one thread at a time.

    The file is made by the first write, mode 0600, and always empty. The last store to close
    removes it: whoever else had the lock still has the database open, and so its `-shm` is
    there. Whoever opened the file but had not yet the lock finds it gone and makes it anew.
    One that stays, since a program was killed, is used and removed by the next; if it goes
    while stores are open, those opened later stand in another queue.

    Attributes:
        forgotten: The process was forked off while the store was open.
    """

    def __init__(self, path: Path | None, patience_s: float) -> None:
        """Prepare the queue; no file is touched.

        Args:
            path: The database; None if it is on a server, which queues writers itself.
            patience_s: How long to queue before going on without it.
        """
        self._path, self._patience_s = path, patience_s
        self._aside = path is None or not _POSSIBLE
        self.forgotten = False
        self._place: _Place | None = None

    def run(self, call: Callable[[*Ts], T], /, *args: *Ts) -> T:
        """Call a function while no other writer that queues does anything."""
        if self._aside:
            return call(*args)
        try:
            place = self._place
            if place is None or not (place.had and place.take_at_once()):
                self._join()
            return call(*args)
        finally:
            place = self._place
            if place is not None:
                # In this order, and no other call before: see `_Place`.
                place.wanted = None
                flock(place.descriptor, LOCK_UN)

    def close(self, *, last: Callable[[], bool]) -> None:
        """Leave; the file goes with the last. Never raises.

        Args:
            last: Says whether nobody has the database open.
        """
        if self._aside:
            return
        try:
            if last() and self._name.exists():
                place = self._place or self._open()
                self._place = place
                if place and _had_soon(place, last) and place.is_ours(self._name) and last():
                    self._name.unlink()
        except OSError as error:
            logger.debug("%s stays: %s", self._name, error)
        place, self._place = self._place, None
        if place is not None:
            place.close()

    def forget(self) -> None:
        """Let go of the file in a process that was forked off, which shares it unasked."""
        self._aside = self.forgotten = True
        place, self._place = self._place, None
        if place is not None:
            place.drop()

    @property
    def _name(self) -> Path:
        return Path(f"{self._path}{SUFFIX}")

    def _join(self) -> None:
        """Queue until it is our turn, or until the patience is over."""
        ends_at = time.monotonic() + self._patience_s
        try:
            while True:
                place = self._place
                if place is None:
                    place = self._open()
                    if place is None:
                        return
                    self._place = place
                if not place.enter(ends_at - time.monotonic()):
                    return
                if place.had or os.fstat(place.descriptor).st_nlink:
                    place.had = True
                    return
                # The last to close removed it: others stand at another file of that name.
                self._place = None
                place.close()
        except OSError as error:  # ENOLCK, EOPNOTSUPP, EINVAL: there are no locks here
            self._step_aside(error)

    def _open(self) -> _Place | None:
        if _is_remote(self._name.parent):
            self._step_aside("it is on a network file system")
            return None
        # Another user's link does not lead us anywhere, nor does an owner's lock bind others.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        return _Place(os.open(self._name, flags, 0o600))

    def _step_aside(self, why: object) -> None:
        self._aside = True
        place, self._place = self._place, None
        if place is not None:
            place.close()
        logger.debug("%s: writers do not queue here: %s", self._path, why)


def _had_soon(place: _Place, last: Callable[[], bool]) -> bool:
    """Take the lock, waiting a moment: another store may have looked whether it is the last.

    It did so before this one had left, and would leave the file to this one.
    """
    for _ in range(_CLOSING_ATTEMPTS):
        if place.take_at_once():
            return True
        if not last():
            return False
        time.sleep(_CLOSING_PAUSE_S)
    return False


class _Place:
    """A place in the queue: an open file, and a thread that waits where waiting takes long.

    A wait in the kernel cannot be broken off. So a thread of its own does it, on a descriptor
    of its own for the same open file, and is the only one to close that. What it gets is the
    store's. If nobody wants it any more, it gives it back at once: whoever leaves first says
    so in `wanted` and then unlocks, whereas the thread first locks and then looks there, so
    that one of them unlocks, however they meet.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.wanted: object | None = None
        self.had = False
        self._mutex = threading.Lock()
        self._threads_descriptor = -1
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._served: SimpleQueue[object] = SimpleQueue()
        self._waits = False
        self._overdue = False
        # A store that nobody closes leaves nothing open either.
        self._finalizer = weakref.finalize(self, _close, descriptor, self._requests)

    def take_at_once(self) -> bool:
        """Take the lock if it is free and the thread does not wait for it; say whether it was.

        Raises:
            OSError: There are no such locks here.
        """
        if self._waits:
            return False
        try:
            flock(self.descriptor, _AT_ONCE)
        except BlockingIOError:
            return False
        return True

    def enter(self, patience_s: float) -> bool:
        """Wait for the lock; say whether it was had.

        Raises:
            OSError: There are no such locks here.
        """
        if self.take_at_once():
            return True
        if patience_s <= 0 or not self._has_thread():
            return False
        ticket = object()
        with self._mutex:
            if self._overdue:
                # Whoever holds it has stopped, or is long at work: SQLite's lock decides.
                return False
            self.wanted = ticket
            if not self._waits:
                self._waits = True
                self._requests.put(True)
        ends_at = time.monotonic() + patience_s
        while (left_s := ends_at - time.monotonic()) > 0:
            try:
                if self._served.get(timeout=left_s) is ticket:
                    return True
            except Empty:
                break
        with self._mutex:
            self._overdue = self._waits
            return not self._waits

    def is_ours(self, name: Path) -> bool:
        """Say whether a name is that of this file, and it is one that we would make."""
        here, there = os.fstat(self.descriptor), name.lstat()
        ours = stat.S_ISREG(here.st_mode) and here.st_size == 0
        return ours and (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def close(self) -> None:
        """Close the file, and let the thread do so too when it is done waiting."""
        self._finalizer()

    def drop(self) -> None:
        """Close the file in a process that was forked off and has no such thread."""
        self._finalizer.detach()
        os.close(self.descriptor)
        if self._threads_descriptor >= 0:
            os.close(self._threads_descriptor)

    def _has_thread(self) -> bool:
        if self._threads_descriptor < 0:
            self._threads_descriptor = os.dup(self.descriptor)
            try:
                _thread.start_new_thread(
                    _wait_in_queue,
                    (weakref.ref(self), self._threads_descriptor, self._requests),
                )
            except RuntimeError:  # no more threads
                os.close(self._threads_descriptor)
                self._threads_descriptor = -1
                return False
        return True

    def _serve(self, descriptor: int) -> None:
        """Hand on the lock that the thread has got."""
        with self._mutex:
            if self.wanted is None:
                flock(descriptor, LOCK_UN)
            else:
                self._served.put(self.wanted)
            # Only now, since from here on the store looks at the lock without the mutex.
            self._waits = self._overdue = False


def _wait_in_queue(
    place: weakref.ref[_Place], descriptor: int, requests: SimpleQueue[bool]
) -> None:
    """Wait for the lock, each time that somebody asks; what a thread does."""
    try:
        while requests.get():
            flock(descriptor, LOCK_EX)
            if (asking := place()) is None:
                return
            asking._serve(descriptor)  # noqa: SLF001 - a part of it
            del asking
    except OSError as error:
        logger.debug("waiting in the queue failed: %s", error)
    finally:
        os.close(descriptor)


def _close(descriptor: int, requests: SimpleQueue[bool]) -> None:
    requests.put(False)
    os.close(descriptor)


def _is_remote(folder: Path) -> bool:
    """Say whether a folder is known to be on a network file system; Linux alone tells.

    https://docs.kernel.org/filesystems/proc.html, 3.5: the third field is the device, and
    the type follows the dash.
    """
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:  # noqa: PTH123
            for line in mounts:
                before, _, after = line.partition(" - ")
                if before.split(" ", 3)[2] == wanted:
                    kind = after.partition(" ")[0]
                    # `fuse`, `fuse.sshfs` and the like, `fuseblk`.
                    return kind in _REMOTE or kind.startswith("fuse")
    except (OSError, IndexError):
        pass
    return False
