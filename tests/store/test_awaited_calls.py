"""The calls of the store for asyncio: the same calls, safe to cancel, closed in order."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sessionstore import (
    AsyncSessionDB,
    SessionDB,
    SessionNotFoundError,
    StoreClosedError,
    StoreSettings,
)

WAIT_S = 30


@pytest.fixture
def file(path: Path, empty_file: bytes) -> Path:
    path.write_bytes(empty_file)
    return path


def public(kind: type) -> dict[str, object]:
    return {
        name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")
    }


def test_every_call_is_there_with_the_same_parameters():
    of_store, of_async = public(SessionDB), public(AsyncSessionDB)

    assert of_async.keys() - of_store.keys() == {"over", "run"}
    assert of_store.keys() - of_async.keys() == set()
    for name, call in of_store.items():
        if isinstance(call, property):
            assert isinstance(of_async[name], property)
        elif name != "close":
            theirs = inspect.signature(getattr(AsyncSessionDB, name)).parameters
            assert list(theirs.values()) == list(
                inspect.signature(getattr(SessionDB, name)).parameters.values()
            )
    assert (
        inspect.signature(AsyncSessionDB.__init__).parameters
        == inspect.signature(SessionDB.__init__).parameters
    )
    for name, call in of_async.items():
        if not isinstance(call, property) and name not in {"over", "sanitize_title"}:
            wanted = (
                inspect.isasyncgenfunction if name == "iter_export" else inspect.iscoroutinefunction
            )
            assert wanted(call), name


def test_the_package_is_loaded_without_it_and_without_any_framework():
    unwanted = ["sessionstore.aio", "sessionstore.adapters", "agents", "pydantic", "langchain_core"]
    program = f"import sessionstore.cli, sys; print([n for n in {unwanted} if n in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    assert said.stdout == "[]\n"


def test_what_is_awaited_is_stored_found_and_streamed(file):
    async def talk():
        async with AsyncSessionDB(file) as db:
            for name in ("a", "b"):
                await db.create_session(name, "cli", title=f"Talk {name}")
                await db.append_message(name, "user", f"word in {name}")
            found = [hit["session_id"] for hit in await db.search_messages("word", sort="oldest")]
            streamed = [each["title"] async for each in db.iter_export()]
            with pytest.raises(SessionNotFoundError):
                await db.append_message("nope", "user", "x")
            return found, streamed, AsyncSessionDB.sanitize_title(" t "), db.location.path

    assert asyncio.run(talk()) == (["a", "b"], ["Talk a", "Talk b"], "t", file)


def test_as_many_calls_run_at_once_as_there_are_connections(file):
    async def talk():
        running, most, lock = 0, 0, threading.Lock()
        both = threading.Barrier(2)

        def look(db: SessionDB) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            both.wait(WAIT_S)
            db.session_count()
            with lock:
                running -= 1

        async with AsyncSessionDB(file, settings=StoreSettings(connections=2)) as db:
            await asyncio.gather(*(db.run(look) for _ in range(8)))
        return most

    assert asyncio.run(talk()) == 2


def held(file: Path) -> sqlite3.Connection:
    """Hold the write lock, as another program does."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_cancelled_append_is_there_or_not_and_the_store_goes_on(file):
    async def talk():
        settings = StoreSettings(connections=1)
        async with AsyncSessionDB(file, settings=settings) as db:
            await db.create_session("s", "cli")
            other = held(file)
            begun = asyncio.create_task(db.append_message("s", "user", "begun"))
            queued = asyncio.create_task(db.append_message("s", "user", "queued"))
            await asyncio.sleep(0.5)
            queued.cancel()
            begun.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
            assert not begun.done()
            other.execute("COMMIT")
            with pytest.raises(asyncio.CancelledError):
                await begun
            # It is over when its task is, and what comes next comes after it.
            await db.append_message("s", "user", "after")
            other.close()
            return [each["content"] for each in await db.get_messages("s")]

    assert asyncio.run(talk()) == ["begun", "after"]


def test_a_hundred_cancelled_calls_leave_every_connection_free(file):
    async def talk():
        async with AsyncSessionDB(file) as db:
            await db.create_session("s", "cli")
            cancelled = 0
            for number in range(100):
                task = asyncio.create_task(db.append_message("s", "user", str(number)))
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    cancelled += 1
            # All that had not begun; of the others one may have been done already.
            assert cancelled >= 20
            size = db.settings.connections
            counts = await asyncio.gather(*(db.message_count("s") for _ in range(size * 2)))
            row = await db.get_session("s")
            assert set(counts) == {row["message_count"]}
            return await db.append_message("s", "user", "last")

    assert asyncio.run(talk()) > 0


def test_closing_waits_for_what_was_called(file):
    async def talk():
        db = AsyncSessionDB(file)
        await db.create_session("s", "cli")
        other = held(file)
        writing = asyncio.create_task(db.append_message("s", "user", "in time"))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(db.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreClosedError):
            await db.message_count("s")
        assert not closing.done()
        other.execute("COMMIT")
        other.close()
        await closing
        await db.close()
        return writing.done(), await writing

    assert asyncio.run(talk()) == (True, 1)
    with SessionDB(file) as store:
        assert [each["content"] for each in store.get_messages("s")] == ["in time"]


def test_over_an_open_store_closes_nothing(store):
    async def talk():
        db, again = AsyncSessionDB.over(store), AsyncSessionDB.over(store)
        await db.create_session("s", "cli")
        await db.close()
        return await again.session_count()

    assert asyncio.run(talk()) == 1
    # One more loop, the same threads.
    assert asyncio.run(AsyncSessionDB.over(store).session_count()) == 1
    assert store.session_count() == 1


def test_a_message_is_deleted_with_its_counters(store):
    store.create_session("s", "cli")
    first = store.append_message("s", "user", "stays")
    gone = store.append_message("s", "assistant", tool_calls=[{"id": "1"}, {"id": "2"}])

    assert store.delete_message("s", gone, instead=[{"role": "assistant", "content": "this"}])
    assert not store.delete_message("s", gone, instead=[{"role": "user", "content": "never"}])
    assert not store.delete_message("other", first)

    assert [each["content"] for each in store.get_messages("s")] == ["stays", "this"]
    row = store.get_session("s")
    assert (row["message_count"], row["tool_call_count"]) == (2, 0)
