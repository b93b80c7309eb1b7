"""rename, end, reopen, archive, pin, delete, prune: what changes, what is asked, what stays."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from cli_helpers import COMMAND, THEN, Run, process, sha256

from sessionstore import SessionDB, StoreSettings

LONG_AGO = THEN - 400 * 86400


def listed(run: Run, *options: str) -> list[str]:
    return [each["id"] for each in json.loads(run("list", "--json", *options).stdout)]


def test_a_session_gets_another_title_and_loses_it(run: Run):
    assert "has the title Chat" in run("rename", "20250101_a2", "Chat").stdout
    assert run("show", "Chat").exit_code == 0
    taken = run("rename", "lone", "Chat")
    assert (taken.exit_code, len(taken.stderr.splitlines())) == (1, 1)
    assert "20250101_a2" in taken.stderr
    assert "has no title" in run("rename", "Chat", "").stdout


def test_ends_are_kept_and_taken_back(run: Run):
    assert "lone ended" in run("end", "lone", "20250101_a2", "--reason", "done").stdout
    assert "had ended already" in run("end", "lone").stdout
    assert listed(run, "--end-reason", "done") == ["20250101_a2", "lone"]
    run("reopen", "lone")
    assert listed(run, "--end-reason", "done") == ["20250101_a2"]


def test_what_was_put_away_is_listed_on_demand(run: Run):
    run("archive", "lone")
    assert "lone" not in listed(run)
    assert listed(run, "--archived") == ["lone"]
    assert "lone" in listed(run, "--all")
    assert "[archived] a_b%c" in run("list", "--archived").stdout
    assert "half" in run("search", "half").stdout
    run("unarchive", "lone")
    assert "lone" in listed(run)


def test_pinned_ones_come_first_and_are_marked(run: Run):
    run("pin", "20250101_a1")
    assert listed(run)[0] == "20250101_a1"
    assert "[pinned] Fix the build" in run("list").stdout
    assert "[pinned] Fix the build" in run("list", columns=60).stdout
    run("unpin", "20250101_a1")
    assert "[pinned]" not in run("list").stdout


def test_archiving_by_filter_shows_what_goes_and_asks(run: Run, filled: Path):
    run("end", "lone")
    before = sha256(filled)
    seen = run("archive", "--source", "telegram", "--dry-run")
    assert seen.stdout.splitlines()[-1] == "1 session would be archived"
    assert sha256(filled) == before
    refused = run("archive", "--source", "telegram")
    assert refused.exit_code == 1
    assert "--yes" in refused.stderr
    assert "lone" in listed(run)
    assert run("archive", "--source", "telegram", "--yes").exit_code == 0
    assert listed(run, "--archived") == ["lone"]
    assert run("archive").exit_code == 2
    assert run("archive", "lone", "--source", "x").exit_code == 2


def test_archiving_by_age_takes_no_conversation_that_goes_on(run: Run, filled: Path):
    long_ago = time.time() - 100 * 86400
    with SessionDB(filled) as db:
        for name in ("goes on", "is over"):
            db.create_session(name, "old", title=name, started_at=long_ago)
            db.append_message(name, "user", "then", timestamp=long_ago)
            db.continue_session(name, f"{name}, part 2")
        db.append_message("goes on, part 2", "user", "today")
        db.append_message("is over, part 2", "user", "then", timestamp=long_ago + 1)
        db.end_session("is over, part 2", "done")
    seen = run("archive", "--source", "old", "--older-than", "90d", "--dry-run")
    told = [line.partition("  ")[0] for line in seen.stdout.splitlines()]
    assert told == ["is over", "is over, part 2", "2 sessions would be archived"]
    assert "1 conversation left that went on since" in seen.stderr
    done = run("archive", "--source", "old", "--older-than", "90d", "--yes", "--json")
    assert json.loads(done.stdout)["archived"] == ["is over", "is over, part 2"]
    with SessionDB(filled) as db:
        archived = [row["id"] for row in db.export_all() if row["archived"]]
    assert archived == ["is over", "is over, part 2"]
    # Named, it goes with all its parts, whatever they are at.
    done = run("archive", "goes on", "--json")
    assert json.loads(done.stdout)["archived"] == ["goes on", "goes on, part 2"]
    assert json.loads(run("archive", "goes on", "--json").stdout)["archived"] == []


def test_a_list_of_nothing_says_whether_anything_is_stored(run: Run, filled: Path, tmp_path: Path):
    with SessionDB(filled) as db:
        ids = db.session_ids()
    run("archive", *ids)
    told = run("list")
    assert told.stdout == ""
    assert "Nothing to list. --all lists archived ones" in told.stderr
    assert len(listed(run, "--all")) > 1
    with SessionDB(tmp_path / "new.db") as db:
        db.message_count()
    assert "No conversation is stored" in run("list", "--db", str(tmp_path / "new.db")).stderr


def test_deleting_asks_and_refuses_where_nobody_can_be_asked(run: Run, filled: Path):
    seen = run("delete", "lone", "--dry-run")
    assert "1 session with 1 message would be deleted" in seen.stdout
    refused = process("delete", "lone", "--db", str(filled))
    assert refused.returncode == 1
    assert b"--yes" in refused.stderr
    assert "lone" in listed(run)
    assert "1 session with 1 message deleted" in run("delete", "lone", "--yes").stdout
    assert "lone" not in listed(run)
    assert run("delete", "lone", "20250101_a2", "--yes").exit_code == 1
    assert "20250101_a2" in listed(run)  # one name is wrong: nothing is deleted


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("n\n", False)])
def test_an_answer_on_a_terminal_counts(filled: Path, answer: str, gone: bool):
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, "delete", "lone", "--db", str(filled)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(ours, answer.encode())
    _, said = running.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)

    assert b"Delete 1 session with 1 message for good?" in said
    assert running.returncode == (0 if gone else 1)
    with SessionDB(filled, read_only=True) as db:
        assert (db.get_session("lone") is None) == gone


def test_a_purge_leaves_no_byte_of_what_was_deleted(run: Run, filled: Path):
    with SessionDB(filled) as db:
        db.append_message("lone", "user", "canaryword " * 50)
    assert b"canaryword" in filled.read_bytes()

    assert run("delete", "lone", "--purge", "--yes").exit_code == 0

    for each in filled.parent.iterdir():
        assert b"canaryword" not in each.read_bytes()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Old sessions, of which some are spared: open, pinned, archived, or used since."""
    path = tmp_path / "old.db"
    with SessionDB(path, settings=StoreSettings(clock=lambda: LONG_AGO)) as db:
        for name in ("goes", "goes2", "open", "pinned", "archived", "used"):
            db.create_session(name, "cli")
            db.append_message(name, "user", "x")
            if name != "open":
                db.end_session(name, "done")
        db.set_session_pinned("pinned", True)
        db.set_session_archived("archived", True)
        db.append_message("used", "user", "y", timestamp=time.time())
    return path


