"""What a user saw who had a damaged file, or gave a call what it cannot take."""

from __future__ import annotations

import functools
import inspect
import math
import unicodedata

import pytest

from sessionstore import SessionDB, TitleTakenError


@pytest.mark.sqlite_only
@pytest.mark.parametrize("bad", ["CAST(x'61ff62' AS TEXT)", "x'80ff00'", "NULL", "'a' || char(0)"])
def test_one_session_with_a_damaged_id_leaves_every_list_whole(store, sql, bad):
    store.create_session("good", "cli")
    store.append_message("good", "user", "hello")
    store.create_session("bad", "cli")
    for session_id in ("good", "bad"):
        store.end_session(session_id, "done")
    sql(f"UPDATE sessions SET id = {bad} WHERE id = 'bad'")
    assert "good" in {each["id"] for each in store.list_sessions_rich()}
    assert "good" in {each["id"] for each in store.list_sessions_rich(order_by_last_active=True)}
    assert len(store.search_sessions()) == 2
    assert "good" in {each["id"] for each in store.export_all()}
    assert "good" in store.prune_report(0)["pruned"]
    assert store.prune_report(0)["pruned"] == store.prune_report(0, dry_run=False)["pruned"]


@pytest.mark.parametrize(
    "column", ["message_count", "input_tokens", "started_at", "title", "model"]
)
@pytest.mark.sqlite_only
@pytest.mark.parametrize("bad", ["'abc'", "x'80ff00'", "CAST(x'61ff62' AS TEXT)"])
def test_a_damaged_figure_or_text_is_marked(store, sql, column, bad):
    store.create_session("s", "cli")
    sql(f"UPDATE sessions SET {column} = {bad}")
    (listed,) = store.list_sessions_rich()
    texts = column in ("title", "model")
    assert isinstance(listed[column], str) if texts else listed[column] == 0


@pytest.fixture
def used(store):
    for name, source, model in (("s", "cli", "m1"), ("t", "cli", "m2"), ("u", "cron", "m3")):
        store.create_session(name, source, model=model)
        store.update_token_counts(name, 5, actual_cost_usd=1.0, billing_provider="p", task="title")
    return store


@pytest.mark.sqlite_only
@pytest.mark.parametrize("bad", ["x'ff'", "x'636cff'", "CAST(x'ff' AS TEXT)"])
def test_what_sessions_of_a_damaged_source_used_is_added_up(used, sql, bad):
    sql(f"UPDATE sessions SET source = {bad}, model = {bad} WHERE id = 's'")
    sql("UPDATE sessions SET source = '' WHERE id = 'u'")
    shown = used.get_session("s")["source"]
    assert "\ufffd" in shown
    assert used.usage_totals()["sources"] == [
        {"source": name, "sessions": 1, "total_tokens": 5}
        for name in sorted(["cli", shown, "unknown"])
    ]
    for field in ("source", "model"):
        assert shown in {each["name"] for each in used.usage_by(field)}
    # What cannot be told apart is one line.
    sql("UPDATE sessions SET source = CASE id WHEN 's' THEN x'fe' ELSE x'ff' END")
    assert used.usage_totals()["sources"] == [
        {"source": "\ufffd", "sessions": 3, "total_tokens": 15}
    ]


@pytest.mark.sqlite_only
@pytest.mark.parametrize("bad", ["x'ff'", "CAST(x'ff' AS TEXT)"])
@pytest.mark.parametrize("column", ["model", "billing_provider", "task"])
def test_what_was_used_of_a_model_of_a_damaged_name_is_added_up(used, sql, column, bad):
    sql(f"UPDATE session_model_usage SET {column} = {bad} WHERE session_id = 's'")
    found = used.usage_by_model()
    assert [each["total_tokens"] for each in found] == [5, 5, 5]
    assert max(each[column] for each in found) == "\ufffd"
    (line,) = used.export_session("s")["model_usage"]
    assert line[column] == "\ufffd"


