"""Histories of other programs, and the command that takes them in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sessionstore.cli import main

Import = Callable[..., Result]


@pytest.fixture
def target(tmp_path: Path, empty_file: bytes) -> Path:
    """An empty store, in a folder of its own."""
    path = tmp_path / "store" / "state.db"
    path.parent.mkdir()
    path.write_bytes(empty_file)
    return path


@pytest.fixture
def take_in(target: Path) -> Import:
    """Run `import --from` on the store."""

    def run(program: str, *arguments: str | Path) -> Result:
        words = ["import", "--db", str(target), "--from", program, *map(str, arguments)]
        result = CliRunner().invoke(main, words)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def write() -> Callable[[Path, Iterable[Any]], Path]:
    """Write records as JSON Lines, or add them to those that are there."""

    def write_lines(path: Path, records: Iterable[Any]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(each)}\n" for each in records)
        return path

    return write_lines
