"""What other hands did to the index or to a row costs nobody a message, a hit or a search."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from sessionstore import SessionDB, TitleTakenError

DATA = Path(__file__).parents[1] / "data" / "hermes"


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def found(db: SessionDB, query: str, **scope) -> list[int]:
    return [hit["id"] for hit in db.search_messages(query, **scope)]


@pytest.mark.parametrize("table", ["messages_fts_data", "messages_fts_trigram_data"])
@pytest.mark.parametrize("block", ["x'ff'", "zeroblob(length(block))"])
def test_messages_are_stored_when_the_structure_of_the_index_is_damaged(path, table, block):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "apple")
    change(path, f"UPDATE {table} SET block = {block} WHERE id = 10")
    with SessionDB(path) as db:
        ids = [db.append_message("s", "user", f"pear {number}") for number in range(5)]
        assert db.message_count("s") == 6
        assert sorted(found(db, "pear")) == ids
        db.rebuild_search_index()
        assert db.check_search_index() == []
        assert sorted(found(db, "pear")) == ids


def test_a_real_conflict_stays_one_and_the_index_is_kept(store: SessionDB):
    store.create_session("a", "cli", title="Taken")
    store.create_session("b", "cli")
    with pytest.raises(TitleTakenError):
        store.set_session_title("b", "Taken")
    assert store.check_search_index() == []


@pytest.mark.parametrize("column", ["content", "tool_name", "tool_calls", "role"])
def test_bytes_in_one_row_fail_no_search(path, column):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        ids = [db.append_message("s", "user", f"apple {number}") for number in range(3)]
    change(path, f"UPDATE messages SET {column} = x'80ff00' WHERE id = {ids[1]}")
    with SessionDB(path) as db:
        for sort in ("rank", "newest", "oldest"):
            assert {ids[0], ids[2]} <= set(found(db, "apple", sort=sort))
            assert found(db, "nothing", sort=sort) == []


def test_a_hit_marks_what_other_hands_put_into_its_row_as_a_record_of_it_does(path):
    of_message, of_session = ("role", "tool_name", "timestamp"), ("source", "model", "title")
    with SessionDB(path) as db:
        db.create_session("s", "cli", model="m", title="t")
        db.append_message("s", "user", "apple")
        beside = db.append_message("s", "user", "pear")
    change(
        path,
        "UPDATE messages SET role = x'75ff', tool_name = x'ff', timestamp = 'soon' WHERE id = 1",
        "UPDATE sessions SET source = x'ff', model = x'6dff', title = x'74ff', started_at = 'now'",
    )
    with SessionDB(path) as db:
        (hit,) = db.search_messages("apple")
        (record, _), session = db.get_messages("s"), db.get_session("s")
        assert {name: hit[name] for name in of_message} == {
            name: record[name] for name in of_message
        }
        assert {name: hit[name] for name in of_session} == {
            name: session[name] for name in of_session
        }
        assert hit["session_started"] == session["started_at"]
        assert [each["role"] for each in hit["context"]] == ["u\ufffd", "user"]
        (hit,) = db.search_messages("pear")
        assert (hit["id"], hit["context"][0]["role"]) == (beside, "u\ufffd")


@pytest.mark.parametrize("name", ["a\0b", "a\ud83db"], ids=["NUL", "half a pair"])
def test_a_hit_gives_the_name_of_its_tool_as_its_message_does(store: SessionDB, name):
    store.create_session("s", "cli")
    store.append_message("s", "tool", "apple", tool_name=name)
    assert store.search_messages("apple")[0]["tool_name"] == name


def test_a_compacted_message_is_found_where_its_copy_is_out_of_the_time_asked(store: SessionDB):
    store.create_session("s", "cli")
    said = store.append_message("s", "user", "kumquat tart", timestamp=100.0)
    copy = {"role": "user", "content": "kumquat tart", "timestamp": 5000.0}
    store.archive_and_compact("s", [copy])
    for sort in ("rank", "newest"):
        assert found(store, "kumquat", until=200.0, sort=sort) == [said]
        assert len(found(store, "kumquat", sort=sort)) == 1


@pytest.mark.parametrize("table", ["messages_fts_data", "messages_fts_trigram_data"])
def test_a_file_of_hermes_with_a_damaged_index_is_taken_over(tmp_path, table):
    path = tmp_path / "state.db"
    shutil.copyfile(DATA / "hermes-v11.db", path)
    change(path, f"UPDATE {table} SET block = x'ff' WHERE id = 10")
    with SessionDB(path) as db:
        assert db.session_count() == 11
        assert db.message_count() == 36
        assert len(found(db, "docker")) == 3
        assert db.check_search_index() == []


def test_an_index_that_lost_all_it_held_hides_nothing(path):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        said = db.append_message("s", "user", "apple 广西 v2.1")
    change(
        path,
        "UPDATE messages_fts_trigram_data SET block = zeroblob(length(block)) WHERE id = 10",
    )
    with SessionDB(path) as db:
        for query in ("西", "广西", "apple", "v2.1"):
            assert found(db, query, sort="newest") == [said]
