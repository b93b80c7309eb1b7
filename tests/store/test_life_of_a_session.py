"""Creating, ending, reopening and finding sessions."""

from __future__ import annotations

import threading

import pytest

from sessionstore import ConflictError, SessionDB, SessionNotFoundError, StoreSettings


def test_created_three_times_a_session_gains_and_loses_nothing(timed, clock):
    timed.create_session("s", "cli")
    clock.now += 60
    timed.create_session("s", "cli", model="m1", user_id="u1")
    timed.create_session("s", "telegram", model=None, user_id="u2", started_at=5.0)
    session = timed.get_session("s")
    assert timed.session_count() == 1
    assert session["source"] == "cli"
    assert session["model"] == "m1"
    assert session["user_id"] == "u1"
    assert session["started_at"] == 1_700_000_000.0


def test_a_session_made_in_need_gains_its_source_later(store):
    assert store.ensure_session("s") == "s"
    assert store.get_session("s")["source"] == "unknown"
    store.create_session("s", "telegram", title="Trip")
    assert store.get_session("s")["source"] == "telegram"
    store.ensure_session("s")
    assert store.get_session("s")["source"] == "telegram"
    assert store.get_session("s")["title"] == "Trip"


def test_every_field_comes_back_as_it_was_given(store):
    config = {"temperature": 0.5, "tools": ["a", {"b": None}], "größe": "é"}
    store.create_session("parent", "cli")
    assert (
        store.create_session(
            "s",
            "cli",
            model="m",
            model_config=config,
            system_prompt="You are\na parrot.",
            user_id="u",
            title="  A   title ",
            parent_session_id="parent",
            started_at=1781773226.453548,
        )
        == "s"
    )
    session = store.get_session("s")
    given = {
        "id": "s",
        "source": "cli",
        "model": "m",
        "model_config": config,
        "system_prompt": "You are\na parrot.",
        "user_id": "u",
        "title": "A title",
        "parent_session_id": "parent",
        "started_at": 1781773226.453548,
        "ended_at": None,
        "end_reason": None,
        "message_count": 0,
        "tool_call_count": 0,
        "input_tokens": 0,
        "estimated_cost_usd": None,
    }
    assert {name: session[name] for name in given} == given
    assert type(session) is dict


def test_a_session_that_does_not_exist_is_none(store):
    assert store.get_session("nope") is None
    assert store.get_session_title("nope") is None
    assert store.export_session("nope") is None
    assert store.end_session("nope", "user_exit") is False
    assert store.reopen_session("nope") is False
    assert store.delete_session("nope") is False
    assert store.session_count() == 0


@pytest.mark.parametrize(
    ("session_id", "source"), [("", "cli"), (None, "cli"), ("s", ""), ("s", None)]
)
def test_an_empty_id_or_source_is_refused(store, session_id, source):
    with pytest.raises(ValueError, match="empty"):
        store.create_session(session_id, source)
    assert store.session_count() == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"started_at": float("nan")}, ValueError),
        ({"started_at": float("inf")}, ValueError),
        ({"started_at": "yesterday"}, TypeError),
        ({"model": 5}, TypeError),
        ({"model_config": {1, 2}}, TypeError),
        ({"model_config": {"x": float("nan")}}, ValueError),
        ({"title": "x" * 101}, ValueError),
        ({"user_id": "half \ud83d"}, ValueError),
        ({"parent_session_id": "s"}, ValueError),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is(store, fields, error):
    with pytest.raises(error):
        store.create_session("s", "cli", **fields)
    assert store.session_count() == 0


def test_an_unknown_parent_is_named(store):
    with pytest.raises(SessionNotFoundError, match="ghost"):
        store.create_session("s", "cli", parent_session_id="ghost")
    assert store.session_count() == 0


def test_a_session_cannot_become_its_own_ancestor(store):
    store.create_session("a", "cli")
    store.create_session("b", "cli", parent_session_id="a")
    with pytest.raises(ConflictError):
        store.create_session("a", "cli", parent_session_id="b")
    assert store.get_session("a")["parent_session_id"] is None


