"""The mapped tables, as the newest revision leaves them: columns and constraints, no queries.

Full-text tables and triggers are raw DDL in the revisions and are not mapped. A column is
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
SCHEMA_REVISION = "0011"
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
    `ended_at` and `end_reason` are NULL while the session is open.
    """

    __tablename__ = "sessions"
    __table_args__ = (
        Index("idx_sessions_source", "source"),
        Index("idx_sessions_parent", "parent_session_id"),
        Index("idx_sessions_started", text("started_at DESC")),
        Index(
            "idx_sessions_title_unique",
            "title",
            unique=True,
            sqlite_where=text("title IS NOT NULL"),
            postgresql_where=text("title IS NOT NULL"),
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


class MessageRow(Base):
    """One message of a session; the order of a conversation is the order of ids.

    `timestamp` is epoch seconds, UTC, and may step back: it is never an order.
    """

    __tablename__ = "messages"
    __table_args__ = (
        Index("idx_messages_session", "session_id", "timestamp"),
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


class StateMetaRow(Base):
    """One named value of the store as a whole, such as `last_auto_prune`."""

    __tablename__ = "state_meta"

    key: Mapped[str] = mapped_column(Text, primary_key=True)
    value: Mapped[str | None] = mapped_column(Text)


# The tables themselves, for the statements of the rooms above.
SESSIONS: Table = Base.metadata.tables["sessions"]
MESSAGES: Table = Base.metadata.tables["messages"]
STATE_META: Table = Base.metadata.tables["state_meta"]
