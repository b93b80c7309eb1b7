"""doctor: what it finds, what it says, what it mends, and what it leaves alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run, files_in, sha256

from sessionstore import SessionDB
from sessionstore.upkeep.examine import sqlite_version


def by_hand(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for each in statements:
            raw.execute(each)


def findings(run: Run, *options: str) -> dict[str, Any]:
    told = json.loads(run("doctor", "--json", *options).stdout)
    return {each["subject"]: each for each in told["findings"]}


def canonical(path: Path) -> Sequence[Any]:
    derived = ("message_count", "tool_call_count", "last_active_at")
    with SessionDB(path, read_only=True) as db:
        return [
            {name: value for name, value in each.items() if name not in derived}
            for each in db.export_all()
        ]


def test_a_good_store_is_well(run: Run):
    result = run("doctor")

    assert result.exit_code == 0
    assert "WRONG" not in result.stdout
    assert sqlite3.sqlite_version in result.stdout
    assert {each["state"] for each in findings(run).values()} <= {"ok", "note"}
    for subject in ("file", "references", "schema", "counters", "search index", "prompts"):
        assert f"ok     {subject}: " in result.stdout


@pytest.mark.parametrize(
    ("version", "faulty"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_the_fault_of_a_sqlite_is_known_by_its_version(version: tuple[int, ...], faulty: bool):
    finding = sqlite_version(version)

    assert (finding["state"] == "note") is faulty
    assert ".".join(map(str, version)) in finding["found"]


DAMAGE = {
    "counters": "UPDATE sessions SET message_count = 99 WHERE id = 'lone'",
    "last activity": "UPDATE sessions SET last_active_at = 5 WHERE id = 'lone'",
    "prompts": "INSERT INTO system_prompts(hash, prompt) VALUES ('x', 'nobody has it')",
    "indexes and triggers": "DROP TRIGGER messages_activity_insert",
}


@pytest.mark.parametrize("subject", DAMAGE)
def test_what_is_derived_is_found_and_set_right(run: Run, filled: Path, subject: str):
    by_hand(filled, DAMAGE[subject])
    before = canonical(filled)
    state = "note" if subject == "prompts" else "wrong"

    finding = findings(run)[subject]
    assert finding["state"] == state
    assert finding["means"]
    assert finding["fix"]
    assert run("doctor").exit_code == (1 if state == "wrong" else 0)

    result = run("doctor", "--fix")
    assert result.exit_code == 0, result.output
    assert f"{subject}: repaired" in result.stderr
    assert findings(run)[subject]["state"] == "ok"
    assert canonical(filled) == before


def test_a_changed_index_and_a_missing_one_are_made_as_they_should_be(run: Run, filled: Path):
    by_hand(
        filled,
        "DROP INDEX ix_sessions_activity",
        "CREATE INDEX ix_sessions_activity ON sessions(id)",
        "DROP INDEX idx_sessions_title_unique",
        "CREATE INDEX somebodys_own ON messages(role)",
    )

    found = findings(run)["indexes and triggers"]["found"]
    assert "idx_sessions_title_unique, ix_sessions_activity" in found
    assert "somebodys_own" not in found
    assert run("doctor", "--fix").exit_code == 0


def test_what_refers_to_nothing_is_told_and_stays(run: Run, filled: Path):
    by_hand(filled, "UPDATE messages SET session_id = 'gone' WHERE session_id = 'lone'")

    result = run("doctor", "--fix")

    assert result.exit_code == 1
    assert "1 row of messages refers to a row of sessions that is not there" in result.stdout
    with closing(sqlite3.connect(filled)) as raw:
        left = raw.execute("SELECT count(*) FROM messages WHERE session_id = 'gone'").fetchone()
    assert left == (1,)


def test_a_lost_search_index_is_told_and_made_anew(run: Run, filled: Path):
    by_hand(filled, "DROP TABLE messages_fts")

    assert findings(run)["search index"]["state"] == "wrong"
    assert run("doctor", "--fix").exit_code == 0
    assert findings(run)["search index"]["state"] == "ok"
    assert "20250101_a2" in run("search", "zebra").stdout


def test_a_damaged_file_is_told_and_not_touched(run: Run, filled: Path):
    content = bytearray(filled.read_bytes())
    for at in range(4096, len(content) - 8192, 8192):
        content[at + 100 : at + 3000] = b"\xa5" * 2900
    filled.write_bytes(content)

    result = run("doctor")

    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "Restore a backup" in result.stdout or "could not be looked at" in result.stdout


def test_who_else_may_read_is_said(run: Run, filled: Path):
    filled.chmod(0o644)

    assert "0644" in findings(run)["modes"]["found"]
    assert run("doctor").exit_code == 0


def test_looking_leaves_the_file_as_it_was(run: Run, filled: Path):
    before = canonical(filled), files_in(filled.parent)
    run("doctor")
    assert (canonical(filled), files_in(filled.parent)) == before


def test_a_newer_file_is_refused_untouched(run: Run, filled: Path):
    by_hand(filled, "UPDATE alembic_version SET version_num = '9999'", "PRAGMA wal_checkpoint")
    before = sha256(filled), files_in(filled.parent)

    for options in ([], ["--fix"]):
        result = run("doctor", *options)
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
        assert "9999" in result.stderr
    assert (sha256(filled), files_in(filled.parent)) == before


def test_ids_that_are_no_text_do_not_end_it_and_are_set_right(run: Run, filled: Path):
    by_hand(
        filled,
        "UPDATE sessions SET id = x'6c6fff', message_count = 7 WHERE id = 'lone'",
        "UPDATE sessions SET last_active_at = 1.0 WHERE id = x'6c6fff'",
    )

    said = findings(run)
    assert said["counters"]["found"].startswith("lo\ufffd: ")
    assert said["last activity"]["found"].startswith("lo\ufffd: ")

    assert not any(each["repairable"] for each in findings(run, "--fix").values())
    with closing(sqlite3.connect(filled)) as raw:
        counted = raw.execute("SELECT message_count FROM sessions WHERE id = x'6c6fff'").fetchall()
    assert counted == [(0,)]


def test_a_session_without_its_parent_is_not_told_as_a_message_without_a_session(
    run: Run, filled: Path
):
    by_hand(filled, "UPDATE sessions SET parent_session_id = 'gone' WHERE id = 'lone'")

    said = findings(run)["references"]

    assert said["found"].startswith(
        "1 row of sessions refers to a row of sessions that is not there (rowid "
    )
    assert said["means"] == "Such sessions have lost their parent, and are listed without one."


def test_a_journal_that_others_may_read_is_told(run: Run, filled: Path):
    journal = filled.with_name(f"{filled.name}-journal")
    journal.touch()
    journal.chmod(0o644)
    filled.chmod(0o600)

    assert findings(run)["modes"]["found"] == f"{journal.name} is 0644"
