"""Many programs on one PostgreSQL server: nothing is lost, nothing twice, whatever breaks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
from postgres_server import VARIABLE, Server, find_binaries, new_folder
from sqlalchemy import event

from sessionstore import (
    SessionDB,
    SessionNotFoundError,
    StoreBusyError,
    StoreSettings,
    StoreUnavailableError,
    TitleTakenError,
)

pytestmark = pytest.mark.postgres

QUICK = StoreSettings(
    write_patience_s=0.4, write_min_attempts=3, busy_timeout_s=0.05, retry_pause_s=(0.01, 0.02)
)


@pytest.fixture
def url(server_store_url: str) -> str:
    return server_store_url


@pytest.fixture
def other(url: str) -> Iterator[psycopg.Connection]:
    """Another program on the server."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        yield connection
        connection.rollback()


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make all calls at the same moment, each in a thread; give results and errors."""
    barrier = threading.Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        barrier.wait(30)
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - it is a result here
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(one, calls))


def test_eight_programs_write_at_once_and_nothing_is_lost_or_counted_twice(url, start):
    programs = [start("write_sessions", {"url": url}, number) for number in range(8)]
    assert [program.hear() for program in programs] == ["ready"] * 8
    for program in programs:
        program.tell()
    assert [program.rest() for program in programs] == [["done"]] * 8
    with SessionDB(url=url) as db:
        assert (db.session_count(), db.message_count()) == (9, 600)
        shared = db.get_messages("shared")
        assert db.get_session("shared")["message_count"] == len(shared) == 200
        for number in range(8):
            of_one = [m["content"] for m in shared if m["content"].startswith(f"shared {number} ")]
            assert of_one == [f"shared {number} {turn}" for turn in range(1, 50, 2)]


HISTORY = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]


@pytest.fixture
def two(url: str) -> Iterator[tuple[SessionDB, SessionDB]]:
    """Two programs' stores."""
    with SessionDB(url=url) as one, SessionDB(url=url) as another:
        yield one, another


@pytest.mark.parametrize("turn", range(4))
def test_of_what_two_programs_do_at_once_each_is_whole(two, turn):
    """Each reads before it writes, and would undo the other's work if it did not hold the row."""
    one, another = two
    one.create_session("s", "cli", title=f"Trip {turn}")
    at_once(*(partial(db.sync_messages, "s", HISTORY) for db in two))
    assert one.message_count("s") == 2
    at_once(*(partial(db.update_token_counts, "s", 5, model="m") for db in two))
    assert one.get_session("s")["input_tokens"] == 10
    at_once(*(partial(db.update_token_counts, f"late {turn}", 5, model="m") for db in two))
    assert one.get_session(f"late {turn}")["input_tokens"] == 10
    assert [line["input_tokens"] for line in one.usage_by_model()] == [20]
    children = at_once(
        lambda: one.continue_session("s", "child a"),
        lambda: another.continue_session("s", "child b"),
    )
    assert children[0] == children[1]
    assert one.get_descendants("s") == [children[0]]


@pytest.mark.parametrize("turn", range(4))
def test_a_title_taken_at_the_same_moment_names_its_holder(two, turn):
    one, another = two
    one.create_session("a", "cli")
    one.create_session("b", "cli")
    said = at_once(
        lambda: one.set_session_title("a", f"T{turn}"),
        lambda: another.set_session_title("b", f"T{turn}"),
    )
    (taken,) = [each for each in said if each is not True]
    assert isinstance(taken, TitleTakenError)
    assert one.get_session_title(taken.holder) == f"T{turn}"


