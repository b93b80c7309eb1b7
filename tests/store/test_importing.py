"""Sessions that come in: equal in every field, or refused whole, and told either way."""

from __future__ import annotations

import copy
import math
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionstore import ImportRejectedError, SessionDB
from sessionstore.filters import SessionFilter

Rows = list[tuple[Any, ...]]
Sql = Callable[..., Rows]
TIME = 1781773226.453548
CALLS = [{"id": "c1", "function": {"name": "t", "arguments": '{"路径": 1}'}}, {"id": "c2"}]


def one(session_id: str = "s", **fields: Any) -> dict[str, Any]:
    """The least an exported session says."""
    return {"id": session_id, "source": "cli", "started_at": 1.0, "messages": [], **fields}


def said(**fields: Any) -> dict[str, Any]:
    """The least a message says."""
    return {"role": "user", "timestamp": 2.0, **fields}


def fill(db: SessionDB) -> None:
    """Sessions with one of everything."""
    db.create_session(
        "root",
        "cli",
        model="m",
        model_config={"temperature": 0.7, "stop": ["\n", "网络"]},
        system_prompt="Be brief.",
        user_id="u",
        title="Fix build",
        started_at=TIME,
    )
    db.append_messages(
        "root",
        [
            {"role": "user", "content": "hello 网络", "timestamp": TIME},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": CALLS,
                "reasoning": "",
                "reasoning_content": "because\0nul",
                "reasoning_details": [{"type": "x", "n": 1.5}],
                "codex_reasoning_items": {"id": "r"},
                "codex_message_items": [],
                "finish_reason": "tool_calls",
                "token_count": 7,
                "timestamp": 40.0,
            },
            {"role": "tool", "content": [], "tool_call_id": "c1", "tool_name": "t"},
            {"role": "tool", "content": '["text"]', "tool_call_id": "c2", "timestamp": 41.25},
            {"role": "user", "content": "\ud83d\ude00 apart", "platform_message_id": "p7"},
        ],
    )
    db.create_session("other", "telegram", system_prompt="Be brief.", started_at=5.0)
    db.append_message("other", "user", "between")
    db.append_message("root", "user", [{"type": "text", "text": "undone"}], timestamp=TIME + 9)
    db.update_token_counts(
        "root",
        input_tokens=3_000_000_000,
        output_tokens=5,
        reasoning_tokens=2,
        actual_cost_usd=0.1 + 0.2,
        cost_status="final",
        billing_provider="p",
    )
    db.update_token_counts("root", input_tokens=7, model="m2", task="title")
    db.archive_and_compact("other", [{"role": "system", "content": {"summary": "of one"}}])
    undone = db.get_messages("root")[-1]["id"]
    db.rewind_to_message("root", undone)
    db.continue_session("root", "child", started_at=TIME + 20)
    db.create_session("sub", "cli", parent_session_id="child", relation="subagent", started_at=3.0)
    db.set_session_archived("other", True)
    db.set_session_pinned("root", True)
    db.end_session("sub", "done")
    db.request_handoff("sub", "telegram")
    db.fail_handoff("sub", "gone")


@pytest.fixture
def exported(tmp_path: Path, empty_file: bytes) -> list[dict[str, Any]]:
    path = tmp_path / "from.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as db:
        fill(db)
        return db.export_all()


def sound(db: SessionDB, sql: Sql) -> None:
    """Nothing is half there, and the store goes on working."""
    assert sql("PRAGMA foreign_key_check") == []
    assert sql("PRAGMA integrity_check") == [("ok",)]
    if not db.session_count():
        tables = ("messages", "system_prompts", "session_model_usage")
        assert [sql(f"SELECT count(*) FROM {table}") for table in tables] == [[(0,)]] * 3
    db.create_session("after", "cli", system_prompt="after")
    db.append_message("after", "user", "still works")
    assert db.delete_session("after")


# ---- equal


def test_a_session_comes_in_equal_in_every_field(
    store: SessionDB, exported: list[dict[str, Any]], sql: Sql
):
    assert {m["active"] for each in exported for m in each["messages"]} == {True, False}

    report = store.import_sessions(exported)

    assert store.export_all() == exported
    assert sorted(report["imported"]) == ["child", "other", "root", "sub"]
    assert report["messages"] == sum(len(each["messages"]) for each in exported)
    assert [report[name] for name in ("unchanged", "conflicts", "detached")] == [[], [], []]
    assert report["retitled"] == {}
    assert store.get_session("root")["started_at"] == TIME
    assert sql("SELECT count(*) FROM system_prompts") == [(1,)]
    sound(store, sql)


def test_order_and_ids_of_messages_are_kept(store: SessionDB, exported: list[dict[str, Any]]):
    store.import_sessions(exported[::-1])

    for each in exported:
        ids = [message["id"] for message in each["messages"]]
        assert [m["id"] for m in store.get_messages(each["id"], include_inactive=True)] == ids


