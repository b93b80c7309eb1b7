"""The mapped tables, as the newest revision leaves them: columns and constraints, no queries.

Full-text tables and triggers are raw DDL in the revisions and are not mapped. That an index
is partial is told for SQLite alone: an option of PostgreSQL's would load that dialect, a fifth
of the time in which a short command starts, and Alembic compares no WHERE. A column is
named here in the order of a fresh file; files that were upgraded have another order, so
nothing may rely on position.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# The revision these classes describe; a test holds it against the migration history.
SCHEMA_REVISION = "0025"
# The newest level of a Hermes file that the history reproduces.
HERMES_LEVEL = 11

# SQLite counts INTEGER PRIMARY KEY in 64 bits by itself and numbers rows only under that
# very name; PostgreSQL needs BIGINT said for both ids and counters.
Counter = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """The mapped classes of one store."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        }
    )


class SchemaVersionRow(Base):
    """The level of Hermes schema that the file still honours; one row, no key.

    Kept for tools that look at Hermes files. This package decides by `alembic_version`.
    """

    __tablename__ = "schema_version"
    version: Mapped[int] = mapped_column(Integer)
    # The table has no key of its own; the mapper needs to be told which column to go by.
    __mapper_args__ = {"primary_key": [version]}  # noqa: RUF012 - the mapper reads a plain dict


