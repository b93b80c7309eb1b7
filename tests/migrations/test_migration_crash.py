"""Killed in the middle, or failing: the old state or the new one, nothing between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files

from sessionstore import schema
from sessionstore.errors import MigrationError
from sessionstore.models import SCHEMA_REVISION

Made = Callable[[str], Path]
NEXT = f"{int(SCHEMA_REVISION) + 1:04d}"
STEPS = ("1", "2", "3", "version")

REVISION = f'''"""Three steps, one of which may go wrong.

For tests.
"""
import os
import signal

from alembic import op

revision = "{NEXT}"
down_revision = "{SCHEMA_REVISION}"


def upgrade():
    step("1", "ALTER TABLE sessions ADD COLUMN extra TEXT")
    step("2", "CREATE TABLE extras (id INTEGER PRIMARY KEY, note TEXT)")
    step("3", "INSERT INTO extras SELECT rowid, id FROM sessions")


def step(name, statement):
    if os.environ.get("TEST_RAISE_AT") == name:
        op.execute("INSERT INTO nowhere VALUES (1)")
    op.execute(statement)
    if os.environ.get("TEST_KILL_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)


def downgrade():
    op.execute("DROP TABLE extras")
    op.execute("ALTER TABLE sessions DROP COLUMN extra")
'''
AFTER_THE_VERSION = """
import os as _os
import signal as _signal

if _os.environ.get("TEST_KILL_AT") == "version":
    _found = handed_over.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if _found == "{next}":
        _os.kill(_os.getpid(), _signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The history with one more revision, which can be made to fail."""
    copy = tmp_path / "100% migrations"  # a percent sign means something to Alembic's Config
    shutil.copytree(schema.migrations_folder(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "versions" / f"{NEXT}_three_steps.py").write_text(REVISION)
    with (copy / "env.py").open("a") as env:
        env.write(AFTER_THE_VERSION.replace("{next}", NEXT))
    return copy


@pytest.fixture
def current(made: Made, tmp_path: Path) -> Path:
    path = tmp_path / "current.db"
    path.write_bytes(made("head").read_bytes())
    files.fill(path)
    return path


KILLED_BETWEEN_STATEMENTS = """
import os, pathlib, signal, sys
import schema_files as files
from sqlalchemy import Engine, event

begun, revision = pathlib.Path(sys.argv[1]), sys.argv[2]
done, kill_after = 0, None


@event.listens_for(Engine, "after_cursor_execute")
def count(connection, cursor, statement, *rest):
    global done
    # Those that look change nothing.
    if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA", "BEGIN")):
        done += 1
        if done == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)


