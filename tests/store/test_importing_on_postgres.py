"""The same on PostgreSQL, where ids are drawn from a sequence that rows may run ahead of."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from test_importing import fill, one, said

from sessionstore import ImportRejectedError, SessionDB
from sessionstore.records import ImportReport

pytestmark = pytest.mark.postgres


@pytest.fixture
def server(postgres_url: str) -> Iterator[SessionDB]:
    """An empty store on a server."""
    with SessionDB(url=postgres_url) as opened:
        yield opened


def test_what_leaves_a_file_comes_into_a_server_equal(server: SessionDB, tmp_path: Path):
    with SessionDB(tmp_path / "from.db") as db:
        fill(db)
        exported = db.export_all()

    server.import_sessions(exported)

    assert server.export_all() == exported
    assert not server.import_sessions(exported)["conflicts"]
    highest = max(m["id"] for each in exported for m in each["messages"])
    assert server.append_message("root", "user", "an ordinary one") > highest


def test_new_ids_do_not_meet_those_that_came_along(server: SessionDB):
    server.create_session("here", "cli")
    server.append_message("here", "user", "mine")

    server.import_sessions(
        [
            one("kept", messages=[said(id=n) for n in range(2, 7)]),
            one("anew", messages=[said(id=2), said(id=9)]),
            one("later", messages=[said(id=20)]),
            one("unsaid", messages=[said(), said()]),
        ]
    )

    stored = [[m["id"] for m in server.get_messages(each)] for each in ("kept", "anew", "unsaid")]
    assert stored[0] == [2, 3, 4, 5, 6]
    flat = [each for ids in stored for each in ids]
    assert len(set(flat)) == len(flat)
    assert all(ids == sorted(ids) for ids in stored)
    assert server.append_message("here", "user", "next") > 20


def test_what_is_refused_or_only_shown_leaves_nothing(server: SessionDB):
    with pytest.raises(ImportRejectedError):
        server.import_sessions([one("a", messages=[said()]), one("b", title="x" * 600)])
    assert server.import_sessions([one("a", messages=[said()])], dry_run=True)["messages"] == 1

    assert server.session_count() == 0
    assert server.import_sessions([one("c", title="网" * 500, rewind_count=2**62)])["imported"]


def test_what_an_import_adds_is_indexed_like_what_it_brings(server: SessionDB):
    server.import_sessions([one("a", messages=[said(content="kiwi")])])
    grown = one("a", messages=[said(content="kiwi"), said(content="kiwi plum")])

    assert server.import_sessions([grown], on_conflict="extend")["extended"] == ["a"]

    assert server.search_index_left() == 0
    assert len(server.search_messages("kiwi")) == 2


@pytest.mark.parametrize("change", ["an append", "a deletion"])
def test_what_is_written_while_an_import_extends_the_session_is_seen(
    server: SessionDB, postgres_url: str, change: str
):
    first = one("a", messages=[said(content="one")])
    server.import_sessions([first])
    grown = one("a", messages=[said(content="one"), said(content="two")])
    reports: list[ImportReport] = []
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as other:
        if change == "an append":
            other.execute("UPDATE sessions SET message_count = 2 WHERE id = 'a'")
            other.execute(
                "INSERT INTO messages (session_id, role, content, timestamp, active, compacted) "
                "SELECT session_id, role, 'mine', timestamp, 1, 0 FROM messages"
            )
        else:
            other.execute("DELETE FROM messages")
            other.execute("DELETE FROM sessions WHERE id = 'a'")
        importing = threading.Thread(
            target=lambda: reports.append(server.import_sessions([grown], on_conflict="extend"))
        )
        importing.start()
        time.sleep(0.2)
        other.commit()
        importing.join(30)
    (report,) = reports
    texts = [each["content"] for each in server.get_messages("a")]
    if change == "an append":
        assert (report["conflicts"], texts) == (["a"], ["one", "mine"])
    else:
        assert (report["imported"], texts) == (["a"], ["one", "two"])
    session = server.get_session("a")
    assert session is not None
    assert session["message_count"] == 2
