"""The calls about what leaves a store and enters another."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection

from sessionstore.errors import shown
from sessionstore.filters import SessionFilter
from sessionstore.records import BackupReport, CopyReport, ExportedSession, ImportReport
from sessionstore.repository import listing, transfer
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase

# An import is checked as a whole before it is stored; past this it waits on disk.
_SPOOLED_BYTES = 1024 * 1024


class _Undone(Exception):  # noqa: N818 - no error: it ends a transaction that shall not stay
    """What was done in a transaction was only to be seen."""

    def __init__(self, report: ImportReport) -> None:
        super().__init__()
        self.report = report


@checked_calls
class TransferCalls(StoreBase):
    """Whole sessions and whole stores, out and in: export, import, backup, copy."""

    def export_session(self, session_id: str) -> ExportedSession | None:
        """Return a session with all its messages under `messages`, or None."""
        return self._read(lambda db: transfer.exported(db, session_id))

    def export_all(self, source: str | None = None) -> list[ExportedSession]:
        """Return every session with its messages, oldest-started first; all in memory.

        A transaction for each session, as `iter_export` takes them.
        """
        return list(self.iter_export(SessionFilter(source=source)))

    def iter_export(self, wanted: SessionFilter | None = None) -> Iterator[ExportedSession]:
        """Stream the sessions that pass a filter with their messages, oldest-started first.

        Several transactions: one lists them at the call, and each is read in one of its own
        when it is asked for. So one is in memory at a time, each is whole, and one that is made
        or deleted meanwhile is left out.
        """
        chosen = wanted or SessionFilter()
        now = self._now()
        matches = self._read(lambda db: listing.matching(db, chosen, now=now))
        whole = (self.export_session(match.id) for match in matches)
        return (session for session in whole if session is not None)

    def import_sessions(
        self,
        exported: Iterable[Mapping[str, Any]],
        *,
        on_conflict: Literal["skip", "extend"] = "skip",
        dry_run: bool = False,
    ) -> ImportReport:
        """Store exported sessions, as `iter_export` yields them, and say what became of each.

        All are checked first; then one transaction stores them, so that of an import that
        fails nothing stays. Idempotent. A session that is here already stays as it is,
        whether or not the other copy is equal; so does the first of two with one id in the
        same import. A parent that is nowhere is left off, a title that is taken gets the next
        number. The messages of a session keep their ids, or all get new ones in the same
        order: where others here have one of them, one is missing or beyond 2**53, or they do
        not ascend.

        Args:
            exported: Sessions with their messages; what is absent has its default, but for
                `id`, `source` and `started_at`, which each must have.
            on_conflict: What to do with a session that is here already: `skip` leaves it.
                `extend` lets it gain the messages that the other copy has beyond those here,
                if it begins with them, their states, what was used and what it lacks.
            dry_run: Say what would become of each, and store nothing.

        Raises:
            ImportRejectedError: A record cannot be stored, or has a field that is not known;
                names its number, from 1.
            ValueError: `on_conflict` is neither of the two.
        """
        if on_conflict not in ("skip", "extend"):
            msg = f"on_conflict can be skip or extend, not {shown(on_conflict)}"
            raise ValueError(msg)
        with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, "w+", encoding="utf-8") as spool:
            for number, given in enumerate(exported, start=1):
                prepared = transfer.prepare(given, number)
                spool.write(json.dumps(prepared.as_json()) + "\n")

            def from_start() -> Iterator[transfer.Prepared]:
                spool.seek(0)
                for line in spool:
                    yield transfer.Prepared(**json.loads(line))

            def store(db: Connection) -> ImportReport:
                report = transfer.store(db, from_start, extend=on_conflict == "extend")
                if dry_run:
                    raise _Undone(report)
                return report

            try:
                return self._write(store)
            except _Undone as undone:
                return undone.report

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> BackupReport:
        """Copy the store as it is at this moment into one file, while others go on writing.

        The copy has mode 0600 and gets its name only when it has been checked: its integrity,
        and that it has as many sessions and messages as the store.

        Args:
            path: The file; its folder has to be there.
            overwrite: A file of that name may be replaced.
            progress: Called with how many of how many pages are copied.

        Raises:
            StoreUnavailableError: The copy cannot be written or is not whole, the name is
                taken or the store's own, or the store is on a server.
        """
        from sessionstore import upkeep

        self._require_open()
        return upkeep.back_up(
            self._location, self._read, Path(path), overwrite=overwrite, progress=progress
        )

    def copy_from(
        self, source: StoreBase, progress: Callable[[int, int], None] | None = None
    ) -> CopyReport:
        """Make this empty store a copy of another, whichever back end each of them is on.

        Everything goes, as it is stored: ids, states, prompts, titles, flags, usage, named
        values, locks, routes, deliveries; new messages then get ids above all that were given.
        The source is read as it is at one moment, and may be written meanwhile. A transaction
        for some hundred rows; broken off, the same call goes on with what is missing. At the
        end both are compared in full.

        Args:
            source: An open store, of the newest schema like this one.
            progress: Called with how many of how many rows are done.

        Raises:
            ConflictError: This store holds other data, or an unfinished copy of another
                source, and nothing was written; or somebody else wrote to it meanwhile, which
                the same call sets right.
            StoreBusyError: A transaction had to wait too long; those before are done.
            ValueError: It is the same store.
        """
        from sessionstore import upkeep

        if source.location == self.location:
            msg = f"{self.location} cannot be copied into itself; name another store"
            raise ValueError(msg)
        return source._read(  # noqa: SLF001 - another store like this one
            lambda db: upkeep.copy(
                db,
                self._read,
                self._write,
                source_name=str(source.location),
                progress=progress,
            )
        )
