"""Importing a copy that has grown: what is here gains what is new, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB


def session(*said: str, **fields: Any) -> dict[str, Any]:
    """Give a copy of session `a` as an export has it."""
    rows = [
        {"role": "user", "content": text, "timestamp": 10.0 + at} for at, text in enumerate(said)
    ]
    return {"id": "a", "source": "cli", "started_at": 9.0, "messages": rows, **fields}


def used(model: str, tokens: int) -> dict[str, Any]:
    return {"model": model, "input_tokens": tokens, "first_seen": 9.0, "last_seen": 9.0 + tokens}


def extend(db: SessionDB, given: dict[str, Any], **options: Any) -> tuple[str, int]:
    """Import one copy, and say what became of it and how many messages came."""
    report = db.import_sessions([given], on_conflict="extend", **options)
    outcomes = ("imported", "extended", "unchanged", "conflicts")
    (outcome,) = [name for name in outcomes if report[name] == [given["id"]]]  # type: ignore[literal-required]
    return outcome, report["messages"]


def said(db: SessionDB) -> list[Any]:
    return [row["content"] for row in db.get_messages("a")]


def test_messages_beyond_those_here_come_in_once(store: SessionDB):
    assert extend(store, session("one", message_count=1)) == ("imported", 1)
    first = store.get_messages("a")
    grown = session("one", "two", "three", message_count=3)

    assert extend(store, grown, dry_run=True) == ("extended", 2)
    assert said(store) == ["one"]
    assert extend(store, grown) == ("extended", 2)
    assert extend(store, grown) == ("unchanged", 0)
    assert extend(store, session("one")) == ("unchanged", 0)

    assert store.get_messages("a")[:1] == first
    assert said(store) == ["one", "two", "three"]
    record = store.get_session("a")
    assert record
    assert (record["message_count"], record["last_active_at"]) == (3, 12.0)
    assert [hit["session_id"] for hit in store.search_messages("three")] == ["a"]


@pytest.mark.parametrize(
    "other",
    [
        session("one", "TWO", "three"),
        session("zero", "one", "two"),
        session("one", "two", "three", source="telegram"),
    ],
)
def test_a_copy_that_went_another_way_changes_nothing(store: SessionDB, other: dict[str, Any]):
    extend(store, session("one", "two", title="Mine"))
    before = store.export_all()

    assert extend(store, other) == ("conflicts", 0)

    assert store.export_all() == before


def test_states_follow_the_copy_that_grew(store: SessionDB):
    extend(store, session("one", "two", message_count=2))
    grown = session("one", "two", "three", message_count=1)
    grown["messages"][0] |= {"active": False, "compacted": True}
    grown["messages"][1] |= {"active": False}

    assert extend(store, grown) == ("extended", 1)

    rows = store.get_messages("a", include_inactive=True)
    assert [(row["active"], row["compacted"]) for row in rows] == [
        (False, True),
        (False, False),
        (True, False),
    ]
    # What was done here since is not undone by a copy that has nothing new.
    store.import_sessions([], on_conflict="extend")
    assert extend(store, session("one", "two", "three")) == ("unchanged", 0)
    assert said(store) == ["three"]


def test_fields_that_say_nothing_are_filled_and_counters_only_rise(store: SessionDB):
    store.create_session("p", "cli", title="Taken")
    extend(store, session("one", input_tokens=5, model_usage=[used("m", 5)], model="m"))
    store.update_token_counts("a", input_tokens=100, model="here")
    store.update_token_counts("a", input_tokens=20, model="m")
    copy = {
        "title": "Taken",
        "model": "other",
        "parent_session_id": "p",
        "relation": "branch",
        "input_tokens": 7,
        "output_tokens": 3,
        "model_usage": [used("m", 7)],
    }

    assert extend(store, session("one", **copy)) == ("extended", 0)
    assert extend(store, session("one", **copy)) == ("unchanged", 0)

    record = store.get_session("a")
    assert record
    assert (record["title"], record["model"]) == ("Taken #2", "m")
    assert (record["parent_session_id"], record["relation"]) == ("p", "branch")
    assert (record["input_tokens"], record["output_tokens"]) == (125, 3)
    lines = {line["model"]: line["input_tokens"] for line in store.usage_by_model()}
    assert lines == {"m": 25, "here": 100}


def test_an_import_that_fails_extends_nothing(store: SessionDB):
    extend(store, session("one"))

    with pytest.raises(Exception, match="line 2"):
        store.import_sessions(
            [session("one", "two"), session("x", id="b", messages=5)], on_conflict="extend"
        )

    assert said(store) == ["one"]


def test_skip_is_what_happens_unless_it_is_said(store: SessionDB):
    extend(store, session("one"))

    assert store.import_sessions([session("one", "two")])["conflicts"] == ["a"]
    with pytest.raises(ValueError, match="on_conflict can be skip or extend, not 'replace'"):
        store.import_sessions([], on_conflict="replace")  # type: ignore[arg-type]


def test_pages_go_backwards_too(store: SessionDB, path: Path):
    extend(store, session("one", "two", "three", "four"))
    ids = [row["id"] for row in store.get_messages("a")]

    page = store.get_messages("a", before_id=ids[3], last=2)

    assert [row["id"] for row in page] == ids[1:3]
    assert store.get_messages("a", after_id=ids[0], before_id=ids[1]) == []
    with pytest.raises(TypeError):
        store.get_messages("a", before_id="4")  # type: ignore[arg-type]
