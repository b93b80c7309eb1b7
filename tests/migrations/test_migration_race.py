"""Several programs, or threads, open the same absent or old file at the same moment."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import schema_files as files
from race_worker import open_each
from sqlalchemy import event

from sessionstore.errors import SchemaOutdatedError

Made = Callable[[str], Path]
PROCESSES = 8
THREADS = 4


def make_files(folder: Path, rounds: int) -> tuple[list[Path], list[Path]]:
    absent = [folder / f"absent-{number}.db" for number in range(rounds)]
    old = []
    for number in range(rounds):
        (folder / str(number)).mkdir()
        old.append(files.real_file("01", folder / str(number)))
    return absent, old


def check_files(absent: list[Path], old: list[Path], head: Path) -> None:
    for path in [*absent, *old]:
        assert files.ask(path, "SELECT count(*) FROM alembic_version") == [(1,)]
        assert files.ask(path, "SELECT version FROM schema_version") == [(11,)]
        assert files.ask(path, "PRAGMA integrity_check") == [("ok",)]
    for path in absent:
        assert files.master(path) == files.master(head)
    for path in old:
        assert files.texts(path) == files.texts(head)
        assert files.ask(path, "SELECT count(*) FROM sessions") == [(11,)]
        assert files.ask(path, "SELECT count(*) FROM messages") == [(36,)]


@pytest.mark.parametrize("rounds", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_eight_processes_open_one_file_at_once(rounds: int, made: Made, tmp_path: Path) -> None:
    absent, old = make_files(tmp_path, rounds)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(PROCESSES)
    failures = context.Queue()
    workers = [
        context.Process(target=open_each, args=([*absent, *old], barrier, failures))
        for _ in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    failed = []
    while True:
        try:
            failed.append(failures.get(timeout=0.1))
        except queue.Empty:
            break
    assert failed == []
    check_files(absent, old, made("head"))


@pytest.mark.parametrize("rounds", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_four_threads_open_one_file_at_once(rounds: int, made: Made, tmp_path: Path) -> None:
    absent, old = make_files(tmp_path, rounds)
    barrier = threading.Barrier(THREADS)
    failed: list[BaseException] = []

    def work() -> None:
        for path in [*absent, *old]:
            barrier.wait(60)
            try:
                files.open_store(path)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it fails the test
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    check_files(absent, old, made("head"))


def test_four_threads_upgrade_files_of_their_own(made: Made, tmp_path: Path) -> None:
    """Alembic's context is one for the process; no file may get another file's revision."""
    absent, old = make_files(tmp_path, 2 * THREADS)
    barrier = threading.Barrier(THREADS)
    failed: list[BaseException] = []

    def work(own: list[Path]) -> None:
        barrier.wait(60)
        try:
            for path in own:
                files.open_store(path)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it fails the test
            failed.append(error)

    threads = [
        threading.Thread(target=work, args=([*absent, *old][number::THREADS],))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    check_files(absent, old, made("head"))


def test_an_upgrade_takes_the_write_lock_before_it_looks(tmp_path: Path) -> None:
    path = files.real_file("06", tmp_path)
    asked: list[str] = []
    with files.database(path) as opened:

        @event.listens_for(opened.engine, "checkout")
        def _(raw, *_: object) -> None:
            raw.set_trace_callback(asked.append)

        files.upgrade(opened)
    begins = [number for number, said in enumerate(asked) if said.startswith("BEGIN")]
    assert asked[: begins[0]] == ["PRAGMA foreign_keys = OFF"]
    assert {asked[number] for number in begins} == {"BEGIN IMMEDIATE"}
    assert all("sqlite_master" in asked[number + 1] for number in begins)


def test_readers_look_on_while_a_file_is_upgraded(tmp_path: Path) -> None:
    """Whoever peeks in the middle gets an answer: old, in between, or new."""
    path = files.real_file("01", tmp_path)
    done = threading.Event()
    failed: list[BaseException] = []

    def peek() -> None:
        while not done.is_set():
            try:
                files.open_store(path, read_only=True)
            except SchemaOutdatedError:
                pass
            except BaseException as error:  # noqa: BLE001 - whatever it is, it fails the test
                failed.append(error)

    threads = [threading.Thread(target=peek) for _ in range(2)]
    for thread in threads:
        thread.start()
    with files.database(path) as opened:
        files.upgrade(opened)
    done.set()
    for thread in threads:
        thread.join(60)
    assert failed == []
