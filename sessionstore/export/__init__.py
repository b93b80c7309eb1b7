"""Ways to write sessions down: records in, text out; no database and no files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sessionstore.export.jsonl import json_text, lines
from sessionstore.records import ExportedSession

__all__ = ["FORMS", "json_text", "lines", "pieces"]

# Each with the kind of file it is, as a browser is told.
FORMS = {
    "jsonl": "application/x-ndjson",
    "md": "text/markdown",
    "qmd": "text/markdown",
    "html": "text/html",
    "trace": "application/x-ndjson",
}


def pieces(sessions: Iterable[ExportedSession], form: str, *, note: str = "") -> Iterator[str]:
    """Write sessions in one of `FORMS`, in pieces that joined are the file.

    Args:
        sessions: What is written, in order.
        form: One of `FORMS`.
        note: A remark for the head of a page.

    Raises:
        ModuleNotFoundError: A page needs packages that are not installed.
    """
    if form == "jsonl":
        return lines(sessions)
    if form == "html":
        from sessionstore.export.html import html

        return html(sessions, note=note)
    if form == "trace":
        from sessionstore.export.trace import trace

        return (line for session in sessions for line in trace(session))
    from sessionstore.export.markdown import markdown

    return (piece for session in sessions for piece in markdown(session, quarto=form == "qmd"))
