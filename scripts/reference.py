"""Write the pages of docs/ that the code itself tells: `python scripts/reference.py`.

docs/cli.md is made of the commands, docs/python.md of the calls, docs/schema.md of the mapped
classes. A test holds each against them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Column, Index
from sqlalchemy.dialects import sqlite

import sessionstore
from sessionstore import SessionDB, SessionRecord, SessionStoreError
from sessionstore.cli import main
from sessionstore.models import SCHEMA_REVISION, Base
from sessionstore.options import FILTER_NAMES

DOCS = Path(__file__).parents[1] / "docs"

_EVERYWHERE = {"db", "url", "help", "version"}

_COMMANDS = """\
# The command `sessionstore`

Written by `python scripts/reference.py`; a test holds it against the commands.

Results go to stdout, messages to stderr. Exit status: 0 success, 1 an error, told in one line,
2 wrong usage. `NO_COLOR` is honoured; in a pipe nothing is coloured, nor cut unless `COLUMNS` is
set; and terminal escapes in stored text are written out, such as `\\x1b`, rather than obeyed.

Every command takes these, before or after its name (`copy` names its two stores itself):

| option | |
| --- | --- |
| `--db PATH` | The store, as an SQLite file. |
| `--url URL` | The store, as an SQLAlchemy URL. |
| `-h`, `--help` | What the command does. |

Without either, the store is `SESSIONSTORE_URL`, else `$HERMES_HOME/state.db`, else
`~/.hermes/state.db`. `--version` prints the release. A SESSION is an id, a title, or the beginning
of exactly one id.

Only `db upgrade`, and `import` into an old store, upgrade a schema; commands that only read leave
nothing beside the file. Commands that delete first show what would go (`--dry-run` stops there),
then ask, and refuse where nobody can be asked, unless `--yes` is given. So in cron:

    0 3 * * *  sessionstore --db /srv/state.db backup --force /srv/backup.db
    0 4 * * *  sessionstore --db /srv/state.db prune --older-than 90d --yes

## Completion

The shell completes commands and options once it is told to, in bash

    eval "$(_SESSIONSTORE_COMPLETE=bash_source sessionstore)"

and in zsh or fish likewise with `zsh_source` or `fish_source`. Put the line into
`~/.bashrc`, `~/.zshrc` or `~/.config/fish/config.fish`; for fish it is
`_SESSIONSTORE_COMPLETE=fish_source sessionstore | source`.

## Filters

`list`, `export`, `archive` and `prune` share these. A session must pass every filter given. Times
are those of the last message, else of the start. Text is literal: `_`, `%` and `\\` are ordinary
characters. 0 is a value, and a range that nothing could be in is wrong usage. `archive` leaves open
sessions out by default.

{filters}
"""


_TITLES = {
    "SessionCalls": "A session",
    "MessageCalls": "Its messages",
    "SearchCalls": "Search",
    "ListCalls": "Lists and chains",
    "UsageCalls": "Tokens and cost",
    "TransferCalls": "Export, import, backup, copy",
    "UpkeepCalls": "Upkeep",
    "CoordinationCalls": "Programs that share a store",
}

_CALLS = """\
# The calls of `SessionDB`

Written by `python scripts/reference.py`; a test holds it against the code. What a call takes,
gives and raises is in its docstring: `help(SessionDB.append_message)`.

```python
from sessionstore import SessionDB

with SessionDB("state.db") as db:  # or SessionDB(url="postgresql+psycopg://..."), read_only=True
    db.create_session("s1", "cli", model="m")
    db.append_message("s1", "user", "hello")
```

One call is one transaction unless its docstring says otherwise, and is tried again while other
programs are in the way. A store may be shared by all threads of a process. Times are epoch
seconds, UTC, as floats. `AsyncSessionDB` has the same calls, to be awaited
(`iter_export` is for `async for`, `sanitize_title` is called as it is).

## A conversation from turn to turn

```python
from uuid import uuid4

from sessionstore import SessionDB


def ask(messages):  # your model
    return {"text": f"I read {len(messages)} messages.", "tokens": (900, 40)}


def turn(db, session_id, text):
    db.append_message(session_id, "user", text)
    answer = ask(db.get_messages_as_conversation(session_id))
    db.append_message(session_id, "assistant", answer["text"], finish_reason="stop")
    tokens_in, tokens_out = answer["tokens"]
    db.update_token_counts(
        session_id, input_tokens=tokens_in, output_tokens=tokens_out, api_call_count=1
    )


with SessionDB("state.db") as db:
    first = db.create_session(uuid4().hex, "cli", model="m", title="A trip")
    turn(db, first, "Where is 桂林?")
    summary = {"role": "user", "content": "So far: 桂林 is in Guangxi."}
    # The context is full: a summary takes the place of the messages, which search still finds,
    db.archive_and_compact(first, [summary])
    # or the conversation goes on in a new session, which gets the title "A trip #2".
    db.append_message(db.continue_session(first, uuid4().hex), **summary)

    # Later, perhaps in another program: go on where the title has got to.
    latest = db.resolve_session_by_title("A trip")
    turn(db, latest, "And 阳朔?")
    print(db.get_session_title(latest), db.get_messages_as_conversation(latest))
```
"""

_SCHEMA = """\
# The tables

Written by `python scripts/reference.py` from the mapped classes, as revision {revision} leaves
them; a test holds it against them. The same tables stand on PostgreSQL, where `REAL` is `double
precision`, and `INTEGER` `bigint` for ids and counters. Write through the package alone: it keeps
counters, order and the search index right. For reading, any SQLite client will do (`unixepoch()`
needs SQLite 3.38):

