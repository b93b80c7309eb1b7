"""What every test may use: a store of its own, in a folder of its own or on a server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import postgres_server as postgres
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy.engine import URL

from sessionstore import SessionDB

# No test is timed, since machines are busy with other things: an example may take long. In
# CI the same examples run each time, so that a change is to blame for what fails.
settings.register_profile(
    "store", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("store"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "store")

_FOLDER = pytest.StashKey[Path]()
_IN_WORKERS = "postgres_folder"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the long and large variants")
    parser.addoption(
        "--both",
        action="store_true",
        help="run every case of behaviour on PostgreSQL too, and not one of each test",
    )


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    config.stash[_FOLDER] = Path(worker[_IN_WORKERS]) if worker else postgres.new_folder()
    if not worker:
        # As Ctrl-C does: a run that is ended takes its server with it.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    node.workerinput[_IN_WORKERS] = str(node.config.stash[_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        postgres.Server(config.stash[_FOLDER]).remove()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--both"):
        _leave_out_other_cases(config, items)
    for item in items:
        if "slow" in item.keywords and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="long variant: run with --slow"))
        elif "postgres" in item.keywords and not postgres.can_be_had():
            item.add_marker(pytest.mark.skip(reason="NO POSTGRESQL HERE"))


def _leave_out_other_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one case of each test of behaviour on the server; its file sees them all."""
    seen: set[str] = set()
    left_out: list[pytest.Item] = []
    for item in items:
        case = getattr(item, "callspec", None)
        if case is not None and case.params.get("backend") == "postgresql":
            test = item.nodeid.partition("[")[0]
            if test in seen:
                left_out.append(item)
            seen.add(test)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def _not_tested_on_a_server(config: pytest.Config) -> int:
    """How many tests of PostgreSQL were chosen and could not be run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or postgres.can_be_had():
        return 0
    return sum("postgres" in report.keywords for report in reporter.stats.get("skipped", ()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    missed = not hasattr(session.config, "workerinput") and _not_tested_on_a_server(session.config)
    if missed and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if missed := _not_tested_on_a_server(config):
        terminalreporter.section("POSTGRESQL WAS NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(
            f"{missed} tests need a server: install PostgreSQL's, or name one in "
            f"{postgres.VARIABLE}." + (" In CI that is a failure." if os.environ.get("CI") else "")
        )


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> URL:
    """A running server, the one of this run."""
    return postgres.shared_server(pytestconfig.stash[_FOLDER])


@pytest.fixture
def postgres_url(postgres_server: URL) -> Iterator[str]:
    """An empty database."""
    with postgres.empty_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def _server_store(postgres_server: URL) -> Iterator[tuple[str, psycopg.Connection]]:
    """A store on the server: made anew for each test it would take a tenth of a second."""
    with postgres.empty_database(postgres_server) as url:
        SessionDB(url=url).close()
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            yield url, connection


@pytest.fixture
def server_store_url(_server_store: tuple[str, psycopg.Connection]) -> str:
    """An empty store on the server, whose ids begin with 1."""
    url, connection = _server_store
    connection.execute(postgres.EMPTY)
    return url


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
