"""Read by mypy, never run: what the main calls take and give, as a caller sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

from sessionstore import (
    AsyncSessionDB,
    ConversationMessage,
    ExportedSession,
    MessageRecord,
    PruneReport,
    SearchHit,
    SessionDB,
    SessionFilter,
    SessionNotFoundError,
    SessionRecord,
    SessionSummary,
    StoreBusyError,
    StoreSettings,
    TitleTakenError,
    UpkeepReport,
)

SessionDB()
SessionDB("state.db")
SessionDB(url="sqlite:///state.db", read_only=True)
SessionDB(Path("state.db"), migrate=False, settings=StoreSettings(write_patience_s=1))
SessionDB("state.db", "more")  # type: ignore[call-arg] # everything but the path goes by name

with SessionDB() as db:
    assert_type(db, SessionDB)

    assert_type(db.create_session("s", "cli", model="m", model_config={"top_p": 1}), str)
    assert_type(db.get_session("s"), SessionRecord | None)
    assert_type(db.ensure_session("s", relation="branch", parent_session_id="p"), str)
    assert_type(db.continue_session("s", "t", title="Trip"), str)
    db.continue_session("s", "t", relation="branch")  # type: ignore[call-arg] # it is what it is
    assert_type(db.end_session("s", "done"), bool)
    assert_type(db.resolve_session_id("s"), str | None)
    assert_type(db.find_session_ids("s"), list[str])
    assert_type(db.session_sources(), dict[str, int])
    assert_type(db.set_session_title("s", None), bool)
    assert_type(SessionDB.sanitize_title(" t "), str | None)

    assert_type(db.append_message("s", "user", "text"), int)
    assert_type(db.append_message("s", "user", [{"type": "text", "text": "t"}]), int)
    assert_type(db.append_messages("s", [{"role": "user", "content": "t"}]), list[int])
    assert_type(db.sync_messages("s", db.get_messages_as_conversation("s")), list[int])
    assert_type(db.get_messages("s"), list[MessageRecord])
    assert_type(db.get_messages_as_conversation("s"), list[ConversationMessage])
    db.append_message("s", "user", 1)  # type: ignore[arg-type] # content is text or parts

    assert_type(db.search_messages("q", ["cli"], sort="newest"), list[SearchHit])
    db.search_messages("q", sort="best")  # type: ignore[arg-type] # there is no such order

    assert_type(db.list_sessions_rich(source="cli", min_messages=1), list[SessionSummary])
    db.list_sessions_rich(min_message=1)  # type: ignore[call-arg] # misspelt
    assert_type(db.iter_export(SessionFilter(older_than="2w")), Iterator[ExportedSession])
    assert_type(db.export_session("s"), ExportedSession | None)
    assert_type(db.prune_sessions(90, source="cli"), int)
    assert_type(db.prune_report(), PruneReport)
    assert_type(db.maybe_auto_prune_and_vacuum(), UpkeepReport)
    assert_type(db.close(), None)


async def awaited() -> None:
    """Every call can be awaited, and takes and gives the same."""
    async with AsyncSessionDB("state.db", settings=StoreSettings(connections=2)) as store:
        assert_type(await store.append_message("s", "user", "text"), int)
        assert_type(await store.get_messages("s"), list[MessageRecord])
        assert_type(await store.session_count(min_messages=1), int)
        assert_type(await store.run(lambda held: held.session_count()), int)
        await store.append_message("s", "user", tool="t")  # type: ignore[call-arg] # misspelt
        await store.append_message("s", "user", 1)  # type: ignore[arg-type] # text or parts
        async for session in store.iter_export(SessionFilter(older_than="2w")):
            assert_type(session, ExportedSession)


def told(summary: SessionSummary, hit: SearchHit, message: MessageRecord) -> None:
    """Read fields that callers live by."""
    assert_type(summary["last_active"], float)
    assert_type(summary["title"], str | None)
    assert_type(summary["actual_cost_usd"], float | None)
    assert_type(hit["snippet"], str)
    assert_type(message["content"], str | list[Any] | dict[str, Any] | None)


def caught(busy: StoreBusyError, missing: SessionNotFoundError, taken: TitleTakenError) -> None:
    """Errors say in types what callers act upon."""
    assert_type((busy.attempts, busy.waited_s), tuple[int, float])
    assert_type(missing.session_id, str)
    assert_type(taken.holder, str)
