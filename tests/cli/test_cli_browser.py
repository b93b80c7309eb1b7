"""The page in a browser: nothing runs, nothing is asked of the network, the filter works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli_helpers import process

from sessionstore import SessionDB

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="NOT TESTED in a browser: Chromium is not installed"
)
# Each would leave the word in the page's title, or ask the server, if it ran.
RUNS = "document.title='RAN'"
HOSTILE = (
    f"<script>{RUNS}</script>",
    f'<img src=x onerror="{RUNS}">',
    f'"><svg onload="{RUNS}">',
    f"</pre></code></details><script>{RUNS}</script>",
    f"--></style><script>{RUNS}</script>",
    f'<iframe srcdoc="<script>parent.{RUNS}</script>"></iframe>',
    f'{{{{ 1 }}}}<details open ontoggle="{RUNS}">x</details>',
    f"[x](javascript:{RUNS})",
    "![x](http://127.0.0.1:{port}/markdown.png)",
    "<img src=http://127.0.0.1:{port}/html.png>",
    "<link rel=stylesheet href=http://127.0.0.1:{port}/a.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:{port}/refresh'>",
    "<style>@import url(http://127.0.0.1:{port}/b.css);</style>",
    "<base href=http://127.0.0.1:{port}/>",
    "<http://127.0.0.1:{port}/auto>",
)


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """A server that remembers what it is asked; its port is the first entry."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(204)
            self.end_headers()

        do_CONNECT = do_POST = do_GET  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    seen.append(str(server.server_port))
    yield seen
    server.shutdown()
    server.server_close()
    thread.join()


def browse(page: Path, profile: Path, *options: str) -> str:
    """Open a page without a screen and give its document as it is then."""
    run = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", f"--user-data-dir={profile}", "--virtual-time-budget=2000", *options,
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    # What it keeps beside the profile goes where HOME and XDG say.
    surroundings = {name: value for name, value in os.environ.items() if "XDG_" not in name}
    done = subprocess.run(
        run,
        capture_output=True,
        check=True,
        timeout=120,
        env=surroundings | {"HOME": str(profile)},
    )
    return done.stdout.decode()


def test_nothing_that_is_stored_runs_or_asks_the_network(
    path: Path, tmp_path: Path, asked: list[str]
):
    port = asked[0]
    with SessionDB(path) as db:
        for number, text in enumerate(HOSTILE):
            evil = text.replace("{port}", port)
            name = f"s{number}"
            db.create_session(name, evil, model=evil, system_prompt=evil, user_id=evil)
            db.set_session_title(name, evil[:100])
            call = {"id": "c", "function": {"name": evil, "arguments": evil}}
            db.append_messages(
                name,
                [
                    {"role": "user", "content": evil},
                    {
                        "role": "assistant",
                        "content": [evil],
                        "reasoning": evil,
                        "tool_calls": [call],
                    },
                    {"role": "tool", "content": evil * 20, "tool_name": evil},
                    {"role": evil, "content": evil},
                ],
            )
            db.end_session(name, evil)
    page = tmp_path / "out.html"
    assert process("export", "-o", str(page), "--db", str(path)).returncode == 0

    trap = tmp_path / "trap.html"
    trap.write_text(f"<script>{RUNS}</script><img src=http://127.0.0.1:{port}/trap.png>")
    assert "<title>RAN</title>" in browse(trap, tmp_path / "profile")
    assert asked == [port, "/trap.png"]  # so a page that runs or asks would be seen

    document = browse(page, tmp_path / "profile")

    assert "<title>Conversations</title>" in document
    assert document.count("<article") == len(HOSTILE)
    assert asked == [port, "/trap.png"]
    # Our own script ran: it shows the field, which is hidden without it.
    assert re.search(r'<input class="filter"[^>]*aria-label="Filter">', document)


def test_the_page_is_shown_in_light_and_dark(filled: Path, tmp_path: Path):
    page = tmp_path / "out.html"
    assert process("export", "-o", str(page), "--db", str(filled)).returncode == 0

    pictures = []
    for scheme in ("0", "1"):
        picture = tmp_path / f"{scheme}.png"
        browse(
            page,
            tmp_path / f"profile{scheme}",
            f"--blink-settings=preferredColorScheme={scheme}",
            f"--screenshot={picture}",
        )
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1]
