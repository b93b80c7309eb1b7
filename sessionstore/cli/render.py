"""How results look to people: tables, conversations, hits. Loads rich, so load it late."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sessionstore.cli.output import is_terminal
from sessionstore.export import json_text
from sessionstore.export.text import calls_of, name_and_arguments, one_line, safe, written
from sessionstore.records import MessageRecord, SearchHit, SessionRecord, SessionSummary
from sessionstore.wording import ago, at_time, cost, marked_pieces, plural, short

# A table of sessions needs so many columns; below, each session gets two lines.
_TABLE_WIDTH = 90
_GAP = 2
_LEAST_TITLE = 20
# In a pipe nothing is cut for width, but a folded tool call stays a line one can read.
_PIPE_WIDTH = 10_000
_FOLDED = 200
_ROLE_STYLES = {"user": "bold green", "assistant": "bold cyan", "tool": "bold magenta"}
_OTHER_ROLE = "bold yellow"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, which ends quietly."""
        raise BrokenPipeError


def console_for() -> Console:
    """Give a console that writes text as it is, to stdout as it is now."""
    # COLUMNS counts everywhere; else a terminal has a width and a pipe has none.
    width = None if is_terminal(sys.stdout) or os.environ.get("COLUMNS") else _PIPE_WIDTH
    return _Console(width=width, markup=False, highlight=False, emoji=False)


def sessions(found: Sequence[SessionSummary]) -> None:
    """Print a line, or in a narrow terminal two, for each conversation."""
    console = console_for()
    heads = ("ID", "TITLE OR PREVIEW", "SOURCE", "ACTIVE", "MESSAGES", "TOKENS")
    rows = [
        (
            one_line(each["id"]),
            _heading(each),
            one_line(each["source"] or "unknown"),
            ago(each["last_active"]),
            f"{each['message_count']:,}",
            short(_tokens(each)),
        )
        for each in found
    ]
    taken = sum(
        max(map(cell_len, (head, *(str(row[at]) for row in rows)))) + _GAP
        for at, head in enumerate(heads)
        if head != "TITLE OR PREVIEW"
    )
    # Nothing but a title is ever cut: an id is there to be copied.
    room = console.width - taken
    if console.width < _TABLE_WIDTH or room < _LEAST_TITLE:
        _stacked(console, found)
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for head in heads:
        counts = head in ("MESSAGES", "TOKENS")
        table.add_column(head, justify="right" if counts else "left", no_wrap=True)
    for session_id, heading, *rest in rows:
        heading.truncate(room, overflow="ellipsis")
        table.add_row(Text(session_id, style="cyan"), heading, *map(Text, rest))
    console.print(table)


def _stacked(console: Console, found: Sequence[SessionSummary]) -> None:
    for at, each in enumerate(found):
        heading = _heading(each)
        heading.truncate(console.width, overflow="ellipsis")
        heading.stylize("bold")
        if at:
            console.print()
        console.print(heading)
        facts = (
            one_line(each["source"] or "unknown"),
            ago(each["last_active"]),
            plural(each["message_count"], "message"),
            plural_short(_tokens(each), "token"),
        )
        line = Text("  ").append(one_line(each["id"]), "cyan")
        console.print(line.append("  " + _dot(console).join(facts), "dim"), soft_wrap=True)


def plural_short(number: int, noun: str) -> str:
    """Write a count in a few characters with its noun."""
    return f"{short(number)} {noun}{'' if number == 1 else 's'}"


def _heading(session: SessionSummary) -> Text:
    marks = "".join(f"[{mark}] " for mark in ("pinned", "archived") if session[mark])
    lead = Text(marks, style="yellow")
    if session["title"]:
        return lead.append(one_line(session["title"]), "default")
    said = one_line(session["preview"]) or "(no text)"
    return lead.append(said, "dim default")


def _tokens(session: SessionSummary) -> int:
    return session["input_tokens"] + session["output_tokens"]


def _dot(console: Console) -> str:
    return " · " if console.encoding.startswith("utf") else ", "


def conversation(
    session: SessionRecord,
    messages: Sequence[MessageRecord],
    *,
    goes_on_in: str | None = None,
    left_out: int,
    full: bool,
    ids: bool = False,
) -> None:
    """Print a session's facts, then its messages in order, with their ids if that is asked."""
    console = console_for()
    _facts(console, session, goes_on_in)
    if left_out:
        console.print()
        console.print(Text(f"({plural(left_out, 'earlier message')} not shown)", style="dim"))
    day = ""
    for message in messages:
        # The day is told when it changes, the clock always.
        today = at_time(message["timestamp"], "%Y-%m-%d")
        clock = at_time(message["timestamp"], "%H:%M:%S")
        console.print()
        moment = clock if today == day else f"{today} {clock}"
        _role_line(console, message, f"{moment}  id {message['id']}" if ids else moment)
        day = today
        _body(console, message, full=full)


