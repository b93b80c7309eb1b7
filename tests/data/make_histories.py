"""Make the databases of other frameworks with their own packages; run by hand, one at a time.

python make_histories.py openai-agents histories/openai-agents-0.24.db
python make_histories.py langchain histories/langchain-community-0.4.db
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any


def openai_agents(path: str) -> None:
    from agents.memory import SQLiteSession

    said: dict[str, list[Any]] = {
        "talk-1": [
            {"role": "user", "content": "What is the weather in Oslo?"},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Ask the tool."}],
            },
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "weather",
                "arguments": '{"city": "Oslo"}',
                "id": "fc_1",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "It rains in Oslo.", "annotations": []}
                ],
            },
        ],
        "talk-2": [
            {"role": "user", "content": "bonjour"},
            {
                "type": "web_search_call",
                "id": "ws",
                "status": "completed",
                "action": {"type": "search", "query": "salut"},
            },
        ],
    }
    for session_id, items in said.items():
        asyncio.run(SQLiteSession(session_id, path).add_items(items))


def langchain(path: str) -> None:
    from langchain_community.chat_message_histories import SQLChatMessageHistory
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    SQLChatMessageHistory("s-1", connection=f"sqlite:///{path}").add_messages(
        [
            HumanMessage("Find the leak"),
            AIMessage(
                "Looking.",
                tool_calls=[{"id": "c1", "name": "grep", "args": {"q": "leak"}}],
                usage_metadata={
                    "input_tokens": 10,
                    "output_tokens": 4,
                    "total_tokens": 14,
                    "input_token_details": {"cache_read": 3},
                },
                response_metadata={"model_name": "m-1"},
            ),
            ToolMessage("pipe.c:3", tool_call_id="c1", name="grep"),
            AIMessage("In pipe.c"),
            SystemMessage("be brief"),
        ]
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    SQLChatMessageHistory("s-2", connection=f"sqlite:///{path}").add_message(
        HumanMessage([{"type": "text", "text": "see"}, image])
    )


if __name__ == "__main__":
    {"openai-agents": openai_agents, "langchain": langchain}[sys.argv[1]](sys.argv[2])