```sql
-- What was in use this week, and what for.
SELECT source, model, count(*) AS sessions FROM sessions
WHERE last_active_at > unixepoch() - 7 * 86400 GROUP BY source, model ORDER BY sessions DESC;

-- A conversation as it stands: the order is that of ids, never that of times.
SELECT role, content FROM messages WHERE session_id = 's1' AND active = 1 ORDER BY id;

-- Which tools were called, and how often.
SELECT json_extract(call.value, '$.function.name') AS tool, count(*) AS calls
FROM messages, json_each(iif(json_valid(tool_calls), tool_calls, '[]')) AS call
WHERE call.type = 'object' GROUP BY tool ORDER BY calls DESC;
```

Beside these tables stand those of the search index, `messages_fts` and what belongs to it
([how it is built](search.md)), and Alembic's `alembic_version`.
"""


def commands_page() -> str:
    """Give the page of the command line."""
    filters = [
        each
        for each in main.commands["list"].params
        if isinstance(each, click.Option) and each.name in FILTER_NAMES
    ]
    introduction = _COMMANDS.format(filters=_table(filters))
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
    names = [_named(each) for each in arguments]
    usage = " ".join((path, *(["[OPTIONS]"] if options else []), *names))
    parts = [f"## `{usage}`", inspect.cleandoc(command.help or "")]
    own = [each for each in options if each.name not in FILTER_NAMES]
    if len(own) < len(options):
        parts.append("It takes the [filters](#filters).")
    if own:
        parts.append(_table(own))
    return "\n\n".join(parts) + "\n"


def _named(argument: click.Argument) -> str:
    name = argument.human_readable_name.upper()
    shown = name if argument.required else f"[{name}]"
    return f"{shown}..." if argument.nargs < 0 else shown


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


def calls_page() -> str:
    """Give the page of the Python calls."""
    parts = [_CALLS]
    for group in SessionDB.__bases__:
        rows = [
            f"| `{name}{_parameters(getattr(SessionDB, name))}` | {_summary(call)} |"
            for name, call in vars(group).items()
            if not name.startswith("_") and callable(call)
        ]
        about = inspect.getdoc(group)
        parts.append(f"## {_TITLES[group.__name__]}\n\n{about}\n\n{_rows('call', rows)}\n")
    public = {name: getattr(sessionstore, name) for name in sessionstore.__all__}
    rows = [
        f"| `{name}` | {_summary(each)} | {_fields(each)} |"
        for name, each in public.items()
        if inspect.get_annotations(each) and not issubclass(each, Exception)
    ]
    about = "Plain dicts all but `ListPlace`, `SessionFilter` and `StoreSettings`."
    listed = _rows("name", rows, "fields")
    parts.append(f"## What is given and taken\n\n{about}\n\n{listed}\n")
    rows = [
        f"| `{name}` | {_summary(each)} |"
        for name, each in public.items()
        if issubclass(each, SessionStoreError)
    ]
    parts.append(f"## Errors\n\nEach is a `SessionStoreError`.\n\n{_rows('error', rows)}\n")
    return "\n".join(parts)


def _parameters(call: Callable[..., Any]) -> str:
    """Give the names of what a call takes, with the defaults, without the types."""
    given = [each for each in inspect.signature(call).parameters.values() if each.name != "self"]
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in given]
    return str(inspect.Signature(bare))


def _summary(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n\n")[0].replace("\n", " ")


def _fields(shape: type) -> str:
    names = list(inspect.get_annotations(shape))
    of_session = list(inspect.get_annotations(SessionRecord))
    told = [f"`{name}`" for name in names]
    if len(names) > len(of_session) and names[: len(of_session)] == of_session:
        told[: len(of_session)] = ["those of `SessionRecord`"]
    return ", ".join(told)


def _rows(first: str, rows: Sequence[str], *more: str) -> str:
    heads = [first, "", *more]
    return "\n".join((f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *rows))


def schema_page() -> str:
    """Give the page of the tables."""
    classes = {mapper.local_table.name: mapper.class_ for mapper in Base.registry.mappers}
    parts = [_SCHEMA.format(revision=SCHEMA_REVISION)]
    for name, table in Base.metadata.tables.items():
        columns = [_column(each) for each in table.columns]
        listed = _rows("column", columns, "NULL", "default", "refers to")
        section = [f"## `{name}`", inspect.getdoc(classes[name]), listed]
        if table.indexes:
            ordered = sorted(table.indexes, key=lambda index: str(index.name))
            section.append("\n".join(_index(index) for index in ordered))
        parts.append("\n\n".join(section) + "\n")
    return "\n".join(parts)


def _column(column: Column[Any]) -> str:
    kind = column.type.compile(sqlite.dialect()).replace("DOUBLE", "REAL")
    key = " key" if column.primary_key else ""
    null = "yes" if column.nullable else ""
    default = f"`{column.server_default.arg}`" if column.server_default is not None else ""
    refers = ", ".join(f"`{each.target_fullname}`" for each in column.foreign_keys)
    return f"| `{column.name}` | {kind}{key} | {null} | {default} | {refers} |"


def _index(index: Index) -> str:
    over = ", ".join(getattr(each, "name", None) or str(each) for each in index.expressions)
    where = index.dialect_options["sqlite"]["where"]
    unique = "unique index" if index.unique else "index"
    return f"* {unique} `{index.name}` over `{over}`" + (
        "" if where is None else f" where `{where}`"
    )


PAGES = {"cli.md": commands_page, "python.md": calls_page, "schema.md": schema_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
        print(f"wrote docs/{name}")
