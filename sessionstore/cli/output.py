"""What goes out: results, talk and errors that cannot drive a terminal, JSON. No rich here."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import IO, Any

import click

from sessionstore.export import json_text
from sessionstore.export.jsonl import escaped
from sessionstore.export.text import one_line, safe

_BEYOND_ASCII = re.compile("[^\x00-\x7f]+")
_OBEYED_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# So many names are listed, and the rest counted.
_NAMED = 10

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


class Failure(click.ClickException):
    """The command cannot do it; one line on stderr, exit status 1."""

    def format_message(self) -> str:
        """Give the message as one harmless line."""
        return safe(self.message).replace("\n", " ").replace("\t", " ")


def talk(message: str) -> None:
    """Say something beside the results, on stderr."""
    click.echo(safe(message), err=True)


def write_json(value: Any) -> None:
    """Write a value to stdout as one JSON document, in real characters where stdout has them."""
    text = json_text(value, indent=2)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = _BEYOND_ASCII.sub(escaped, text)
    click.echo(harmless_json(text))


def harmless_json(text: str) -> str:
    """Escape what a terminal obeys and JSON lets stand, see `safe`; it says the same."""
    return _OBEYED_IN_JSON.sub(escaped, text)


def named(names: Sequence[str]) -> str:
    """List the first names, each one harmless line, and count the rest."""
    shown = ", ".join(map(one_line, names[:_NAMED]))
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def is_terminal(stream: IO[Any]) -> bool:
    """Say whether somebody sees it as it comes."""
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False
