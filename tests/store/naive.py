"""What chains and lists should say, told slowly: loops over rows, no SQL to be clever in."""

from __future__ import annotations

from collections import deque
from typing import Any

Row = dict[str, Any]


class Naive:
    """The sessions and messages of a store as plain dicts, with the rules told by hand."""

    def __init__(self, sessions: list[Row], messages: list[Row]) -> None:
        self.sessions = {row["id"]: row for row in sessions}
        self.messages = {
            session_id: [row for row in messages if row["session_id"] == session_id]
            for session_id in self.sessions
        }

    def live(self, session_id: str) -> list[Row]:
        """List the messages that are neither compacted nor undone."""
        return [row for row in self.messages[session_id] if row["active"]]

    def kind(self, session_id: str) -> str:
        """Say what a session is: root, continuation, branch or subagent.

        Without its parent a subagent is known by what is written down; the others are roots.
        So is the member of a circle of parents that started first.
        """
        session = self.sessions[session_id]
        parent = self.sessions.get(session["parent_session_id"])
        if parent is None:
            return "subagent" if session["relation"] == "subagent" else "root"
        if self.begins_circle(session_id) and self.relation(session_id) != "branch":
            return "root"
        return self.relation(session_id)

    def begins_circle(self, session_id: str) -> bool:
        """Say whether a circle of parents is cut at this session."""
        line = self.lineage(session_id)
        if self.sessions[line[0]]["parent_session_id"] != session_id:
            return False
        return session_id == min(line, key=lambda each: (self.sessions[each]["started_at"], each))

    def relation(self, session_id: str) -> str:
        """Say what a session is to its parent."""
        session = self.sessions[session_id]
        parent = self.sessions[session["parent_session_id"]]
        if session["relation"] is not None:
            return session["relation"]
        after_its_end = (
            parent["ended_at"] is not None and session["started_at"] >= parent["ended_at"]
        )
        kinds = {"compression": "continuation", "branched": "branch"}
        return kinds.get(parent["end_reason"], "subagent") if after_its_end else "subagent"

    def children(self, session_id: str) -> list[str]:
        """List the children: continuations, branches, subagents, of each the newest first."""
        found = [
            each["id"] for each in self.sessions.values() if each["parent_session_id"] == session_id
        ]
        found.sort(key=lambda each: (self.sessions[each]["started_at"], each), reverse=True)
        kinds = ["continuation", "branch", "subagent"]
        found.sort(key=lambda each: kinds.index(self.relation(each)))
        return found

    def chain(self, session_id: str) -> list[str]:
        """List a session and what continues it, until it ends or would repeat."""
        found = [session_id]
        while True:
            following = [
                each for each in self.children(found[-1]) if self.kind(each) == "continuation"
            ]
            if not following or following[0] in found:
                return found
            found.append(following[0])

    def whole_chain(self, session_id: str) -> set[str]:
        """List all that a session continues and all that continues any of that."""
        root = session_id
        seen = {root}
        while self.kind(root) == "continuation":
            parent = self.sessions[root]["parent_session_id"]
            if parent in seen:
                break
            root = parent
            seen.add(root)
        found = {root}
        while True:
            more = {
                each
                for member in found
                for each in self.children(member)
                if self.kind(each) == "continuation"
            }
            if more <= found:
                return found
            found |= more

    def lineage(self, session_id: str) -> list[str]:
        """List the ids from the root to a session, until a cycle would repeat one."""
        found: list[str] = []
        current: str | None = session_id
        while current in self.sessions and current not in found:
            found.insert(0, current)
            current = self.sessions[current]["parent_session_id"]
        return found

    def descendants(self, session_id: str) -> list[str]:
        """List what is below a session, level by level."""
        found: list[str] = []
        waiting = deque([session_id])
        while waiting:
            for child in self.children(waiting.popleft()):
                if child != session_id and child not in found:
                    found.append(child)
                    waiting.append(child)
        return found

    def resume(self, session_id: str) -> str:
        """Say where to go on."""
        for candidate in [session_id, *self.descendants(session_id)]:
            if self.live(candidate):
                return candidate
        return session_id

    def activity(self, session_id: str) -> float:
        """Say when a session was last active: its latest message, of whatever state."""
        times = [message["timestamp"] for message in self.messages[session_id]]
        return max(times) if times else self.sessions[session_id]["started_at"]

    def preview(self, session_id: str) -> str:
        """Shorten what the user said first of what is live."""
        for message in self.live(session_id):
            if message["role"] == "user":
                content = message["content"] or ""
                if isinstance(content, list):
                    content = " ".join(part["text"] for part in content)
                line = " ".join(content.split())
                return line if len(line) <= 60 else line[:60] + "..."
        return ""

    def list_rich(
        self,
        source: str | None = None,
        exclude_sources: list[str] | None = None,
        limit: int | None = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        min_messages: int | None = None,
        include_archived: bool = False,
        pinned_first: bool = False,
        archived: bool | None = None,
        pinned: bool | None = None,
    ) -> list[Row]:
        """List conversations as `SessionDB.list_sessions_rich` should."""
        if not include_archived and archived is None:
            archived = False
        entries = []
        for root in self.sessions:
            if not include_children and self.kind(root) not in {"root", "branch"}:
                continue
            chain = [root] if include_children else self.chain(root)
            shown = self.sessions[chain[-1] if project_compression_tips else root]
            if (
                (source is not None and shown["source"] != source)
                or shown["source"] in (exclude_sources or [])
                or (min_messages is not None and shown["message_count"] < min_messages)
                or (archived is not None and bool(shown["archived"]) != archived)
                or (pinned is not None and bool(shown["pinned"]) != pinned)
            ):
                continue
            entries.append(
                {
                    **shown,
                    "archived": bool(shown["archived"]),
                    "pinned": bool(shown["pinned"]),
                    "started_at": self.sessions[root]["started_at"],
                    "preview": self.preview(shown["id"]),
                    "last_active": max(map(self.activity, chain)),
                    "_lineage_root_id": root if root != shown["id"] else None,
                    "root": root,
                }
            )
        key = "last_active" if order_by_last_active else "started_at"
        entries.sort(key=lambda entry: (entry[key], entry["root"]), reverse=True)
        if pinned_first:
            entries.sort(key=lambda entry: not entry["pinned"])
        for entry in entries:
            del entry["root"]
        return entries[offset:] if limit is None else entries[offset : offset + limit]
