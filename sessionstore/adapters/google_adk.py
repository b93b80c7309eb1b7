"""A session service of Google's Agent Development Kit (`BaseSessionService`), in the store.

A session of the kit is one of the store, its state is the session's config, and an event is a
message, so that it is listed, shown and found like any other. The state of an app and of a
user are named values of the store.

Made for google-adk 2.13 (https://google.github.io/adk-docs/sessions/session/).
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from sessionstore import errors
from sessionstore.adapters.common import AsyncStore, awaited, countable, from_extra
from sessionstore.readers.kept import keep, kept, tool_call
from sessionstore.readers.openai_items import texts
from sessionstore.records import MessageRecord, SessionRecord
from sessionstore.search.body import text_of
from sessionstore.store import SessionDB

with from_extra("google-adk"):
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.sessions import Session, State
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.genai import types
    from pydantic_core import to_jsonable_python

FRAMEWORK = "google-adk"


class SessionStoreSessionService(BaseSessionService):
    """Sessions of an agent, in a store with full-text search.

    ```python
    service = SessionStoreSessionService("state.db")
    runner = Runner(app_name="app", agent=agent, session_service=service)
    ```

    In the store a session has the id `app/user/id`, each part percent-encoded, and the source
    `google-adk:app`. An event, and what it changes of the three states, are one transaction.

    Args:
        store: A `SessionDB`, an `AsyncSessionDB`, or a path or URL; None is the default
            place. A place is opened by the first call, once in a process, and shared.
    """

    def __init__(self, store: AsyncStore = None) -> None:
        self._store = awaited(store)
        # Whose turn it is to append to a session; gone when nobody waits.
        self._turns: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = (
            WeakValueDictionary()
        )

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Make a session; without an id it gets one.

        Raises:
            AlreadyExistsError: There is one with this id.
            ValueError: The state holds a number that is none, or infinite.
        """
        chosen = (session_id or "").strip() or str(uuid.uuid4())
        place = _Place(app_name, user_id, chosen)
        deltas = _Deltas(state or {})

        def create(db: SessionDB) -> Session:
            while True:
                stored = db.get_session(place.id)
                if stored is None:
                    db.create_session(place.id, place.source, user_id=user_id)
                    continue
                if stored["model_config"] is not None or stored["source"] != place.source:
                    # The service's own, or what another program keeps under this id.
                    msg = f"Session with id {chosen} already exists."
                    raise AlreadyExistsError(msg)
                scopes = _Scopes(db, app_name, user_id)
                held = {
                    "state": deltas.session,
                    "revision": uuid.uuid4().hex,
                    "updated_at": stored["started_at"],
                }
                try:
                    db.append_if_unchanged(
                        place.id,
                        [],
                        model_config=keep(FRAMEWORK, held)[0],
                        expected_config=stored["model_config"],
                        values=scopes.changed(deltas),
                    )
                except (errors.ConflictError, errors.SessionNotFoundError):
                    # Another made it, or changed the state of the app: look again.
                    continue
                return place.session(held, scopes)

        return await self._store.run(create)

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its events, or None."""
        place = _Place(app_name, user_id, session_id.strip())
        last = config.num_recent_events if config else None
        since = config.after_timestamp if config else None

        def get(db: SessionDB) -> Session | None:
            held = _held_in(db, place)
            while held is not None:
                session = place.session(held, _Scopes(db, app_name, user_id))
                if last != 0:
                    messages = db.get_messages(place.id, last=None if since else last)
                    events = [_event_of(each) for each in messages]
                    if since:
                        later = [each for each in events if each.timestamp >= since]
                        events = later[-(last or 0) :]
                    session.events = events
                before, held = held, _held_in(db, place)
                if held == before:
                    return session
                # Another appended between the state and the events: read both again.
            return None

        return await self._store.run(get)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """List the sessions of an app, or of one user of it, without events.

        The one that was changed longest ago is first.
        """

        def find(db: SessionDB) -> list[Session]:
            source = _Place(app_name, "", "").source
            found: list[Session] = []
            scopes: dict[str, _Scopes] = {}
            for stored in db.search_sessions(source, None, user_id=user_id):
                held, place = _held(stored), _place_of(stored, app_name)
                if held is None or place is None:
                    continue
                if place.user_id not in scopes:
                    scopes[place.user_id] = _Scopes(db, app_name, place.user_id)
                found.append(place.session(held, scopes[place.user_id]))
            found.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
            return found

        return ListSessionsResponse(sessions=await self._store.run(find))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session and its events; the states of app and user stay."""
        place = _Place(app_name, user_id, session_id.strip())

        def delete(db: SessionDB) -> None:
            stored = db.get_session(place.id)
            if stored is not None and _held(stored) is not None:
                db.delete_session(place.id)

        await self._store.run(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user in an app, its names without the prefix."""
        scopes = await self._store.run(lambda db: _Scopes(db, app_name, user_id))
        return scopes.user

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and what it changes of the states.

        A partial one is only returned, and so is one that the session has already. Calls for
        one session are done one after the other, in their order.

        Raises:
            StaleSessionError: Another wrote to the session since it was loaded.
            SessionNotFoundError: There is no such session.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        place = _Place(session.app_name, session.user_id, session.id)
        deltas = _Deltas(event.actions.state_delta or {})
        row = _row_of(event)
        turn = self._turns.setdefault((asyncio.get_running_loop(), place.id), asyncio.Lock())
        async with turn:
            if any(each.id == event.id for each in session.events) and await self._store.run(
                lambda db: _is_stored(db, place, row)
            ):
                return event
            stored: list[dict[str, Any]] = []
            try:
                await self._store.run(
                    lambda db: stored.append(_append(db, place, session, row, deltas))
                )
            finally:
                # After a cancelled call too: the session that is held has what is stored.
                for held in stored:
                    session.last_update_time = held["updated_at"]
                    session._storage_update_marker = held["revision"]  # noqa: SLF001 - where the kit keeps it
                    self._commit_event_to_session(session, event)
        return event


class _Place:
    """Where a session of the kit is in the store."""

    def __init__(self, app_name: str, user_id: str, session_id: str) -> None:
        self.app_name, self.user_id, self.session_id = app_name, user_id, session_id
        self.id = "/".join(quote(each, safe="") for each in (app_name, user_id, session_id))
        self.source = f"{FRAMEWORK}:{app_name}"

    def session(self, held: Mapping[str, Any], scopes: _Scopes) -> Session:
        """Make the kit's session, without events."""
        made = Session(
            id=self.session_id,
            app_name=self.app_name,
            user_id=self.user_id,
            state=held["state"]
            | {State.APP_PREFIX + name: value for name, value in scopes.app.items()}
            | {State.USER_PREFIX + name: value for name, value in scopes.user.items()},
            last_update_time=held["updated_at"],
        )
        made._storage_update_marker = held["revision"]  # noqa: SLF001 - where the kit keeps it
        return made


def _place_of(stored: SessionRecord, app_name: str) -> _Place | None:
    parts = stored["id"].split("/")
    if len(parts) != 3:  # noqa: PLR2004 - app, user, session
        return None
    place = _Place(app_name, stored["user_id"] or "", unquote(parts[2]))
    return place if place.id == stored["id"] else None


class _Deltas:
    """A change of state, parted by what its names begin with, as JSON can hold it."""

    def __init__(self, delta: Mapping[str, Any]) -> None:
        self.app: dict[str, Any] = {}
        self.user: dict[str, Any] = {}
        self.session: dict[str, Any] = {}
        # What JSON has no word for is kept as its description, as the kit's own services do.
        told = to_jsonable_python(dict(delta), serialize_unknown=True)
        # A number that JSON does not know is refused before anything is stored.
        json.dumps(told, allow_nan=False)
        for name, value in told.items():
            if name.startswith(State.APP_PREFIX):
                self.app[name.removeprefix(State.APP_PREFIX)] = value
            elif name.startswith(State.USER_PREFIX):
                self.user[name.removeprefix(State.USER_PREFIX)] = value
            elif not name.startswith(State.TEMP_PREFIX):
                self.session[name] = value


class _Scopes:
    """The states of an app and of a user of it, as they are stored."""

    def __init__(self, db: SessionDB, app_name: str, user_id: str) -> None:
        app, user = quote(app_name, safe=""), quote(user_id, safe="")
        self._app_key, self._user_key = f"{FRAMEWORK}/app/{app}", f"{FRAMEWORK}/user/{app}/{user}"
        self._app_text, self._user_text = db.get_meta(self._app_key), db.get_meta(self._user_key)
        self.app: dict[str, Any] = json.loads(self._app_text or "{}")
        self.user: dict[str, Any] = json.loads(self._user_text or "{}")

    def changed(self, deltas: _Deltas) -> dict[str, tuple[str | None, str]]:
        """Change them, and say what the store has to change from what."""
        changed: dict[str, tuple[str | None, str]] = {}
        if deltas.app:
            self.app |= deltas.app
            changed[self._app_key] = self._app_text, json.dumps(self.app)
        if deltas.user:
            self.user |= deltas.user
            changed[self._user_key] = self._user_text, json.dumps(self.user)
        return changed


def _held(stored: SessionRecord) -> dict[str, Any] | None:
    """Give what the service keeps of a session; None for a session of another program."""
    held = kept(FRAMEWORK, [stored["model_config"]])
    return held if isinstance(held, dict) else None


def _held_in(db: SessionDB, place: _Place) -> dict[str, Any] | None:
    stored = db.get_session(place.id)
    return None if stored is None else _held(stored)


def _is_stored(db: SessionDB, place: _Place, row: Mapping[str, Any]) -> bool:
    """Say whether a session has this very event; two different ones may share an id."""
    return any(
        each["platform_message_id"] == row["platform_message_id"]
        and each["codex_message_items"] == row["codex_message_items"]
        for each in db.get_messages(place.id)
    )


def _append(
    db: SessionDB, place: _Place, session: Session, row: dict[str, Any], deltas: _Deltas
) -> dict[str, Any]:
    while True:
        stored = db.get_session(place.id)
        held = None if stored is None else _held(stored)
        if stored is None or held is None:
            msg = f"Session {place.session_id} not found."
            raise SessionNotFoundError(msg)
        marker = session._storage_update_marker  # noqa: SLF001 - where the kit keeps it
        is_stale = (
            marker != held["revision"]
            if marker is not None
            # Made by hand: it may not lack an event.
            else held["updated_at"] > session.last_update_time
            and stored["message_count"] != len(session.events)
        )
        if is_stale:
            msg = (
                "The session has been modified in storage since it was loaded. "
                "Please reload the session before appending more events."
            )
            raise StaleSessionError(msg)
        changed = {
            "state": held["state"] | deltas.session,
            "revision": uuid.uuid4().hex,
            "updated_at": row["timestamp"],
        }
        values = (
            _Scopes(db, place.app_name, place.user_id).changed(deltas)
            if deltas.app or deltas.user
            else None
        )
        try:
            db.append_if_unchanged(
                place.id,
                [row],
                model_config=keep(FRAMEWORK, changed)[0],
                expected_config=stored["model_config"],
                values=values,
            )
        except (errors.ConflictError, errors.SessionNotFoundError):
            # Another was faster; what it changed decides whether this session is stale.
            continue
        return changed


def _row_of(event: Event) -> dict[str, Any]:
    """Give the message of the store for an event."""
    # As JSON has it: arguments and answers of tools may hold dates, bytes and what not.
    told = event.model_dump(mode="json", exclude_none=True)
    parts = (told.get("content") or {}).get("parts") or []
    answers = [part["function_response"] for part in parts if "function_response" in part]
    calls = [part["function_call"] for part in parts if "function_call" in part]
    thoughts = [part["text"] for part in parts if part.get("text") and part.get("thought")]
    role = "user" if event.author == "user" else "assistant"
    answered = answers[0] if answers else {}
    return {
        "role": "tool" if answers else role,
        "content": "\n".join(text for text in _said(told, parts) if text) or None,
        "reasoning": "\n".join(thoughts) or None,
        "tool_calls": [
            tool_call(each.get("id"), each.get("name"), _json(each.get("args") or {}))
            for each in calls
        ]
        or None,
        "tool_call_id": answered.get("id"),
        "tool_name": answered.get("name"),
        "finish_reason": event.finish_reason.value.lower() if event.finish_reason else None,
        "token_count": countable((told.get("usage_metadata") or {}).get("candidates_token_count")),
        "platform_message_id": event.id,
        "timestamp": event.timestamp,
        "codex_message_items": keep(FRAMEWORK, told),
    }


def _said(told: Mapping[str, Any], parts: list[dict[str, Any]]) -> Iterator[str | None]:
    """List what an event says, but for its thoughts and what it calls."""
    for part in parts:
        if "function_response" in part:
            yield _json(part["function_response"].get("response"))
    for part in parts:
        if not part.get("thought"):
            yield part.get("text")
        yield (part.get("executable_code") or {}).get("code")
        yield (part.get("code_execution_result") or {}).get("output")
    # Of what was spoken there is no other text.
    for spoken in ("input_transcription", "output_transcription"):
        yield (told.get(spoken) or {}).get("text")
    yield told.get("error_message")
    if not parts:
        # Of a step of a workflow.
        yield from texts(told.get("output"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _event_of(message: MessageRecord) -> Event:
    """Give the event that a message is, whoever stored it."""
    told = kept(FRAMEWORK, message["codex_message_items"])
    if told is not None:
        return Event.model_validate(told)
    is_user = message["role"] == "user"
    said = types.Part(text=text_of(message["content"]))
    return Event(
        id=str(message["id"]),
        author="user" if is_user else message["role"],
        timestamp=message["timestamp"],
        content=types.Content(role="user" if is_user else "model", parts=[said]),
    )
