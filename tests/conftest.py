"""What every test may use: a store of its own, in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sessionstore import SessionDB

# No test is timed, since machines are busy with other things: an example may take long. In
# CI the same examples run each time, so that a change is to blame for what fails.
settings.register_profile(
    "store", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("store"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "store")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the long and large variants")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="long variant: run with --slow"))


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty store's file: walking the whole history for every test would take minutes."""
    made = tmp_path_factory.mktemp("empty") / "state.db"
    SessionDB(made).close()
    return made.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's store is; nothing is there yet."""
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SessionDB]:
    """An empty store."""
    with SessionDB(path) as opened:
        yield opened
