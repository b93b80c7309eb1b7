"""The calls about many sessions: listing, exporting, pruning, upkeep."""

from __future__ import annotations

import functools
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from sqlalchemy import Connection

from sessionstore import search
from sessionstore.errors import (
    SessionStoreError,
    StoreBusyError,
    StoreUnavailableError,
    shown,
)
from sessionstore.records import (
    ExportedSession,
    FilterFields,
    ImportReport,
    ListPlace,
    PruneReport,
    SessionFilter,
    SessionSummary,
    SkippedSession,
    UpkeepReport,
    age_in_seconds,
)
from sessionstore.repository import (
    checks,
    listing,
    meta,
    prompts,
    retention,
    sessions,
    sizes,
    transfer,
)
from sessionstore.store import side_files
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase

logger = logging.getLogger("sessionstore")

# An import is checked as a whole before it is stored; past this it waits on disk.
_SPOOLED_BYTES = 1024 * 1024

# A step of indexing that is somebody's business: about a quarter of a second.
_INDEX_STEP = {"messages": 1000, "characters": 1_000_000}

_DEFAULT_DAYS = 90.0
# What says of what age a prune is.
_TIMES: tuple[Literal["older_than", "before", "newer_than", "after"], ...] = (
    "older_than",
    "before",
    "newer_than",
    "after",
)
_LAST_AUTO_PRUNE = "last_auto_prune"


class _Undone(Exception):  # noqa: N818 - no error: it ends a transaction that shall not stay
    """What was done in a transaction was only to be seen."""

    def __init__(self, report: ImportReport) -> None:
        super().__init__()
        self.report = report


