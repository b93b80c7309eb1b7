"""Read the rollouts of Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`.

A line is `{"timestamp", "type", "payload"}`; before September 2025 it was the payload alone.
`response_item` is an item of the Responses API and becomes a message, `session_meta` and
`turn_context` tell of the session, `compacted` puts a shorter history in the place of what was,
and of `event_msg` only what the items do not say is read: tokens, names, and turns that were
taken back (the types: https://github.com/openai/codex, `codex-rs/protocol/src/protocol.rs`).
Which files make one session is said in `rollouts`; what people named it stands in an index
above them, `session_index.jsonl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sessionstore.readers.draft import Draft, as_content, figure, plain
from sessionstore.readers.history import History
from sessionstore.readers.openai_items import message_of
from sessionstore.readers.rollouts import (
    PATTERNS,
    Rollout,
    Step,
    Threads,
    opened,
    rollout_id,
    rollout_of,
    without_twins,
)

# All that the columns hold of an item; it needs nothing kept beside them.
_PLAIN = {
    "message": {"type", "role", "content"},
    "function_call": {"type", "name", "arguments", "call_id"},
    "function_call_output": {"type", "call_id", "output"},
}
# The same is said by an item.
_ECHOES = {"user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"}
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cached_input_tokens",
    "reasoning_tokens": "reasoning_output_tokens",
}

_INDEX = "session_index.jsonl"
# A rollout lies four folders below: `sessions/2026/01/31/`.
_FOLDERS = 5


class Codex(History):
    """The rollouts in a file or a folder."""

    program = "codex"
    patterns = PATTERNS

    def _files(self) -> list[Path]:
        files = without_twins(super()._files())
        self._names = self._named()
        self._rollouts = {file: self._told_of(file) for file in files}
        self._threads = Threads(self._rollouts.values())
        if self._threads.copies:
            self.unkept["a second copy of a rollout"] = len(self._threads.copies)
        return files

    def _named(self) -> dict[str, str]:
        """Read the names of threads; of one that has several the last is its name."""
        names: dict[str, str] = {}
        path = self.path.absolute()
        found = (each / _INDEX for each in (path, *path.parents[:_FOLDERS]))
        index = next((each for each in found if each.is_file()), None)
        if index is not None:
            self.current = str(index)
            self.other_files -= index.parent == path
            with index.open("rb") as stream:
                for record in self._records(stream):
                    names[str(record.get("id"))] = str(record.get("thread_name") or "")
        return names

    def _told_of(self, file: Path) -> Rollout:
        return rollout_of(file, self._first_of(file))

    def _first_of(self, file: Path) -> dict[str, Any]:
        self.current = str(file)
        with opened(file) as stream:
            return next(self._records(stream), {})

    def _sessions_of(self, file: Path) -> Iterator[dict[str, Any]]:
        steps = self._threads.steps(self._rollouts[file])
        if steps is None:
            return
        if self._threads.lacks(self._rollouts[file]):
            self.unkept["a history_base in a rollout that is not there"] += 1
        session = _Session()
        if steps[0].inherited:
            session.take(self._first_of(next(each.file for each in steps if not each.inherited)))
        for step in steps:
            self._read(step, session)
        if session.draft.rows:
            session.draft.fill_missing(id=rollout_id(file))
            if name := self._names.get(session.draft.fields["id"]):
                session.draft.fields["title"] = name
            yield session.draft.exported()

    def _read(self, step: Step, session: _Session) -> None:
        self.current = str(step.file)
        with opened(step.file) as stream:
            for record in self._records(stream):
                ordinal = record.get("ordinal")
                at = ordinal if type(ordinal) is int else -1
                if step.end is not None and at >= step.end:
                    return
                live = step.live_end is None or at < step.live_end
                unkept = session.take(record, live=live, inherited=step.inherited)
                if unkept and not step.inherited:
                    self.unkept[unkept] += 1


class _Session:
    """One session, record by record."""

    def __init__(self) -> None:
        self.draft = Draft(Codex.program)
        self._model: str | None = None
        self._met = self._is_old = False
        self._tools: dict[str, str] = {}
        self._totals = dict.fromkeys(_USAGE, 0)
        self._turns: list[int] = []
        self._live, self._inherited = True, False

    def take(
        self, record: Mapping[str, Any], *, live: bool = True, inherited: bool = False
    ) -> str | None:
        """Take a record in; return its kind if nothing of it is kept.

        Args:
            record: A line.
            live: The thread was not taken back to a place before it.
            inherited: It is of the thread that this one was forked from.
        """
        self._live, self._inherited = live, inherited
        before = len(self.draft.rows)
        unkept = self._taken(record)
        if not live:
            self.draft.undo(range(before, len(self.draft.rows)))
        return unkept

    def _taken(self, record: Mapping[str, Any]) -> str | None:
        kind, payload = str(record.get("type")), record.get("payload")
        self.draft.at(record.get("timestamp"))
        if not isinstance(payload, dict):
            return self._old(record)
        if kind == "session_meta":
            return self._meta(payload)
        if kind == "turn_context":
            self._model = plain(payload.get("model")) or self._model
            self.draft.fill_missing(model=self._model)
        elif kind == "response_item":
            self._item(payload)
        elif kind == "compacted":
            self._compacted(payload)
        elif kind == "event_msg":
            return self._event(payload)
        else:
            return kind
        return None

    def _old(self, record: Mapping[str, Any]) -> str | None:
        """Take a record of before there were payloads."""
        kind = record.get("type", record.get("record_type", "a record without a type"))
        if "type" not in record and isinstance(record.get("id"), str) and not self._met:
            self._is_old = True
            return self._meta(record)
        if "type" not in record or not self._is_old:
            return str(kind)
        self._item(record)
        return None

    def _meta(self, told: Mapping[str, Any]) -> str | None:
        if self._met:
            # Each rollout of a thread begins with it. A fork may begin with the history it was
            # made from, and that with its own.
            own = plain(told.get("id")) == self.draft.fields.get("id")
            return None if own else "session_meta of another session"
        self._met = True
        self.draft.at(told.get("timestamp"))
        given, git, source = told.get("base_instructions"), told.get("git"), told.get("source")
        prompt = given.get("text") if isinstance(given, dict) else told.get("instructions")
        around = {
            "cwd": plain(told.get("cwd")),
            "git_branch": plain(git.get("branch")) if isinstance(git, dict) else None,
            "version": plain(told.get("cli_version")),
            "originator": plain(told.get("originator")),
        }
        self.draft.fill_missing(
            id=plain(told.get("id")),
            system_prompt=plain(prompt),
            billing_provider=plain(told.get("model_provider")),
            model_config={name: value for name, value in around.items() if value},
        )
        parent = told.get("parent_thread_id") or _spawned_by(source)
        if isinstance(parent, str):
            self.draft.fill_missing(parent_session_id=plain(parent), relation="subagent")
        elif isinstance(told.get("forked_from_id"), str):
            self.draft.fill_missing(
                parent_session_id=plain(told["forked_from_id"]), relation="branch"
            )
        return None

    def _item(self, item: Mapping[str, Any]) -> None:
        row = message_of(item, Codex.program, self._tools)
        if item.keys() <= _PLAIN.get(str(item.get("type")), set()):
            row.pop("codex_message_items", None)
        row["content"] = as_content(row.get("content"), "input_text", "output_text")
        item_id = item.get("id")
        if isinstance(item_id, str):
            row["platform_message_id"] = item_id
        self.draft.add(row.pop("role"), **row)

    def _compacted(self, told: Mapping[str, Any]) -> None:
        if self._live:
            self.draft.compact()
            self._turns.clear()
        history = told.get("replacement_history")
        if isinstance(history, list):
            for item in history:
                self._item(item if isinstance(item, dict) else {"type": "unknown", "item": item})
        else:
            self.draft.add("user", content=plain(told.get("message")) or "")

    def _event(self, told: Mapping[str, Any]) -> str | None:
        kind = str(told.get("type"))
        if kind == "user_message":
            self._begin_turn()
        elif kind == "token_count":
            self._count(told.get("info"))
        elif kind == "thread_name_updated" and not self._inherited:
            self.draft.fields["title"] = plain(told.get("thread_name"))
        elif kind == "thread_rolled_back":
            self._roll_back(figure(told.get("num_turns")))
        elif kind not in {*_ECHOES, "thread_name_updated"}:
            return f"event_msg/{kind}"
        return None

    def _begin_turn(self) -> None:
        """Mark where a turn began: the item of a prompt stands before the event of it."""
        for at in range(len(self.draft.rows) - 1, -1, -1):
            row = self.draft.rows[at]
            if row["role"] == "user":
                if row["active"] and at not in self._turns:
                    self._turns.append(at)
                return

    def _roll_back(self, turns: int) -> None:
        if turns and self._turns and self._live:
            start = self._turns[max(len(self._turns) - turns, 0)]
            self._turns = [at for at in self._turns if at < start]
            self.draft.undo(range(start, len(self.draft.rows)))

    def _count(self, info: Any) -> None:
        """Add what was used since the last count; the totals begin anew in a new process."""
        told = info.get("total_token_usage") if isinstance(info, dict) else None
        if not isinstance(told, dict):
            return
        totals = {name: figure(told.get(theirs)) for name, theirs in _USAGE.items()}
        if totals == self._totals:
            return
        if any(totals[name] < self._totals[name] for name in totals):
            self._totals = dict.fromkeys(_USAGE, 0)
        used = {name: totals[name] - self._totals[name] for name in totals}
        if not self._inherited:
            self.draft.use(self._model, {**used, "api_call_count": 1})
        self._totals = totals


def _spawned_by(source: Any) -> Any:
    subagent = source.get("subagent") if isinstance(source, dict) else None
    spawn = subagent.get("thread_spawn") if isinstance(subagent, dict) else None
    return spawn.get("parent_thread_id") if isinstance(spawn, dict) else None