@pytest.mark.sqlite_only
@pytest.mark.parametrize("bad", ["x'ff'", "'soon'"])
def test_a_damaged_figure_of_what_was_used_is_marked(used, sql, bad):
    sql(
        f"UPDATE session_model_usage SET input_tokens = {bad}, actual_cost_usd = {bad}, "
        f"first_seen = {bad} WHERE session_id = 's'"
    )
    (summed,) = used.usage_by_model("s")
    (line,) = used.export_session("s")["model_usage"]
    for each in (summed, line):
        assert (each["input_tokens"], each["first_seen"]) == (0, 0.0)
    assert line["actual_cost_usd"] is None


@pytest.mark.sqlite_only
@pytest.mark.parametrize("bad", ["x'ff'", "'soon'"])
@pytest.mark.parametrize("table", ["sessions", "session_model_usage"])
def test_what_is_used_is_counted_on_from_nothing_where_a_figure_is_damaged(used, sql, table, bad):
    key, name = ("id", "model") if table == "sessions" else ("session_id", "task")
    sql(
        f"UPDATE {table} SET input_tokens = {bad}, actual_cost_usd = {bad}, {name} = {bad} "
        f"WHERE {key} = 's'"
    )
    used.update_token_counts("s", 7, actual_cost_usd=0.5, task="title")
    used.update_token_counts("s", 20, absolute=True)
    used.update_token_counts("s", 2, absolute=True)
    session = used.get_session("s")
    assert session["input_tokens"] == 2
    assert session["actual_cost_usd"] == (0.5 if table == "sessions" else 1.5)
    assert all(isinstance(each["input_tokens"], int) for each in used.usage_by_model("s"))
    # What is damaged and not counted stays as it is.
    ((kept,),) = sql(f"SELECT count(*) FROM {table} WHERE {name} = {bad}")
    assert kept >= 1


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ((None,), {}),
        ((True,), {}),
        (("1d",), {}),
        ((-1,), {}),
        ((math.nan,), {}),
        ((90,), {"older_than": None}),
        ((30,), {"older_than": "1d"}),
        ((), {"older_than": None}),
        ((90,), {"sessions_dir": 5}),
    ],
)
def test_a_prune_without_one_clear_age_deletes_nothing(store, arguments, fields):
    store.create_session("s", "cli", started_at=0)
    store.end_session("s", "done")
    with pytest.raises((ValueError, TypeError)):
        store.prune_sessions(*arguments, **fields)
    if "older_than" not in fields:
        with pytest.raises((ValueError, TypeError)):
            store.maybe_auto_prune_and_vacuum(*arguments, **fields)
    assert store.get_meta("last_auto_prune") is None
    with pytest.raises(TypeError):
        store.delete_session("s", sessions_dir=5)
    assert store.get_session("s")


def test_what_the_store_gives_can_be_synced_again(store):
    store.create_session("s", "cli")
    given = [
        {"role": "user", "content": [{"\ud83d\ude00": "\ud83d\ude00", "n": 1}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "f"}]},
    ]
    assert len(store.sync_messages("s", given)) == 2
    given[1]["tool_calls"] = [{"name": "f", "id": "c"}]
    assert store.sync_messages("s", given) == []
    assert store.sync_messages("s", store.get_messages("s")) == []
    store.append_message("s", "user", "last")
    assert [each["content"] for each in store.get_messages("s", last=1)] == ["last"]
    for other in (True, 1.0):
        with pytest.raises(Exception, match="differs"):
            store.sync_messages("s", [{"role": "user", "content": [{"😀": "😀", "n": other}]}])


def test_sessions_that_are_their_own_ancestors_are_listed(store, sql):
    for name in ("x", "y", "z"):
        store.create_session(name, "cli", started_at=ord(name))
    for name, parent in (("x", "y"), ("y", "x"), ("z", "z")):
        sql("UPDATE sessions SET parent_session_id = ? WHERE id = ?", parent, name)
    for way in ({}, {"order_by_last_active": True}, {"project_compression_tips": False}):
        assert [each["id"] for each in store.list_sessions_rich(**way)] == ["z", "x"]


