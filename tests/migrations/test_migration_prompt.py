"""`alembic` at a prompt goes the same way as the package, with the same refusals."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import schema_files as files

Made = Callable[[str], Path]
CHECKOUT = Path(__file__).parents[2]


def alembic(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "alembic", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_upgrade_of_an_absent_file_makes_it_private(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    done = alembic("-x", f"url=sqlite:///{path}", "upgrade", "head")
    assert done.returncode == 0, done.stderr
    assert files.master(path) == files.master(made("head"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files.ask(path, "PRAGMA journal_mode") == [("wal",)]


def test_a_hermes_file_is_adopted(made: Made, tmp_path: Path) -> None:
    path = files.real_file("06", tmp_path)
    done = alembic("upgrade", "head", SESSIONSTORE_URL=f"sqlite:///{path}")
    assert done.returncode == 0, done.stderr
    assert files.texts(path) == files.texts(made("head"))
    assert files.ask(path, "SELECT count(*) FROM messages") == [(36,)]


def test_a_newer_file_is_refused_in_one_line(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    path.write_bytes(made("head").read_bytes())
    with files.raw(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    before = files.digest(path)
    done = alembic("-x", f"url=sqlite:///{path}", "upgrade", "head")
    assert done.returncode != 0
    assert "is at revision 0999" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert files.digest(path) == before
    assert files.side_files(path) == []


def test_check_finds_nothing_to_generate_and_sql_is_refused(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "head.db"
    path.write_bytes(made("head").read_bytes())
    done = alembic("-x", f"url=sqlite:///{path}", "check")
    assert done.returncode == 0, done.stdout + done.stderr
    done = alembic("-x", f"url=sqlite:///{path}", "upgrade", "head", "--sql")
    assert done.returncode != 0
    assert "--sql cannot work" in done.stdout + done.stderr
