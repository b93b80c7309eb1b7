"""Titles: one session holds one, and lineages count on."""

from __future__ import annotations

import unicodedata

import pytest

from sessionstore import SessionDB, TitleTakenError


def titled(store: SessionDB, *titles: str) -> None:
    """Give each title a session of its own, started one second after the other."""
    for position, title in enumerate(titles):
        store.create_session(f"s{position}", "cli", title=title, started_at=float(position))


def test_a_taken_title_names_its_holder(store):
    titled(store, "Fix build")
    store.create_session("other", "cli")
    with pytest.raises(TitleTakenError, match="already in use") as caught:
        store.set_session_title("other", "Fix  build")
    assert caught.value.holder == "s0"
    assert caught.value.title == "Fix build"
    assert "s0" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(TitleTakenError):
        store.create_session("third", "cli", title="Fix build")
    assert store.get_session_title("other") is None
    assert store.get_session("third") is None


def test_a_title_is_set_kept_and_taken_away(store):
    store.create_session("s", "cli")
    assert store.set_session_title("s", " One\ntwo ") is True
    assert store.get_session_title("s") == "One two"
    assert store.set_session_title("s", "One two") is True
    assert store.get_session_by_title("One two")["id"] == "s"
    assert store.get_session_by_title("One  two")["id"] == "s"
    assert store.get_session_by_title("one two") is None
    assert store.set_session_title("s", "   ") is True
    assert store.get_session_title("s") is None
    assert store.set_session_title("nope", "x") is False


def test_any_number_of_sessions_may_have_no_title(store):
    for name in "abc":
        store.create_session(name, "cli", title="")
        store.set_session_title(name, None)
    assert store.session_count() == 3


def test_composed_and_decomposed_form_are_one_title(store):
    store.create_session("s", "cli", title=unicodedata.normalize("NFD", "Café"))
    assert store.get_session_title("s") == unicodedata.normalize("NFC", "Café")
    assert store.get_session_by_title(unicodedata.normalize("NFD", "Café"))["id"] == "s"
    store.create_session("t", "cli")
    with pytest.raises(TitleTakenError):
        store.set_session_title("t", unicodedata.normalize("NFC", "Café"))


def test_a_title_too_long_changes_nothing(store):
    store.create_session("s", "cli", title="short")
    with pytest.raises(ValueError, match="too long"):
        store.set_session_title("s", "x" * 12_000)
    assert store.get_session_title("s") == "short"
    assert store.get_session_by_title("x" * 12_000) is None
    assert store.resolve_session_by_title("x" * 12_000) is None


def test_a_continuation_takes_the_title_of_what_it_continues(timed, clock):
    timed.create_session("root", "cli", title="Trip")
    timed.end_session("root", "compression")
    clock.now += 1
    timed.create_session("middle", "cli", parent_session_id="root")
    timed.end_session("middle", "compression")
    clock.now += 1
    timed.create_session("tip", "cli", parent_session_id="middle")
    assert timed.set_session_title("tip", "Trip") is True
    assert timed.get_session_title("root") is None
    assert timed.get_session_title("tip") == "Trip"
    # Not the other way round: the title belongs to what goes on.
    with pytest.raises(TitleTakenError):
        timed.set_session_title("root", "Trip")


def test_neither_a_subagent_nor_a_branch_takes_the_title_of_its_parent(timed, clock):
    timed.create_session("root", "cli", title="Trip")
    timed.create_session("sub", "cli", parent_session_id="root")
    with pytest.raises(TitleTakenError, match="root"):
        timed.set_session_title("sub", "Trip")
    timed.end_session("root", "branched")
    clock.now += 1
    timed.create_session("branch", "cli", parent_session_id="root")
    with pytest.raises(TitleTakenError, match="root"):
        timed.set_session_title("branch", "Trip")


def test_the_next_title_counts_on(store):
    assert store.get_next_title_in_lineage("Fix build") == "Fix build"
    for position, expected in enumerate(["Fix build", "Fix build #2", "Fix build #3"]):
        title = store.get_next_title_in_lineage("Fix build")
        assert title == expected
        store.create_session(f"s{position}", "cli", title=title)


def test_only_a_blank_a_hash_and_ascii_digits_count(store):
    titled(store, "X", "X #2", "X #2 #5", "X #bar", "X #２", "X_1", "x", "X#9", "X #7 ")
    store.delete_session("s8")
    assert store.resolve_session_by_title("X") == "s1"
    assert store.get_next_title_in_lineage("X") == "X #3"
    assert store.resolve_session_by_title("X #2") == "s1"
    assert store.resolve_session_by_title("X #3") is None
    assert store.resolve_session_by_title("x") == "s6"
    assert store.get_next_title_in_lineage("x") == "x #2"
    assert store.get_next_title_in_lineage("X #2 #5") == "X #2 #6"


def test_the_newest_started_of_a_lineage_is_meant_not_the_highest_number(store):
    store.create_session("old", "cli", title="X #9", started_at=1.0)
    store.create_session("new", "cli", title="X #2", started_at=2.0)
    assert store.resolve_session_by_title("X") == "new"
    assert store.resolve_session_by_title("X #9") == "old"


def test_gaps_are_not_filled_and_a_given_number_is_left_off(store):
    titled(store, "X", "X #7")
    assert store.get_next_title_in_lineage("X") == "X #8"
    assert store.get_next_title_in_lineage("X #2") == "X #8"
    assert store.get_next_title_in_lineage("  X   #2 ") == "X #8"


def test_the_next_title_of_a_long_one_is_not_too_long(store):
    long = "x" * 100
    for position in range(12):
        title = store.get_next_title_in_lineage(long)
        assert len(title) <= 100
        store.create_session(f"s{position}", "cli", title=title)
    assert store.session_count() == 12
    assert store.get_session_by_title("x" * 97 + " #2") is not None


def test_cutting_a_long_title_does_not_tear_a_character_from_its_marks(store):
    title = "q" * 96 + "m\u0323\u0302\u0331"
    store.create_session("s", "cli", title=title)
    following = store.get_next_title_in_lineage(title)
    assert len(following) <= 100
    base = following.removesuffix(" #2")
    assert base == "q" * 96
    assert store.sanitize_title(following) == following


@pytest.mark.parametrize("title", ["", "   ", "\u200b"])
def test_there_is_no_next_title_to_an_empty_one(store, title):
    with pytest.raises(ValueError, match="empty"):
        store.get_next_title_in_lineage(title)


HOSTILE = [
    "bad \ud83d end",
    "qz\0zq9",
    "😀",
    "👨‍👩‍👧‍👦",
    "e\u0301",
    "\ufeff",
    "\u202eabc",
    "a\r\nb",
    "'; DROP TABLE sessions; --",
    "%_\\",
]


@pytest.mark.parametrize("title", HOSTILE)
def test_no_title_makes_the_store_fail(store, title):
    store.create_session("s", "cli", title=title)
    stored = store.get_session_title("s")
    assert stored == store.sanitize_title(title)
    if stored is not None:
        assert store.get_session_by_title(title)["id"] == "s"
        assert store.resolve_session_by_title(title) == "s"
        assert store.get_next_title_in_lineage(title) == f"{stored} #2"


def test_the_title_of_another_user_is_taken_as_well(store):
    store.create_session("one", "cli", user_id="u1", title="Trip")
    with pytest.raises(TitleTakenError):
        store.create_session("two", "cli", user_id="u2", title="Trip")
