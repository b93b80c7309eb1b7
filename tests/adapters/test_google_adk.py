"""A session service of Google's ADK in the store: the real package, an agent that is made up."""

from __future__ import annotations

import asyncio
import datetime as dt
import math

import pytest
from google.adk.agents import BaseAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from sessionstore.adapters.google_adk import SessionStoreSessionService

KEY = {"app_name": "app", "user_id": "u"}


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.fixture
def service(store):
    yield SessionStoreSessionService(store)
    # What belongs to an app outlives its sessions, and the server is one for all tests.
    for key in ("google-adk/app/app", "google-adk/user/app/u", "google-adk/user/app/v"):
        if store.get_meta(key):
            store.set_meta(key, "{}")


def said(text, author="user", **more):
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author=author, content=content, **more)


def delta(**changes):
    named = {name.replace("__", ":"): value for name, value in changes.items()}
    return Event(author="agent", actions=EventActions(state_delta=named))


def get(service, session_id="s", **config):
    chosen = GetSessionConfig(**config) if config else None
    return run(service.get_session(**KEY, session_id=session_id, config=chosen))


def test_a_session_is_made_with_its_states(service):
    state = {"app:a": 1, "user:b": {"c": [2]}, "d": "三", "temp:e": 4}
    made = run(service.create_session(**KEY, state=state, session_id=" s "))

    assert (made.id, made.app_name, made.user_id, made.events) == ("s", "app", "u", [])
    assert made.state == {"app:a": 1, "user:b": {"c": [2]}, "d": "三"}
    assert get(service) == made
    other = run(service.create_session(**KEY))
    assert other.id
    assert other.state == {"app:a": 1, "user:b": {"c": [2]}}
    stranger = run(service.create_session(app_name="app", user_id="v", session_id="s"))
    assert stranger.state == {"app:a": 1}
    assert run(service.get_user_state(**KEY)) == {"b": {"c": [2]}}
    assert run(service.get_user_state(app_name="app", user_id="w")) == {}
    with pytest.raises(AlreadyExistsError):
        run(service.create_session(**KEY, session_id="s"))
    assert get(service, "nope") is None


@pytest.mark.parametrize("name", ["a", "app:a", "user:a"])
def test_a_state_that_json_cannot_hold_leaves_nothing_behind(service, name: str):
    with pytest.raises(ValueError, match="float"):
        run(service.create_session(**KEY, state={name: [float("nan")]}, session_id="s"))
    assert get(service) is None
    assert run(service.create_session(**KEY, session_id="s")).state == {}


def test_of_many_that_make_one_session_one_does(service):
    async def race():
        made = (service.create_session(**KEY, state={"app:n": 1}, session_id="s") for _ in range(6))
        return await asyncio.gather(*made, return_exceptions=True)

    done = run(race())
    assert sum(isinstance(each, AlreadyExistsError) for each in done) == 5


