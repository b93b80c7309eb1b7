"""The pages of docs/ that the code tells say what it says now, and their examples run."""

from __future__ import annotations

import os
import re
import runpy
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sessionstore import SessionDB

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES: dict[str, Callable[[], str]] = runpy.run_path(str(ROOT / "scripts" / "reference.py"))[
    "PAGES"
]
CALL = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str):
    assert (DOCS / name).read_text() == PAGES[name](), "run: python scripts/reference.py"


def test_every_public_call_is_on_the_page():
    told = (DOCS / "python.md").read_text()

    for name in dir(SessionDB):
        if not name.startswith("_") and name not in {"location", "read_only", "settings", "close"}:
            assert f"| `{name}(" in told


def test_the_queries_over_the_tables_run_as_they_are_printed(tmp_path: Path):
    (block,) = re.findall(
        r"^```sql\n(.*?)^```$", (DOCS / "schema.md").read_text(), re.MULTILINE | re.DOTALL
    )
    with SessionDB(tmp_path / "state.db") as db:
        db.create_session("s1", "cli", model="m")
        db.append_message("s1", "user", "first", timestamp=2.0)
        db.append_message("s1", "assistant", "second", tool_calls=[CALL, CALL])
        db.append_message("s1", "assistant", "third", tool_calls="not of the usual form")
        db._write(lambda c: c.exec_driver_sql("UPDATE messages SET tool_calls = '[' WHERE id = 1"))

    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        answers = [connection.execute(query).fetchall() for query in block.split(";")[:-1]]

    assert answers == [
        [("cli", "m", 1)],
        [("user", "first"), ("assistant", "second"), ("assistant", "third")],
        [("terminal", 2)],
    ]


def test_the_examples_of_the_calls_run_as_they_are_printed(tmp_path: Path):
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (DOCS / "python.md").read_text(), re.MULTILINE | re.DOTALL
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            env=os.environ | {"PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
            timeout=60,
        ).stdout
        for block in blocks
    ]

    assert said[0] == ""
    assert said[1].startswith("A trip #2 [{'role': 'user', 'content': 'So far: ")
    assert "'And 阳朔?'" in said[1]
    assert "I read 2 messages." in said[1]
