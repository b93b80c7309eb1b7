"""How the figures of `stats` look to people: tables, and a bar where one would rather look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sessionstore.cli.render import console_for
from sessionstore.export.text import one_line
from sessionstore.wording import byte_size, dollars, plural

_GAP = 2
_BAR = 24
_LEAST_BAR = 6
_PARTS = {
    "text": "messages",
    "word_index": "word index",
    "trigram_index": "trigram index",
    "prompts": "prompts",
    "sessions": "sessions",
    "other": "other",
    "free": "free",
}


def statistics(figures: Mapping[str, Any]) -> None:
    """Print the totals, then what each source, model, day and part of the file has of it."""
    console = console_for()
    size, costs = figures["size_bytes"], figures["costs"]
    facts = {
        "Store": one_line(figures["location"]),
        "Size": "unknown" if size is None else byte_size(size),
        "Sessions": f"{figures['sessions']:,}",
        "Messages": f"{figures['messages']:,}",
        "Tokens": f"{figures['input_tokens']:,} in, {figures['output_tokens']:,} out, "
        f"{figures['total_tokens']:,} together",
        "Reasoning": f"{figures['reasoning_tokens']:,} of the tokens out",
        "Cache": f"{figures['cache_read_tokens']:,} tokens read, "
        f"{figures['cache_write_tokens']:,} written",
        "Cost": _sum_of_costs(costs["actual_cost_usd"], figures["sessions"]),
        "Estimate": _sum_of_costs(costs["estimated_cost_usd"], figures["sessions"]),
    }
    for name, text in facts.items():
        console.print(Text.assemble((f"{name:<11}", "bold"), text), soft_wrap=True)
    _table(
        console,
        ("SOURCE", "SESSIONS", "TOKENS"),
        [
            (one_line(name), f"{each['sessions']:,}", each["total_tokens"])
            for name, each in figures["sources"].items()
        ],
    )
    _table(
        console,
        ("MODEL", "SESSIONS", "COST", "ESTIMATE", "TOKENS"),
        [
            (
                one_line(_model(each)),
                f"{each['session_count']:,}",
                dollars(each["actual_cost_usd"]),
                dollars(each["estimated_cost_usd"]),
                each["total_tokens"],
            )
            for each in figures["models"]
        ],
    )
    _table(
        console,
        ("DAY", "SESSIONS", "COST", "TOKENS"),
        [
            (each["day"], f"{each['sessions']:,}", dollars(each["cost_usd"]), each["total_tokens"])
            for each in figures["days"]
        ],
    )
    if figures["file"] is not None:
        _file(console, figures["file"])


def _file(console: Console, file: Mapping[str, Any]) -> None:
    total = max(file["total"], 1)
    head = "PART OF THE FILE" if file["exact"] else "PART OF THE FILE (ABOUT)"
    _table(
        console,
        (head, "SHARE", "SIZE"),
        [(name, f"{file[part] / total:.0%}", file[part]) for part, name in _PARTS.items()],
        write=byte_size,
    )


def _table(
    console: Console,
    heads: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    *,
    write: Any = "{:,}".format,
) -> None:
    """Print rows whose last cell is a number, with a bar for it where there is room."""
    if not rows:
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(heads[0], overflow="fold")
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    cells = [(*(str(each) for each in row[:-1]), write(row[-1])) for row in rows]
    taken = sum(
        max(len(head), *(len(row[at]) for row in cells)) + _GAP for at, head in enumerate(heads)
    )
    room = min(_BAR, console.width - taken)
    if room >= _LEAST_BAR:
        table.add_column("", no_wrap=True)
    most = max((row[-1] for row in rows), default=0)
    for row, texts in zip(rows, cells, strict=True):
        bar = _bar(console, row[-1], most, room) if room >= _LEAST_BAR else None
        table.add_row(*map(Text, texts), *([] if bar is None else [Text(bar, style="cyan")]))
    console.print()
    console.print(table)


def _bar(console: Console, value: float, most: float, room: int) -> str:
    mark = "█" if console.encoding.startswith("utf") else "#"
    length = round(room * value / most) if most else 0
    return mark * max(length, 1 if value else 0)


def _model(usage: Mapping[str, Any]) -> str:
    named = [usage["model"] or "unknown", usage["billing_provider"]]
    task = f" ({usage['task']})" if usage["task"] else ""
    return " at ".join(each for each in named if each) + task


def _sum_of_costs(cost: Mapping[str, Any], sessions: int) -> str:
    if cost["sum"] is None:
        return dollars(None)
    known = cost["known_sessions"]
    note = "" if known == sessions else f" (known for {known:,} of {plural(sessions, 'session')})"
    return dollars(cost["sum"]) + note