def test_what_came_in_is_found_listed_and_appended_to(
    store: SessionDB, exported: list[dict[str, Any]]
):
    store.import_sessions(exported)

    assert [hit["session_id"] for hit in store.search_messages("网络")] == ["root"]
    assert [each["id"] for each in store.list_sessions_rich()] == ["child"]
    highest = max(m["id"] for each in exported for m in each["messages"])
    assert store.append_message("child", "user", "next") > highest


def test_imported_again_nothing_is_new_and_nothing_changes(
    store: SessionDB, exported: list[dict[str, Any]], sql: Sql
):
    store.import_sessions(exported)
    before = [sql(f"SELECT * FROM {table}") for table in ("sessions", "messages")]

    again = store.import_sessions(exported)

    assert again["imported"] == again["conflicts"] == []
    assert sorted(again["unchanged"]) == ["child", "other", "root", "sub"]
    assert again["messages"] == 0
    assert [sql(f"SELECT * FROM {table}") for table in ("sessions", "messages")] == before


def test_the_export_itself_is_not_changed(store: SessionDB, exported: list[dict[str, Any]]):
    before = copy.deepcopy(exported)

    store.import_sessions(exported)

    assert exported == before


def test_a_stream_of_another_store_comes_in(store: SessionDB, tmp_path: Path, empty_file: bytes):
    other = tmp_path / "other.db"
    other.write_bytes(empty_file)
    with SessionDB(other) as db:
        fill(db)
        store.import_sessions(db.iter_export(SessionFilter(source="cli")))

        assert store.export_all() == db.export_all("cli")


@pytest.mark.parametrize("order", [1, -1])
def test_a_parent_may_come_after_its_child(store: SessionDB, order: int):
    chain = [one("a"), one("b", parent_session_id="a"), one("c", parent_session_id="b")]

    report = store.import_sessions(chain[::order])

    assert report["detached"] == []
    assert store.get_lineage("c") == ["a", "b", "c"]


def test_parents_in_a_circle_come_in_as_they_are(store: SessionDB, sql: Sql):
    store.import_sessions(
        [
            one("x", parent_session_id="y"),
            one("y", parent_session_id="x"),
            one("own", parent_session_id="own"),
        ]
    )

    parents = dict(sql("SELECT id, parent_session_id FROM sessions"))
    assert parents == {"x": "y", "y": "x", "own": "own"}
    assert store.import_sessions(store.export_all())["unchanged"]
    store.list_sessions_rich()
    assert store.delete_session("x")
    assert store.delete_session("own")
    assert sql("SELECT id, parent_session_id FROM sessions") == [("y", None)]


def test_a_session_without_lines_of_usage_gets_one_of_its_totals(store: SessionDB):
    old = one("s", model="m", input_tokens=5, messages=[said(timestamp=9.0)])

    store.import_sessions([old, one("unused")])

    (line,) = store.usage_by_model(session_id="s")
    assert (line["model"], line["input_tokens"], line["last_seen"]) == ("m", 5, 9.0)
    assert store.usage_by_model(session_id="unused") == []
    assert store.import_sessions([old])["unchanged"] == ["s"]


# ---- told


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "another"},
        {"title": "Another"},
        {"messages": []},
        {"messages": [said(content="one"), said(content="two")]},
        {"messages": [said(content="other")]},
        {"messages": [said(content=["one"])]},
        {"messages": [said(content="one", timestamp=2.000001)]},
        {"messages": [said(content="one", active=False)]},
        {"archived": True},
        {"ended_at": 3.0, "end_reason": "done"},
        {"system_prompt": "p"},
        {"input_tokens": 1},
    ],
)
def test_another_content_is_reported_and_the_stored_one_stays(
    store: SessionDB, changed: dict[str, Any], sql: Sql
):
    store.import_sessions([one(messages=[said(content="one")])])
    before = store.export_all()

    report = store.import_sessions([one(**{"messages": [said(content="one")], **changed})])

    assert report["conflicts"] == ["s"]
    assert report["imported"] == report["unchanged"] == []
    assert store.export_all() == before
    sound(store, sql)


def test_two_of_one_id_in_an_import_the_first_stays(store: SessionDB):
    first = one("s", parent_session_id="p", messages=[said(content="first")])

    report = store.import_sessions(
        [one("p"), first, first, one("s", messages=[said(content="second")])]
    )

    assert report["imported"] == ["p", "s"]
    assert (report["unchanged"], report["conflicts"]) == (["s"], ["s"])
    assert [m["content"] for m in store.get_messages("s")] == ["first"]


