"""Write docs/cli.md from the commands themselves: `python -m sessionstore.cli.reference`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from sessionstore.cli import main

_EVERYWHERE = {"db", "url", "help", "version"}

_INTRODUCTION = """\
# The command `sessionstore`

Written by `python -m sessionstore.cli.reference > docs/cli.md`; a test holds it against the
commands.

Results go to stdout, talk goes to stderr. Exit status: 0 fine, 1 an error, told in one line,
2 wrong usage. `NO_COLOR` is honoured, in a pipe nothing is cut or coloured, and what a stored
text could make a terminal do is written out instead, such as `\\x1b`.

Every command takes, before its name or after it:

| option | |
| --- | --- |
| `--db PATH` | The store, as an SQLite file. |
| `--url URL` | The store, as an SQLAlchemy URL. |
| `-h`, `--help` | What the command does. |

Without either, the store is `SESSIONSTORE_URL`, else `$HERMES_HOME/state.db`, else
`~/.hermes/state.db`. Only `import` and `db upgrade` change a store. `--version` says the release.
"""


def page() -> str:
    """Give the whole page."""
    return "\n".join((_INTRODUCTION, *_sections(main, "sessionstore")))


def _sections(group: click.Group, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _sections(command, f"{path} {name}")
        else:
            yield _section(command, f"{path} {name}")


def _section(command: click.Command, path: str) -> str:
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option)
        and each.name not in _EVERYWHERE
        and not {"--db", "--url"} & set(each.opts)
    ]
    names = [
        f"{each.human_readable_name.upper()}{'...' if each.nargs < 0 else ''}" for each in arguments
    ]
    usage = " ".join((path, *(["[OPTIONS]"] if options else []), *names))
    parts = [f"## `{usage}`", inspect.cleandoc(command.help or "")]
    if options:
        rows = [f"| {_spelling(each)} | {_meaning(each)} |" for each in options]
        parts.append("\n".join(("| option | |", "| --- | --- |", *rows)))
    return "\n\n".join(parts) + "\n"


def _spelling(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        value = f" {'/'.join(map(str, option.type.choices))}"
    elif option.is_flag:
        value = ""
    else:
        value = f" {option.metavar or option.type.name.upper().replace(' RANGE', '')}"
    return ", ".join(f"`{name}{value if name == option.opts[-1] else ''}`" for name in option.opts)


def _meaning(option: click.Option) -> str:
    default = f" Default: {option.default}." if option.show_default else ""
    return f"{option.help}{default}"


if __name__ == "__main__":
    click.echo(page(), nl=False)
