"""How far a long command is: one line on stderr, when somebody watches. No rich here."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

import click

from sessionstore.cli.output import is_terminal

_EVERY_S = 0.1
_BAR = 24


class Progress:
    """A bar that is drawn over itself; nothing at all in a pipe.

    ```python
    with Progress("sessions", total) as bar:
        bar.at(done)
    ```
    """

    def __init__(self, noun: str, total: int = 0) -> None:
        self._noun, self._total, self._done, self._drawn_at = noun, total, 0, 0.0
        self._watched = is_terminal(sys.stderr)
        self._shown = False

    def __enter__(self) -> Self:
        """Begin; nothing is drawn before the first step."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last figure standing, on a line that is ended."""
        if self._shown:
            self._draw()
            click.echo("", err=True)

    def step(self) -> None:
        """Count one more."""
        self.at(self._done + 1)

    def at(self, done: int, total: int | None = None) -> None:
        """Say how many are done, and of how many if that is news."""
        self._done = done
        self._total = self._total if total is None else total
        if self._watched and (now := time.monotonic()) - self._drawn_at > _EVERY_S:
            self._drawn_at, self._shown = now, True
            self._draw()

    def _draw(self) -> None:
        counted = f"{self._done:,} of {self._total:,} {self._noun}"
        filled = _BAR * min(self._done, self._total) // max(self._total, 1)
        bar = f"[{'#' * filled}{'.' * (_BAR - filled)}] "
        if len(bar) + len(counted) >= shutil.get_terminal_size().columns:
            bar = ""
        click.echo(f"\r{bar}{counted}", err=True, nl=False)
