"""What a framework kept in its own SQLite file goes on, imported, by way of its adapter."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from langchain_core.messages import messages_from_dict

from sessionstore import SessionDB
from sessionstore.adapters.langchain import SessionStoreChatMessageHistory
from sessionstore.adapters.openai_agents import SessionStoreSession
from sessionstore.readers.histories import HISTORIES

FILES = Path(__file__).parents[1] / "data" / "histories"
OPENAI, LANGCHAIN = FILES / "openai-agents-0.24.db", FILES / "langchain-community-0.4.db"


def column(file: Path, sql: str, session_id: str) -> list[object]:
    with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as connection:
        found = [json.loads(value) for (value,) in connection.execute(sql, (session_id,))]
    connection.close()
    return found


@pytest.mark.parametrize("session_id", ["talk-1", "talk-2"])
def test_the_openai_agents_sdk_finds_equal_items(store: SessionDB, session_id: str):
    kept = "SELECT message_data FROM agent_messages WHERE session_id = ? ORDER BY id"
    history = HISTORIES["openai-agents-sqlite"](OPENAI)
    store.import_sessions(history.sessions(), on_conflict="extend")

    items = asyncio.run(SessionStoreSession(session_id, store).get_items())

    assert json.dumps(items) == json.dumps(column(OPENAI, kept, session_id))


@pytest.mark.parametrize("session_id", ["s-1", "s-2"])
def test_langchain_finds_equal_messages(store: SessionDB, session_id: str):
    kept = "SELECT message FROM message_store WHERE session_id = ? ORDER BY id"
    history = HISTORIES["langchain-sqlite"](LANGCHAIN)
    store.import_sessions(history.sessions(), on_conflict="extend")

    messages = SessionStoreChatMessageHistory(session_id, store).messages

    assert messages == messages_from_dict(column(LANGCHAIN, kept, session_id))
