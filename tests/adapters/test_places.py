"""A place that adapters are given: opened by the first call, off the loop, once in a process."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event
from langchain_core.messages import HumanMessage
from pydantic_ai import ModelRequest
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord

from sessionstore import SessionDB, StoreClosedError, StoreSettings, StoreUnavailableError
from sessionstore.adapters import common
from sessionstore.adapters.google_adk import SessionStoreSessionService
from sessionstore.adapters.langchain import SessionStoreChatMessageHistory
from sessionstore.adapters.openai_agents import SessionStoreSession
from sessionstore.adapters.pydantic_ai import SessionStoreConversationStore

WAIT_S = 60

Make = Callable[[Any], Callable[[], Awaitable[None]]]


def openai_agents(store: Any) -> Callable[[], Awaitable[None]]:
    session = SessionStoreSession("openai", store)
    return lambda: session.add_items([{"role": "user", "content": "hi"}])


def langchain(store: Any) -> Callable[[], Awaitable[None]]:
    history = SessionStoreChatMessageHistory("langchain", store)
    return lambda: history.aadd_messages([HumanMessage("hi")])


def pydantic_ai(store: Any) -> Callable[[], Awaitable[None]]:
    entry = ConversationEntry(id="e", parent_id=None, message=ModelRequest.user_text_prompt("hi"))
    record = ConversationRecord(conversation_id="pydantic", revision="r", head_id="e")
    conversations = SessionStoreConversationStore(store)
    return lambda: conversations.write_record(record, new_entries=[entry], expected_revision=None)


def google_adk(store: Any) -> Callable[[], Awaitable[None]]:
    service = SessionStoreSessionService(store)

    async def call() -> None:
        made = await service.create_session(app_name="google", user_id="u", session_id="s")
        await service.append_event(made, Event(author="user", message="hi"))

    return call


ALL = [openai_agents, langchain, pydantic_ai, google_adk]
every_adapter = pytest.mark.parametrize("make", ALL, ids=[make.__name__ for make in ALL])


def said(path: Path) -> dict[str, list[Any]]:
    with SessionDB(path, read_only=True) as db:
        return {
            each: [message["content"] for message in db.get_messages(each)]
            for each in sorted(db.session_ids())
        }


@every_adapter
def test_the_first_call_makes_the_file_and_the_constructor_does_not(make: Make, tmp_path: Path):
    path = tmp_path / "folder" / "state.db"
    call = make(path)
    assert not path.parent.exists()

    asyncio.run(call())

    assert list(said(path).values()) == [["hi"]]


@pytest.mark.parametrize("wrong", ["mysql://host/name", "postgresql+psycopg://host:port/name"])
@every_adapter
def test_a_url_that_names_no_store_is_refused_by_the_constructor(make: Make, wrong: str):
    with pytest.raises(ValueError, match=r"not supported|not a database URL"):
        make(wrong)


@every_adapter
def test_what_keeps_a_place_from_being_opened_is_said_by_the_call_and_can_pass(
    make: Make, file: Path
):
    good = file.read_bytes()
    file.write_bytes(b"no database " * 1000)
    call = make(file)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="not a database"):
            asyncio.run(call())

    file.write_bytes(good)
    asyncio.run(call())

    assert list(said(file).values()) == [["hi"]]


def test_all_adapters_over_a_place_share_one_store(file: Path):
    calls = [make(place) for make in ALL for place in (file, str(file), f"sqlite:///{file}")]
    for call in calls[::3]:
        asyncio.run(call())
    ids = ["google/u/s", "langchain", "openai", "pydantic"]
    assert said(file) == {session_id: ["hi"] for session_id in ids}

    common.opened(file).close()

    for call in calls:
        with pytest.raises(StoreClosedError):
            asyncio.run(call())


def test_a_place_is_known_before_it_is_opened(file: Path):
    db = common.awaited(file)

    assert (db.location.path, db.read_only) == (file, False)
    assert db.settings == StoreSettings()
    assert asyncio.run(db.session_count()) == 0
    assert db.settings is common.opened(file).settings


@every_adapter
def test_while_a_place_waits_to_be_opened_the_loop_and_other_places_go_on(
    make: Make, tmp_path: Path
):
    path, other = tmp_path / "state.db", tmp_path / "other.db"
    # Another program is at work in a file that is still to get its tables.
    holding = sqlite3.connect(path, isolation_level=None)
    holding.execute("BEGIN EXCLUSIVE")

    async def talk() -> None:
        waiting = asyncio.create_task(make(path)())
        await make(other)()
        assert not waiting.done()
        holding.execute("ROLLBACK")
        await waiting

    asyncio.run(talk())
    holding.close()

    assert list(said(path).values()) == list(said(other).values()) == [["hi"]]


IN_CHILD = """
import asyncio, os, sys
from sessionstore import AsyncSessionDB, SessionDB, StoreForkedError
from sessionstore.adapters.langchain import SessionStoreChatMessageHistory
from sessionstore.adapters.openai_agents import SessionStoreSession

path = sys.argv[1]

def say(session, text):
    asyncio.run(session.add_items([{"role": "user", "content": text}]))

def in_child(call):
    child = os.fork()
    if child == 0:
        try:
            call()
        except StoreForkedError:
            os._exit(3)
        # As any process ends, so that what it opened is closed.
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

USED_SINCE = """
session = SessionStoreSession("s", path)
assert in_child(lambda: say(session, "child")) == 0
say(session, "parent")
"""

USED_BEFORE = """
session, history = SessionStoreSession("s", path), SessionStoreChatMessageHistory("s", path)
db = AsyncSessionDB(path)
say(session, "child")
asyncio.run(history.aget_messages())
asyncio.run(db.session_count())
for call in (
    lambda: say(session, "never"),
    lambda: say(SessionStoreSession("s", path), "never"),
    lambda: asyncio.run(history.aget_messages()),
    lambda: history.messages,
    lambda: asyncio.run(db.session_count()),
    lambda: asyncio.run(AsyncSessionDB(path).session_count()),
):
    assert in_child(call) == 3
say(session, "parent")
asyncio.run(db.close())
"""


@pytest.mark.parametrize("script", [USED_SINCE, USED_BEFORE], ids=["since", "before"])
def test_a_process_that_is_forked_off_opens_a_place_itself_or_is_refused(
    script: str, tmp_path: Path
):
    path = tmp_path / "state.db"
    done = subprocess.run(
        [sys.executable, "-c", IN_CHILD + script, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert said(path) == {"s": ["child", "parent"]}
