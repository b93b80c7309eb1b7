"""The command says the same of a store on a server as of the file it was copied from."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from cli_helpers import COMMAND, process
from click.testing import CliRunner

from sessionstore import SessionDB
from sessionstore.cli import main

pytestmark = pytest.mark.postgres


@pytest.fixture
def url(server_store_url: str) -> str:
    return server_store_url


@pytest.fixture
def copied(filled, url) -> str:
    result = CliRunner().invoke(main, ["copy", str(filled), url])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("copied 4 sessions with 6 messages, compared in full (SHA-256 ")
    return url


@pytest.mark.parametrize(
    "command",
    [
        ["list", "--all", "--include-children", "--json"],
        ["list", "--title", "FIX", "--json"],
        ["list", "--source", "cli"],
        ["show", "Fix the build", "--full"],
        ["show", "lone"],
        ["search", "网络", "--json"],
        ["export", "--format", "jsonl"],
        ["export", "--format", "trace"],
        ["prune", "--older-than", "1d", "--dry-run", "--json"],
        ["show", "nothing of that name"],
    ],
    ids=" ".join,
)
def test_what_it_says_is_what_it_says_of_the_file(copied, filled, command):
    def say(*where: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, [*where, *command], env={"COLUMNS": "100"})
        return result.exit_code, result.output

    assert say("--url", copied) == say("--db", str(filled))


def test_stats_are_those_of_the_file_but_for_its_bytes(copied, filled):
    def say(*where: str) -> dict:
        result = CliRunner().invoke(main, [*where, "stats", "--json"])
        assert result.exit_code == 0, result.output
        said = json.loads(result.output)
        return {name: value for name, value in said.items() if name not in {"location", "file"}}

    server, file = say("--url", copied), say("--db", str(filled))
    assert {name: server[name] for name in file if name not in {"sizes", "size_bytes"}} == {
        name: file[name] for name in file if name not in {"sizes", "size_bytes"}
    }


def test_commands_that_care_for_it_work_on_a_server_or_say_that_they_are_about_a_file(
    copied, tmp_path
):
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["--url", copied, *arguments])
        return result.exit_code, result.output

    for command in (["optimize"], ["vacuum"], ["purge"], ["db", "check"], ["db", "upgrade"]):
        assert run(*command)[0] == 0, run(*command)
    code, said = run("backup", str(tmp_path / "b.db"))
    assert code == 1
    assert "pg_dump" in said
    code, said = run("restore", str(tmp_path / "b.db"), "--yes")
    assert code == 1
    assert run("pin", "lone")[0] == 0
    assert run("delete", "lone", "--yes")[0] == 0
    with SessionDB(url=copied, read_only=True) as db:
        assert db.get_session("lone") is None


def test_an_empty_database_is_refused_with_the_command_that_makes_a_store_of_it(postgres_url):
    refused = process("--url", postgres_url, "list")
    assert refused.returncode == 1
    said = refused.stderr.decode()
    assert "is empty; to make a store of it: sessionstore db upgrade --url" in said
    made = process("db", "upgrade", "--url", postgres_url)
    assert made.returncode == 0
    assert process("--url", postgres_url, "list").returncode == 0


@pytest.mark.slow
def test_a_copy_killed_in_the_middle_goes_on_when_it_is_run_again(url, path):
    with SessionDB(path) as source:
        source.create_session("s", "cli")
        for _ in range(6):
            source.append_messages("s", [{"role": "user", "content": "x" * 1_000_000}] * 4)
        expected = source.export_all()
    copying = subprocess.Popen([*COMMAND, "copy", str(path), url], stdout=subprocess.DEVNULL)
    with SessionDB(url=url, migrate=False) as target:
        ends_at = time.monotonic() + 60
        while not target.message_count() and time.monotonic() < ends_at:
            time.sleep(0.005)
        copying.kill()
        copying.wait()
        again = process("copy", str(path), url, "--json")
        assert again.returncode == 0, again.stderr
        report = json.loads(again.stdout)
        assert (report["messages"], report["resumed"]) == (24, True)
        assert target.export_all() == expected
        assert process("copy", str(path), url).returncode == 1


def test_copying_what_is_not_there_or_naming_a_third_store_is_refused(url, path):
    absent = process("copy", str(path), url)
    assert (absent.returncode, path.exists()) == (1, False)
    assert process("--db", str(path), "copy", str(path), url).returncode == 2
    assert process("copy", "nonsense://x/y", url).returncode == 1
