"""The calls about the store as a whole: what is in it, what it weighs, and a copy of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from sessionstore.location import Location
from sessionstore.records import (
    BackupReport,
    CopyReport,
    DayUsage,
    FileSizes,
    GroupUsage,
    SessionFilter,
    UsageSums,
)
from sessionstore.repository import chains, listing, sizes, usage
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase


@checked_calls
class WholeCalls(StoreBase):
    """What is asked of all sessions at once. Each call sees one state of the store."""

    def session_ids(
        self, wanted: SessionFilter | None = None, *, damaged: bool = False
    ) -> list[str]:
        """List the ids of all sessions that pass a filter, oldest-started first.

        Args:
            wanted: The filter; None passes all.
            damaged: Also those that are bytes and no text, which `export_session` alone takes.
        """
        chosen, now = wanted or SessionFilter(), self._now()
        found = self._read(lambda db: listing.matching(db, chosen, now=now))
        return [match.id for match in found if damaged or not match.damaged]

    def get_chain(self, session_id: str, *, all_ends: bool = False) -> list[str]:
        """List the sessions that are one conversation with this one, first to last.

        A session that neither continues another nor is continued is a chain by itself, and so
        is an unknown one.

        Args:
            session_id: Any session of the chain.
            all_ends: Where two programs continued one session, list what leads to either end,
                as `set_session_archived` and `set_session_pinned` take them, in no order.
        """
        if all_ends:
            return self._read(lambda db: chains.whole_chain(db, session_id)) or [session_id]
        return self._read(lambda db: chains.chain_through(db, session_id))

    def usage_totals(self) -> UsageSums:
        """Add up what all sessions used, by source too; an unknown cost adds nothing."""
        return self._read(usage.totals)

    def usage_by_day(self, utc_offset_s: int = 0) -> list[DayUsage]:
        """Add up what the sessions used that started on the same day, oldest day first.

        Args:
            utc_offset_s: How far the local days are ahead of UTC, in seconds.
        """
        return self._read(lambda db: usage.by_day(db, utc_offset_s))

    def usage_by(self, field: Literal["source", "model"]) -> list[GroupUsage]:
        """Add up what sessions used by their source or model, most tokens first.

        Of the counters of sessions: quick however many messages there are.

        Raises:
            ValueError: It is neither.
        """
        if field not in ("source", "model"):
            msg = f"usage is told by source or model, not by {field!r}"
            raise ValueError(msg)
        return self._read(lambda db: usage.by_field(db, field))

    def file_sizes(self) -> FileSizes | None:
        """Say how many bytes each part of the file takes; None on a server."""
        return self._read(sizes.file_sizes)

    def repair(self, expected: Mapping[str, tuple[str, str]]) -> None:
        """Set right what is derived: indexes, triggers, counters, times, unused prompts.

        One transaction. No message, and no field that a caller gave, is changed.

        Args:
            expected: The indexes and triggers of a fresh store, name to kind and text.
        """
        from sessionstore import upkeep

        self._write(lambda db: upkeep.repair(db, expected))

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
                source, or somebody else wrote to it meanwhile.
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


def size_of(location: Location) -> int | None:
    """Add up the files of a store; None for one on a server, and for a file that is gone."""
    if location.path is None:
        return None
    try:
        total = location.path.stat().st_size
        with suppress(FileNotFoundError):  # whoever closes the store last takes its log away
            total += Path(f"{location.path}-wal").stat().st_size
    except FileNotFoundError:
        return None
    return total
