"""Ask before something goes that does not come back."""

from __future__ import annotations

import sys

import click

from sessionstore.cli.output import Failure, is_terminal
from sessionstore.export.text import safe

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


def confirm(question: str, *, yes: bool) -> None:
    """Go on if somebody says yes, at the prompt or by `--yes`.

    Raises:
        Failure: Nobody is there to ask, or the answer is no.
    """
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise Failure(
            "not a terminal, so nobody can be asked and nothing was done; add --yes to go ahead"
        )
    if not click.confirm(safe(question), err=True):
        raise Failure("nothing was done")
