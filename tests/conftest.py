"""What every test may use: a store of its own, in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionstore import SessionDB


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the long and large variants")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="long variant: run with --slow"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's store is; nothing is there yet."""
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SessionDB]:
    """An empty store."""
    with SessionDB(path) as opened:
        yield opened
