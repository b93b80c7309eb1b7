"""The server itself: a socket on this machine, and the pages behind their guard."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sessionstore.settings import StoreSettings
from sessionstore.store import SessionDB
from sessionstore.web.guard import STATIC, Guard
from sessionstore.web.pages import Pages

HOST = "127.0.0.1"
# An answer that is being written when the command is stopped gets so long.
_LAST_WORDS_S = 2


def listening(port: int) -> socket.socket:
    """Take a port of this machine; 0 is any that is free.

    Raises:
        OSError: It is taken, or may not be had.
    """
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # What an earlier run left in TIME_WAIT does not hold the port.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, port))
        taken.listen(64)
    except BaseException:
        taken.close()
        raise
    return taken


def guarded(db: SessionDB, port: int, *, allow_write: bool) -> Guard:
    """Make the pages of a store, with their guard, as an ASGI application.

    Args:
        db: The store, open as long as the pages are.
        port: The one they are asked for at.
        allow_write: Whether sessions can be renamed, pinned, archived and deleted.
    """
    pages = Pages(db, allow_write=allow_write)
    routes = [
        *(Route(path, page) for path, page in pages.readable().items()),
        *(Route(path, page, methods=["POST"]) for path, page in pages.writable().items()),
        Mount(STATIC.rstrip("/"), StaticFiles(packages=[("sessionstore.web", "static")])),
    ]
    handlers: dict[Any, Any] = dict.fromkeys((Exception, 404, 405), pages.failed)
    handlers |= dict.fromkeys(pages.FORESEEN, pages.failed)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=_few_threads)
    return Guard(app, port, pages.sentence)


@contextlib.asynccontextmanager
async def _few_threads(_app: Starlette) -> AsyncIterator[None]:
    """Have no more threads read than the store has connections: the others would only wait."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = StoreSettings().connections
    yield


def serve(
    db: SessionDB,
    taken: socket.socket,
    *,
    allow_write: bool,
    ready: Callable[[str, Callable[[], str]], None],
) -> None:
    """Serve the pages of a store until the process is told to stop (SIGINT, SIGTERM).

    Args:
        db: The store.
        taken: Where to listen; see `listening`.
        allow_write: Whether sessions can be changed.
        ready: Called with the address to open, and with what gives one that works once.
    """
    port = taken.getsockname()[1]
    guard = guarded(db, port, allow_write=allow_write)
    # No line is written for a request: the address it came by may bear the token.
    config = uvicorn.Config(
        guard,
        access_log=False,
        log_config=None,
        log_level=logging.CRITICAL,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http="h11",
        loop="asyncio",
        lifespan="on",
        timeout_graceful_shutdown=_LAST_WORDS_S,
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        address = f"http://{HOST}:{port}/?token="
        ready(address + guard.token, lambda: address + guard.token_for_once())
        await serving

    # uvicorn raises the signal again once it has stopped; being told to stop is no failure.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())
