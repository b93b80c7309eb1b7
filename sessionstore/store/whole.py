"""The calls about the store as a whole: what is in it, what it weighs, and a copy of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from sessionstore.records import (
    BackupReport,
    DayUsage,
    FileSizes,
    GroupUsage,
    SessionFilter,
    UsageSums,
)
from sessionstore.repository import chains, listing, sizes
from sessionstore.store.base import StoreBase


class WholeCalls(StoreBase):
    """What is asked of all sessions at once. Each call sees one state of the store."""

    def session_ids(self, wanted: SessionFilter | None = None) -> list[str]:
        """List the ids of all sessions that pass a filter, oldest-started first."""
        chosen, now = wanted or SessionFilter(), self._now()
        found = self._read(lambda db: listing.matching(db, chosen, now=now))
        return [match.id for match in found if not match.damaged]

    def get_chain(self, session_id: str) -> list[str]:
        """List the sessions that are one conversation with this one, first to last.

        A session that neither continues another nor is continued is a chain by itself, and so
        is an unknown one.
        """
        return self._read(lambda db: chains.chain_through(db, session_id))

    def usage_totals(self) -> UsageSums:
        """Add up what all sessions used, by source too; an unknown cost adds nothing."""
        return self._read(sizes.usage_sums)

    def usage_by_day(self, utc_offset_s: int = 0) -> list[DayUsage]:
        """Add up what the sessions used that started on the same day, oldest day first.

        Args:
            utc_offset_s: How far the local days are ahead of UTC, in seconds.
        """
        return self._read(lambda db: sizes.usage_by_day(db, utc_offset_s))

    def usage_by(self, field: Literal["source", "model"]) -> list[GroupUsage]:
        """Add up what sessions used by their source or model, most tokens first.

        Of the counters of sessions: quick however many messages there are.

        Raises:
            ValueError: It is neither.
        """
        if field not in ("source", "model"):
            msg = f"usage is told by source or model, not by {field!r}"
            raise ValueError(msg)
        return self._read(lambda db: sizes.usage_by(db, field))

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
