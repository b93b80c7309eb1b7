"""export, and the text it writes."""

from __future__ import annotations

import json
import math
import os
import stat
import threading
from pathlib import Path

import pytest
from cli_helpers import Run, files_in, sha256
from hypothesis import given
from hypothesis import strategies as st

from sessionstore import SessionDB
from sessionstore.export import json_text, lines


def test_an_export_is_a_session_a_line_with_its_messages(run: Run, filled: Path):
    with SessionDB(filled, read_only=True) as db:
        stored = db.export_all()
    written = run("export").stdout

    assert [json.loads(line) for line in written.splitlines()] == stored
    assert "检查网络配置" in written
    assert "".join(lines(stored)) == written


def test_an_export_holds_the_sessions_that_are_named(run: Run):
    def ids(*options: str) -> list[str]:
        return [json.loads(line)["id"] for line in run("export", *options).stdout.splitlines()]

    assert ids("--session", "Fix the build", "--session", "lo") == ["20250101_a1", "lone"]
    assert ids("--source", "brand-new") == ["20250101_a2"]
    assert ids("--source", "cli", "--session", "lone") == []
    assert run("export", "--session", "20250101_").exit_code == 1


def test_an_export_to_a_file_is_private_and_whole(run: Run, filled: Path, tmp_path: Path):
    target = tmp_path / "out.jsonl"
    target.write_text("an older export\n")

    result = run("export", "-o", str(target))

    assert result.stdout == ""
    assert target.read_bytes() == run("export").stdout_bytes
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert files_in(tmp_path) == {"out.jsonl", "state.db"}


def test_an_export_says_what_it_wrote(run: Run, tmp_path: Path):
    page = tmp_path / "out.jsonl"
    assert f"4 sessions are in {page}\n" in run("export", "-o", str(page)).stderr
    nothing = run("export", "--title", "nowhere", "-o", str(page))
    assert nothing.stderr == f"0 sessions are in {page}\nNo session matches.\n"
    assert run("export", "--title", "nowhere").stderr == "No session matches.\n"
    folder = tmp_path / "talks"
    into = run("export", "--format", "md", "-o", str(folder), "--redact")
    assert into.stderr == f"4 sessions are in {folder}\n"


def test_a_file_in_the_place_of_a_folder_is_told_before_anything_is_written(
    run: Run, tmp_path: Path
):
    folder, file = tmp_path / "talks", tmp_path / "talks.md"
    for name in (f"{folder}/", str(tmp_path)):
        as_folder = run("export", "-o", name)
        assert as_folder.exit_code == 2
        assert "jsonl is one file; name it, or add --format md for a folder" in as_folder.stderr
    several = run("export", "-o", str(file))
    assert several.exit_code == 2
    assert "is one file, for 4 sessions; name a folder with -o" in several.stderr
    assert not folder.exists()
    assert not file.exists()
    folder.write_text("mine")
    taken = run("export", "--format", "md", "-o", str(folder))
    assert taken.stderr == f"Error: {folder} is a file; name a folder with -o\n"
    assert folder.read_text() == "mine"


def test_a_failed_export_keeps_the_older_file(run: Run, tmp_path: Path):
    target = tmp_path / "out.jsonl"
    target.write_text("an older export\n")

    assert run("export", "--session", "zz", "-o", str(target)).exit_code == 1
    assert target.read_text() == "an older export\n"
    missing = run("export", "-o", str(tmp_path / "no" / "out.jsonl"))
    assert missing.exit_code == 1
    assert len(missing.stderr.splitlines()) == 1


@pytest.mark.parametrize("side", ["", "-wal"])
def test_an_export_never_replaces_the_store(run: Run, filled: Path, tmp_path: Path, side: str):
    before = sha256(filled)
    link = tmp_path / "link"
    link.symlink_to(f"{filled}{side}")

    for target in (f"{filled}{side}", str(link)):
        result = run("export", "-o", target)
        assert result.exit_code == 1
        assert "is the store itself" in result.stderr
    assert sha256(filled) == before


def test_an_export_into_a_pipe_goes_through_it(run: Run, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    came: list[bytes] = []
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()))
    reader.start()

    assert run("export", "-o", str(pipe)).exit_code == 0
    reader.join(10)
    assert came == [run("export").stdout_bytes]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_any_value_comes_back_from_its_utf_8(value: object):
    assert json.loads(json_text(value).encode().decode()) == value


def test_half_a_pair_is_escaped_and_nothing_else():
    assert json_text("é 网 😀 \ud83d \u2028") == '"é 网 😀 \\ud83d \u2028"'
    assert json.loads(json_text("\ud83d x \udc00")) == "\ud83d x \udc00"


def test_what_a_damaged_file_holds_does_not_spoil_the_line():
    value = {"at": math.inf, "list": [math.nan, 1.5], "raw": b"\xffab"}

    assert json.loads(json_text(value)) == {"at": None, "list": [None, 1.5], "raw": "\ufffdab"}
