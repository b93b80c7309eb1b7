"""The command that serves agents: mcp."""

from __future__ import annotations

import click

from sessionstore.cli.output import Failure
from sessionstore.cli.store import opened, resolve_session, store_options


@click.command()
@click.option("--allow-write", is_flag=True, help="Also rename, put away and pin sessions.")
@click.option("--redact", is_flag=True, help="Take secrets out of every answer.")
@store_options
def mcp(*, allow_write: bool, redact: bool) -> None:
    """Let agents search the store, over MCP.

    A server of the Model Context Protocol on stdin and stdout, for the client that starts it:
    search_sessions, list_sessions, get_session. The store is opened read-only unless
    --allow-write adds update_session. What is answered goes to the client's model; --redact
    takes out what looks like a key or a password. Needs `pip install 'sessionstore[mcp]'`.
    """
    try:
        from sessionstore.mcp.server import serve
    except ModuleNotFoundError as error:
        raise Failure("mcp needs a package: pip install 'sessionstore[mcp]'") from error
    from sessionstore.mcp.tools import Tools

    with opened(to_write=allow_write) as db:
        serve(Tools(db, resolve_session, allow_write=allow_write, redacting=redact))