class SessionRow(Base):
    """One conversation session.

    Times are epoch seconds, UTC. A NULL counter counts as 0; a NULL cost is unknown.
    `ended_at` and `end_reason` are NULL while the session is open. `system_prompt` is NULL
    unless another program wrote it; the prompt is where `system_prompt_hash` points.
    `relation` is what the session is to its parent: `continuation`, `branch`, `subagent`, or
    NULL, where ends and starts tell it. `last_active_at` is the highest time of its messages,
    kept by triggers; NULL without messages.
    """

    __tablename__ = "sessions"
    __table_args__ = (
        Index("idx_sessions_source", "source"),
        Index(
            "idx_sessions_parent",
            "parent_session_id",
            "started_at",
            sqlite_where=text("parent_session_id IS NOT NULL"),
        ),
        Index("idx_sessions_started", text("started_at DESC")),
        Index(
            "idx_sessions_title_unique",
            "title",
            unique=True,
            sqlite_where=text("title IS NOT NULL"),
        ),
        Index(
            "ix_sessions_system_prompt_hash",
            "system_prompt_hash",
            sqlite_where=text("system_prompt_hash IS NOT NULL"),
        ),
        Index(
            "ix_sessions_pinned",
            "pinned",
            sqlite_where=text("pinned = 1"),
        ),
        Index(
            "ix_sessions_activity",
            text("coalesce(last_active_at, started_at) DESC"),
            text("id DESC"),
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    source: Mapped[str] = mapped_column(Text)
    user_id: Mapped[str | None] = mapped_column(Text)
    model: Mapped[str | None] = mapped_column(Text)
    model_config: Mapped[str | None] = mapped_column(Text)
    system_prompt: Mapped[str | None] = mapped_column(Text)
    parent_session_id: Mapped[str | None] = mapped_column(Text, ForeignKey("sessions.id"))
    started_at: Mapped[float] = mapped_column(Double)
    ended_at: Mapped[float | None] = mapped_column(Double)
    end_reason: Mapped[str | None] = mapped_column(Text)
    message_count: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    tool_call_count: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    input_tokens: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    output_tokens: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    title: Mapped[str | None] = mapped_column(Text)
    cache_read_tokens: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    cache_write_tokens: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    reasoning_tokens: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    billing_provider: Mapped[str | None] = mapped_column(Text)
    billing_base_url: Mapped[str | None] = mapped_column(Text)
    billing_mode: Mapped[str | None] = mapped_column(Text)
    estimated_cost_usd: Mapped[float | None] = mapped_column(Double)
    actual_cost_usd: Mapped[float | None] = mapped_column(Double)
    cost_status: Mapped[str | None] = mapped_column(Text)
    cost_source: Mapped[str | None] = mapped_column(Text)
    pricing_version: Mapped[str | None] = mapped_column(Text)
    api_call_count: Mapped[int | None] = mapped_column(Counter, server_default=text("0"))
    system_prompt_hash: Mapped[str | None] = mapped_column(Text, ForeignKey("system_prompts.hash"))
    rewind_count: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    archived: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    pinned: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    relation: Mapped[str | None] = mapped_column(Text)
    last_active_at: Mapped[float | None] = mapped_column(Double)
    handoff_state: Mapped[str | None] = mapped_column(Text)
    handoff_platform: Mapped[str | None] = mapped_column(Text)
    handoff_error: Mapped[str | None] = mapped_column(Text)


class SystemPromptRow(Base):
    """A system prompt, stored once for all the sessions that have it.

    `hash` is SHA-256, in lower-case hexadecimal, of the prompt's UTF-8 bytes: part of the
    schema. A prompt goes with the last session that has it.
    """

    __tablename__ = "system_prompts"

    hash: Mapped[str] = mapped_column(Text, primary_key=True)
    prompt: Mapped[str] = mapped_column(Text)


class MessageRow(Base):
    """One message of a session; the order of a conversation is the order of ids.

    `timestamp` is epoch seconds, UTC, and may step back: it is never an order.
    `content_encoding` says what `content` is: NULL the text itself, `json` JSON of the value,
    `json-pieces` a JSON list of texts to be joined. `json_columns` names, with commas between,
    the other text columns that hold JSON of a text. (`active`, `compacted`) is (1, 0) for a
    live message, (0, 1) for one a summary stands for, (0, 0) for one that was undone.
    `search_text` is the folded text that the search index is fed with; NULL where content, tool
    name and tool calls will do as they are.
    """

    __tablename__ = "messages"
    __table_args__ = (
        Index("idx_messages_session", "session_id", "timestamp"),
        Index("ix_messages_session_id_active_id", "session_id", "active", "id"),
        Index(
            "ix_messages_session_id_platform_message_id",
            "session_id",
            "platform_message_id",
            sqlite_where=text("platform_message_id IS NOT NULL"),
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Counter, primary_key=True)
    session_id: Mapped[str] = mapped_column(Text, ForeignKey("sessions.id"))
    role: Mapped[str] = mapped_column(Text)
    content: Mapped[str | None] = mapped_column(Text)
    tool_call_id: Mapped[str | None] = mapped_column(Text)
    tool_calls: Mapped[str | None] = mapped_column(Text)
    tool_name: Mapped[str | None] = mapped_column(Text)
    timestamp: Mapped[float] = mapped_column(Double)
    token_count: Mapped[int | None] = mapped_column(Counter)
    finish_reason: Mapped[str | None] = mapped_column(Text)
    reasoning: Mapped[str | None] = mapped_column(Text)
    reasoning_details: Mapped[str | None] = mapped_column(Text)
    codex_reasoning_items: Mapped[str | None] = mapped_column(Text)
    reasoning_content: Mapped[str | None] = mapped_column(Text)
    codex_message_items: Mapped[str | None] = mapped_column(Text)
    content_encoding: Mapped[str | None] = mapped_column(Text)
    json_columns: Mapped[str | None] = mapped_column(Text)
    active: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    compacted: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    platform_message_id: Mapped[str | None] = mapped_column(Text)
    search_text: Mapped[str | None] = mapped_column(Text)


class StateMetaRow(Base):
    """One named value of the store as a whole, such as `last_auto_prune`."""

    __tablename__ = "state_meta"

    key: Mapped[str] = mapped_column(Text, primary_key=True)
    value: Mapped[str | None] = mapped_column(Text)


class ModelUsageRow(Base):
    """What a session used of one model, at one provider, for one task; "" is none named.

    Times are epoch seconds, UTC. A NULL cost is unknown.
    """

    __tablename__ = "session_model_usage"

    session_id: Mapped[str] = mapped_column(
        Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True
    )
    model: Mapped[str] = mapped_column(Text, primary_key=True, server_default=text("''"))
    billing_provider: Mapped[str] = mapped_column(Text, primary_key=True, server_default=text("''"))
    task: Mapped[str] = mapped_column(Text, primary_key=True, server_default=text("''"))
    input_tokens: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    output_tokens: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    cache_read_tokens: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    cache_write_tokens: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    reasoning_tokens: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    api_call_count: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    estimated_cost_usd: Mapped[float | None] = mapped_column(Double)
    actual_cost_usd: Mapped[float | None] = mapped_column(Double)
    first_seen: Mapped[float] = mapped_column(Double)
    last_seen: Mapped[float] = mapped_column(Double)


class CompressionLockRow(Base):
    """Who may compress a session, until when (epoch seconds); a lock past that is nobody's."""

    __tablename__ = "compression_locks"

    session_id: Mapped[str] = mapped_column(Text, primary_key=True)
    holder: Mapped[str] = mapped_column(Text)
    acquired_at: Mapped[float] = mapped_column(Double)
    expires_at: Mapped[float] = mapped_column(Double)


class GatewayRouteRow(Base):
    """Where a gateway sends what comes from one chat: an entry of its own, as JSON."""

    __tablename__ = "gateway_routing"

    scope: Mapped[str] = mapped_column(Text, primary_key=True)
    session_key: Mapped[str] = mapped_column(Text, primary_key=True)
    entry_json: Mapped[str] = mapped_column(Text)
    updated_at: Mapped[float] = mapped_column(Double)


class DeliveryRow(Base):
    """Something owed to a chat: `pending`, `claimed`, `delivered` or `failed`.

    A pending one may be claimed from `available_at` on; a claimed one again once
    `lease_expires_at` is past. Epoch seconds. No foreign key: what is owed survives the
    session.
    """

    __tablename__ = "delivery_obligations"
    __table_args__ = (Index("ix_delivery_obligations_state_available_at", "state", "available_at"),)

    delivery_id: Mapped[str] = mapped_column(Text, primary_key=True)
    session_id: Mapped[str] = mapped_column(Text)
    target: Mapped[str] = mapped_column(Text)
    payload_json: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text, server_default=text("'pending'"))
    attempts: Mapped[int] = mapped_column(Counter, server_default=text("0"))
    available_at: Mapped[float] = mapped_column(Double)
    claimed_by: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[float | None] = mapped_column(Double)
    last_error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(Double)
    updated_at: Mapped[float] = mapped_column(Double)


# The tables themselves, for the statements of the rooms above.
SESSIONS: Table = Base.metadata.tables["sessions"]
MESSAGES: Table = Base.metadata.tables["messages"]
SYSTEM_PROMPTS: Table = Base.metadata.tables["system_prompts"]
STATE_META: Table = Base.metadata.tables["state_meta"]
MODEL_USAGE: Table = Base.metadata.tables["session_model_usage"]
COMPRESSION_LOCKS: Table = Base.metadata.tables["compression_locks"]
GATEWAY_ROUTES: Table = Base.metadata.tables["gateway_routing"]
DELIVERIES: Table = Base.metadata.tables["delivery_obligations"]
