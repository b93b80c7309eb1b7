"""Every error the store raises on purpose, in one tree.

The message of each is one line that says what is wrong and what to do about it.
None of them ever shows a password: URLs are written with the password hidden
before they get here.
"""

from __future__ import annotations

from collections.abc import Sequence

# A message is for a line of a log or a terminal; what it names may be a whole conversation.
_LONGEST, _LONGEST_TAIL = 1200, 300


def brief(message: str) -> str:
    """Cut a message that is too long to be read in its middle: its end says what to do."""
    if len(message) <= _LONGEST:
        return message
    return f"{message[: _LONGEST - _LONGEST_TAIL]} ... {message[-_LONGEST_TAIL:]}"


def shown(value: object) -> str:
    """Write a value for a message, as `repr` does but not longer than can be read."""
    return brief(repr(value))


class SessionStoreError(Exception):
    """Any failure the store foresees."""

    def __init__(self, message: str = "") -> None:
        super().__init__(brief(message))


class StoreClosedError(SessionStoreError):
    """A call came after `close()`."""


class StoreBusyError(SessionStoreError):
    """Other programs held the write lock for longer than the patience.

    Unless the call says otherwise, nothing was written, and the next call works as if this one
    had not been made.

    Attributes:
        attempts: How often the transaction was begun.
        waited_s: Seconds from the first attempt to giving up.
    """

    def __init__(self, message: str, *, attempts: int, waited_s: float) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.waited_s = waited_s


class StoreUnavailableError(SessionStoreError):
    """The database cannot be used: not openable, full, damaged or read-only."""


class StoreForkedError(StoreUnavailableError):
    """The store was open when this process was forked off; only its parent may use it."""


class SchemaOutdatedError(SessionStoreError):
    """The database is older than this package and the caller did not ask to upgrade it.

    Attributes:
        found: What the database is at, for example `0004` or `Hermes level 6`.
        expected: The revision this package works with.
    """

    def __init__(self, message: str, *, found: str, expected: str) -> None:
        super().__init__(message)
        self.found = found
        self.expected = expected


class SchemaTooNewError(SessionStoreError):
    """A newer program made the database; this one does not touch it.

    Attributes:
        found: What the database is at.
        supported: The newest this package works with.
    """

    def __init__(self, message: str, *, found: str, supported: str) -> None:
        super().__init__(message)
        self.found = found
        self.supported = supported


class MigrationError(SessionStoreError):
    """A revision failed; the database is as it was before that revision."""


class SessionNotFoundError(SessionStoreError, KeyError):
    """No session has this id.

    Attributes:
        session_id: The id that was asked for.
    """

    def __init__(self, session_id: str, message: str | None = None) -> None:
        super().__init__(message or f"no session has the id {session_id!r}")
        self.session_id = session_id

    def __str__(self) -> str:
        """The message itself; KeyError would show it as a quoted representation."""
        return str(self.args[0])


class MessageNotFoundError(SessionStoreError, KeyError):
    """No message of this session has this id.

    Attributes:
        message_id: The id that was asked for.
    """

    def __init__(self, message_id: int, message: str | None = None) -> None:
        super().__init__(message or f"no message has the id {message_id}")
        self.message_id = message_id

    def __str__(self) -> str:
        """The message itself; KeyError would show it as a quoted representation."""
        return str(self.args[0])


class AmbiguousSessionError(SessionStoreError):
    """A name fits several sessions.

    Attributes:
        matches: The ids it fits, in ascending order.
    """

    def __init__(self, message: str, *, matches: Sequence[str]) -> None:
        super().__init__(message)
        self.matches = tuple(matches)


class ConflictError(SessionStoreError):
    """What the caller holds and what is stored disagree.

    Nothing was written, unless the call says otherwise.
    """


class TitleTakenError(SessionStoreError, ValueError):
    """Another session holds this title.

    Attributes:
        title: The title, sanitized.
        holder: Id of the session that holds it.
    """

    def __init__(self, title: str, holder: str) -> None:
        super().__init__(
            f"title {title!r} is already in use by session {holder}; "
            "choose another or rename that session"
        )
        self.title = title
        self.holder = holder


class QueryError(SessionStoreError, ValueError):
    """A search query is refused, such as one of over 2,048 characters."""


class ImportRejectedError(SessionStoreError):
    """An import holds something that cannot be stored; nothing was imported.

    Attributes:
        line: 1-based number of the record that was refused, or None.
    """

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
