"""Which rollouts of Codex CLI make one thread, and how a file of them is opened.

A thread has one file, `rollout-<time>-<thread>.jsonl`. Since version 0.146 it has another,
`rollout-<time>-<thread>_<rollout>.jsonl`, each time that it is taken up anew or taken back to
an earlier place, and a fork no longer holds a copy of what it was made from: `history_base` in
the first record names the rollout that comes before, and how much of it counts, by the
`ordinal` of its records. Since 0.137 a file that was not written to for a week is compressed
(https://github.com/openai/codex, `codex-rs/rollout` and `codex-rs/thread-store`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from sessionstore.errors import ImportRejectedError

PATTERNS = ("rollout-*.jsonl", "rollout-*.jsonl.zst")
_COMPRESSED = ".zst"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.IGNORECASE)


class Rollout(NamedTuple):
    """One file: its own id, whose it is, and the rollout it goes on from, up to which ordinal."""

    path: Path
    id: str
    thread: str | None
    base: tuple[str, int] | None


class Step(NamedTuple):
    """A file to read for a thread.

    Attributes:
        file: Where it is.
        end: Only records of a lower ordinal; None is all.
        inherited: It belongs to another thread, from which this one was forked.
        live_end: Records from this ordinal on were taken back; None: none was.
    """

    file: Path
    end: int | None
    inherited: bool
    live_end: int | None


def rollout_of(path: Path, first: Mapping[str, Any]) -> Rollout:
    """Tell of a file by its name and its first record; `{}` if it has none."""
    payload = first.get("payload")
    meta = payload if isinstance(payload, dict) else {}
    base = meta.get("history_base")
    told = base if isinstance(base, dict) else {}
    before, end = told.get("thread_id"), told.get("end_ordinal_exclusive")
    thread = meta.get("id")
    return Rollout(
        path,
        rollout_id(path),
        thread if isinstance(thread, str) else None,
        (before, end) if isinstance(before, str) and type(end) is int else None,
    )


def rollout_id(path: Path) -> str:
    """Give the id in the name of a file, or the whole name without its endings."""
    name = path.name.removesuffix(_COMPRESSED).removesuffix(".jsonl")
    found = _ID.search(name)
    return found[0] if found else name


def without_twins(files: Iterable[Path]) -> list[Path]:
    """Leave out what is compressed and stands there unpacked too, as while it is written to."""
    there = set(files)
    return [
        each
        for each in sorted(there)
        if each.suffix != _COMPRESSED or each.with_suffix("") not in there
    ]


class Threads:
    """The threads that a number of files make.

    Attributes:
        copies: Files of which another has the same id and was written to later.
    """

    def __init__(self, rollouts: Iterable[Rollout]) -> None:
        self.copies: set[Path] = set()
        self._by_id: dict[str, Rollout] = {}
        self._parts: dict[str, list[Rollout]] = {}
        # By the time in their names, which is when they were begun.
        listed = sorted(rollouts, key=lambda each: each.path.name)
        parted = {each.thread for each in listed if each.base and each.thread}
        for each in sorted(listed, key=lambda each: each.path.stat().st_mtime, reverse=True):
            if self._by_id.setdefault(each.id, each) is not each and each.thread in parted:
                self.copies.add(each.path)
        for each in listed:
            if each.thread and each.thread in parted and each.path not in self.copies:
                self._parts.setdefault(each.thread, []).append(each)

    def steps(self, rollout: Rollout) -> list[Step] | None:
        """List what to read for the thread that this is the last rollout of, in order of time.

        None if it is not the last one. A file that goes on from none, and none from it within
        its thread, is a thread by itself.
        """
        own = self._parts.get(rollout.thread or "", [rollout])
        if rollout.path in self.copies or own[-1] is not rollout:
            return None
        live = dict(self._before(rollout))
        inherited = [
            Step(self._by_id[each].path, end, inherited=True, live_end=live.get(each, 0))
            for each, end in reversed(self._before(own[0]))
            if each in self._by_id and self._by_id[each] not in own
        ]
        earlier = [
            Step(each.path, None, inherited=False, live_end=live.get(each.id, 0))
            for each in own[:-1]
        ]
        return [*inherited, *earlier, Step(rollout.path, None, inherited=False, live_end=None)]

    def lacks(self, rollout: Rollout) -> bool:
        """Say whether some of what comes before a rollout is in no file that is there."""
        return any(each not in self._by_id for each, _ in self._before(rollout))

    def _before(self, rollout: Rollout) -> list[tuple[str, int]]:
        """List the rollouts that one goes on from and up to which ordinal, the nearest first."""
        found: dict[str, int] = {}
        at: Rollout | None = rollout
        # Two that go on from each other are nobody's history, but must not hold us up.
        while at is not None and at.base and at.base[0] not in {rollout.id, *found}:
            before, end = at.base
            found[before] = end
            at = self._by_id.get(before)
        return list(found.items())


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a rollout for a block, to read its lines, compressed or not.

    Raises:
        ImportRejectedError: It is compressed, and is damaged or nothing here can unpack it.
    """
    if path.suffix != _COMPRESSED:
        with path.open("rb") as stream:
            yield stream
        return
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ModuleNotFoundError as error:
        msg = "it is compressed: pip install 'sessionstore[codex]' to read it; nothing was imported"
        raise ImportRejectedError(msg) from error
    try:
        with zstd.open(path, "rb") as stream:
            yield cast("BinaryIO", stream)
    except (zstd.ZstdError, EOFError) as error:
        msg = f"what is compressed in it cannot be unpacked ({error}); nothing was imported"
        raise ImportRejectedError(msg) from error