def _facts(console: Console, session: SessionRecord, goes_on_in: str | None) -> None:
    dot = _dot(console)
    title = one_line(session["title"] or session["id"])
    console.print(Text(title, style="bold"), soft_wrap=True)
    who = [session["id"], session["source"] or "unknown", session["model"], session["user_id"]]
    lines = [
        dot.join(one_line(each) for each in who if each),
        dot.join(_life(session)),
        dot.join(
            (
                plural(session["message_count"], "message"),
                plural(session["tool_call_count"], "tool call"),
                f"{session['input_tokens']:,} tokens in, {session['output_tokens']:,} out",
                f"cost {cost(session)}",
            )
        ),
    ]
    if session["parent_session_id"]:
        lines.append(f"comes from {one_line(session['parent_session_id'])}")
    if goes_on_in:
        lines.append(f"goes on in {one_line(goes_on_in)}")
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)


def _life(session: SessionRecord) -> Iterable[str]:
    yield f"started {at_time(session['started_at'])}"
    if session["ended_at"] is None:
        yield "open"
    else:
        reason = one_line(session["end_reason"] or "no reason given")
        yield f"ended {at_time(session['ended_at'])} ({reason})"


def _role_line(console: Console, message: MessageRecord, moment: str) -> None:
    role = one_line(message["role"] or "unknown")
    style = _ROLE_STYLES.get(role, _OTHER_ROLE)
    name = f" {one_line(message['tool_name'])}" if message["tool_name"] else ""
    line = Text.assemble(("## ", "dim"), (f"{role}{name}", style), (f"  {moment}", "dim"))
    console.print(line, soft_wrap=True)


def _body(console: Console, message: MessageRecord, *, full: bool) -> None:
    text = safe(written(message["content"]))
    if message["reasoning"] and full:
        console.print(Text(safe(message["reasoning"]), style="dim italic"), soft_wrap=True)
    if message["role"] == "tool" and not full:
        console.print(Text(_folded(console, "  ", text), style="dim"), soft_wrap=True)
    elif text:
        console.print(Text(text), soft_wrap=True)
    for call in calls_of(message["tool_calls"]):
        name, arguments = name_and_arguments(call)
        if not isinstance(arguments, str):
            arguments = json_text(arguments)
        lead = f"  -> {one_line(name)} "
        shown = lead + safe(arguments) if full else _folded(console, lead, arguments)
        console.print(Text(shown, style="magenta"), soft_wrap=True)


def _folded(console: Console, lead: str, text: str) -> str:
    """Make one line of it, and say how long it is where that line does not hold it."""
    line = one_line(text)
    note = f" ... ({plural(len(text), 'character')})"
    room = min(console.width, _FOLDED) - cell_len(lead)
    if cell_len(line) <= room:
        return lead + line
    return lead + set_cell_size(line, max(10, room - cell_len(note))).rstrip() + note


def search_hits(hits: Sequence[SearchHit]) -> None:
    """Print hits under their sessions, the session with the first hit first."""
    console = console_for()
    grouped: dict[str, list[SearchHit]] = {}
    for hit in hits:
        grouped.setdefault(hit["session_id"], []).append(hit)
    for at, (session_id, group) in enumerate(grouped.items()):
        if at:
            console.print()
        first = group[0]
        head = Text.assemble((one_line(first["title"] or session_id), "bold"))
        facts = [one_line(session_id)] if first["title"] else []
        facts += [
            one_line(first["source"] or "unknown"),
            at_time(first["session_started"], "%Y-%m-%d"),
        ]
        console.print(head.append("  " + _dot(console).join(facts), "dim"), soft_wrap=True)
        for hit in group:
            _print_indented(console, _hit(console, hit))


def _print_indented(console: Console, text: Text) -> None:
    """Print a paragraph two columns in, and its further lines four."""
    lead = "  "
    for line in text.wrap(console, max(_LEAST_TITLE, console.width - 4)):
        line.rstrip()
        console.print(Text(lead).append(line), soft_wrap=True)
        lead = "    "


def _hit(console: Console, hit: SearchHit) -> Text:
    role = one_line(hit["role"])
    line = Text.assemble(
        (role, _ROLE_STYLES.get(role, _OTHER_ROLE)),
        (f"  {at_time(hit['timestamp'])}  id {hit['id']}  ", "dim"),
    )
    snippet = one_line(hit["snippet"])
    if not console.is_terminal or console.is_dumb_terminal:
        return line.append(snippet)
    for at, piece in enumerate(marked_pieces(snippet)):
        line.append(piece, "bold black on yellow" if at % 2 else None)
    return line
