"""The commands that serve: mcp for agents, serve for a browser."""

from __future__ import annotations

from collections.abc import Callable

import click

from sessionstore.cli.output import Failure, talk
from sessionstore.cli.store import opened, resolve_session, store_options

_NEEDS_EXTRA = "the pages need more packages: pip install 'sessionstore[web]'"


@click.command()
@click.option("--allow-write", is_flag=True, help="Also rename, archive and pin sessions.")
@click.option("--redact", is_flag=True, help="Remove secrets from every answer.")
@store_options
def mcp(*, allow_write: bool, redact: bool) -> None:
    """Let agents search the store, over MCP.

    A Model Context Protocol server on stdin and stdout, for the client that starts it:
    search_sessions, list_sessions, get_session. The store is opened read-only unless
    --allow-write adds update_session. Answers go to the client's model; --redact removes what
    looks like a key or a password. Needs `pip install 'sessionstore[mcp]'`.
    """
    try:
        from sessionstore.mcp.server import serve
    except ModuleNotFoundError as error:
        raise Failure("mcp needs a package: pip install 'sessionstore[mcp]'") from error
    from sessionstore.mcp.tools import Tools

    with opened(to_write=allow_write) as db:
        serve(Tools(db, resolve_session, allow_write=allow_write, redacting=redact))


@click.command()
@click.option(
    "--port",
    default=8321,
    show_default=True,
    type=click.IntRange(min=0, max=65535),
    help="Port to listen on; 0 is any free one.",
)
@click.option("--open", "open_it", is_flag=True, help="Also open the page in a browser.")
@click.option(
    "--allow-write",
    is_flag=True,
    help="Let the pages rename, pin, archive and delete; else the store is opened read-only.",
)
@store_options
def serve(*, port: int, open_it: bool, allow_write: bool) -> None:
    """Show the store in a browser, on this machine only.

    Prints the address to open, which contains a secret of this run, and runs until Ctrl-C.
    Lists, search, conversations and statistics; nothing is requested from any other machine.
    """
    import webbrowser

    try:
        from sessionstore import web
        from sessionstore.web.serving import listening
    except ModuleNotFoundError as error:
        raise Failure(_NEEDS_EXTRA) from error

    def ready(address: str, once: Callable[[], str]) -> None:
        click.echo(address)
        talk("Open this address; Ctrl-C stops.")
        if open_it and not webbrowser.open(once()):
            talk("No browser could be started.")

    with opened(to_write=allow_write) as db:
        try:
            taken = listening(port)
        except OSError as error:
            reason = error.strerror or error
            raise Failure(f"port {port}: {reason}; name another with --port") from error
        with taken:
            web.serve(db, taken, allow_write=allow_write, ready=ready)
