"""Hundreds of sessions with the same few system prompts, and a file that does not show it."""

from __future__ import annotations

import hashlib
import random

import pytest

from sessionstore import SessionDB, SessionNotFoundError

DAY = 86400.0


def prompt(number: int) -> str:
    """Give one of many long texts that no compression would make small."""
    letters = random.Random(number)
    return "".join(letters.choices("abcdefghij klmnopqrst", k=21_000))


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def stored(sql):
    """Read which prompts are stored, by hash."""

    def read() -> dict[str, str]:
        return dict(sql("SELECT hash, prompt FROM system_prompts"))

    return read


def test_two_hundred_sessions_over_forty_prompts_take_the_room_of_forty(store, path, stored):
    prompts = [prompt(number) for number in range(42)]
    for number in range(224):
        store.create_session(f"s{number}", "cli", system_prompt=prompts[number % 42])
    assert stored() == {hash_of(text): text for text in prompts}
    for number in (0, 41, 42, 223):
        assert store.get_session(f"s{number}")["system_prompt"] == prompts[number % 42]
    store.vacuum()
    size = path.stat().st_size
    assert 42 * 21_000 < size < 1_300_000


def test_the_name_of_a_prompt_is_the_hash_of_its_utf8_bytes(store, stored, sql):
    text = "Du bist ein Assistent. 你是助手 😀\r\n"
    store.create_session("s", "cli", system_prompt=text)
    assert stored() == {hash_of(text): text}
    assert sql("SELECT system_prompt, system_prompt_hash FROM sessions") == [(None, hash_of(text))]
    session = store.get_session("s")
    assert (session["system_prompt"], session["system_prompt_hash"]) == (text, hash_of(text))


def test_an_empty_prompt_is_a_prompt_and_none_is_none(store):
    store.create_session("empty", "cli", system_prompt="")
    store.create_session("none", "cli")
    assert store.get_session("empty")["system_prompt"] == ""
    assert store.get_session("none")["system_prompt"] is None


def test_a_prompt_goes_with_the_last_session_that_has_it(store, stored):
    for name in ("a", "b"):
        store.create_session(name, "cli", system_prompt="shared")
    store.create_session("c", "cli", system_prompt="own")
    store.delete_session("a")
    assert sorted(stored().values()) == ["own", "shared"]
    store.delete_session("b")
    assert list(stored().values()) == ["own"]
    store.delete_session("c")
    assert stored() == {}


def test_a_replaced_prompt_goes_unless_another_session_has_it(store, stored):
    for name in ("a", "b"):
        store.create_session(name, "cli", system_prompt="first")
    store.update_system_prompt("a", "second")
    assert sorted(stored().values()) == ["first", "second"]
    store.update_system_prompt("b", "second")
    assert list(stored().values()) == ["second"]
    store.update_system_prompt("b", "second")
    assert store.get_session("b")["system_prompt"] == "second"
    store.update_system_prompt("a", None)
    store.update_system_prompt("b", None)
    assert stored() == {}
    assert store.get_session("a")["system_prompt"] is None


def test_a_prompt_for_no_session_is_not_kept(store, stored):
    with pytest.raises(SessionNotFoundError):
        store.update_system_prompt("nope", "text")
    assert stored() == {}


def test_a_prompt_given_to_a_session_that_has_one_is_not_kept(store, stored):
    store.create_session("s", "cli", system_prompt="first")
    store.create_session("s", "cli", system_prompt="second")
    assert store.get_session("s")["system_prompt"] == "first"
    assert list(stored().values()) == ["first"]


def test_pruned_sessions_and_ghosts_take_their_prompts_along(timed, clock, stored):
    timed.create_session("old", "cli", system_prompt="old")
    timed.append_message("old", "user", "x")
    timed.end_session("old", "user_exit")
    timed.create_session("ghost", "cli", system_prompt="ghost")
    clock.now += 100 * DAY
    timed.create_session("new", "cli", system_prompt="new")
    assert timed.prune_sessions(90) == 1
    assert sorted(stored().values()) == ["ghost", "new"]
    assert timed.prune_empty_ghost_sessions() == 1
    assert list(stored().values()) == ["new"]


def test_a_prompt_that_another_program_wrote_into_the_session_is_read(store, sql, stored):
    store.create_session("s", "cli")
    store.create_session("t", "cli", system_prompt="ours")
    sql("UPDATE sessions SET system_prompt = 'theirs'")
    for name in ("s", "t"):
        assert store.get_session(name)["system_prompt"] == "theirs"
        assert store.export_session(name)["system_prompt"] == "theirs"
    assert {entry["system_prompt"] for entry in store.list_sessions_rich()} == {"theirs"}
    assert {each["system_prompt"] for each in store.search_sessions()} == {"theirs"}
    # It counts as one that the session has, and gives way to one that is set.
    store.create_session("s", "cli", system_prompt="late")
    assert store.get_session("s")["system_prompt"] == "theirs"
    store.update_system_prompt("s", "late")
    assert store.get_session("s")["system_prompt"] == "late"
    store.update_system_prompt("t", "late")
    assert list(stored().values()) == ["late"]


def test_prompts_are_stored_once_after_an_import_too(store, tmp_path, empty_file, sql):
    for number in range(6):
        store.create_session(f"s{number}", "cli", system_prompt=f"prompt {number % 2}")
    sql("UPDATE sessions SET system_prompt = 'theirs', system_prompt_hash = NULL WHERE id = 's5'")
    path = tmp_path / "other.db"
    path.write_bytes(empty_file)
    with SessionDB(path) as other:
        assert len(other.import_sessions(store.iter_export())["imported"]) == 6
        for number in range(6):
            name = f"s{number}"
            kept = other.get_session(name)["system_prompt"]
            assert kept == store.get_session(name)["system_prompt"]
            other.delete_session(name)
            remaining = len({f"{n % 2}" if n < 5 else "theirs" for n in range(number + 1, 6)})
            left = other._read(
                lambda db: db.exec_driver_sql("SELECT count(*) FROM system_prompts").scalar()
            )
            assert left == remaining


def test_a_purge_forgets_the_prompts_of_sessions_that_another_program_deleted(store, sql, stored):
    store.create_session("keep", "cli", system_prompt="kept")
    store.create_session("gone", "cli", system_prompt="orphaned")
    sql("DELETE FROM sessions WHERE id = 'gone'")
    assert sorted(stored().values()) == ["kept", "orphaned"]
    store.purge_deleted()
    assert list(stored().values()) == ["kept"]
