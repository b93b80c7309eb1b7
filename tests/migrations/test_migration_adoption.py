"""Files of Hermes, real and odd, taken over in place: every row kept, everything found."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files

from sessionstore import SessionDB, StoreUnavailableError, schema

OldFile = Callable[[int], Path]
Made = Callable[[str], Path]


def adopt(path: Path, fresh: Path) -> None:
    """Take a file over to level 11 and see that nothing was lost and everything works."""
    before = files.all_rows(path)
    tables = {name for name, text in files.master(path).items() if text.startswith("CREATE TABLE")}
    files.upgrade_file(path, "0011")

    after = files.all_rows(path)
    for table, kept in before.items():
        assert len(after[table]) == len(kept)
        for old, new in zip(kept, after[table], strict=True):
            assert old.items() <= new.items()
    assert tables <= set(files.master(path))
    assert_level_11(path, fresh)
    assert_searchable(path)
    assert_writable(path)


def assert_level_11(path: Path, fresh: Path) -> None:
    assert files.ask(path, "SELECT version FROM schema_version") == [(11,)]
    assert files.ask(path, "SELECT version_num FROM alembic_version") == [("0011",)]
    assert files.texts(path).items() >= files.texts(fresh).items()
    for table, added in (("sessions", files.SESSIONS_ADDED), ("messages", files.MESSAGES_ADDED)):
        there = files.columns(path, table)
        assert there.keys() >= files.declared(added, 11).keys()
    assert files.ask(path, "PRAGMA integrity_check") == [("ok",)]


def assert_searchable(path: Path) -> None:
    """Both indexes hold of each message what they should: neither less nor more."""
    expected = files.ask(
        path,
        "SELECT id, CAST(COALESCE(content, '') || ' ' || COALESCE(tool_name, '') || ' ' || "
        "COALESCE(tool_calls, '') AS BLOB) FROM messages ORDER BY id",
    )
    for table in files.INDEXES:
        with files.raw(path) as connection:
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 1)")
        held = f"SELECT rowid, CAST(content AS BLOB) FROM {table} ORDER BY rowid"
        assert files.ask(path, held) == expected
        find = f"SELECT rowid FROM {table} WHERE {table} MATCH ?"
        for (number,) in files.ask(path, "SELECT id FROM messages WHERE content LIKE 'quokka%'"):
            assert files.ask(path, find, files.word(number - 1)) == [(number,)]


def assert_writable(path: Path) -> None:
    """Insert, update and delete, as other programs do, and find each time what is true."""
    with files.raw(path) as connection:
        (highest,) = connection.execute("SELECT seq FROM sqlite_sequence").fetchone()
        insert = (
            "INSERT INTO messages (session_id, role, content, tool_name, timestamp) "
            "VALUES ('parent', 'user', 'numbat one', 'digger', 1.0)"
        )
        new = connection.execute(insert).lastrowid
        assert new > highest
        for table in files.INDEXES:
            find = f"SELECT rowid FROM {table} WHERE {table} MATCH ?"
            assert connection.execute(find, ("numbat",)).fetchall() == [(new,)]
            assert connection.execute(find, ("digger",)).fetchall() == [(new,)]
        connection.execute("UPDATE messages SET content = 'bilby two' WHERE id = ?", (new,))
        for table in files.INDEXES:
            find = f"SELECT rowid FROM {table} WHERE {table} MATCH ?"
            assert connection.execute(find, ("numbat",)).fetchall() == []
            assert connection.execute(find, ("bilby",)).fetchall() == [(new,)]
        connection.execute("DELETE FROM messages WHERE id = ?", (new,))
        assert connection.execute(insert).lastrowid > new
        connection.execute("DELETE FROM messages WHERE content = 'numbat one'")
        # Every message can go.
        connection.execute("BEGIN")
        connection.execute("UPDATE messages SET content = content || ' again'")
        connection.execute("DELETE FROM messages")
        for table in files.INDEXES:
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 1)")
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        connection.execute("ROLLBACK")


@pytest.fixture
def fresh(made: Made) -> Path:
    return made("11")


# ---- real files


@pytest.mark.parametrize("level", ["01", "04", "06", "11"])
def test_a_real_file_keeps_every_value(level: str, fresh: Path, tmp_path: Path) -> None:
    path = files.real_file(level, tmp_path)
    manifest = json.loads((files.HERMES / f"hermes-v{level}.json").read_text())
    files.upgrade_file(path, "0011")

    def stored(table: str) -> list[dict[str, object]]:
        with files.raw(path) as connection:
            connection.text_factory = str
            connection.row_factory = sqlite3.Row
            order = "id" if table == "messages" else "rowid"
            return [
                dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
            ]

    messages = stored("messages")
    expected = sorted(
        (message for found in manifest["messages"].values() for message in found),
        key=lambda message: message["id"],
    )
    assert len(messages) == manifest["counts"]["messages"] == len(expected)
    for row, said in zip(messages, expected, strict=True):
        assert said.items() <= row.items()
    sessions = {row["id"]: row for row in stored("sessions")}
    assert len(sessions) == len(manifest["sessions"])
    for said in manifest["sessions"]:
        assert said.items() <= sessions[said["id"]].items()
    for session, ids in manifest["order_by_id"].items():
        assert [row["id"] for row in messages if row["session_id"] == session] == ids
    for table, kept in manifest["other_tables"].items():
        assert files.ask(path, f"SELECT count(*) FROM {table}") == [(len(kept),)]
    promised = manifest.get("after_upgrade_to_v11", {}).get("values_in_new_columns", {})
    for column, values in promised.items():
        table, _, name = column.partition(".")
        rows = sessions.values() if table == "sessions" else messages
        if not name.startswith("handoff_"):
            assert {json.dumps(row[name]) for row in rows} == set(values), column
    assert_level_11(path, fresh)
    assert_searchable(path)
    assert_writable(path)


@pytest.mark.parametrize("level", ["01", "04", "06", "11"])
def test_a_real_file_has_the_newest_schema_text(level: str, made: Made, tmp_path: Path) -> None:
    path = files.real_file(level, tmp_path)
    files.open_store(path)
    assert files.status(path).up_to_date
    assert files.texts(path) == files.texts(made("head"))


@pytest.mark.parametrize("level", ["01", "11"])
def test_a_second_open_writes_nothing(level: str, tmp_path: Path) -> None:
    path = files.real_file(level, tmp_path)
    files.open_store(path)
    os.utime(path, ns=(10**18, 10**18))
    before = files.digest(path)
    files.open_store(path)
    files.open_store(path, read_only=True)
    assert files.digest(path) == before
    assert path.stat().st_mtime_ns == 10**18
    assert files.side_files(path) == []


def test_a_sound_level_11_index_is_kept_as_it_is(tmp_path: Path) -> None:
    path = files.real_file("11", tmp_path)
    before = {t: files.rows(path, f"{t}_data") for t in files.INDEXES}
    files.upgrade_file(path, "0011")
    assert {t: files.rows(path, f"{t}_data") for t in files.INDEXES} == before


# ---- every level, made here


@pytest.mark.parametrize("level", range(1, 12))
def test_each_level_keeps_its_rows(level: int, old_file: OldFile, fresh: Path) -> None:
    adopt(old_file(level), fresh)


@pytest.mark.parametrize("level", range(1, 12))
def test_each_level_opens_at_the_newest(level: int, old_file: OldFile, made: Made) -> None:
    path = old_file(level)
    files.open_store(path)
    assert files.texts(path) == files.texts(made("head"))
    assert files.ask(path, "SELECT count(*) FROM messages") == [(10,)]
    assert files.ask(path, "SELECT count(*) FROM sessions") == [(3,)]


# ---- odd files: (level, statements), each seen in the field


BROKEN_TRIGGERS = tuple(
    statement
    for table, tokenize in (("messages_fts", ""), ("messages_fts_trigram", ", tokenize='trigram'"))
    for statement in (
        f"DROP TABLE {table}",
        f"CREATE VIRTUAL TABLE {table} USING fts5(content{tokenize})",
        (
            f"INSERT INTO {table}(rowid, content) SELECT id, content FROM messages "
            "WHERE content IS NOT NULL"
        ),
    )
)

ODD = {
    "says 7 but lacks reasoning_content": (
        7,
        ["ALTER TABLE messages DROP COLUMN reasoning_content"],
    ),
    "says 11 but lacks reasoning_content": (
        11,
        ["ALTER TABLE messages DROP COLUMN reasoning_content"],
    ),
    "carries a dead handoff_pending": (
        7,
        ["ALTER TABLE sessions ADD COLUMN handoff_pending INTEGER DEFAULT 0"],
    ),
    "late 10 with triggers that make every delete fail": (10, BROKEN_TRIGGERS),
    "half of 5 while it says 4": (
        4,
        [
            "ALTER TABLE sessions ADD COLUMN cache_read_tokens INTEGER DEFAULT 0",
            "ALTER TABLE sessions ADD COLUMN billing_provider TEXT",
            "UPDATE sessions SET cache_read_tokens = 5, billing_provider = 'p'",
        ],
    ),
    "says 6 with columns of 5 and 6 missing": (
        6,
        [
            "ALTER TABLE sessions DROP COLUMN billing_mode",
            "ALTER TABLE sessions DROP COLUMN estimated_cost_usd",
            "ALTER TABLE messages DROP COLUMN reasoning_details",
        ],
    ),
    "says 1 though it has everything": (11, ["UPDATE schema_version SET version = 1"]),
    "says 11 though it has only the first level": (1, ["UPDATE schema_version SET version = 11"]),
    "state_meta missing": (11, ["DROP TABLE state_meta"]),
    "counters NULL": (
        8,
        [
            (
                "UPDATE sessions SET message_count = NULL, input_tokens = NULL, "
                "cache_read_tokens = NULL, api_call_count = NULL"
            ),
            "UPDATE messages SET token_count = NULL",
        ],
    ),
    "index rows missing": (11, [f"DELETE FROM {t} WHERE rowid = 4" for t in files.INDEXES]),
    "index rows stale": (
        11,
        [f"UPDATE {t} SET content = 'stale' WHERE rowid = 4" for t in files.INDEXES],
    ),
    "index rows of messages that are gone": (
        11,
        [f"INSERT INTO {t}(rowid, content) VALUES (999, 'ghost')" for t in files.INDEXES],
    ),
    "index and its copy of the text disagree": (
        11,
        [f"UPDATE {t}_content SET c0 = 'else' WHERE id = 4" for t in files.INDEXES],
    ),
    "index of level 1 stale": (
        1,
        ["INSERT INTO messages_fts(messages_fts) VALUES('delete-all')"],
    ),
    "indexes missing, triggers there": (11, [f"DROP TABLE {t}" for t in files.INDEXES]),
    "first index missing at level 3": (3, ["DROP TABLE messages_fts"]),
    "second index missing": (11, ["DROP TABLE messages_fts_trigram"]),
    "shadow table of an index missing": (11, ["DROP TABLE messages_fts_data"]),
    "another shadow table missing": (11, ["DROP TABLE messages_fts_trigram_config"]),
    "text of an index missing": (11, ["DROP TABLE messages_fts_content"]),
    "schema_version empty": (6, ["DELETE FROM schema_version"]),
    "schema_version twice": (6, ["INSERT INTO schema_version VALUES (5)"]),
    "text that is not UTF-8": (
        6,
        [
            "UPDATE messages SET content = CAST(x'66ff6f80fe' AS TEXT) WHERE id = 3",
            "UPDATE messages SET tool_calls = CAST(x'c328' AS TEXT) WHERE id = 4",
            (
                "UPDATE sessions SET system_prompt = CAST(x'ff' AS TEXT), "
                "title = CAST(x'fe' AS TEXT) "
                "WHERE id = 'child'"
            ),
        ],
    ),
    "text that is not UTF-8 at level 11": (
        11,
        ["UPDATE messages SET content = CAST(x'66ff6f80fe' AS TEXT) WHERE id = 3"],
    ),
    "content that is a blob or a number": (
        6,
        [
            "UPDATE messages SET content = x'00ff' WHERE id = 3",
            "UPDATE messages SET content = 12345 WHERE id = 4",
            "UPDATE messages SET content = 'a' || char(0) || 'json:[1]' WHERE id = 5",
        ],
    ),
    "JSON that does not parse": (
        6,
        [
            "UPDATE messages SET tool_calls = '{broken' WHERE id = 3",
            "UPDATE sessions SET model_config = 'nope'",
        ],
    ),
    "parents that do not exist": (
        6,
        [
            "UPDATE sessions SET parent_session_id = 'ghost' WHERE id = 'child'",
            "UPDATE messages SET session_id = 'gone' WHERE id = 3",
        ],
    ),
    "parents in a circle": (
        6,
        ["UPDATE sessions SET parent_session_id = 'child' WHERE id = 'parent'"],
    ),
    "extra columns and tables": (
        8,
        [
            "ALTER TABLE sessions ADD COLUMN flavour TEXT DEFAULT 'salt'",
            "ALTER TABLE messages ADD COLUMN extra BLOB",
            "CREATE TABLE plugin (id INTEGER PRIMARY KEY, note TEXT)",
            "INSERT INTO plugin VALUES (1, 'kept')",
            "CREATE VIEW recent AS SELECT id FROM sessions",
        ],
    ),
    "an extra table whose foreign key fits nothing": (
        8,
        [
            "CREATE TABLE plugin (id INTEGER, session TEXT REFERENCES sessions(source))",
            "INSERT INTO plugin VALUES (1, 'parent')",
        ],
    ),
    "triggers and indexes missing": (
        11,
        [
            "DROP TRIGGER messages_fts_insert",
            "DROP TRIGGER messages_fts_trigram_update",
            "DROP INDEX idx_sessions_source",
            "DROP INDEX idx_sessions_title_unique",
        ],
    ),
    "an index of another text under our name": (
        11,
        [
            "DROP INDEX idx_sessions_started",
            "CREATE INDEX idx_sessions_started ON sessions (started_at)",
            "DROP INDEX idx_sessions_title_unique",
            "CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title)",
        ],
    ),
    "columns of level 1 missing": (
        1,
        [
            "DROP INDEX idx_sessions_source",
            "ALTER TABLE sessions DROP COLUMN source",
            "ALTER TABLE sessions DROP COLUMN end_reason",
            "ALTER TABLE messages DROP COLUMN token_count",
            "ALTER TABLE messages DROP COLUMN role",
        ],
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_file_is_mended_and_keeps_its_rows(
    kind: str, old_file: OldFile, fresh: Path
) -> None:
    level, statements = ODD[kind]
    path = old_file(level)
    with files.raw(path) as connection:
        for statement in statements:
            connection.execute(statement)
    adopt(path, fresh)


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_file_opens_at_the_newest(kind: str, old_file: OldFile, made: Made) -> None:
    level, statements = ODD[kind]
    path = old_file(level)
    with files.raw(path) as connection:
        for statement in statements:
            connection.execute(statement)
    files.open_store(path)
    expected = files.texts(made("head"))
    assert {name: files.texts(path).get(name) for name in expected} == expected
    assert files.ask(path, "SELECT count(*) FROM messages") == [(10,)]


def test_a_missing_index_is_filled_again_at_its_own_level(old_file: OldFile) -> None:
    path = old_file(3)
    with files.raw(path) as connection:
        connection.execute("DROP TABLE messages_fts")
    files.upgrade_file(path, "0003")
    with files.raw(path) as connection:
        check = "INSERT INTO messages_fts(messages_fts, rank) VALUES('integrity-check', 1)"
        connection.execute(check)
    find = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?"
    assert files.ask(path, find, files.word(4)) == [(5,)]


def test_the_broken_triggers_of_late_10_do_break_a_delete(old_file: OldFile) -> None:
    path = old_file(10)
    with files.raw(path) as connection:
        for statement in BROKEN_TRIGGERS:
            connection.execute(statement)
        with pytest.raises(sqlite3.Error):
            connection.execute("DELETE FROM messages WHERE id = 3")


def test_of_duplicate_titles_the_newest_started_keeps_it(
    old_file: OldFile, caplog: pytest.LogCaptureFixture
) -> None:
    path = old_file(3)
    with files.raw(path) as connection:
        connection.execute("DELETE FROM messages")
        connection.execute("DELETE FROM sessions")
        connection.executemany(
            "INSERT INTO sessions (id, source, started_at, title) VALUES (?, 'cli', ?, ?)",
            [
                ("old", 1.0, "Same"),
                ("new", 3.0, "Same"),
                ("middle", 2.0, "Same"),
                ("tie-first", 5.0, "Tie"),
                ("tie-second", 5.0, "Tie"),
                ("case", 1.0, "same"),
                ("none-1", 1.0, None),
                ("none-2", 1.0, None),
            ],
        )
    with caplog.at_level(logging.WARNING, "sessionstore"):
        files.open_store(path)
    assert files.ask(path, "SELECT id, title FROM sessions ORDER BY id") == [
        ("case", "same"),
        ("middle", None),
        ("new", "Same"),
        ("none-1", None),
        ("none-2", None),
        ("old", None),
        ("tie-first", None),
        ("tie-second", "Tie"),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "3 sessions lost a title that a session started later has too"
    ]


def test_a_file_that_was_only_begun_is_completed(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "begun.db"
    with files.raw(path) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
    files.open_store(path)
    assert files.texts(path) == files.texts(made("head"))


@pytest.mark.parametrize("level", ["06", "11"])
def test_a_file_in_use_by_hermes_is_adopted_beside_it(level: str, tmp_path: Path) -> None:
    path = files.real_file(level, tmp_path)
    with files.raw(path) as hermes:
        hermes.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "SELECT id, 'user', 'written before', 1.0 FROM sessions LIMIT 1"
        )
        assert files.side_files(path) == [f"{path.name}-shm", f"{path.name}-wal"]
        files.open_store(path)
        hermes.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "SELECT id, 'user', 'written after', 1.0 FROM sessions LIMIT 1"
        )
    assert files.ask(path, "SELECT count(*) FROM messages WHERE content LIKE 'written%'") == [(2,)]
    assert files.status(path).up_to_date


def test_status_in_words(old_file: OldFile, made: Made, tmp_path: Path) -> None:
    assert files.status(old_file(6)).label == "Hermes level 6"
    assert files.status(made("4")).label == "0004"
    assert files.status(tmp_path / "new.db") == schema.SchemaStatus(empty=True)
    assert files.status(tmp_path / "new.db").label == "empty"


# ---- what other programs left under names of ours


@pytest.mark.parametrize("number", ["'v6'", "x'00'", "12.5"])
def test_a_level_that_is_no_number_does_not_keep_a_file_from_adoption(
    number: str, old_file: OldFile
) -> None:
    path = old_file(6)
    with files.raw(path) as connection:
        connection.execute(f"UPDATE schema_version SET version = {number}")
    files.open_store(path)
    assert files.ask(path, "SELECT version FROM schema_version") == [(11,)]


def test_a_column_in_capitals_is_the_column(old_file: OldFile) -> None:
    path = old_file(1)
    with files.raw(path) as connection:
        connection.execute("ALTER TABLE sessions ADD COLUMN TITLE TEXT")
        connection.execute("UPDATE sessions SET TITLE = 'Kiwi' WHERE id = 'alone'")
        connection.execute("ALTER TABLE sessions ADD COLUMN Relation TEXT")
    files.open_store(path)
    assert files.ask(path, "SELECT id FROM sessions WHERE title = 'Kiwi'") == [("alone",)]


def test_a_table_under_the_name_of_an_index_steps_aside(old_file: OldFile) -> None:
    path = old_file(6)
    with files.raw(path) as connection:
        connection.execute("DROP INDEX idx_sessions_source")
        connection.execute("CREATE TABLE idx_sessions_source(a)")
        connection.execute("INSERT INTO idx_sessions_source VALUES (1)")
    files.open_store(path)
    assert files.ask(path, "SELECT a FROM idx_sessions_source_before_0001") == [(1,)]


@pytest.mark.parametrize(
    ("made_as", "taken_over"),
    [
        ("CREATE TABLE state_meta(k TEXT, v TEXT)", []),
        ("CREATE TABLE state_meta(key TEXT, value TEXT)", [("key", "late")]),
        ("CREATE VIEW state_meta AS SELECT 'key' AS key, 'seen' AS value", [("key", "seen")]),
    ],
)
def test_a_state_meta_that_cannot_be_set_by_key_steps_aside(
    made_as: str, taken_over: list[tuple], old_file: OldFile
) -> None:
    path = old_file(4)
    with files.raw(path) as connection:
        connection.execute(made_as)
        if "TABLE" in made_as:
            connection.execute("INSERT INTO state_meta VALUES ('key', 'early'), ('key', 'late')")
    aside = len(files.ask(path, "SELECT * FROM state_meta"))
    with SessionDB(path) as db:
        db.set_meta("other", "value")
        db.set_meta("other", "changed")
    assert files.ask(path, "SELECT key, value FROM state_meta ORDER BY key") == [
        *taken_over,
        ("other", "changed"),
    ]
    assert len(files.ask(path, "SELECT * FROM state_meta_before_0007")) == aside


@pytest.mark.parametrize(
    "made_as",
    [
        "CREATE TABLE alembic_version(v TEXT)",
        "CREATE TABLE alembic_version AS SELECT NULL AS version_num",
        "CREATE VIEW alembic_version AS SELECT '0011' AS version_num",
    ],
)
def test_an_alembic_version_of_another_program_is_refused_in_a_sentence(
    made_as: str, old_file: OldFile
) -> None:
    path = old_file(6)
    with files.raw(path) as connection:
        connection.execute(made_as)
    before = files.digest(path)
    with pytest.raises(StoreUnavailableError, match="or its alembic_version"):
        files.open_store(path)
    assert files.digest(path) == before


def test_columns_that_a_stamp_promises_and_a_file_lacks_are_added(old_file: OldFile) -> None:
    path = old_file(1)
    with files.raw(path) as connection:
        connection.execute("CREATE TABLE alembic_version(version_num VARCHAR(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES ('0006')")
    with SessionDB(path) as db:
        db.set_session_title("alone", "Kiwi")
        assert db.get_session_by_title("Kiwi")["id"] == "alone"


def test_at_the_end_of_an_upgrade_declared_columns_that_are_missing_are_added(
    made: Made, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    shutil.copy(made("0019"), path)
    with files.raw(path) as connection:
        connection.execute("ALTER TABLE sessions DROP COLUMN rewind_count")
    files.open_store(path)
    assert files.columns(path, "sessions")["rewind_count"] == ("INTEGER", 1, "0")
