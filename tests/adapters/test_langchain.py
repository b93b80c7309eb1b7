"""A chat message history of LangChain in the store: the real package, a model that is made up."""

from __future__ import annotations

import asyncio
import math

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory

from sessionstore import SessionDB
from sessionstore.adapters import common
from sessionstore.adapters.langchain import SessionStoreChatMessageHistory

MESSAGES = [
    SystemMessage("You are kind."),
    HumanMessage("plain 网络"),
    HumanMessage(
        [
            {"type": "text", "text": "look at this"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ],
        name="Ann",
        id="h1",
    ),
    AIMessage(""),
    AIMessage(
        "I look.",
        id="run-1",
        additional_kwargs={"refusal": None},
        response_metadata={"model_name": "m", "logprobs": None},
        tool_calls=[{"name": "look_up", "args": {"q": "漓江", "n": 1.0}, "id": "c1"}],
        invalid_tool_calls=[{"name": "f", "args": "{", "id": "c2", "error": "bad"}],
        usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    ),
    ToolMessage("found the river", tool_call_id="c1", name="look_up", artifact={"a": [1]}),
    ToolMessage([{"type": "text", "text": "no"}], tool_call_id="c2", status="error"),
    ChatMessage("of a critic", role="critic"),
    FunctionMessage("old style", name="f"),
    AIMessageChunk("a piece", id="x"),
    HumanMessage("with more", extra_field=["kept"]),
    AIMessage("sure", response_metadata={"logprobs": [{"logprob": -math.inf}]}),
    ChatMessage("of a role no column can hold", role="a\0role"),
]


def test_messages_come_back_equal_and_of_the_same_type(store):
    SessionStoreChatMessageHistory("s", store).add_messages(MESSAGES)
    again = SessionStoreChatMessageHistory("s", store)

    assert again.messages == MESSAGES
    assert [type(each) for each in again.messages] == [type(each) for each in MESSAGES]
    assert asyncio.run(again.aget_messages()) == MESSAGES
    assert str(again).startswith("System: You are kind.\nHuman: plain 网络\n")


def test_they_are_found_listed_and_counted(store):
    SessionStoreChatMessageHistory("s", store, source="app", user_id="u").add_messages(MESSAGES)

    for word in ("网络", "look at", "漓江", "river", "critic", "look_up"):
        assert [hit["session_id"] for hit in store.search_messages(word, per_session=1)] == ["s"]
    assert store.search_messages("AAAA") == []
    row = store.get_session("s")
    assert (row["source"], row["user_id"], row["message_count"]) == ("app", "u", len(MESSAGES))
    assert row["tool_call_count"] == 1
    roles = [each["role"] for each in store.get_messages("s")]
    assert roles[:8] == ["system", "user", "user", *["assistant"] * 2, "tool", "tool", "critic"]


def test_what_was_streamed_is_of_who_said_it(store):
    call = {"name": "look_up", "args": '{"q": "x"}', "id": "c1", "index": 0}
    streamed = [
        HumanMessageChunk("a question"),
        AIMessageChunk("an ") + AIMessageChunk("answer", tool_call_chunks=[call]),
        ToolMessageChunk("found", tool_call_id="c1", name="look_up"),
        SystemMessageChunk("be kind"),
    ]
    history = SessionStoreChatMessageHistory("s", store)
    history.add_messages(streamed)

    assert history.messages == streamed
    rows = store.get_messages("s")
    assert [each["role"] for each in rows] == ["user", "assistant", "tool", "system"]
    assert (rows[2]["tool_call_id"], rows[2]["tool_name"]) == ("c1", "look_up")
    assert store.list_sessions_rich()[0]["preview"] == "a question"


def test_sessions_keep_apart_and_one_is_cleared(store):
    one, other = (SessionStoreChatMessageHistory(name, store) for name in ("one", "other"))
    one.clear()
    assert one.messages == []
    for history in (one, other):
        history.add_messages([])
        history.add_user_message("hi")
        history.add_ai_message("hello")
    asyncio.run(one.aclear())
    assert (one.messages, len(other.messages)) == ([], 2)
    store.delete_session("other")
    asyncio.run(other.aadd_messages([HumanMessage("anew")]))
    assert other.messages == [HumanMessage("anew")]


def test_one_message_that_is_no_json_stores_none(store):
    history = SessionStoreChatMessageHistory("s", store)
    bad = ToolMessage("x", tool_call_id="c", artifact=object())
    with pytest.raises(TypeError):
        history.add_messages([HumanMessage("a"), bad])
    with pytest.raises(TypeError, match="is a BaseMessage, not str"):
        history.add_messages([HumanMessage("a"), "a text"])  # type: ignore[list-item]
    assert history.messages == []


def test_what_another_program_stored_is_read(store):
    store.create_session("s", "cli")
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    store.append_message("s", "user", "hi")
    store.append_message("s", "assistant", tool_calls=[call])
    store.append_message("s", "tool", "found", tool_call_id="c", tool_name="f")
    store.append_message("s", "narrator", "meanwhile")

    assert SessionStoreChatMessageHistory("s", store).messages == [
        HumanMessage("hi"),
        AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
        ToolMessage("found", tool_call_id="c", name="f"),
        ChatMessage("meanwhile", role="narrator"),
    ]


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
def test_a_chain_remembers_and_opens_its_place_once(file):
    made = []

    def history(session_id: str) -> SessionStoreChatMessageHistory:
        made.append(SessionStoreChatMessageHistory(session_id, file))
        return made[-1]

    prompt = ChatPromptTemplate([MessagesPlaceholder("past"), ("human", "{question}")])
    model = FakeListChatModel(responses=["first answer", "second answer"])
    chain = RunnableWithMessageHistory(
        prompt | model, history, input_messages_key="question", history_messages_key="past"
    )
    config = {"configurable": {"session_id": "s"}}

    chain.invoke({"question": "first question"}, config)
    asyncio.run(chain.ainvoke({"question": "second question"}, config))

    with SessionDB(file, read_only=True) as store:
        said = [each["content"] for each in store.get_messages("s")]
    assert said == ["first question", "first answer", "second question", "second answer"]
    assert len(made) >= 2
    assert len({id(common.opened(file)), *(id(common.opened(str(file))) for _ in made)}) == 1


def test_what_other_hands_made_of_a_message_does_not_hide_the_others(store):
    store.create_session("s", "langchain")
    for kept in ({"data": 5}, {"data": {}}, {}, [], "x"):
        store.append_message(
            "s", "user", "odd", codex_message_items=[{"kept_for": "langchain", "value": kept}]
        )
    assert SessionStoreChatMessageHistory("s", store).messages == [HumanMessage("odd")] * 5


@pytest.mark.parametrize(
    "content", [[1, None], [[1]], [{"type": "text"}, "str", None, 5], {"a": 1}]
)
def test_odd_messages_of_other_programs_do_not_hide_the_others(store: SessionDB, content: object):
    store.create_session("odd", "cli")
    call = {"id": 5, "type": "function", "function": {"name": "n", "arguments": "{}"}}
    store.append_message("odd", "assistant", "called", tool_calls=[call])
    for role in ("user", "assistant", "tool", "system", "critic"):
        store.append_message("odd", role, content)
    said = SessionStoreChatMessageHistory("odd", store).messages
    assert [message.type for message in said] == ["ai", "human", "ai", "tool", "system", "chat"]
    assert said[0].tool_calls[0]["id"] == "5"


def test_an_empty_list_comes_back_as_one(store: SessionDB):
    history = SessionStoreChatMessageHistory("empty", store)
    said = [HumanMessage([]), AIMessage([]), HumanMessage("")]
    history.add_messages(said)
    assert history.messages == said


def test_a_message_of_a_class_of_ones_own_does_not_hide_the_others(store: SessionDB):
    class Note(BaseMessage):
        type: str = "note"

    history = SessionStoreChatMessageHistory("s", store)
    history.add_messages([HumanMessage("before"), Note(content="mine"), HumanMessage("after")])

    assert history.messages == [
        HumanMessage("before"),
        ChatMessage("mine", role="note"),
        HumanMessage("after"),
    ]
