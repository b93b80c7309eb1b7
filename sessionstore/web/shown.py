"""Records as they are shown: text that is safe to show, times, amounts, marks and charts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from sessionstore.export import html
from sessionstore.export.text import iso_time, one_line, safe, state_of
from sessionstore.records import (
    ContextMessage,
    DayUsage,
    FileSizes,
    GroupUsage,
    MessageRecord,
    SearchHit,
    SessionRecord,
)
from sessionstore.web.code import highlighted
from sessionstore.wording import (
    ago,
    at_time,
    byte_size,
    cost,
    dollars,
    known_cost,
    marked_pieces,
    short,
)

# More of a text is a page by itself: a tool's result may be megabytes.
_LONGEST = 20_000
_CHART = (320, 120)  # width and height, in the units of its view box
_UNKNOWN = "unknown"
_PARTS = {
    "text": "Messages",
    "word_index": "Index of words",
    "trigram_index": "Index of trigrams",
    "prompts": "System prompts",
    "sessions": "Sessions",
    "other": "All else",
    "free": "Free pages",
}


class Moment(NamedTuple):
    """A time in three forms: how long ago, exactly in the local zone, and for machines."""

    ago: str
    exact: str
    machine: str


def moment(at: float | None) -> Moment:
    """Say when something was."""
    return Moment(ago(at), at_time(at, "%Y-%m-%d %H:%M:%S %Z"), iso_time(at) or "")


def address(path: str, /, **query: Any) -> str:
    """Write an address on this site, with any names in its query; what is None is left out."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def session(record: SessionRecord) -> dict[str, Any]:
    """Give what pages show of a session, or of an entry of a list."""
    entry: dict[str, Any] = dict(record)
    return {
        "id": record["id"],
        "href": address("/session", id=record["id"]),
        "title": one_line(record["title"] or entry.get("preview") or record["id"]),
        "titled": record["title"] is not None,
        "name": record["title"] or "",
        "source": one_line(record["source"] or _UNKNOWN),
        "model": one_line(record["model"] or ""),
        "user": one_line(record["user_id"] or ""),
        "active": moment(
            entry.get("last_active") or record["last_active_at"] or record["started_at"]
        ),
        "started": moment(record["started_at"]),
        "ended": None if record["ended_at"] is None else moment(record["ended_at"]),
        "end_reason": one_line(record["end_reason"] or ""),
        "messages": record["message_count"],
        "tool_calls": record["tool_call_count"],
        "tokens": short(record["input_tokens"] + record["output_tokens"]),
        "input_tokens": record["input_tokens"],
        "output_tokens": record["output_tokens"],
        "cost": "" if known_cost(record) is None else cost(record),
        "pinned": record["pinned"],
        "archived": record["archived"],
        "prompt": safe(record["system_prompt"] or ""),
    }


def runs(messages: Iterable[MessageRecord], at: int | None) -> Iterator[dict[str, Any]]:
    """Give messages in runs of one state, so that what is no longer live can be folded away.

    Args:
        messages: In order.
        at: The message that is asked for; its run is not folded.
    """
    for state, run in itertools.groupby(messages, state_of):
        members = [message(each) for each in run]
        yield {
            "state": state,
            "messages": members,
            "open": any(each["id"] == at for each in members),
        }


def message(record: MessageRecord) -> dict[str, Any]:
    """Give what pages show of a message."""
    whole = html.shown(record)
    cut = len(whole.text) > _LONGEST
    as_markdown = whole.is_markdown and not cut
    return whole._asdict() | {
        "id": record["id"],
        "text_href": address("/text", id=record["session_id"], message=record["id"]),
        "when": moment(record["timestamp"]),
        "body": html.rendered(whole.text, highlight=highlighted) if as_markdown else "",
        "length": len(whole.text),
        "cut": cut,
        "text": whole.text[:_LONGEST],
        "thoughts": [each[:_LONGEST] for each in whole.thoughts],
        "calls": [(name, arguments[:_LONGEST]) for name, arguments in whole.calls],
    }


