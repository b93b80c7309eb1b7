"""A store told as plain dicts and lists: what each call should do, with no database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from naive import Naive

Row = dict[str, Any]
DAY_S = 86400.0

LIVE, COMPACTED, UNDONE = (True, False), (False, True), (False, False)


class Model:
    """Sessions by id, each with its messages in order; a message's state is one of three."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.sessions: dict[str, Row] = {}
        self.messages: dict[str, list[Row]] = {}

    # Looking.

    def in_state(self, session_id: str, state: tuple[bool, bool] = LIVE) -> list[Row]:
        return [row for row in self.messages[session_id] if row["state"] == state]

    def naive(self) -> Naive:
        """Tell the same to the loops that know chains and lists."""
        return Naive(
            [
                {**row, "message_count": len(self.in_state(row["id"]))}
                for row in self.sessions.values()
            ],
            [
                {**row, "session_id": session_id, "active": row["state"][0]}
                for session_id, rows in self.messages.items()
                for row in rows
            ],
        )

    def holder(self, title: str) -> str | None:
        return next((i for i, row in self.sessions.items() if row["title"] == title), None)

    def chains_are_whole(self) -> bool:
        """Say whether each chain is put away and pinned as one.

        Not so after a parent was ended at the very moment at which its child had begun, or
        opened again: what was no chain is one then, and the other way round.
        """
        naive = self.naive()
        return all(
            self.sessions[each][flag] == self.sessions[name][flag]
            for name in self.sessions
            for each in naive.whole_chain(name)
            for flag in ("archived", "pinned")
        )

    def next_title(self, title: str) -> str:
        base = title.partition(" #")[0]
        numbers = [
            int(number or 1)
            for held, _, number in (
                (row["title"] or "").partition(" #") for row in self.sessions.values()
            )
            if held == base
        ]
        return f"{base} #{max(numbers) + 1}" if numbers else base

    # Sessions.

    def create(
        self,
        session_id: str,
        source: str,
        parent: str | None = None,
        relation: str | None = None,
        **fields: Any,
    ) -> None:
        known = self.sessions.get(session_id)
        continued = known is not None and self.naive().kind(session_id) == "continuation"
        if known is None:
            self.sessions[session_id] = {
                "id": session_id,
                "source": source,
                "started_at": fields.get("started_at", self.clock()),
                "ended_at": None,
                "end_reason": None,
                "parent_session_id": parent,
                "relation": relation,
                "user_id": fields.get("user_id"),
                "model": fields.get("model"),
                "title": None,
                "system_prompt": fields.get("system_prompt"),
                "archived": False,
                "pinned": False,
                "rewind_count": 0,
            }
            self.messages[session_id] = []
        else:
            given = {"parent_session_id": parent, "relation": relation, **fields}
            for name in ("parent_session_id", "relation", "user_id", "model", "system_prompt"):
                if known[name] is None:
                    known[name] = given.get(name)
        row = self.sessions[session_id]
        if not continued and self.naive().kind(session_id) == "continuation":
            for flag in ("archived", "pinned"):
                row[flag] = row[flag] or self.sessions[row["parent_session_id"]][flag]
        if fields.get("title") and row["title"] is None:
            row["title"] = fields["title"]

    def end(self, session_id: str, reason: str) -> bool:
        row = self.sessions.get(session_id)
        if row is None or row["ended_at"] is not None:
            return False
        row |= {"ended_at": self.clock(), "end_reason": reason}
        return True

    def reopen(self, session_id: str) -> None:
        self.sessions[session_id] |= {"ended_at": None, "end_reason": None}

    def continue_session(self, parent: str, new_id: str) -> str:
        naive = self.naive()
        following = [each for each in naive.children(parent) if naive.kind(each) == "continuation"]
        if following:
            return following[0]
        self.end(parent, "compression")
        row = self.sessions[parent]
        title = row["title"]
        self.create(
            new_id,
            row["source"],
            parent,
            "continuation",
            user_id=row["user_id"],
            model=row["model"],
            title=title and self.next_title(title),
            started_at=max(self.clock(), row["ended_at"]),
        )
        return new_id

    def delete(self, session_id: str) -> None:
        naive = self.naive()
        for child in naive.children(session_id):
            self.sessions[child]["relation"] = naive.kind(child)
            self.sessions[child]["parent_session_id"] = None
        del self.sessions[session_id]
        del self.messages[session_id]

    def prune(self, days: float) -> tuple[list[str], dict[str, str]]:
        """Say which sessions go, which old ones stay, and why; and let the first ones go."""
        naive = self.naive()
        old = [each for each in self.sessions if naive.activity(each) < self.clock() - days * DAY_S]
        spared = {}
        for each in old:
            row = self.sessions[each]
            if row["ended_at"] is None:
                spared[each] = "still open"
            elif row["pinned"]:
                spared[each] = "pinned"
            elif row["archived"]:
                spared[each] = "archived"
        doomed = [each for each in old if each not in spared]
        doomed.sort(key=lambda each: (self.sessions[each]["started_at"], each))
        for each in doomed:
            self.delete(each)
        return doomed, spared

    def set_flag(self, session_id: str, flag: str, on: bool) -> None:
        for member in self.naive().whole_chain(session_id):
            self.sessions[member][flag] = on

    def set_title(self, session_id: str, title: str | None) -> bool:
        """Say whether the session gets the title."""
        holder = title and self.holder(title)
        if holder and holder != session_id:
            naive, current, ancestors = self.naive(), session_id, set()
            while naive.kind(current) == "continuation" and current not in ancestors:
                ancestors.add(current)
                current = self.sessions[current]["parent_session_id"]
            if holder not in ancestors | {current}:
                return False
            self.sessions[holder]["title"] = None
        self.sessions[session_id]["title"] = title
        return True

    # Messages.

    def append(self, session_id: str, messages: list[Row]) -> None:
        self.messages[session_id] += [
            {"timestamp": self.clock(), **message, "state": LIVE} for message in messages
        ]

    def sync(self, session_id: str, messages: list[Row]) -> int | None:
        """Say how many are appended; None if what is live is not how the list begins."""
        held = [(row["role"], row["content"]) for row in self.in_state(session_id)]
        if [(row["role"], row["content"]) for row in messages[: len(held)]] != held:
            return None
        self.append(session_id, messages[len(held) :])
        return len(messages) - len(held)

    def replace(self, session_id: str, messages: list[Row]) -> None:
        self.messages[session_id] = [
            row for row in self.messages[session_id] if row["state"] != LIVE
        ]
        self.append(session_id, messages)

    def compact(self, session_id: str, messages: list[Row], late: int) -> int:
        """Let messages stand for all that is live but so many of the last."""
        live = self.in_state(session_id)
        kept = live[len(live) - late :]
        stood_for = live[: len(live) - late]
        for row in stood_for:
            row["state"] = COMPACTED
        self.messages[session_id] = [
            row for row in self.messages[session_id] if not any(row is each for each in kept)
        ]
        self.append(session_id, messages)
        self.messages[session_id] += kept
        return len(stood_for)

    def rewind(self, session_id: str, position: int) -> int:
        undone = self.in_state(session_id)[position:]
        for row in undone:
            row["state"] = UNDONE
        self.sessions[session_id]["rewind_count"] += 1
        return len(undone)

    def restore(self, session_id: str, position: int) -> int:
        """Take back what was undone from a position among all messages on."""
        restored = [row for row in self.messages[session_id][position:] if row["state"] == UNDONE]
        for row in restored:
            row["state"] = LIVE
        return len(restored)
