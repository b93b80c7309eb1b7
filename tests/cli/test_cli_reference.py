"""Every command says what it does, and docs/cli.md says the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_helpers import process
from click.testing import CliRunner

from sessionstore.cli import main

REFERENCE = Path(__file__).parents[2] / "docs" / "cli.md"


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


ALL = dict(commands(main))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_and_option_has_help(words: tuple[str, ...]):
    command = ALL[words]

    assert command.help
    assert all(each.help for each in command.params if isinstance(each, click.Option))
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    options = {name for each in command.params for name in each.opts}
    # One names its two stores itself.
    assert {"--db", "--url"} <= options or words == ("copy",)
    if not isinstance(command, click.Group):
        assert f"## `sessionstore {' '.join(words)}" in REFERENCE.read_text()


def test_everything_that_lists_gives_json():
    listing = {
        *(("list",), ("show",), ("search",), ("stats",), ("db", "current"), ("db", "history")),
        *(("archive",), ("delete",), ("prune",), ("doctor",), ("backup",), ("restore",)),
    }

    assert listing <= {
        path for path, command in ALL.items() for each in command.params if "--json" in each.opts
    }


def test_help_is_one_screen_with_the_use_of_every_command():
    shown = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).stdout

    assert len(shown.splitlines()) <= 48
    assert "..." not in shown.partition("Commands:")[2]
    for name in main.commands:
        assert f"\n  {name} " in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands_and_options(shell: str):
    if shell == "zsh":  # one of them tells what all of them are told
        script = process("", _SESSIONSTORE_COMPLETE=f"{shell}_source").stdout.decode()
        assert f"_SESSIONSTORE_COMPLETE={shell}_complete" in script
    words = {"COMP_WORDS": "sessionstore exp", "COMP_CWORD": "1"}
    if shell == "fish":
        words["COMP_CWORD"] = "exp"
    found = process("", _SESSIONSTORE_COMPLETE=f"{shell}_complete", **words).stdout.decode()
    assert "export" in found
    assert "prune" not in found
