"""`sessionstore import`: exports and files of Hermes, told by content, all of them or none."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sessionstore import SessionDB
from sessionstore.cli import importing, main

HERMES = Path(__file__).parents[1] / "data" / "hermes"

Import = Callable[..., Result]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the store is, in a folder of its own; nothing is there yet."""
    return tmp_path / "store" / "state.db"


@pytest.fixture
def take_in(target: Path) -> Import:
    """Run the command on the store."""

    def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(
            main, ["import", "--db", str(target), *map(str, arguments)], input=stdin
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def line(session_id: str, **fields: Any) -> str:
    message = {"role": "user", "timestamp": 2.0, "content": "hello"}
    return json.dumps(
        {"id": session_id, "source": "cli", "started_at": 1.0, "messages": [message], **fields}
    )


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of twenty lines."""
    path = tmp_path / "export.jsonl"
    path.write_text("".join(f"{line(f's{n}')}\n" for n in range(1, 21)))
    return path


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A file of a Hermes that is newer than what can be taken over, under an odd name."""
    path = Path(shutil.copy(HERMES / "hermes-v11.db", tmp_path / "hermes.jsonl"))
    connection = sqlite3.connect(path)
    for statement in (
        "UPDATE schema_version SET version = 14",
        "ALTER TABLE sessions ADD COLUMN cwd TEXT",
        "UPDATE sessions SET cwd = '/w'",
        "CREATE TABLE plugin (note TEXT)",
        "INSERT INTO plugin VALUES ('a')",
        "INSERT INTO messages (session_id, role, timestamp) VALUES ('nowhere', 'user', 1.0)",
    ):
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_export_comes_in(take_in: Import, export: Path, target: Path):
    result = take_in(export)

    assert result.exit_code == 0
    assert result.stdout == "20 sessions imported, 20 messages\n"
    assert result.stderr == ""
    with SessionDB(target, read_only=True) as db:
        assert db.session_count() == db.message_count() == 20
    assert target.stat().st_mode & 0o777 == 0o600
    assert take_in(export).stdout == (
        "0 sessions imported, 0 messages\n20 sessions here already, unchanged\n"
    )


def test_what_export_writes_import_takes(take_in: Import, target: Path, tmp_path: Path):
    from_path, written = tmp_path / "from.db", tmp_path / "written"
    with SessionDB(from_path) as db:
        db.create_session("a", "cli", title="网络", started_at=1781773226.453548)
        db.append_message("a", "user", "nul\0 half \ud83d pair \u2028 line")
        db.append_message("a", "user", [{"type": "text", "text": "x"}], timestamp=3.25)
        exported = db.export_all()
    CliRunner().invoke(main, ["export", "--db", str(from_path), "-o", str(written)])

    assert take_in(written).exit_code == 0

    with SessionDB(target, read_only=True) as db:
        assert db.export_all() == exported


def test_a_newer_file_of_hermes_comes_in_and_stays_as_it_is(
    take_in: Import, newer: Path, target: Path
):
    before = sha256(newer)

    result = take_in(newer)

    assert result.stdout.splitlines() == [
        "11 sessions imported, 36 messages",
        f"{newer}: columns that are not known: sessions.cwd (11 rows)",
        f"{newer}: tables that are not read: plugin (1 row), state_meta (2 rows)",
        f"{newer}: left out: messages of no session (1 row)",
    ]
    assert sha256(newer) == before
    assert sorted(each.name for each in newer.parent.iterdir()) == ["hermes.jsonl", "store"]
    with SessionDB(target, read_only=True) as db:
        assert db.message_count() == 36


def test_json_says_all_of_it(take_in: Import, newer: Path, export: Path):
    said = json.loads(take_in(newer, export, "--json").stdout)

    assert len(said.pop("imported")) == 31
    assert said == {
        "unchanged": [],
        "conflicts": [],
        "detached": [],
        "extended": [],
        "retitled": {},
        "messages": 56,
        "dry_run": False,
        "files": [
            {
                "file": str(newer),
                "kind": "state.db",
                "hermes_level": 14,
                "unknown_columns": {"sessions.cwd": 11},
                "unread_tables": {"plugin": 1, "state_meta": 2},
                "left_out": {"messages of no session": 1},
            },
            {"file": str(export), "kind": "export"},
        ],
    }


def test_conflicts_lost_parents_and_titles_are_named(take_in: Import):
    take_in("-", stdin=f"{line('a', title='T')}\n".encode())
    lines = [line("a", title="other"), line("b", title="T"), line("c", parent_session_id="zz")]

    result = take_in("-", stdin="\n".join(lines).encode())

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "2 sessions imported, 2 messages",
        "1 session here already with other content, left as they are here: a",
        "1 session without the parent they name, which is nowhere: c",
        "1 session with a title that is taken got the next number: b is 'T #2'",
    ]


