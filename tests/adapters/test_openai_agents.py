"""A session of the OpenAI Agents SDK in the store: the real SDK, a model that is made up."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys

import openai_program
import pytest
from agents import SessionSettings
from agents.memory import Session
from click.testing import CliRunner
from openai_program import turn

from sessionstore import SessionDB, StoreClosedError
from sessionstore.adapters.openai_agents import SessionStoreSession
from sessionstore.cli import main

PROGRAM = openai_program.__file__

ITEMS = [
    {"content": "plain 网络", "role": "user"},
    {"role": "user", "content": "the other order"},
    {"role": "user", "content": "", "type": "message"},
    {"role": "user", "content": [{"type": "text", "text": "not of this maker"}]},
    {"content": [{"type": "text", "text": "neither"}], "role": "user"},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        ],
    },
    {
        "id": "msg_1",
        "content": [{"annotations": [], "text": "an answer", "type": "output_text"}],
        "role": "assistant",
        "status": "completed",
        "type": "message",
    },
    {
        "id": "rs_1",
        "summary": [{"text": "thoughts of it", "type": "summary_text"}],
        "type": "reasoning",
        "encrypted_content": "gAAA",
    },
    {
        "arguments": '{"q": "漓江",  "n":1.0}',
        "call_id": "c1",
        "name": "look_up",
        "type": "function_call",
        "id": "fc_1",
        "status": "completed",
    },
    {"call_id": "c1", "output": "found the river", "type": "function_call_output"},
    {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "p"}],
    },
    {"type": "custom_tool_call", "call_id": "c3", "name": "sh", "input": "ls \ud83d\0 -l"},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "total 0"},
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "kiwis"}},
    {"type": "shell_call", "call_id": "c4", "action": {"commands": ["uname -a"]}},
    {"type": "brand_new", "z": 1, "a": [None, True, 2.50, {"deep": "unheard word"}], "role": 7},
    {"role": "", "content": 5},
    {"role": "tourist", "content": "of a role nobody knows"},
    {"role": "assistant", "content": None},
    {"type": "reasoning", "summary": [], "kept_for": "a key of the item's own"},
    {"type": "reasoning", "summary": [], "score": -math.inf},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "sure", "logprobs": [{"logprob": -math.inf}]}],
    },
    {"role": "a\0role", "content": "of a role no column can hold"},
    {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "output_text", "text": "but"},
            {"type": "refusal", "refusal": "I decline"},
        ],
    },
    {},
]


def run(coroutine):
    return asyncio.run(coroutine)


def test_it_is_a_session_of_the_sdk(store):
    assert isinstance(SessionStoreSession("s", store), Session)


def test_items_come_back_in_order_and_the_same_to_the_byte(store):
    session = SessionStoreSession("s", store)
    run(session.add_items([*ITEMS[:4]]))
    run(session.add_items(ITEMS[4:]))
    again = SessionStoreSession("s", store)

    assert list(map(json.dumps, run(again.get_items()))) == list(map(json.dumps, ITEMS))
    popped = []
    while (item := run(again.pop_item())) is not None:
        popped.append(json.dumps(item))
    assert popped[::-1] == list(map(json.dumps, ITEMS))
    row = store.get_session("s")
    assert (row["message_count"], row["tool_call_count"]) == (0, 0)


def test_limits_mean_what_they_mean_to_the_sdk(store):
    session = SessionStoreSession("s", store, SessionSettings(limit=2))
    run(session.add_items([{"content": str(number), "role": "user"} for number in range(5)]))

    def said(limit=None):
        return [item["content"] for item in run(session.get_items(limit))]

    assert said() == ["3", "4"]
    assert said(3) == ["2", "3", "4"]
    assert said(0) == []
    assert said(-1) == said(9) == ["0", "1", "2", "3", "4"]
    as_dict = SessionStoreSession("s", store, {"limit": 1})
    assert [item["content"] for item in run(as_dict.get_items())] == ["4"]
    session.session_settings = None
    assert len(said()) == 5


def test_sessions_keep_apart_and_one_is_cleared(store):
    one, other = SessionStoreSession("one", store), SessionStoreSession("other", store)
    run(one.clear_session())
    assert run(one.get_items()) == []
    assert run(one.pop_item()) is None
    assert store.session_count() == 0
    for session in (one, other):
        run(session.add_items([]))
        run(session.add_items([{"content": "hi", "role": "user"}]))
    run(one.clear_session())

    assert run(one.get_items()) == []
    assert len(run(other.get_items())) == 1
    store.delete_session("other")
    run(other.add_items([{"content": "anew", "role": "user"}]))
    assert run(other.get_items()) == [{"content": "anew", "role": "user"}]


def test_one_item_that_is_no_json_stores_none(store):
    session = SessionStoreSession("s", store)
    with pytest.raises(TypeError):
        run(session.add_items([{"content": "a", "role": "user"}, {"x": object()}]))
    for no_item in ("a text", None, ["a list"]):
        with pytest.raises(TypeError, match="an item is a dict, not"):
            run(session.add_items([{"content": "a", "role": "user"}, no_item]))
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"within": deep}
    with pytest.raises(ValueError, match="nested"):
        run(session.add_items([{"content": "a", "role": "user"}, deep]))
    assert run(session.get_items()) == []


def test_every_kind_of_text_is_found(store):
    run(SessionStoreSession("s", store, user_id="u", source="app").add_items(ITEMS))

    words = ("网络", "look", "answer", "漓江", "look_up", "river", "kiwis", "uname", "unheard")
    for word in (*words, '"but I decline"'):
        assert [hit["session_id"] for hit in store.search_messages(word, per_session=1)] == ["s"]
    assert store.search_messages("AAAA") == []
    row = store.get_session("s")
    assert (row["source"], row["user_id"], row["tool_call_count"]) == ("app", "u", 2)
    by_call = {each["tool_call_id"]: each for each in store.get_messages("s")}
    assert (by_call["c1"]["role"], by_call["c1"]["tool_name"]) == ("tool", "look_up")


def test_what_another_program_stored_is_read_as_items(store):
    store.create_session("s", "cli")
    store.append_message("s", "user", [{"type": "text", "text": "hi"}])
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    store.append_message("s", "assistant", "I look.", tool_calls=[call, call | {"id": "d"}])
    store.append_message("s", "tool", "found", tool_call_id="c")
    session = SessionStoreSession("s", store)
    made = {"arguments": "{}", "call_id": "c", "name": "f", "type": "function_call"}
    wanted = [
        {"content": [{"type": "input_text", "text": "hi"}], "role": "user"},
        {"content": "I look.", "role": "assistant"},
        made,
        made | {"call_id": "d"},
        {"call_id": "c", "output": "found", "type": "function_call_output"},
    ]

    assert run(session.get_items()) == wanted
    assert run(session.get_items(2)) == wanted[-2:]
    assert [run(session.pop_item()) for _ in range(3)] == wanted[:1:-1]
    assert run(session.get_items()) == wanted[:2]


def test_a_real_runner_goes_on_in_another_process(file):
    in_another = subprocess.run(
        [sys.executable, PROGRAM, file, "What is the weather?"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    said = [in_another.stdout.strip(), run(turn(file, "And tomorrow?"))]

    assert said == ["Given 4 items: sunny.", "Given 9 items: sunny."]
    with SessionDB(file) as store:
        roles = [each["role"] for each in store.get_messages("trip")]
        assert roles == ["user", "assistant", "assistant", "tool", "assistant"] * 2
        row = store.get_session("trip")
        assert (row["input_tokens"], row["output_tokens"], row["api_call_count"]) == (40, 20, 4)
        assert row["tool_call_count"] == 2
        (listed,) = store.list_sessions_rich()
        assert listed["preview"] == "What is the weather?"
        assert store.search_messages("sunny 桂林")[0]["role"] == "tool"
    shown = CliRunner().invoke(main, ["--db", str(file), "show", "trip"]).output
    for word in ("What is the weather?", "weather", "桂林", "sunny in 桂林", "Given 4 items"):
        assert word in shown


def test_a_store_that_was_closed_says_so(file):
    store = SessionDB(file)
    session = SessionStoreSession("s", store)
    store.close()
    session.close()
    with pytest.raises(StoreClosedError):
        run(session.get_items())
