"""The command that shows the store in a browser: serve."""

from __future__ import annotations

from collections.abc import Callable

import click

from sessionstore.cli.output import Failure, talk
from sessionstore.cli.store import opened, store_options

_NEEDS_EXTRA = "the pages need more packages: pip install 'sessionstore[web]'"


@click.command()
@click.option(
    "--port",
    default=8321,
    show_default=True,
    type=click.IntRange(min=0, max=65535),
    help="Where to listen on this machine; 0 is any port that is free.",
)
@click.option("--open", "open_it", is_flag=True, help="Also open the page in a browser.")
@click.option(
    "--allow-write",
    is_flag=True,
    help="Let the pages rename, pin, archive and delete. Else the store is opened read-only.",
)
@store_options
def serve(*, port: int, open_it: bool, allow_write: bool) -> None:
    """Show the store in a browser, on this machine only.

    It prints the address to open, which holds a secret of this run, and goes on until it is
    stopped with Ctrl-C. Lists, search, conversations and statistics; nothing is asked of any
    other machine.
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
