"""`SessionDB`: one public call, one transaction, one retried unit; the work is further down."""

from __future__ import annotations

from sessionstore.location import Location
from sessionstore.settings import StoreSettings
from sessionstore.store.coordination import CoordinationCalls
from sessionstore.store.lists import ListCalls
from sessionstore.store.messages import MessageCalls
from sessionstore.store.search import SearchCalls
from sessionstore.store.sessions import SessionCalls
from sessionstore.store.transfer import TransferCalls
from sessionstore.store.upkeep import UpkeepCalls, size_of
from sessionstore.store.usage import UsageCalls

__all__ = ["SessionDB", "open_at", "size_of"]


class SessionDB(
    SessionCalls,
    MessageCalls,
    SearchCalls,
    ListCalls,
    UsageCalls,
    TransferCalls,
    UpkeepCalls,
    CoordinationCalls,
):
    """Where agents keep their conversations.

    ```python
    with SessionDB("state.db") as db:
        db.create_session("s1", "cli", model="m")
        db.append_message("s1", "user", "hello")
    ```

    Every call is one transaction unless it says otherwise, and is tried again while other
    programs hold the lock: at least 15 times and for 20 seconds, then StoreBusyError. A
    store may be shared by all threads of a process. Calls return plain dicts keyed by
    column, times in epoch seconds UTC. Beyond the errors a call names, each may raise
    StoreClosedError, StoreBusyError, StoreUnavailableError.

    Args:
        db_path: The SQLite file, `~` expanded, its folders made; mode 0600 if it is new.
            None: `SESSIONSTORE_URL`, else `$HERMES_HOME/state.db`, else
            `~/.hermes/state.db`, as they are at this moment.
        url: An SQLAlchemy URL instead of a path.
        read_only: Write nothing, lock nothing, make no file.
        migrate: Bring an older database to the newest revision. False: SchemaOutdatedError
            with the command that does.
        settings: Patience, sizes and the clock.

    Raises:
        SchemaTooNewError: A newer program made the database; it is not touched.
        SchemaOutdatedError: It is older, and `migrate` is False or it is opened read-only.
        MigrationError: A revision failed; the database is as it was before that revision.
        StoreUnavailableError: It cannot be opened.
    """


def open_at(
    location: Location,
    *,
    read_only: bool = False,
    migrate: bool = True,
    settings: StoreSettings | None = None,
) -> SessionDB:
    """Open the store at a place that was worked out before.

    Args:
        location: The place. A file goes on as a path: a question mark in it would end it in
            a URL.
        read_only: See `SessionDB`, as for the rest and for the errors.
        migrate: See `SessionDB`.
        settings: See `SessionDB`.
    """
    url = None if location.path else location.url.render_as_string(hide_password=False)
    return SessionDB(
        location.path, url=url, read_only=read_only, migrate=migrate, settings=settings
    )
