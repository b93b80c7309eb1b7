"""One filter, one meaning: in lists, exports and prunes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sessionstore import SessionDB, SessionFilter

DAY = 86400.0


@pytest.fixture
def mixed(timed: SessionDB, clock) -> SessionDB:
    """Sessions that differ in everything a filter may ask; last active 0, 10, 20, 30 days ago."""
    now = clock.now
    described = [
        ("new", "cli", "Straße ABC", "GPT-5", "OpenAI", "u1", 0, "user_exit", 3),
        ("mid", "cron", "100% done_ok", "claude", "anthropic", "u2", 10, "compression", 0),
        ("old", "cli", "back\\slash", "ПРИВЕТ-1", None, "u1", 20, None, 1),
        ("ancient", "telegram", None, None, None, None, 30, "User_Exit", 0),
    ]
    for name, source, title, model, provider, user, days, end_reason, count in described:
        clock.now = now - days * DAY
        timed.create_session(name, source, title=title, model=model, user_id=user)
        for _ in range(count):
            timed.append_message(name, "assistant", "x", tool_calls=[{"id": "1"}])
        timed.update_token_counts(
            name,
            input_tokens=count * 100,
            billing_provider=provider,
            actual_cost_usd=count * 0.5 if count else None,
        )
        if end_reason:
            timed.end_session(name, end_reason)
    clock.now = now
    return timed


ASKED = [
    ({}, "new mid old ancient"),
    ({"source": "cli"}, "new old"),
    ({"source": "CLI"}, ""),
    ({"source": "cl"}, ""),
    ({"user_id": "u1"}, "new old"),
    ({"title": "STRASSE"}, "new"),
    ({"title": "straße"}, "new"),
    ({"title": "%"}, "mid"),
    ({"title": "_"}, "mid"),
    ({"title": "\\"}, "old"),
    ({"title": "k\\s"}, "old"),
    ({"title": ""}, "new mid old"),
    ({"model": "gpt"}, "new"),
    ({"model": "привет"}, "old"),
    ({"provider": "openai"}, "new"),
    ({"end_reason": "USER_exit"}, "new ancient"),
    ({"end_reason": "compression"}, "mid"),
    ({"min_messages": 0}, "new mid old ancient"),
    ({"max_messages": 0}, "mid ancient"),
    ({"min_messages": 1}, "new old"),
    ({"min_messages": 1, "max_messages": 1}, "old"),
    ({"min_tokens": 100}, "new old"),
    ({"max_tokens": 0}, "mid ancient"),
    ({"min_cost": 0}, "new old"),
    ({"max_cost": 0.5}, "old"),
    ({"min_cost": 1.5}, "new"),
    ({"min_tool_calls": 2}, "new"),
    ({"max_tool_calls": 0}, "mid ancient"),
    ({"include_open": False}, "new mid ancient"),
    ({"older_than": 15}, "old ancient"),
    ({"older_than": "15d"}, "old ancient"),
    ({"older_than": timedelta(days=15)}, "old ancient"),
    ({"older_than": "1w"}, "mid old ancient"),
    ({"newer_than": "36h"}, "new"),
    ({"newer_than": 20}, "new mid old"),
    ({"older_than": 5, "newer_than": 25}, "mid old"),
    ({"before": 1_700_000_000.0 - 10 * DAY}, "old ancient"),
    ({"after": 1_700_000_000.0 - 10 * DAY}, "new mid"),
    ({"title": "zzz"}, ""),
    ({"title": "done", "source": "cli"}, ""),
]


@pytest.mark.parametrize(("fields", "expected"), ASKED)
def test_list_export_and_prune_mean_the_same_sessions(mixed, fields, expected, clock):
    names = expected.split()
    listed = mixed.list_sessions_rich(**fields)
    assert [entry["id"] for entry in listed] == names
    exported = mixed.iter_export(SessionFilter(**fields))
    assert [session["id"] for session in exported] == names[::-1]
    if fields.keys() & {"newer_than", "older_than"} == {"newer_than"}:
        return  # a prune asks for an age as well, and another moment would be another window
    # What is active at this very moment has no age.
    clock.now += 0.001
    report = mixed.prune_report(**{"older_than": 0, **fields})
    skipped = [session["id"] for session in report["skipped"]]
    assert sorted(report["pruned"] + skipped) == sorted(names)
    assert skipped == [name for name in names if name == "old"]


@pytest.mark.parametrize(
    "fields",
    [
        {"after": 10.0, "before": 10.0},
        {"after": 10.0, "before": 5.0},
        {"older_than": 10, "newer_than": 10},
        {"older_than": "2w", "newer_than": "1w"},
        {"min_messages": 2, "max_messages": 1},
        {"min_tokens": 1, "max_tokens": 0},
        {"min_cost": 0.2, "max_cost": 0.1},
        {"min_tool_calls": 5, "max_tool_calls": 4},
        {"after": float("nan")},
        {"before": float("inf")},
        {"older_than": -1},
        {"older_than": "soon"},
        {"newer_than": "1x"},
        {"max_cost": float("nan")},
    ],
)
def test_a_filter_that_nothing_could_pass_is_refused(mixed, fields):
    for call in (
        lambda: SessionFilter(**fields),
        lambda: mixed.list_sessions_rich(**fields),
        lambda: mixed.prune_report(**{"older_than": 0, **fields}),
        lambda: mixed.prune_sessions(**{"older_than": 0, **fields}),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert mixed.session_count() == 4


def test_an_unknown_field_is_refused(mixed):
    with pytest.raises(TypeError):
        mixed.list_sessions_rich(colour="red")
    with pytest.raises(TypeError):
        mixed.prune_sessions(colour="red")
    with pytest.raises(TypeError):
        mixed.list_sessions_rich(exclude_sources="cli")
    assert mixed.session_count() == 4


def test_a_filter_comes_before_the_limit(timed, clock):
    timed.create_session("wanted", "cli")
    for number in range(60):
        clock.now += 1
        timed.create_session(f"cron{number}", "cron")
    assert [entry["id"] for entry in timed.list_sessions_rich("cli", limit=10)] == ["wanted"]
    others = timed.list_sessions_rich(exclude_sources=["cron"], limit=10)
    assert [entry["id"] for entry in others] == ["wanted"]
    assert len(timed.list_sessions_rich(exclude_sources=[], limit=None)) == 61


def test_sessions_of_equal_time_page_without_overlap_or_gap(timed):
    for number in range(20):
        timed.create_session(f"s{number:02d}", "cli")
    for options in ({}, {"order_by_last_active": True}, {"include_children": True}):
        paged = [
            entry["id"]
            for start in (0, 7, 14, 21)
            for entry in timed.list_sessions_rich(limit=7, offset=start, **options)
        ]
        assert paged == [f"s{number:02d}" for number in reversed(range(20))]


@pytest.mark.parametrize("page", [{"limit": -1}, {"offset": -1}])
def test_a_negative_page_is_refused(store, page):
    with pytest.raises(ValueError):
        store.list_sessions_rich(**page)


@pytest.mark.parametrize(
    ("content", "preview"),
    [
        ("  several\n\n lines\tand blanks ", "several lines and blanks"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "..."),
        ([{"type": "text", "text": "look at"}, {"type": "image", "data": "AAAA"}], "look at"),
        ([{"type": "image", "data": "AAAA"}], ""),
        ([], ""),
        (None, ""),
        ("", ""),
        ("\ud83d half", "\ud83d half"),
        ("nul \0 inside", "nul \0 inside"),
    ],
)
def test_a_preview_is_one_line_of_what_the_user_said_first(store, content, preview):
    store.create_session("s", "cli")
    store.append_message("s", "system", "be brief")
    store.append_message("s", "user", content)
    store.append_message("s", "user", "later")
    assert store.list_sessions_rich()[0]["preview"] == preview


def test_a_session_without_a_message_has_no_preview_and_its_start_as_activity(timed, clock):
    timed.create_session("s", "cli")
    (entry,) = timed.list_sessions_rich()
    assert (entry["preview"], entry["last_active"]) == ("", clock.now)


def test_one_user_never_sees_the_sessions_of_another(timed, clock):
    for user in ("u1", "u2"):
        clock.now += 1
        timed.create_session(f"{user}-a", "telegram", user_id=user, title=f"Trip {user}")
        timed.append_message(f"{user}-a", "user", "my kiwi")
        timed.end_session(f"{user}-a", "compression")
        clock.now += 1
        timed.create_session(f"{user}-b", "telegram", user_id=user, parent_session_id=f"{user}-a")
        timed.append_message(f"{user}-b", "user", "my kiwi again")
    listed = timed.list_sessions_rich(user_id="u1", include_children=True)
    assert [entry["id"] for entry in listed] == ["u1-b", "u1-a"]
    hits = timed.search_messages("kiwi", user_id="u1")
    assert {hit["session_id"] for hit in hits} == {"u1-a", "u1-b"}
    assert timed.resolve_session_by_title("Trip u1") == "u1-a"
    assert timed.get_lineage("u1-b") == ["u1-a", "u1-b"]
    assert timed.resolve_resume_session_id("u1-a") == "u1-a"
    told = timed.get_messages_as_conversation("u1-b", include_ancestors=True)
    assert [message["content"] for message in told] == ["my kiwi", "my kiwi again"]
    around = timed.get_messages_around("u1-a", timed.get_messages("u1-a")[0]["id"])
    assert {message["session_id"] for message in around} == {"u1-a"}
    exported = list(timed.iter_export(SessionFilter(user_id="u1")))
    assert {session["id"] for session in exported} == {"u1-a", "u1-b"}
