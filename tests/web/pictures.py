"""Draw the pictures of docs/web.md anew: `python tests/web/pictures.py`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from browser import Browser, browsing
from web_helpers import Site, serving

from sessionstore import SessionDB

IMAGES = Path(__file__).parents[2] / "docs" / "images"
CODE = """The pool is made once, at the start:

```python
def connect(settings: Settings) -> Pool:
    # one pool for the process
    return Pool(size=settings.size, timeout=2.0)
```

Two things follow from that:

1. **No request waits** for a connection to be made.
2. A changed size needs a restart.
"""


def fill(path: Path) -> None:
    """Make up a few days of an agent's work."""
    now = time.time()
    titles = (
        *("Why the pool runs dry", "Release notes for spring", "Nightly report", None),
        *("Move the mail server", "Names for the new cluster", "Fix the flaky login test"),
        *("Recipes for a dinner of eight", "Compare three task queues", "Clean up old branches"),
    )
    with SessionDB(path) as db:
        for number, title in enumerate(titles):
            name, at = f"20260131_{number:02}", now - 5_000 * (number + 0.2) ** 1.7
            source = ("cli", "telegram", "cron")[number % 3]
            model = ("opus-5", "gpt-6")[number % 2]
            db.create_session(name, source, model=model, title=title, started_at=at)
            call = {"id": "c", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
            said = [
                {"role": "user", "content": "Why does the connection pool run dry at night?"},
                {
                    "role": "assistant",
                    "content": "I look at how the pool is made.",
                    "reasoning": "First the code, then the logs.",
                    "tool_calls": [call],
                },
                {"role": "tool", "content": "pool.py\n" * 200, "tool_name": "terminal"},
                {"role": "assistant", "content": CODE},
            ]
            db.append_messages(name, [each | {"timestamp": at} for each in said])
            db.update_token_counts(
                name, input_tokens=9_000 * (number + 2), output_tokens=800, actual_cost_usd=0.04
            )
        db.set_session_pinned("20260131_04", True)


def draw(browser: Browser, site: Site, name: str, where: str, scheme: str, width: int) -> None:
    """Take one picture."""
    browser.scheme(scheme)
    browser.size(width, 560 if width > 400 else 640)
    browser.open(site.base + where)
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / f"{name}.png").write_bytes(browser.picture())


def main() -> None:
    """Take them all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        fill(path)
        with browsing(Path(folder) / "profile") as browser, serving(path) as site:
            browser.open(site.address)
            draw(browser, site, "conversations", "/", "light", 900)
            draw(browser, site, "conversation", "/session?id=20260131_00", "dark", 900)
            draw(browser, site, "search", "/search?q=pool+night", "light", 400)
            draw(browser, site, "statistics", "/statistics", "dark", 400)


if __name__ == "__main__":
    main()
