"""`import --from codex`: threads of several rollouts, forks of them, and compressed ones."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sessionstore import SessionDB

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
FORK = "0299a213-81c0-7800-8aa1-bbab2a035a53"
SECOND = "0199a299-0000-7000-8000-000000000002"
THIRD = "0199a299-0000-7000-8000-000000000003"
THEN = 1_767_225_600.0  # 2026-01-01 00:00:00 UTC

Write = Callable[[Path, Iterable[Any]], Path]
Record = dict[str, Any]


def record(ordinal: int, kind: str, **payload: Any) -> Record:
    """One line; its ordinal is its second too."""
    moment = f"2026-01-01T00:00:{ordinal:02}.000Z"
    return {"timestamp": moment, "ordinal": ordinal, "type": kind, "payload": payload}


def meta(ordinal: int, thread: str, base: tuple[str, int] | None = None, **more: Any) -> Record:
    named = {"thread_id": base[0], "end_ordinal_exclusive": base[1]} if base else None
    told = {"id": thread, "history_mode": "paginated", **more}
    return record(ordinal, "session_meta", **told, **({"history_base": named} if named else {}))


def turn(ordinal: int, asked: str, answered: str, used: int) -> list[Record]:
    """A prompt, its event, an answer, and the tokens of the thread so far: four records."""
    parts = [{"type": "input_text", "text": asked}], [{"type": "output_text", "text": answered}]
    info = {"total_token_usage": {"input_tokens": used, "output_tokens": 1}}
    return [
        record(ordinal, "response_item", type="message", role="user", content=parts[0]),
        record(ordinal + 1, "event_msg", type="user_message", message=asked),
        record(ordinal + 2, "response_item", type="message", role="assistant", content=parts[1]),
        record(ordinal + 3, "event_msg", type="token_count", info=info),
    ]


@pytest.fixture
def folder(tmp_path: Path, write: Write) -> Path:
    """A thread of two turns."""
    folder = tmp_path / "codex" / "sessions" / "2026"
    write(
        folder / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl",
        [
            meta(0, THREAD),
            *turn(1, "Red?", "Red.", 10),
            record(5, "event_msg", type="thread_name_updated", thread_name="The fence"),
            *turn(6, "Paint!", "Painted.", 30),
        ],
    )
    return folder


def add_part(write: Write, folder: Path, second: int, own: str, records: list[Record]) -> Path:
    return write(folder / f"rollout-2026-01-01T00-00-{second:02}-{THREAD}_{own}.jsonl", records)


def compress(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstd.compress(path.read_bytes()))
    path.unlink()
    return packed


def session(target: Path, session_id: str = THREAD) -> Any:
    with SessionDB(target, read_only=True) as db:
        return db.export_session(session_id)


def rows(told: Any) -> list[tuple[str, bool, bool]]:
    return [(row["content"], row["active"], row["compacted"]) for row in told["messages"]]


def test_a_thread_that_was_taken_up_again_is_one_session(
    take_in, folder: Path, target: Path, write: Write
):
    records = [meta(10, THREAD, (THREAD, 10)), *turn(11, "Dry?", "Dry.", 35)]
    add_part(write, folder, 20, SECOND, records)

    result = take_in("codex", folder)

    assert result.stdout == "1 session imported, 6 messages\n"
    told = session(target)
    assert [text for text, active, _ in rows(told) if active] == [
        "Red?",
        "Red.",
        "Paint!",
        "Painted.",
        "Dry?",
        "Dry.",
    ]
    assert told["input_tokens"] == 35
    assert told["started_at"] == THEN


def test_what_a_thread_was_taken_back_from_is_undone(
    take_in, folder: Path, target: Path, write: Write
):
    add_part(
        write, folder, 20, SECOND, [meta(6, THREAD, (THREAD, 6)), *turn(7, "Blue?", "Blue.", 36)]
    )
    add_part(
        write, folder, 30, THIRD, [meta(6, THREAD, (THREAD, 6)), *turn(7, "Green?", "Green.", 42)]
    )

    take_in("codex", folder)

    told = session(target)
    assert rows(told) == [
        ("Red?", True, False),
        ("Red.", True, False),
        ("Paint!", False, False),
        ("Painted.", False, False),
        ("Blue?", False, False),
        ("Blue.", False, False),
        ("Green?", True, False),
        ("Green.", True, False),
    ]
    assert told["message_count"] == 4
    # What was taken back was used all the same.
    assert told["input_tokens"] == 42


def test_a_compaction_that_was_taken_back_hides_nothing(
    take_in, folder: Path, target: Path, write: Write
):
    first = next(folder.iterdir())
    write(first, [record(10, "compacted", message="So far: red.")])
    add_part(write, folder, 20, SECOND, [meta(10, THREAD, (THREAD, 10)), *turn(11, "A", "B", 35)])

    take_in("codex", folder)

    assert rows(session(target)) == [
        ("Red?", True, False),
        ("Red.", True, False),
        ("Paint!", True, False),
        ("Painted.", True, False),
        ("So far: red.", False, False),
        ("A", True, False),
        ("B", True, False),
    ]


def test_a_thread_that_went_on_after_it_came_in_is_extended(
    take_in, folder: Path, target: Path, write: Write
):
    take_in("codex", folder)
    compress(next(folder.iterdir()))
    add_part(write, folder, 20, SECOND, [meta(6, THREAD, (THREAD, 6)), *turn(7, "A", "B", 36)])

    result = take_in("codex", folder)

    assert "1 session here already, gained what is new" in result.stdout
    assert [text for text, active, _ in rows(session(target)) if active] == [
        "Red?",
        "Red.",
        "A",
        "B",
    ]
    assert "unchanged" in take_in("codex", folder).stdout


def test_a_fork_begins_with_the_history_that_it_refers_to(
    take_in, folder: Path, target: Path, write: Write
):
    thread = next(folder.iterdir())
    fork = [
        meta(6, FORK, (THREAD, 6), forked_from_id=THREAD),
        *turn(7, "Yellow?", "Yellow.", 14),
    ]
    write(folder / f"rollout-2026-01-01T00-01-00-{FORK}.jsonl", fork)
    again = folder / f"rollout-2026-01-01T00-02-00-{FORK}_{SECOND}.jsonl"
    write(again, [meta(11, FORK, (FORK, 11), forked_from_id=THREAD), *turn(12, "C", "D", 20)])
    compress(thread)

    result = take_in("codex", folder)

    assert result.stdout == "2 sessions imported, 10 messages\n"
    told = session(target, FORK)
    assert [text for text, active, _ in rows(told) if active] == [
        "Red?",
        "Red.",
        "Yellow?",
        "Yellow.",
        "C",
        "D",
    ]
    assert (told["parent_session_id"], told["relation"]) == (THREAD, "branch")
    assert told["started_at"] == THEN + 6
    # Tokens and the title are those of the thread that it was made from.
    assert (told["input_tokens"], told["title"]) == (10, None)
    assert (session(target)["input_tokens"], session(target)["title"]) == (30, "The fence")


@pytest.mark.parametrize("named", ["home", "sessions", "file"])
def test_the_index_of_names_gives_titles(
    take_in, folder: Path, target: Path, write: Write, named: str
):
    path = next(folder.iterdir())
    home = folder.parents[1]
    given = ["Fence", "The red fence", None, "A fence"] if named == "file" else ["A fence"]
    entries = [{"id": THREAD, "thread_name": each, "updated_at": "x"} for each in given]
    write(home / "session_index.jsonl", [*entries, {"id": FORK, "thread_name": "Of another"}])

    result = take_in("codex", {"home": home, "sessions": folder, "file": path}[named])

    assert session(target)["title"] == "A fence"
    assert result.stdout == "1 session imported, 4 messages\n"


def test_history_that_is_not_there_is_counted(take_in, tmp_path: Path, target: Path, write: Write):
    fork = [meta(5, FORK, (THREAD, 5), forked_from_id=THREAD), *turn(6, "A", "B", 14)]
    path = write(tmp_path / f"rollout-2026-01-01T00-01-00-{FORK}.jsonl", fork)

    result = take_in("codex", path)

    assert "a history_base in a rollout that is not there (1 record)" in result.stdout
    assert [text for text, *_ in rows(session(target, FORK))] == ["A", "B"]


def test_a_fork_that_was_taken_back_to_before_it_was_made(
    take_in, folder: Path, target: Path, write: Write
):
    fork = [meta(6, FORK, (THREAD, 6), forked_from_id=THREAD), *turn(7, "Yellow?", "Yellow.", 14)]
    write(folder / f"rollout-2026-01-01T00-01-00-{FORK}.jsonl", fork)
    again = folder / f"rollout-2026-01-01T00-02-00-{FORK}_{SECOND}.jsonl"
    write(again, [meta(3, FORK, (THREAD, 3), forked_from_id=THREAD), *turn(4, "C", "D", 20)])

    take_in("codex", folder)

    assert [text for text, active, _ in rows(session(target, FORK)) if active] == ["Red?", "C", "D"]


def test_rollouts_that_go_on_from_each_other_come_in_once(
    take_in, tmp_path: Path, target: Path, write: Write
):
    add_part(write, tmp_path, 20, SECOND, [meta(5, THREAD, (THIRD, 13)), *turn(6, "A", "B", 36)])
    add_part(write, tmp_path, 30, THIRD, [meta(5, THREAD, (SECOND, 9)), *turn(9, "C", "D", 42)])

    take_in("codex", tmp_path)

    assert [text for text, *_ in rows(session(target))] == ["A", "B", "C", "D"]


def test_a_copy_that_was_left_behind_is_not_read(take_in, folder: Path, target: Path, write: Write):
    last = add_part(
        write, folder, 20, SECOND, [meta(10, THREAD, (THREAD, 10)), *turn(11, "A", "B", 35)]
    )
    copy = folder / "before" / last.name
    copy.parent.mkdir()
    copy.write_text("".join(last.read_text().splitlines(keepends=True)[:2]))
    os.utime(copy, (1, 1))

    result = take_in("codex", folder)

    assert "a second copy of a rollout (1 record)" in result.stdout
    assert [text for text, *_ in rows(session(target))][-2:] == ["A", "B"]


def test_a_compressed_rollout_is_read_and_one_that_is_unpacked_beside_it_instead(
    take_in, folder: Path, target: Path, write: Write
):
    path = next(folder.iterdir())
    packed = compress(path)

    assert take_in("codex", packed).stdout == "1 session imported, 4 messages\n"

    path.write_bytes(zstd.decompress(packed.read_bytes()))
    write(path, turn(10, "Dry?", "Dry.", 35))
    result = take_in("codex", "--json", folder)

    report = json.loads(result.stdout)
    assert (report["extended"], report["messages"]) == ([THREAD], 2)
    assert report["files"][0]["unkept"] == {}


def test_a_damaged_compressed_rollout_ends_the_import(take_in, folder: Path, target: Path):
    packed = compress(next(folder.iterdir()))
    packed.write_bytes(packed.read_bytes()[:-20])

    result = take_in("codex", folder)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {packed}: what is compressed in it cannot be unpacked")
    with SessionDB(target, read_only=True) as db:
        assert db.session_count() == 0


def test_without_the_library_a_compressed_rollout_names_the_extra(
    take_in, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    packed = compress(next(folder.iterdir()))
    for name in ("backports", "backports.zstd", "compression", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)

    result = take_in("codex", folder)

    assert result.exit_code == 1
    assert f"Error: {packed}: it is compressed: pip install 'sessionstore[codex]'" in result.stderr
