"""Measure an append by each adapter against the store that the framework itself brings.

Run by `python scripts/bench.py peers`. Each line is one turn of a conversation, a question and
an answer, stored durably: by the adapter with its full-text index, by the other without one.
All take turns in one run, on files in one folder. A store whose packages are not installed
(aiosqlite and greenlet, langchain-community) is left out, and said so.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
import tempfile
import warnings
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bench

from sessionstore import SessionDB
from sessionstore.adapters.google_adk import SessionStoreSessionService
from sessionstore.adapters.langchain import SessionStoreChatMessageHistory
from sessionstore.adapters.openai_agents import SessionStoreSession
from sessionstore.adapters.pydantic_ai import SessionStoreConversationStore

ROUNDS = 300
SAID = bench.TEXT


class Peer(NamedTuple):
    """A store to be measured: its name, and a call that stores one turn."""

    name: str
    append: Callable[[], object]


def of_openai(folder: Path, db: SessionDB, loop: asyncio.AbstractEventLoop) -> list[Peer]:
    """Give the sessions of the OpenAI Agents SDK: ours, its plain one, its SQLAlchemy one."""
    from agents import SQLiteSession
    from agents.extensions.memory import SQLAlchemySession

    items: Any = [
        {"content": SAID, "role": "user"},
        {
            "id": "msg_1",
            "content": [{"annotations": [], "text": SAID, "type": "output_text"}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
        },
    ]

    def by(session: Any) -> Callable[[], object]:
        return lambda: loop.run_until_complete(session.add_items(items))

    url = f"sqlite+aiosqlite:///{folder / 'openai_sqlalchemy.db'}"
    return [
        Peer("SessionStoreSession", by(SessionStoreSession("openai", db))),
        Peer("SQLiteSession", by(SQLiteSession("s", folder / "openai_sqlite.db"))),
        Peer("SQLAlchemySession", by(SQLAlchemySession.from_url("s", url=url, create_tables=True))),
    ]


def of_langchain(folder: Path, db: SessionDB) -> list[Peer]:
    """Give the histories of LangChain: ours, and the one of its community."""
    from langchain_community.chat_message_histories import SQLChatMessageHistory
    from langchain_core.messages import AIMessage, HumanMessage

    messages = [HumanMessage(SAID), AIMessage(SAID, id="run-1")]
    theirs = SQLChatMessageHistory("s", connection=f"sqlite:///{folder / 'langchain.db'}")
    ours = SessionStoreChatMessageHistory("langchain", db)
    return [
        Peer("SessionStoreChatMessageHistory", lambda: ours.add_messages(messages)),
        Peer("SQLChatMessageHistory", lambda: theirs.add_messages(messages)),
    ]


async def of_adk(folder: Path, db: SessionDB, loop: asyncio.AbstractEventLoop) -> list[Peer]:
    """Give the session services of ADK: ours, and its SQLAlchemy one."""
    from google.adk.events.event import Event
    from google.adk.sessions import DatabaseSessionService
    from google.genai import types

    async def by(service: Any) -> Callable[[], object]:
        session = await service.create_session(app_name="a", user_id="u", session_id="s")

        async def turn() -> None:
            for author in ("user", "agent"):
                content = types.Content(role=author, parts=[types.Part(text=SAID)])
                await service.append_event(session, Event(author=author, content=content))

        return lambda: loop.run_until_complete(turn())

    theirs = DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'adk.db'}")
    return [
        Peer("SessionStoreSessionService", await by(SessionStoreSessionService(db))),
        Peer("DatabaseSessionService", await by(theirs)),
    ]


async def of_pydantic(db: SessionDB, loop: asyncio.AbstractEventLoop) -> list[Peer]:
    """Give the conversation store of Pydantic AI: ours, since it brings none that lasts."""
    from pydantic_ai import Conversation
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    store = SessionStoreConversationStore(db)
    await store.save(Conversation(conversation_id="pydantic"))

    async def turn() -> None:
        loaded = await store.load("pydantic", limit=2)
        assert loaded is not None  # noqa: S101 - saved above
        loaded.messages.append(ModelRequest(parts=[UserPromptPart(SAID)]))
        loaded.messages.append(ModelResponse(parts=[TextPart(SAID)]))
        await store.save(loaded)

    return [Peer("SessionStoreConversationStore", lambda: loop.run_until_complete(turn()))]


def bench_peers(folder: Path) -> list[bench.Line]:
    """Append a turn by each adapter and by each store of the frameworks."""
    warnings.simplefilter("ignore")
    lines: list[bench.Line] = []
    with asyncio.Runner() as runner, SessionDB(folder / "store.db") as db:
        loop = runner.get_loop()

        def started(make: Callable[[], Coroutine[Any, Any, list[Peer]]]) -> list[Peer]:
            return runner.run(make())

        frameworks: list[Callable[[], list[Peer]]] = [
            functools.partial(of_openai, folder, db, loop),
            functools.partial(of_langchain, folder, db),
            functools.partial(started, functools.partial(of_adk, folder, db, loop)),
            functools.partial(started, functools.partial(of_pydantic, db, loop)),
        ]
        for peers_of in frameworks:
            try:
                peers = peers_of()
            except ImportError as error:
                print(f"left out: {error}")
                continue
            ours_ms, *theirs_ms = bench.in_turn(ROUNDS, *(peer.append for peer in peers))
            if not theirs_ms:
                lines.append(bench.Line(peers[0].name, ours_ms, ours_ms))
            for peer, their_ms in zip(peers[1:], theirs_ms, strict=True):
                # OpenAI's plain session keeps no index; the others go by way of SQLAlchemy.
                limit = 2.5 if peer.name == "SQLiteSession" else 1.0
                lines.append(bench.at_most(limit, f"turn, against {peer.name}", ours_ms, their_ms))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        return bench.show(bench_peers(Path(folder)), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
