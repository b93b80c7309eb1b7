"""The command `sessionstore`: what a person does with the history at a prompt.

Results go to stdout, talk to stderr. Exit status: 0 fine, 1 an error of ours, told in one
line, 2 wrong usage. rich and Alembic are loaded by the commands that need them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from sessionstore.cli import keeping, upkeep
from sessionstore.cli.database import database
from sessionstore.cli.doctor import doctor
from sessionstore.cli.exporting import export
from sessionstore.cli.importing import import_
from sessionstore.cli.output import Failure, talk
from sessionstore.cli.reading import list_sessions, search, show, stats
from sessionstore.cli.serving import mcp, serve
from sessionstore.cli.store import store_options
from sessionstore.errors import SessionStoreError
from sessionstore.export.text import one_line

__all__ = ["main"]

# What a group without a command raises from click 8.2 on. It is many lines, none of them typed.
_OWN_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _Commands(click.Group):
    """A group that turns what may go wrong into an exit status and one line."""

    def make_context(self, *given: Any, **extra: Any) -> click.Context:
        """Read the options before a command's name."""
        with _harmless_usage():
            return super().make_context(*given, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever it is to print has been handed over when this returns."""
        _replace_closed_streams()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A stored text may hold what the terminal's encoding, or any, cannot say.
            sys.stdout.reconfigure(errors="backslashreplace")
        warnings = _Talk(logging.WARNING)
        logger = logging.getLogger("sessionstore")
        logger.addHandler(warnings)
        try:
            with _harmless_usage():
                result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever reads has seen enough, as `head` has; that is no failure.
            _discard_output()
            ctx.exit(0)
        except SessionStoreError as error:
            raise Failure(str(error)) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise Failure(f"{where}{error.strerror or error}") from error
        else:
            return result
        finally:
            logger.removeHandler(warnings)


@contextlib.contextmanager
def _harmless_usage() -> Iterator[None]:
    """Write out what a terminal would obey in a complaint about the command line."""
    try:
        yield
    except _OWN_HELP:
        raise
    except click.UsageError as error:
        # Each kind of them is made in its own way, so the one that is there is changed.
        vars(error)["message"] = one_line(error.message)
        raise


class _Talk(logging.Handler):
    """What the store warns of is talk beside the results."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it on stderr."""
        talk(one_line(record.getMessage()))


def _replace_closed_streams() -> None:
    """Let what goes to a closed stdout or stderr (`>&-`) go nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for good
            setattr(sys, name, nowhere)


def _discard_output() -> None:
    """Let the interpreter flush what is left to nowhere when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sessionstore")
@store_options
def main() -> None:
    """Find, show, export, import, keep and delete agents' conversations.

    The store is the one that --db or --url names, else SESSIONSTORE_URL, else
    $HERMES_HOME/state.db, else ~/.hermes/state.db. A SESSION is named by its id, by the
    beginning of one, or by its title.
    """


for _command in (
    *(list_sessions, show, search, stats, serve, export, import_),
    *(keeping.rename, keeping.end, keeping.reopen, keeping.archive, keeping.unarchive),
    *(keeping.pin, keeping.unpin, keeping.delete, keeping.prune),
    *(upkeep.optimize, upkeep.vacuum, upkeep.purge, upkeep.backup, upkeep.restore),
    *(upkeep.recover, upkeep.copy, doctor, database, mcp),
):
    main.add_command(_command)