def test_two_programs_that_create_the_same_session_at_once_both_succeed(path):
    with SessionDB(path) as one, SessionDB(path) as other:
        for round_ in range(20):
            together = threading.Barrier(2)
            failures: list[Exception] = []

            def create(db: SessionDB, name: str, together=together, failures=failures) -> None:
                together.wait()
                try:
                    db.create_session(name, "cli", title=name)
                except Exception as error:  # noqa: BLE001 - shown by the assertion below
                    failures.append(error)

            threads = [
                threading.Thread(target=create, args=(db, f"s{round_}")) for db in (one, other)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []
        assert one.session_count() == 20


def test_the_first_end_of_a_session_stands(timed, clock):
    timed.create_session("s", "cli")
    clock.now = 1_700_000_100.0
    assert timed.end_session("s", "compression") is True
    clock.now = 1_700_000_200.0
    assert timed.end_session("s", "user_exit") is False
    session = timed.get_session("s")
    assert (session["end_reason"], session["ended_at"]) == ("compression", 1_700_000_100.0)


def test_a_reopened_session_has_no_end_and_takes_messages(store):
    store.create_session("s", "cli")
    store.end_session("s", "user_exit")
    assert store.reopen_session("s") is True
    session = store.get_session("s")
    assert (session["end_reason"], session["ended_at"]) == (None, None)
    store.append_message("s", "user", "on we go")
    assert store.end_session("s", "again") is True


def test_ending_without_a_reason_is_refused(store):
    store.create_session("s", "cli")
    with pytest.raises(ValueError, match="end_reason"):
        store.end_session("s", "")
    assert store.get_session("s")["ended_at"] is None


def test_the_system_prompt_is_replaced(store):
    store.create_session("s", "cli", system_prompt="old")
    store.update_system_prompt("s", "new\r\nlines  ")
    assert store.get_session("s")["system_prompt"] == "new\r\nlines  "
    with pytest.raises(SessionNotFoundError):
        store.update_system_prompt("nope", "x")


@pytest.fixture
def with_ids(store):
    for session_id in ("20250101_a1", "20250101_a2", "20250101", "ABC", "ümlaut-1"):
        store.create_session(session_id, "cli")
    return store


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("20250101_a1", "20250101_a1"),
        ("20250101", "20250101"),
        ("20250101_", None),
        ("2025", None),
        ("20250101_a2", "20250101_a2"),
        ("AB", "ABC"),
        ("ab", None),
        ("üml", "ümlaut-1"),
        ("20250101%", None),
        ("2025010__a1", None),
        ("%", None),
        ("_", None),
        ("", None),
        ("zz", None),
        ("20250101_a1 ", None),
    ],
)
def test_the_beginning_of_an_id_is_enough_when_only_one_begins_so(with_ids, given, meant):
    assert with_ids.resolve_session_id(given) == meant
    assert with_ids.session_count() == 5


def test_an_ambiguous_beginning_can_be_listed(with_ids):
    assert with_ids.find_session_ids("20250101_") == ["20250101_a1", "20250101_a2"]
    assert with_ids.find_session_ids("20250101") == ["20250101", "20250101_a1", "20250101_a2"]
    assert with_ids.find_session_ids("%") == []
    assert with_ids.find_session_ids("abc") == []


def test_all_sessions_are_listed_by_their_last_message(timed, clock):
    for name, source in (("a", "cli"), ("b", "cron"), ("c", "cli"), ("d", "brand-new")):
        clock.now += 10
        timed.create_session(name, source, parent_session_id="a" if name == "c" else None)
    clock.now += 10
    timed.append_message("a", "user", "late")

    def listed(**options) -> list[str]:
        return [each["id"] for each in timed.search_sessions(**options)]

    assert listed() == ["a", "d", "c", "b"]
    assert listed(source="cli") == ["a", "c"]
    assert listed(source="brand-new") == ["d"]
    assert listed(source="none such") == []
    assert listed(limit=2) == ["a", "d"]
    assert listed(limit=2, offset=2) == ["c", "b"]
    assert listed(limit=0) == []
    assert listed(limit=None) == ["a", "d", "c", "b"]
    for wrong in ({"limit": -1}, {"offset": -1}):
        with pytest.raises(ValueError):
            timed.search_sessions(**wrong)


def test_sessions_and_messages_are_counted_not_estimated(store):
    for position, source in enumerate(["cli", "cli", "cron", "brand-new"]):
        store.create_session(f"s{position}", source)
        for _ in range(position):
            store.append_message(f"s{position}", "user", "x")
    assert store.session_count() == 4
    assert store.session_count("cli") == 2
    assert store.session_count("nowhere") == 0
    assert store.message_count() == 6
    assert store.message_count("s3") == 3
    assert store.message_count("nope") == 0
    assert store.session_sources() == {"cli": 2, "brand-new": 1, "cron": 1}
    assert sum(store.session_sources().values()) == store.session_count()


def test_a_session_made_by_older_software_with_null_counters_counts_from_zero(store, sql):
    store.create_session("s", "cli")
    sql("UPDATE sessions SET message_count = NULL, tool_call_count = NULL, input_tokens = NULL")
    store.append_message("s", "assistant", None, tool_calls=[{"id": "c"}])
    store.update_token_counts("s", input_tokens=7)
    session = store.get_session("s")
    assert (session["message_count"], session["tool_call_count"]) == (1, 1)
    assert (session["input_tokens"], session["output_tokens"]) == (7, 0)


def test_the_clock_of_the_settings_dates_new_rows(path):
    with SessionDB(path, settings=StoreSettings(clock=lambda: 42.5)) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "x")
        db.end_session("s", "done")
        assert db.get_session("s")["started_at"] == 42.5
        assert db.get_session("s")["ended_at"] == 42.5
        assert db.get_messages("s")[0]["timestamp"] == 42.5
