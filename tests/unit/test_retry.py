"""Running a unit of work again: how often, how long, and for which errors."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.exc import OperationalError

from sessionstore import StoreBusyError
from sessionstore.retry import is_contention, retry_on_contention


def failure(code: int | None, words: str = "whatever") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(words)
    if code is not None:
        error.sqlite_errorcode = code
    return error


class PostgresError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("database is locked")
        self.sqlstate = sqlstate


class Time:
    """A clock that only moves when somebody sleeps or an attempt takes its time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Unit:
    """A unit of work that meets an error so many times, each attempt taking so long."""

    def __init__(self, time: Time, error: Exception, *, failures: int, takes_s: float = 0) -> None:
        self.time, self.error, self.failures, self.takes_s = time, error, failures, takes_s
        self.attempts = 0

    def __call__(self, *, given: str) -> str:
        self.attempts += 1
        self.time.now += self.takes_s
        if self.attempts <= self.failures:
            raise self.error
        return given


BUSY = failure(sqlite3.SQLITE_BUSY)


def run(time: Time, unit: Unit, **options) -> str:
    options = {"patience_s": 20.0, "min_attempts": 15, "pause_s": (0.020, 0.150), **options}
    retried = retry_on_contention(
        clock=time, sleep=time.sleep, jitter=lambda low, high: (low + high) / 2, **options
    )(unit)
    return retried(given="result")


@pytest.fixture
def time() -> Time:
    return Time()


def test_a_unit_that_succeeds_runs_once_and_nobody_sleeps(time):
    unit = Unit(time, BUSY, failures=0)
    assert run(time, unit) == "result"
    assert (unit.attempts, time.pauses) == (1, [])


def test_contention_is_met_with_another_attempt_after_a_pause(time):
    unit = Unit(time, BUSY, failures=3)
    assert run(time, unit) == "result"
    assert unit.attempts == 4
    assert time.pauses == [pytest.approx(0.085)] * 3


def test_quick_failures_go_on_until_the_seconds_are_over(time):
    unit = Unit(time, BUSY, failures=10**9)
    with pytest.raises(StoreBusyError) as caught:
        run(time, unit)
    assert caught.value.waited_s >= 20
    assert caught.value.waited_s == pytest.approx(time.now - 1000)
    assert caught.value.attempts == unit.attempts > 200
    assert caught.value.__cause__ is BUSY


def test_slow_failures_go_on_until_there_were_enough(time):
    unit = Unit(time, BUSY, failures=10**9, takes_s=5.0)
    with pytest.raises(StoreBusyError) as caught:
        run(time, unit)
    assert unit.attempts == caught.value.attempts == 15
    assert caught.value.waited_s > 70


def test_the_last_attempt_is_not_followed_by_a_pause(time):
    unit = Unit(time, BUSY, failures=10**9, takes_s=5.0)
    with pytest.raises(StoreBusyError):
        run(time, unit)
    assert len(time.pauses) == unit.attempts - 1


def test_what_was_tried_is_said_in_one_line(time):
    with pytest.raises(
        StoreBusyError, match=r"15 attempts in 76\.2 s; nothing was written"
    ) as caught:
        run(time, Unit(time, BUSY, failures=10**9, takes_s=5.0))
    assert "\n" not in str(caught.value)


def test_the_pause_is_drawn_between_the_two_bounds(time):
    drawn: list[tuple[float, float]] = []

    def jitter(low: float, high: float) -> float:
        drawn.append((low, high))
        return 0.1

    unit = Unit(time, BUSY, failures=2)
    retry_on_contention(
        patience_s=20,
        min_attempts=15,
        pause_s=(0.02, 0.15),
        clock=time,
        sleep=time.sleep,
        jitter=jitter,
    )(unit)(given="")
    assert drawn == [(0.02, 0.15)] * 2
    assert time.pauses == [0.1, 0.1]


def test_by_default_pauses_differ(time):
    unit = Unit(time, BUSY, failures=50)
    retry_on_contention(
        patience_s=20, min_attempts=15, pause_s=(0.02, 0.15), clock=time, sleep=time.sleep
    )(unit)(given="")
    assert len(set(time.pauses)) > 40
    assert all(0.02 <= pause <= 0.15 for pause in time.pauses)


def test_switched_off_the_drivers_error_comes_through_at_once(time):
    unit = Unit(time, BUSY, failures=1)
    with pytest.raises(sqlite3.OperationalError) as caught:
        run(time, unit, enabled=False)
    assert caught.value is BUSY
    assert (unit.attempts, time.pauses) == (1, [])


@pytest.mark.parametrize(
    "error",
    [
        failure(sqlite3.SQLITE_FULL, "database is locked"),
        failure(None, "database is locked"),
        ValueError("database is locked"),
        PostgresError("23505"),
        KeyError("x"),
    ],
)
def test_any_other_error_comes_through_at_once(time, error):
    unit = Unit(time, error, failures=1)
    with pytest.raises(type(error)) as caught:
        run(time, unit)
    assert caught.value is error
    assert unit.attempts == 1


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (failure(sqlite3.SQLITE_BUSY), True),
        (failure(sqlite3.SQLITE_BUSY_SNAPSHOT), True),
        (failure(sqlite3.SQLITE_BUSY_RECOVERY), True),
        (failure(sqlite3.SQLITE_LOCKED), True),
        (failure(sqlite3.SQLITE_LOCKED_SHAREDCACHE), True),
        (failure(sqlite3.SQLITE_IOERR), False),
        (failure(sqlite3.SQLITE_CORRUPT, "database table is locked"), False),
        (failure(None, "database is locked"), False),
        (PostgresError("40001"), True),
        (PostgresError("40P01"), True),
        (PostgresError("55P03"), True),
        (PostgresError("57014"), False),
        (PostgresError(None), False),
        (RuntimeError("locked"), False),
    ],
)
def test_contention_is_told_by_code_and_never_by_words(error, answer):
    assert is_contention(error) is answer
    assert is_contention(OperationalError("INSERT", {}, error)) is answer


def test_the_name_and_words_of_a_function_are_kept():
    @retry_on_contention(patience_s=1, min_attempts=1, pause_s=(0, 0))
    def unit() -> None:
        """Say what it does."""

    assert unit.__name__ == "unit"
    assert unit.__doc__ == "Say what it does."
