"""Up, down and up again with rows in the tables; each revision has the shape it declares."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files
from alembic import command
from alembic.config import Config

from sessionstore import schema
from sessionstore.models import HERMES_LEVEL, SCHEMA_REVISION, Base

LEVELS = range(1, HERMES_LEVEL + 1)


def expected_indexes(level: int) -> set[str]:
    names = {
        "idx_sessions_source",
        "idx_sessions_parent",
        "idx_sessions_started",
        "idx_messages_session",
    }
    return names | {"idx_sessions_title_unique"} if level >= 4 else names


def test_every_revision_has_the_columns_the_history_declares(
    made: Callable[[str], Path],
) -> None:
    for level in LEVELS:
        path = made(str(level))
        assert files.columns(path, "sessions") == files.declared(files.SESSIONS_ADDED, level)
        assert files.columns(path, "messages") == files.declared(files.MESSAGES_ADDED, level)
        meta = {"key": ("TEXT", 0, None), "value": ("TEXT", 0, None)} if level >= 7 else {}
        assert files.columns(path, "state_meta") == meta
        assert files.ask(path, "SELECT version FROM schema_version") == [(level,)]
        assert files.ask(path, "SELECT version_num FROM alembic_version") == [(f"{level:04d}",)]
        names = {name for name in files.texts(path) if name.startswith("idx_")}
        assert names == expected_indexes(level)


@pytest.mark.parametrize("level", ["01", "04", "06", "11"])
def test_index_and_trigger_texts_are_those_of_real_files(
    level: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    real = files.real_file(level, tmp_path)
    assert files.texts(made(str(int(level)))) == files.texts(real)


@pytest.mark.parametrize("level", LEVELS)
def test_texts_of_each_level(level: int, made: Callable[[str], Path]) -> None:
    texts = files.texts(made(str(level)))
    assert texts["idx_sessions_started"].endswith("ON sessions(started_at DESC)")
    if level >= 4:
        assert texts["idx_sessions_title_unique"].endswith("(title) WHERE title IS NOT NULL")
    tables = ["messages_fts"] if level < 10 else ["messages_fts", "messages_fts_trigram"]
    triggers = {f"{table}_{e}" for table in tables for e in ("insert", "delete", "update")}
    assert {name for name in texts if not name.startswith("idx_")} == {*tables, *triggers}
    for table in tables:
        assert ("content=messages" in texts[table]) == (level < 11)
        assert ("tokenize='trigram'" in texts[table]) == (table == "messages_fts_trigram")
        assert ("'delete'" in texts[f"{table}_delete"]) == (level < 11)


def test_going_up_step_by_step_gives_what_going_down_gave(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "walk.db"
    with files.database(path) as opened:
        for level in LEVELS:
            assert files.upgrade(opened, to=f"{level:04d}") == [f"{level:04d}"]
            assert files.shape(path) == files.shape(made(str(level)))


def test_rows_survive_down_to_the_first_revision_and_up_again(tmp_path: Path) -> None:
    path = tmp_path / "walk.db"
    files.upgrade_file(path, "0011")
    files.fill(path)
    before = files.all_rows(path)
    shape = files.shape(path)
    with files.database(path) as opened:
        assert files.downgrade(opened, to="0001") == [f"{n:04d}" for n in range(11, 1, -1)]
        for number in range(10):
            found = files.ask(
                path,
                "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?",
                files.word(number),
            )
            assert found == [(number + 1,)]
        files.upgrade(opened, to="0011")
    after = files.all_rows(path)
    first = {
        table: files.declared(added, 1)
        for table, added in (
            ("sessions", files.SESSIONS_ADDED),
            ("messages", files.MESSAGES_ADDED),
        )
    }
    for table, kept in first.items():
        assert [{c: r[c] for c in kept} for r in after[table]] == [
            {c: r[c] for c in kept} for r in before[table]
        ]
    # What going back loses comes back as what nobody noted.
    assert {row["title"] for row in after["sessions"]} == {None}
    assert {row["cache_read_tokens"] for row in after["sessions"]} == {0}
    assert files.shape(path) == shape


def test_base_leaves_nothing_and_upgrades_again(tmp_path: Path) -> None:
    path = tmp_path / "walk.db"
    files.open_store(path)
    files.upgrade_file(path)
    head = files.shape(path)
    with files.database(path) as opened:
        undone = files.downgrade(opened, to="base")
    assert undone == [info.id for info in reversed(schema.history())]
    assert set(files.master(path)) == {"alembic_version"}
    assert files.status(path) == schema.SchemaStatus(empty=True)
    files.open_store(path)
    assert files.shape(path) == head


def test_level_10_trigger_and_index_work_together(made: Callable[[str], Path], tmp_path) -> None:
    path = tmp_path / "ten.db"
    path.write_bytes(made("10").read_bytes())
    files.fill(path)
    with files.raw(path) as connection:
        connection.execute("UPDATE messages SET content = 'changed wombat' WHERE id = 3")
        connection.execute("DELETE FROM messages WHERE id = 4")
        for table in files.INDEXES:
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 1)")
            find = f"SELECT rowid FROM {table} WHERE {table} MATCH ?"
            assert connection.execute(find, ("wombat",)).fetchall() == [(3,)]
            assert connection.execute(find, (files.word(2),)).fetchall() == []
            assert connection.execute(find, (files.word(3),)).fetchall() == []
            assert connection.execute(find, (files.word(4),)).fetchall() == [(5,)]


def test_downgrade_to_a_later_or_unknown_revision_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "walk.db"
    files.upgrade_file(path, "0004")
    with files.database(path) as opened:
        with pytest.raises(schema.walk.MigrationError, match="is at 0004, which is not after 0007"):
            files.downgrade(opened, to="0007")
        with pytest.raises(schema.walk.MigrationError, match="there is no revision 'nope'"):
            files.downgrade(opened, to="nope")
        assert files.upgrade(opened, to="0002") == []


def test_stored_text_of_the_schema_is_current(made: Callable[[str], Path]) -> None:
    stored = (files.DATA / "schema" / "head.sqlite.sql").read_text()
    assert files.sqlite_text(made("head")) == stored, "run tests/data/make_snapshots.py"


def test_mapped_classes_describe_the_newest_revision(made: Callable[[str], Path]) -> None:
    assert schema.history()[-1].id == SCHEMA_REVISION
    assert [info.id for info in schema.history()] == [
        f"{n:04d}" for n in range(1, int(SCHEMA_REVISION) + 1)
    ]
    with files.database(made("head")) as opened, opened.engine.begin() as connection:
        check_drift(connection)


def test_drift_check_sees_a_lost_column(tmp_path: Path) -> None:
    path = tmp_path / "drifted.db"
    files.open_store(path)
    with files.raw(path) as connection:
        connection.execute("ALTER TABLE sessions DROP COLUMN billing_mode")
    with files.database(path) as opened, opened.engine.begin() as connection:
        with pytest.raises(Exception, match="billing_mode"):
            check_drift(connection)


def check_drift(connection) -> None:
    """Let Alembic compare the tables with the mapped classes."""
    config = Config()
    config.set_main_option("script_location", str(schema.migrations_folder()))
    config.attributes.update(connection=connection, metadata=Base.metadata)
    command.check(config)


def test_history_says_in_one_line_what_each_revision_is_for() -> None:
    for info in schema.history():
        assert 10 < len(info.summary) < 100
        assert info.summary.endswith(".")


def test_progress_hears_of_each_revision(tmp_path: Path) -> None:
    heard: list[str] = []
    with files.database(tmp_path / "new.db") as opened:
        ran = schema.upgrade(opened, files.SETTINGS, progress=heard.append)
    assert heard == ran == [info.id for info in schema.history()]


def test_revisions_import_nothing_of_the_package() -> None:
    for path in (schema.migrations_folder() / "versions").glob("*.py"):
        lines = path.read_text().splitlines()
        imported = {
            line.split()[1].partition(".")[0]
            for line in lines
            if line.startswith(("import ", "from "))
        }
        assert imported <= {"alembic", "sqlalchemy", *sys.stdlib_module_names}, path.name