whole = begun.with_name("whole.db")
whole.write_bytes(begun.read_bytes())
files.upgrade_file(whole, revision)
for kill_after in sorted({max(done // 2, 1), done}):  # the last one notes the version
    path = begun.with_name(f"killed-{kill_after}.db")
    path.write_bytes(begun.read_bytes())
    child = os.fork()
    if child == 0:
        done = 0
        files.upgrade_file(path, revision)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    print(path, flush=True)
"""


@pytest.mark.parametrize(
    "revision",
    [
        pytest.param(info.id, marks=[pytest.mark.slow] if info.id < "0012" else [])
        for info in schema.history()[1:]
    ],
)
def test_killed_between_the_statements_of_a_revision_the_next_open_finishes(
    revision: str, made: Made, tmp_path: Path
) -> None:
    before = tmp_path / "before.db"
    before.write_bytes(made(str(int(revision) - 1)).read_bytes())
    files.fill(before)
    if "reasoning" in files.columns(before, "messages"):
        with files.raw(before) as connection:
            connection.execute("UPDATE messages SET reasoning = char(0) || 'json:[1]' WHERE id < 3")
    done = subprocess.run(
        [sys.executable, "-c", KILLED_BETWEEN_STATEMENTS, str(before), revision],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed = [Path(line) for line in done.stdout.split()]
    # The revision for servers does nothing in a file but to note its number.
    assert len(killed) >= (1 if revision == "0023" else 2)
    kept, shape = files.all_rows(before), files.shape(before)
    whole = before.with_name("whole.db")
    for path in killed:
        assert files.all_rows(path) == kept
        assert files.shape(path) == shape
        assert files.upgrade_file(path, revision) == [revision]
        assert files.all_rows(path) == files.all_rows(whole)
        assert files.shape(path) == files.shape(made(str(int(revision))))
        assert files.ask(path, "PRAGMA integrity_check") == [("ok",)]
    if revision == "0012":
        files.open_store(killed[-1])
        assert files.texts(killed[-1]) == files.texts(made("head"))


def upgrade_elsewhere(path: Path, folder: Path, **variables: str) -> int:
    program = (
        "import sys, pathlib, schema_files as files\n"
        "path, folder = map(pathlib.Path, sys.argv[1:])\n"
        "files.upgrade_file(path, folder=folder)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(path), str(folder)],
        cwd=Path(__file__).parent,
        env={**os.environ, **variables},
        check=False,
    ).returncode


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_upgrade_is_done_whole_at_the_next_open(
    step: str, current: Path, folder: Path
) -> None:
    before = files.shape(current)
    kept = files.all_rows(current)
    assert upgrade_elsewhere(current, folder, TEST_KILL_AT=step) == -signal.SIGKILL
    # Whoever opens it next sees the state before, whole.
    assert files.shape(current) == before
    assert files.ask(current, "SELECT version_num FROM alembic_version") == [(SCHEMA_REVISION,)]

    assert files.upgrade_file(current, folder=folder) == [NEXT]
    assert files.ask(current, "SELECT version_num FROM alembic_version") == [(NEXT,)]
    assert files.columns(current, "sessions")["extra"] == ("TEXT", 0, None)
    assert files.ask(current, "SELECT note FROM extras ORDER BY id") == [
        ("parent",),
        ("child",),
        ("alone",),
    ]
    assert not [name for name in files.master(current) if name.startswith("_alembic")]
    after = files.all_rows(current)
    assert after["messages"] == kept["messages"]
    assert [{**row, "extra": None} for row in kept["sessions"]] == after["sessions"]
    assert files.texts(current) == before[0]
    assert files.ask(current, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("step", STEPS)
def test_an_old_file_killed_in_its_last_revision_keeps_the_others(
    step: str, tmp_path: Path, folder: Path
) -> None:
    path = files.real_file("01", tmp_path)
    assert upgrade_elsewhere(path, folder, TEST_KILL_AT=step) == -signal.SIGKILL
    assert files.status(path).revision == SCHEMA_REVISION
    files.upgrade_file(path, folder=folder)
    assert files.ask(path, "SELECT count(*) FROM messages") == [(36,)]
    assert files.ask(path, "SELECT count(*) FROM extras") == [(11,)]


@pytest.mark.parametrize("step", ["1", "2", "3"])
def test_a_failing_revision_leaves_the_file_as_it_was(
    step: str, current: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files.ask(current, "SELECT * FROM sqlite_master")
    rows = files.all_rows(current)
    monkeypatch.setenv("TEST_RAISE_AT", step)
    with pytest.raises(MigrationError) as caught:
        files.upgrade_file(current, folder=folder)
    assert f"revision {NEXT} failed (no such table: nowhere)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "nowhere" in str(caught.value.__cause__)
    assert files.ask(current, "SELECT * FROM sqlite_master") == before
    assert files.ask(current, "SELECT version_num FROM alembic_version") == [(SCHEMA_REVISION,)]
    assert files.all_rows(current) == rows

    monkeypatch.delenv("TEST_RAISE_AT")
    assert files.upgrade_file(current, folder=folder) == [NEXT]


def test_the_same_connection_works_after_a_failure(
    current: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_RAISE_AT", "2")
    with files.database(current) as opened:
        for _ in range(6):  # more often than there are connections
            with pytest.raises(MigrationError):
                files.upgrade(opened, folder=folder)
            checked = opened.read(
                lambda connection: connection.exec_driver_sql("PRAGMA foreign_keys").scalar()
            )
            assert checked == 1
        monkeypatch.delenv("TEST_RAISE_AT")
        assert files.upgrade(opened, folder=folder) == [NEXT]


def test_a_revision_that_orphans_rows_is_undone(current: Path, folder: Path) -> None:
    with files.raw(current) as connection:
        # One that was broken before does not count.
        connection.execute("UPDATE sessions SET parent_session_id = 'ghost' WHERE id = 'alone'")
    path = folder / "versions" / f"{NEXT}_three_steps.py"
    statement = "DELETE FROM sessions WHERE id = 'parent'"
    path.write_text(
        path.read_text().replace("INSERT INTO extras SELECT rowid, id FROM sessions", statement)
    )
    with pytest.raises(MigrationError, match="6 rows lost what they refer to"):
        files.upgrade_file(current, folder=folder)
    assert files.ask(current, "SELECT count(*) FROM sessions") == [(3,)]
