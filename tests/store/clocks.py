"""A clock for stores that shall live by it."""

from __future__ import annotations


class Clock:
    """Gives the time that a test says, and the same until it says otherwise."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
