"""The files that programs keep per session go with the session, and no other file does."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessionstore import SessionDB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "outer" / "sessions"
    made.mkdir(parents=True)
    return made


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("x")


def left(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


OF_A = ("a.json", "a.jsonl", "request_dump_a_1.json", "request_dump_a_20250101_120000.json")
OF_OTHERS = ("a_b.json", "request_dump_a_b_1.json", "b.json", "a.txt", "request_dump_b_1.json", "a")


def test_the_files_of_a_session_go_and_those_of_others_stay(store: SessionDB, folder):
    for name in ("a", "a_b", "b"):
        store.create_session(name, "cli")
    put(folder, *OF_A, *OF_OTHERS)
    store.delete_session("a", sessions_dir=folder)
    assert left(folder) == set(OF_OTHERS)
    store.delete_session("a_b", sessions_dir=str(folder))
    assert left(folder) == {"b.json", "a.txt", "request_dump_b_1.json", "a"}


def test_without_the_folder_named_no_file_goes(store, folder):
    store.create_session("a", "cli")
    put(folder, *OF_A)
    store.delete_session("a")
    assert left(folder) == set(OF_A)


def test_a_session_that_does_not_exist_has_no_files_to_delete(store, folder):
    put(folder, *OF_A)
    assert store.delete_session("a", sessions_dir=folder) is False
    assert left(folder) == set(OF_A)


@pytest.mark.parametrize(
    "hostile",
    [
        "../x",
        "..",
        ".",
        "/etc/x",
        "sub/x",
        "a*",
        "a?",
        "[a]",
        "../sessions/a",
        "x" * 300,
        "~",
        "a/../b",
    ],
)
def test_no_id_leads_out_of_the_folder_or_to_a_pattern(store, folder, hostile):
    put(folder.parent, "x.json", "x.jsonl", "request_dump_x_1.json", ".json")
    put(folder, *OF_A, *OF_OTHERS)
    (folder / "sub").mkdir()
    put(folder / "sub", "x.json")
    store.create_session(hostile, "cli")
    assert store.delete_session(hostile, sessions_dir=folder) is True
    assert left(folder) == {*OF_A, *OF_OTHERS, "sub"}
    assert left(folder / "sub") == {"x.json"}
    assert left(folder.parent) == {
        "sessions",
        "x.json",
        "x.jsonl",
        "request_dump_x_1.json",
        ".json",
    }


def test_a_folder_named_like_a_file_of_a_session_does_not_stop_a_prune(
    timed, clock, folder, caplog
):
    for name in ("a", "b"):
        timed.create_session(name, "cli")
        timed.end_session(name, "user_exit")
    (folder / "a.json").mkdir()
    put(folder, "a.jsonl", "b.json")
    clock.now += 100 * 86400
    assert timed.prune_sessions(90, sessions_dir=folder) == 2
    assert left(folder) == {"a.json"}
    assert "a.json" in caplog.text


def test_a_dry_run_deletes_no_file(timed, clock, folder):
    timed.create_session("a", "cli")
    timed.end_session("a", "user_exit")
    put(folder, *OF_A)
    clock.now += 100 * 86400
    timed.prune_report(90, sessions_dir=folder)
    assert left(folder) == set(OF_A)
    timed.prune_report(90, sessions_dir=folder, dry_run=False)
    assert left(folder) == set()


def test_ghosts_take_their_files_with_them(timed, clock, folder):
    timed.create_session("a", "cli")
    put(folder, "a.json")
    clock.now += 2 * 86400
    assert timed.prune_empty_ghost_sessions(sessions_dir=folder) == 1
    assert left(folder) == set()


def test_dumps_of_two_sessions_that_go_at_once_both_go(timed, clock, folder):
    for name in ("a", "a_b"):
        timed.create_session(name, "cli")
        timed.end_session(name, "user_exit")
    put(folder, "request_dump_a_1.json", "request_dump_a_b_1.json")
    clock.now += 100 * 86400
    assert timed.prune_sessions(90, sessions_dir=folder) == 2
    assert left(folder) == set()


def test_a_folder_that_is_not_there_is_no_error(store, folder):
    store.create_session("a", "cli")
    assert store.delete_session("a", sessions_dir=folder / "absent") is True
