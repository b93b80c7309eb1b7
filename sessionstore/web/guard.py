"""Who may ask, and what a browser is told: between the network and the pages.

The pages hold private conversations, and a browser lets any site send requests to this machine.
So every request must name this machine by one of its own names (a name that a stranger's DNS
points here is refused), and bear a cookie that only the address printed at the start gives. The
cookie is SameSite=Strict. Other pages of this machine, which a browser takes for the same site
whatever their port, are refused by the headers it adds (https://www.w3.org/TR/fetch-metadata/).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("sessionstore")

STATIC = "/static/"
_METHODS = ("GET", "HEAD", "POST")
# Writes a page of one sentence: status, heading, text, nonce.
Sentence = Callable[[int, str, str, str], Response]


class Guard:
    """Lets through what the owner of the store asks, and puts its policy on every answer.

    Args:
        app: The pages.
        port: Where they are.
        sentence: Writes a page of one sentence: status, heading, text, nonce.

    Attributes:
        token: Opens the pages, from the address, however often.
    """

    def __init__(self, app: ASGIApp, port: int, sentence: Sentence) -> None:
        self._app = app
        self._sentence = sentence
        names = ("127.0.0.1", "localhost", "[::1]")
        self._hosts = {f"{name}:{port}" for name in names}
        # Port 80 is not written. Cookies are not told apart by port, so their names are.
        self._hosts |= set(names) if port == 80 else set()  # noqa: PLR2004
        self._cookie = f"sessionstore-{port}"
        self._key = secrets.token_urlsafe(32)
        self._once: set[str] = set()
        self.token = secrets.token_urlsafe(32)

    def token_for_once(self) -> str:
        """Give a token that opens the pages one time.

        A browser that is started is told the address where other users of the machine can
        read it, in the list of processes.
        """
        token = secrets.token_urlsafe(32)
        self._once.add(token)
        return token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce
        begun = False

        async def with_policy(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_policy(MutableHeaders(scope=message), nonce)
            await send(message)

        refusal = self._refusal(scope, nonce)
        try:
            await (refusal or self._app)(scope, receive, with_policy)
        except Exception as error:  # noqa: BLE001 - whatever it is, no trace leaves this room
            # The path alone: what was asked for is in the query.
            logger.error("%s failed: %s: %s", scope["path"], type(error).__name__, error)  # noqa: TRY400
            if not begun:
                text = "The command that serves this page says what it was."
                await self._sentence(500, "That failed", text, nonce)(scope, receive, with_policy)

    def _refusal(self, scope: Scope, nonce: str) -> Response | None:
        """Give the answer to what may not be asked; None: it may."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return Response("This page answers to 127.0.0.1 only.\n", 403, media_type="text/plain")
        if scope["method"] not in _METHODS:
            return self._sentence(405, "No such way to ask", "Pages are read and posted to.", nonce)
        elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        visit = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        if elsewhere and not visit:
            text = "Another page asked for this. Open it from here."
            return self._sentence(403, "Asked from elsewhere", text, nonce)
        if scope["path"].startswith(STATIC):
            return None  # the same for everybody
        return self._entry(scope, headers, nonce)

    def _entry(self, scope: Scope, headers: Headers, nonce: str) -> Response | None:
        """Take the token of an address for a cookie; without either there is no entry."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and self._opens(given[0]):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            answer = RedirectResponse(f"{_quiet(scope['path'])}{'?' if rest else ''}{rest}", 303)
            answer.set_cookie(self._cookie, self._key, path="/", httponly=True, samesite="strict")
            return answer
        if given or not self._knows(headers):
            text = (
                "Open the address that “sessionstore serve” printed, with its token. "
                "It is another one each time the command starts."
            )
            return self._sentence(403, "This page is private", text, nonce)
        return None

    def _opens(self, token: str) -> bool:
        for once in list(self._once):
            if _same(token, once):
                self._once.discard(once)
                return True
        return _same(token, self.token)

    def _knows(self, headers: Headers) -> bool:
        # Whatever else runs on this machine has its cookies sent here too, and may write them as
        # no standard allows, or under this name for another path: only ours has to be there.
        for cookie in ";".join(headers.getlist("cookie")).split(";"):
            name, _, value = cookie.partition("=")
            if name.strip() == self._cookie and _same(value.strip(), self._key):
                return True
        return False


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def _quiet(path: str) -> str:
    """Keep a path on this machine: two slashes at its beginning would name another."""
    return "/" + path.lstrip("/\\")


def _add_policy(headers: MutableHeaders, nonce: str) -> None:
    # Nonces rather than 'self': no other thing that is served here can be taken for a script.
    headers["content-security-policy"] = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    headers["x-content-type-options"] = "nosniff"
    headers["referrer-policy"] = "no-referrer"
    headers["x-frame-options"] = "DENY"
    headers["cross-origin-opener-policy"] = "same-origin"
    headers["cross-origin-resource-policy"] = "same-origin"
    headers["permissions-policy"] = "camera=(), geolocation=(), microphone=()"
    headers.setdefault("cache-control", "private, no-cache")
