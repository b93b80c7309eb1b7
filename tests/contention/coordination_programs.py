"""What the processes of the coordination tests do; each speaks through a pipe."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

from sessionstore import SessionDB


def opened(where: str) -> SessionDB:
    return SessionDB(url=where) if "://" in where else SessionDB(where)


def claim_all(link: Connection, where: str, owner: str, count: int) -> None:
    """Claim three at a time until all are taken; say what one got."""
    with opened(where) as db:
        link.send("ready")
        link.recv()
        got: list[str] = []
        until = time.monotonic() + 30
        while time.monotonic() < until:
            claimed = db.claim_deliveries(owner, 3, lease_seconds=600)
            got += [each["delivery_id"] for each in claimed]
            for each in claimed:
                assert each["claimed_by"] == owner
                assert db.complete_delivery(each["delivery_id"], owner=owner)
            if not claimed and len(db.list_deliveries("delivered")) == count:
                break
        link.send(got)


def lock_in_turn(link: Connection, where: str, owner: str, folder: str) -> None:
    """Hold the lock a few times; within, be the only one to have made a file."""
    with opened(where) as db:
        link.send("ready")
        link.recv()
        held = 0
        until = time.monotonic() + 30
        while held < 5 and time.monotonic() < until:
            if not db.try_acquire_compression_lock("s", owner, ttl_seconds=60):
                time.sleep(0.002)
                continue
            alone = Path(folder) / "alone"
            alone.touch(exist_ok=False)
            time.sleep(0.002)
            alone.unlink()
            assert db.release_compression_lock("s", owner)
            held += 1
        link.send(held)


def ask_once(link: Connection, where: str, call: str, *arguments: object) -> None:
    """Make one call at the moment the test says, and say what it returned."""
    with opened(where) as db:
        link.send("ready")
        link.recv()
        link.send(getattr(db, call)(*arguments))


def replace_routes(link: Connection, where: str, name: str) -> None:
    """Replace all routes again and again, each time with ten of one's own."""
    with opened(where) as db:
        link.send("ready")
        link.recv()
        for turn in range(10):
            db.replace_gateway_routes("t", {f"{name}-{each}": turn for each in range(10)})
        link.send("done")


def claim_and_hang(link: Connection, where: str) -> None:
    """Claim everything for three seconds, then do nothing."""
    db = opened(where)
    link.send([each["delivery_id"] for each in db.claim_deliveries("doomed", 10, lease_seconds=3)])
    time.sleep(600)


def add_the_same(link: Connection, where: str, number: int) -> None:
    """Add the delivery that all add, at the moment the test says."""
    with opened(where) as db:
        link.send("ready")
        link.recv()
        link.send(db.add_delivery("s", "t", number, delivery_id="d"))
