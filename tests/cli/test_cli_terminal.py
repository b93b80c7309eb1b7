"""What the command shows on a real terminal: nothing that is stored or typed can drive it."""

from __future__ import annotations

import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sessionstore import SessionDB

ESCAPES = {
    "a colour": "\x1b[31m",
    "a cleared screen": "\x1b[2J\x1b[H",
    "a title of the window": "\x1b]0;owned\x07",
    "a link": "\x1b]8;;https://evil.test\x1b\\click\x1b]8;;\x1b\\",
    "the clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "a report": "\x1b[6n\x1b[c\x1bZ",
    "a picture": "\x1bPq#0\x1b\\",
    "one byte": "\x9b2J\x9d0;owned\x9c\x90\x85",
    "overwriting": "real\rfake",
    "erasing": "secret\b\b\b\b\b\bpublic",
    "a bell": "\x07",
    "shifts": "\x0e\x0f",
    "page and tab": "\x0b\x0c",
    "direction": "\u202egpj.exe\u202c \u2066x\u2069 \u202a\u202b\u202d\u2067\u2068",
    "deletion": "\x7f",
}
HOSTILE = "".join(f" {text} " for text in ESCAPES.values())
# What the command may send of its own: colours, and how far it is, over itself.
OUR_OWN = re.compile(r"\x1b\[[0-9;]*m|\r(?:\[[#.]+\] )?[\d,]+ of [\d,]+ sessions")
OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


def on_a_terminal(*arguments: str, folder: Path) -> tuple[int, str]:
    """Run the real command with a terminal for its three streams and give what that received."""
    ours, theirs = pty.openpty()
    surroundings = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "sessionstore", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=surroundings | {"TERM": "xterm-256color", "PAGER": "cat", "PYTHONIOENCODING": "utf-8"},
    ) as running:
        os.close(theirs)
        received = b""
        while select.select([ours], [], [], 120)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            received += piece
            if received.endswith(b"[y/N]: "):
                os.write(ours, b"n\n")
        os.close(ours)
    return running.returncode, received.decode("utf-8", "surrogateescape")


def obeyed(received: str) -> list[str]:
    """List what a terminal would obey of it, but for colours and the ends of lines."""
    return OBEYED.findall(OUR_OWN.sub("", received))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which every text that can be shown is hostile."""
    path = tmp_path_factory.mktemp("hostile") / "state.db"
    with SessionDB(path) as db:
        for number, text in enumerate((HOSTILE, f"zebra {HOSTILE}\n## forged\r\n")):
            name = f"s{number}{text}"
            db.create_session(name, text, model=text, user_id=text, system_prompt=text)
            call = {"id": text, "function": {"name": text, "arguments": text}}
            db.append_messages(
                name,
                [
                    {"role": "user", "content": f"zebra {text}"},
                    {
                        "role": f"r{text}",
                        "content": [{"type": text}, {"type": "text", "text": text}],
                        "reasoning": text,
                        "tool_calls": [call, text, {text: text}],
                    },
                    {"role": "tool", "content": text, "tool_name": text},
                ],
            )
            db.update_token_counts(
                name, input_tokens=5, model=text, billing_provider=text, task=text
            )
            db.end_session(name, text)
        db.create_session("open", "cli")
    # No call takes such a title; another program's file may hold one.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE sessions SET title = 'T' || id || char(27) || ']0;x' || char(7), "
            "parent_session_id = CASE WHEN id LIKE 's1%' THEN (SELECT min(id) FROM sessions) END"
        )
        connection.commit()
    return path


SHOWN: dict[str, Callable[[str], list[str]]] = {
    "list": lambda _: ["list"],
    "the search": lambda _: ["search", "zebra"],
    "a session": lambda name: ["show", "--no-pager", name],
    "a session in full": lambda name: ["show", "--full", name],
    "JSON": lambda name: ["show", "--json", name],
    "figures": lambda _: ["stats"],
    "an export": lambda _: ["export", "--format", "jsonl"],
    "a page": lambda _: ["export", "--format", "html"],
    "a text": lambda name: ["export", "--format", "md", "--session", name],
    "what would be pruned": lambda _: ["prune", "--older-than", "0d", "--source", "x"],
    "what would go": lambda name: ["delete", name],
    "what is looked over": lambda _: ["doctor"],
    "a pin": lambda name: ["pin", name],
    "a name for several": lambda _: ["show", "s"],
}


# The others go the same ways, and a process each takes its time.
FIRST = {"list", "the search", "a session in full", "JSON", "what would go"}


@pytest.mark.parametrize(
    "what",
    [each if each in FIRST else pytest.param(each, marks=pytest.mark.slow) for each in SHOWN],
)
def test_what_is_stored_reaches_the_terminal_written_out(what: str, hostile: Path):
    with SessionDB(hostile, read_only=True) as db:
        name = max(each["id"] for each in db.search_sessions())

    status, received = on_a_terminal(
        "--db", str(hostile), *SHOWN[what](name), folder=hostile.parent
    )

    assert obeyed(received) == []
    assert "Traceback" not in received
    assert status == (1 if what in ("what would go", "a name for several") else 0), received


TYPED = [
    ["show", "{}"],
    ["{}"],
    ["list", "--{}"],
    ["list", "--limit", "{}"],
    ["list", "--older-than", "{}"],
    ["list", "--sort", "{}"],
    ["list", "surplus{}"],
    ["search", "x", "--since", "{}"],
    ["search", "--{}", "x"],
    ["--db", "{}", "list"],
    ["--url", "{}", "list"],
    ["export", "-o", "no/{}", "--session", "open"],
    ["import", "{}"],
    ["backup", "no/{}"],
    ["restore", "-y", "{}"],
    ["rename", "open", "x{}"],
    ["db", "{}"],
]


@pytest.mark.slow
@pytest.mark.parametrize("words", TYPED, ids=" ".join)
def test_what_is_typed_comes_back_written_out(words: list[str], hostile: Path):
    typed = [word.format(HOSTILE.replace("\0", "")) for word in words]
    where = [] if words[0] in ("--db", "--url") else ["--db", str(hostile)]

    _, received = on_a_terminal(*where, *typed, folder=hostile.parent)

    assert obeyed(received) == []
    assert "Traceback" not in received


def test_what_is_typed_wrong_comes_back_written_out(hostile: Path):
    for words in (["list", "--\x1b]0;owned\x07"], ["list", "surplus\x1b[2J\r"]):
        status, received = on_a_terminal("--db", str(hostile), *words, folder=hostile.parent)
        assert (status, obeyed(received)) == (2, [])
        assert "\\x1b" in received
