"""What the tools of `sessionstore mcp` answer: bounded, and with the way to the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB, SessionStoreError
from sessionstore.cli.store import resolve_session
from sessionstore.mcp.tools import ANSWER, Tools

THEN = 1_750_000_000.0  # 2025-06-15 15:06:40 UTC
DAY = 86_400.0
KEY = "sk-proj-abcdefghijklmnop1234567890"

Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store of thirty short conversations and a long one, made once."""
    path = tmp_path_factory.mktemp("template") / "state.db"
    with SessionDB(path) as opened:
        for number in range(30):
            opened.create_session(
                f"s{number:02}", "cli" if number % 2 else "telegram", started_at=THEN + number * DAY
            )
            opened.append_message(
                f"s{number:02}", "user", f"zebra number {number}", timestamp=THEN + number * DAY
            )
        opened.create_session("long", "cli", model="m-1", title="Long talk", started_at=THEN)
        opened.append_messages(
            "long",
            [
                {"role": "user", "content": f"part {n} " + "x" * 3000, "timestamp": THEN + n}
                for n in range(60)
            ],
        )
        opened.set_session_archived("s00", True)
    return path.read_bytes()


@pytest.fixture
def db(path: Path, template: bytes) -> Iterator[SessionDB]:
    """A store of thirty short conversations and a long one, the test's own."""
    path.write_bytes(template)
    with SessionDB(path) as opened:
        yield opened


@pytest.fixture
def call(db: SessionDB) -> Call:
    """Call a tool and read its answer."""
    tools = Tools(db, resolve_session, now=lambda: THEN + 30 * DAY)
    return lambda name, **given: json.loads(tools.call(name, given))


def argument(more: str) -> dict[str, int]:
    """Read what an answer says of the call that goes on."""
    found = re.fullmatch(r"call again with (\w+) (\d+)", more)
    assert found, more
    return {found[1]: int(found[2])}


def test_a_hit_says_where_it_stands(call: Call):
    (hit,) = call("search_sessions", query="number 7")["hits"]

    assert hit == {
        "session": "s07",
        "source": "cli",
        "message": 8,
        "role": "user",
        "time": "2025-06-22T15:06:40Z",
        "text": "zebra >>>number<<< >>>7<<<",
    }


def test_hits_come_in_pages(call: Call):
    seen, more = [], {}
    while True:
        answer = call("search_sessions", query="zebra", limit=12, **more)
        seen += [hit["session"] for hit in answer["hits"]]
        if "more" not in answer:
            break
        more = argument(answer["more"])

    assert len(seen) == len(set(seen)) == 30


def test_hits_can_be_narrowed(call: Call):
    def sessions(**given: Any) -> list[str]:
        answer = call("search_sessions", query="zebra", sort="oldest", limit=50, **given)
        return [hit["session"] for hit in answer["hits"]]

    assert sessions(since="2025-07-13") == ["s28", "s29"]
    assert sessions(since="3d", source="cli") == ["s27", "s29"]
    assert sessions(until="2025-06-16") == ["s00", "s01"]
    assert sessions(until="2025-06-16T15:06:00Z") == ["s00"]
    assert sessions(session="s05") == ["s05"]
    assert sessions(role="assistant") == []
    assert "try fewer" in call("search_sessions", query="okapi")["note"]


def test_conversations_come_in_pages_the_latest_first(call: Call):
    first = call("list_sessions", limit=2)

    assert first["sources"] == {"cli": 16, "telegram": 15}
    assert first["sessions"][0] == {
        "session": "s29",
        "preview": "zebra number 29",
        "source": "cli",
        "messages": 1,
        "started": "2025-07-14T15:06:40Z",
        "active": "2025-07-14T15:06:40Z",
    }
    second = call("list_sessions", limit=2, **argument(first["more"]))
    assert [each["session"] for each in second["sessions"]] == ["s27", "s26"]
    assert "sources" not in second
    everything = call("list_sessions", limit=100, archived=True)
    assert len(everything["sessions"]) == 31
    assert "more" not in everything
    (one,) = call("list_sessions", title="LONG", model="m-")["sessions"]
    assert (one["title"], one["session"]) == ("Long talk", "long")


@pytest.mark.parametrize("name", ["Long talk", "lon", "long"])
def test_a_conversation_is_read_from_its_end_back_to_its_beginning(call: Call, name: str):
    answer = call("get_session", session=name)
    assert answer["session"] == {
        "id": "long",
        "title": "Long talk",
        "source": "cli",
        "model": "m-1",
        "started": "2025-06-15T15:06:40Z",
        "messages": 60,
    }
    assert "later" not in answer

    parts = [answer["messages"]]
    while "earlier" in answer:
        answer = call("get_session", session=name, **argument(answer["earlier"]))
        assert "later" in answer
        parts.insert(0, answer["messages"])

    said = [message["text"].split(" x")[0] for part in parts for message in part]
    assert said == [f"part {n}" for n in range(60)]


def test_a_conversation_is_read_on_from_a_message(call: Call, db: SessionDB):
    first = db.get_messages("long", limit=1)[0]["id"]
    answer = call("get_session", session="long", after=first - 1, limit=3)
    assert [message["id"] for message in answer["messages"]] == [first, first + 1, first + 2]
    assert "earlier" not in answer

    answer = call("get_session", session="long", limit=4, **argument(answer["later"]))
    assert [message["id"] for message in answer["messages"]] == list(range(first + 3, first + 7))

    around = call("get_session", session="long", around=first + 30, limit=100)
    ids = [message["id"] for message in around["messages"]]
    assert ids == list(range(ids[0], ids[-1] + 1))
    assert ids[0] < first + 30 < ids[-1]