def test_events_come_back_equal_in_order_and_are_found(service, store):
    session = run(service.create_session(**KEY, session_id="s"))
    call = types.Part(function_call=types.FunctionCall(id="c", name="look_up", args={"q": "漓江"}))
    answer = types.Part(
        function_response=types.FunctionResponse(id="c", name="look_up", response={"r": "river"})
    )
    thought = types.Part(text="thinking", thought=True)
    image = types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="image/png"))
    # Times that step back order nothing.
    events = [
        said("look at 网络", timestamp=100.0),
        Event(
            author="agent",
            timestamp=40.0,
            branch="a.b",
            content=types.Content(role="model", parts=[thought, types.Part(text="I look."), call]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(candidates_token_count=7),
            finish_reason=types.FinishReason.STOP,
            long_running_tool_ids={"c"},
        ),
        Event(author="agent", content=types.Content(role="user", parts=[answer, image])),
        Event(author="agent", error_code="500", error_message="broke", turn_complete=True),
    ]
    for event in events:
        assert run(service.append_event(session, event)) is event

    assert get(service).events == session.events == events
    rows = store.get_messages("app/u/s")
    assert [each["role"] for each in rows] == ["user", "assistant", "tool", "assistant"]
    assert (rows[1]["reasoning"], rows[1]["token_count"]) == ("thinking", 7)
    for word in ("网络", "I look", "漓江", "river"):
        (hit,) = store.search_messages(word, per_session=1)
        assert (hit["session_id"], hit["source"]) == ("app/u/s", "google-adk:app")
    assert store.list_sessions_rich()[0]["preview"] == "look at 网络"


def test_what_was_spoken_run_and_reported_is_found(service, store):
    def of(**part):
        return Event(
            author="agent", content=types.Content(role="model", parts=[types.Part(**part)])
        )

    spoken = types.Transcription(text="heard you", finished=True)
    session = run(service.create_session(**KEY, session_id="s"))
    events = [
        Event(author="user", input_transcription=spoken),
        Event(author="agent", output_transcription=types.Transcription(text="and answered")),
        of(executable_code=types.ExecutableCode(code="sum(numbers)", language="PYTHON")),
        of(code_execution_result=types.CodeExecutionResult(outcome="OUTCOME_OK", output="4711")),
        Event(author="agent", error_code="500", error_message="it broke"),
        Event(author="step", output={"verdict": ["it holds"]}),
    ]
    for event in events:
        run(service.append_event(session, event))

    assert get(service).events == events
    said_by = [(each["role"], each["content"]) for each in store.get_messages("app/u/s")]
    assert said_by == [
        ("user", "heard you"),
        ("assistant", "and answered"),
        ("assistant", "sum(numbers)"),
        ("assistant", "4711"),
        ("assistant", "it broke"),
        ("assistant", "it holds"),
    ]
    assert len(store.search_messages("4711")) == 1


def test_only_the_latest_events_are_given_if_so_asked(service):
    session = run(service.create_session(**KEY, session_id="s"))
    for number in range(5):
        run(service.append_event(session, said(str(number), timestamp=1000.0 + number)))

    def texts(**config):
        return [each.content.parts[0].text for each in get(service, **config).events]

    assert texts(num_recent_events=2) == ["3", "4"]
    assert texts(num_recent_events=0) == []
    assert texts(after_timestamp=1003.0) == ["3", "4"]
    assert texts(after_timestamp=1001.0, num_recent_events=2) == ["3", "4"]
    assert texts(after_timestamp=1001.0, num_recent_events=0) == []
    assert texts(num_recent_events=9) == ["0", "1", "2", "3", "4"]
    # Having read a part of it, one may go on.
    part = get(service, num_recent_events=1)
    run(service.append_event(part, said("5")))
    assert len(get(service).events) == 6


def test_a_change_of_state_goes_where_its_prefix_says(service):
    session = run(service.create_session(**KEY, session_id="s", state={"k": 1, "gone": 1}))
    event = delta(app__a=1, user__b=2, k=None, temp__t="now", at=dt.date(2026, 1, 2))
    run(service.append_event(session, event))

    assert session.state["temp:t"] == "now"
    assert "temp:t" not in event.actions.state_delta
    stored = {"app:a": 1, "user:b": 2, "k": None, "gone": 1, "at": "2026-01-02"}
    assert get(service).state == stored
    assert "temp:t" not in get(service).events[0].actions.state_delta
    other = run(service.create_session(**KEY, session_id="t"))
    assert other.state == {"app:a": 1, "user:b": 2}


def test_a_partial_event_is_not_stored(service):
    session = run(service.create_session(**KEY, session_id="s"))
    event = said("half", partial=True)
    assert run(service.append_event(session, event)) is event
    assert session.events == get(service).events == []


def test_who_appends_to_what_was_changed_since_is_told(service):
    run(service.create_session(**KEY, session_id="s"))
    mine, theirs = get(service), get(service)
    run(service.append_event(theirs, said("theirs")))
    run(service.append_event(theirs, said("again")))

    with pytest.raises(StaleSessionError):
        run(service.append_event(mine, said("mine")))
    by_hand = Session(id="s", app_name="app", user_id="u", events=[said("theirs")])
    with pytest.raises(StaleSessionError):
        run(service.append_event(by_hand, said("mine")))
    assert [each.content.parts[0].text for each in get(service).events] == ["theirs", "again"]
    by_hand = Session(id="s", app_name="app", user_id="u", events=list(theirs.events))
    run(service.append_event(by_hand, said("mine")))
    assert len(get(service).events) == 3


def test_what_is_appended_to_one_session_at_once_is_all_there_in_order(service):
    async def race():
        session = await service.create_session(**KEY, session_id="s")
        events = [said(str(number)) for number in range(12)]
        await asyncio.gather(*(service.append_event(session, event) for event in events))
        return events, session

    events, session = run(race())
    assert get(service).events == session.events == events


def test_a_session_goes_on_after_calls_that_were_cancelled(service):
    async def talk():
        session = await service.create_session(**KEY, session_id="s")
        for number in range(60):
            task = asyncio.create_task(service.append_event(session, delta(count=number)))
            for _ in range(number % 6):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        last = delta(last=True)
        await service.append_event(session, last)
        assert session.events[-1] == last
        return session

    session = run(talk())
    stored = get(service)
    assert (session.events, session.state) == (stored.events, stored.state)


def test_two_sessions_change_the_state_of_their_app_and_nothing_is_lost(service):
    async def race():
        async def add(number):
            session = await service.create_session(**KEY, session_id=str(number))
            for step in range(3):
                await service.append_event(session, delta(**{f"app__{number}_{step}": step}))

        await asyncio.gather(*(add(number) for number in range(4)))

    run(race())
    state = get(service, "0").state
    assert {name for name in state if name.startswith("app:")} >= {
        f"app:{number}_{step}" for number in range(4) for step in range(3)
    }


def test_what_a_tool_asks_for_may_be_more_than_json(service, store):
    session = run(service.create_session(**KEY, session_id="s"))
    due = {"due": dt.date(2026, 1, 2), "raw": b"\xff", "pairs": {(1, 2): 3}}
    asked = types.Part(function_call=types.FunctionCall(name="ask", args=due))
    answered = types.Part(function_response=types.FunctionResponse(name="ask", response=due))
    for part in (asked, answered):
        content = types.Content(parts=[part])
        run(
            service.append_event(session, Event(author="a", content=content, avg_logprobs=math.nan))
        )

    stored = get(service).events
    call, answer = (each.content.parts[0] for each in stored)
    assert (
        call.function_call.args["due"] == answer.function_response.response["due"] == "2026-01-02"
    )
    assert all(math.isnan(each.avg_logprobs) for each in stored)
    assert len(store.search_messages("2026-01-02")) == 2


def test_tokens_beyond_what_a_column_holds_are_kept_with_the_event(service, store):
    session = run(service.create_session(**KEY, session_id="s"))
    for count in (-1, 2**63):
        usage = types.GenerateContentResponseUsageMetadata(candidates_token_count=count)
        run(service.append_event(session, said("x", usage_metadata=usage)))

    kept = [each.usage_metadata.candidates_token_count for each in get(service).events]
    assert kept == [-1, 2**63]
    assert [each["token_count"] for each in store.get_messages("app/u/s")] == [None, None]


def test_the_same_event_is_stored_once_and_another_of_its_id_too(service):
    session = run(service.create_session(**KEY, session_id="s"))
    event = said("once")
    run(service.append_event(session, event))
    assert run(service.append_event(session, event)) is event
    run(service.append_event(session, said("another", id=event.id)))

    texts = [each.content.parts[0].text for each in get(service).events]
    assert texts == ["once", "another"]


def test_an_id_with_blanks_around_it_names_the_session_it_made(service):
    run(service.create_session(**KEY, session_id=" order-42\n"))
    assert get(service, " order-42\n").id == "order-42"
    run(service.delete_session(**KEY, session_id="order-42 "))
    assert get(service, "order-42") is None


def test_a_session_of_another_program_is_neither_taken_nor_deleted(service, store):
    store.create_session("app/u/1", "cli", model_config={"temperature": 0.2})
    store.create_session("app/u/2", "google-adk:app", model_config={"temperature": 0.3})
    for name in ("1", "2"):
        with pytest.raises(AlreadyExistsError):
            run(service.create_session(**KEY, session_id=name))
        run(service.delete_session(**KEY, session_id=name))

    kept = [store.get_session(f"app/u/{name}") for name in "12"]
    assert [each["model_config"] for each in kept] == [{"temperature": 0.2}, {"temperature": 0.3}]
    assert [each["user_id"] for each in kept] == [None, None]


def test_sessions_are_listed_the_last_changed_last_and_deleted(service, store):
    names = ("a/b", "c d", "é")
    for number, name in enumerate(names):
        session = run(service.create_session(**KEY, session_id=name, state={"n": number}))
        run(service.append_event(session, said("hi", timestamp=3000.0 - number)))
    run(service.create_session(app_name="app", user_id="v", session_id="other"))
    run(service.create_session(app_name="app2", user_id="u", session_id="other"))
    listed = run(service.list_sessions(**KEY)).sessions

    assert [each.id for each in listed] == ["é", "c d", "a/b"]
    assert [each.state["n"] for each in listed] == [2, 1, 0]
    assert all(each.events == [] for each in listed)
    assert len(run(service.list_sessions(app_name="app")).sessions) == 4
    assert run(service.list_sessions(app_name="none")).sessions == []
    run(service.delete_session(**KEY, session_id="a/b"))
    run(service.delete_session(**KEY, session_id="a/b"))
    assert get(service, "a/b") is None
    with pytest.raises(SessionNotFoundError):
        run(service.append_event(listed[-1], said("late")))
    assert store.search_messages("late", include_inactive=True) == []


def test_what_is_of_another_program_is_no_session_and_its_messages_are_events(service, store):
    store.create_session("app/u/x", "google-adk:app", user_id="u")
    store.create_session("odd", "google-adk:app", user_id="u")
    assert get(service, "x") is None
    assert run(service.list_sessions(**KEY)).sessions == []
    run(service.create_session(**KEY, session_id="x"))
    store.append_message("app/u/x", "user", "by hand")
    (event,) = get(service, "x").events
    assert (event.author, event.content.parts[0].text) == ("user", "by hand")


def test_a_real_runner_goes_on_where_it_was(service):
    class Guide(BaseAgent):
        async def _run_async_impl(self, ctx):
            count = ctx.session.state.get("count", 0) + 1
            text = types.Part(text=f"answer {count} after {len(ctx.session.events)}")
            yield Event(
                author=self.name,
                invocation_id=ctx.invocation_id,
                content=types.Content(role="model", parts=[text]),
                actions=EventActions(state_delta={"count": count}),
            )

    async def turn(text):
        runner = Runner(app_name="app", agent=Guide(name="guide"), session_service=service)
        content = types.Content(role="user", parts=[types.Part(text=text)])
        found = runner.run_async(user_id="u", session_id="s", new_message=content)
        return [event.content.parts[0].text async for event in found]

    run(service.create_session(**KEY, session_id="s"))
    assert run(turn("one")) == ["answer 1 after 1"]
    assert run(turn("two")) == ["answer 2 after 3"]
    assert get(service).state["count"] == 2