@pytest.mark.parametrize("turn", range(6))
def test_a_session_deleted_while_others_refer_to_it(two, turn):
    one, another = two
    one.create_session("parent", "cli", system_prompt=f"shared prompt {turn}")
    gone, made, said = at_once(
        lambda: one.delete_session("parent"),
        lambda: another.create_session(
            "child", "cli", parent_session_id="parent", system_prompt=f"shared prompt {turn}"
        ),
        lambda: another.append_message("parent", "user", "hello"),
    )
    assert gone is True
    assert made == "child" or isinstance(made, SessionNotFoundError)
    assert isinstance(said, int | SessionNotFoundError)
    assert one.get_session("parent") is None
    assert one.message_count() == 0
    if made == "child":
        child = one.get_session("child")
        assert (child["system_prompt"], child["parent_session_id"]) == (
            f"shared prompt {turn}",
            None,
        )


def test_tokens_of_a_session_that_is_deleted_at_that_moment_make_it_anew(url, other):
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        other.execute("DELETE FROM sessions WHERE id = 's'")
        counting = threading.Thread(target=db.update_token_counts, args=("s", 5))
        counting.start()
        time.sleep(0.2)
        other.commit()
        counting.join(30)
        session = db.get_session("s")
        assert session is not None
        assert (session["source"], session["input_tokens"]) == ("unknown", 5)


def test_a_real_deadlock_is_broken_and_both_calls_succeed(url):
    """Two transactions lock two rows in opposite order; the server ends one, which runs again."""
    with SessionDB(url=url) as one, SessionDB(url=url) as two:
        for name in "ab":
            one.create_session(name, "cli")
        both_hold = threading.Barrier(2)
        attempts: list[str] = []

        def crosswise(first: str, second: str) -> Callable[[Any], str]:
            def unit(db: Any) -> str:
                attempts.append(first)
                lock = "UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = '{}'"
                db.exec_driver_sql("SET LOCAL lock_timeout = '30s'")
                db.exec_driver_sql("SET LOCAL deadlock_timeout = '50ms'")
                db.exec_driver_sql(lock.format(first))
                if len(attempts) <= 2:
                    both_hold.wait(30)
                db.exec_driver_sql(lock.format(second))
                return first

            return unit

        done = at_once(
            lambda: one._write(crosswise("a", "b")), lambda: two._write(crosswise("b", "a"))
        )
        assert done == ["a", "b"]
        assert len(attempts) == 3
        assert [one.get_session(name)["rewind_count"] for name in "ab"] == [2, 2]


def test_a_row_held_too_long_is_reported_and_nothing_written(url, other):
    with SessionDB(url=url, settings=QUICK) as db:
        db.create_session("s", "cli")
        db.create_session("free", "cli")
        other.execute("SELECT 1 FROM sessions WHERE id = 's' FOR UPDATE")
        with pytest.raises(StoreBusyError, match="nothing was written") as caught:
            db.append_message("s", "user", "x")
        assert caught.value.attempts >= 3
        # It is the row that is held, and not the table.
        assert db.append_message("free", "user", "y")
        other.rollback()
        assert db.append_message("s", "user", "x")
        assert db.message_count() == 2


