"""Several processes that claim, lock, replace and take on, of which each time one wins."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coordination_programs
import pytest

from sessionstore import SessionDB
from sessionstore.repository import coordination

PROCESSES = 8
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["sessionstore"])

Together = Callable[..., list[Any]]


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store, as a path or as a URL."""
    if request.param == "file":
        return str(tmp_path / "state.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def db(where: str) -> Iterator[SessionDB]:
    """The store, open in the test's own process too."""
    with coordination_programs.opened(where) as opened:
        yield opened


@pytest.fixture
def together() -> Iterator[Together]:
    """Let functions run at once, each in its process; give what each says at the end."""
    running: list[Any] = []

    def run(name: str, calls: list[tuple[Any, ...]]) -> list[Any]:
        links = []
        for arguments in calls:
            ours, theirs = _processes.Pipe()
            process = _processes.Process(
                target=getattr(coordination_programs, name), args=(theirs, *arguments), daemon=True
            )
            process.start()
            theirs.close()
            running.append(process)
            links.append(ours)
        assert [hear(each) for each in links] == ["ready"] * len(calls)
        for each in links:
            each.send("go")
        return [hear(each) for each in links]

    yield run
    for process in running:
        process.join(10)
        process.kill()


def hear(link: Any) -> Any:
    assert link.poll(60), "it says nothing"
    return link.recv()


def test_no_delivery_is_ever_claimed_twice(db: SessionDB, where: str, together: Together):
    for number in range(40):
        db.add_delivery("s", "t", number, delivery_id=f"d{number}")

    got = together("claim_all", [(where, f"w{n}", 40) for n in range(PROCESSES)])

    claimed = [each for ids in got for each in ids]
    assert sorted(claimed) == sorted(f"d{number}" for number in range(40))
    assert {each["attempts"] for each in db.list_deliveries("delivered")} == {1}


def test_two_never_hold_the_lock_at_once(
    db: SessionDB, where: str, together: Together, tmp_path: Path
):
    held = together("lock_in_turn", [(where, f"w{n}", str(tmp_path)) for n in range(4)])

    assert held == [5] * 4
    assert db.get_compression_lock_holder("s") is None


def test_of_many_that_ask_for_a_free_lock_one_gets_it(
    db: SessionDB, where: str, together: Together
):
    call = "try_acquire_compression_lock"
    won = together("ask_once", [(where, call, "s", f"w{n}") for n in range(PROCESSES)])

    assert sorted(won) == [False] * (PROCESSES - 1) + [True]
    assert db.get_compression_lock_holder("s") == f"w{won.index(True)}"


def test_of_many_that_take_a_hand_over_one_gets_it(db: SessionDB, where: str, together: Together):
    db.create_session("s", "cli")
    db.request_handoff("s", "telegram")

    won = together("ask_once", [(where, "claim_handoff", "s")] * PROCESSES)

    assert sorted(won) == [False] * (PROCESSES - 1) + [True]
    assert db.get_handoff_state("s")["state"] == "running"


def test_many_add_the_same_delivery_and_it_is_one(db: SessionDB, where: str, together: Together):
    # The id has to be named, so this goes by a function of its own.
    said = together("add_the_same", [(where, n) for n in range(PROCESSES)])

    assert said == ["d"] * PROCESSES
    assert len(db.list_deliveries()) == 1


def test_routes_are_those_of_one_replacement(db: SessionDB, where: str, together: Together):
    together("replace_routes", [(where, name) for name in "abcd"])

    routes = db.load_gateway_routes("t")
    assert len(routes) == 10
    assert len({key.partition("-")[0] for key in routes}) == 1
    assert set(routes.values()) == {9}


def test_a_replacement_of_routes_waits_for_another(db: SessionDB, where: str):
    """As a mixture of both would be left where each deletes only what it sees."""
    db.replace_gateway_routes("t", {"old": 0})
    later = threading.Thread(target=db.replace_gateway_routes, args=("t", {"later": 2}))

    def first(connection: Any) -> None:
        coordination.replace_routes(connection, "t", {"first": "1"}, now=1.0)
        later.start()
        time.sleep(0.3)

    db._database.write(first)
    later.join(30)

    assert db.load_gateway_routes("t") == {"later": 2}


def test_what_a_killed_owner_had_is_claimable_again_after_its_lease(db: SessionDB, where: str):
    db.add_delivery("s", "t", "owed", delivery_id="d")
    ours, theirs = _processes.Pipe()
    doomed = _processes.Process(
        target=coordination_programs.claim_and_hang, args=(theirs, where), daemon=True
    )
    doomed.start()
    assert hear(ours) == ["d"]
    doomed.kill()
    doomed.join()

    assert db.claim_deliveries("heir", 10) == []
    until = time.monotonic() + 20
    while not (again := db.claim_deliveries("heir", 10)):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert (again[0]["payload"], again[0]["attempts"]) == ("owed", 2)
