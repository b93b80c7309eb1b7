"""Run a unit of work again when another program was in the way."""

from __future__ import annotations

import functools
import random
import sqlite3
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sessionstore.errors import StoreBusyError
from sessionstore.settings import StoreSettings

P = ParamSpec("P")
R = TypeVar("R")

# https://www.sqlite.org/rescode.html: the low byte is the primary code.
SQLITE_CONTENTION = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# https://www.postgresql.org/docs/current/errcodes-appendix.html:
# serialization_failure, deadlock_detected, lock_not_available.
POSTGRES_CONTENTION = frozenset({"40001", "40P01", "55P03"})
# unique_violation, foreign_key_violation. A unit asks before it writes, so that these come
# only of what another transaction did in between; the next attempt sees it and says what it
# means. SQLite has one writer at a time, and nothing is in between.
POSTGRES_RACES = frozenset({"23505", "23503"})
# Races are rare, and what is none would come again each time. A connection that is lost
# twice may be lost through the unit itself, which must not take the server down for ever.
_MORE_AFTER_RACES = 5
_MORE_AFTER_LOSS = 2


class OtherThreadsError(Exception):
    """Other threads of this process were in the way; the message says how."""


def is_contention(error: BaseException) -> bool:
    """Say whether an error means "another transaction was in the way".

    Decided by the driver's code, never by its words.
    """
    if isinstance(error, OtherThreadsError | PoolTimeoutError):
        return True
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in SQLITE_CONTENTION
    return getattr(original, "sqlstate", None) in POSTGRES_CONTENTION


def _more_attempts(error: BaseException) -> int:
    """Say how often a unit is run again after this, which is no contention.

    A connection that is lost before COMMIT was said leaves nothing behind: the server undoes
    what was begun. (Lost while COMMIT was said, it is another error: see `server.run`.)
    """
    if not isinstance(error, DBAPIError):
        return 0
    if error.connection_invalidated:
        return _MORE_AFTER_LOSS
    return _MORE_AFTER_RACES if getattr(error.orig, "sqlstate", None) in POSTGRES_RACES else 0


def busy(error: BaseException, *, attempts: int, waited_s: float, writes: bool) -> StoreBusyError:
    """Say what was in the way, how often and how long it was tried, and what to do."""
    tried = f"{attempts} attempt{'' if attempts == 1 else 's'} in {waited_s:.1f} s"
    effect = "nothing was written" if writes else "nothing was read"
    if isinstance(error, OtherThreadsError | PoolTimeoutError):
        advice = f"{error}, or waited for a program that holds the write lock; try again"
    elif writes:
        advice = "Try again, or find the program that holds the write lock"
    else:
        advice = "Try again, or find the program that locks the store"
    message = f"the store was busy: {tried}; {effect}. {advice[:1].upper()}{advice[1:]}"
    return StoreBusyError(message, attempts=attempts, waited_s=waited_s)


def retry_on_contention(
    *,
    patience_s: float,
    min_attempts: int,
    pause_s: tuple[float, float],
    enabled: bool = True,
    writes: bool = True,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[float, float], float] = random.uniform,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function run again while contention keeps it from finishing.

    And a few times where a connection to a server was lost, or another transaction came
    between what the function asked and what it wrote.

    The function is a whole unit of work: it begins its own transaction and has no effect
    unless it commits, so that running it again is safe. Between two attempts a random
    pause lets competing writers fall out of step.

    Args:
        patience_s: Give up only after this many seconds …
        min_attempts: … and this many attempts, whichever comes later.
        pause_s: Shortest and longest pause between two attempts, in seconds.
        enabled: False runs the function once and lets the driver's error through.
        writes: Whether the unit writes, for the words of the error.
        clock: Seconds, monotonic.
        sleep: Pauses for so many seconds.
        jitter: Draws a number between two.

    Raises:
        StoreBusyError: Neither bound was left; nothing was written.
    """

    def decorate(unit: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(unit)
        def retried(*args: P.args, **kwargs: P.kwargs) -> R:
            began_at = clock()
            attempts = others = 0
            while True:
                attempts += 1
                try:
                    return unit(*args, **kwargs)
                except Exception as error:
                    if not enabled:
                        raise
                    if not is_contention(error):
                        others += 1
                        if others > _more_attempts(error):
                            raise
                        sleep(jitter(*pause_s))
                        continue
                    waited_s = clock() - began_at
                    if attempts >= min_attempts and waited_s >= patience_s:
                        raise busy(
                            error, attempts=attempts, waited_s=waited_s, writes=writes
                        ) from error
                sleep(jitter(*pause_s))

        return retried

    return decorate


def retrying(
    settings: StoreSettings, *, patience_s: float | None = None, writes: bool = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function run again as the settings of a store say.

    Args:
        settings: Patience, attempts and pauses.
        patience_s: Another patience than theirs, in seconds.
        writes: Whether the function writes.
    """
    return retry_on_contention(
        patience_s=settings.write_patience_s if patience_s is None else patience_s,
        min_attempts=settings.write_min_attempts,
        pause_s=settings.retry_pause_s,
        writes=writes,
    )