def test_every_answer_is_bounded(call: Call, db: SessionDB):
    part = {"type": "function", "function": {"name": "n" * 9000, "arguments": "y" * 9000}}
    db.append_message("long", "assistant", "z" * 90_000, tool_calls=[part] * 40)
    db.append_message("long", "tool", "t" * 90_000, tool_name="grep" * 9000)
    for number in range(100):
        db.create_session(f"n{number}", f"source {number} " + "s" * 9000, model="m" * 9000)

    for answer in (
        call("get_session", session="long", limit=100),
        call("get_session", session="long", message=db.get_messages("long", last=2)[0]["id"]),
        call("list_sessions", limit=100),
        call("search_sessions", query="x*", limit=100),
        call("search_sessions", query="yyy", limit=100),
    ):
        assert len(json.dumps(answer)) < ANSWER * 1.5
    last = call("get_session", session="long", limit=2)["messages"]
    assert last[0]["calls"][-1] == {"more": 20}
    assert last[1]["text"] == "t" * 300 + "… [89700 more characters]"
    assert last[1]["cut"] == f"call with message {last[1]['id']} to read all of it"


def test_a_long_message_is_read_to_its_end(call: Call, db: SessionDB):
    whole = "".join(chr(0x4E00 + n % 20_000) for n in range(60_000))
    message_id = db.append_message("long", "assistant", whole)

    read, more = "", {}
    while True:
        answer = call("get_session", session="long", message=message_id, **more)
        assert answer["characters"] == 60_000
        read += answer["text"]
        if "more" not in answer:
            break
        more = argument(answer["more"])

    assert read == whole


def test_what_a_message_calls_is_read_in_full_beside_what_it_says(call: Call, db: SessionDB):
    given = {"id": "c1", "function": {"name": "f", "arguments": json.dumps({"q": "网" * 400})}}
    message_id = db.append_message("long", "assistant", "I look.", tool_calls=[given])

    (shown,) = call("get_session", session="long", limit=1)["messages"]
    assert shown["text"] == "I look."
    assert shown["cut"] == f"call with message {message_id} to read all of it"
    said, told = call("get_session", session="long", message=message_id)["text"].split("\n")
    assert (said, json.loads(told)) == ("I look.", [given])


def test_secrets_are_taken_out_wherever_they_stand(db: SessionDB):
    db.create_session("k", "cli", title=f"Key {KEY}")
    arguments = json.dumps({"command": f"export OPENAI_API_KEY={KEY} " + "word " * 40 + "okapi"})
    call = {"id": "1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    said = db.append_message("k", "user", f"okapi {'pad ' * 30} {KEY} {'pad ' * 700}")
    asked = db.append_message("k", "assistant", None, tool_calls=[call])
    db.append_message("k", "tool", [{"type": "text", "text": KEY}], tool_name="run")
    open_tools, tools = Tools(db, resolve_session), Tools(db, resolve_session, redacting=True)

    for name, given in (
        ("get_session", {"session": "k"}),
        ("get_session", {"session": "k", "message": said}),
        ("get_session", {"session": "k", "message": asked}),
        ("search_sessions", {"query": "okapi"}),
        ("search_sessions", {"query": "proj"}),
        ("list_sessions", {"title": "Key"}),
    ):
        assert "abcdefgh" not in tools.call(name, given), (name, given)
        assert "[redacted]" in tools.call(name, given) or name == "search_sessions"
    assert KEY in open_tools.call("get_session", {"session": "k"})


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("search_sessions", {}, "query is missing: Words to find"),
        ("search_sessions", {"query": 5}, "query must be of type string, not int"),
        ("search_sessions", {"query": "x" * 3000}, "2,048"),
        ("search_sessions", {"query": "x", "limit": 0}, "limit must lie between 1 and 100, not 0"),
        ("search_sessions", {"query": "x", "limit": True}, "limit must be of type integer"),
        ("search_sessions", {"query": "x", "sort": "best"}, "sort must be one of rank, newest"),
        ("search_sessions", {"query": "x", "since": "soon"}, "since 'soon' is not a time; write"),
        ("search_sessions", {"query": "x", "session": "zz"}, "no session has the id or title"),
        ("list_sessions", {"colour": "red"}, "there is no argument 'colour'; there are source"),
        ("list_sessions", {"since": "1d", "until": "2d"}, "the window of time is empty"),
        ("get_session", {"session": "s"}, "begins 30 ids: s00, s01"),
        ("get_session", {"session": "long", "message": 1}, "has no message 1"),
        ("get_session", {"session": "long", "before": 2**63}, "before must lie between"),
        ("get_session", {"session": "long", "before": 1, "after": 1}, "give one of them"),
        ("get_session", {"session": "\ud800"}, "no session has the id or title"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(call: Call, name: str, given: Any, said: str):
    with pytest.raises((ValueError, SessionStoreError), match=re.escape(said)) as caught:
        call(name, **given)

    assert "\n" not in str(caught.value)


def test_null_is_an_argument_that_is_not_given(call: Call):
    given = {"source": None, "role": None, "limit": None}

    assert len(call("search_sessions", query="zebra", **given)["hits"]) == 10
