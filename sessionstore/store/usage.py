"""The calls about tokens and cost."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection

from sessionstore import checks
from sessionstore.errors import shown
from sessionstore.records import DayUsage, GroupUsage, ModelUsage, TokenTotals, UsageSums
from sessionstore.repository import sessions, usage
from sessionstore.store.arguments import checked_calls
from sessionstore.store.base import StoreBase


@checked_calls
class UsageCalls(StoreBase):
    """Tokens and cost: what a session used, and sums over many."""

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        api_call_count: int | None = None,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
        model: str | None = None,
        task: str | None = None,
        *,
        absolute: bool = False,
    ) -> None:
        """Add tokens and cost to a session, or with `absolute` set them.

        What is added counts for the model, provider and task as well (`usage_by_model`).

        None says nothing: it erases no value and poisons no sum. An unknown cost stays None
        until one is given. Model and billing fill only what is NULL; cost_status,
        cost_source and pricing_version take the latest. A missing session is made, with the
        source `unknown`. Not idempotent unless absolute.

        Raises:
            ValueError: A figure is negative, not finite or beyond 64 bits; the id is empty.
            TypeError: A figure is no number.
        """
        values = usage.usage_values(
            {
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "cache_read_tokens": cache_read_tokens,
                "cache_write_tokens": cache_write_tokens,
                "reasoning_tokens": reasoning_tokens,
                "api_call_count": api_call_count,
                "estimated_cost_usd": estimated_cost_usd,
                "actual_cost_usd": actual_cost_usd,
                "cost_status": cost_status,
                "cost_source": cost_source,
                "pricing_version": pricing_version,
                "billing_provider": billing_provider,
                "billing_base_url": billing_base_url,
                "billing_mode": billing_mode,
                "model": model,
            }
        )
        now = self._now()
        for_task = checks.plain_text("task", task) or ""
        absent = sessions.new_session(session_id, sessions.UNKNOWN_SOURCE, started_at=now)

        def record(db: Connection) -> None:
            # Held, or another program could change or delete it before its figures are read.
            if not sessions.held(db, session_id):
                sessions.create(db, absent)
            usage.record(db, session_id, values, task=for_task, absolute=absolute, now=now)

        self._write(record)

    def usage_by_model(
        self, session_id: str | None = None, source: str | None = None
    ) -> list[ModelUsage]:
        """Add up what was used of each model, provider and task, most tokens first.

        Args:
            session_id: Only by this session.
            source: Only by sessions of this source.
        """
        return self._read(lambda db: usage.by_model(db, session_id, source))

    def top_sessions_by_tokens(self, limit: int = 10) -> list[TokenTotals]:
        """List the sessions that used most tokens (input and output), most first."""
        wanted = checks.count("limit", limit)
        return self._read(lambda db: usage.top_sessions(db, wanted))

    def usage_totals(self) -> UsageSums:
        """Add up what all sessions used, by source too; an unknown cost adds nothing."""
        return self._read(usage.totals)

    def usage_by_day(self, utc_offset_s: int = 0) -> list[DayUsage]:
        """Add up what the sessions used that started on the same day, oldest day first.

        Args:
            utc_offset_s: How far the local days are ahead of UTC, in seconds.
        """
        return self._read(lambda db: usage.by_day(db, utc_offset_s))

    def usage_by(self, field: Literal["source", "model"]) -> list[GroupUsage]:
        """Add up what sessions used by their source or model, most tokens first.

        Of the counters of sessions: quick however many messages there are.

        Raises:
            ValueError: It is neither.
        """
        if field not in ("source", "model"):
            msg = f"usage is told by source or model, not by {shown(field)}"
            raise ValueError(msg)
        return self._read(lambda db: usage.by_field(db, field))
