"""Every call of the store and every option of the command that takes a text, with hostile ones.

The calls and options are read from the signatures, so that a new one is tried by itself.
"""

from __future__ import annotations

import inspect
import sqlite3
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sessionstore import SessionDB
from sessionstore.cli import main
from sessionstore.errors import SessionStoreError
from sessionstore.filters import SessionFilter

HOSTILE = {
    "a path": "../../x",
    "a root": "/etc/passwd",
    "NUL": "a\0b",
    "a newline": "a\nb",
    "an override": "a\u202eb",
    "half a character": "a\ud83d",
    "nothing": "",
    "blanks": " \t ",
    "a quote": "x' OR '1'='1",
    "a statement": "x'; DROP TABLE messages; --",
    "double quotes": 'x"; DELETE FROM sessions; --',
    "a union": "' UNION SELECT hash, prompt FROM system_prompts --",
    "wild cards": "%_*?[a]\\",
    "a parameter": ":id ? $1 %s %(x)s {x}",
    "a query": '"a" OR content:b NEAR(c d, 3) ^e* NOT (f',
    "a command of an index": "messages_fts rebuild",
    "an escape": "\x1b[2J\x1b]52;c;eA==\x07",
    "a template": "{{7*7}}${x}",
}
LONG = "x" * 1_000_000
# Each is tried on every argument without --slow; the others only with it.
FIRST = {"a path", "half a character", "an override", "a statement"}
# What a call may say of an argument that it cannot take.
REFUSALS = (SessionStoreError, ValueError, TypeError)
# One of them takes statements, of a fresh store, to run them: what it is given is not hostile.
NO_CALLS = {"close", "repair"}


@pytest.fixture(scope="module")
def texts(request: pytest.FixtureRequest) -> dict[str, str]:
    """The hostile texts, all of them if there is time."""
    if request.config.getoption("--slow"):
        return {**HOSTILE, "a long one": LONG}
    return {kind: text for kind, text in HOSTILE.items() if kind in FIRST} | {
        "a long one": LONG[:50_000]
    }


def takes_text(kind: Any) -> bool:
    """Say whether a value of this type may be or hold a text."""
    if kind in (str, Any):
        return True
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return any(takes_text(each) for each in typing.get_args(kind))
    return typing.get_origin(kind) in (Sequence, Mapping, dict, list) and any(
        takes_text(each) for each in typing.get_args(kind)
    )


def calls() -> dict[str, Callable[..., Any]]:
    """Find the public calls of the store."""
    return {
        name: call
        for name, call in inspect.getmembers(SessionDB, callable)
        if not name.startswith("_") and name not in NO_CALLS
    }


def texts_of(call: Callable[..., Any]) -> list[str]:
    """Name the parameters of a call that take a text; the fields of a filter are parameters."""
    hints = typing.get_type_hints(call)
    names = []
    for name, parameter in inspect.signature(call).parameters.items():
        if name in ("self", "return"):
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            fields = typing.get_type_hints(SessionFilter)
            names += [each for each, kind in fields.items() if takes_text(kind)]
        elif takes_text(hints.get(name, Any)):
            names.append(name)
    return list(dict.fromkeys(names))


# What stands where a call needs an argument that is not the one under trial.
USUAL: dict[str, Any] = {
    "session_id": "s",
    "parent_id": "s",
    "new_id": "new",
    "message_id": 1,
    "since_id": 1,
    "new_messages": [],
    "all_messages": [],
    "exported": [],
    "entries": {},
    "limit": 5,
    "archived": True,
    "pinned": True,
    "sessions_dir": None,
    "path": None,
}


def arguments(call: Callable[..., Any], tried: str, value: Any, folder: Path) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if name == "self" or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if name == tried:
            continue
        if parameter.default is inspect.Parameter.empty:
            given[name] = USUAL.get(name, "x")
            if name in ("path", "target") and call.__name__ == "backup":
                given[name] = folder / "copy.db"
    return given | {tried: value}


