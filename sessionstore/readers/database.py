"""Databases of other programs, opened to be read and no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from sessionstore.engine import Database, open_read_only
from sessionstore.location import locate
from sessionstore.reporting import reporting_errors
from sessionstore.retry import retrying
from sessionstore.settings import StoreSettings

T = TypeVar("T")


def opened(path: str | os.PathLike[str]) -> Database:
    """Open a database file as it lies: nothing of it is changed, and nothing made beside it.

    Raises:
        StoreUnavailableError: It is a folder, or cannot be read.
    """
    return open_read_only(locate(path), StoreSettings())


def reading(database: Database, unit: Callable[[Connection], T]) -> T:
    """Run a unit that reads, again while a writer without a write-ahead log is in the way."""
    with reporting_errors(database.location, writes=False):
        return retrying(StoreSettings(), writes=False)(database.read)(unit)
