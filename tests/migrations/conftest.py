from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files
from schema_files import database, downgrade, upgrade


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Files at a revision or at a Hermes level, each made once: copy before use."""
    folder = tmp_path_factory.mktemp("made")

    def make(kind: str) -> Path:
        path = folder / f"{kind}.db"
        if not path.exists():
            level = kind.removeprefix("hermes-")
            with database(path) as opened:
                upgrade(opened, to="head" if kind == "head" or int(level) > 11 else "0011")
                if kind != "head":
                    downgrade(opened, to=f"{int(level):04d}")
            if kind != level:
                with schema_files.raw(path) as connection:
                    connection.execute("DROP TABLE alembic_version")
        return path

    return make


@pytest.fixture
def old_file(made: Callable[[str], Path], tmp_path: Path) -> Callable[[int], Path]:
    """A Hermes file of a level with rows in it, ready to be changed."""

    def make(level: int) -> Path:
        path = tmp_path / f"hermes-{level}.db"
        shutil.copy(made(f"hermes-{level}"), path)
        schema_files.fill(path)
        return path

    return make