def test_a_prune_does_what_it_showed(run: Run, old: Path):
    before = sha256(old)
    plan = json.loads(run("prune", "--dry-run", "--json", db=old).stdout)
    assert sha256(old) == before
    assert set(plan["pruned"]) == {"goes", "goes2"}
    assert {each["id"]: each["reason"] for each in plan["skipped"]} == {
        "open": "still open",
        "pinned": "pinned",
        "archived": "archived",
    }
    seen = run("prune", "--dry-run", db=old)
    assert seen.stdout.splitlines()[-1] == (
        "2 sessions with 2 messages would be deleted; 3 skipped"
    )
    assert sorted(seen.stderr.splitlines()) == [
        "1 session stays, archived: archived",
        "1 session stays, pinned: pinned",
        "1 session stays, still open: open",
    ]

    refused = process("prune", "--db", str(old))
    assert refused.returncode == 1
    done = run("prune", "--yes", db=old)
    assert done.stdout.splitlines()[-1] == "2 sessions with 2 messages deleted; 3 skipped"
    with SessionDB(old, read_only=True) as db:
        assert db.session_count() == 4

    nothing_left = json.loads(run("prune", "--yes", "--json", db=old).stdout)
    assert nothing_left == {
        "pruned": [],
        "messages": 0,
        "skipped": plan["skipped"],
        "dry_run": False,
    }


def test_of_many_sessions_that_stay_ten_are_named_and_all_are_counted(run: Run, old: Path):
    with SessionDB(old) as db:
        for number in range(12):
            db.create_session(f"o{number:02}", "open")
    seen = run("prune", "--older-than", "0d", "--source", "open", "--dry-run", db=old)
    assert seen.stdout == "nothing to delete; 12 skipped\n"
    (line,) = seen.stderr.splitlines()
    assert line.startswith("12 sessions stay, still open: o")
    assert line.endswith(" and 2 more")
    assert run("prune", "--source", "nowhere", "--yes", db=old).stdout == "nothing to delete\n"


def test_a_session_that_cannot_go_does_not_keep_the_others(run: Run, old: Path):
    connection = sqlite3.connect(old)
    connection.execute(
        "CREATE TRIGGER stuck BEFORE DELETE ON sessions WHEN old.id = 'goes' "
        "BEGIN SELECT raise(abort, 'stuck'); END"
    )
    connection.commit()
    connection.close()

    for pruned in (1, 0):
        result = run("prune", "--yes", db=old)
        assert result.exit_code == 1
        assert "session goes was not pruned: " in result.stderr
        assert result.stderr.count("stuck") == 1
        assert f"{pruned} session" in result.stdout.splitlines()[-1]


def test_looking_at_90_day_old_sessions_deletes_nothing(run: Run, old: Path):
    for _ in range(3):
        for command in ("list", "stats", "doctor"):
            run(command, db=old)
    with SessionDB(old, read_only=True) as db:
        assert db.session_count() == 6


@pytest.mark.parametrize("command", ["optimize", "vacuum", "purge"])
def test_care_for_the_file_tells_sizes(run: Run, command: str):
    assert run(command).stdout.startswith("from ")
    sizes = json.loads(run(command, "--json").stdout)
    assert set(sizes) == {"bytes_before", "bytes_after"}
    assert run("db", "check").exit_code == 0


def test_a_command_that_writes_makes_and_upgrades_nothing(run: Run, tmp_path: Path):
    absent = tmp_path / "absent.db"
    for arguments in (["end", "x"], ["prune", "--yes"], ["vacuum"], ["pin", "x"]):
        result = run(*arguments, db=absent)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert not absent.exists()