def test_a_damaged_session_here_is_a_conflict_and_no_failure(store: SessionDB, sql: Sql):
    store.import_sessions([one()])
    sql("UPDATE sessions SET model = CAST(x'80' AS TEXT)")

    assert store.import_sessions([one()])["conflicts"] == ["s"]


def test_an_unknown_parent_is_left_off_and_reported(store: SessionDB):
    orphan = one("s", parent_session_id="nowhere", relation="subagent")

    report = store.import_sessions([orphan])

    assert (report["imported"], report["detached"]) == (["s"], ["s"])
    assert store.get_session("s")["parent_session_id"] is None
    assert store.get_session("s")["relation"] == "subagent"
    assert store.import_sessions([orphan])["unchanged"] == ["s"]


def test_a_taken_title_gets_the_next_number(store: SessionDB):
    store.create_session("here", "cli", title="Fix build")
    coming = [one("a", title="Fix build"), one("b", title="Fix build"), one("c", title="New")]

    report = store.import_sessions(coming)

    assert report["retitled"] == {"a": "Fix build #2", "b": "Fix build #3"}
    assert store.get_session_title("c") == "New"
    again = store.import_sessions(coming)
    assert again["unchanged"] == ["a", "b", "c"]
    assert again["retitled"] == {}


# ---- ids of messages


@pytest.mark.parametrize(
    "ids",
    [
        [1, 5],  # one is taken
        [9, 8],  # they do not ascend
        [7, 7],
        [7, None],
        [7, 2**63 - 1],  # none would be left for what comes after
        [-3, -2],
        [0, 8],
    ],
)
def test_ids_that_cannot_be_kept_are_given_anew_in_order(
    store: SessionDB, ids: list[int | None], sql: Sql
):
    store.create_session("here", "cli")
    store.append_message("here", "user", "mine")
    coming = one("s", messages=[said(id=each, content=f"{n}") for n, each in enumerate(ids)])

    store.import_sessions([coming])

    read = store.get_messages("s")
    assert [m["content"] for m in read] == ["0", "1"]
    assert read[0]["id"] < read[1]["id"] < 100
    assert [m["content"] for m in store.get_messages("here")] == ["mine"]
    assert store.import_sessions([coming])["unchanged"] == ["s"]
    assert [hit["session_id"] for hit in store.search_messages("mine")] == ["here"]
    sound(store, sql)


def test_sessions_whose_ids_interleave_keep_them(store: SessionDB):
    coming = [
        one("a", messages=[said(id=2), said(id=5)]),
        one("b", messages=[said(id=1), said(id=9)]),
    ]

    store.import_sessions(coming)

    assert [[m["id"] for m in store.get_messages(each)] for each in "ab"] == [[2, 5], [1, 9]]


# ---- refused


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


