"""Several stores in one PostgreSQL database, a schema each: none knows of another."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
import schema_files as files
from sqlalchemy import text
from sqlalchemy.engine import make_url
from test_migration_walk import check_drift

from sessionstore import (
    MigrationError,
    SchemaOutdatedError,
    SessionDB,
    StoreBusyError,
    StoreSettings,
    schema,
)
from sessionstore.engine import open_database
from sessionstore.location import locate
from sessionstore.models import SCHEMA_REVISION

pytestmark = pytest.mark.postgres


def named(url: str, name: str) -> str:
    """The store in a schema, by our own word for it."""
    query = {"schema": name}
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


def by_search_path(url: str, path: str) -> str:
    """The same by what PostgreSQL's clients have for it."""
    query = {"options": f"-csearch_path={path}"}
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


def tables(admin: psycopg.Connection, name: str) -> set[str]:
    found = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [name])
    return {row[0] for row in found}


def test_stores_in_three_schemas_are_fully_apart(postgres_url, admin):
    admin.execute("CREATE SCHEMA by_path")
    urls = [
        postgres_url,
        named(postgres_url, "team_a"),
        # What lies further down the path is another store's.
        by_search_path(postgres_url, "by_path,public"),
    ]
    for number, url in enumerate(urls):
        with SessionDB(url=url) as db:
            assert db.session_count() == 0
            db.create_session("same id", "cli", title="Same title")
            for _ in range(number + 1):
                db.append_message("same id", "user", f"of store {number}")
    for number, url in enumerate(urls):
        with SessionDB(url=url, read_only=True) as db:
            assert db.get_messages("same id")[0]["id"] == 1
            said = [each["content"] for each in db.get_messages("same id")]
            assert said == [f"of store {number}"] * (number + 1)
            assert [each["id"] for each in db.search_messages("store", sort="oldest")] == list(
                range(1, number + 2)
            )
    assert tables(admin, "public") == tables(admin, "team_a") == tables(admin, "by_path")
    for name in ("public", "team_a", "by_path"):
        (found,) = admin.execute(f"SELECT version_num FROM {name}.alembic_version").fetchall()
        assert found == (SCHEMA_REVISION,)
    with SessionDB(url=urls[1]) as db:
        db.vacuum()
        db.optimize()
        db.purge_deleted()


def test_one_goes_down_and_up_and_the_others_stay(postgres_url, admin):
    SessionDB(url=postgres_url).close()
    url = named(postgres_url, "other")
    database = open_database(locate(url=url), files.SETTINGS)
    try:
        files.upgrade(database)
        with database.engine.begin() as connection:
            check_drift(connection)
        files.downgrade(database, "base")
        assert tables(admin, "other") == {"alembic_version"}
        assert len(tables(admin, "public")) > 8
        assert files.upgrade(database, "0003") == ["0001", "0002", "0003"]
        with pytest.raises(SchemaOutdatedError, match=r"is at 0003.*schema=other"):
            SessionDB(url=url, migrate=False)
    finally:
        database.close()
    with SessionDB(url=postgres_url, migrate=False) as db:
        assert db.session_count() == 0


def test_a_schema_that_is_not_there_is_no_store_of_another_schema(postgres_url, admin):
    SessionDB(url=postgres_url).close()
    url = named(postgres_url, "absent")
    for how in ({"migrate": False}, {"read_only": True}):
        with pytest.raises(SchemaOutdatedError) as caught:
            SessionDB(url=url, **how)
        assert "is empty; to make a store of it: sessionstore db upgrade --url" in str(caught.value)
        assert "schema=absent" in str(caught.value)
    assert tables(admin, "absent") == set()
    SessionDB(url=url).close()
    assert tables(admin, "absent") == tables(admin, "public")


@pytest.mark.parametrize("name", ["a b", 'x"; DROP', "1st", "x" * 64, "a,public"])
def test_what_is_no_name_of_a_schema_is_refused(name):
    with pytest.raises(ValueError, match="is not a valid schema name"):
        SessionDB(url=named("postgresql+psycopg://host/name", name))


PATIENT = StoreSettings(
    busy_timeout_s=0.1, upgrade_patience_s=0.5, write_min_attempts=2, retry_pause_s=(0.01, 0.02)
)


def test_an_upgrade_waits_behind_a_long_reader_for_so_long_and_lets_others_pass(
    postgres_url, admin
):
    location = locate(url=postgres_url)
    database = open_database(location, PATIENT)
    reader = psycopg.connect(postgres_url.replace("+psycopg", ""))
    try:
        files.upgrade(database, "0013")
        reader.execute("SELECT count(*) FROM messages")
        with pytest.raises(StoreBusyError, match="Try again, or find the program") as caught:
            schema.upgrade(database, PATIENT)
        assert caught.value.attempts >= 2
        assert database.read(schema.read_status).revision == "0013"

        patient = StoreSettings(busy_timeout_s=0.1, upgrade_patience_s=60)
        upgrading = threading.Thread(target=schema.upgrade, args=(database, patient))
        upgrading.start()
        # Who comes after the upgrade that waits is served between two of its attempts.
        assert admin.execute("SELECT count(*) FROM messages").fetchall() == [(0,)]
        assert upgrading.is_alive()
        reader.rollback()
        upgrading.join(60)
        assert database.read(schema.read_status).up_to_date
    finally:
        reader.close()
        database.close()


def test_a_revision_that_takes_too_long_is_ended_and_said_so(postgres_url, monkeypatch):
    database = open_database(locate(url=postgres_url), files.SETTINGS)
    try:
        files.upgrade(database, "0011")
        monkeypatch.setattr(schema.walk, "_STATEMENT_TIMEOUT_S", 0.05)
        database.write(
            lambda db: db.execute(
                text(
                    "CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS "
                    "$$ BEGIN PERFORM pg_sleep(30); END $$"
                )
            )
        )
        database.write(
            lambda db: db.execute(
                text("CREATE EVENT TRIGGER slow ON ddl_command_end EXECUTE FUNCTION slow()")
            )
        )
        with pytest.raises(MigrationError, match="statement timeout"):
            files.upgrade(database)
        assert database.read(schema.read_status).revision == "0011"
    finally:
        database.close()