def test_what_a_terminal_would_obey_is_written_out(take_in: Import):
    take_in("-", stdin=f"{line('a' + chr(27) + '[2J')}\n".encode())

    result = take_in("-", stdin=f"{line('a' + chr(27) + '[2J', model='m')}\n".encode())

    assert "\x1b" not in result.stdout
    assert "a\\x1b[2J" in result.stdout


# ---- dry run


def test_a_dry_run_says_the_same_and_makes_nothing(take_in: Import, export: Path, target: Path):
    result = take_in(export, "--dry-run")

    assert result.stdout == "20 sessions would be imported, 20 messages\n"
    assert not target.parent.exists()


def test_a_dry_run_on_a_store_leaves_it_as_it_is(take_in: Import, export: Path, target: Path):
    target.parent.mkdir()
    with SessionDB(target) as db:
        db.create_session("s1", "cli")
    before = sha256(target)

    said = json.loads(take_in(export, "--dry-run", "--json").stdout)

    assert sha256(target) == before
    assert [each.name for each in target.parent.iterdir()] == ["state.db"]
    assert (said["conflicts"], len(said["imported"]), said["dry_run"]) == (["s1"], 19, True)
    assert json.loads(take_in(export, "--json").stdout) == said | {"dry_run": False}


def test_a_dry_run_does_not_upgrade_an_old_store(take_in: Import, export: Path, target: Path):
    target.parent.mkdir()
    shutil.copy(HERMES / "hermes-v06.db", target)
    before = sha256(target)

    result = take_in(export, "--dry-run")

    assert result.exit_code == 1
    assert "db upgrade" in result.stderr
    assert sha256(target) == before


# ---- refused


BAD_LINES = {
    "no JSON": b"{,",
    "an empty line": b"",
    "a cut line": line("s7").encode()[:-5],
    "no UTF-8": b'{"id": "\xff"}',
    "another thing": b"[1, 2]",
    "a missing field": b'{"id": "s7"}',
    "NaN": line("s7").replace("1.0", "NaN").encode(),
    "a deep value": b"[" * 200_000,
    "a huge number": b'{"id": ' + b"1" * 10_000 + b"}",
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_line_7_is_bad_and_nothing_comes_in(
    kind: str, take_in: Import, export: Path, target: Path, newer: Path
):
    lines = export.read_bytes().split(b"\n")
    lines[6] = BAD_LINES[kind]
    export.write_bytes(b"\n".join(lines))

    for files in ([export], [newer, export], [export, newer]):
        result = take_in(*files)

        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith(f"Error: {export}, line 7: ")
        assert result.stderr.endswith("; nothing was imported\n")
        assert result.stderr.count("\n") == 1
        with SessionDB(target, read_only=True) as db:
            assert db.session_count() == 0


def test_a_byte_order_mark_and_an_empty_last_line_are_no_matter(take_in: Import):
    result = take_in("-", stdin=b"\xef\xbb\xbf" + line("a").encode() + b"\r\n\n")

    assert result.stdout == "1 session imported, 1 message\n"


def test_an_empty_file_holds_nothing(take_in: Import, tmp_path: Path):
    (tmp_path / "empty").touch()

    assert take_in(tmp_path / "empty").stdout == "0 sessions imported, 0 messages\n"


def test_other_files_are_refused_in_one_line(take_in: Import, tmp_path: Path, target: Path):
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    take_in("-", stdin=line("a").encode())
    for path, said in (
        (tmp_path / "absent", "No such file"),
        (tmp_path, "is a folder"),
        (other, "has no table sessions"),
        (target, "is the store itself"),
    ):
        result = take_in(path)

        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")
        assert said in result.stderr
        assert result.stderr.count("\n") == 1
    assert take_in().exit_code == 2
    assert take_in(other, "--nonsense").exit_code == 2


def test_progress_shows_where_somebody_watches(
    take_in: Import, export: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importing, "is_terminal", lambda stream: isinstance(stream, io.IOBase))

    result = take_in(export)

    assert result.stderr.endswith("20 sessions read\n")
    assert "read" not in result.stdout
