"""The tools: what each does, and answers that a model can afford to read.

An answer is compact JSON of at most `ANSWER` characters or so: items that do not fit are left
for the next call, and the answer says which call that is. A text is cut where it is too long,
and says how much is missing and how to read on. Fields that say nothing are absent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessionstore.errors import SessionNotFoundError
from sessionstore.export.jsonl import json_text
from sessionstore.export.text import calls_of, iso_time, name_and_arguments, one_line, written
from sessionstore.mcp.arguments import Argument, moment, taken
from sessionstore.records import MessageRecord, SearchHit, SessionRecord
from sessionstore.redact import redact, redact_value
from sessionstore.store import SessionDB

ANSWER = 24_000
_TEXT = 2_000
_CALL = 300
_SHORT = 200
_MOST_CALLS = 20
_MOST = 100
_MOST_SOURCES = 20

_QUERY = (
    "Words to find; all must occur in one message, anywhere in it, case and accents ignored. "
    '"a phrase" finds the words in that order, begin* a beginning, and OR, NOT and AND (in '
    "capitals) combine them."
)
_TIME = "ISO date or time, UTC unless it names a zone, or an age such as 12h, 7d, 4w."
_SESSION = "Id of the session, the beginning of one, or its title."

Resolve = Callable[[SessionDB, str], str]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        name: What it is called by.
        about: What it does; the model reads it.
        arguments: What it takes.
        answer: Does it.
        writes: Whether it changes the store.
    """

    name: str
    about: str
    arguments: Mapping[str, Argument]
    answer: Callable[..., dict[str, Any]]
    writes: bool = False


