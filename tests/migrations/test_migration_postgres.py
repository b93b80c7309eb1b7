"""The same history on PostgreSQL: up, down and up again with rows, and nothing to generate."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest
import schema_files as files
from sqlalchemy import Connection, text
from test_migration_walk import check_drift

from sessionstore import SessionDB, schema
from sessionstore.engine import Database, open_database
from sessionstore.errors import (
    MigrationError,
    SchemaOutdatedError,
    SchemaTooNewError,
    SessionStoreError,
    StoreBusyError,
    StoreUnavailableError,
)
from sessionstore.location import locate
from sessionstore.models import SCHEMA_REVISION
from sessionstore.settings import StoreSettings

pytestmark = pytest.mark.postgres

FILL = (
    "INSERT INTO sessions (id, source, started_at) VALUES ('parent', 'cli', 1781773226.453548)",
    (
        "INSERT INTO sessions (id, source, started_at, parent_session_id, input_tokens) "
        "VALUES ('child', 'cli', 2.5, 'parent', 3000000000)"
    ),
    (
        "INSERT INTO messages (session_id, role, content, timestamp, token_count) "
        "SELECT 'child', 'user', 'word' || n, n, n FROM generate_series(1, 5) AS n"
    ),
)


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Database]:
    database = open_database(locate(url=postgres_url), files.SETTINGS)
    yield database
    database.close()


def execute(opened: Database, *statements: str) -> None:
    def run(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    opened.write(run)


def ask(opened: Database, statement: str) -> list[tuple]:
    with opened.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def test_rows_survive_up_down_and_up(opened: Database) -> None:
    ids = [info.id for info in schema.history()]
    assert files.upgrade(opened, "0001") == ["0001"]
    execute(opened, *FILL)
    assert files.upgrade(opened) == ids[1:]
    assert files.downgrade(opened, "0001") == ids[:0:-1]
    assert files.upgrade(opened) == ids[1:]
    assert ask(opened, "SELECT id, started_at, input_tokens FROM sessions ORDER BY started_at") == [
        ("child", 2.5, 3000000000),
        ("parent", 1781773226.453548, 0),
    ]
    assert ask(opened, "SELECT id, content FROM messages ORDER BY id") == [
        (n, f"word{n}") for n in range(1, 6)
    ]
    assert ask(opened, "SELECT version FROM schema_version") == [(11,)]
    execute(opened, "DELETE FROM messages WHERE id = 5", FILL[2])
    assert ask(opened, "SELECT max(id) FROM messages") == [(10,)]
    assert files.downgrade(opened, "base") == ids[::-1]
    assert opened.read(schema.read_status) == schema.SchemaStatus(empty=True)
    assert files.upgrade(opened) == ids
    assert ask(opened, "SELECT count(*) FROM sessions") == [(0,)]


def test_tool_calls_with_escapes_that_were_misread_are_read_again(
    opened: Database, postgres_url: str
) -> None:
    files.upgrade(opened, "0024")
    execute(
        opened,
        FILL[0],
        *(
            "INSERT INTO messages (session_id, role, tool_calls, timestamp) "
            f"VALUES ('parent', 'assistant', '{calls}', 1.0)"
            for calls in (r'["\u003cp"]', r'["[\"\\u003cp\"]"]', r'["\\u5e7f"]', r'["\u5e7f"]')
        ),
    )
    execute(
        opened,
        # As the package before left them: none waits, each with numbers of what it was taken for.
        "DELETE FROM messages_fts_pending",
        "INSERT INTO messages_fts (id, word_count, grams, words) "
        "SELECT id, 0, '{}', '{}' FROM messages",
    )
    files.upgrade(opened)
    waiting = "SELECT id FROM messages_fts_pending ORDER BY id"
    assert ask(opened, waiting) == [(1,), (2,), (3,)]
    assert ask(opened, "SELECT id FROM messages_fts") == [(4,)]
    with SessionDB(url=postgres_url) as db:
        for _ in range(2):
            assert sorted(hit["id"] for hit in db.search_messages("<p")) == [1, 2]
            assert [hit["id"] for hit in db.search_messages(r"\u5e7f")] == [3]
            db.complete_search_index()
    files.downgrade(opened, "0024")
    assert ask(opened, waiting) == [(1,), (2,), (3,)]


def test_each_level_says_its_number(opened: Database) -> None:
    for level in range(1, 12):
        files.upgrade(opened, f"{level:04d}")
        assert ask(opened, "SELECT version FROM schema_version") == [(level,)]
    for level in range(10, 0, -1):
        files.downgrade(opened, f"{level:04d}")
        assert ask(opened, "SELECT version FROM schema_version") == [(level,)]


def test_autogenerate_finds_nothing(opened: Database) -> None:
    files.upgrade(opened)
    with opened.engine.begin() as connection:
        check_drift(connection)


def test_stored_text_of_the_schema_is_current(opened: Database, postgres_url: str) -> None:
    files.upgrade(opened)
    stored = (files.DATA / "schema" / "head.postgresql.sql").read_text()
    assert files.postgres_text(postgres_url) == stored, "run tests/data/make_snapshots.py"


def test_duplicate_titles_lose_to_the_newest_started(opened: Database) -> None:
    files.upgrade(opened, "0003")
    execute(opened, *FILL, "UPDATE sessions SET title = 'Same'")
    files.upgrade(opened, "0004")
    assert ask(opened, "SELECT id, title FROM sessions ORDER BY id") == [
        ("child", None),
        ("parent", "Same"),
    ]


def test_an_up_to_date_store_opens_and_others_are_refused(
    opened: Database, postgres_url: str
) -> None:
    location = locate(url=postgres_url)

    def open_it(*, read_only: bool = False, migrate: bool = True) -> None:
        schema.open_current(location, files.SETTINGS, read_only=read_only, migrate=migrate).close()

    for how in ({"read_only": True}, {"migrate": False}):
        with pytest.raises(SchemaOutdatedError, match="db upgrade --url"):
            open_it(**how)
    assert ask(opened, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    open_it()
    open_it(read_only=True)
    open_it(migrate=False)
    execute(opened, "UPDATE alembic_version SET version_num = '0999'")
    for how in ({}, {"read_only": True}, {"migrate": False}):
        with pytest.raises(SchemaTooNewError) as caught:
            open_it(**how)
        assert (caught.value.found, caught.value.supported) == ("0999", SCHEMA_REVISION)


def test_another_programs_tables_are_not_touched(opened: Database, postgres_url: str) -> None:
    execute(opened, "CREATE TABLE sessions (sid text, data bytea)")
    with pytest.raises(StoreUnavailableError, match="another program"):
        schema.open_current(locate(url=postgres_url), files.SETTINGS, read_only=False, migrate=True)


def test_tables_beside_ours_do_not_matter(opened: Database, postgres_url: str) -> None:
    execute(opened, "CREATE TABLE spatial_ref_sys (srid integer)")
    schema.open_current(
        locate(url=postgres_url), files.SETTINGS, read_only=False, migrate=True
    ).close()
    assert opened.read(schema.read_status).up_to_date


def test_a_failing_revision_leaves_everything_as_it_was(opened: Database) -> None:
    files.upgrade(opened, "0003")
    execute(
        opened,
        "CREATE INDEX idx_keep ON sessions (model)",
        "ALTER TABLE sessions ADD COLUMN billing_mode text",
    )
    with pytest.raises(MigrationError, match="revision 0005 failed"):
        files.upgrade(opened)
    assert ask(opened, "SELECT version_num FROM alembic_version") == [("0004",)]
    assert ask(opened, "SELECT version FROM schema_version") == [(4,)]


def test_several_open_an_empty_database_at_once(postgres_url: str) -> None:
    barrier = threading.Barrier(6)
    failed: list[BaseException] = []

    def work() -> None:
        barrier.wait(30)
        try:
            schema.open_current(
                locate(url=postgres_url), files.SETTINGS, read_only=False, migrate=True
            ).close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it fails the test
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []


def test_who_holds_the_lock_for_too_long_is_reported(opened: Database) -> None:
    key = schema.walk._ADVISORY_KEY
    hasty = StoreSettings(busy_timeout_s=0.05, upgrade_patience_s=0.1, write_min_attempts=2)
    with opened.engine.begin() as holder:
        holder.exec_driver_sql(f"SELECT pg_advisory_xact_lock({key})")
        with pytest.raises(StoreBusyError):
            schema.upgrade(opened, hasty)
    assert opened.read(schema.read_status).empty
    assert files.upgrade(opened)


def test_what_is_beyond_hermes_moves_up_and_down_with_its_rows(opened: Database) -> None:
    files.upgrade(opened, "0011")
    execute(
        opened,
        *FILL,
        "UPDATE sessions SET system_prompt = '要简短', actual_cost_usd = 0.25",
        "INSERT INTO sessions (id, source, started_at, system_prompt) VALUES ('e', 'cli', 1, '')",
        "UPDATE messages SET content = '[\"no mark here\"]' WHERE id = 1",
    )
    files.upgrade(opened)
    brief = hashlib.sha256("要简短".encode()).hexdigest()
    hashes = "SELECT id, system_prompt, system_prompt_hash, last_active_at FROM sessions"
    assert sorted(ask(opened, hashes)) == [
        ("child", None, brief, 5.0),
        ("e", None, hashlib.sha256(b"").hexdigest(), None),
        ("parent", None, brief, None),
    ]
    assert sorted(ask(opened, "SELECT prompt FROM system_prompts")) == [("",), ("要简短",)]
    assert ask(
        opened,
        "SELECT session_id, input_tokens, actual_cost_usd, first_seen, last_seen "
        "FROM session_model_usage ORDER BY session_id",
    ) == [
        ("child", 3000000000, 0.25, 2.5, 5.0),
        ("parent", 0, 0.25, 1781773226.453548, 1781773226.453548),
    ]
    live = "SELECT content, content_encoding, active, compacted FROM messages ORDER BY id LIMIT 1"
    assert ask(opened, live) == [('["no mark here"]', None, 1, 0)]
    execute(
        opened,
        "UPDATE messages SET content = '[1]', content_encoding = 'json' WHERE id = 1",
        "UPDATE messages SET content = '[\"a\", \"b\"]', content_encoding = 'json-pieces' "
        "WHERE id = 2",
        "UPDATE messages SET platform_message_id = 'p', active = 0 WHERE id = 3",
        "UPDATE sessions SET rewind_count = 3000000000, archived = 1, relation = 'branch'",
        "INSERT INTO delivery_obligations (delivery_id, session_id, target, payload_json, "
        "available_at, created_at, updated_at) VALUES ('d', 'child', 't', '1', 1, 1, 1)",
        "INSERT INTO compression_locks VALUES ('child', 'h', 1, 2)",
        "INSERT INTO gateway_routing VALUES ('s', 'k', '{}', 1)",
    )
    files.downgrade(opened, "0011")
    prompts = "SELECT id, system_prompt FROM sessions ORDER BY id"
    assert ask(opened, prompts) == [("child", "要简短"), ("e", ""), ("parent", "要简短")]
    assert ask(opened, "SELECT content FROM messages ORDER BY id LIMIT 2") == [("[1]",), ('"ab"',)]
    files.upgrade(opened)
    assert ask(opened, "SELECT count(*) FROM messages WHERE active = 1") == [(5,)]
    assert ask(opened, "SELECT count(*) FROM delivery_obligations") == [(0,)]


def test_activity_follows_what_is_written_by_hand(opened: Database) -> None:
    files.upgrade(opened)
    execute(opened, *FILL)
    active = "SELECT last_active_at FROM sessions ORDER BY id"
    for statement, child, parent in (
        ("SELECT 1", 5.0, None),
        ("UPDATE messages SET timestamp = 1.5 WHERE id = 5", 4.0, None),
        ("UPDATE messages SET session_id = 'parent' WHERE id = 4", 3.0, 4.0),
        ("DELETE FROM messages WHERE id = 3", 2.0, 4.0),
        ("DELETE FROM messages", None, None),
    ):
        execute(opened, statement)
        assert ask(opened, active) == [(child,), (parent,)], statement


def test_an_open_store_says_so_once_its_schema_is_another(
    opened: Database, postgres_url: str
) -> None:
    """A program of the release before, as far as the server sees: the number is not its own."""
    calls = {
        "append": lambda db: db.append_message("s", "user", "too late"),
        "load": lambda db: db.get_messages("s"),
        "search": lambda db: db.search_messages("quokka"),
        "list": lambda db: db.list_sessions_rich(),
        "export": lambda db: db.export_all(),
    }
    with SessionDB(url=postgres_url) as db, SessionDB(url=postgres_url, read_only=True) as reading:
        db.create_session("s", "cli")
        db.append_message("s", "user", "quokka")
        for number, error in (
            ("'0999'", SchemaTooNewError),
            ("'0022'", SchemaOutdatedError),
            (f"'{SCHEMA_REVISION}'", None),
        ):
            execute(opened, f"UPDATE alembic_version SET version_num = {number}")
            for name, call in calls.items():
                for store in (db, reading):
                    if error is None and (name != "append" or store is db):
                        assert call(store)
                    elif error is not None:
                        expected = StoreUnavailableError if name == "append" else error
                        with pytest.raises(error if store is db else expected):
                            call(store)
        # One of them at the end, when the number was right again.
        assert [each["content"] for each in db.get_messages("s")] == ["quokka", "too late"]
        files.downgrade(opened, "0004")
        with pytest.raises(SchemaOutdatedError, match="0004"):
            db.get_messages("s")
        files.downgrade(opened, "base")
        with pytest.raises(SchemaOutdatedError):
            db.append_message("s", "user", "too late")


def test_an_upgrade_waits_for_a_call_and_calls_for_an_upgrade(
    opened: Database, postgres_url: str
) -> None:
    with SessionDB(url=postgres_url) as db:
        db.create_session("s", "cli")
        walking = threading.Thread(target=files.downgrade, args=(opened, "0022"))

        def unit(connection: Connection) -> int:
            walking.start()
            walking.join(0.3)
            assert walking.is_alive()
            return connection.execute(text("SELECT count(*) FROM messages_fts")).scalar_one()

        # The revision would take this table away.
        assert db._read(unit) == 0
        walking.join(30)
        assert ask(opened, "SELECT version_num FROM alembic_version") == [("0022",)]
        files.upgrade(opened)

        said: list[BaseException | int] = []

        def append() -> None:
            try:
                said.append(db.append_message("s", "user", "x"))
            except SessionStoreError as error:
                said.append(error)

        appending = threading.Thread(target=append)
        connection: Connection
        with schema.walk.write_lock(opened, files.SETTINGS) as connection:
            schema.walk._history(schema.migrations_folder()).run(
                connection, SCHEMA_REVISION, down=True, end="0022"
            )
            appending.start()
            appending.join(0.3)
            assert said == []
        appending.join(30)
        assert [type(each) for each in said] == [SchemaOutdatedError]
        files.upgrade(opened)
        assert db.message_count() == 0
