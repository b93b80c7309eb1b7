"""A program of the release before and one of this release have the same file open."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import sessionstore
from sessionstore import SchemaOutdatedError, SessionDB, schema
from sessionstore.engine import open_database
from sessionstore.location import locate
from sessionstore.models import SCHEMA_REVISION
from sessionstore.settings import StoreSettings

# The last revision that changes the schema of a file; any later one is for servers, or lists
# messages that are to be indexed again.
LAST = "0024"
BEFORE = f"{int(LAST) - 1:04d}"
SINCE = [f"{number:04d}_*" for number in range(int(LAST), int(SCHEMA_REVISION) + 1)]

# Waits for a line before each of its calls, and says what became of it.
OLD = """
import sys
import sessionstore
from sessionstore import SessionDB, SessionStoreError
assert sessionstore.__file__.startswith(sys.argv[2])

db = SessionDB(sys.argv[1], read_only=sys.argv[3] == "read")
if sys.argv[3] == "write":
    db.create_session("old", "cli")
    db.append_message("old", "user", "quokka of the old program")
print("ready", flush=True)
CALLS = {
    "append": lambda: db.append_message("old", "user", "too late"),
    "list": lambda: [each["id"] for each in db.list_sessions_rich()],
    "load": lambda: len(db.get_messages("old")),
    "search": lambda: len(db.search_messages("quokka")),
    "export": lambda: len(db.export_all()),
    "count": db.session_count,
    "open": lambda: SessionDB(sys.argv[1]).close(),
}
for line in sys.stdin:
    try:
        said = repr(CALLS[line.strip()]())
    except SessionStoreError as error:
        said = type(error).__name__ + " " + str(error)
    print(said, flush=True)
"""
# Appends until it is told off, and says each id that was returned.
OLD_WRITER = """
import sys
import sessionstore
from sessionstore import SessionDB, SchemaTooNewError
assert sessionstore.__file__.startswith(sys.argv[2])

db = SessionDB(sys.argv[1])
db.create_session("busy", "cli")
try:
    for _ in range(3000):
        print(db.append_message("busy", "user", "quokka"), flush=True)
except SchemaTooNewError as error:
    print(error, flush=True)
"""


@pytest.fixture(scope="module")
def old_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This package as it was before a revision: without that, and not knowing of it."""
    folder = tmp_path_factory.mktemp("old")
    leave = shutil.ignore_patterns("__pycache__", *SINCE)
    shutil.copytree(Path(sessionstore.__file__).parent, folder / "sessionstore", ignore=leave)
    if not (folder / "sessionstore" / "migrations").is_dir():
        shutil.copytree(schema.migrations_folder(), folder / "migrations", ignore=leave)
    models = folder / "sessionstore" / "models.py"
    lowered, count = re.subn(
        r'^SCHEMA_REVISION = "\d+"',
        f'SCHEMA_REVISION = "{BEFORE}"',
        models.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    models.write_text(lowered)
    return folder


class Old:
    """A running program of the release before."""

    def __init__(self, script: str, program: Path, path: Path, how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(program), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=program,  # a script that is given so looks for packages there first
            env={**os.environ, "PYTHONPATH": str(program), "PYTHONDONTWRITEBYTECODE": "1"},
            text=True,
        )

    def hear(self) -> str:
        return self.process.stdout.readline().strip()

    def ask(self, call: str) -> str:
        self.process.stdin.write(call + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


def revision(path: Path) -> str:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute("SELECT version_num FROM alembic_version").fetchone()[0]


CALLS = ("append", "list", "load", "search", "export", "count", "open")


@pytest.mark.parametrize("how", ["write", pytest.param("read", marks=pytest.mark.slow)])
def test_a_store_that_is_open_says_so_once_the_file_below_it_is_upgraded(old_program, path, how):
    first = Old(OLD, old_program, path, "write")
    assert first.hear() == "ready"
    old = first if how == "write" else Old(OLD, old_program, path, "read")
    assert how == "write" or old.hear() == "ready"
    assert revision(path) == BEFORE
    assert old.ask("search") == old.ask("load") == "1"

    with SessionDB(path) as db:
        assert revision(path) == SCHEMA_REVISION
        for call in CALLS:
            said = old.ask(call)
            if how == "write" or call not in ("append", "open"):
                assert said.startswith("SchemaTooNewError"), call
                assert f"revision {SCHEMA_REVISION}" in said
                assert BEFORE in said
        assert [row["content"] for row in db.get_messages("old")] == ["quokka of the old program"]
        assert len(db.search_messages("quokka")) == 1
        assert db.check_search_index() == []
    for each in {first, old}:
        each.end()


def test_what_the_old_program_wrote_until_then_is_there(old_program, path):
    old = Old(OLD_WRITER, old_program, path, "")
    ids = [int(old.hear()) for _ in range(20)]
    with SessionDB(path) as db:
        while (said := old.hear()).isdigit():
            ids.append(int(said))
        # It may have met any step of the upgrade.
        steps = range(int(LAST), int(SCHEMA_REVISION) + 1)
        assert any(f"is at revision {step:04d}" in said for step in steps)
        assert BEFORE in said
        assert [row["id"] for row in db.get_messages("busy")] == ids
        assert len(db.search_messages("quokka", limit=10_000)) == len(ids)
        assert db.check_search_index() == []
    old.end()


def test_a_store_that_is_open_says_so_once_the_file_is_taken_back(path):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        below = open_database(locate(path), StoreSettings())
        schema.downgrade(below, StoreSettings(), to=BEFORE)
        below.close()
        for call in (db.session_count, lambda: db.append_message("s", "user", "x")):
            with pytest.raises(SchemaOutdatedError, match=BEFORE):
                call()
    with SessionDB(path) as db:
        assert db.message_count() == 0


def test_a_change_of_the_schema_that_is_no_upgrade_stops_nobody(path):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("CREATE TABLE notes(x)")
        db.append_message("s", "user", "goes on")
        assert db.message_count("s") == 1
