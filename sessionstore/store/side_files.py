"""Files that programs keep beside the store, one or more a session."""

from __future__ import annotations

import functools
import glob
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import Connection

from sessionstore.repository import sessions

logger = logging.getLogger("sessionstore")


def folder(sessions_dir: str | os.PathLike[str] | None) -> Path | None:
    """Say where a program keeps its files, `~` expanded; None if it was not told.

    Raises:
        TypeError: It is no path.
    """
    return None if sessions_dir is None else Path(sessions_dir).expanduser()


# Runs a unit in one transaction that reads.
Read = Callable[[Callable[[Connection], list[str]]], list[str]]


def remove_all(folder: Path | None, gone: Sequence[str], read: Read) -> None:
    """Remove the files of sessions that were deleted; without a folder there are none."""
    if folder is None:
        return
    for session_id in gone:
        longer = read(functools.partial(sessions.find_ids, prefix=f"{session_id}_"))
        remove(folder, session_id, others=longer)


def remove(folder: Path, session_id: str, *, others: Sequence[str]) -> list[Path]:
    """Remove `<id>.json`, `<id>.jsonl` and `request_dump_<id>_*.json` of a folder.

    An id that is not a plain file name (`../x`, `a/b`) has no files here. What cannot be
    removed is logged: the session itself is gone by then.

    Args:
        folder: Where they are.
        session_id: Whose they are.
        others: Ids of other sessions that begin with this id and `_`; the dumps of `a_b`
            fit the pattern of `a` as well, and are theirs.

    Returns:
        The files that went.
    """
    if Path(session_id).name != session_id or session_id in {"", ".", ".."} or "\0" in session_id:
        return []
    prefix = f"request_dump_{session_id}_"
    dumps = [
        dump
        for dump in folder.glob(f"{glob.escape(prefix)}*.json")
        if not any(dump.name.startswith(f"request_dump_{other}_") for other in others)
    ]
    removed = []
    for path in [folder / f"{session_id}.json", folder / f"{session_id}.jsonl", *dumps]:
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s was not removed: %s", path, error.strerror or error)
        else:
            removed.append(path)
    return removed
