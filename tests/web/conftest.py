"""The stores that are shown, a server and a browser for all tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, browsing
from web_helpers import THEN, WORD, Site, serving

from sessionstore import SessionDB


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> int:
    """How many messages the long conversation has."""
    return 20_000 if request.config.getoption("--slow") else 2_000


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory, long: int) -> Path:
    """A store with 130 conversations, a chain, and a long one."""
    path = tmp_path_factory.mktemp("shop") / "state.db"
    with SessionDB(path) as db:
        for number in range(130):
            db.create_session(
                f"s{number}",
                ("cli", "telegram")[number % 2],
                model=("alpha-1", "beta-2")[number % 2],
                title=f"Talk {number}" if number else None,
                started_at=THEN - 60 * number,
            )
            db.append_message(f"s{number}", "user", f"Hello {number}", timestamp=THEN - number)
        db.update_token_counts("s1", input_tokens=12_000, output_tokens=345, actual_cost_usd=0.5)
        db.set_session_pinned("s99", True)
        db.set_session_archived("s98", True)
        call = {"id": "c", "function": {"name": "terminal", "arguments": '{"command": "ls 网络"}'}}
        db.append_messages(
            "s3",
            [
                {"role": "user", "content": f"检查网络配置, the {WORD} and **bold** words"},
                {
                    "role": "assistant",
                    "content": "Look:\n\n```python\ndef f():\n    return 'a'\n```\n",
                    "reasoning": "I wonder.",
                    "tool_calls": [call],
                },
                {"role": "tool", "content": "line\n" * 500, "tool_name": "terminal"},
                {"role": "assistant", "content": "y" * 30_000},
            ],
        )
        ids = db.append_messages("s4", [{"role": "user", "content": f"q{n}"} for n in range(9)])
        db.archive_and_compact("s4", [{"role": "user", "content": "in short"}], through_id=ids[3])
        db.rewind_to_message("s4", db.get_messages("s4")[-2]["id"])
        db.end_session("s5", "compression")
        db.create_session("s5b", "cli", parent_session_id="s5", relation="continuation")
        db.append_message("s5b", "user", "going on", timestamp=THEN + 1)
        db.create_session("long", "cli", title="The long one", started_at=THEN - 90_000)
        db.append_messages(
            "long",
            [
                {
                    "role": ("user", "assistant")[n % 2],
                    "content": f"number {n}",
                    "timestamp": THEN - 90_000,
                }
                for n in range(long)
            ],
        )
    return path


@pytest.fixture(scope="session")
def site(shop: Path) -> Iterator[Site]:
    """The pages of `shop`, which cannot be changed."""
    with serving(shop) as started:
        yield started


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests: to start it takes longer than they do."""
    if CHROMIUM is None:
        pytest.skip("NOT TESTED in a browser: Chromium is not installed")
    with browsing(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """The browser, as if nobody had used it."""
    one_browser.size(1000, 700)
    one_browser.scheme("light")
    one_browser.scripts(run=True)
    one_browser.asked.clear()
    one_browser.said.clear()
    yield one_browser
    one_browser.scripts(run=True)


@pytest.fixture
def page(browser: Browser, site: Site) -> Browser:
    """The browser, let in to the pages of `shop`."""
    browser.open(site.address)
    return browser