class Tools:
    """The tools over one store.

    Args:
        db: The store.
        resolve: Turns what somebody calls a session into its id.
        allow_write: Whether there are tools that change it.
        redacting: Whether secrets are taken out of every answer.
        now: The clock.
    """

    def __init__(
        self,
        db: SessionDB,
        resolve: Resolve,
        *,
        allow_write: bool = False,
        redacting: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._db, self._resolve, self._redacting, self._now = db, resolve, redacting, now
        told = self._reading() + (self._writing() if allow_write else [])
        self.all: dict[str, Tool] = {tool.name: tool for tool in told}

    def call(self, name: str, given: Mapping[str, Any]) -> str:
        """Answer a call with compact JSON.

        Raises:
            ValueError: An argument is wrong, and says how.
            SessionStoreError: The store cannot do it.
            KeyError: There is no such tool.
        """
        tool = self.all[name]
        answer = tool.answer(**taken(tool.arguments, given))
        return json_text(answer, compact=True)

    def _reading(self) -> list[Tool]:
        paging = {
            "limit": Argument("integer", "How many at most.", default=10, least=1, most=_MOST),
            "offset": Argument("integer", "Leave out so many of the first.", default=0, least=0),
        }
        times = {
            "since": Argument("string", f"Not before then: {_TIME}"),
            "until": Argument("string", f"Not after then: {_TIME}"),
        }
        return [
            Tool(
                "search_sessions",
                "Find messages of past conversations by what they say; also tool calls and "
                "results. Each hit names its session and message: read around it with "
                "get_session.",
                {
                    "query": Argument("string", _QUERY, required=True),
                    "source": Argument("string", "Only this source; list_sessions names them."),
                    "role": Argument("string", "Only this role: user, assistant, tool, system."),
                    "session": Argument("string", f"Only this session. {_SESSION}"),
                    **times,
                    "sort": Argument(
                        "string",
                        "Best match first, or by age.",
                        default="rank",
                        choices=("rank", "newest", "oldest"),
                    ),
                    **paging,
                },
                self._search,
            ),
            Tool(
                "list_sessions",
                "List past conversations, the latest activity first, one line each.",
                {
                    "source": Argument("string", "Only this source, such as cli or telegram."),
                    "title": Argument("string", "Only titles that contain this; case ignored."),
                    "model": Argument("string", "Only models whose name contains this."),
                    **times,
                    "archived": Argument(
                        "boolean", "Include archived conversations.", default=False
                    ),
                    **paging,
                },
                self._list,
            ),
            Tool(
                "get_session",
                "Read a conversation: its last messages, or those before or after a message, or "
                "around one. Long texts are cut; give message and from_character to read one "
                "message on.",
                {
                    "session": Argument("string", _SESSION, required=True),
                    "before": Argument("integer", "Only messages before this message id."),
                    "after": Argument("integer", "Only messages after this message id."),
                    "around": Argument("integer", "Only this message id and its neighbours."),
                    "message": Argument("integer", "Only this message id, in full."),
                    "from_character": Argument(
                        "integer", "With message: where to go on.", default=0, least=0
                    ),
                    "limit": Argument(
                        "integer", "How many messages.", default=20, least=1, most=_MOST
                    ),
                },
                self._get,
            ),
        ]

    def _writing(self) -> list[Tool]:
        return [
            Tool(
                "update_session",
                "Rename a conversation, put it away or take it out again, pin it or not.",
                {
                    "session": Argument("string", _SESSION, required=True),
                    "title": Argument("string", "Its new title, at most 100 characters."),
                    "archived": Argument("boolean", "Whether it is archived."),
                    "pinned": Argument("boolean", "Whether it is pinned."),
                },
                self._update,
                writes=True,
            )
        ]

    # The answers.

    def _search(
        self,
        *,
        query: str,
        source: str | None,
        role: str | None,
        session: str | None,
        since: str | None,
        until: str | None,
        sort: Any,
        limit: int,
        offset: int,
    ) -> dict[str, Any]:
        hits = self._db.search_messages(
            query,
            source_filter=None if source is None else [source],
            role_filter=None if role is None else [role],
            session_id=None if session is None else self._resolve(self._db, session),
            since=moment("since", since, now=self._now()),
            until=moment("until", until, now=self._now(), last=True),
            sort=sort,
            limit=limit + 1,
            offset=offset,
        )
        answer = _fitting("hits", [self._hit(each) for each in hits[:limit]])
        shown = len(answer["hits"])
        if len(hits) > shown:
            answer["more"] = f"call again with offset {offset + shown}"
        if not hits:
            answer["note"] = (
                "there are no more; call with a lower offset" if offset else self._nothing(query)
            )
        return answer

    def _nothing(self, query: str) -> str:
        trouble = self._db.search_index_trouble()
        said = "no message has all of that; try fewer or other words"
        return f"{said}. {trouble}" if trouble and query.strip() else said

    def _hit(self, hit: SearchHit) -> dict[str, Any]:
        return _told(
            session=hit["session_id"],
            title=self._line(hit["title"]),
            source=self._line(hit["source"]),
            message=hit["id"],
            role=hit["role"],
            tool=self._line(hit["tool_name"]),
            time=_second(hit["timestamp"]),
            text=self._snippet(hit),
        )

    def _snippet(self, hit: SearchHit) -> str:
        if not self._redacting:
            return hit["snippet"]
        # A secret that a snippet begins or ends in has lost the shape it is known by.
        (message,) = self._db.get_messages_around(hit["session_id"], hit["id"], 0)
        calls = redact_value(message["tool_calls"])
        whole = self._written(message)
        if whole == written(message["content"]) and calls == message["tool_calls"]:
            return hit["snippet"]
        told = json_text(calls, compact=True) if calls else ""
        return one_line(f"{whole}\n{told}")[:_SHORT]

    def _list(
        self,
        *,
        source: str | None,
        title: str | None,
        model: str | None,
        since: str | None,
        until: str | None,
        archived: bool,
        limit: int,
        offset: int,
    ) -> dict[str, Any]:
        now = self._now()
        found = self._db.list_sessions_rich(
            source=source,
            limit=limit + 1,
            offset=offset,
            order_by_last_active=True,
            include_archived=archived,
            title=title,
            model=model,
            after=moment("since", since, now=now),
            before=moment("until", until, now=now, last=True),
        )
        lines = [
            _told(
                session=each["id"],
                title=self._line(each["title"]),
                preview=None if each["title"] else self._line(each["preview"]),
                source=self._line(each["source"]),
                model=self._line(each["model"]),
                messages=each["message_count"],
                started=_second(each["started_at"]),
                active=_second(each["last_active"]),
                archived=each["archived"] or None,
                pinned=each["pinned"] or None,
            )
            for each in found[:limit]
        ]
        answer = _fitting("sessions", lines)
        shown = len(answer["sessions"])
        if len(found) > shown:
            answer["more"] = f"call again with offset {offset + shown}"
        if not offset:
            sources = list(self._db.session_sources().items())
            answer["sources"] = {self._line(name): n for name, n in sources[:_MOST_SOURCES]}
        return answer

    def _get(
        self,
        *,
        session: str,
        before: int | None,
        after: int | None,
        around: int | None,
        message: int | None,
        from_character: int,
        limit: int,
    ) -> dict[str, Any]:
        if sum(each is not None for each in (before, after, around, message)) > 1:
            msg = "before, after, around and message exclude one another; give one of them"
            raise ValueError(msg)
        session_id = self._resolve(self._db, session)
        if message is not None:
            (only,) = self._db.get_messages_around(session_id, message, 0)
            return {"session": session_id, **self._whole(only, from_character)}
        record = self._db.get_session(session_id)
        if record is None:
            raise SessionNotFoundError(session_id, f"session {session_id} was deleted just now")
        if around is not None:
            found = self._db.get_messages_around(session_id, around, limit // 2)
        elif after is not None:
            found = self._db.get_messages(session_id, after_id=after, limit=limit)
        else:
            found = self._db.get_messages(session_id, before_id=before, last=limit)
        # What does not fit is what is farther from where the reader is.
        place = after if around is None else around
        near = sorted(
            range(len(found)), key=lambda at: -at if place is None else abs(found[at]["id"] - place)
        )
        kept = _fitting("messages", [self._message(found[at]) for at in near])["messages"]
        kept.sort(key=lambda each: each["id"])
        onward = self._onward(session_id, kept) if kept else {}
        return {"session": self._head(record), "messages": kept, **onward}

    def _onward(self, session_id: str, shown: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Say how to read the messages that come before and after those shown."""
        first, last = shown[0]["id"], shown[-1]["id"]
        onward: dict[str, Any] = {}
        if self._db.get_messages(session_id, before_id=first, last=1):
            onward["earlier"] = f"call again with before {first}"
        if self._db.get_messages(session_id, after_id=last, limit=1):
            onward["later"] = f"call again with after {last}"
        return onward

    def _head(self, record: SessionRecord) -> dict[str, Any]:
        return _told(
            id=record["id"],
            title=self._line(record["title"]),
            source=self._line(record["source"]),
            model=self._line(record["model"]),
            started=_second(record["started_at"]),
            ended=_second(record["ended_at"]),
            messages=record["message_count"],
            tokens=record["input_tokens"] + record["output_tokens"] or None,
            parent=record["parent_session_id"],
        )

    def _message(self, record: MessageRecord) -> dict[str, Any]:
        text = self._written(record)
        calls: list[dict[str, Any]] = []
        listed = calls_of(record["tool_calls"])
        is_cut = len(listed) > _MOST_CALLS
        for call in listed[:_MOST_CALLS]:
            name, arguments = name_and_arguments(redact_value(call) if self._redacting else call)
            given = arguments if isinstance(arguments, str) else json_text(arguments, compact=True)
            line = one_line(given)
            is_cut |= len(line) > _CALL
            calls.append({"name": _cut(name, _SHORT), "arguments": _cut(line, _CALL)})
        if len(listed) > _MOST_CALLS:
            calls.append({"more": len(listed) - _MOST_CALLS})
        room = _CALL if record["role"] == "tool" else _TEXT
        shown = _cut(text, room)
        return _told(
            id=record["id"],
            role=record["role"],
            time=_second(record["timestamp"]),
            tool=self._line(record["tool_name"]),
            text=shown or None,
            calls=calls or None,
            cut=f"call with message {record['id']} to read all of it"
            if is_cut or shown != text
            else None,
            compacted=record["compacted"] or None,
        )

    def _whole(self, record: MessageRecord, start: int) -> dict[str, Any]:
        text = self._written(record)
        if record["tool_calls"] is not None:
            calls = redact_value(record["tool_calls"]) if self._redacting else record["tool_calls"]
            told = json_text(calls, compact=True)
            text = f"{text}\n{told}" if text else told
        end = start + ANSWER
        return _told(
            message=record["id"],
            role=record["role"],
            time=_second(record["timestamp"]),
            tool=self._line(record["tool_name"]),
            characters=len(text),
            text=text[start:end],
            more=f"call again with from_character {end}" if len(text) > end else None,
        )

    def _update(
        self, *, session: str, title: str | None, archived: bool | None, pinned: bool | None
    ) -> dict[str, Any]:
        if title is None and archived is None and pinned is None:
            msg = "say what to change: title, archived or pinned"
            raise ValueError(msg)
        session_id = self._resolve(self._db, session)
        if title is not None:
            self._db.set_session_title(session_id, title)
        if archived is not None:
            self._db.set_session_archived(session_id, archived)
        if pinned is not None:
            self._db.set_session_pinned(session_id, pinned)
        record = self._db.get_session(session_id)
        if record is None:
            raise SessionNotFoundError(session_id, f"session {session_id} was deleted just now")
        return {
            "session": session_id,
            "title": record["title"],
            "archived": record["archived"],
            "pinned": record["pinned"],
        }

    def _written(self, record: MessageRecord) -> str:
        content = record["content"]
        if self._redacting:
            return redact(written(redact_value(content)))
        return written(content)

    def _line(self, text: str | None) -> str | None:
        if not text:
            return None
        shown = one_line(text)
        return _cut(redact(shown) if self._redacting else shown, _SHORT)


def _fitting(name: str, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Keep as many items, from the first, as an answer holds; one at least."""
    kept: list[dict[str, Any]] = []
    room = ANSWER
    for item in items:
        room -= len(json_text(item, compact=True)) + 1
        if room < 0 and kept:
            break
        kept.append(item)
    return {name: kept}


def _told(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]}… [{len(text) - room} more characters]"


def _second(moment_s: float | None) -> str | None:
    told = iso_time(moment_s)
    return None if told is None else told[:19] + "Z"