def grouped(hits: Sequence[SearchHit]) -> list[dict[str, Any]]:
    """Give hits by session, in the order of the best hit of each."""
    groups: dict[str, dict[str, Any]] = {}
    for hit in hits:
        group = groups.setdefault(
            hit["session_id"],
            {
                "title": one_line(hit["title"] or hit["session_id"]),
                "href": address("/session", id=hit["session_id"]),
                "source": one_line(hit["source"] or _UNKNOWN),
                "model": one_line(hit["model"] or ""),
                "hits": [],
            },
        )
        found = address("/session", id=hit["session_id"], at=hit["id"])
        group["hits"].append(
            {
                "href": f"{found}#m{hit['id']}",
                "role": one_line(hit["role"] or _UNKNOWN),
                "tool": one_line(hit["tool_name"] or ""),
                "when": moment(hit["timestamp"]),
                "snippet": marked(hit["snippet"]),
                "context": [
                    (one_line(each["role"] or _UNKNOWN), one_line(each["content"]))
                    for each in _around(hit)
                ],
            }
        )
    return list(groups.values())


def _around(hit: SearchHit) -> list[ContextMessage]:
    """Give the messages before and after a hit, without itself as far as that is certain."""
    context = hit["context"]
    said = " ".join("".join(marked_pieces(hit["snippet"])).strip(".… ").split())[:40]
    own = [
        at
        for at, each in enumerate(context)
        if each["role"] == hit["role"] and said in " ".join(each["content"].split())
    ]
    if len(context) == 3:  # noqa: PLR2004 - the hit between its neighbours
        own = [1]
    return [each for at, each in enumerate(context) if own != [at]]


def marked(snippet: str) -> Markup:
    """Turn the marks of a snippet into marks of a page; all else in it is text."""
    return Markup().join(
        Markup("<mark>{}</mark>").format(piece) if at % 2 else piece
        for at, piece in enumerate(marked_pieces(safe(snippet)))
    )


class Chart(NamedTuple):
    """One figure of several things as bars; `bars` are x, y, width, height, name and value."""

    title: str
    label: str
    width: int
    height: int
    bars: list[tuple[float, float, float, float, str, str]]


def charts(rows: Sequence[Any], names: Sequence[str], *, upright: bool) -> list[Chart]:
    """Draw the four figures that are told of days, sources and models.

    Args:
        rows: What was used, as records.
        names: What each row is called.
        upright: Columns from left to right, as for days; else bars, one below another.
    """
    figures: tuple[tuple[str, str, Any], ...] = (
        ("Sessions", "sessions", "{:,}".format),
        ("Messages", "messages", "{:,}".format),
        ("Tokens", "total_tokens", short),
        ("Cost", "cost_usd", dollars),
    )
    return [
        _chart(title, [(name, row[key], write(row[key])) for name, row in pairs], upright=upright)
        for title, key, write in figures
        if (pairs := list(zip(names, rows, strict=True)))
    ]


def _chart(title: str, values: Sequence[tuple[str, float | None, str]], *, upright: bool) -> Chart:
    width, height = _CHART
    # A sum of costs may be beyond all numbers, and no bar is.
    most = max((value for _, value, _ in values if value and isfinite(value)), default=0)
    step = (width if upright else height) / len(values)
    bars = []
    for at, (name, value, text) in enumerate(values):
        share = min((value or 0) / most, 1.0) if most else 0.0
        thick, begin = round(step * 0.8, 2), round(at * step + step * 0.1, 2)
        if upright:
            long = round(share * height, 2)
            bars.append((begin, round(height - long, 2), thick, long, name, text))
        else:
            bars.append((0.0, begin, round(share * width, 2), thick, name, text))
    top = max(values, key=lambda each: each[1] or 0)
    label = f"{title}: {len(values)} bars, the highest is {top[0]} with {top[2]}"
    return Chart(title, label, width, height, bars)


def usage_row(row: DayUsage | GroupUsage, name: str) -> tuple[str, str, str, str, str]:
    """Give a line of a table of statistics."""
    sum_of_costs = dollars(row["cost_usd"])
    if row["cost_usd"] is not None and row["known_sessions"] < row["sessions"]:
        sum_of_costs += f" (known for {row['known_sessions']:,})"
    return (
        name,
        f"{row['sessions']:,}",
        f"{row['messages']:,}",
        f"{row['total_tokens']:,}",
        sum_of_costs,
    )


def file_parts(sizes: FileSizes) -> list[tuple[str, str, str, float]]:
    """Give the parts of the file: name, size, share as text and of 100."""
    figures: dict[str, Any] = dict(sizes)
    total = max(sizes["total"], 1)
    return [
        (
            name,
            byte_size(figures[part]),
            f"{figures[part] / total:.0%}",
            100 * figures[part] / total,
        )
        for part, name in _PARTS.items()
    ]