BAD = {
    "no object": [1],
    "nothing": None,
    "a list of pairs": [["id", "s"]],
    "no id": {"source": "cli", "started_at": 1.0, "messages": []},
    "an empty id": one(""),
    "an id of another type": one(5),
    "an id with NUL": one("a\0b"),
    "half a pair for an id": one("\ud83d"),
    "no source": {"id": "s", "started_at": 1.0, "messages": []},
    "an empty source": one(source=""),
    "no start": {"id": "s", "source": "cli", "messages": []},
    "a start that is not a time": one(started_at="yesterday"),
    "a start that is true": one(started_at=True),
    "NaN for a start": one(started_at=math.nan),
    "an endless start": one(started_at=math.inf),
    "a start beyond any float": one(started_at=10**400),
    "no messages": {"id": "s", "source": "cli", "started_at": 1.0},
    "messages of another type": one(messages={"role": "user"}),
    "a message that is no object": one(messages=["hello"]),
    "an unknown field": one(colour="red"),
    "an unknown field of a message": one(messages=[said(colour="red")]),
    "a field that is no text": one(messages=[{5: 1, **said()}]),
    "a message of another session": one(messages=[said(session_id="other")]),
    "a message without a role": one(messages=[{"timestamp": 1.0}]),
    "an empty role": one(messages=[said(role="")]),
    "a message without a time": one(messages=[{"role": "user"}]),
    "a time that is none": one(messages=[said(timestamp=None)]),
    "NaN for a time": one(messages=[said(timestamp=math.nan)]),
    "NaN within content": one(messages=[said(content=[{"n": math.nan}])]),
    "content of another type": one(messages=[said(content=5)]),
    "content too deep": one(messages=[said(content=deep(100_000))]),
    "tool calls too deep": one(messages=[said(tool_calls=deep(500))]),
    "a config too deep": one(model_config=deep(500)),
    "active and compacted": one(messages=[said(active=True, compacted=True)]),
    "active of another type": one(messages=[said(active="yes")]),
    "an id of a message that is text": one(messages=[said(id="1")]),
    "an id of a message beyond 64 bits": one(messages=[said(id=2**63)]),
    "a huge count": one(input_tokens=2**63),
    "a negative count": one(input_tokens=-1),
    "an empty text for a count": one(input_tokens=""),
    "a count that is a fraction": one(message_count=1.5),
    "a huge token count": one(messages=[said(token_count=10**30)]),
    "a cost that is text": one(actual_cost_usd="0.5"),
    "an unknown relation": one(relation="friend"),
    "a relation of another type": one(relation=["branch"]),
    "a title that is no text": one(title=5),
    "a title of 12 kB": one(title="x" * 12_000),
    "a title with NUL": one(title="a\0b"),
    "archived of another type": one(archived="no"),
    "usage of another type": one(model_usage={"model": "m"}),
    "a line of usage that is none": one(model_usage=["m"]),
    "a line of usage without times": one(model_usage=[{"model": "m"}]),
    "two lines of usage of one model": one(
        model_usage=[{"model": "m", "first_seen": 1.0, "last_seen": 2.0}] * 2
    ),
    "a line of usage with an unknown field": one(
        model_usage=[{"model": "m", "first_seen": 1.0, "last_seen": 2.0, "x": 1}]
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_line_and_nothing_comes_in(store: SessionDB, kind: str, sql: Sql):
    lines = [one(f"s{n}", system_prompt="p", messages=[said()]) for n in range(1, 21)]
    lines[6] = BAD[kind]

    with pytest.raises(ImportRejectedError, match=r"^line 7: .*nothing was imported$") as caught:
        store.import_sessions(lines)

    assert caught.value.line == 7
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert store.session_count() == 0
    sound(store, sql)


def test_a_generator_that_breaks_leaves_nothing(store: SessionDB, sql: Sql):
    def broken() -> Iterator[dict[str, Any]]:
        yield one("a", messages=[said()])
        msg = "the line is cut"
        raise OSError(msg)

    with pytest.raises(OSError, match="the line is cut"):
        store.import_sessions(broken())

    assert store.session_count() == 0
    sound(store, sql)


def test_an_unknown_way_with_conflicts_is_refused(store: SessionDB):
    with pytest.raises(ValueError, match="on_conflict"):
        store.import_sessions([], on_conflict="replace")


def test_nothing_comes_of_nothing(store: SessionDB):
    report = store.import_sessions([])

    assert report["imported"] == []
    assert report["messages"] == 0


# ---- only to be seen


def test_a_dry_run_says_the_same_and_stores_nothing(
    store: SessionDB, exported: list[dict[str, Any]], sql: Sql
):
    store.create_session("other", "cli", title="Fix build")
    before = store.export_all()
    lines = [*exported, one("orphan", parent_session_id="nowhere")]

    shown = store.import_sessions(lines, dry_run=True)

    assert store.export_all() == before
    assert shown["conflicts"] == ["other"]
    assert shown["detached"] == ["orphan"]
    assert shown["retitled"] == {"root": "Fix build #2", "child": "Fix build #3"}
    assert store.import_sessions(lines) == shown
    with pytest.raises(ImportRejectedError):
        store.import_sessions([one("")], dry_run=True)
    sound(store, sql)


# ---- afterwards


def test_what_came_in_can_be_deleted_and_pruned(
    store: SessionDB, exported: list[dict[str, Any]], sql: Sql
):
    store.import_sessions(exported)
    for each in ("root", "other", "child"):
        assert store.delete_session(each)
        assert sql("PRAGMA foreign_key_check") == []
    assert store.prune_sessions(older_than_days=1) == 1  # the subagent's, ended in 1970
    assert store.session_count() == 0
    sound(store, sql)


def test_a_large_import_does_not_grow_in_memory(store: SessionDB):
    def many() -> Iterator[dict[str, Any]]:
        for n in range(500):
            yield one(f"s{n:05d}", messages=[said(reasoning="x" * 12_000, timestamp=float(n))])

    tracemalloc.start()
    try:
        report = store.import_sessions(many())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(report["imported"]) == 500
    assert most < 3_500_000  # of 6 MB that went by


def test_messages_that_an_export_does_not_count_are_counted(store: SessionDB):
    calls = [{"id": "c1"}, {"id": "c2"}]
    rows = [
        said(content="gone", active=False),
        said(role="assistant", tool_calls=calls),
        said(role="tool", tool_calls=calls),
    ]
    store.import_sessions([one("a", messages=rows), one("b", messages=rows, message_count=7)])
    counted = [
        (row["message_count"], row["tool_call_count"])
        for row in (store.get_session("a"), store.get_session("b"))
        if row
    ]
    assert counted == [(2, 2), (7, 2)]
    assert store.import_sessions([one("a", messages=rows)])["unchanged"] == ["a"]
