"""Where LLM agents keep their conversations."""

import logging

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
from sessionstore.records import (
    ConversationMessage,
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
    SessionFilter,
    SessionRecord,
    SessionSummary,
    TokenTotals,
    UpkeepReport,
)
from sessionstore.settings import StoreSettings
from sessionstore.store import SessionDB

# A program that configured no logging shall not find our warnings on its stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "AmbiguousSessionError",
    "ConflictError",
    "ConversationMessage",
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
