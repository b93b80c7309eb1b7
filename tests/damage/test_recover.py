"""recover: what can be read of a damaged file comes into a new store, and the rest is told."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from damage_helpers import (
    HERMES,
    PAGE,
    at_revision,
    by_hand,
    change,
    everything,
    messages_of,
    mostly_slow,
    pages_of,
    wipe,
)

from sessionstore import SchemaTooNewError, SessionDB, StoreUnavailableError
from sessionstore.cli import main
from sessionstore.models import SCHEMA_REVISION
from sessionstore.upkeep import recover

# What the others have beside these are columns and tables, which are read by their names.
QUICK = ("0013", "0021")
REVISIONS = [f"{number:04d}" for number in range(1, int(SCHEMA_REVISION) + 1)]


def command(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "80"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def is_sound(path: Path) -> bool:
    told = json.loads(command("doctor", "--json", "--db", str(path)).stdout)
    return told["ok"] and not any(each["state"] == "wrong" for each in told["findings"])


@pytest.fixture
def new(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    return tmp_path / "new" / "saved.db"


def test_a_whole_file_is_saved_in_every_field(filled: Path, new: Path, truth):
    before = filled.read_bytes()
    report = recover(filled, new)
    assert report["whole"]
    assert report["problems"] == []
    assert (report["revision"], report["log"]) == (SCHEMA_REVISION, "none")
    assert everything(new) == truth
    assert is_sound(new)
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert filled.read_bytes() == before
    assert [each.name for each in filled.parent.iterdir() if each.is_file()] == ["state.db"]
    with SessionDB(new) as db, SessionDB(filled) as old:
        assert db.get_meta("key") == "value"
        assert db.load_gateway_routes("scope") == old.load_gateway_routes("scope")
        assert db.list_deliveries("pending") == old.list_deliveries("pending")
        assert db.usage_by_model() == old.usage_by_model()
        # An id that was given once is not given again.
        assert db.append_message("s00", "user", "x") == old.append_message("s00", "user", "x")
        assert db.search_messages("quokka 网络", limit=1)


DAMAGE = {
    "the header": lambda content: content.__setitem__(slice(0, 100), random.randbytes(100)),
    "the first page": lambda content: content.__setitem__(slice(0, PAGE), bytes(PAGE)),
    "the name of the format": lambda content: content.__setitem__(slice(0, 4), b"text"),
    "the size of a page": lambda content: content.__setitem__(slice(16, 18), b"\x12\x34"),
    "pages said to be smaller": lambda content: content.__setitem__(slice(16, 18), b"\x02\0"),
    "pages said to be larger": lambda content: content.__setitem__(slice(16, 18), b"\x20\0"),
    "a part of each page said to be unused": lambda content: content.__setitem__(20, 32),
    "texts said to be UTF-16": lambda content: content.__setitem__(59, 3),
    "one page said to be all": lambda content: content.__setitem__(slice(28, 32), b"\0\0\0\1"),
    "too many pages said to be there": lambda content: content.__setitem__(
        slice(28, 32), b"\x7f" * 4
    ),
    "a tail of zeros": lambda content: content.extend(bytes(3 * PAGE)),
}
OFTEN = ("the header", "the first page", "pages said to be smaller", "texts said to be UTF-16")


@pytest.mark.parametrize("damage", mostly_slow(DAMAGE, OFTEN))
def test_nothing_is_lost_with(filled: Path, new: Path, truth, damage: str):
    change(filled, DAMAGE[damage])
    recover(filled, new)
    assert everything(new) == truth
    assert is_sound(new)


@pytest.mark.parametrize("table", ["messages"])
def test_rows_are_found_when_the_page_above_them_is_gone(filled, new, truth, table):
    above = [
        number
        for number in pages_of(filled, table)
        if filled.read_bytes()[(number - 1) * PAGE] == 5
    ]
    assert above
    wipe(filled, *above, byte=b"\xa5")
    report = recover(filled, new)
    assert not report["whole"]
    assert report["found"][table] > 0
    assert everything(new) == truth


def test_what_is_on_a_damaged_page_is_lost_and_the_rest_is_not(filled, new, truth):
    leaves = [
        number
        for number in pages_of(filled, "messages")
        if filled.read_bytes()[(number - 1) * PAGE] == 13
    ]
    wipe(filled, *leaves[2:5], byte=b"\xa5")
    before, after = messages_of(truth), None
    report = recover(filled, new)
    after = messages_of(everything(new))
    lost = before.keys() - after.keys()
    assert 3 <= len(lost) < len(before) / 3
    assert all(after[each] == before[each] for each in after)
    assert report["messages"] == len(after)
    assert sum(report["short"].values()) == sum(before[each]["active"] for each in lost)
    assert report["problem_count"] == 3
    assert all(str(number) in "".join(report["problems"]) for number in leaves[2:5])
    assert is_sound(new)
    with SessionDB(new) as db:
        assert sum(each["message_count"] for each in db.search_sessions(limit=99)) == sum(
            row["active"] for row in after.values()
        )


def test_damaged_indexes_cost_nothing(filled, new, truth):
    with by_hand(filled) as raw:
        names = [row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE rootpage > 1")]
    doomed = [name for name in names if "idx" in name or "ix_" in name or "fts" in name]
    wipe(filled, *(page for name in doomed for page in pages_of(filled, name)), byte=b"\xff")
    report = recover(filled, new)
    assert report["whole"]
    assert everything(new) == truth
    assert is_sound(new)


def test_entries_of_the_search_index_in_the_schema_may_be_any(filled, new, truth):
    with by_hand(filled) as raw:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute(
            "UPDATE sqlite_master SET sql = 'CREATE VIRTUAL nonsense' WHERE name LIKE '%fts%'"
        )
        raw.execute("DELETE FROM sqlite_master WHERE name LIKE 'messages_fts%' AND rootpage = 0")
    recover(filled, new)
    assert everything(new) == truth
    assert is_sound(new)


def test_a_cut_file_is_saved_up_to_the_cut(filled, new, truth):
    for part in (0.5,):
        cut, saved = filled.with_name(f"{part}.db"), new.with_name(f"{part}.db")
        shutil.copy(filled, cut)
        os.truncate(cut, int(cut.stat().st_size * part) + 7)
        report = recover(cut, saved)
        before, after = messages_of(truth), messages_of(everything(saved))
        assert 0 < len(after) < len(before)
        assert all(after[each] == before[each] for each in after)
        assert "the file ends after" in report["problems"][0]
        assert is_sound(saved)


def test_messages_of_a_lost_session_are_kept_under_a_placeholder(filled, new, truth):
    with by_hand(filled) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("DELETE FROM sessions WHERE id IN ('s00', 's01')")
        raw.execute("DELETE FROM system_prompts WHERE prompt = 'Be brief 2'")
    report = recover(filled, new)
    assert report["placeholders"] == ["s00", "s01"]
    assert report["without_prompt"] == ["s02", "s05", "s08", "s11"]
    assert messages_of(everything(new)) == messages_of(truth)
    assert is_sound(new)
    with SessionDB(new) as db:
        held = db.get_session("s00")
        assert (held["source"], held["message_count"]) == ("recovered", 40)
        assert db.get_session("s03")["parent_session_id"] == "s00"


def test_a_child_of_a_session_that_left_nothing_is_a_conversation_of_its_own(filled, new):
    with by_hand(filled) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for table in ("messages", "session_model_usage"):
            raw.execute(f"DELETE FROM {table} WHERE session_id = 's00'")
        raw.execute("DELETE FROM sessions WHERE id = 's00'")
    report = recover(filled, new)
    assert report["without_parent"] == ["s03"]
    with SessionDB(new) as db:
        child = db.get_session("s03")
        assert (child["parent_session_id"], child["relation"]) == (None, "subagent")


@pytest.fixture
def crashed(filled: Path, tmp_path: Path) -> Path:
    """A file whose latest 30 messages are in its log only."""
    folder = tmp_path / "crashed"
    folder.mkdir()
    with SessionDB(filled) as db:
        db.append_messages("s00", [{"role": "user", "content": f"late {n}"} for n in range(20)])
        for number in range(10):
            db.append_message("s01", "user", f"later {number} " + "x" * 5000)
        for each in ("state.db", "state.db-wal"):
            shutil.copy(filled.with_name(each), folder / each)
    return folder / "state.db"


def late(path: Path) -> int:
    with SessionDB(path) as db:
        return sum(
            str(row["content"]).startswith("late")
            for name in ("s00", "s01")
            for row in db.get_messages(name)
        )


def test_what_is_only_in_the_log_is_saved(crashed: Path, new: Path):
    before = crashed.read_bytes(), Path(f"{crashed}-wal").read_bytes()
    report = recover(crashed, new)
    assert (report["whole"], report["log"], late(new)) == (True, "read", 30)
    assert (crashed.read_bytes(), Path(f"{crashed}-wal").read_bytes()) == before
    assert sorted(each.name for each in crashed.parent.iterdir()) == ["state.db", "state.db-wal"]


def test_without_its_log_the_file_is_saved_as_it_was_before(crashed, new, truth):
    Path(f"{crashed}-wal").unlink()
    assert recover(crashed, new)["log"] == "none"
    assert (late(new), everything(new) == truth) == (0, True)


def test_a_cut_log_is_read_up_to_the_cut(crashed: Path, new: Path):
    log = Path(f"{crashed}-wal")
    os.truncate(log, log.stat().st_size - 3 * (PAGE + 24))
    report = recover(crashed, new)
    assert (report["log"], late(new)) == ("read", 29)


@pytest.mark.parametrize("at", mostly_slow([0, 4, 8, 16, 40, 3000], [3000]))
def test_one_damaged_page_of_the_log_does_not_cost_all_after_it(crashed, new, at):
    # SQLite itself reads a log up to its first damaged page only.
    log = Path(f"{crashed}-wal")
    frames = (log.stat().st_size - 32) // (PAGE + 24)

    def flip(content: bytearray) -> None:
        content[32 + frames // 2 * (PAGE + 24) + at] ^= 0xFF

    change(log, flip)
    report = recover(crashed, new)
    assert any("log" in each for each in report["problems"])
    assert late(new) >= 24
    assert is_sound(new)


def test_a_log_with_a_damaged_header_is_read_but_for_its_first_page(crashed, new):
    change(Path(f"{crashed}-wal"), lambda content: content.__setitem__(slice(0, 32), bytes(32)))
    recover(crashed, new)
    assert late(new) >= 25


def test_the_log_of_another_file_is_left_out(crashed: Path, new: Path, truth, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    with SessionDB(other / "state.db") as db:
        db.create_session("stranger", "cli")
    with SessionDB(other / "state.db") as db:
        db.append_message("stranger", "user", "not yours")
        shutil.copy(other / "state.db-wal", f"{crashed}-wal")
    report = recover(crashed, new)
    assert report["log"] == "left out"
    assert everything(new) == truth


def test_a_journal_of_a_killed_program_is_undone_in_a_copy(filled, new, truth, tmp_path):
    with by_hand(filled) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
    script = (
        "import os, signal, sqlite3, sys\n"
        "raw = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "raw.execute('PRAGMA cache_size = 2')\n"
        "raw.execute('BEGIN IMMEDIATE')\n"
        "raw.execute('UPDATE messages SET content = ? || id', ('half done',))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(filled)], check=False)
    assert Path(f"{filled}-journal").stat().st_size
    before = filled.read_bytes(), Path(f"{filled}-journal").read_bytes()
    report = recover(filled, new)
    assert report["log"] == "read"
    assert everything(new) == truth
    assert (filled.read_bytes(), Path(f"{filled}-journal").read_bytes()) == before


@pytest.mark.parametrize("revision", mostly_slow(REVISIONS, QUICK))
def test_a_file_of_any_revision_becomes_what_an_upgrade_makes_of_it(revision, tmp_path, new):
    path = tmp_path / "old.db"
    at_revision(path, revision)
    report = recover(path, new)
    assert (report["whole"], report["revision"]) == (True, revision)
    upgraded = tmp_path / "upgraded.db"
    shutil.copy(path, upgraded)
    assert everything(new) == everything(upgraded)
    assert is_sound(new)


@pytest.mark.parametrize(
    ("level", "damage"),
    mostly_slow(
        itertools.product(("01", "04", "06", "11"), ("none", "the schema")),
        [("11", "the schema")],
    ),
)
def test_a_file_of_hermes_becomes_what_taking_it_over_makes_of_it(level, damage, tmp_path, new):
    path, taken = tmp_path / "hermes.db", tmp_path / "taken.db"
    for each in (path, taken):
        shutil.copy(HERMES / f"hermes-v{level}.db", each)
    if damage != "none":
        # Every page of the schema, so that tables are known by the look of their rows only.
        wipe(path, *_schema_pages(path))
    report = recover(path, new)
    assert report["whole"] is (damage == "none")
    assert everything(new) == everything(taken)
    assert is_sound(new)


def _schema_pages(path: Path) -> list[int]:
    content = path.read_bytes()
    if content[100] == 13:
        return [1]
    cells = int.from_bytes(content[103:105])
    pointers = struct.unpack(f">{cells}H", content[112 : 112 + 2 * cells])
    below = [int.from_bytes(content[each : each + 4]) for each in pointers]
    return [1, *below, int.from_bytes(content[108:112])]


def test_a_store_without_any_of_its_schema_is_known_by_its_rows(filled, new, truth):
    wipe(filled, *_schema_pages(filled))
    report = recover(filled, new)
    assert everything(new) == truth
    assert report["revision"] == SCHEMA_REVISION
    with SessionDB(new) as db:
        assert db.get_meta("key") == "value"
        assert db.list_deliveries("pending")


def test_columns_and_tables_of_others_come_along(filled, new):
    with by_hand(filled) as raw:
        raw.execute("ALTER TABLE sessions ADD COLUMN mood TEXT")
        raw.execute("UPDATE sessions SET mood = 'good' WHERE id = 's00'")
        raw.execute("CREATE TABLE notes(number INTEGER PRIMARY KEY, note TEXT DEFAULT 'none')")
        raw.execute("INSERT INTO notes VALUES (7, 'mine')")
        raw.execute("CREATE TABLE odd(key TEXT PRIMARY KEY) WITHOUT ROWID")
        raw.execute("INSERT INTO odd VALUES ('k')")
    report = recover(filled, new)
    assert report["not_taken"] == ["odd"]
    assert not report["whole"]
    with by_hand(new) as raw:
        assert raw.execute("SELECT * FROM notes").fetchall() == [(7, "mine")]
        assert raw.execute("SELECT id FROM sessions WHERE mood = 'good'").fetchall() == [("s00",)]


def test_bytes_that_are_no_text_stay_what_they_are(filled, new):
    with by_hand(filled) as raw:
        raw.execute("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = 1")
        raw.execute("UPDATE messages SET content = x'80ff00' WHERE id = 2")
        raw.execute("UPDATE messages SET tool_calls = '[1, ' WHERE id = 3")
    recover(filled, new)
    with by_hand(new) as raw:
        found = raw.execute("SELECT CAST(content AS BLOB), typeof(content) FROM messages LIMIT 2")
        assert found.fetchall() == [(b"a\xffb", "text"), (b"\x80\xff\x00", "blob")]
        assert raw.execute("SELECT tool_calls FROM messages WHERE id = 3").fetchone() == ("[1, ",)


def test_rows_that_were_deleted_do_not_come_back(filled, new):
    """Not from free pages, however damaged the rest is."""
    with by_hand(filled) as raw:
        raw.execute("PRAGMA secure_delete = OFF")
        raw.execute("DELETE FROM messages WHERE session_id IN ('s10', 's11')")
    with SessionDB(filled) as db:
        db.clear_messages("s10")
        db.clear_messages("s11")
    (root, *_) = pages_of(filled, "messages")
    wipe(filled, root)
    recover(filled, new)
    with SessionDB(new) as db:
        assert db.get_messages("s10") == db.get_messages("s11") == []
        assert db.message_count("s00") == 40


def test_nothing_is_written_over_and_nothing_else_is_left(filled: Path, new: Path, tmp_path: Path):
    new.write_text("mine")
    link = new.with_name("link.db")
    link.symlink_to(new.with_name("nowhere.db"))
    for target in (new, filled, Path(f"{filled}-wal"), new.parent, tmp_path / "no" / "new.db"):
        with pytest.raises(StoreUnavailableError):
            recover(filled, target)
    assert new.read_text() == "mine"
    assert sorted(each.name for each in new.parent.iterdir()) == ["link.db", "saved.db"]


@pytest.mark.parametrize("content", [b"", b"just a text\n" * 1000, b"\0" * 20_000, b"x"])
def test_what_holds_no_session_makes_no_store(tmp_path: Path, new: Path, content: bytes):
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailableError) as caught:
        recover(path, new)
    assert "\n" not in str(caught.value)
    assert list(new.parent.iterdir()) == []


def test_another_programs_file_and_a_newer_one_are_refused(filled: Path, new: Path, tmp_path: Path):
    other = tmp_path / "notes.db"
    with by_hand(other) as raw:
        raw.execute("CREATE TABLE notes(x)")
        raw.execute("INSERT INTO notes VALUES (1)")
    with pytest.raises(StoreUnavailableError, match="holds no session"):
        recover(other, new)
    for path in (tmp_path, tmp_path / "absent.db"):
        with pytest.raises(StoreUnavailableError):
            recover(path, new)
    with by_hand(filled) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNewError, match="9999"):
        recover(filled, new)
    assert list(new.parent.iterdir()) == []


def test_the_command_says_what_is_lost_and_ends_with_1(filled: Path, new: Path):
    whole = command("recover", str(filled), "-o", str(new))
    assert whole.exit_code == 0
    assert "Nothing was damaged" in whole.stdout
    leaves = pages_of(filled, "messages")[3:5]
    wipe(filled, *leaves)
    again = new.with_name("again.db")
    damaged = command("recover", str(filled), "-o", str(again), "--json")
    assert damaged.exit_code == 1
    report: dict[str, Any] = json.loads(damaged.stdout)
    assert report["path"] == str(again)
    told = command("recover", str(filled), "-o", str(new.with_name("third.db")))
    for number in leaves:
        assert f"page {number}" in told.stdout
    assert "with fewer messages than they counted" in told.stdout
    refused = command("recover", str(filled), "-o", str(new))
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)


# Bytes are drawn anew for each seed; a failure names it.
@pytest.mark.parametrize("seed", mostly_slow(range(60), [0]))
def test_however_it_is_damaged_what_is_saved_is_sound(filled, new, truth, seed):
    draw = random.Random(seed)

    def damage(content: bytearray) -> None:
        for _ in range(draw.choice((1, 5, 40))):
            at = draw.randrange(len(content))
            length = draw.choice((1, 1, 40, PAGE))
            content[at : at + length] = draw.randbytes(len(content[at : at + length]))

    change(filled, damage)
    report = recover(filled, new)
    assert is_sound(new)
    before, after = messages_of(truth), messages_of(everything(new))
    same = sum(after.get(each) == before[each] for each in before)
    assert same >= len(before) * 0.4, report
