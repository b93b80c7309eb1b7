"""A store with one of everything, and what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from damage_helpers import everything, fill


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with one of everything, made once: copy before use."""
    path = tmp_path_factory.mktemp("template") / "state.db"
    fill(path)
    return path


@pytest.fixture(scope="session")
def truth(template: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What is in it."""
    copy = tmp_path_factory.mktemp("truth") / "state.db"
    copy.write_bytes(template.read_bytes())
    return everything(copy)


@pytest.fixture
def filled(path: Path, template: Path) -> Path:
    """A store with one of everything, the test's own."""
    path.write_bytes(template.read_bytes())
    return path
