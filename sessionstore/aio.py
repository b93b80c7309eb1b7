"""`AsyncSessionDB`: the calls of `SessionDB` for asyncio, on worker threads; no logic.

SQLite's driver has no asynchronous calls, so each call runs on a thread of the store's own,
as many as it has connections. Nothing here belongs to an event loop: one store serves the
loops of several threads.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sessionstore.errors import StoreClosedError
from sessionstore.forking import forked
from sessionstore.location import Location, locate
from sessionstore.settings import StoreSettings
from sessionstore.store import SessionDB, open_at

P = ParamSpec("P")
T = TypeVar("T")

_END = object()


class _Threads(ThreadPoolExecutor):
    """As many threads as a store has connections, made when they are needed."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings.connections, thread_name_prefix="sessionstore")
        self._process: int | None = None

    def are_here(self) -> bool:
        """Say whether calls can run on them: a process that is forked off has none of them."""
        if self._process is None:
            self._process = os.getpid()
        return self._process == os.getpid()


# The threads of the stores that others opened; they go with the store.
_of_open_stores: weakref.WeakKeyDictionary[SessionDB, _Threads] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _awaited(
    call: Callable[Concatenate[SessionDB, P], T],
) -> Callable[Concatenate[AsyncSessionDB, P], Coroutine[Any, Any, T]]:
    """Make of a call of the store the one that is awaited, with the same parameters."""

    async def run(self: AsyncSessionDB, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(call, *args, **kwargs)

    functools.update_wrapper(run, call)
    return run


def _iterated(
    call: Callable[Concatenate[SessionDB, P], Iterator[T]],
) -> Callable[Concatenate[AsyncSessionDB, P], AsyncIterator[T]]:
    """Make of a call that streams the one for `async for`; each step is awaited."""

    async def stream(
        self: AsyncSessionDB, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        found = await self.run(call, *args, **kwargs)
        while (each := await self.run(lambda _: next(found, _END))) is not _END:
            yield each  # type: ignore[misc] # what is not the end is one of them

    functools.update_wrapper(stream, call)
    return stream


async def _outcome(running: Future[T]) -> T:
    """Wait for a call until it is over, be it by cancelling what has not begun."""
    waiting = asyncio.wrap_future(running)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError as error:
            cancelled = error
            running.cancel()
    if cancelled is None:
        return waiting.result()
    if not waiting.cancelled():
        # Looked at, or asyncio would say that nobody did.
        waiting.exception()
    raise cancelled


class AsyncSessionDB:
    """Where agents keep their conversations, for asyncio.

    ```python
    async with AsyncSessionDB("state.db") as db:
        await db.create_session("s1", "cli", model="m")
        await db.append_message("s1", "user", "hello")
    ```

    Every call takes and gives what the call of that name of `SessionDB` does; `iter_export`
    is for `async for`. The store is opened by the first call, or on entering the block, on a
    thread too. At most as many calls run at once as the store has connections; others queue.

    A cancelled call that has not begun never runs. One that has begun is waited for, so that
    when the CancelledError comes out, the call is over: what it wrote is there or is not, as
    one transaction. A function that is given, such as `progress`, is called on the thread.

    Args:
        db_path: See `SessionDB`; None is looked up now, not when the store is opened.
        url: See `SessionDB`.
        read_only: See `SessionDB`.
        migrate: See `SessionDB`.
        settings: See `SessionDB`.
    """

    def __init__(
        self,
        db_path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
        *,
        url: str | None = None,
        read_only: bool = False,
        migrate: bool = True,
        settings: StoreSettings | None = None,
    ) -> None:
        location, chosen = locate(db_path, url=url), settings or StoreSettings()
        self._begin(
            location,
            chosen,
            _Threads(chosen),
            lambda: open_at(location, read_only=read_only, migrate=migrate, settings=chosen),
            read_only=read_only,
        )

    def _begin(
        self,
        location: Location,
        settings: StoreSettings,
        threads: _Threads,
        opens: Callable[[], SessionDB],
        *,
        read_only: bool = False,
        owns: bool = True,
    ) -> None:
        self._location, self._settings, self._read_only = location, settings, read_only
        self._threads, self._opens, self._owns = threads, opens, owns
        self._store: SessionDB | None = None
        self._opening = threading.Lock()
        self._closed = False

    @classmethod
    def over(cls, store: SessionDB) -> Self:
        """Give the awaited calls of a store that is open; closing the one leaves the other open.

        Cheap: all that are made over one store share its threads.
        """
        with _making:
            threads = _of_open_stores.get(store)
            if threads is None:
                threads = _of_open_stores[store] = _Threads(store.settings)
        made = cls.__new__(cls)
        made._begin(  # noqa: SLF001 - another way to make one
            store.location,
            store.settings,
            threads,
            lambda: store,
            read_only=store.read_only,
            owns=False,
        )
        return made

    @property
    def location(self) -> Location:
        """Where the store is."""
        return self._location

    @property
    def read_only(self) -> bool:
        """Whether the store is opened only to read."""
        return self._read_only

    @property
    def settings(self) -> StoreSettings:
        """What was tuned about the store."""
        return self._settings

    async def __aenter__(self) -> Self:
        """Open the store and use it until the end of the block."""
        await self.run(lambda _: None)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        await self.close()

    async def close(self) -> None:
        """Close the store once the calls that were made are over; again is harmless.

        Any other call after it is a StoreClosedError.
        """
        self._closed = True
        if self._owns:
            closing: Future[None] = Future()
            threading.Thread(target=self._close, args=(closing,), name="sessionstore-close").start()
            await _outcome(closing)

    def _close(self, closing: Future[None]) -> None:
        # Not to be given up by whoever is cancelled while it waits.
        closing.set_running_or_notify_cancel()
        try:
            self._threads.shutdown(wait=True)
            if self._store is not None:
                self._store.close()
        finally:
            closing.set_result(None)

    async def run(
        self, call: Callable[Concatenate[SessionDB, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function with the store, and what else is given, on one of its threads.

        Raises:
            StoreClosedError: The store was closed.
            StoreForkedError: Calls were made before this process was forked off.
        """
        if self._closed:
            raise self._is_closed()
        if not self._threads.are_here():
            raise forked(self._location)
        try:
            running = self._threads.submit(lambda: call(self._opened(), *args, **kwargs))
        except RuntimeError as error:
            # Another thread closed the store since, or the interpreter is going.
            raise self._is_closed() from error
        return await _outcome(running)

    def _is_closed(self) -> StoreClosedError:
        return StoreClosedError(f"{self._location} was closed; open it again")

    def _opened(self) -> SessionDB:
        if self._store is None:
            with self._opening:
                if self._store is None:
                    self._store = self._opens()
        return self._store

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """Clean a title as `SessionDB.sanitize_title` does; nothing to wait for."""
        return SessionDB.sanitize_title(title)

    # Of one session.
    create_session = _awaited(SessionDB.create_session)
    continue_session = _awaited(SessionDB.continue_session)
    ensure_session = _awaited(SessionDB.ensure_session)
    get_session = _awaited(SessionDB.get_session)
    resolve_session_id = _awaited(SessionDB.resolve_session_id)
    find_session_ids = _awaited(SessionDB.find_session_ids)
    end_session = _awaited(SessionDB.end_session)
    reopen_session = _awaited(SessionDB.reopen_session)
    update_system_prompt = _awaited(SessionDB.update_system_prompt)
    set_session_archived = _awaited(SessionDB.set_session_archived)
    set_session_pinned = _awaited(SessionDB.set_session_pinned)
    delete_session = _awaited(SessionDB.delete_session)
    set_session_title = _awaited(SessionDB.set_session_title)
    get_session_title = _awaited(SessionDB.get_session_title)
    get_session_by_title = _awaited(SessionDB.get_session_by_title)
    resolve_session_by_title = _awaited(SessionDB.resolve_session_by_title)
    get_next_title_in_lineage = _awaited(SessionDB.get_next_title_in_lineage)

    # Of its messages.
    append_message = _awaited(SessionDB.append_message)
    append_messages = _awaited(SessionDB.append_messages)
    append_if_unchanged = _awaited(SessionDB.append_if_unchanged)
    sync_messages = _awaited(SessionDB.sync_messages)
    replace_messages = _awaited(SessionDB.replace_messages)
    delete_message = _awaited(SessionDB.delete_message)
    clear_messages = _awaited(SessionDB.clear_messages)
    archive_and_compact = _awaited(SessionDB.archive_and_compact)
    rewind_to_message = _awaited(SessionDB.rewind_to_message)
    restore_rewound = _awaited(SessionDB.restore_rewound)
    get_messages = _awaited(SessionDB.get_messages)
    get_messages_as_conversation = _awaited(SessionDB.get_messages_as_conversation)
    get_messages_around = _awaited(SessionDB.get_messages_around)
    get_message_by_platform_id = _awaited(SessionDB.get_message_by_platform_id)
    message_count = _awaited(SessionDB.message_count)

    # Of search.
    search_messages = _awaited(SessionDB.search_messages)
    search_index_trouble = _awaited(SessionDB.search_index_trouble)
    search_index_left = _awaited(SessionDB.search_index_left)
    complete_search_index = _awaited(SessionDB.complete_search_index)
    rebuild_search_index = _awaited(SessionDB.rebuild_search_index)
    check_search_index = _awaited(SessionDB.check_search_index)

    # Of many sessions.
    list_sessions_rich = _awaited(SessionDB.list_sessions_rich)
    search_sessions = _awaited(SessionDB.search_sessions)
    session_ids = _awaited(SessionDB.session_ids)
    session_count = _awaited(SessionDB.session_count)
    session_sources = _awaited(SessionDB.session_sources)
    get_lineage = _awaited(SessionDB.get_lineage)
    get_descendants = _awaited(SessionDB.get_descendants)
    get_chain = _awaited(SessionDB.get_chain)
    get_compression_tip = _awaited(SessionDB.get_compression_tip)
    resolve_resume_session_id = _awaited(SessionDB.resolve_resume_session_id)

    # Of tokens and cost.
    update_token_counts = _awaited(SessionDB.update_token_counts)
    usage_by_model = _awaited(SessionDB.usage_by_model)
    top_sessions_by_tokens = _awaited(SessionDB.top_sessions_by_tokens)
    usage_totals = _awaited(SessionDB.usage_totals)
    usage_by_day = _awaited(SessionDB.usage_by_day)
    usage_by = _awaited(SessionDB.usage_by)

    # Of what leaves and enters.
    export_session = _awaited(SessionDB.export_session)
    export_all = _awaited(SessionDB.export_all)
    iter_export = _iterated(SessionDB.iter_export)
    import_sessions = _awaited(SessionDB.import_sessions)
    backup = _awaited(SessionDB.backup)
    copy_from = _awaited(SessionDB.copy_from)

    # Of upkeep.
    prune_sessions = _awaited(SessionDB.prune_sessions)
    prune_report = _awaited(SessionDB.prune_report)
    prune_empty_ghost_sessions = _awaited(SessionDB.prune_empty_ghost_sessions)
    finalize_orphaned_compression_sessions = _awaited(
        SessionDB.finalize_orphaned_compression_sessions
    )
    maybe_auto_prune_and_vacuum = _awaited(SessionDB.maybe_auto_prune_and_vacuum)
    vacuum = _awaited(SessionDB.vacuum)
    optimize = _awaited(SessionDB.optimize)
    purge_deleted = _awaited(SessionDB.purge_deleted)
    repair = _awaited(SessionDB.repair)
    file_sizes = _awaited(SessionDB.file_sizes)
    get_meta = _awaited(SessionDB.get_meta)
    set_meta = _awaited(SessionDB.set_meta)

    # Of several programs at once.
    try_acquire_compression_lock = _awaited(SessionDB.try_acquire_compression_lock)
    refresh_compression_lock = _awaited(SessionDB.refresh_compression_lock)
    release_compression_lock = _awaited(SessionDB.release_compression_lock)
    get_compression_lock_holder = _awaited(SessionDB.get_compression_lock_holder)
    save_gateway_route = _awaited(SessionDB.save_gateway_route)
    load_gateway_routes = _awaited(SessionDB.load_gateway_routes)
    replace_gateway_routes = _awaited(SessionDB.replace_gateway_routes)
    delete_gateway_route = _awaited(SessionDB.delete_gateway_route)
    add_delivery = _awaited(SessionDB.add_delivery)
    claim_deliveries = _awaited(SessionDB.claim_deliveries)
    complete_delivery = _awaited(SessionDB.complete_delivery)
    fail_delivery = _awaited(SessionDB.fail_delivery)
    list_deliveries = _awaited(SessionDB.list_deliveries)
    request_handoff = _awaited(SessionDB.request_handoff)
    claim_handoff = _awaited(SessionDB.claim_handoff)
    complete_handoff = _awaited(SessionDB.complete_handoff)
    fail_handoff = _awaited(SessionDB.fail_handoff)
    get_handoff_state = _awaited(SessionDB.get_handoff_state)
    list_pending_handoffs = _awaited(SessionDB.list_pending_handoffs)


def opened_later(
    location: Location, settings: StoreSettings, opens: Callable[[], SessionDB]
) -> AsyncSessionDB:
    """Give the awaited calls of a store that the first of them opens, on its thread.

    Args:
        location: Where the store will be.
        settings: What it will be tuned to.
        opens: Opens it, to be written to too. Whoever does closes it; closing what is given
            leaves it open.
    """
    made = AsyncSessionDB.__new__(AsyncSessionDB)
    made._begin(location, settings, _Threads(settings), opens, owns=False)  # noqa: SLF001 - another way to make one
    return made
