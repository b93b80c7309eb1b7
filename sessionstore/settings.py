"""The settings of a store, and where it is if nobody says: what the environment tells of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sessionstore.errors import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What may be tuned about one store; the defaults suit a laptop and a small server.

    Attributes:
        write_patience_s: A write that meets contention is tried again for at least
            this long.
        write_min_attempts: … and at least this often, before StoreBusyError.
        upgrade_patience_s: While another program upgrades the schema, which takes minutes
            for a large old file, opening waits at least this long.
        busy_timeout_s: How long SQLite itself waits for a lock within one attempt.
        retry_pause_s: Shortest and longest random pause between two attempts.
        checkpoint_every_writes: A PASSIVE checkpoint of the write-ahead log follows
            every so many writes of this store.
        journal_size_limit_bytes: The write-ahead log is cut to this by the next write, once no
            reader needs it; below 0 it is not.
        connections: How many connections one store opens, all of them at once.
        clock: Gives the time that new rows bear, epoch seconds, UTC.
    """

    write_patience_s: float = 20.0
    write_min_attempts: int = 15
    upgrade_patience_s: float = 300.0
    busy_timeout_s: float = 1.0
    retry_pause_s: tuple[float, float] = (0.020, 0.150)
    checkpoint_every_writes: int = 50
    journal_size_limit_bytes: int = 8 * 1024 * 1024
    connections: int = 4
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        """Refuse what a store could only stumble over later, once it has written.

        Raises:
            ValueError: A number of attempts, writes or connections is below 1.
            TypeError: It is no whole number.
        """
        for name in ("write_min_attempts", "checkpoint_every_writes", "connections"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                msg = f"{name} must be a whole number, not {type(value).__name__}"
                raise TypeError(msg)
            if value < 1:
                msg = f"{name} must be at least 1, not {value}"
                raise ValueError(msg)


def default_location() -> str | Path:
    """Say where the store is when nobody named one: a URL (str) or a file (Path).

    `SESSIONSTORE_URL`, else `$HERMES_HOME/state.db`, else `~/.hermes/state.db`; read at
    the moment of the call, so a changed HOME or profile counts at once.
    """
    if url := os.environ.get("SESSIONSTORE_URL"):
        return url
    if home := os.environ.get("HERMES_HOME"):
        return home_expanded(home) / "state.db"
    return home_expanded("~/.hermes/state.db")


def home_expanded(name: str) -> Path:
    """Put the home folder in the place of a tilde.

    Raises:
        ValueError: There is none, as where `~name` names no user.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        msg = f"{shown(name)} begins with a home folder that is not known; write the whole path"
        raise ValueError(msg) from error
