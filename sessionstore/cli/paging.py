"""Show what is longer than the terminal a page at a time."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import click

from sessionstore.cli.output import is_terminal


class _Screen(io.StringIO):
    """Collects what is printed, and is a terminal to those who ask."""

    def isatty(self) -> bool:
        """Let colours through."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override] # a StringIO has none
        """Let the characters through that the terminal has."""
        return sys.__stdout__.encoding if sys.__stdout__ else "ascii"


@contextmanager
def paged(*, wanted: bool | None) -> Iterator[None]:
    """Collect what the block prints, and page through it if it is long.

    The pager is `PAGER`, else less; what is printed has been made harmless before.

    Args:
        wanted: True: page through it however short. None: on a terminal, if it is long.
            False, and anything in a pipe: just print it.
    """
    if wanted is False or not (is_terminal(sys.stdout) and is_terminal(sys.stdin)):
        yield
        return
    screen = _Screen()
    with redirect_stdout(screen):
        yield
    text = screen.getvalue()
    if wanted or text.count("\n") >= shutil.get_terminal_size().lines:
        # Colours pass, and a short text is not held.
        os.environ.setdefault("LESS", "-RFX")
        click.echo_via_pager(text, color=True)
    else:
        sys.stdout.write(text)
