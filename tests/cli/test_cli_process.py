"""The command as a process: exit status, pipes, encodings, what it loads."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import COMMAND, process

from sessionstore import SessionDB


def test_the_exit_status_tells_errors_from_wrong_usage(filled: Path):
    missing = process("show", "zz", "--db", str(filled))

    assert missing.returncode == 1
    assert missing.stdout == b""
    assert missing.stderr.count(b"\n") == 1
    assert b"Traceback" not in missing.stderr
    assert process("list", "--no-such-option").returncode == 2
    assert process("--version").returncode == 0


def test_a_group_without_a_command_shows_its_help_in_lines():
    for group, command in (([], "  search "), (["db"], "  upgrade ")):
        shown = process(*group)
        lines = (shown.stdout + shown.stderr).decode().splitlines()
        assert lines[0].startswith("Usage: ")
        assert [line for line in lines if line.startswith(command)]


def test_a_store_named_in_the_wrong_way_is_told_how_to_name_it(tmp_path: Path):
    url = process("list", "--db", "postgresql+psycopg://ann:canary@db.example/agents")
    assert url.returncode == 2
    assert b"--db takes a path; a URL goes to --url" in url.stderr
    assert b"canary" not in url.stderr
    variable = process("list", SESSIONSTORE_URL="state.db")
    assert variable.stderr.startswith(b"Error: SESSIONSTORE_URL is not a database URL; write ")
    absent = tmp_path / "absent.db"
    copied = process("copy", str(absent), str(tmp_path / "new.db"))
    assert copied.returncode == 1
    assert copied.stderr.decode() == f"Error: {absent} does not exist; name an existing store\n"


def test_the_default_store_is_found_at_the_moment_of_asking(filled: Path, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "state.db").write_bytes(filled.read_bytes())

    assert b"Fix the build" in process("list", HERMES_HOME=str(home)).stdout
    named = process("list", SESSIONSTORE_URL=f"sqlite:///{filled}", HERMES_HOME=str(tmp_path))
    assert b"Fix the build" in named.stdout


def test_a_reader_that_leaves_early_is_no_failure(filled: Path):
    with SessionDB(filled) as db:
        db.create_session("big", "cli")
        db.append_messages("big", [{"role": "user", "content": "x" * 5000}] * 100)

    for arguments in (["show", "big"], ["show", "big", "--json"], ["export"], ["list"]):
        running = subprocess.Popen(
            [*COMMAND, *arguments, "--db", str(filled)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert running.stdout
        assert running.stderr
        running.stdout.read(1) if arguments != ["list"] else None
        running.stdout.close()
        said = running.stderr.read()
        running.stderr.close()
        assert (running.wait(60), said) == (0, b""), arguments


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_any_text_goes_out_in_any_encoding(filled: Path, encoding: str):
    shown = process("show", "lone", "--db", str(filled), PYTHONIOENCODING=encoding)
    as_json = process("show", "lone", "--json", "--db", str(filled), PYTHONIOENCODING=encoding)

    assert shown.returncode == 0
    assert b"half \\ud83d a pair" in shown.stdout
    assert json.loads(as_json.stdout.decode(encoding))["title"] == "a_b%c 桂林"
    assert ("桂林".encode() in as_json.stdout) == (encoding == "utf-8")


def test_a_full_disk_is_one_line(filled: Path):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "export", "--db", str(filled)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_a_command_loads_what_it_needs_and_no_more(filled: Path):
    script = (
        "import sys\n"
        "from sessionstore.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(sorted({'alembic', 'rich', 'mako'} & set(sys.modules)), file=sys.stderr)\n"
    )

    def loaded(*arguments: str) -> str:
        run = [sys.executable, "-c", script, "--db", str(filled), *arguments]
        return subprocess.run(run, capture_output=True, check=True, text=True).stderr.strip()

    assert loaded("list", "--json") == "[]"
    assert loaded("list") == "['rich']"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_failure(filled: Path, closed: str):
    for arguments in ("list", "list --json", "show lone", "export --redact", "db check"):
        command = f'"{sys.executable}" -m sessionstore {arguments} --db "{filled}" {closed}'
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), arguments


def test_what_the_store_warns_of_is_talk_but_says_nothing_to_other_programs(tmp_path: Path):
    old = tmp_path / "state.db"

    def make() -> None:
        old.unlink(missing_ok=True)
        connection = sqlite3.connect(old)
        connection.executescript(
            "CREATE TABLE schema_version(version INTEGER); INSERT INTO schema_version VALUES (3);"
            "CREATE TABLE sessions(id TEXT, source TEXT, started_at REAL, title TEXT);"
            "INSERT INTO sessions VALUES ('a', 'cli', 1, 'Kiwi'), ('b', 'cli', 2, 'Kiwi');"
        )
        connection.close()

    make()
    assert b"lost a title" in process("db", "upgrade", "--db", str(old)).stderr
    make()
    script = f"from sessionstore import SessionDB\nSessionDB({str(old)!r}).close()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
