"""The calls about one session."""

from __future__ import annotations

import functools
import os
from typing import Any, Unpack

from sqlalchemy import Connection

from sessionstore import checks
from sessionstore.records import ContinuationFields, SessionFields, SessionRecord
from sessionstore.repository import sessions, titles
from sessionstore.store import side_files
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase


@checked_calls
class SessionCalls(StoreBase):
    """One session: making, finding, ending and deleting it, its title, archiving, pinning."""

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: Any = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        title: str | None = None,
        parent_session_id: str | None = None,
        relation: str | None = None,
        started_at: float | None = None,
    ) -> str:
        """Make a session and return its id; idempotent.

        A session that is there keeps what it has and gains what it lacks: NULL columns, and a
        source of `unknown`.

        Args:
            session_id: Its id, chosen by the caller.
            source: Where it takes place, such as `cli` or `telegram`.
            model: The model's name.
            model_config: Anything JSON can hold.
            system_prompt: The text the model is given first.
            user_id: Whose it is.
            title: See `set_session_title`.
            parent_session_id: The session it comes from.
            relation: What it is to its parent: `continuation`, `branch` or `subagent`. None:
                the ends and starts of the two tell it, at the moment of asking.
            started_at: Epoch seconds; None is now.

        Raises:
            ValueError: Id or source is empty or None, the title too long, the time not finite,
                the relation none of the three, the session its own parent, a text with NUL or
                half a surrogate pair in it, or the config such that JSON cannot hold it.
            TypeError: A value of the wrong type.
            SessionNotFoundError: The parent does not exist.
            TitleTakenError: Another session holds the title.
            ConflictError: The parent descends from this session, which has none itself.
        """
        new = sessions.new_session(
            session_id,
            source,
            started_at=self._now() if started_at is None else started_at,
            model=model,
            model_config=model_config,
            system_prompt=system_prompt,
            user_id=user_id,
            title=title,
            parent_session_id=parent_session_id,
            relation=relation,
        )
        return self._write(lambda db: sessions.create(db, new))

    def continue_session(
        self,
        /,
        parent_id: str,
        new_id: str,
        *,
        source: str | None = None,
        **fields: Unpack[ContinuationFields],
    ) -> str:
        """Split a session: end it by `compression` and make the session that goes on.

        Idempotent: of several callers one makes it, and all get the same id back, which is
        the new session's and not necessarily `new_id`. User, source, model, its config and
        billing are the parent's unless they are given; so is the title, with the next number.
        It is archived or pinned if the parent is. A parent that has ended keeps its end.

        Args:
            parent_id: The session that goes on.
            new_id: The id of its continuation, if this call makes it.
            source: See `create_session`; None is the parent's.
            **fields: See `create_session`; parent and relation are what this call is about.

        Raises:
            SessionNotFoundError: There is no such parent.
            ConflictError: The new id is another session's.
            TitleTakenError: Another session holds the given title.
            ValueError, TypeError: As `create_session`; or parent or relation are given.
        """
        if own := sorted(fields.keys() & {"parent_session_id", "relation"}):
            msg = f"continue_session sets {' and '.join(own)} itself; leave that out"
            raise TypeError(msg)
        now = self._now()
        given: dict[str, Any] = {**fields}
        if given.get("started_at") is None:
            given["started_at"] = now
        new = sessions.new_session(
            new_id,
            source or sessions.UNKNOWN_SOURCE,
            parent_session_id=parent_id,
            relation="continuation",
            **given,
        )
        return self._write(lambda db: sessions.continue_from(db, parent_id, new, now=now))

    def ensure_session(
        self,
        /,
        session_id: str,
        source: str = sessions.UNKNOWN_SOURCE,
        **fields: Unpack[SessionFields],
    ) -> str:
        """Do the same as `create_session`, for a writer whose own create failed.

        Args:
            session_id: See `create_session`.
            source: Gives way to any other source that is or will be named.
            **fields: See `create_session`.
        """
        return self.create_session(session_id, source, **fields)

    def get_session(self, session_id: str) -> SessionRecord | None:
        """Return every column of a session, or None if there is no such session."""
        return self._read(lambda db: sessions.find(db, session_id))

    def resolve_session_id(self, text: str) -> str | None:
        """Return the id that is exactly this, else the only one that begins so, else None.

        Two or more that begin so: None, and `find_session_ids` lists them. Case counts, and
        `%` and `_` are ordinary characters.
        """
        return self._read(lambda db: sessions.resolve_id(db, text)) if text else None

    def find_session_ids(self, prefix: str) -> list[str]:
        """List the ids that begin with a text, ascending."""
        return self._read(lambda db: sessions.find_ids(db, prefix))

    def end_session(self, session_id: str, end_reason: str) -> bool:
        """End a session; the first end wins. Return whether this call ended it."""
        reason = checks.required_text("end_reason", end_reason)
        now = self._now()
        return self._write(lambda db: sessions.end(db, session_id, reason, now))

    def reopen_session(self, session_id: str) -> bool:
        """Take the end of a session back. Return whether there is such a session."""
        return self._write(lambda db: sessions.reopen(db, session_id))

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        """Replace the system prompt.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        prompt = checks.plain_text("system_prompt", system_prompt)
        self._write(lambda db: sessions.update_system_prompt(db, session_id, prompt))

    def set_session_archived(self, session_id: str, archived: bool) -> bool:
        """Put the whole chain of a session away, or back. Return whether it exists.

        What is archived is left out of lists unless it is asked for, is still found by
        search, and is never pruned.
        """
        return self._write(lambda db: sessions.set_flag(db, session_id, "archived", archived))

    def set_session_pinned(self, session_id: str, pinned: bool) -> bool:
        """Pin the whole chain of a session, or unpin it. Return whether it exists.

        What is pinned is never pruned, and comes first in lists that are asked for it.
        """
        return self._write(lambda db: sessions.set_flag(db, session_id, "pinned", pinned))

    def delete_session(
        self, session_id: str, sessions_dir: str | os.PathLike[str] | None = None
    ) -> bool:
        """Delete a session and its messages; its children lose their parent.

        One transaction. Return whether there was such a session.

        Args:
            session_id: The session.
            sessions_dir: Where a program keeps `<id>.json`, `<id>.jsonl` and
                `request_dump_<id>_*.json`; they go too, after the transaction.
        """
        folder = side_files.folder(sessions_dir)
        gone = self._write(lambda db: sessions.delete_with_messages(db, session_id))
        if gone is None:
            return False
        side_files.remove_all(folder, [session_id], self._read)
        return True

    # Titles.

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """Clean a title: one line, in NFC, nothing unseen; None if nothing is left.

        Raises:
            ValueError: Over 100 characters are left: "too long".
        """
        return titles.sanitize_title(title)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Give a session a title, or take it away. Return whether there is such a session.

        A title belongs to one session. Only a session that this one continues, in an
        unbroken chain, gives its title up.

        Raises:
            ValueError: The title is too long.
            TitleTakenError: Another session holds it.
        """
        cleaned = titles.sanitize_title(title)
        return self._write(lambda db: titles.set_title(db, session_id, cleaned))

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session; None if it has none or does not exist."""
        return self._read(lambda db: titles.get_title(db, session_id))

    def get_session_by_title(
        self, title: str, *, user_id: str | None = None
    ) -> SessionRecord | None:
        """Return the session that holds exactly this title, or None.

        Args:
            title: As it is stored, or else cleaned as `sanitize_title` does.
            user_id: Only a session of this user.
        """

        def find(db: Connection) -> SessionRecord | None:
            by_title = functools.partial(titles.find_by_title, db, user_id=user_id)
            found = titles.look_up(title, by_title)
            return None if found is None else sessions.find(db, found)

        return self._read(find)

    def resolve_session_by_title(self, title: str, *, user_id: str | None = None) -> str | None:
        """Return the id of the newest-started among `X`, `X #2`, `X #3` …, or None.

        With a number given, just the one that holds that very title. Only ` #` and ASCII
        digits make a number; case counts.

        Args:
            title: As it is stored, or else cleaned as `sanitize_title` does.
            user_id: Only the sessions of this user.
        """
        return self._read(
            lambda db: titles.look_up(title, functools.partial(titles.resolve, db, user_id=user_id))
        )

    def get_next_title_in_lineage(self, title: str) -> str:
        """Return the title for the next session of a lineage: its highest number and one.

        Gaps are not filled, a number given is left off first, a lineage without members
        begins with the bare title, and the result never has over 100 characters.

        Raises:
            ValueError: The title is empty or too long.
        """
        cleaned = titles.sanitize_title(title)
        if cleaned is None:
            msg = "title must not be empty"
            raise ValueError(msg)
        return self._read(lambda db: titles.next_in_lineage(db, cleaned))
