"""The pages: what is asked of the store, and which template shows it."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from sessionstore.errors import (
    QueryError,
    SessionNotFoundError,
    SessionStoreError,
    StoreBusyError,
    TitleTakenError,
)
from sessionstore.export import FORMS, pieces
from sessionstore.export.text import file_name, safe, written
from sessionstore.options import asks_something, fields_of, moment_of, read_filter
from sessionstore.records import ListPlace, SessionRecord, SessionSummary
from sessionstore.store import SessionDB, size_of
from sessionstore.web import shown
from sessionstore.wording import byte_size, plural, utc_offset_s

Page = Callable[[Request], Any]

SESSIONS_A_PAGE = 50
HITS_A_PAGE = 20
MESSAGES_A_PAGE = 60
DAYS = 60
# The parts of a larger file are counted when somebody asks: all of it has to be read.
_SMALL_FILE_BYTES = 32_000_000
_LONGEST_FORM_BYTES = 65_536
_OF_LISTS = ("all", "include-children", "sort", "past")
_SORTS = ("rank", "newest", "oldest")
# What people filter by most stands in the form; the rest is an address that can be written.
_FIELDS = (
    *(("source", "Source"), ("model", "Model"), ("title", "Title"), ("user", "User")),
    *(("after", "Active since"), ("before", "Active before")),
    *(("min-messages", "Messages, at least"), ("min-tokens", "Tokens, at least")),
    ("min-cost", "Dollars, at least"),
)


class AskedWrongError(ValueError):
    """An address says something that cannot be meant; the message is a sentence."""


class Pages:
    """The pages of one store.

    Args:
        db: The store.
        allow_write: Whether sessions can be changed.

    Attributes:
        FORESEEN: Errors that `failed` tells in a sentence.
    """

    FORESEEN: ClassVar = (SessionStoreError, ValueError, HTTPException)

    def __init__(self, db: SessionDB, *, allow_write: bool) -> None:
        self._db = db
        self._allow_write = allow_write
        # What only these pages know, so that no other page can post in their name.
        self._csrf = secrets.token_urlsafe(32)
        self._templates = Environment(
            loader=PackageLoader("sessionstore.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals.update(
            address=shown.address, plural=plural, allow_write=allow_write, csrf=self._csrf
        )

    def readable(self) -> dict[str, Page]:
        """Give the pages by path."""
        return {
            "/": self._sessions,
            "/search": self._search,
            "/session": self._session,
            "/text": self._text,
            "/download": self._download,
            "/statistics": self._statistics,
            "/statistics/file": self._file,
            **({"/delete": self._delete} if self._allow_write else {}),
        }

    def writable(self) -> dict[str, Page]:
        """Give what is posted to, by path; nothing unless the store may be changed."""
        return {"/change": self._change} if self._allow_write else {}

    def sentence(self, status: int, heading: str, text: str, nonce: str) -> Response:
        """Write a page that says one thing."""
        page = self._templates.get_template("sentence.html")
        body = page.render(heading=heading, text=safe(text), nonce=nonce, here="")
        return HTMLResponse(body, status)

    def failed(self, request: Request, error: Exception) -> Response:
        """Say what went wrong, for people; what nobody foresaw is not told to the browser."""
        status, heading, text = _told(error)
        return self.sentence(status, heading, text, request.state.nonce)

    def _show(self, request: Request, template: str, **values: Any) -> Response:
        page = self._templates.get_template(template)
        return HTMLResponse(page.render(nonce=request.state.nonce, **values))

    # Sessions.

    def _sessions(self, request: Request) -> Response:
        asked = _query(request)
        if "" in asked.values():  # a form sends its empty fields too; no bookmark needs them
            kept = {name: value for name, value in asked.items() if value}
            return RedirectResponse(shown.address("/", **kept), 303)
        own = {name: asked[name] for name in _OF_LISTS if name in asked}
        filters = {name: value for name, value in asked.items() if name not in own}
        try:
            wanted = read_filter(filters)
        except ValueError as error:
            raise AskedWrongError(str(error)) from error
        started = _choice(own, "sort", ("active", "started")) == "started"
        everything = _choice(own, "all", ("no", "yes")) == "yes"
        found = self._db.list_sessions_rich(
            limit=SESSIONS_A_PAGE + 1,
            include_children=_choice(own, "include-children", ("no", "yes")) == "yes",
            order_by_last_active=not started,
            include_archived=everything or wanted.archived is not None,
            pinned_first=True,
            past=_place(own["past"]) if "past" in own else None,
            **fields_of(wanted),
        )
        page = found[:SESSIONS_A_PAGE]
        more = None
        if len(found) > len(page):
            more = shown.address("/", **asked | {"past": _past(page[-1], started=started)})
        return self._show(
            request,
            "sessions.html",
            here="/",
            entries=[shown.session(each) for each in page],
            more=more,
            asked=asked,
            fields=_FIELDS,
            narrowed=asks_something(wanted) or "past" in own,
            sources=list(self._db.session_sources()),
        )

    # Search.

    def _search(self, request: Request) -> Response:
        asked = {name: value for name, value in _query(request).items() if value}
        known = ("q", "source", "role", "since", "until", "sort", "offset")
        if unknown := asked.keys() - set(known):
            raise AskedWrongError(f"Search does not know {', '.join(sorted(unknown))}.")
        query = asked.get("q", "").strip()
        offset = _number(asked, "offset") or 0
        hits = []
        if query:
            since = _moment(asked, "since", last=False)
            until = _moment(asked, "until", last=True)
            sort = _choice(asked, "sort", _SORTS)
            try:
                hits = self._db.search_messages(
                    query,
                    source_filter=[asked["source"]] if "source" in asked else None,
                    role_filter=[asked["role"]] if "role" in asked else None,
                    since=since,
                    until=until,
                    sort=sort,
                    limit=HITS_A_PAGE + 1,
                    offset=offset,
                )
            except QueryError:
                raise
            except ValueError as error:
                raise AskedWrongError(str(error)) from error
        page = hits[:HITS_A_PAGE]
        more = None
        if len(hits) > len(page):
            more = shown.address("/search", **asked | {"offset": offset + len(page)})
        return self._show(
            request,
            "search.html",
            here="/search",
            query=query,
            asked=asked,
            groups=shown.grouped(page),
            count=len(page),
            more=more,
            sorts=_SORTS,
            sources=list(self._db.session_sources()),
            trouble=self._db.search_index_trouble(),
            left=self._db.search_index_left(),
        )

    # Conversations.

    def _session(self, request: Request) -> Response:
        asked = _query(request)
        record = self._require(asked)
        at, before, after = (_number(asked, name) for name in ("at", "before", "after"))
        window = functools.partial(self._db.get_messages, record["id"], include_inactive=True)
        size = MESSAGES_A_PAGE
        if before is not None or asked.get("from") == "end":
            messages = window(last=size + 1, before_id=before)
            earlier, messages = len(messages) > size, messages[-size:]
            later = before is not None
        else:
            ahead = window(last=size // 3 + 1, before_id=at) if at is not None else []
            first = after if at is None else at - 1
            messages = window(limit=size + 1, after_id=first)
            later, messages = len(messages) > size, messages[:size]
            earlier = after is not None or len(ahead) > size // 3
            messages = ahead[-(size // 3) :] + messages
        chain = self._db.get_chain(record["id"])
        place = chain.index(record["id"]) if record["id"] in chain else 0
        parent = record["parent_session_id"]
        return self._show(
            request,
            "session.html",
            here="",
            session=shown.session(record),
            runs=list(shown.runs(messages, at)),
            total=self._db.message_count(record["id"], include_inactive=True),
            earlier=messages[0]["id"] if messages and earlier else None,
            later=messages[-1]["id"] if messages and later else None,
            at=at,
            lost=at is not None and all(each["id"] != at for each in messages),
            place=place + 1,
            parts=len(chain),
            before=chain[place - 1] if place else None,
            after=chain[place + 1] if place + 1 < len(chain) else None,
            parent=parent if parent is not None and parent not in chain else None,
            forms=list(FORMS),
        )

    def _text(self, request: Request) -> Response:
        asked = _query(request)
        record = self._require(asked)
        number = _number(asked, "message")
        found = []
        if number is not None:
            found = self._db.get_messages(
                record["id"], after_id=number - 1, limit=1, include_inactive=True
            )
        if not found or found[0]["id"] != number:
            raise HTTPException(404)
        text = written(found[0]["content"])
        return PlainTextResponse(text.encode("utf-8", "backslashreplace"))

    def _download(self, request: Request) -> Response:
        asked = _query(request)
        form = _choice(asked, "format", tuple(FORMS))
        session = self._db.export_session(self._require(asked)["id"])
        if session is None:  # it went in between
            raise SessionNotFoundError(asked["id"])
        ending = "jsonl" if form == "trace" else form
        name = quote(f"{file_name(session['id'])}.{ending}")
        body = (each.encode("utf-8", "backslashreplace") for each in pieces([session], form))
        return StreamingResponse(
            body,
            media_type=f"{FORMS[form]}; charset=utf-8",
            headers={"content-disposition": f"attachment; filename*=UTF-8''{name}"},
        )

    def _require(self, asked: Mapping[str, str]) -> SessionRecord:
        if not (session_id := asked.get("id", "")):
            raise AskedWrongError("It names no conversation; open one from the list.")
        record = self._db.get_session(session_id)
        if record is None:
            raise SessionNotFoundError(session_id)
        return record

    # Statistics.

    def _statistics(self, request: Request) -> Response:
        by_day = self._db.usage_by_day(utc_offset_s())
        groups = []
        for title, rows, key in (
            ("Day", by_day[-DAYS:], "day"),
            ("Source", self._db.usage_by("source"), "name"),
            ("Model", self._db.usage_by("model"), "name"),
        ):
            used: list[Any] = list(rows)
            names = [safe(str(each[key])) for each in used]
            lines = [shown.usage_row(row, name) for row, name in zip(used, names, strict=True)]
            upright = key == "day"
            drawn = slice(None) if upright else slice(8)
            groups.append(
                {
                    "title": title,
                    "charts": shown.charts(used[drawn], names[drawn], upright=upright),
                    "rows": lines[::-1] if upright else lines,
                }
            )
        size = size_of(self._db.location)
        small = size is not None and size <= _SMALL_FILE_BYTES
        return self._show(
            request,
            "statistics.html",
            here="/statistics",
            groups=groups,
            days=DAYS,
            sums={
                "sessions": sum(each["sessions"] for each in by_day),
                "messages": sum(each["messages"] for each in by_day),
                "tokens": sum(each["total_tokens"] for each in by_day),
            },
            location=safe(str(self._db.location)),
            size=None if size is None else byte_size(size),
            **self._parts(counted=small),
        )

    def _file(self, request: Request) -> Response:
        return self._show(request, "file.html", here="/statistics", **self._parts(counted=True))

    def _parts(self, *, counted: bool) -> dict[str, Any]:
        sizes = self._db.file_sizes() if counted else None
        return {
            "parts": None if sizes is None else shown.file_parts(sizes),
            "exact": sizes is None or sizes["exact"],
        }

    # Changes.

    def _delete(self, request: Request) -> Response:
        record = self._require(_query(request))
        count = self._db.message_count(record["id"], include_inactive=True)
        session = shown.session(record)
        return self._show(request, "delete.html", here="", session=session, count=count)

    async def _change(self, request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LONGEST_FORM_BYTES:
                raise HTTPException(413, "That is too much for a form.")
        given = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not secrets.compare_digest(given.get("csrf", "").encode(), self._csrf.encode()):
            raise HTTPException(403, "The form is not of this page, or of an earlier run. Reload.")
        where = await run_in_threadpool(self._changed, given)
        return RedirectResponse(where, 303)

    def _changed(self, given: Mapping[str, str]) -> str:
        """Do what a form asks for; return where to go."""
        session_id = self._require(given)["id"]
        action = given.get("action", "")
        flags: dict[str, tuple[Callable[[str, bool], bool], bool]] = {
            "pin": (self._db.set_session_pinned, True),
            "unpin": (self._db.set_session_pinned, False),
            "archive": (self._db.set_session_archived, True),
            "unarchive": (self._db.set_session_archived, False),
        }
        if action in flags:
            change, value = flags[action]
            done = change(session_id, value)
        elif action == "rename":
            try:
                done = self._db.set_session_title(session_id, given.get("title", ""))
            except TitleTakenError as error:
                raise HTTPException(409, str(error)) from error
            except ValueError as error:
                raise HTTPException(400, str(error)) from error
        elif action == "delete":
            done = self._db.delete_session(session_id)
        else:
            raise AskedWrongError("That is nothing that can be done to a conversation.")
        if not done:
            raise SessionNotFoundError(session_id)
        if action == "delete":
            return "/"
        return "/" if given.get("from") == "list" else shown.address("/session", id=session_id)


def _told(error: Exception) -> tuple[int, str, str]:
    """Give the status, the heading and the sentence for an error."""
    match error:
        case HTTPException(status_code=404):
            told = 404, "Nothing is here", "Go on from one of the links above."
        case HTTPException(status_code=405):
            told = 405, "No such way to ask", "Go on from one of the links above."
        case HTTPException():
            told = error.status_code, "That cannot be done", str(error.detail)
        case SessionNotFoundError():
            told = 404, "No such conversation", f"{error}. It may have been deleted."
        case StoreBusyError():
            told = 503, "The store is busy", f"{error}. Reload the page in a moment."
        case QueryError():
            told = 400, "This cannot be searched for", str(error)
        case SessionStoreError():
            told = 503, "The store did not answer", str(error)
        case ValueError():
            told = 400, "This address cannot be read", str(error)
        case _:
            told = 500, "That failed", "The command that serves this page says what it was."
    status, heading, text = told
    return status, heading, text if text.endswith((".", "?")) else f"{text}."


def _query(request: Request) -> dict[str, str]:
    return dict(request.query_params)


def _choice(asked: Mapping[str, str], name: str, choices: tuple[str, ...]) -> Any:
    """Give one of several words that may be said; the first if none is."""
    value = asked.get(name) or choices[0]
    if value not in choices:
        raise AskedWrongError(f"{name} is one of {', '.join(choices)}, not {value!r}.")
    return value


def _number(asked: Mapping[str, str], name: str) -> int | None:
    if name not in asked:
        return None
    value = asked[name]
    if not (value.isascii() and value.isdigit() and len(value) <= 18):  # noqa: PLR2004 - 64 bits
        raise AskedWrongError(f"{name} is a number, not {value!r}.")
    return int(value)


def _moment(asked: Mapping[str, str], name: str, *, last: bool) -> float | None:
    if name not in asked:
        return None
    try:
        return moment_of(asked[name], last=last)
    except ValueError as error:
        raise AskedWrongError(f"Invalid value for {name}: {error}") from error


def _past(entry: SessionSummary, *, started: bool) -> str:
    moment = entry["started_at"] if started else entry["last_active"]
    root = entry["_lineage_root_id"] or entry["id"]
    return f"{int(entry['pinned'])},{moment!r},{root}"


def _place(text: str) -> ListPlace:
    pinned, _, rest = text.partition(",")
    moment, _, root = rest.partition(",")
    try:
        return ListPlace(pinned == "1", float(moment), root)
    except ValueError as error:
        raise AskedWrongError(
            "Its place in the list cannot be read; go to the first page."
        ) from error
