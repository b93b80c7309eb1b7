"""Read the transcripts of Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`.

A line is a record with a `type`. `user` and `assistant` hold a message of the Messages API,
each line one piece of it; the lines are a tree by `uuid` and `parentUuid`. The file format is
the program's own affair (https://code.claude.com/docs/en/sessions says where the files are and
that a line may change with a release), so what is not known here is counted by its type.

A prompt that was taken back and asked anew hangs on the same record as the one that replaced
it: it and what follows it are undone. Before a `compact_boundary` everything is compacted but
what it names as preserved. Records of a subagent (`isSidechain`) are a session of their own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sessionstore.readers.draft import Draft, as_content, figure, plain
from sessionstore.readers.history import History
from sessionstore.readers.jsonl import LONGEST_BYTES, numbered_lines
from sessionstore.readers.kept import tool_call

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# What names a session, the strongest last.
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
_SYNTHETIC = "<synthetic>"
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


class ClaudeCode(History):
    """The transcripts in a file or a folder."""

    program = "claude-code"
    patterns = ("*.jsonl",)

    def __init__(self, path: str | os.PathLike[str], *, longest: int = LONGEST_BYTES) -> None:
        super().__init__(path, longest=longest)
        # A summary may stand in another file than what it is about: uuid of a record to text.
        self._summaries: dict[str, str] = {}

    def sessions(self) -> Iterator[dict[str, Any]]:
        """Yield each session, file by file: that of a subagent may come before its parent."""
        for file in self._files():
            self.current = str(file)
            self._summaries.update(_summaries_in(file, self.longest))
        used: set[str] = set()
        for session in super().sessions():
            used.update(row.get("platform_message_id", "") for row in session["messages"])
            yield session
        if others := len(self._summaries.keys() - used):
            self.unkept["summary of a session that is not here"] = others

    def _sessions_of(self, file: Path) -> Iterator[dict[str, Any]]:
        transcript = _Transcript(file.stem, self._summaries)
        with file.open("rb") as stream:
            for record in self._records(stream):
                if unkept := transcript.take(record):
                    self.unkept[unkept] += 1
        yield from transcript.sessions()


def _summaries_in(file: Path, longest: int) -> Iterator[tuple[str, str]]:
    with file.open("rb") as stream:
        for _, line in numbered_lines(stream, str(file), longest):
            if b'"summary"' not in line or b'"leafUuid"' not in line:
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue  # said when the file is read
            if isinstance(record, dict) and record.get("type") == "summary":
                leaf, text = record.get("leafUuid"), record.get("summary")
                if isinstance(leaf, str) and isinstance(text, str):
                    yield leaf, text


@dataclass
class _Thread:
    """One conversation in a file: the main one, or a subagent's."""

    draft: Draft = field(default_factory=lambda: Draft(ClaudeCode.program))
    # Each record: its uuid, that of the one it hangs on, and whether it is a prompt.
    nodes: list[tuple[str, str | None, bool]] = field(default_factory=list)
    places: dict[str, list[int]] = field(default_factory=dict)
    # Each compaction: its uuid, how many rows were before it, what it preserved.
    boundaries: list[tuple[str, int, Mapping[str, Any]]] = field(default_factory=list)
    # What an answer used and when, by the ids of it: each line of it says the sum so far.
    used: dict[tuple[str, str], tuple[str | None, dict[str, int], float | None]] = field(
        default_factory=dict
    )


