"""The shapes of what leaves the store, plain dicts all.

Times are epoch seconds, UTC, as floats. JSON columns are decoded. A stored value that is
damaged comes back as None where JSON was expected and with U+FFFD where text was.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

# What a message may hold: text, or what JSON can say of a list or dict of parts.
Content: TypeAlias = str | list[Any] | dict[str, Any] | None

SearchSort: TypeAlias = Literal["rank", "newest", "oldest"]


# What a session may be to its parent.
RELATIONS = ("continuation", "branch", "subagent")


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