@checked_calls
class KeepingCalls(StoreBase):
    """What is done with many sessions at once, and with the file."""

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int | None = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        include_archived: bool = False,
        pinned_first: bool = False,
        past: ListPlace | None = None,
        **filter_fields: Unpack[FilterFields],
    ) -> list[SessionSummary]:
        """List conversations: roots and branches, one entry for a chain.

        An entry has the identity, counts, title, end and preview of the chain's newest part,
        the start of its root, and the root's id as `_lineage_root_id` (None where root and
        newest part are one). `preview` is the first user message on one line, 60 characters
        and `...`; `last_active` the time of the latest message, else of the start. Newest
        started first, or by the chain's latest activity; ties by id. Three statements
        whatever the number of sessions.

        Args:
            source: Only this source.
            exclude_sources: None of these.
            limit: At most so many; None is all.
            offset: Leave out so many of the first.
            include_children: Every session by itself, subagents and parts of chains too.
            project_compression_tips: False shows the root of a chain instead.
            order_by_last_active: Latest activity first.
            include_archived: Also what was put away.
            pinned_first: What is pinned before the rest.
            past: Only what comes after this place, in the same order; see `ListPlace`.
            **filter_fields: The fields of `SessionFilter`, asked of the entry shown.

        Raises:
            ValueError, TypeError: A filter, limit or offset is not what it must be.
        """
        if not include_archived:
            filter_fields.setdefault("archived", False)
        wanted = SessionFilter(source=source, **filter_fields)
        limit, offset = checks.one_page(limit, offset)
        excluded = _list_of_texts("exclude_sources", exclude_sources)
        now = self._now()
        return self._read(
            lambda db: listing.rich(
                db,
                wanted,
                now=now,
                exclude_sources=excluded,
                limit=limit,
                offset=offset,
                include_children=include_children,
                project_tips=project_compression_tips,
                by_activity=order_by_last_active,
                pinned_first=pinned_first,
                past=past,
            )
        )

    # Exporting.

    def export_session(self, session_id: str) -> ExportedSession | None:
        """Return a session with all its messages under `messages`, or None."""
        return self._read(lambda db: transfer.exported(db, session_id))

    def export_all(self, source: str | None = None) -> list[ExportedSession]:
        """Return every session with its messages, oldest-started first; all in memory."""
        return list(self.iter_export(SessionFilter(source=source)))

    def iter_export(self, wanted: SessionFilter | None = None) -> Iterator[ExportedSession]:
        """Stream the sessions that pass a filter with their messages, oldest-started first.

        One session is in memory at a time, read in a transaction of its own: each is whole,
        and one that is deleted meanwhile is left out.
        """
        chosen = SessionFilter() if wanted is None else wanted
        if not isinstance(chosen, SessionFilter):
            msg = f"wanted must be a SessionFilter, not {type(chosen).__name__}"
            raise TypeError(msg)
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

    # Deleting.

    def delete_session(
        self, session_id: str, sessions_dir: str | os.PathLike[str] | None = None
    ) -> bool:
        """Delete a session and its messages; its children lose their parent.

        One transaction. Return whether there was such a session.

        Args:
            session_id: The session.
            sessions_dir: Where a program keeps `<id>.json`, `<id>.jsonl` and
                `request_dump_<id>_*.json`; they go too, after the transaction.
        """
        folder = side_files.folder(sessions_dir)
        gone = self._write(lambda db: sessions.delete_with_messages(db, session_id))
        if gone is None:
            return False
        self._remove_side_files(folder, [session_id])
        return True

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
            self._remove_side_files(folder, report["pruned"])
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
        except StoreBusyError:
            raise
        except SessionStoreError as error:
            logger.warning("session %s was not pruned: %s", session_id, error)
            report["skipped"].append(SkippedSession(id=session_id, reason=str(error)))
            return
        if gone is None:
            report["skipped"].append(SkippedSession(id=session_id, reason="in use again since"))
            return
        report["pruned"].append(session_id)
        report["messages"] += gone

    def prune_empty_ghost_sessions(
        self,
        older_than_hours: float = 24,
        sessions_dir: str | os.PathLike[str] | None = None,
    ) -> int:
        """Delete sessions that never came to be: no message, no title, no child; count them.

        One transaction.

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
        self._remove_side_files(folder, ghosts)
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
        `last_auto_prune`; of two programs that come at once, one goes on.

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
        self._maintain("VACUUM" if self.location.path else "VACUUM (ANALYZE)")
        self._checkpoint("TRUNCATE")

    def _maintain(self, statement: str) -> None:
        """Run it on the file, or on each table of the store: a server has those of others."""
        path = self.location.path
        if why_not := self._may_not_vacuum():
            raise StoreUnavailableError(why_not)
        tables = [None] if path else self._read(sizes.tables)

        def rewrite(raw: Any) -> None:
            for table in tables:
                raw.execute(statement if table is None else f"{statement} {table}")

        self._outside_transaction(rewrite)

    def _may_not_vacuum(self) -> str | None:
        """Say why a server would pass over tables of the store, with no more than a notice."""
        if self.location.path is not None or not (others := self._read(sizes.not_ours)):
            return None
        return (
            f"{self.location}: the role may not vacuum {', '.join(others)}; do it as their owner, "
            "see docs/postgresql.md"
        )

    def optimize(self) -> None:
        """Complete and merge the search index, and refresh the planner's statistics.

        A damaged index stays as it is, with a warning.
        """
        self.complete_search_index()
        trouble = self._read(search.index.trouble)
        if trouble is None:
            self._write(search.index.optimize)
        else:
            logger.warning("%s: %s", self.location, trouble)
        self._maintain("PRAGMA optimize" if self.location.path else "ANALYZE")

    def complete_search_index(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Index all messages that are not indexed yet; return how many.

        Search is right before, meanwhile and after. One transaction for a thousand messages
        at most: others write in between, and what is done stays done if this is broken off.

        Args:
            progress: Called with how many of how many are done.
        """
        left = self._read(search.index.left)
        done = 0
        self._completing = True
        try:
            while left and (count := self._write(lambda db: search.index.step(db, **_INDEX_STEP))):
                done += count
                if progress is not None:
                    # Others may have added some, or have done some.
                    progress(done, max(left, done))
        finally:
            self._completing = False
        return done

    def rebuild_search_index(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Make the search index anew, whatever state it is in; return how many messages it has.

        Args:
            progress: See `complete_search_index`.
        """
        self._write(search.index.rebuild)
        return self.complete_search_index(progress)

    def check_search_index(self) -> list[str]:
        """Compare the search index with the messages; list what is wrong, a sentence each.

        Finds what no check of the file by SQLite itself does. Reads everything and holds the
        write lock meanwhile; a store that was opened read-only cannot compare and says only
        what is missing or cannot be read.
        """
        if self.read_only:
            return self._read(lambda db: search.index.findings(db, compare=False))
        return self._write(lambda db: search.index.findings(db, compare=True))

    def purge_deleted(self) -> None:
        """Leave no byte of deleted text in any file of the store.

        Prompts go that no session has any more, the search index is made anew, the file
        written anew, and the write-ahead log cut to nothing. On a server the tables are written
        anew; its log, archives of it and backups keep what they hold.

        Raises:
            StoreBusyError: A reader kept the log from being cut, or a table on a server from
                being written anew; call again later.
        """
        self._write(prompts.collect_all)
        self.rebuild_search_index()
        if self.location.path is None:
            # A VACUUM would wait for ever for who holds a table, and all others behind it; no
            # transaction may hold one, and so none can say for how long.
            names = ", ".join(self._read(sizes.tables))
            self._write(lambda db: db.exec_driver_sql(f"LOCK TABLE {names}"))
            self._maintain("VACUUM (FULL, ANALYZE)")
            return

        def rewrite(raw: Any) -> tuple[int, int, int]:
            raw.execute("VACUUM")
            result: tuple[int, int, int] = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return result

        busy, _, _ = self._outside_transaction(rewrite)
        if busy:
            msg = (
                f"{self.location}: a reader keeps the write-ahead log, which may still hold "
                "deleted text; call purge_deleted again when it is done"
            )
            raise StoreBusyError(msg, attempts=1, waited_s=self._settings.busy_timeout_s)

    def get_meta(self, key: str) -> str | None:
        """Return a named value of the store, or None."""
        return self._read(lambda db: meta.get(db, key))

    def set_meta(self, key: str, value: str | None) -> None:
        """Set a named value of the store."""
        named = checks.required_text("key", key)
        text = checks.plain_text("value", value)
        self._write(lambda db: meta.put(db, named, text))

    def _remove_side_files(self, folder: Path | None, gone: Sequence[str]) -> None:
        if folder is None:
            return
        for session_id in gone:
            longer = self._read(functools.partial(sessions.find_ids, prefix=f"{session_id}_"))
            side_files.remove(folder, session_id, others=longer)


def _list_of_texts(name: str, value: Sequence[str] | None) -> list[str]:
    texts = [] if value is None else value
    if isinstance(texts, (str, bytes)) or not all(isinstance(each, str) for each in texts):
        msg = f"{name} must be a list of texts"
        raise TypeError(msg)
    return list(texts)


def _moment_or_none(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None
