"""A real browser without a screen, told what to do over its own pipe: no other package needed.

The protocol is https://chromedevtools.github.io/devtools-protocol/: JSON with a NUL behind it,
into descriptor 3 and out of 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}
# Only ends a test that would hang.
_PATIENCE_S = 30.0
_SHOWN_TEXT = """(element) => {
    const before = document.adoptedStyleSheets, nothing_put_off = new CSSStyleSheet();
    nothing_put_off.replaceSync("* { content-visibility: visible !important }");
    document.adoptedStyleSheets = [...before, nothing_put_off];
    const text = element?.innerText ?? "";
    document.adoptedStyleSheets = before;
    return text;
}"""


class PageError(Exception):
    """What the page's own script threw, or a wait without end."""


class Browser:
    """One page of a browser, and all that it asked the network for."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self._document: dict[str, Any] = {}
        self.asked: list[str] = []
        self.said: list[str] = []
        (target,) = [
            each["targetId"]
            for each in self.call("Target.getTargets")["targetInfos"]
            if each["type"] == "page"
        ]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something and wait for the answer."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            if not select.select([self._back], [], [], _PATIENCE_S)[0]:
                raise PageError("the browser says nothing")
            piece = os.read(self._back, 1 << 20)
            if not piece:
                raise PageError("the browser is gone")
            self._read += piece
        first, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        about = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.asked.append(about["request"]["url"])
            case "Network.responseReceived" if about["type"] == "Document":
                self._document = about["response"]
            case "Log.entryAdded":
                self.said.append(about["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.said.append(str(about["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.said.append(str(about["args"]))
        return message

    def open(self, address: str) -> int:
        """Go somewhere, and give the status of the answer once all of it is there."""
        self._document = {}
        mark = f"m{self._number}"
        self.run(f"window.mark = '{mark}'")
        self.call("Page.navigate", url=address)
        self.until(f"window.mark !== '{mark}'")
        return int(self._document.get("status", 0))

    def reload(self) -> None:
        """Ask for the page again."""
        self.run("window.mark = 'old'")
        self.call("Page.reload")
        self.until("window.mark !== 'old'")

    def run(self, script: str, *, gesture: bool = False) -> Any:
        """Run a script in the page, and give what it comes to; a promise is waited for."""
        done = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=gesture,
        )
        if "exceptionDetails" in done:
            raise PageError(str(done["exceptionDetails"].get("exception", done)))
        return done["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until all of a page is there and a script comes to something true; give that."""
        ends = time.monotonic() + _PATIENCE_S
        last = ""
        while time.monotonic() < ends:
            try:
                value = self.run(f"document.readyState === 'complete' && ({script})")
                if value or value == {}:  # an element comes as a dict with nothing in it
                    return value
            except PageError as error:
                last = str(error)  # the page it was asked of has just been left
            time.sleep(0.02)
        raise PageError(f"never true: {script} {last}")

    def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        for key in keys:
            code, text = _KEYS[key] if key in _KEYS else (ord(key.upper()), key)
            about = {"key": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
            self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def write(self, text: str) -> None:
        """Put text in where the cursor is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click what a selector finds, as a person does."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()", gesture=True)

    def text(self, selector: str = "main") -> str:
        """Give the text that is shown, or is once one scrolls there; "" where nothing is found.

        What `content-visibility: auto` puts off has no innerText before it is drawn, and when
        that is depends on how busy the machine is: so nothing is put off while this reads.
        """
        found = json.dumps(selector)
        return str(self.run(f"({_SHOWN_TEXT})(document.querySelector({found}))"))

    def texts(self, selector: str) -> list[str]:
        """Give the text of everything a selector finds."""
        found = json.dumps(selector)
        script = f"[...document.querySelectorAll({found})].map((each) => each.textContent.trim())"
        return list(self.run(script))

    def size(self, width: int, height: int) -> None:
        """Make the window so large, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def scripts(self, *, run: bool) -> None:
        """Let the scripts of pages run, or not."""
        self.call("Emulation.setScriptExecutionDisabled", value=not run)

    def picture(self) -> bytes:
        """Give what is seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


def _pipe() -> list[int]:
    """Make a pipe of descriptors that are none of those the browser looks for its own under."""
    both = []
    for end in os.pipe():
        both.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return both


@contextmanager
def browsing(profile: Path, options: Sequence[str] = ()) -> Iterator[Browser]:
    """Start a browser, and end it with all that it started."""
    theirs, to = _pipe()
    back, answers = _pipe()
    # Through a shell, since Popen can hand descriptors on but not give them other numbers.
    command = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "bash"]
    command += [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
        f"--user-data-dir={profile}", "--remote-debugging-pipe", *options, "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        pass_fds=(theirs, answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(answers)
    try:
        yield Browser(to, back)
    finally:
        os.close(to)
        os.close(back)
        process.terminate()
        process.wait(30)
