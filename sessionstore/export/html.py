"""One page that stands by itself: no script is needed to read it, and it asks the network nothing.

Three things keep what is stored from running. The templates escape every value; Markdown is
rendered without HTML and then cleaned of all but a list of harmless elements; and the page's
own policy forbids the browser whatever is not this page's style or its one script.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

import nh3
from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

from sessionstore.export.jsonl import json_text
from sessionstore.export.text import (
    calls_of,
    one_line,
    read_call,
    safe,
    state_of,
    written,
)
from sessionstore.records import ExportedSession, MessageRecord

# What Markdown may become. No `a` and no `img`: nothing here leads out of the page.
_ELEMENTS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
# Beyond that a text is shown as it is: rendering it would take seconds and help nobody.
_LONGEST_MARKDOWN = 100_000
_LONG_RESULT = 600
_KNOWN_ROLES = frozenset({"user", "assistant", "tool", "system"})

# Code, the name of its language and what else stood behind the fence, to HTML.
Highlight: TypeAlias = Callable[[str, str, str], str]


class _Entry(NamedTuple):
    """A line of the index."""

    anchor: str
    title: str
    facts: str


def html(sessions: Iterable[ExportedSession], *, note: str = "") -> Iterator[str]:
    """Write the page in pieces, a message at a time.

    The index stands last in the file, where it is known, and is shown first.

    Args:
        sessions: What the page holds, in order.
        note: A remark for its head, such as that secrets were taken out.
    """
    style, script = _file("page.css"), _file("filter.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src 'none'; base-uri 'none'; form-action 'none'"
    )
    yield _render("head.html", policy=policy, title="Conversations", style=Markup(style))  # noqa: S704 - our own file
    entries: list[_Entry] = []
    for number, session in enumerate(sessions, start=1):
        entry = _Entry(f"s{number}", _title(session), _line_of(session))
        entries.append(entry)
        yield _head_of(session, entry)
        for message in session["messages"]:
            yield _message(message)
        yield "</article>\n"
    heading = entries[0].title if len(entries) == 1 else f"{len(entries):,} conversations"
    yield _render(
        "foot.html",
        entries=entries,
        heading=heading,
        note=note,
        script=Markup(script),  # noqa: S704 - our own file
    )


def _title(session: ExportedSession) -> str:
    return one_line(session["title"] or session["id"])


def _line_of(session: ExportedSession) -> str:
    count = len(session["messages"])
    plural = "" if count == 1 else "s"
    parts = (session["id"], session["source"], _time(session["started_at"])[:10])
    return ", ".join(one_line(str(each)) for each in (*parts, f"{count:,} message{plural}") if each)


def _head_of(session: ExportedSession, entry: _Entry) -> str:
    who = (session["id"], session["source"], session["model"], session["user_id"])
    ended = session["ended_at"]
    reason = one_line(session["end_reason"] or "no reason given")
    life = f"ended {_time(ended)} ({reason})" if ended is not None else "open"
    facts = [
        ", ".join(one_line(str(each)) for each in who if each),
        f"started {_time(session['started_at'])}, {life}",
        f"{session['input_tokens']:,} tokens in, {session['output_tokens']:,} out",
    ]
    if session["parent_session_id"]:
        facts.append(f"comes from {one_line(session['parent_session_id'])}")
    config = session["model_config"]
    return _render(
        "session.html",
        anchor=entry.anchor,
        title=entry.title,
        facts=facts,
        prompt=safe(session["system_prompt"] or ""),
        config="" if config is None else safe(json_text(config, indent=2)),
    )


class Shown(NamedTuple):
    """What pages show of a message, all of it harmless; how long it may be is theirs to say.

    Attributes:
        kind: Its role, if that is one of the usual four, else `other`.
        role: Its role.
        tool: The name of the tool, or "".
        state: See `state_of`.
        thoughts: Its reasoning, each piece of it.
        text: What it says.
        folded: The line that stands for the text of a long result of a tool; "" for others.
        calls: The name and the arguments of each tool call.
        is_markdown: Whether the text is to be rendered, if it is not too long.
    """

    kind: str
    role: str
    tool: str
    state: str
    thoughts: list[str]
    text: str
    folded: str
    calls: list[tuple[str, str]]
    is_markdown: bool


def shown(message: MessageRecord) -> Shown:
    """Give what pages show of a message."""
    role = message["role"] or "unknown"
    text = safe(written(message["content"]))
    is_long = role == "tool" and len(text) > _LONG_RESULT
    return Shown(
        kind=role if role in _KNOWN_ROLES else "other",
        role=one_line(role),
        tool=one_line(message["tool_name"] or ""),
        state=state_of(message),
        thoughts=[
            safe(each) for each in (message["reasoning"], message["reasoning_content"]) if each
        ],
        text=text,
        folded=f"{one_line(text[:80])} … ({len(text):,} characters)" if is_long else "",
        calls=[_call(each) for each in calls_of(message["tool_calls"])],
        is_markdown=role != "tool" and text != "",
    )


def _message(message: MessageRecord) -> str:
    each = shown(message)
    as_markdown = each.is_markdown and len(each.text) <= _LONGEST_MARKDOWN
    return _render(
        "message.html",
        **each._asdict(),
        when=_time(message["timestamp"]),
        body=rendered(each.text) if as_markdown else "",
    )


def _call(call: Any) -> tuple[str, str]:
    """Give the name and the arguments of a tool call, JSON set out in lines."""
    _, name, arguments, is_json = read_call(call)
    return one_line(name), safe(json_text(arguments, indent=2) if is_json else arguments)


def _time(moment: float | None) -> str:
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")  # type: ignore[arg-type] # None is no time either
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def rendered(text: str, *, highlight: Highlight | None = None) -> Markup:
    """Render Markdown and leave nothing in it that could act or lead anywhere.

    Args:
        text: The Markdown.
        highlight: Makes HTML of a block of code and the name of its language, in which
            `span` may have a class; "" leaves the block as it is.
    """
    raw = _markdown(highlight).render(text)
    if highlight is None:
        cleaned = nh3.clean(raw, tags=_ELEMENTS, attributes={}, link_rel=None)
    else:
        classes = {"span": {"class"}}
        cleaned = nh3.clean(raw, tags=_ELEMENTS | {"span"}, attributes=classes, link_rel=None)
    return Markup(cleaned)  # noqa: S704 - cleaned in the lines above


@functools.cache
def _markdown(highlight: Highlight | None) -> MarkdownIt:
    options: dict[str, Any] = {"html": False, "breaks": True, "highlight": highlight}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    for rule in (_link_open, _link_close, _image):
        parser.add_render_rule(rule.__name__.removeprefix("_"), rule)
    return parser


# A link is its text, and where it led is written beside it.


def _link_open(
    _self: RendererHTML, _tokens: Sequence[Token], _at: int, _options: OptionsDict, _env: EnvType
) -> str:
    return ""


def _link_close(
    _self: RendererHTML, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType
) -> str:
    level = tokens[at].level
    opened = next(
        each for each in reversed(tokens[:at]) if each.type == "link_open" and each.level == level
    )
    if opened.info == "auto":
        return ""
    return f" ({_code(opened.attrGet('href'))})"


def _image(
    _self: RendererHTML, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType
) -> str:
    return f"[image: {escapeHtml(tokens[at].content)}] ({_code(tokens[at].attrGet('src'))})"


def _code(target: object) -> str:
    return f"<code>{escapeHtml(str(target or ''))}</code>"


def _render(name: str, **values: Any) -> str:
    return str(_templates()[name].render(values))


@functools.cache
def _templates() -> dict[str, Any]:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False)
    names = ("head.html", "session.html", "message.html", "foot.html")
    return {name: environment.from_string(_file(name)) for name in names}


@functools.cache
def _file(name: str) -> str:
    return (resources.files("sessionstore.export") / "pages" / name).read_text("utf-8")


def _digest(text: str) -> str:
    """Name a text as a policy does, so that no other may take its place."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
