"""Passwords and what people said stay out of errors, tracebacks and logs."""

from __future__ import annotations

import logging
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, text

from sessionstore import SessionDB, StoreSettings
from sessionstore.cli import main
from sessionstore.engine import open_database, open_read_only
from sessionstore.errors import SessionStoreError
from sessionstore.location import Location, locate
from sessionstore.reporting import reporting_errors

CANARY = "kanarienvogel7Q"
ENCODED = "kanarienvogel%37Q"
URLS = [
    f"postgresql+psycopg://u:{CANARY}@127.0.0.1:1/x",
    f"postgresql+psycopg://u:{ENCODED}@127.0.0.1:1/x",
    f"postgresql+psycopg://u:p@{CANARY}@127.0.0.1:1/x",
    f"postgresql+psycopg://u:{CANARY}@127.0.0.1:port/x",
    f"postgresql+psycopg://u:{CANARY}",
    f"postgresql+psycopg://u@127.0.0.1:1/x?password={CANARY}",
    f"postgresql+psycopg://u@127.0.0.1:1/x?sslpassword={CANARY}&nonsense=1",
    f"postgresql://u:{CANARY}@127.0.0.1:1/x",
    f"postgresql+{CANARY}://u@127.0.0.1:1/x",
    f"mysql://u:{CANARY}@127.0.0.1:1/x",
    f"{CANARY}://x",
    f"not a url {CANARY}",
]
COMMANDS = [
    ("list",),
    ("show", "s"),
    ("search", "x"),
    ("stats",),
    ("doctor",),
    ("doctor", "--fix"),
    ("db", "check"),
    ("db", "current"),
    ("db", "upgrade"),
    ("backup", "copy.db"),
    ("restore", "--yes", "copy.db"),
    ("prune", "--yes"),
    ("vacuum",),
    ("export",),
    ("import", "-"),
]


