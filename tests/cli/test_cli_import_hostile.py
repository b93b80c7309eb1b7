"""Files that are made to hurt an import: refused with the line, in bounded memory, nothing in."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import COMMAND
from click.testing import CliRunner, Result

from sessionstore import SessionDB
from sessionstore.cli import main

Import = Callable[..., Result]
MB = 10**6


def line(session_id: str, **fields: Any) -> str:
    message = {"role": "user", "timestamp": 2.0, "content": "hello"}
    return json.dumps(
        {"id": session_id, "source": "cli", "started_at": 1.0, "messages": [message], **fields}
    )


@pytest.fixture
def take_in(filled: Path) -> Import:
    """Run the command on a store of four sessions."""

    def run(*arguments: str | Path) -> Result:
        result = CliRunner().invoke(main, ["import", "--db", str(filled), *map(str, arguments)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def with_message(**fields: Any) -> str:
    return line("s2", messages=[{"role": "user", "timestamp": 2.0, **fields}])


DEEP = "[" * 100_000 + "]" * 100_000
BAD = {
    "a field twice": ('{"id": "a", "id": "b"}', "an object has the field 'id' twice"),
    "a field twice within": (
        with_message(content={"x": [{"k": 1}]}).replace('"k": 1', '"k": 1, "k": 2'),
        "the field 'k' twice",
    ),
    "a field twice, escaped": (line("s2")[:-1] + ', "\\u0069d": "x"}', "the field 'id' twice"),
    "deep content": (with_message(content=0).replace(": 0", f": {DEEP}"), "nested too deep"),
    "deep calls": (with_message(tool_calls=0).replace(": 0", f": {DEEP}"), "nested too deep"),
    "deep settings": (line("s2", model_config=0).replace(": 0", f": {DEEP}"), "nested too deep"),
    "deeper than is kept": (
        with_message(content=0).replace(": 0", ": " + "[" * 450 + "]" * 450),
        "nested deeper than 400 levels",
    ),
    "NaN": (with_message(content=[0]).replace("[0]", "[NaN]"), "not JSON"),
    "infinity": (
        line("s2", started_at=0).replace('"started_at": 0', '"started_at": -Infinity'),
        "",
    ),
    "a number beyond floats": (line("s2").replace("1.0", "1e999"), "must be finite"),
    "a number of many digits": (line("s2").replace("1.0", "9" * 5000), ""),
    "an id beyond 64 bits": (with_message(id=2**64), "id must lie between"),
    "a count beyond 64 bits": (line("s2", input_tokens=2**63), "input_tokens"),
    "half a character for an id": (line("a\ud83d"), "half a surrogate pair"),
    "NUL for an id": (line("a\0"), "NUL"),
    "no id": (line(""), "must not be empty"),
    "an id that is a number": (line("s2").replace('"s2"', "2"), "must be text"),
    "an id that is a list": (line("s2").replace('"s2"', "[]"), "must be text"),
    "messages that are a text": (line("s2", messages="x"), "must be a list"),
    "a message that is none": (line("s2", messages=[5]), "a message is an object"),
    "a role that is a list": (with_message().replace('"user"', "[]"), "role"),
    "a time that is a text": (with_message(content="x").replace("2.0", '"2"'), "timestamp"),
    "a time that is true": (with_message(content="x").replace("2.0", "true"), "timestamp"),
    "a field nobody knows": (line("s2", evil=1), "has no field evil"),
    "a mark within": ("\ufeff" + line("s2"), "not JSON"),
    "two values": (line("s2") + line("s3"), "not JSON"),
    "a text after it": (line("s2") + " x", "not JSON"),
    "NUL bytes": ("\0" * 100, "not JSON"),
}


@pytest.mark.parametrize("kind", BAD)
def test_line_3_is_bad_and_nothing_comes_in(
    kind: str, take_in: Import, tmp_path: Path, filled: Path
):
    bad, said = BAD[kind]
    path = tmp_path / "export"
    path.write_text("\n".join([line("n1"), line("n2"), bad, line("n4")]), encoding="utf-8")

    result = take_in(path)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {path}, line 3: ")
    assert said in result.stderr
    assert result.stderr.endswith("; nothing was imported\n")
    assert len(result.stderr) < 1000
    with SessionDB(filled, read_only=True) as db:
        assert db.session_count() == 4


def test_lines_end_as_any_system_ends_them(take_in: Import, tmp_path: Path):
    path = tmp_path / "export"
    path.write_bytes(
        b"\xef\xbb\xbf" + line("n1").encode() + b"\r\n" + line("n2").encode() + b"\r\n"
    )

    assert take_in(path).stdout == "2 sessions imported, 2 messages\n"


def test_what_is_compressed_is_told_as_such(take_in: Import, tmp_path: Path):
    path = tmp_path / "export.jsonl.gz"
    path.write_bytes(gzip.compress(b"0" * 10 * MB))

    result = take_in(path)

    assert result.exit_code == 1
    assert "line 1: this is compressed; unpack it first; nothing was imported" in result.stderr


def test_a_line_that_is_too_long_is_refused_and_the_bound_can_be_set(
    take_in: Import, tmp_path: Path, filled: Path
):
    path = tmp_path / "export"
    path.write_text(line("n1") + "\n" + with_message(content="x" * 2 * MB) + "\n")

    refused = take_in(path, "--longest-line", "1")

    assert refused.exit_code == 1
    assert "line 2: it is longer than 1 MB; --longest-line allows more" in refused.stderr
    with SessionDB(filled, read_only=True) as db:
        assert db.session_count() == 4
    assert take_in(path, "--longest-line", "3").stdout == "2 sessions imported, 2 messages\n"
    assert take_in(path, "--longest-line", "0").exit_code == 2


def test_a_line_as_long_as_the_bound_comes_in(take_in: Import, tmp_path: Path):
    path = tmp_path / "export"
    bare = len(with_message(content=""))
    text = with_message(content="x" * (MB - bare))
    assert len(text) == MB
    for end in ("", "\n"):
        path.write_text(text + end)
        assert take_in(path, "--longest-line", "1").exit_code == 0
    path.write_text(text[:-3] + 'x"}]}')
    assert "longer than 1 MB" in take_in(path, "--longest-line", "1").stderr


def in_little_memory(source: str, store: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Run the real command with 400 MB of addresses."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 * MB, 400 * MB))

    return subprocess.run(
        [*COMMAND, "import", "--db", str(store), source, *more],
        capture_output=True,
        check=False,
        timeout=300,
        preexec_fn=bound,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the bound of memory is Linux's")
def test_a_line_of_a_gigabyte_and_a_device_without_end_are_refused_in_little_memory(
    tmp_path: Path, filled: Path
):
    path = tmp_path / "export"
    with path.open("wb") as stream:
        stream.truncate(1000 * MB)  # zeros that take no room on the disk

    for source in (str(path), "/dev/zero"):
        done = in_little_memory(source, filled)
        assert done.returncode == 1
        assert b"line 1: it is longer than 100 MB" in done.stderr
        assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_millions_of_empty_lines_are_refused_at_the_first(tmp_path: Path, filled: Path):
    path = tmp_path / "export"
    path.write_bytes(b"\n" * 10 * MB)

    done = in_little_memory(str(path), filled)

    assert done.returncode == 1
    assert b"line 1: this is not JSON" in done.stderr


def test_a_pipe_with_a_name_is_read_to_its_end(take_in: Import, tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(line("n1") + "\n"))
    writer.start()

    result = take_in(path)

    writer.join()
    assert result.stdout == "1 session imported, 1 message\n"


def test_a_file_that_is_still_being_written_brings_nothing_in(
    take_in: Import, tmp_path: Path, filled: Path
):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with path.open("w") as stream:
            stream.write(line("n1") + "\n")
            stream.flush()
            stream.write(line("n2")[:40])  # and then the program that writes is killed

    writer = threading.Thread(target=write)
    writer.start()

    result = take_in(path)

    writer.join()
    assert "line 2: this is not JSON" in result.stderr
    with SessionDB(filled, read_only=True) as db:
        assert db.session_count() == 4