def test_a_chain_of_1500_links_ends_at_its_end(store, sql):
    sql(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1499) "
        "INSERT INTO sessions(id, source, started_at, ended_at, end_reason, parent_session_id) "
        "SELECT 'c' || i, 'cli', i, i + 1, 'compression', "
        "CASE WHEN i > 0 THEN 'c' || (i - 1) END FROM n"
    )
    assert store.get_compression_tip("c0") == "c1499"
    assert [each["id"] for each in store.list_sessions_rich()] == ["c1499"]


@pytest.mark.parametrize(
    "title", ["a  b", unicodedata.normalize("NFD", "Résumé"), "L" * 150, "line\nbreak", "x\u200by"]
)
def test_a_title_is_found_as_it_is_stored(store, sql, title):
    store.create_session("s", "cli", user_id="u2")
    sql("UPDATE sessions SET title = ?", title)
    assert store.get_session_by_title(title)["id"] == store.resolve_session_by_title(title) == "s"
    assert store.resolve_session_by_title(title, user_id="u1") is None
    composed = unicodedata.normalize("NFC", title)
    assert [each["id"] for each in store.list_sessions_rich(title=composed)] == ["s"]


def test_the_other_normal_form_of_a_title_is_taken(store, sql):
    store.create_session("s", "cli")
    store.create_session("t", "cli")
    sql("UPDATE sessions SET title = ? WHERE id = 's'", unicodedata.normalize("NFD", "Résumé"))
    with pytest.raises(TitleTakenError):
        store.set_session_title("t", "Résumé")
    assert store.set_session_title("nosuch", "Résumé") is False


def test_a_title_is_never_cut_within_a_flag(store):
    store.create_session("s", "cli", title="🇩🇪" * 50)
    following = store.get_next_title_in_lineage("🇩🇪" * 50)
    assert following == "🇩🇪" * 48 + " #2"
    assert store.sanitize_title("\u3164\u115f\u1160\u2800\u034f\U000e0041") is None


def test_deep_content_is_whole_far_down_in_the_stack(store):
    store.create_session("s", "cli")
    deep: list = []
    for _ in range(380):
        deep = [deep]

    def down(frames: int):
        if frames:
            return down(frames - 1)
        store.append_message("s", "user", deep, tool_calls=deep)
        (message,) = store.get_messages("s")
        return message["content"], message["tool_calls"]

    assert down(600) == (deep, deep)


@pytest.mark.parametrize("bad", [["s"], {"a": 1}, ("s",), 5, b"s"])
def test_what_is_no_text_is_refused_by_name(store, bad):
    with pytest.raises(TypeError, match="session_id must be text"):
        store.get_session(bad)
    with pytest.raises(TypeError, match="title must be text"):
        store.list_sessions_rich(title=bad)
    with pytest.raises(TypeError):
        store.list_sessions_rich(exclude_sources=[bad])
    assert store.get_session(None) is None
    assert store.get_lineage("") == []


