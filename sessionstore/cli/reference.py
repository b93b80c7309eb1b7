"""Write docs/cli.md from the commands themselves: `python -m sessionstore.cli.reference`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import click

from sessionstore.cli import main
from sessionstore.options import FILTER_NAMES

_EVERYWHERE = {"db", "url", "help", "version"}

_INTRODUCTION = """\
# The command `sessionstore`

Written by `python -m sessionstore.cli.reference > docs/cli.md`; a test holds it against the
commands.

Results go to stdout, talk goes to stderr. Exit status: 0 fine, 1 an error, told in one line,
2 wrong usage. `NO_COLOR` is honoured, in a pipe nothing is cut or coloured, and what a stored
text could make a terminal do is written out instead, such as `\\x1b`.

Every command takes, before its name or after it (`copy` names its two stores itself):

| option | |
| --- | --- |
| `--db PATH` | The store, as an SQLite file. |
| `--url URL` | The store, as an SQLAlchemy URL. |
| `-h`, `--help` | What the command does. |

Without either, the store is `SESSIONSTORE_URL`, else `$HERMES_HOME/state.db`, else
`~/.hermes/state.db`. `--version` says the release. A SESSION is named by its id, by a title, or
by what only one id begins with.

Only `db upgrade`, and `import` into an old store, change a schema, and what only reads leaves no
trace beside the file. What deletes shows first what would go (`--dry-run` stops there), asks,
and refuses where nobody can be asked, unless `--yes` is given.

## Completion

`sessionstore` completes its commands and options where the shell is told so once, in bash

    eval "$(_SESSIONSTORE_COMPLETE=bash_source sessionstore)"

and in zsh or fish the same with `zsh_source` or `fish_source`. The line belongs in
`~/.bashrc`, `~/.zshrc` or `~/.config/fish/config.fish`; for fish it is
`_SESSIONSTORE_COMPLETE=fish_source sessionstore | source`.

## Filters

`list`, `export`, `archive` and `prune` take the same. A session has to pass all that are given.
Times are those of the last message, else of the start. Text is literal: `_`, `%` and `\\` are
ordinary characters. 0 is a value, and a window that nothing could be in is wrong usage. `archive`
leaves open sessions out unless it is told.

{filters}
"""


def page() -> str:
    """Give the whole page."""
    filters = [
        each
        for each in main.commands["list"].params
        if isinstance(each, click.Option) and each.name in FILTER_NAMES
    ]
    introduction = _INTRODUCTION.format(filters=_table(filters))
    return "\n".join((introduction, *_sections(main, "sessionstore")))


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
    own = [each for each in options if each.name not in FILTER_NAMES]
    if len(own) < len(options):
        parts.append("It takes the [filters](#filters).")
    if own:
        parts.append(_table(own))
    return "\n\n".join(parts) + "\n"


def _table(options: Sequence[click.Option]) -> str:
    rows = [f"| {_spelling(each)} | {_meaning(each)} |" for each in options]
    return "\n".join(("| option | |", "| --- | --- |", *rows))


def _spelling(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        value = f" {'/'.join(map(str, option.type.choices))}"
    elif option.is_flag:
        value = ""
    else:
        value = f" {option.metavar or option.type.name.upper().replace(' RANGE', '')}"
    names = [*option.opts, *option.secondary_opts]
    return ", ".join(f"`{name}{value if name == option.opts[-1] else ''}`" for name in names)


def _meaning(option: click.Option) -> str:
    default = f" Default: {_default(option)}." if option.show_default else ""
    return f"{option.help}{default}"


def _default(option: click.Option) -> str:
    if option.secondary_opts:
        return f"`{(option.opts if option.default else option.secondary_opts)[0]}`"
    return str(option.default)


if __name__ == "__main__":
    click.echo(page(), nl=False)