def test_a_search_that_failed_leaves_nothing_to_the_next_call(url, other):
    """Its cursor, closed by the collector, would abort a transaction that does not know it."""
    with SessionDB(url=url, settings=replace(QUICK, connections=1)) as db:
        db.create_session("s", "cli")
        db.append_messages("s", [{"role": "user", "content": "kiwi"}] * 40)
        other.execute("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
        failed: list[StoreBusyError] = []
        try:
            db.search_messages("kiwi")
        except StoreBusyError as error:
            failed.append(error)
        other.rollback()
        assert failed

        def collected_meanwhile(connection: Any) -> Any:
            connection.exec_driver_sql("SELECT 1")
            failed.clear()
            gc.collect()
            return connection.exec_driver_sql("SELECT 2").scalar()

        assert db._read(collected_meanwhile) == 2


def test_deliveries_are_claimed_past_those_that_another_is_claiming(url, other):
    with SessionDB(url=url, settings=QUICK) as db:
        for number in range(4):
            db.add_delivery("s", "chat", number, delivery_id=f"d{number}")
        other.execute("SELECT 1 FROM delivery_obligations WHERE delivery_id = 'd0' FOR UPDATE")
        assert [each["delivery_id"] for each in db.claim_deliveries("me", 2, 60)] == ["d1", "d2"]


def test_all_routes_are_replaced_while_another_scope_is_written(url, other):
    with SessionDB(url=url, settings=QUICK) as db:
        other.execute("INSERT INTO gateway_routing VALUES ('theirs', 'k', '1', 1)")
        db.replace_gateway_routes("mine", {"a": 1, "b": 2})
        assert db.load_gateway_routes("mine") == {"a": 1, "b": 2}


def test_an_import_goes_on_beside_a_writer_and_their_ids_do_not_meet(url, other):
    exported = [
        {
            "id": "in",
            "source": "cli",
            "started_at": 1.0,
            "messages": [
                {"id": number, "role": "user", "content": "x", "timestamp": 1.0}
                for number in range(1, 6)
            ],
        }
    ]
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        # Drawn, and not committed before the import is.
        other.execute(
            "INSERT INTO messages(session_id, role, content, timestamp) "
            "SELECT 's', 'user', n, 1 FROM generate_series(1, 2) AS n"
        )
        importing = threading.Thread(target=db.import_sessions, args=(exported,))
        importing.start()
        time.sleep(0.2)
        other.commit()
        importing.join(30)
        assert [each["content"] for each in db.get_messages("in")] == ["x"] * 5
        ids = [each["id"] for name in ("s", "in") for each in db.get_messages(name)]
        assert len(set(ids)) == 7
        assert db.append_message("s", "user", "next") > max(ids)


def lose(other: psycopg.Connection) -> None:
    """End every connection of the store, as an administrator or a failing network does."""
    other.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'sessionstore' AND datname = current_database()"
    )
    other.commit()