@pytest.mark.parametrize("bad", ["cli", "", 5, [5], [b"cli"], [None]])
def test_no_list_of_texts_is_told_the_same_by_a_list_and_by_search(store, bad):
    said = []
    for call in (store.list_sessions_rich, functools.partial(store.search_messages, "kiwi")):
        with pytest.raises(TypeError, match=r"exclude_sources must (be|hold) ") as told:
            call(exclude_sources=bad)
        said.append(str(told.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("call", "arguments", "name", "kind"),
    [
        ("archive_and_compact", ("s", []), "through_id", "a whole number"),
        ("rewind_to_message", ("s",), "message_id", "a whole number"),
        ("restore_rewound", ("s",), "since_id", "a whole number"),
        ("get_messages", ("s",), "after_id", "a whole number"),
        ("get_messages", ("s",), "before_id", "a whole number"),
        ("get_messages_around", ("s",), "message_id", "a whole number"),
        ("maybe_auto_prune_and_vacuum", (), "min_interval_hours", "a number"),
        ("try_acquire_compression_lock", ("s", "a"), "ttl_seconds", "a number"),
        ("refresh_compression_lock", ("s", "a"), "ttl_seconds", "a number"),
        ("claim_deliveries", ("a",), "lease_seconds", "a number"),
        ("fail_delivery", ("d",), "retry_at", "a number"),
        ("fail_delivery", ("d",), "error", "text"),
        ("fail_delivery", ("d",), "owner", "text"),
        ("complete_delivery", ("d",), "owner", "text"),
        ("complete_handoff", ("s",), "platform", "text"),
        ("fail_handoff", ("s",), "error", "text"),
        ("fail_handoff", ("s", "why"), "platform", "text"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(store, call, arguments, name, kind):
    store.create_session("s", "cli")
    for value in (b"1", [1], 5 if kind == "text" else "1"):
        with pytest.raises(TypeError, match=f"^{name} must be {kind}, not {type(value).__name__}$"):
            getattr(store, call)(*arguments, **{name: value})
    beyond = {"a whole number": 2**63, "a number": math.inf}
    if kind in beyond:
        with pytest.raises(ValueError, match=f"^{name} must "):
            getattr(store, call)(*arguments, **{name: beyond[kind]})
    assert store.get_meta("last_auto_prune") is None


@pytest.mark.parametrize("bad", [None, 0, 1, 5, 2**70, math.inf, "no", "", []])
def test_what_is_neither_true_nor_false_changes_nothing(store, bad):
    store.create_session("s", "cli", started_at=0)
    store.end_session("s", "done")
    for call in (
        lambda: store.set_session_archived("s", bad),
        lambda: store.set_session_pinned("s", bad),
        lambda: store.prune_report(1, dry_run=bad),
        lambda: store.import_sessions([], dry_run=bad),
        lambda: store.update_token_counts("s", 5, absolute=bad),
        lambda: store.list_sessions_rich(include_archived=bad),
        lambda: store.list_sessions_rich(include_open=bad),
    ):
        with pytest.raises(TypeError, match="must be True or False"):
            call()
    if bad is not None:
        for name in ("archived", "pinned"):
            with pytest.raises(TypeError, match=f"^{name} must be True or False"):
                store.list_sessions_rich(**{name: bad})
    session = store.get_session("s")
    assert (session["archived"], session["pinned"], session["input_tokens"]) == (False, False, 0)


@pytest.mark.parametrize("bad", [0, "", [], {}, "cli", 5, (False, 1.0, "s")])
def test_what_is_no_filter_and_no_place_is_refused_by_name(store, bad):
    for call in (store.session_ids, store.iter_export):
        with pytest.raises(TypeError, match=r"^wanted must be a SessionFilter"):
            call(bad)
    with pytest.raises(TypeError, match=r"^past must be a ListPlace"):
        store.list_sessions_rich(past=bad)


def test_numbers_that_no_row_can_have_are_refused(store):
    store.create_session("s", "cli")
    for call in (
        lambda: store.get_messages("s", limit=2**70),
        lambda: store.list_sessions_rich(min_messages=2**63),
        lambda: store.list_sessions_rich(max_cost=math.nan),
        lambda: store.list_sessions_rich(before=2**70),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: store.get_messages("s", limit=True),
        lambda: store.append_messages("s", [None]),
        lambda: store.sync_messages("s", "text"),
        lambda: store.list_sessions_rich(min_tokens="5"),
    ):
        with pytest.raises(TypeError):
            call()


def test_the_calls_of_a_class_of_ones_own_are_left_alone(path):
    class Notebook(SessionDB):
        def note(self, text: str, page: int = 0) -> tuple[object, object]:
            return text, page

    with Notebook(path) as db:
        assert db.note(None, "last") == (None, "last")
        with pytest.raises(TypeError, match="session_id must be text"):
            db.get_session(5)


def test_every_call_of_the_store_looks_at_what_it_is_given():
    for name, call in inspect.getmembers(SessionDB, inspect.isfunction):
        if not name.startswith("_") and name not in {"close", "sanitize_title"}:
            assert hasattr(call, "__wrapped__"), name
