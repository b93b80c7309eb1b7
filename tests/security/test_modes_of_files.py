"""Who may read the files: the owner only, whatever the umask, unless somebody said otherwise."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sessionstore import SessionDB
from sessionstore.cli import main

Umask = Callable[[int], None]


@pytest.fixture
def umask() -> Iterator[Umask]:
    """Set the umask of this process until the end of the test."""
    before = os.umask(0o022)
    yield lambda value: os.umask(value) and None
    os.umask(before)


def run(*arguments: str | Path) -> None:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == 0, result.output


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {str(each.relative_to(folder)): mode(each) for each in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("value", [0o000, 0o022, 0o077])
def test_the_store_its_log_and_its_backup_are_the_owners_only(
    value: int, tmp_path: Path, umask: Umask
):
    umask(value)
    with SessionDB(tmp_path / "a/b/state.db") as db:
        db.create_session("s", "cli")
        db.backup(tmp_path / "backup.db")

        assert modes(tmp_path) == {
            "a": 0o700,
            "a/b": 0o700,
            "a/b/state.db": 0o600,
            "a/b/state.db-lock": 0o600,
            "a/b/state.db-shm": 0o600,
            "a/b/state.db-wal": 0o600,
            "backup.db": 0o600,
        }


def test_what_the_command_makes_is_the_owners_only(
    tmp_path: Path, path: Path, empty_file: bytes, umask: Umask
):
    umask(0o000)
    path.write_bytes(empty_file)
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "hello")
    folder = tmp_path / "out"
    folder.mkdir(mode=0o755)
    for form in ("jsonl", "html", "md", "qmd", "trace"):
        run("export", "--db", path, "-o", folder / f"one.{form}", "--format", form)
    run("export", "--db", path, "-o", folder / "made/each", "--format", "md")
    run("backup", "--db", path, folder / "backup.db")
    run("restore", "--db", folder / "new/again.db", folder / "backup.db", "--yes")
    run("import", "--db", folder / "taken.db", folder / "one.jsonl")

    made = modes(folder)

    folders = {"made", "made/each", "new"}
    assert {made.pop(name) for name in folders} == {0o700}
    assert made == dict.fromkeys(
        (
            *("backup.db", "made/each/s.md", "new/again.db", "one.html", "one.jsonl", "one.md"),
            *("one.qmd", "one.trace", "taken.db"),
        ),
        0o600,
    )


def test_through_a_link_the_file_behind_it_is_made_private(tmp_path: Path, umask: Umask):
    umask(0o000)
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o755)
    link.symlink_to(real / "state.db")

    with SessionDB(link) as db:
        db.create_session("s", "cli")
        assert modes(tmp_path / "real") == {
            "state.db": 0o600,
            "state.db-lock": 0o600,
            "state.db-shm": 0o600,
            "state.db-wal": 0o600,
        }
    assert link.is_symlink()
    assert mode(real) == 0o755


def test_a_file_that_is_there_keeps_its_mode_and_its_log_has_the_same(
    path: Path, empty_file: bytes, umask: Umask
):
    umask(0o077)
    path.write_bytes(empty_file)
    path.chmod(0o644)

    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.backup(path.parent / "backup.db")

        assert modes(path.parent) == {
            "state.db": 0o644,
            "state.db-lock": 0o600,  # says nothing of what is in the store
            "state.db-shm": 0o644,
            "state.db-wal": 0o644,
            "backup.db": 0o600,  # but what is made of it is the owner's
        }


def test_what_replaces_a_file_is_the_owners_only_though_the_old_one_was_everybodys(
    path: Path, empty_file: bytes, tmp_path: Path, umask: Umask
):
    umask(0o000)
    path.write_bytes(empty_file)
    backup, export = tmp_path / "backup.db", tmp_path / "out.jsonl"
    for each in (backup, export):
        each.touch()
    for each in (backup, export, path):
        assert mode(each) == 0o666

    run("backup", "--force", "--db", path, backup)
    run("export", "--db", path, "-o", export)
    run("restore", "--yes", "--db", path, backup)

    assert [mode(each) for each in (backup, export, path)] == [0o600] * 3
    (kept,) = tmp_path.glob("state.db.before-restore-*")
    assert mode(kept) == 0o666  # the old file itself, under another name