class _Transcript:
    """The conversations of one file, record by record."""

    def __init__(self, stem: str, summaries: Mapping[str, str]) -> None:
        self._stem, self._summaries = stem, summaries
        self._session_id: str | None = None
        self._threads: dict[str | None, _Thread] = {None: _Thread()}
        self._thread_of: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._forked_from: str | None = None
        self._tools: dict[str, str] = {}

    def take(self, record: Mapping[str, Any]) -> str | None:
        """Take a record in; return its kind if nothing of it is kept."""
        kind = str(record.get("type"))
        if isinstance(record.get("sessionId"), str):
            self._session_id = record["sessionId"]
        if kind in _TITLES:
            text = record.get(_TITLES[kind])
            if isinstance(text, str) and kind != "summary":
                self._titles[kind] = text
            return None
        thread = self._thread(record)
        draft, uuid = thread.draft, record.get("uuid")
        draft.at(record.get("timestamp"))
        before = len(draft.rows)
        unkept = self._message(kind, record, thread)
        if isinstance(uuid, str):
            parent = record.get("parentUuid") or record.get("logicalParentUuid")
            prompt = kind == "user" and not unkept and _is_prompt(record)
            thread.nodes.append((uuid, parent if isinstance(parent, str) else None, prompt))
            thread.places.setdefault(uuid, []).extend(range(before, len(draft.rows)))
        if kind == "system" and record.get("subtype") == "compact_boundary":
            told = record.get("compactMetadata")
            thread.boundaries.append((str(uuid), before, told if isinstance(told, dict) else {}))
            return None
        return unkept

    def _thread(self, record: Mapping[str, Any]) -> _Thread:
        if record.get("isSidechain") is not True:
            return self._threads[None]
        uuid, parent, agent = (record.get(name) for name in ("uuid", "parentUuid", "agentId"))
        # Before there was an id of the agent: what hangs together.
        key = agent if isinstance(agent, str) else self._thread_of.get(str(parent), str(uuid))
        self._thread_of[str(uuid)] = key
        return self._threads.setdefault(key, _Thread())

    def _message(self, kind: str, record: Mapping[str, Any], thread: _Thread) -> str | None:
        message = record.get("message")
        draft, uuid = thread.draft, plain(record.get("uuid"))
        if kind == "attachment":
            attached = record.get("attachment")
            told = attached if isinstance(attached, dict) else {}
            if told.get("type") == "queued_command" and told.get("prompt"):
                # What was typed while the model was at work.
                content = as_content(told["prompt"], "text")
                draft.add("user", content=content, platform_message_id=uuid)
                return None
            return f"attachment/{told.get('type')}"
        if kind not in ("user", "assistant") or not isinstance(message, dict):
            subtype = record.get("subtype")
            return f"{kind}/{subtype}" if isinstance(subtype, str) else kind
        forked = record.get("forkedFrom")
        if self._forked_from is None and isinstance(forked, dict):
            self._forked_from = plain(forked.get("sessionId"))
        draft.fill_missing(model_config=_surroundings(record))
        if kind == "assistant":
            self._assistant(message, record, thread)
        else:
            self._user(message.get("content"), draft, uuid)
        return None

    def _assistant(
        self, message: Mapping[str, Any], record: Mapping[str, Any], thread: _Thread
    ) -> None:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        parts, thoughts, calls = [], [], []
        for block in blocks:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind in ("thinking", "redacted_thinking"):
                thoughts.append(block)
            elif kind == "tool_use":
                name = plain(block.get("name")) or "unknown"
                self._tools[str(block.get("id"))] = name
                arguments = json.dumps(block.get("input"), ensure_ascii=False)
                calls.append(tool_call(block.get("id"), name, arguments))
            else:
                parts.append(block)
        said = [str(each["thinking"]) for each in thoughts if each.get("thinking")]
        stop = message.get("stop_reason")
        thread.draft.add(
            "assistant",
            content=as_content(parts, "text") if parts else None,
            reasoning="\n\n".join(said) or None,
            reasoning_details=thoughts or None,
            tool_calls=calls or None,
            finish_reason=stop if isinstance(stop, str) else None,
            platform_message_id=plain(record.get("uuid")),
        )
        model, usage = plain(message.get("model")), message.get("usage")
        if model == _SYNTHETIC:
            return
        thread.draft.fill_missing(model=model)
        if isinstance(usage, dict):
            figures = {name: figure(usage.get(theirs)) for name, theirs in _USAGE.items()}
            key = str(message.get("id") or record.get("uuid")), str(record.get("requestId"))
            _, so_far, began = thread.used.get(key, (None, {}, thread.draft.now))
            thread.used[key] = (
                model,
                {name: max(value, so_far.get(name, 0)) for name, value in figures.items()},
                began,
            )

    def _user(self, content: Any, draft: Draft, uuid: str | None) -> None:
        said: list[Any] = []

        def say() -> None:
            if said:
                draft.add("user", content=as_content([*said], "text"), platform_message_id=uuid)
                said.clear()

        if not isinstance(content, list):
            draft.add("user", content=content, platform_message_id=uuid)
            return
        for block in content:
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                said.append(block)
                continue
            say()
            call_id = block.get("tool_use_id")
            draft.add(
                "tool",
                content=as_content(block.get("content"), "text"),
                tool_call_id=call_id if isinstance(call_id, str) else None,
                tool_name=self._tools.get(str(call_id)),
                finish_reason="error" if block.get("is_error") is True else None,
                platform_message_id=uuid,
            )
        say()

    def sessions(self) -> Iterator[dict[str, Any]]:
        """Yield the sessions of the file that have a message."""
        named = None if _UUID.fullmatch(self._stem) else self._session_id
        main_id = plain(named) or self._stem
        for key, thread in self._threads.items():
            if not thread.draft.rows:
                continue
            _settle(thread)
            draft = thread.draft
            if key is None:
                draft.fill_missing(
                    id=main_id,
                    title=next(
                        (self._titles[kind] for kind in reversed(_TITLES) if kind in self._titles),
                        self._summary(thread),
                    ),
                )
                if self._forked_from not in (None, main_id):
                    draft.fill_missing(parent_session_id=self._forked_from, relation="branch")
            else:
                draft.fill_missing(
                    id=f"agent-{plain(key)}-{main_id}",
                    parent_session_id=main_id,
                    relation="subagent",
                )
            yield draft.exported()

    def _summary(self, thread: _Thread) -> str | None:
        """Give the summary that is about the latest record of the conversation."""
        for uuid, _, _ in reversed(thread.nodes):
            if uuid in self._summaries:
                return self._summaries[uuid]
        return None


