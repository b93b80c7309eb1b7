"""Servers as the command starts them, and asking them as a browser would."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

THEN = 1_750_000_000.0  # 2025-06-15 15:06:40 UTC
WORD = "zebrafish"


class Answer(NamedTuple):
    """What a server said."""

    status: int
    headers: dict[str, str]
    text: str


class Site:
    """A running server: what it printed, and asking it as a browser would."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address
        parts = urlsplit(address)
        self.port = parts.port
        self.base = f"http://127.0.0.1:{parts.port}"
        self.token = parts.query.removeprefix("token=")
        cookie = self.ask(f"/?token={self.token}", cookie=None).headers["set-cookie"]
        self.cookie = cookie.partition(";")[0]

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: dict[str, str] | None = None,
        cookie: str | None = "",
        **headers: str,
    ) -> Answer:
        """Ask for one thing; redirects are not followed. The cookie is ours unless given."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie is not None:
            sent["cookie"] = cookie or self.cookie
        connection = http.client.HTTPConnection("127.0.0.1", self.port or 0, timeout=60)
        form = None
        if body is not None:
            form = urlencode(body)
            sent["content-type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, form, sent)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        named = {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        return Answer(answer.status, named, text)

    def stop(self) -> str:
        """Stop the server as Ctrl-C does; give what it said on stderr in its life."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        return said


@contextmanager
def serving(path: Path, *options: str, **env: str) -> Iterator[Site]:
    """Start the command on a store, and stop it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sessionstore", "serve", "--db", path, "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TZ": "UTC"} | env,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, process.communicate()[1]
        yield Site(process, address)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
