"""Where LLM agents keep their conversations."""

import logging
from typing import TYPE_CHECKING, Any

from sessionstore.errors import (
    AmbiguousSessionError,
    ConflictError,
    ImportRejectedError,
    MessageNotFoundError,
    MigrationError,
    QueryError,
    SchemaOutdatedError,
    SchemaTooNewError,
    SessionNotFoundError,
    SessionStoreError,
    StoreBusyError,
    StoreClosedError,
    StoreForkedError,
    StoreUnavailableError,
    TitleTakenError,
)
from sessionstore.filters import SessionFilter
from sessionstore.records import (
    ConversationMessage,
    CopyReport,
    Delivery,
    ExportedSession,
    Handoff,
    ImportReport,
    ListPlace,
    MessageRecord,
    ModelUsage,
    NewMessage,
    PruneReport,
    SearchHit,
    SessionRecord,
    SessionSummary,
    TokenTotals,
    UpkeepReport,
)
from sessionstore.settings import StoreSettings
from sessionstore.store import SessionDB

if TYPE_CHECKING:
    from sessionstore.aio import AsyncSessionDB

# A program that configured no logging shall not find our warnings on its stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "AmbiguousSessionError",
    "AsyncSessionDB",
    "ConflictError",
    "ConversationMessage",
    "CopyReport",
    "Delivery",
    "ExportedSession",
    "Handoff",
    "ImportRejectedError",
    "ImportReport",
    "ListPlace",
    "MessageNotFoundError",
    "MessageRecord",
    "MigrationError",
    "ModelUsage",
    "NewMessage",
    "PruneReport",
    "QueryError",
    "SchemaOutdatedError",
    "SchemaTooNewError",
    "SearchHit",
    "SessionDB",
    "SessionFilter",
    "SessionNotFoundError",
    "SessionRecord",
    "SessionStoreError",
    "SessionSummary",
    "StoreBusyError",
    "StoreClosedError",
    "StoreForkedError",
    "StoreSettings",
    "StoreUnavailableError",
    "TitleTakenError",
    "TokenTotals",
    "UpkeepReport",
]


def __getattr__(name: str) -> Any:
    """Load `AsyncSessionDB` when it is asked for: most programs, the command too, never do."""
    if name == "AsyncSessionDB":
        from sessionstore.aio import AsyncSessionDB

        return AsyncSessionDB
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