def _settle(thread: _Thread) -> None:
    """Set the states of the messages, and what was used, when all of them are known."""
    latest = {parent: uuid for uuid, parent, prompt in thread.nodes if prompt and parent}
    undone: set[str] = set()
    for uuid, parent, prompt in thread.nodes:
        if parent is not None and (parent in undone or (prompt and latest[parent] != uuid)):
            undone.add(uuid)
    for uuid, before, told in thread.boundaries:
        if uuid not in undone:
            kept = {at for each in _preserved(thread, told) for at in thread.places.get(each, ())}
            thread.draft.compact(before=before, keep=kept)
    thread.draft.undo([at for uuid in undone for at in thread.places.get(uuid, ())])
    for model, figures, moment in thread.used.values():
        thread.draft.use(model, {**figures, "api_call_count": 1}, moment=moment)


def _preserved(thread: _Thread, told: Mapping[str, Any]) -> Iterator[str]:
    """List the records that stay in the model's view over a compaction."""
    listed, segment = told.get("preservedMessages"), told.get("preservedSegment")
    if isinstance(listed, dict) and isinstance(listed.get("uuids"), list):
        yield from map(str, listed["uuids"])
    elif isinstance(segment, dict):
        above = {uuid: parent for uuid, parent, _ in thread.nodes}
        at, head = segment.get("tailUuid"), segment.get("headUuid")
        while isinstance(at, str) and at in above:
            yield at
            at = None if at == head else above.pop(at)


def _is_prompt(record: Mapping[str, Any]) -> bool:
    if record.get("isMeta") or record.get("isCompactSummary"):
        return False
    content = record["message"].get("content")
    return not any(
        isinstance(block, dict) and block.get("type") == "tool_result"
        for block in (content if isinstance(content, list) else ())
    )


def _surroundings(record: Mapping[str, Any]) -> dict[str, str]:
    names = {"cwd": "cwd", "git_branch": "gitBranch", "version": "version"}
    told = {name: plain(record.get(theirs)) for name, theirs in names.items()}
    return {name: value for name, value in told.items() if value}
