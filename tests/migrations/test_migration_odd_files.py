"""Odd files after Hermes: names of ours that are there already, rows that nobody declared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files
from schema_files import change, down

from sessionstore import SessionDB

Made = Callable[[str], Path]
OldFile = Callable[[int], Path]


COLUMNS_THERE = {
    "sessions.system_prompt_hash": ("TEXT", "'nowhere'", None),
    "messages.content_encoding": ("TEXT", "'gzip'", None),
    "messages.json_columns": ("BLOB", "x'00'", None),
    "messages.active": ("TEXT", "'yes'", 1),
    "messages.compacted": ("INTEGER", "1", 1),
    "sessions.rewind_count": ("INTEGER NOT NULL DEFAULT 0", "-1", 0),
    "sessions.archived": ("TEXT NOT NULL DEFAULT 0", "1", 1),
    "sessions.pinned": ("INTEGER NOT NULL DEFAULT 0", "7", 0),
    "sessions.relation": ("TEXT", "'friend'", None),
    "sessions.last_active_at": ("TEXT", "'today'", 1781773226.453548),
    "sessions.handoff_state": ("INTEGER", "5", "5"),
    "messages.platform_message_id": ("INTEGER", "12", "12"),
}


@pytest.mark.parametrize("which", COLUMNS_THERE)
def test_a_column_of_the_name_that_means_something_else_steps_aside(
    which: str, old_file: OldFile
) -> None:
    table, _, name = which.partition(".")
    kind, value, becomes = COLUMNS_THERE[which]
    path = old_file(11)
    change(
        path,
        f"ALTER TABLE {table} ADD COLUMN {name} {kind}",
        f"UPDATE {table} SET {name} = {value} WHERE rowid = 1",
    )
    before = files.ask(path, f"SELECT rowid, {name} FROM {table}")
    shape = files.columns(path, table)
    files.open_store(path)
    (aside,) = (found for found in files.columns(path, table) if found.startswith(f"{name}_before"))
    assert files.ask(path, f"SELECT rowid, {aside} FROM {table}") == before
    declared = {"sessions": files.SESSIONS_ADDED, "messages": files.MESSAGES_ADDED}[table]
    assert files.columns(path, table)[name] == files.declared(declared, 20)[name]
    found = dict(files.ask(path, f"SELECT rowid, {name} FROM {table}"))
    if which == "sessions.system_prompt_hash":
        assert found[1] == hashlib.sha256(b"Be brief.").hexdigest()
    else:
        assert found[1] == becomes
    assert files.ask(path, "SELECT count(*) FROM messages WHERE active = 1")[0][0] >= 9
    down(path, "0011")
    assert files.columns(path, table) == shape
    assert files.ask(path, f"SELECT rowid, {name} FROM {table}") == before


def test_columns_declared_as_ours_are_taken_with_their_values(old_file: OldFile) -> None:
    path = old_file(11)
    change(
        path,
        "ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE messages ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0",
        "UPDATE messages SET active = 0, compacted = 1 WHERE id = 1",
        "UPDATE sessions SET archived = 1 WHERE id = 'child'",
    )
    files.open_store(path)
    assert files.ask(path, "SELECT id FROM messages WHERE compacted = 1") == [(1,)]
    assert files.ask(path, "SELECT id FROM sessions WHERE archived = 1") == [("child",)]
    assert not [name for name in files.columns(path, "messages") if "before" in name]


TABLES_THERE = [table for table in files.TABLES_ADDED if table != "state_meta"]


@pytest.mark.parametrize("table", TABLES_THERE)
def test_a_table_of_the_name_that_is_another_programs_steps_aside(
    table: str, old_file: OldFile, made: Made
) -> None:
    path = old_file(11)
    change(
        path,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, note TEXT)",
        f"INSERT INTO {table} VALUES (1, 'kept')",
        f"CREATE INDEX ix_delivery_obligations_state_available_at ON {table}(note)",
    )
    revision = files.TABLES_ADDED[table][0]
    files.open_store(path)
    assert files.columns(path, table) == files.TABLES_ADDED[table][1]
    assert files.ask(path, f"SELECT * FROM {table}_before_{revision:04d}") == [(1, "kept")]
    assert files.texts(path) == files.texts(made("head"))
    assert files.ask(path, "PRAGMA foreign_key_check") == []
    down(path, "0011")
    assert files.ask(path, f"SELECT * FROM {table}") == [(1, "kept")]


@pytest.mark.parametrize("table", TABLES_THERE)
def test_a_table_made_as_ours_is_taken_with_its_rows(
    table: str, old_file: OldFile, made: Made
) -> None:
    path = old_file(11)
    columns = files.TABLES_ADDED[table][1]
    values = ", ".join(
        {"TEXT": "'parent'", "REAL": "1.0", "INTEGER": "5"}[kind] for kind, *_ in columns.values()
    )
    change(
        path,
        files.master(made("head"))[table],
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})",
    )
    files.open_store(path)
    kept = "'parent' IN (" + ", ".join(columns) + ")"
    assert files.ask(path, f"SELECT count(*) FROM {table} WHERE {kept}") == [(1,)]
    assert set(files.columns(path, table)) == set(columns)
    assert f"{table}_before_{files.TABLES_ADDED[table][0]:04d}" not in files.master(path)
    assert files.ask(path, "PRAGMA foreign_key_check") == []
    with SessionDB(path) as db:
        db.create_session("new", "cli", system_prompt="Another.")
        db.update_token_counts("new", input_tokens=1)


# What old tables, declared by nobody knows whom, let stand in them.
ODD = {
    "numbers for ids": [
        "INSERT INTO sessions (id, source, started_at, system_prompt) VALUES (7, 'cli', 1, 'p')"
    ],
    "a blob for an id": [
        "INSERT INTO sessions (id, source, started_at, system_prompt) VALUES (x'01', 'cli', 1, 'p')"
    ],
    "no id": ["INSERT INTO sessions (source, started_at, input_tokens) VALUES ('cli', 1, 5)"],
    "texts for times": [
        "UPDATE sessions SET started_at = 'then', input_tokens = 'many'",
        "UPDATE messages SET timestamp = 'then' WHERE id = 1",
    ],
    "times without end": [
        "UPDATE sessions SET started_at = 9e999",
        "UPDATE messages SET timestamp = -9e999",
    ],
    "messages of no session": ["UPDATE messages SET session_id = 'nowhere' WHERE id > 5"],
    "ids of messages far apart": ["UPDATE messages SET id = -id * 1000000000000"],
    "a prompt that is a number": ["UPDATE sessions SET system_prompt = 12"],
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_file_goes_up_and_down_with_every_row(
    kind: str, old_file: OldFile, made: Made
) -> None:
    path = old_file(11)
    change(path, *ODD[kind])
    files.upgrade_file(path, "0011")
    before = files.all_rows(path)
    files.open_store(path)
    assert files.texts(path) == files.texts(made("head"))
    with SessionDB(path) as db:
        if kind != "a blob for an id":  # lists do not know such
            db.list_sessions_rich()
            db.export_all()
        assert db.session_count() == len(before["sessions"])
    down(path, "0011")
    assert files.all_rows(path) == before


def test_a_damaged_search_index_does_not_stop_an_upgrade(old_file: OldFile) -> None:
    path = old_file(11)
    change(path, "UPDATE messages SET content = char(0) || 'json:[\"kiwi\"]' WHERE id = 3")
    files.upgrade_file(path, "0011")
    change(path, "DROP TABLE messages_fts_data")
    files.open_store(path)
    with SessionDB(path) as db:
        assert db.get_messages("parent")[2]["content"] == ["kiwi"]
