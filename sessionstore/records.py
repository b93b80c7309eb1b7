"""The shapes of what leaves the store, plain dicts all, and the filter over sessions.

Times are epoch seconds, UTC, as floats. JSON columns are decoded. A stored value that is
damaged comes back as None where JSON was expected and with U+FFFD where text was.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

from sessionstore.errors import shown

# What a message may hold: text, or what JSON can say of a list or dict of parts.
Content: TypeAlias = str | list[Any] | dict[str, Any] | None

SearchSort: TypeAlias = Literal["rank", "newest", "oldest"]


class SessionRecord(TypedDict):
    """One session, every column of it."""

    id: str
    source: str
    user_id: str | None
    model: str | None
    model_config: Any
    system_prompt: str | None
    parent_session_id: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    message_count: int
    tool_call_count: int
    input_tokens: int
    output_tokens: int
    title: str | None
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    billing_provider: str | None
    billing_base_url: str | None
    billing_mode: str | None
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None
    pricing_version: str | None
    api_call_count: int
    system_prompt_hash: str | None
    rewind_count: int
    archived: bool
    pinned: bool
    relation: str | None
    last_active_at: float | None
    handoff_state: str | None
    handoff_platform: str | None
    handoff_error: str | None


class MessageRecord(TypedDict):
    """One message, every column of it but those that say how it is stored.

    `active` and `compacted` are True and False for a live message, False and True for one
    that a summary stands for, both False for one that was undone.
    """

    id: int
    session_id: str
    role: str
    content: Content
    tool_call_id: str | None
    tool_calls: Any
    tool_name: str | None
    timestamp: float
    token_count: int | None
    finish_reason: str | None
    reasoning: str | None
    reasoning_details: Any
    codex_reasoning_items: Any
    reasoning_content: str | None
    codex_message_items: Any
    active: bool
    compacted: bool
    platform_message_id: str | None


class ContinuationFields(TypedDict, total=False):
    """The fields of a new session that `continue_session` takes as keywords."""

    model: str | None
    model_config: Any
    system_prompt: str | None
    user_id: str | None
    title: str | None
    started_at: float | None


class SessionFields(ContinuationFields, total=False):
    """The fields of a new session that `ensure_session` takes as keywords."""

    parent_session_id: str | None
    relation: str | None


class NewMessage(TypedDict, total=False):
    """One message to be stored: `role`, and whichever of the others it has."""

    role: str
    content: Content
    tool_name: str | None
    tool_calls: Any
    tool_call_id: str | None
    token_count: int | None
    finish_reason: str | None
    reasoning: str | None
    reasoning_content: str | None
    reasoning_details: Any
    codex_reasoning_items: Any
    codex_message_items: Any
    platform_message_id: str | None
    timestamp: float | None


class ConversationMessage(TypedDict):
    """One message as a model is given it; keys that say nothing are absent."""

    role: str
    content: Content
    tool_call_id: NotRequired[str]
    tool_name: NotRequired[str]
    tool_calls: NotRequired[Any]
    finish_reason: NotRequired[str]
    reasoning: NotRequired[str]
    reasoning_content: NotRequired[str]
    reasoning_details: NotRequired[Any]
    codex_reasoning_items: NotRequired[Any]
    codex_message_items: NotRequired[Any]


class SessionSummary(SessionRecord):
    """One line of a list: a session, or a chain shown as its newest part."""

    preview: str
    last_active: float
    _lineage_root_id: str | None


class ListPlace(NamedTuple):
    """Where one page of a list of sessions ended, so that the next one can go on from there.

    Attributes:
        pinned: Whether the last entry is pinned; False where pinned ones do not come first.
        moment: What the list is in order of: its latest activity or its start.
        root_id: The id of the first part of its chain.
    """

    pinned: bool
    moment: float
    root_id: str


class ExportedSession(SessionRecord):
    """A session with its messages of every state, in order of id, and what it used by model."""

    messages: list[MessageRecord]
    model_usage: list[ModelUsageLine]


class ContextMessage(TypedDict):
    """A message beside a hit: its role and at most 200 characters of its text."""

    role: str
    content: str


class SearchHit(TypedDict):
    """One message that a query matches."""

    id: int
    session_id: str
    role: str
    timestamp: float
    tool_name: str | None
    snippet: str
    context: list[ContextMessage]
    source: str
    model: str | None
    title: str | None
    session_started: float


class SkippedSession(TypedDict):
    """A session that a prune left, and why."""

    id: str
    reason: str


class PruneReport(TypedDict):
    """What a prune did, or would do.

    Attributes:
        pruned: The ids of the sessions that went, oldest-started first.
        messages: How many messages went with them.
        skipped: What was old enough yet stayed.
        dry_run: Nothing went; it is said what would.
    """

    pruned: list[str]
    messages: int
    skipped: list[SkippedSession]
    dry_run: bool


class UpkeepReport(TypedDict):
    """What `maybe_auto_prune_and_vacuum` did."""

    skipped: bool
    pruned: int
    vacuumed: bool


class TokenTotals(TypedDict):
    """A session and what it used; `total_tokens` is input and output, reasoning is in output."""

    id: str
    title: str | None
    source: str
    model: str | None
    input_tokens: int
    output_tokens: int
    total_tokens: int


class ModelUsage(TypedDict):
    """What was used of one model, at one provider, for one task; "" is none named.

    A cost is None while it is unknown.
    """

    model: str
    billing_provider: str
    task: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_call_count: int
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    total_tokens: int
    session_count: int
    first_seen: float
    last_seen: float


class ModelUsageLine(TypedDict):
    """What one session used of one model, as it is stored."""

    model: str
    billing_provider: str
    task: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_call_count: int
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    first_seen: float
    last_seen: float


# What was used and what it cost: of one model in a line by model, of all in a session.
COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
COSTS = ("estimated_cost_usd", "actual_cost_usd")
# All that is counted of a session.
SESSION_COUNTERS = (*COUNTERS, "message_count", "tool_call_count", "rewind_count")


class KnownCost(TypedDict):
    """A sum of costs, None while no session knows its own, and how many sessions know it."""

    sum: float | None
    known_sessions: int


class SourceUsage(TypedDict):
    """How many sessions a source has, and what they used."""

    source: str
    sessions: int
    total_tokens: int


class UsageSums(TypedDict):
    """What all sessions used. `messages` counts the live ones; `sources` has the largest first."""

    sessions: int
    messages: int
    total_tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    costs: dict[str, KnownCost]
    sources: list[SourceUsage]


class DayUsage(TypedDict):
    """What the sessions that started on one day used; `cost_usd` is None while unknown.

    The cost is the actual one of a session, else its estimate.
    """

    day: str
    sessions: int
    messages: int
    total_tokens: int
    cost_usd: float | None
    known_sessions: int


class GroupUsage(TypedDict):
    """What the sessions of one source, or one model, used; see `DayUsage` for the cost."""

    name: str
    sessions: int
    messages: int
    total_tokens: int
    cost_usd: float | None
    known_sessions: int


class FileSizes(TypedDict):
    """How many bytes each part of an SQLite file takes.

    `text` is the messages, `free` pages that hold nothing. `exact` is False where pages could
    not be told apart: then the parts are lengths of what is stored, and `other` is the rest.
    """

    text: int
    word_index: int
    trigram_index: int
    prompts: int
    sessions: int
    other: int
    free: int
    total: int
    exact: bool


class BackupReport(TypedDict):
    """What a backup holds; it was checked before this is told."""

    path: str
    revision: str | None
    sessions: int
    messages: int
    bytes: int


class CopyReport(TypedDict):
    """What a copy of a store holds; it was compared with the source before this is told.

    `rows` and `left_out` count by table; left out is what refers to a session that is not there.
    `mended` counts the rows that other programs filled with what a server cannot hold, `sha256`
    is over all rows, and `resumed` says that an earlier run had begun.
    """

    sessions: int
    messages: int
    rows: dict[str, int]
    left_out: dict[str, int]
    mended: int
    resumed: bool
    sha256: str


class Delivery(TypedDict):
    """Something owed to a chat."""

    delivery_id: str
    session_id: str
    target: str
    payload: Any
    state: str
    attempts: int
    available_at: float
    claimed_by: str | None
    lease_expires_at: float | None
    last_error: str | None
    created_at: float
    updated_at: float


class Handoff(TypedDict):
    """Where the hand-over of a session stands: pending, running, completed or failed."""

    state: str
    platform: str | None
    error: str | None


class ImportReport(TypedDict):
    """What became of the sessions of an import, by their ids.

    Attributes:
        imported: New here.
        extended: Were here, and gained what is new in the other copy.
        unchanged: Were here with the same content, or where sessions are extended with no less.
        conflicts: Were here with other content, and stay as they are.
        detached: Of the imported ones those that lost a parent that is nowhere.
        retitled: Of the imported ones those whose title was taken, each with the one it got.
        messages: How many messages were stored, of the imported and the extended ones.
    """

    imported: list[str]
    extended: list[str]
    unchanged: list[str]
    conflicts: list[str]
    detached: list[str]
    retitled: dict[str, str]
    messages: int


# `5h`, `2d`, `1w`; a bare number is days.
Age: TypeAlias = float | str | timedelta

_AGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", re.ASCII)
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 86400.0}


def age_in_seconds(age: Age) -> float:
    """Read an age: a timedelta, a number of days, or a text such as `5h`, `2d`, `1w`.

    Raises:
        ValueError: It is no such text, negative or not finite.
        TypeError: It is none of these.
    """
    if isinstance(age, timedelta):
        seconds = age.total_seconds()
    elif isinstance(age, str):
        found = _AGE.fullmatch(age)
        if found is None:
            msg = f"{shown(age)} is not an age; write 90m, 5h, 2d, 1w or a number of days"
            raise ValueError(msg)
        seconds = float(found[1]) * _UNIT_S[found[2]]
    elif isinstance(age, bool) or not isinstance(age, (int, float)):
        msg = f"an age is a number of days, a text or a timedelta, not {type(age).__name__}"
        raise TypeError(msg)
    else:
        try:
            seconds = float(age) * 86400.0
        except OverflowError:
            seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        msg = f"{shown(age)} is not a valid age; it must be finite and not negative"
        raise ValueError(msg)
    return seconds


class FilterFields(TypedDict, total=False):
    """The fields of `SessionFilter`, for calls that take them as keywords beside a source."""

    older_than: Age | None
    newer_than: Age | None
    before: float | None
    after: float | None
    title: str | None
    end_reason: str | None
    model: str | None
    provider: str | None
    user_id: str | None
    min_messages: int | None
    max_messages: int | None
    min_tokens: int | None
    max_tokens: int | None
    min_cost: float | None
    max_cost: float | None
    min_tool_calls: int | None
    max_tool_calls: int | None
    archived: bool | None
    pinned: bool | None
    include_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions a list, an export or a prune is about; None asks nothing.

    Attributes:
        older_than: Last active at least this long ago (see `age_in_seconds`).
        newer_than: Last active at most this long ago.
        before: Last active before this time.
        after: Last active at or after this time.
        source: Exactly this source.
        user_id: Exactly this user.
        title: The title contains this, as do the next three; literal, case ignored.
        end_reason: See title.
        model: See title.
        provider: The billing provider; see title.
        min_messages: At least so many messages; 0 is a value. The other bounds alike,
            inclusive: tokens are input and output, cost is the actual one, else the
            estimated one, and a session of unknown cost meets no bound of cost.
        archived: Only those that are, or are not.
        pinned: Only those that are, or are not.
        include_open: False leaves out the sessions that have not ended.
    """

    older_than: Age | None = None
    newer_than: Age | None = None
    before: float | None = None
    after: float | None = None
    source: str | None = None
    title: str | None = None
    end_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    user_id: str | None = None
    min_messages: int | None = None
    max_messages: int | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    min_tool_calls: int | None = None
    max_tool_calls: int | None = None
    archived: bool | None = None
    pinned: bool | None = None
    include_open: bool = True

    def __post_init__(self) -> None:
        """Refuse a filter that nothing could ever pass.

        Raises:
            ValueError: A number is not finite or beyond 64 bits, or a window is empty.
            TypeError: A field is not what it must be.
        """
        for name in _FILTER_TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                msg = f"{name} must be text, not {type(value).__name__}"
                raise TypeError(msg)
        for name in _FILTER_NUMBERS:
            _require_number(name, getattr(self, name))
        for what in _MEASURES:
            low, high = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            if low is not None and high is not None and low > high:
                msg = f"min_{what} {low} is above max_{what} {high}, so nothing can match"
                raise ValueError(msg)
        _require_window(self.after, self.before)
        now = 0.0  # what two ages leave between them does not depend on it
        _require_window(*_of_ages(self.newer_than, self.older_than, now=now))

    def activity_window(self, *, now: float) -> tuple[float | None, float | None]:
        """Give the times of last activity that pass: at or after the first, before the second.

        Raises:
            ValueError: At this moment there is none.
        """
        newer, older = _of_ages(self.newer_than, self.older_than, now=now)
        since = [each for each in (self.after, newer) if each is not None]
        until = [each for each in (self.before, older) if each is not None]
        window = max(since, default=None), min(until, default=None)
        _require_window(*window)
        return window


_MEASURES = ("messages", "tokens", "cost", "tool_calls")
_FILTER_TEXTS = ("source", "title", "end_reason", "model", "provider", "user_id")
_FILTER_NUMBERS = (
    "before",
    "after",
    *(f"{bound}_{what}" for bound in ("min", "max") for what in _MEASURES),
)


def _require_number(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"{name} must be a number, not {type(value).__name__}"
        raise TypeError(msg)
    if not (-(2.0**63) <= value < 2.0**63):  # nor is NaN
        msg = f"{name} must be finite and of 64 bits, not {value}"
        raise ValueError(msg)


def _of_ages(
    newer_than: Age | None, older_than: Age | None, *, now: float
) -> tuple[float | None, float | None]:
    return (
        None if newer_than is None else now - age_in_seconds(newer_than),
        None if older_than is None else now - age_in_seconds(older_than),
    )


def _require_window(since: float | None, until: float | None) -> None:
    if since is not None and until is not None and since >= until:
        msg = "the window of time is empty: its beginning is not before its end"
        raise ValueError(msg)
