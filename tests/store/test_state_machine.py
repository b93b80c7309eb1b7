"""Any calls in any order: the store says what a few lists and dicts in memory say."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model_of_a_store import COMPACTED, LIVE, UNDONE, Model

from sessionstore import ConflictError, SessionDB, StoreSettings, TitleTakenError

names = st.sampled_from(["a", "b", "c", "d", "e", "f"])
picks = st.integers(0, 2**16)
texts = st.sampled_from(
    ["ok", "ok", "hello", "", '["a"]', "nul \0", "half \ud83d", "x" * 70, "two\nlines"]
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "user", "assistant", "tool"]),
        "content": st.one_of(
            st.none(), texts, texts.map(lambda text: [{"type": "text", "text": text}])
        ),
    },
    optional={
        "tool_calls": st.lists(st.sampled_from([{"id": "c1"}, {"id": "c2"}]), max_size=3),
        "timestamp": st.integers(1_699_000_000, 1_701_000_000).map(float),
        "reasoning": texts,
    },
)
summaries = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.sampled_from(["summary", "ok"])}),
    max_size=2,
)
SESSION_COLUMNS = [
    "source",
    "started_at",
    "ended_at",
    "end_reason",
    "parent_session_id",
    "relation",
    "user_id",
    "model",
    "title",
    "system_prompt",
    "archived",
    "pinned",
    "rewind_count",
]
MESSAGE_COLUMNS = ["role", "content", "tool_calls", "timestamp", "reasoning"]


WAYS = list(itertools.product([False, True], repeat=3))


class Conversations(RuleBasedStateMachine):
    """Drives a store and its model by the same calls and holds one against the other."""

    empty: bytes

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sessionstore-"))
        self.path = self.folder / "state.db"
        self.path.write_bytes(self.empty)
        self.clock = Clock(1_700_000_000.0)
        self.db = SessionDB(self.path, settings=StoreSettings(clock=self.clock))
        self.model = Model(self.clock)
        self.step = 0

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.folder)

    def pick(self, number: int) -> str:
        """Choose one of the sessions there are."""
        known = sorted(self.model.sessions)
        return known[number % len(known)]

    def ids(self, session_id: str) -> list[int]:
        return [each["id"] for each in self.db.get_messages(session_id)]

    # The life of sessions.

    @initialize()
    def first(self) -> None:
        self.db.create_session("a", "cli")
        self.model.create("a", "cli")

    @rule(seconds=st.sampled_from([0.5, 1, 3600, 20 * 86400]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(
        name=names,
        source=st.sampled_from(["cli", "cron"]),
        parent=st.none() | picks,
        relation=st.sampled_from([None, None, "continuation", "branch", "subagent"]),
        prompt=st.sampled_from([None, "p1", "p2"]),
        user_id=st.sampled_from([None, "u1"]),
    )
    def create(self, name, source, parent, relation, prompt, user_id) -> None:
        above = None if parent is None else self.pick(parent)
        if above == name or (above and name in self.model.naive().lineage(above)):
            return
        self.db.create_session(
            name,
            source,
            parent_session_id=above,
            relation=relation,
            system_prompt=prompt,
            user_id=user_id,
        )
        self.model.create(name, source, above, relation, system_prompt=prompt, user_id=user_id)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, reason=st.sampled_from(["compression", "branched", "user_exit"]))
    def end(self, which, reason) -> None:
        name = self.pick(which)
        assert self.db.end_session(name, reason) is self.model.end(name, reason)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks)
    def reopen(self, which) -> None:
        name = self.pick(which)
        assert self.db.reopen_session(name) is True
        self.model.reopen(name)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, name=names)
    def continue_it(self, which, name) -> None:
        parent = self.pick(which)
        if name in self.model.sessions:
            return
        assert self.db.continue_session(parent, name) == self.model.continue_session(parent, name)

    @precondition(lambda self: len(self.model.sessions) > 1)
    @rule(which=picks)
    def delete(self, which) -> None:
        name = self.pick(which)
        assert self.db.delete_session(name) is True
        self.model.delete(name)

    @rule(days=st.sampled_from([0, 1, 30]))
    def prune(self, days) -> None:
        planned = self.db.prune_report(days)
        report = self.db.prune_report(days, dry_run=False)
        pruned, spared = self.model.prune(days)
        assert report["pruned"] == planned["pruned"] == pruned
        assert {each["id"]: each["reason"] for each in report["skipped"]} == spared
        assert report["messages"] == planned["messages"]

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, flag=st.sampled_from(["archived", "pinned"]), on=st.booleans())
    def flag(self, which, flag, on) -> None:
        name = self.pick(which)
        assert getattr(self.db, f"set_session_{flag}")(name, on) is True
        self.model.set_flag(name, flag, on)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, title=st.sampled_from([None, "Trip", "Trip", "Trip #2", "Home"]))
    def title(self, which, title) -> None:
        name = self.pick(which)
        if self.model.set_title(name, title):
            assert self.db.set_session_title(name, title) is True
            return
        with pytest.raises(TitleTakenError) as caught:
            self.db.set_session_title(name, title)
        assert caught.value.holder == self.model.holder(title)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, prompt=st.sampled_from([None, "p1", "p3"]))
    def system_prompt(self, which, prompt) -> None:
        name = self.pick(which)
        self.db.update_system_prompt(name, prompt)
        self.model.sessions[name]["system_prompt"] = prompt

    # Their messages.

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, message=messages)
    def append(self, which, message) -> None:
        name = self.pick(which)
        message_id = self.db.append_message(name, **message)
        self.model.append(name, [message])
        assert self.ids(name)[-1] == message_id

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, batch=st.lists(messages, max_size=6))
    def append_many(self, which, batch) -> None:
        name = self.pick(which)
        assert len(self.db.append_messages(name, batch)) == len(batch)
        self.model.append(name, batch)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, left_out=st.sampled_from([0, 0, 1]), batch=st.lists(messages, max_size=3))
    def sync(self, which, left_out, batch) -> None:
        name = self.pick(which)
        held: list[Any] = list(self.db.get_messages_as_conversation(name))
        whole = held[: len(held) - left_out] + batch
        if left_out and len(whole) >= len(held):
            return
        added = self.model.sync(name, whole)
        if added is None:
            with pytest.raises(ConflictError):
                self.db.sync_messages(name, whole)
        else:
            assert len(self.db.sync_messages(name, whole)) == added
            assert self.db.sync_messages(name, whole) == []

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, batch=st.lists(messages, max_size=3))
    def replace(self, which, batch) -> None:
        name = self.pick(which)
        self.db.replace_messages(name, batch)
        self.model.replace(name, batch)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, summary=summaries, late=st.integers(0, 3), copied=st.booleans())
    def compact(self, which, summary, late, copied) -> None:
        name = self.pick(which)
        ids = self.ids(name)
        late = min(late, max(len(ids) - 1, 0))
        if copied:
            live = self.model.in_state(name)
            summary = [*summary, *({k: row[k] for k in ("role", "content")} for row in live[-1:])]
        through = ids[len(ids) - 1 - late] if late else None
        count = self.db.archive_and_compact(name, summary, through_id=through)
        assert count == self.model.compact(name, summary, late)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, position=picks)
    def rewind(self, which, position) -> None:
        name = self.pick(which)
        questions = [n for n, row in enumerate(self.model.in_state(name)) if row["role"] == "user"]
        if questions:
            chosen = questions[position % len(questions)]
            count = self.db.rewind_to_message(name, self.ids(name)[chosen])
            assert count == self.model.rewind(name, chosen)

    @precondition(lambda self: self.model.sessions)
    @rule(which=picks, position=picks)
    def restore(self, which, position) -> None:
        name = self.pick(which)
        everything = self.db.get_messages(name, include_inactive=True)
        chosen = position % (len(everything) + 1)
        since = everything[chosen]["id"] if chosen < len(everything) else 2**40
        assert self.db.restore_rewound(name, since) == self.model.restore(name, chosen)

    @rule()
    def move_to_another_store(self) -> None:
        exported = self.db.export_all()
        other_path = self.folder / "other.db"
        other_path.write_bytes(self.empty)
        with SessionDB(other_path) as other:
            report = other.import_sessions(exported)
            assert report["imported"] == [each["id"] for each in exported]
            assert (report["detached"], report["retitled"]) == ([], {})
            assert other.export_all() == exported
            assert other.import_sessions(exported)["unchanged"] == report["imported"]
            way = {"include_archived": True, "pinned_first": True, "order_by_last_active": True}
            assert other.list_sessions_rich(**way) == self.db.list_sessions_rich(**way)
        for each in self.folder.glob("other.db*"):
            each.unlink()

    @rule()
    def close_and_open(self) -> None:
        self.db.close()
        self.db = SessionDB(self.path, settings=StoreSettings(clock=self.clock))

    # What must hold after each of them.

    @invariant()
    def all_is_the_same(self) -> None:
        self.sessions_are_the_same()
        self.messages_are_the_same()
        self.lists_are_the_same()
        self.nothing_is_left_over()

    def sessions_are_the_same(self) -> None:
        naive = self.model.naive()
        assert self.db.session_count() == len(self.model.sessions)
        for name, expected in self.model.sessions.items():
            session = self.db.get_session(name)
            assert {column: session[column] for column in SESSION_COLUMNS} == {
                column: expected[column] for column in SESSION_COLUMNS
            }
            live = self.model.in_state(name)
            calls = sum(len(row.get("tool_calls", [])) for row in live if row["role"] != "tool")
            assert (session["message_count"], session["tool_call_count"]) == (len(live), calls)
            times = [row["timestamp"] for row in self.model.messages[name]]
            assert session["last_active_at"] == max(times, default=None)
            assert self.db.get_lineage(name) == naive.lineage(name)
            assert self.db.get_compression_tip(name) == naive.chain(name)[-1]
            assert self.db.resolve_resume_session_id(name) == naive.resume(name)

    def messages_are_the_same(self) -> None:
        for name in self.model.sessions:
            stored = self.db.get_messages(name, include_inactive=True)
            assert [each["id"] for each in stored] == sorted({each["id"] for each in stored})
            for state in (LIVE, COMPACTED, UNDONE):
                assert [
                    [each[column] for column in MESSAGE_COLUMNS]
                    for each in stored
                    if (each["active"], each["compacted"]) == state
                ] == [
                    [row.get(column) for column in MESSAGE_COLUMNS]
                    for row in self.model.in_state(name, state)
                ]
            assert self.db.get_messages(name) == [each for each in stored if each["active"]]

    def lists_are_the_same(self) -> None:
        naive = self.model.naive()
        self.step += 1
        # Two of the eight ways after each step.
        for active, archived, pinned in WAYS[self.step % 4 :: 4]:
            way = {
                "order_by_last_active": active,
                "include_archived": archived,
                "pinned_first": pinned and self.model.chains_are_whole(),
            }
            columns = ("id", "_lineage_root_id", "title", "preview", "message_count", "started_at")
            listed = self.db.list_sessions_rich(**way)
            assert [
                [entry[column] for column in (*columns, "last_active")] for entry in listed
            ] == [
                [entry[column] for column in (*columns, "last_active")]
                for entry in naive.list_rich(**way)
            ]

    def nothing_is_left_over(self) -> None:
        def look(db: Any) -> tuple[list[str], list[Any]]:
            prompts = db.exec_driver_sql("SELECT prompt FROM system_prompts ORDER BY 1")
            broken = db.exec_driver_sql("PRAGMA foreign_key_check").all()
            return list(prompts.scalars()), broken

        prompts = {row["system_prompt"] for row in self.model.sessions.values()} - {None}
        assert self.db._read(look) == (sorted(prompts), [])


def run(empty_file: bytes, **limits: int) -> None:
    Conversations.empty = empty_file
    run_state_machine_as_test(
        Conversations,
        settings=settings(deadline=None, suppress_health_check=list(HealthCheck), **limits),
    )


def test_any_calls_in_any_order_leave_what_plain_lists_would_hold(empty_file):
    run(empty_file, max_examples=10, stateful_step_count=25)


@pytest.mark.slow
def test_very_many_calls_in_any_order_leave_what_plain_lists_would_hold(empty_file):
    run(empty_file, max_examples=500, stateful_step_count=60)