def told(error: BaseException) -> str:
    """Give all that a traceback with every cause and context may print of an error."""
    seen, texts = [error], []
    for each in seen:
        texts += [repr(each), str(each), *map(repr, each.args)]
        texts += getattr(each, "__notes__", [])
        seen += [
            other
            for other in (each.__cause__, each.__context__, getattr(each, "orig", None))
            if other is not None and other not in seen
        ]
    # The lines of the source that it quotes are ours.
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join([*texts, *(line for line in lines if not line.startswith("    "))])


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """Give all that was logged, by anybody, at any level."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="sessionstore")
    caplog.set_level(logging.DEBUG, logger="sqlalchemy.engine")
    yield lambda: caplog.text
    assert CANARY not in caplog.text


@pytest.fixture
def impatient() -> StoreSettings:
    return StoreSettings(write_patience_s=0.0, write_min_attempts=1, busy_timeout_s=0.01)


@pytest.mark.parametrize("url", URLS)
def test_the_password_of_a_url_is_in_no_error(
    url: str, impatient: StoreSettings, logged: Callable[[], str]
):
    for read_only in (False, True):
        with pytest.raises((SessionStoreError, ValueError)) as caught:
            SessionDB(url=url, read_only=read_only, settings=impatient)
        assert CANARY not in told(caught.value)


@pytest.mark.parametrize("url", URLS[2:], ids=range(2, len(URLS)))
def test_the_command_tells_no_password(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], str]
):
    monkeypatch.chdir(tmp_path)
    if "127.0.0.1:1/" in url:
        # Nothing listens there, and the command is patient; that it gives up is tried above.
        url = url.replace("127.0.0.1:1", "nowhere.invalid:port")
    for command in COMMANDS[:1] if "@" in url else COMMANDS:
        for given in (["--url", url, *command], [*command]):
            monkeypatch.setenv("SESSIONSTORE_URL", url)
            result = CliRunner().invoke(main, given, input="")
            assert result.exit_code in (1, 2), result.output
            assert CANARY not in result.output
            assert result.exception is None or CANARY not in told(result.exception)


def test_a_location_shows_no_password():
    for url in URLS[:2] + URLS[5:8]:
        location = locate(url=url)
        assert CANARY not in str(location)
        assert CANARY not in f"{location}"
    shown = str(locate(url=f"postgresql+psycopg://u:{CANARY}@h/x?password={CANARY}&sslmode=x"))
    assert shown == "postgresql+psycopg://u:***@h/x?password=hidden&sslmode=x"


def fails(location: Location, path: Path) -> Iterator[tuple[str, Callable[[SessionDB], object]]]:
    """Name ways in which a call with a text in it fails in the database."""

    def trigger(db: SessionDB) -> None:
        raw = sqlite3.connect(path)
        raw.execute(
            "CREATE TRIGGER no BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        raw.close()
        db.append_message("s", "user", CANARY, reasoning=CANARY, tool_calls=[{"x": CANARY}])

    def gone(db: SessionDB) -> None:
        raw = sqlite3.connect(path)
        raw.execute("DROP TRIGGER IF EXISTS no")
        raw.execute("ALTER TABLE messages RENAME TO elsewhere")
        raw.close()
        db.append_message("s", "user", CANARY)

    def searched(db: SessionDB) -> None:
        db.search_messages(CANARY)

    def titled(db: SessionDB) -> None:
        raw = sqlite3.connect(path)
        raw.execute("ALTER TABLE sessions RENAME TO others")
        raw.close()
        db.set_session_title("s", CANARY)

    yield from (("a refusal", trigger), ("a lost table", gone), ("a search", searched))
    yield "a title", titled


def test_what_was_said_is_in_no_error_of_the_database(
    store: SessionDB, path: Path, logged: Callable[[], str]
):
    store.create_session("s", "cli")
    for name, call in fails(store.location, path):
        with pytest.raises(SessionStoreError) as caught:
            call(store)
        assert CANARY not in told(caught.value), name
        assert CANARY not in logged(), name


def test_every_engine_hides_what_it_is_given(path: Path, empty_file: bytes):
    path.write_bytes(empty_file)
    location, settings = locate(path), StoreSettings()
    for open_ in (open_database, open_read_only):
        database = open_(location, settings)
        try:
            with pytest.raises(SessionStoreError) as caught, reporting_errors(location):
                database.read(lambda db: db.execute(text("SELECT :a FROM nowhere"), {"a": CANARY}))
            assert CANARY not in told(caught.value)
        finally:
            database.close()
    # So that it is seen: an engine as SQLAlchemy makes it tells.
    plain = create_engine(f"sqlite:///{path}")
    with pytest.raises(Exception, match="nowhere") as caught, plain.connect() as db:
        db.execute(text("SELECT :a FROM nowhere"), {"a": CANARY})
    plain.dispose()
    assert CANARY in told(caught.value)


def test_a_bad_import_does_not_say_what_was_in_it(
    store: SessionDB, tmp_path: Path, logged: Callable[[], str]
):
    broken = tmp_path / "broken.jsonl"
    for line in (
        f'{{"id": "s", "messages": [{{"content": "{CANARY}"',
        f'{{"id": "s", "content": "{CANARY}", "x": NaN}}',
        f'["{CANARY}"]',
        f'{{"id": "s", "source": "c", "started_at": "{CANARY}", "messages": []}}',
        f'{{"id": "s", "source": "c", "started_at": 1, "messages": "{CANARY}"}}',
        (
            f'{{"id": "s", "source": "c", "started_at": 1, "messages": [{{"role": 5, '
            f'"timestamp": 1, "content": "{CANARY}"}}]}}'
        ),
        (
            f'{{"id": "s", "source": "c", "started_at": 1, "messages": [{{"role": "user", '
            f'"timestamp": 1, "content": "{CANARY}", "content": 1}}]}}'
        ),
    ):
        broken.write_text(line)
        command = ["import", "--db", str(store.location.path), str(broken)]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 1, line
        assert "line 1: " in result.stderr
        assert CANARY not in result.output
