"""Chains, flags and every way to list them on a PostgreSQL server."""

from __future__ import annotations

import itertools

import pytest
from clocks import Clock

from sessionstore import SessionDB, StoreSettings

pytestmark = pytest.mark.postgres


def fill(db: SessionDB, clock: Clock) -> None:
    """Make a pinned chain, a branch, a subagent, and one conversation that is put away."""
    db.create_session("a", "cli", title="Trip", system_prompt="p")
    db.append_message("a", "user", "one")
    db.set_session_pinned("a", True)
    for parent, child in ("ab", "bc"):
        clock.now += 10
        db.continue_session(parent, child)
        db.append_message(child, "user", f"more in {child}")
    for relation in ("branch", "subagent"):
        clock.now += 10
        db.create_session(relation, "cli", parent_session_id="b", relation=relation)
    clock.now += 10
    db.create_session("away", "cli")
    db.set_session_archived("away", True)
    clock.now += 10
    first = db.append_message("a", "user", "late word in the first part")
    db.append_message("a", "assistant", "yes")
    db.archive_and_compact("a", [{"role": "user", "content": "summary"}], through_id=first)


def told(db: SessionDB) -> list[object]:
    """Say all that lists and chains say."""
    said: list[object] = []
    for children, tips, active, archived, pinned in itertools.product([False, True], repeat=5):
        way = {
            "include_children": children,
            "project_compression_tips": tips,
            "order_by_last_active": active,
            "include_archived": archived,
            "pinned_first": pinned,
        }
        said.append((way, db.list_sessions_rich(**way)))
    said.extend(
        (db.get_lineage(name), db.get_descendants(name), db.get_compression_tip(name))
        for name in ("a", "b", "c", "branch", "subagent", "away", "nope")
    )
    said.append(db.search_sessions(limit=None))
    said.append([each["content"] for each in db.get_messages("a", include_inactive=True)])
    return said


def test_every_list_says_there_what_it_says_here(postgres_url, path, empty_file):
    path.write_bytes(empty_file)
    stores = []
    for where in ({"url": postgres_url}, {"db_path": path}):
        clock = Clock(1_700_000_000.0)
        with SessionDB(**where, settings=StoreSettings(clock=clock)) as db:
            fill(db, clock)
            stores.append(told(db))
            db.delete_session("b")
            stores[-1].extend(told(db))
    assert stores[0] == stores[1]
    assert [entry["id"] for entry in stores[1][0][1]] == ["branch", "a"]