def test_a_connection_lost_between_two_calls_or_within_one_is_made_anew(url, other):
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        lose(other)
        assert db.append_message("s", "user", "after")
        lose(other)
        assert [each["content"] for each in db.get_messages("s")] == ["after"]
        losses = [1]

        def lost_within(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "INSERT INTO messages" in statement and losses:
                losses.pop()
                lose(other)

        event.listen(db._database.engine, "before_cursor_execute", lost_within)
        assert db.append_message("s", "user", "within")
        assert [each["content"] for each in db.get_messages("s")] == ["after", "within"]
        assert db.get_session("s")["message_count"] == 2


def test_a_connection_that_its_own_call_loses_each_time_is_given_up(url, other):
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        tries: list[int] = []

        def lost_within(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "INSERT INTO messages" in statement:
                tries.append(1)
                lose(other)

        event.listen(db._database.engine, "before_cursor_execute", lost_within)
        with pytest.raises(StoreUnavailableError, match="nothing was written"):
            db.append_message("s", "user", "x")
        assert len(tries) == 3
        event.remove(db._database.engine, "before_cursor_execute", lost_within)
        assert db.message_count("s") == 0


def test_a_connection_lost_while_it_vacuums_is_made_anew_or_told(url, other):
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        lose(other)
        db.vacuum()
        # Held, so that it waits and can be struck.
        other.execute("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
        said: list[Any] = []
        waiting = threading.Thread(target=lambda: said.extend(at_once(db.vacuum)))
        waiting.start()
        waits = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^VACUUM'"
        )
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as third:
            while waiting.is_alive():
                third.execute(f"SELECT pg_terminate_backend(pid) FROM ({waits}) AS found")
                time.sleep(0.02)
        waiting.join(30)
        assert isinstance(said[0], StoreUnavailableError)
        other.rollback()
        db.vacuum()


def test_a_purge_behind_a_transaction_that_stays_open_is_told_and_holds_nobody_up(url, other):
    with SessionDB(url=url, settings=QUICK) as db:
        db.create_session("s", "cli")
        other.execute("SELECT count(*) FROM sessions")
        with pytest.raises(StoreBusyError):
            db.purge_deleted()
        assert db.append_message("s", "user", "x")
        other.rollback()
        db.purge_deleted()
        assert db.message_count() == 1


def test_what_arrives_after_a_summary_keeps_its_place_in_the_index(url):
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        summed_up = db.append_message("s", "user", "kiwi")
        db.append_messages("s", [{"role": "user", "content": f"late {n} kiwi"} for n in range(3)])
        db.archive_and_compact("s", [{"role": "user", "content": "sum"}], through_id=summed_up)
        live = [each["content"] for each in db.get_messages("s")]
        assert live == ["sum", "late 0 kiwi", "late 1 kiwi", "late 2 kiwi"]
        assert db.search_index_left() == 0
        assert db.check_search_index() == []
        assert len(db.search_messages("late")) == 3
        assert db.append_message("s", "user", "next") > db.get_messages("s")[3]["id"]


def test_a_nul_in_what_is_looked_for_is_a_mistake_of_who_asks(url):
    with SessionDB(url=url) as db:
        for call in (
            lambda: db.get_session("a\0"),
            lambda: db.list_sessions_rich(source="\0"),
            lambda: db.append_message("a\0", "user", "x"),
        ):
            with pytest.raises(ValueError, match="NUL"):
                call()
        db.create_session("s", "cli")
        db.append_message("s", "user", "a\0b")
        assert [each["content"] for each in db.get_messages("s")] == ["a\0b"]


def test_a_connection_lost_at_the_commit_is_told_and_the_call_not_made_again(url, other):
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        calls: list[int] = []

        def lost_at_commit(_connection: Any) -> None:
            calls.append(1)
            lose(other)

        event.listen(db._database.engine, "commit", lost_at_commit)
        with pytest.raises(StoreUnavailableError, match="not known whether this call was stored"):
            db.append_message("s", "user", "x")
        event.remove(db._database.engine, "commit", lost_at_commit)
        assert calls == [1]
        # Reading may be done again at no risk.
        assert db.message_count("s") in {0, 1}


def test_an_error_that_was_passed_over_is_not_taken_for_a_success(url):
    with SessionDB(url=url) as db:

        def careless(connection: Any) -> None:
            connection.exec_driver_sql("INSERT INTO state_meta VALUES ('k', 'v')")
            with pytest.raises(Exception, match="division"):
                connection.exec_driver_sql("SELECT 1 / 0")

        with pytest.raises(StoreUnavailableError, match="nothing was written"):
            db._write(careless)
        assert db.get_meta("k") is None


def test_a_standby_or_a_role_without_rights_says_so(url, other):
    if VARIABLE in os.environ:
        pytest.skip("another role may need a password on a server that is only named")
    name = url.rpartition("/")[2].partition("?")[0]
    with SessionDB(url=url) as db:
        db.create_session("s", "cli")
        other.execute("DROP ROLE IF EXISTS reader")
        other.execute("CREATE ROLE reader LOGIN")
        other.execute(f'GRANT CONNECT ON DATABASE "{name}" TO reader')
        other.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        other.commit()
        as_reader = url.replace("postgres@", "reader@")
        try:
            with SessionDB(url=as_reader, read_only=True, migrate=False) as reading:
                assert [each["id"] for each in reading.list_sessions_rich()] == ["s"]
                assert reading.export_all()
                with pytest.raises(StoreUnavailableError, match="read_only"):
                    reading.append_message("s", "user", "x")
            with (
                SessionDB(url=as_reader, migrate=False) as writing,
                pytest.raises(StoreUnavailableError, match="lacks a privilege"),
            ):
                writing.append_message("s", "user", "x")
        finally:
            other.rollback()
            other.execute("DROP OWNED BY reader")
            other.execute("DROP ROLE reader")
            other.commit()


@contextmanager
def role(name: str, other: psycopg.Connection) -> Iterator[None]:
    """A role of that name, for as long as it takes."""
    if VARIABLE in os.environ:
        pytest.skip("another role may need a password on a server that is only named")
    other.execute(f"CREATE ROLE {name} LOGIN")
    other.commit()
    try:
        yield
    finally:
        other.rollback()
        other.execute(f"DROP OWNED BY {name}")
        other.execute(f"DROP ROLE {name}")
        other.commit()


def test_a_role_that_may_not_look_into_the_schema_is_not_told_that_it_is_empty(url, other):
    inside = f"{url}&schema=closed"
    with role("outsider", other):
        try:
            SessionDB(url=inside).close()
            as_outsider = inside.replace("postgres@", "outsider@")
            for options in ({"read_only": True}, {"migrate": False}, {}):
                with pytest.raises(StoreUnavailableError, match="permission denied for schema"):
                    SessionDB(url=as_outsider, **options)
        finally:
            other.execute("DROP SCHEMA closed CASCADE")
            other.commit()


def test_a_role_that_may_not_vacuum_is_not_told_that_it_did(url, other, caplog):
    with role("agent", other):
        other.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO agent"
        )
        other.commit()
        with SessionDB(url=url.replace("postgres@", "agent@"), migrate=False) as db:
            db.create_session("old", "cli", started_at=1.0)
            db.end_session("old", "user_exit")
            with pytest.raises(
                StoreUnavailableError, match=r"may not vacuum .*public\.messages_fts"
            ):
                db.vacuum()
            report = db.maybe_auto_prune_and_vacuum()
    assert report == {"skipped": False, "pruned": 1, "vacuumed": False}
    assert "may not vacuum" in caplog.text


# Appends as an agent does, that looks first whether a call was stored of which it is not known;
# says each text once it is sure of it.
APPENDS_THROUGH_CRASHES = """
import sys, time
from sessionstore import SessionDB, StoreSettings, StoreUnavailableError

url, session, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ends_at = time.monotonic() + 80
db, turn = None, 0
while turn < count and time.monotonic() < ends_at:
    try:
        if db is None:
            db = SessionDB(url=url, settings=StoreSettings(connections=1), migrate=False)
        if turn == 0:
            # The server may have been killed between opening and this.
            db.ensure_session(session, "cli")
        if f"turn {turn}" not in [m["content"] for m in db.get_messages(session)]:
            db.append_message(session, "user", f"turn {turn}")
        print(session, "turn", turn, flush=True)
        turn += 1
    except StoreUnavailableError:
        time.sleep(0.05)
if db is not None:
    db.close()
"""


def _collect(program: subprocess.Popen[str], returned: list[str]) -> None:
    assert program.stdout is not None
    returned.extend(line.strip() for line in program.stdout)


@pytest.mark.parametrize(
    ("writers", "appends", "kills"), [(4, 15, 1), pytest.param(8, 200, 4, marks=pytest.mark.slow)]
)
def test_a_server_killed_and_started_again_keeps_what_returned_and_nothing_twice(
    writers, appends, kills
):
    if find_binaries() is None:
        pytest.skip("a server that is only named cannot be killed")
    server = Server(new_folder())
    with ExitStack() as ends:
        ends.callback(server.remove)
        server.make()
        server.start()
        url = server.url.render_as_string(hide_password=False)
        SessionDB(url=url).close()
        returned: list[str] = []
        programs = [
            ends.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", APPENDS_THROUGH_CRASHES, url, f"s{n}", str(appends)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for n in range(writers)
        ]
        for program in programs:
            ends.callback(program.kill)
        threads = [
            threading.Thread(target=_collect, args=(program, returned)) for program in programs
        ]
        for thread in threads:
            thread.start()
        for kill in range(kills):
            while len(returned) < (kill + 1) * writers * appends // (kills + 2):
                time.sleep(0.01)
            server.stop()
            server.start()
        for program, thread in zip(programs, threads, strict=True):
            thread.join(90)
            assert program.wait(60) == 0
        with SessionDB(url=url) as db:
            for number in range(writers):
                said = [message["content"] for message in db.get_messages(f"s{number}")]
                assert said == [f"turn {turn}" for turn in range(appends)]
                assert db.get_session(f"s{number}")["message_count"] == appends
        assert len(set(returned)) == len(returned) == writers * appends
