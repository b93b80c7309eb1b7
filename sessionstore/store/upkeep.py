"""The calls that keep a store in shape."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack

from sqlalchemy import Connection

from sessionstore import checks, search
from sessionstore.errors import ConflictError, StoreBusyError, StoreUnavailableError
from sessionstore.filters import FilterFields, SessionFilter, age_in_seconds
from sessionstore.location import Location
from sessionstore.records import FileSizes, PruneReport, SkippedSession, UpkeepReport
from sessionstore.reporting import sqlite_code
from sessionstore.repository import (
    maintenance,
    meta,
    prompts,
    retention,
    sessions,
    sizes,
)
from sessionstore.store import side_files
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase

T = TypeVar("T")

logger = logging.getLogger("sessionstore")

_DEFAULT_DAYS = 90.0
# What says of what age a prune is.
_TIMES: tuple[Literal["older_than", "before", "newer_than", "after"], ...] = (
    "older_than",
    "before",
    "newer_than",
    "after",
)
_LAST_AUTO_PRUNE = "last_auto_prune"


@checked_calls
class UpkeepCalls(StoreBase):
    """Pruning, the file and its space, repair, and named values of the store."""

    def prune_sessions(
        self,
        older_than_days: float = _DEFAULT_DAYS,
        source: str | None = None,
        sessions_dir: str | os.PathLike[str] | None = None,
        **filter_fields: Unpack[FilterFields],
    ) -> int:
        """Delete the ended sessions that were last active so long ago; return how many went.

        Open, archived and pinned sessions stay; children of what goes lose their parent. One
        transaction per session, so other writers get their turn; one that cannot go is logged
        and does not keep the others. See `prune_report` for what would go and what stays.
        Broken off, what went is gone.

        Args:
            older_than_days: Last message (else start) at least so many days ago.
            source: Only this source.
            sessions_dir: See `delete_session`.
            **filter_fields: The other fields of `SessionFilter`; `older_than` is another way
                to say `older_than_days`, and None if another time does.

        Raises:
            ValueError, TypeError: The age is said twice, or is none.
        """
        report = self.prune_report(
            older_than_days, source, sessions_dir, dry_run=False, **filter_fields
        )
        return len(report["pruned"])

    def prune_report(
        self,
        older_than_days: float = _DEFAULT_DAYS,
        source: str | None = None,
        sessions_dir: str | os.PathLike[str] | None = None,
        *,
        dry_run: bool = True,
        progress: Callable[[int, int], None] | None = None,
        among: Sequence[str] | None = None,
        **filter_fields: Unpack[FilterFields],
    ) -> PruneReport:
        """Say what a prune deletes and what it skips and why; `dry_run=False` also does it.

        One transaction to say it, and one for each session to do it. What was to go and could
        not is logged too.

        Args:
            older_than_days: See `prune_sessions`, as are source and sessions_dir.
            source: Only this source.
            sessions_dir: Where a program keeps files of its own.
            dry_run: Nothing is deleted.
            progress: Called with how many of how many are done.
            among: Only these sessions, such as those that a dry run has shown.
            **filter_fields: See `prune_sessions`.

        Raises:
            ValueError, TypeError: The age is said twice, or is none.
        """
        if "older_than" not in filter_fields:
            filter_fields["older_than"] = older_than_days
        elif older_than_days != _DEFAULT_DAYS:
            msg = "older_than_days and older_than say the same; give one of them"
            raise ValueError(msg)
        if all(filter_fields.get(name) is None for name in _TIMES):
            msg = f"a prune needs an age: give one of {', '.join(_TIMES)}"
            raise ValueError(msg)
        wanted = SessionFilter(source=source, **filter_fields)
        folder = side_files.folder(sessions_dir)
        if not dry_run:
            self._require_writable()
        now = self._now()
        plan = self._read(lambda db: retention.plan(db, wanted, now=now))
        doomed, skipped = plan.doomed, plan.skipped
        if among is not None:
            only = frozenset(among)
            doomed = [match for match in doomed if match.id in only]
            skipped = [each for each in skipped if each["id"] in only]
        report = PruneReport(pruned=[], messages=0, skipped=skipped, dry_run=dry_run)
        if dry_run:
            report["pruned"] = [match.id for match in doomed]
            report["messages"] = sum(match.messages for match in doomed)
            return report
        try:
            for position, match in enumerate(doomed, start=1):
                self._prune_one(match.id, wanted, report, now=now)
                if progress is not None:
                    progress(position, len(doomed))
        finally:
            # What is gone is gone, even if the rest has to wait.
            side_files.remove_all(folder, report["pruned"], self._read)
        return report

    def _prune_one(
        self, session_id: str, wanted: SessionFilter, report: PruneReport, *, now: float
    ) -> None:
        """Delete one planned session unless it changed since, and say so in the report."""

        def delete(db: Connection) -> int | None:
            if not retention.still_doomed(db, session_id, wanted, now=now):
                return None
            return sessions.delete_with_messages(db, session_id)

        try:
            gone = self._write(delete)
        except (ConflictError, StoreUnavailableError) as error:
            if not _is_of_its_rows(error):
                raise
            logger.warning("session %s was not pruned: %s", session_id, error)
            report["skipped"].append(SkippedSession(id=session_id, reason=str(error)))
            return
        if gone is None:
            reason = "in use again since"
            logger.warning("session %s was not pruned: %s", session_id, reason)
            report["skipped"].append(SkippedSession(id=session_id, reason=reason))
            return
        report["pruned"].append(session_id)
        report["messages"] += gone

    def prune_empty_ghost_sessions(
        self,
        older_than_hours: float = 24,
        sessions_dir: str | os.PathLike[str] | None = None,
    ) -> int:
        """Delete sessions that never came to be: no message, no title, no child; count them.

        One transaction. What is archived or pinned stays.

        Args:
            older_than_hours: Ended, or if open started, at least so long ago.
            sessions_dir: See `delete_session`.
        """
        folder = side_files.folder(sessions_dir)
        before = self._now() - age_in_seconds(older_than_hours / 24)

        def prune(db: Connection) -> list[str]:
            ghosts = retention.empty_ghosts(db, before=before)
            for session_id in ghosts:
                sessions.delete_with_messages(db, session_id)
            return ghosts

        ghosts = self._write(prune)
        side_files.remove_all(folder, ghosts, self._read)
        return len(ghosts)

    def finalize_orphaned_compression_sessions(self, older_than_days: float = 7) -> int:
        """End the continuations that nobody used after their split; return how many.

        One transaction. They get the reason `orphaned_compression` and the time of their
        latest message, and can be reopened.

        Args:
            older_than_days: Last active at least so long ago, without an API call.
        """
        before = self._now() - age_in_seconds(older_than_days)
        return self._write(lambda db: retention.finalize_orphans(db, before=before))

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: str | os.PathLike[str] | None = None,
    ) -> UpkeepReport:
        """Prune, and vacuum if something went, at most once per interval over all programs.

        Never called by the store itself. The time of the last run stands in state_meta as
        `last_auto_prune`; of two programs that come at once, one goes on. Several transactions:
        one for that time, those of `prune_sessions`, and `vacuum`. Broken off, what went is
        gone, and the rest waits for the next interval.

        Raises:
            ValueError, TypeError: An argument is not what it must be; nothing is done.
        """
        now = self._now()
        interval_s = min_interval_hours * 3600.0
        age_in_seconds(retention_days)
        side_files.folder(sessions_dir)

        def claim(db: Connection) -> bool:
            last = _moment_or_none(meta.get(db, _LAST_AUTO_PRUNE))
            if last is not None and 0 <= now - last < interval_s:
                return False
            meta.put(db, _LAST_AUTO_PRUNE, repr(now))
            return True

        if not self._write(claim):
            return UpkeepReport(skipped=True, pruned=0, vacuumed=False)
        pruned = self.prune_sessions(retention_days, sessions_dir=sessions_dir)
        vacuumed = bool(vacuum and pruned)
        if vacuumed and (why_not := self._may_not_vacuum()):
            # What was pruned is gone, and its owner or the server itself frees the space.
            logger.warning("%s", why_not)
            vacuumed = False
        if vacuumed:
            self.vacuum()
        return UpkeepReport(skipped=False, pruned=pruned, vacuumed=vacuumed)

    # The file.

    def vacuum(self) -> None:
        """Give free space back: write the file anew; nobody else can write meanwhile.

        On a server the space is made free for new rows, and others go on.

        Raises:
            StoreUnavailableError: The role may not vacuum the tables on a server.
        """
        self._maintain(maintenance.vacuum)
        self._checkpoint("TRUNCATE")

    def _maintain(self, unit: Callable[[Any, Sequence[str] | None], T]) -> T:
        """Run a unit of `maintenance` on the file, or on the tables of the store on a server."""
        if why_not := self._may_not_vacuum():
            raise StoreUnavailableError(why_not)
        tables = self._read(maintenance.tables_of) if self._on_server else None
        return self._outside_transaction(lambda raw: unit(raw, tables))

    def _may_not_vacuum(self) -> str | None:
        """Say why a server would pass over tables of the store, with no more than a notice."""
        if not self._on_server or not (others := self._read(maintenance.not_ours)):
            return None
        return (
            f"{self.location}: the role may not vacuum {', '.join(others)}; do it as their owner, "
            "see docs/postgresql.md"
        )

    def optimize(self) -> None:
        """Complete and merge the search index, and refresh the planner's statistics.

        A damaged index stays as it is, with a warning. Several transactions: those of
        `complete_search_index` and one for the merge; broken off, what is done stays done.

        Raises:
            StoreUnavailableError: The role may not analyze the tables on a server; the index is
                done by then.
        """
        self._complete_index()
        trouble = self._read(search.index.trouble)
        if trouble is None:
            self._write(search.index.optimize)
        else:
            logger.warning("%s: %s", self.location, trouble)
        self._maintain(maintenance.analyze)

    def purge_deleted(self) -> None:
        """Leave no byte of deleted text in any file of the store.

        Prompts go that no session has any more, the search index is made anew, the file
        written anew, and the write-ahead log cut to nothing. On a server the tables are written
        anew; its log, archives of it and backups keep what they hold. Several transactions, a
        step each: broken off, what is done stays done, and only another call makes sure.

        Raises:
            StoreBusyError: A reader kept the log from being cut, or a table on a server from
                being written anew, or a step before that had to wait too long; the steps
                before are done. Call again later.
            StoreUnavailableError: The role may not vacuum the tables on a server; the steps
                before are done.
        """
        self._write(prompts.collect_all)
        self._write(search.index.rebuild)
        self._complete_index()
        if self._on_server:
            self._write(maintenance.await_tables)

        def rewrite(raw: Any, tables: Sequence[str] | None) -> bool:
            maintenance.rewrite(raw, tables)
            return tables is not None or maintenance.checkpoint(raw, "TRUNCATE")

        if not self._maintain(rewrite):
            msg = (
                f"{self.location}: a reader keeps the write-ahead log, which may still hold "
                "deleted text; call purge_deleted again when it is done"
            )
            raise StoreBusyError(msg, attempts=1, waited_s=self._settings.busy_timeout_s)

    def repair(self, expected: Mapping[str, tuple[str, str]]) -> None:
        """Set right what is derived: indexes, triggers, counters, times, unused prompts.

        One transaction. No message, and no field that a caller gave, is changed.

        Args:
            expected: The indexes and triggers of a fresh store, name to kind and text.
        """
        from sessionstore import upkeep

        self._write(lambda db: upkeep.repair(db, expected))

    def file_sizes(self) -> FileSizes | None:
        """Say how many bytes each part of the file takes; None on a server."""
        return self._read(sizes.file_sizes)

    # Named values.

    def get_meta(self, key: str) -> str | None:
        """Return a named value of the store, or None."""
        return self._read(lambda db: meta.get(db, key))

    def set_meta(self, key: str, value: str | None) -> None:
        """Set a named value of the store."""
        named = checks.required_text("key", key)
        text = checks.plain_text("value", value)
        self._write(lambda db: meta.put(db, named, text))


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


def _is_of_its_rows(error: ConflictError | StoreUnavailableError) -> bool:
    """Say whether one session cannot be deleted, and others may: a reference, a damaged page."""
    if isinstance(error, ConflictError):
        return True
    code = sqlite_code(error)
    return code is not None and code & 0xFF == sqlite3.SQLITE_CORRUPT


def _moment_or_none(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None
