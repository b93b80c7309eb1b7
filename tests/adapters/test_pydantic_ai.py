"""A conversation store of Pydantic AI in the store: the real package, a model that is made up."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from pydantic_ai import Agent, Conversation, UserError
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
)
from pydantic_ai.messages import (
    BinaryImage,
    CompactionPart,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage
from sqlalchemy import event

from sessionstore import SessionDB
from sessionstore.adapters.pydantic_ai import SessionStoreConversationStore


def run(coroutine):
    return asyncio.run(coroutine)


def answer(messages, info):
    """Say how many messages there were."""
    return ModelResponse(parts=[TextPart(f"answer {len(messages)}")])


async def talk(conversations, conversation_id, *questions, scope=None):
    agent = Agent(FunctionModel(answer))
    loaded = await conversations.load(conversation_id, scope=scope)
    conversation = loaded or Conversation(conversation_id=conversation_id)
    for question in questions:
        result = await agent.run(question, conversation=conversation)
        await conversations.save(result, scope=scope)
        conversation = result.conversation
    return conversation


def said(store, session_id):
    return [each["content"] for each in store.get_messages(session_id)]


MESSAGES = [
    ModelRequest(
        parts=[
            SystemPromptPart("Be kind."),
            UserPromptPart(
                [
                    "look at 网络",
                    ImageUrl("https://example.test/a.png"),
                    BinaryImage(b"\x00\xff", media_type="image/png"),
                ]
            ),
        ],
        instructions="short",
    ),
    ModelResponse(
        parts=[
            ThinkingPart("thoughts"),
            TextPart("I look."),
            ToolCallPart("look_up", {"q": "漓江"}, tool_call_id="c1"),
            ToolCallPart("look_up", '{"q": "x"}', tool_call_id="c2"),
        ],
        model_name="m",
        finish_reason="tool_call",
        provider_details={"a": 1},
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("look_up", {"found": ["the river"]}, tool_call_id="c1"),
            ToolReturnPart("look_up", "try again", tool_call_id="c2", outcome="retried"),
        ]
    ),
    ModelResponse(parts=[]),
]
# What the columns cannot hold as it is, and the form that is kept beside them can.
ODD = [
    ModelResponse(
        parts=[ToolCallPart("look_up", {"raw": b"\xff"}, tool_call_id="c3")],
        usage=RequestUsage(output_tokens=-1),
    ),
    ModelRequest(parts=[ToolReturnPart("look_up", {"half": "\ud800"}, tool_call_id="c3")]),
    ModelResponse(parts=[TextPart("done")], usage=RequestUsage(output_tokens=2**63)),
]


def test_messages_come_back_equal_and_are_found(store):
    conversations = SessionStoreConversationStore(store)
    given = Conversation(conversation_id="c", messages=list(MESSAGES))
    entries = run(conversations.save(given, scope="ann"))

    loaded = run(SessionStoreConversationStore(store).load("c"))
    assert loaded.messages == MESSAGES
    assert loaded.revision == given.revision
    assert run(conversations.load_entries("c")) == entries
    assert [each.parent_id for each in entries] == [None, *(each.id for each in entries[:-1])]
    for word in ("网络", "I look", "漓江", "river", "try again"):
        assert [hit["session_id"] for hit in store.search_messages(word, per_session=1)] == ["c"]
    roles = [each["role"] for each in store.get_messages("c")]
    assert roles == ["user", "assistant", "tool", "assistant"]
    row = store.get_session("c")
    assert (row["user_id"], row["tool_call_count"], row["message_count"]) == ("ann", 2, 4)
    assert run(conversations.read_entry(entries[1].id)) == entries[1]
    with pytest.raises(LookupError):
        run(conversations.read_entry("nope"))
    with pytest.raises(LookupError):
        run(conversations.read_history("nope"))


def test_what_the_providers_tools_said_what_was_spoken_and_what_failed_is_found(store):
    messages = [
        ModelResponse(
            parts=[
                NativeToolCallPart("web_search", {"query": "kiwis"}, tool_call_id="n"),
                NativeToolReturnPart("web_search", [{"title": "Fruit"}], tool_call_id="n"),
                TextPart("data: as it is"),
                CompactionPart("summed up"),
                SpeechPart(speaker="assistant", transcript="spoken"),
            ]
        ),
        ModelRequest(
            parts=[
                SpeechPart(speaker="user", transcript="answered"),
                RetryFeedbackPart(
                    [{"type": "missing", "loc": ("a",), "msg": "Needed", "input": 1}],
                    retry=RetryInfo(cause="validation_error"),
                ),
            ]
        ),
    ]
    conversations = SessionStoreConversationStore(store)
    run(conversations.save(Conversation(conversation_id="c", messages=messages)))

    assert said(store, "c") == [
        "kiwis\nFruit\ndata: as it is\nsummed up\nspoken",
        "answered\na\nNeeded",
    ]
    rows = [(each["role"], each["tool_calls"]) for each in store.get_messages("c")]
    assert rows == [("assistant", None), ("user", None)]
    told = ModelMessagesTypeAdapter.dump_json(messages)
    assert ModelMessagesTypeAdapter.dump_json(run(conversations.load("c")).messages) == told
    assert len(store.search_messages("kiwis")) == 1


def test_odd_messages_come_back_as_the_framework_tells_them(store):
    conversations = SessionStoreConversationStore(store)
    run(conversations.save(Conversation(conversation_id="c", messages=list(ODD))))

    told = ModelMessagesTypeAdapter.dump_python(ODD, mode="json")
    loaded = run(conversations.load("c")).messages
    assert ModelMessagesTypeAdapter.dump_python(loaded, mode="json") == told
    assert [each["token_count"] for each in store.get_messages("c")] == [None, None, None]


def test_an_agent_goes_on_where_it_was(store):
    conversations = SessionStoreConversationStore(store)
    run(talk(conversations, "c", "one"))
    run(talk(SessionStoreConversationStore(store), "c", "two", "three"))

    assert said(store, "c") == ["one", "answer 1", "two", "answer 3", "three", "answer 5"]
    last = run(conversations.load("c", limit=2))
    assert [type(each) for each in last.messages] == [ModelRequest, ModelResponse]
    assert run(conversations.load("c", limit=0)).messages == []
    assert run(conversations.load("nope")) is None


def test_a_history_is_one_query_however_long_it_is(store):
    conversations = SessionStoreConversationStore(store)
    messages = [ModelRequest(parts=[UserPromptPart(f"question {number}")]) for number in range(300)]
    run(conversations.save(Conversation(conversation_id="c", messages=messages)))
    (record,) = run(conversations.list_conversations())
    statements = []
    event.listen(
        store._database.engine, "before_cursor_execute", lambda *args: statements.append(args[2])
    )

    def selects(of, **limit):
        statements.clear()
        history = run(of.read_history(record.head_id, **limit))
        return len(history), sum(each.startswith("SELECT") for each in statements)

    assert selects(conversations) == (300, 1)
    assert selects(conversations, limit=2) == (2, 1)
    # One that knows of no conversation has to find it first.
    assert selects(SessionStoreConversationStore(store)) == (300, 2)


def test_who_saves_what_was_saved_since_is_told(store):
    conversations = SessionStoreConversationStore(store)
    run(talk(conversations, "c", "one"))
    mine, theirs = run(conversations.load("c")), run(conversations.load("c"))
    theirs.messages.append(ModelRequest(parts=[UserPromptPart("theirs")]))
    run(conversations.save(theirs))
    mine.messages.append(ModelRequest(parts=[UserPromptPart("mine")]))

    with pytest.raises(ConversationConflict):
        run(conversations.save(mine))
    with pytest.raises(ConversationConflict):
        run(conversations.save(Conversation(conversation_id="c")))
    with pytest.raises(ConversationConflict):
        run(conversations.delete_record("c", expected_revision="old"))
    assert said(store, "c") == ["one", "answer 1", "theirs"]


def test_a_record_whose_head_is_nowhere_is_refused(store):
    conversations = SessionStoreConversationStore(store)
    record = ConversationRecord(conversation_id="c", head_id="nowhere")
    with pytest.raises(ConversationConflict):
        run(conversations.write_record(record, expected_revision=None))
    entry = ConversationEntry(parent_id="nowhere", message=MESSAGES[0])
    with pytest.raises(ConversationConflict):
        run(
            conversations.write_record(
                dataclasses.replace(record, head_id=entry.id),
                new_entries=[entry],
                expected_revision=None,
            )
        )
    assert run(conversations.read_record("c")) is None
    # What was tried is not in the way.
    run(talk(conversations, "c", "one"))
    assert said(store, "c") == ["one", "answer 1"]


def test_of_two_that_save_at_once_one_is_told(store):
    conversations = SessionStoreConversationStore(store)

    async def both():
        made = [
            Conversation(
                conversation_id="c", messages=[ModelRequest(parts=[UserPromptPart(str(number))])]
            )
            for number in range(8)
        ]
        return await asyncio.gather(
            *(conversations.save(each) for each in made), return_exceptions=True
        )

    done = run(both())
    assert sum(isinstance(each, ConversationConflict) for each in done) == 7
    assert store.message_count("c") == 1


def test_a_branch_leaves_a_history_that_can_be_gone_back_to(store):
    conversations = SessionStoreConversationStore(store)
    whole = run(talk(conversations, "c", "one", "two"))
    branched = run(conversations.branch("c", at=2, expected_revision=whole.revision))
    assert said(store, "c") == ["one", "answer 1"]
    branched.messages.append(ModelRequest(parts=[UserPromptPart("other")]))
    run(conversations.save(branched))

    assert said(store, "c") == ["one", "answer 1", "other"]
    (record,) = run(conversations.list_conversations())
    (left,) = record.branches
    assert len(run(conversations.read_history(left))) == 4
    back = run(conversations.branch("c", from_entry=left, expected_revision=record.revision))
    assert back.messages == whole.messages
    assert said(store, "c") == ["one", "answer 1", "two", "answer 3"]
    assert store.get_session("c")["message_count"] == 4
    none = run(conversations.branch("c", at=0, expected_revision=back.revision))
    assert (none.messages, said(store, "c")) == ([], [])


def test_a_rewritten_history_branches_off_what_both_share(store):
    conversations = SessionStoreConversationStore(store)
    whole = run(talk(conversations, "c", "one", "two"))
    summary = ModelRequest(parts=[UserPromptPart("summary")])
    rewritten = Conversation(
        conversation_id="c", messages=[*whole.messages[:2], summary], revision=whole.revision
    )
    run(conversations.save(rewritten))

    assert said(store, "c") == ["one", "answer 1", "summary"]
    assert run(conversations.load("c")).messages == rewritten.messages


def test_a_fork_goes_its_own_way_and_outlives_what_it_came_from(store):
    conversations = SessionStoreConversationStore(store)
    run(talk(conversations, "c", "one", "two"))
    fork = run(conversations.fork("c", at=2, new_conversation_id="f", scope="ann"))
    run(talk(conversations, "f", "other"))
    run(talk(conversations, "c", "three"))
    whole = run(conversations.load("f"))

    assert said(store, "f") == ["one", "answer 1", "other", "answer 3"]
    assert said(store, "c")[4:] == ["three", "answer 5"]
    assert whole.messages[:2] == fork.messages
    record = run(conversations.read_record("f"))
    assert (record.forked_from, record.scope) == ("c", "ann")
    run(SessionStoreConversationStore(store).delete("c"))
    assert run(conversations.load("c")) is None
    # It was noted to be in the other one.
    assert len(run(conversations.read_history(record.forked_at))) == 2
    assert run(conversations.load("f")).messages == whole.messages
    assert [hit["session_id"] for hit in store.search_messages("one")] == ["f"]
    assert store.search_messages("three", include_inactive=True) == []
    with pytest.raises(ConversationConflict):
        run(conversations.fork("f", new_conversation_id="f"))


def test_scopes_keep_conversations_apart(store):
    conversations = SessionStoreConversationStore(store)
    for name, scope in (("a", "ann"), ("b", "bob"), ("a2", "ann")):
        run(talk(conversations, name, "hi", scope=scope))
    listed = run(conversations.list_conversations(scope="ann"))

    assert [each.conversation_id for each in listed] == ["a2", "a"]
    assert len(run(conversations.list_conversations(limit=2))) == 2
    assert run(conversations.load("a", scope="bob")) is None
    run(conversations.delete("a", scope="bob"))
    assert run(conversations.load("a")) is not None
    with pytest.raises(ConversationConflict):
        run(talk(conversations, "a", "mine", scope="bob"))


def test_a_session_of_another_program_is_left_alone(store):
    store.create_session("c", "cli")
    store.append_message("c", "user", "not yours")
    conversations = SessionStoreConversationStore(store)

    assert run(conversations.load("c")) is None
    with pytest.raises(ConversationConflict):
        run(talk(conversations, "c", "one"))
    with pytest.raises(UserError):
        run(conversations.fork("c"))
    assert said(store, "c") == ["not yours"]


def test_a_conversation_survives_export_and_import(store, tmp_path, empty_file):
    (tmp_path / "other.db").write_bytes(empty_file)
    run(talk(SessionStoreConversationStore(store), "c", "one", "two"))
    exported = store.export_all()
    with SessionDB(tmp_path / "other.db") as other:
        other.import_sessions(exported)
        there = SessionStoreConversationStore(other)
        assert run(there.load("c")) == run(SessionStoreConversationStore(store).load("c"))
        run(talk(there, "c", "three"))
        assert len(said(other, "c")) == 6
