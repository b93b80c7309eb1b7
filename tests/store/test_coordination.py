"""Locks, routes, deliveries and hand-over: who has what, until when, and what survives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sessionstore import SessionDB, SessionNotFoundError

Sql = Callable[..., list[tuple[Any, ...]]]
NOW = 1_700_000_000.0


# ---- locks


def test_a_lock_has_one_holder(timed: SessionDB):
    assert timed.try_acquire_compression_lock("s", "a")
    assert not timed.try_acquire_compression_lock("s", "b")
    assert timed.try_acquire_compression_lock("other", "b")
    assert timed.get_compression_lock_holder("s") == "a"
    assert timed.get_compression_lock_holder("free") is None


def test_the_same_holder_again_has_it_for_longer(timed: SessionDB, clock: Any):
    assert timed.try_acquire_compression_lock("s", "a", ttl_seconds=10)
    clock.now += 9
    assert timed.try_acquire_compression_lock("s", "a", ttl_seconds=10)
    clock.now += 9
    assert timed.get_compression_lock_holder("s") == "a"
    assert not timed.try_acquire_compression_lock("s", "b")


def test_a_lock_whose_time_is_over_is_anybodys(timed: SessionDB, clock: Any):
    timed.try_acquire_compression_lock("s", "a", ttl_seconds=10)
    clock.now += 10
    assert timed.get_compression_lock_holder("s") is None
    assert not timed.refresh_compression_lock("s", "a")
    assert timed.try_acquire_compression_lock("s", "b", ttl_seconds=10)
    assert not timed.refresh_compression_lock("s", "a")
    assert not timed.release_compression_lock("s", "a")
    assert timed.get_compression_lock_holder("s") == "b"


def test_only_its_owner_keeps_or_releases_it(timed: SessionDB, clock: Any):
    timed.try_acquire_compression_lock("s", "a", ttl_seconds=10)
    assert not timed.release_compression_lock("s", "b")
    assert not timed.refresh_compression_lock("s", "b")
    clock.now += 5
    assert timed.refresh_compression_lock("s", "a", ttl_seconds=10)
    clock.now += 9
    assert timed.get_compression_lock_holder("s") == "a"
    assert timed.release_compression_lock("s", "a")
    assert not timed.release_compression_lock("s", "a")
    assert timed.try_acquire_compression_lock("s", "b")


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_a_lock_without_a_time_is_refused(timed: SessionDB, seconds: float, sql: Sql):
    for call in (timed.try_acquire_compression_lock, timed.refresh_compression_lock):
        with pytest.raises(ValueError, match="ttl_seconds"):
            call("s", "a", ttl_seconds=seconds)
    with pytest.raises(ValueError, match="lease_seconds"):
        timed.claim_deliveries("a", lease_seconds=seconds)
    with pytest.raises(ValueError, match="owner must"):
        timed.claim_deliveries("")
    assert sql("SELECT count(*) FROM compression_locks") == [(0,)]


@pytest.mark.parametrize("bad", ["", None])
def test_a_lock_of_nobody_or_nothing_is_refused(timed: SessionDB, bad: Any):
    with pytest.raises(ValueError):
        timed.try_acquire_compression_lock("s", bad)
    with pytest.raises(ValueError):
        timed.try_acquire_compression_lock(bad, "a")


# ---- routes

ENTRY = {"session_id": "s", "路": [1, 2.5, None, True], "half": "\ud83d"}


def test_routes_come_back_as_they_were_saved(timed: SessionDB):
    timed.save_gateway_route("telegram", "chat:2", ENTRY)
    timed.save_gateway_route("telegram", "chat:1", "text")
    timed.save_gateway_route("discord", "chat:1", None)

    assert timed.load_gateway_routes("telegram") == {"chat:1": "text", "chat:2": ENTRY}
    assert list(timed.load_gateway_routes("telegram")) == ["chat:1", "chat:2"]
    assert timed.load_gateway_routes("discord") == {"chat:1": None}
    assert timed.load_gateway_routes("nowhere") == {}


def test_a_route_saved_again_is_replaced(timed: SessionDB, clock: Any, sql: Sql):
    timed.save_gateway_route("t", "k", 1)
    clock.now += 5
    timed.save_gateway_route("t", "k", 2)

    assert timed.load_gateway_routes("t") == {"k": 2}
    assert sql("SELECT updated_at FROM gateway_routing") == [(NOW + 5,)]


def test_all_routes_of_a_scope_are_replaced_and_no_others(timed: SessionDB):
    for key in ("a", "b"):
        timed.save_gateway_route("t", key, key)
    timed.save_gateway_route("other", "a", "stays")

    timed.replace_gateway_routes("t", {"b": 2, "c": 3})

    assert timed.load_gateway_routes("t") == {"b": 2, "c": 3}
    assert timed.load_gateway_routes("other") == {"a": "stays"}
    timed.replace_gateway_routes("t", {})
    assert timed.load_gateway_routes("t") == {}


@pytest.mark.parametrize("bad", [{"b": math.nan}, {"": 1}, {"b": {1, 2}}, {5: 1}, {"a\0": 1}])
def test_a_bad_route_leaves_all_as_they_were(timed: SessionDB, bad: dict[Any, Any]):
    timed.replace_gateway_routes("t", {"a": 1})

    with pytest.raises((ValueError, TypeError)):
        timed.replace_gateway_routes("t", {"c": 3, **bad})

    assert timed.load_gateway_routes("t") == {"a": 1}


@pytest.mark.sqlite_only
def test_a_replacement_that_breaks_in_the_middle_leaves_all(timed: SessionDB, sql: Sql):
    timed.replace_gateway_routes("t", {"a": 1, "b": 2})
    sql(
        "CREATE TRIGGER no BEFORE INSERT ON gateway_routing WHEN new.session_key = 'd' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )

    with pytest.raises(Exception, match="no"):
        timed.replace_gateway_routes("t", {"c": 3, "d": 4})

    assert timed.load_gateway_routes("t") == {"a": 1, "b": 2}


def test_a_route_is_deleted_once(timed: SessionDB):
    timed.save_gateway_route("t", "k", 1)

    assert not timed.delete_gateway_route("other", "k")
    assert timed.delete_gateway_route("t", "k")
    assert not timed.delete_gateway_route("t", "k")


def test_a_damaged_route_does_not_keep_the_others(timed: SessionDB, sql: Sql):
    timed.replace_gateway_routes("t", {"a": 1, "b": 2})
    sql("UPDATE gateway_routing SET entry_json = '{broken' WHERE session_key = 'a'")

    assert timed.load_gateway_routes("t") == {"a": None, "b": 2}


# ---- the outbox


def ids(deliveries: list[Any]) -> list[str]:
    return [each["delivery_id"] for each in deliveries]


def test_what_is_owed_is_claimed_delivered_and_done(timed: SessionDB, clock: Any):
    made = timed.add_delivery("s", "telegram:5", {"text": "答え"})

    (claimed,) = timed.claim_deliveries("worker", 10, lease_seconds=60)

    assert claimed == {
        "delivery_id": made,
        "session_id": "s",
        "target": "telegram:5",
        "payload": {"text": "答え"},
        "state": "claimed",
        "attempts": 1,
        "available_at": NOW,
        "claimed_by": "worker",
        "lease_expires_at": NOW + 60,
        "last_error": None,
        "created_at": NOW,
        "updated_at": NOW,
    }
    clock.now += 5
    assert timed.complete_delivery(made)
    assert not timed.complete_delivery(made)
    assert not timed.fail_delivery(made, "late", retry_at=NOW)
    (done,) = timed.list_deliveries("delivered")
    assert (done["claimed_by"], done["lease_expires_at"], done["updated_at"]) == (
        None,
        None,
        NOW + 5,
    )
    clock.now += 1000
    assert timed.claim_deliveries("worker", 10) == []


def test_the_same_id_twice_is_one_delivery(timed: SessionDB):
    assert timed.add_delivery("s", "t", 1, delivery_id="d") == "d"
    assert timed.add_delivery("s2", "t2", 2, delivery_id="d") == "d"

    (only,) = timed.list_deliveries()
    assert (only["session_id"], only["target"], only["payload"]) == ("s", "t", 1)
    timed.claim_deliveries("w", 1)
    timed.complete_delivery("d")
    timed.add_delivery("s", "t", 1, delivery_id="d")
    assert timed.claim_deliveries("w", 1) == []
    assert len({timed.add_delivery("s", "t", 1) for _ in range(3)}) == 3


def test_a_lease_keeps_others_off_until_it_is_over(timed: SessionDB, clock: Any):
    timed.add_delivery("s", "t", 1, delivery_id="d")
    timed.claim_deliveries("a", 1, lease_seconds=60)

    assert timed.claim_deliveries("b", 1) == timed.claim_deliveries("a", 1) == []
    clock.now += 59.9
    assert timed.claim_deliveries("b", 1) == []
    clock.now += 0.1
    (again,) = timed.claim_deliveries("b", 1, lease_seconds=60)
    assert (again["claimed_by"], again["attempts"]) == ("b", 2)


def test_whoever_lost_the_lease_cannot_settle_what_another_took(timed: SessionDB, clock: Any):
    timed.add_delivery("s", "t", 1, delivery_id="d")
    timed.claim_deliveries("a", 1, lease_seconds=60)
    clock.now += 60
    (taken,) = timed.claim_deliveries("b", 1, lease_seconds=60)

    assert not timed.complete_delivery("d", owner="a")
    assert not timed.fail_delivery("d", "too late", owner="a")
    assert not timed.fail_delivery("d", "too late", retry_at=NOW, owner="a")
    assert timed.list_deliveries() == [taken]
    assert timed.fail_delivery("d", "no network", retry_at=clock.now, owner="b")
    assert not timed.complete_delivery("d", owner="b")  # given back, so nobody's
    timed.claim_deliveries("b", 1, lease_seconds=60)
    clock.now += 1000
    assert timed.complete_delivery("d", owner="b")  # over, but nobody took it


def test_longest_due_comes_first_and_a_limit_is_kept(timed: SessionDB, clock: Any):
    for name in ("third", "first", "second"):
        clock.now = NOW + {"first": 0, "second": 1, "third": 2}[name]
        timed.add_delivery("s", "t", 1, delivery_id=name)
    clock.now = NOW + 10

    assert timed.claim_deliveries("w", 0) == []
    assert ids(timed.claim_deliveries("w", 2)) == ["first", "second"]
    assert ids(timed.claim_deliveries("w", 2)) == ["third"]


def test_a_failure_waits_for_its_time_or_is_final(timed: SessionDB, clock: Any):
    timed.add_delivery("s", "t", 1, delivery_id="d")
    timed.claim_deliveries("w", 1)

    assert timed.fail_delivery("d", "no network", retry_at=NOW + 30)
    (waiting,) = timed.list_deliveries("pending")
    assert (waiting["last_error"], waiting["available_at"]) == ("no network", NOW + 30)
    assert timed.claim_deliveries("w", 1) == []
    clock.now += 30
    (again,) = timed.claim_deliveries("w", 1)
    assert again["attempts"] == 2
    assert timed.fail_delivery("d", "blocked")
    clock.now += 10_000
    assert timed.claim_deliveries("w", 1) == []
    (final,) = timed.list_deliveries("failed")
    assert (final["last_error"], final["attempts"]) == ("blocked", 2)
    assert not timed.fail_delivery("d")
    assert not timed.complete_delivery("d")


def test_an_error_may_hold_any_text(timed: SessionDB):
    timed.add_delivery("s", "t", 1, delivery_id="d")
    timed.claim_deliveries("w", 1)

    assert timed.fail_delivery("d", "bytes \0 and \ud83d", retry_at=NOW)

    (told,) = timed.list_deliveries("pending")
    assert told["last_error"] == "bytes \ufffd and \ufffd"


def test_unknown_deliveries_and_states(timed: SessionDB):
    assert not timed.complete_delivery("nope")
    assert not timed.fail_delivery("nope")
    with pytest.raises(ValueError, match="state"):
        timed.list_deliveries("nope")
    assert timed.list_deliveries("pending") == timed.list_deliveries() == []


@pytest.mark.parametrize("payload", [math.nan, {1: 2}, (1,), object()])
def test_a_payload_that_json_cannot_hold_is_refused(timed: SessionDB, payload: Any):
    with pytest.raises((ValueError, TypeError)):
        timed.add_delivery("s", "t", payload)
    assert timed.list_deliveries() == []


@pytest.mark.parametrize("payload", [None, "", 0, False, [], {"half": "\ud83d", "nul": "\0"}])
def test_a_payload_comes_back_as_it_was(timed: SessionDB, payload: Any):
    timed.add_delivery("s", "t", payload)

    (back,) = timed.list_deliveries()
    assert back["payload"] == payload
    assert type(back["payload"]) is type(payload)


@pytest.mark.parametrize("bad", [0, -1, math.nan])
def test_a_lease_without_a_time_is_refused(timed: SessionDB, bad: float):
    timed.add_delivery("s", "t", 1)
    with pytest.raises(ValueError):
        timed.claim_deliveries("w", 1, lease_seconds=bad)
    with pytest.raises(ValueError):
        timed.claim_deliveries("w", -1)
    with pytest.raises(ValueError):
        timed.claim_deliveries("", 1)
    with pytest.raises(ValueError):
        timed.add_delivery("s", "t", 1, delivery_id="")
    assert timed.list_deliveries("claimed") == []


def test_more_are_claimed_at_once_than_a_statement_takes_parameters(timed: SessionDB, sql: Sql):
    sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000) "
        "INSERT INTO delivery_obligations (delivery_id, session_id, target, payload_json, "
        "available_at, created_at, updated_at) SELECT 'd' || i, 's', 't', '1', 1, 1, 1 FROM n"
    )
    assert len(timed.claim_deliveries("w", 100_000)) == 40_000
    assert timed.claim_deliveries("w", 100_000) == []


# ---- hand-over


def test_a_hand_over_goes_its_way(timed: SessionDB):
    timed.create_session("s", "cli")
    assert timed.get_handoff_state("s") is None
    assert not timed.claim_handoff("s")

    assert timed.request_handoff("s", "telegram")
    assert not timed.request_handoff("s", "discord")
    pending = {"state": "pending", "platform": "telegram", "error": None}
    assert timed.get_handoff_state("s") == pending
    assert [each["id"] for each in timed.list_pending_handoffs()] == ["s"]

    assert timed.claim_handoff("s")
    assert not timed.claim_handoff("s")
    assert timed.list_pending_handoffs() == []
    assert not timed.request_handoff("s", "discord")
    assert timed.complete_handoff("s")
    assert not timed.complete_handoff("s")
    assert not timed.fail_handoff("s", "late")
    assert timed.get_handoff_state("s") == {**pending, "state": "completed"}


def test_a_hand_over_that_failed_can_be_asked_for_again(timed: SessionDB):
    timed.create_session("s", "cli")
    assert not timed.fail_handoff("s", "none was asked for")
    timed.request_handoff("s", "telegram")
    timed.claim_handoff("s")

    assert timed.fail_handoff("s", "bytes \0 and \ud83d")
    failed = {"state": "failed", "platform": "telegram", "error": "bytes \ufffd and \ufffd"}
    assert timed.get_handoff_state("s") == failed
    assert timed.request_handoff("s", "discord")
    pending = {"state": "pending", "platform": "discord", "error": None}
    assert timed.get_handoff_state("s") == pending


def test_a_hand_over_that_is_asked_for_elsewhere_is_not_the_old_platforms(timed: SessionDB):
    timed.create_session("s", "cli")
    timed.request_handoff("s", "telegram")
    timed.claim_handoff("s")
    timed.fail_handoff("s", "took too long")
    timed.request_handoff("s", "discord")

    assert not timed.complete_handoff("s", platform="telegram")
    assert not timed.fail_handoff("s", "late", platform="telegram")
    pending = {"state": "pending", "platform": "discord", "error": None}
    assert timed.get_handoff_state("s") == pending
    timed.claim_handoff("s")
    assert timed.complete_handoff("s", platform="discord")


def test_pending_hand_overs_come_oldest_first(timed: SessionDB):
    for name, started in (("b", 2.0), ("a", 2.0), ("c", 1.0)):
        timed.create_session(name, "cli", started_at=started)
        timed.request_handoff(name, "telegram")

    assert [each["id"] for each in timed.list_pending_handoffs()] == ["c", "a", "b"]


def test_an_unknown_session_is_an_error(timed: SessionDB):
    for call in (
        lambda: timed.request_handoff("nope", "telegram"),
        lambda: timed.claim_handoff("nope"),
        lambda: timed.complete_handoff("nope"),
        lambda: timed.fail_handoff("nope", "error"),
        lambda: timed.get_handoff_state("nope"),
    ):
        with pytest.raises(SessionNotFoundError):
            call()


# ---- a session that is deleted


def test_what_is_owed_survives_the_session_and_its_lock_does_not(timed: SessionDB, sql: Sql):
    timed.create_session("s", "cli")
    timed.try_acquire_compression_lock("s", "a")
    timed.add_delivery("s", "t", "owed", delivery_id="d")
    timed.save_gateway_route("t", "k", {"session_id": "s"})
    timed.request_handoff("s", "telegram")

    assert timed.delete_session("s")

    assert timed.get_compression_lock_holder("s") is None
    assert not timed.refresh_compression_lock("s", "a")
    assert timed.list_pending_handoffs() == []
    assert timed.load_gateway_routes("t") == {"k": {"session_id": "s"}}
    assert ids(timed.claim_deliveries("w", 1)) == ["d"]
    assert timed.complete_delivery("d")
    with pytest.raises(SessionNotFoundError):
        timed.complete_handoff("s")
    assert timed.try_acquire_compression_lock("s", "b")
    assert sql("PRAGMA foreign_key_check") == []