def refusal(call: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Make a call; give what it said if it was refused."""
    try:
        result = call(**given)
        if isinstance(result, Iterator):
            list(result)
    except REFUSALS as error:
        return str(error)
    return ""


CALLS = [(name, text) for name, call in calls().items() for text in texts_of(call)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, empty_file: bytes) -> bytes:
    path = tmp_path_factory.mktemp("filled") / "state.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as db:
        db.create_session("s", "cli", title="T", system_prompt="secret prompt")
        db.create_session("other", "cli", title="Other")
        db.append_message("s", "user", "kept one")
        db.append_message("other", "user", "kept two")
        db.set_meta("mark", "kept")
    return path.read_bytes()


def rows_of(path: Path) -> list[Any]:
    """Give the shape of a file, and the rows of the session that nobody named."""
    with closing(sqlite3.connect(path)) as raw:
        return [
            raw.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall(),
            raw.execute("SELECT * FROM messages WHERE session_id = 'other'").fetchall(),
            raw.execute("SELECT id, title, source FROM sessions WHERE id = 'other'").fetchall(),
            raw.execute("SELECT * FROM state_meta WHERE key = 'mark'").fetchall(),
            raw.execute("PRAGMA integrity_check").fetchall(),
            raw.execute("PRAGMA foreign_key_check").fetchall(),
        ]


@pytest.mark.parametrize(("name", "tried"), CALLS, ids=[f"{n}-{t}" for n, t in CALLS])
def test_a_hostile_text_is_a_text_or_refused(
    name: str,
    tried: str,
    path: Path,
    filled: bytes,
    texts: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
):
    # So deep that a path upwards ends in the test's own folder.
    folder = path.parent / "a/b/c"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    path.write_bytes(filled)
    before, files = rows_of(path), {each.name for each in path.parent.parent.iterdir()}
    is_wide = typing.get_type_hints(getattr(SessionDB, name)).get(tried) not in (str, str | None)
    with SessionDB(path) as db:
        call = getattr(db, name)
        for kind, text in texts.items():
            for value in (text, [text], {text: text}) if is_wide else (text,):
                said = refusal(call, arguments(getattr(SessionDB, name), tried, value, folder))
                assert "syntax error" not in said, kind
                assert "fts5" not in said, kind
                assert len(said) < 5_000, kind
        assert db.search_messages("kept two", session_id="other")
    after = rows_of(path)
    assert after[:1] == before[:1]
    assert after[1:] == before[1:], "another session changed"
    assert {each.name for each in path.parent.parent.iterdir()} == files


# ---- the command


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


def takes_words(parameter: click.Parameter) -> bool:
    return not (isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count))


OPTIONS = [
    (words, parameter.name)
    for words, command in commands(main)
    for parameter in command.params
    if takes_words(parameter) and parameter.name not in ("db", "url")
]
NEEDED = {"session": "s", "sessions": "s", "query": "x", "title": "t", "file": "absent"}


@pytest.mark.parametrize(("words", "tried"), OPTIONS, ids=[f"{w[-1]}-{t}" for w, t in OPTIONS])
def test_a_hostile_word_is_a_word_or_wrong_usage(
    words: tuple[str, ...],
    tried: str,
    path: Path,
    filled: bytes,
    texts: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
):
    folder = path.parent / "a/b/c"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    path.write_bytes(filled)
    before = rows_of(path)
    command: Any = main
    for word in words:
        command = command.commands[word]
    for kind, text in texts.items():
        if "\0" in text or (tried in ("wanted_at", "sessions_dir", "file") and text[:1] == "/"):
            continue  # no system hands over a NUL, and what may be written is written
        given, flags = [], []
        # What a system hands over that is no UTF-8 comes in as such a half.
        text = text.replace("\ud83d", "\udcff")  # noqa: PLW2901
        for parameter in command.params:
            value = text if parameter.name == tried else NEEDED.get(parameter.name)
            if isinstance(parameter, click.Option):
                if parameter.name == tried:
                    flags.append(f"{parameter.opts[-1]}={value}")
            else:
                given.append(value)
        result = CliRunner().invoke(main, ["--db", str(path), *words, *flags, "--", *given])
        assert result.exit_code in (0, 1, 2), (kind, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), kind
        assert "\x1b" not in result.output
        assert "\u202e" not in result.output
    assert rows_of(path) == before
