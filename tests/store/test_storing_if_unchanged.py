"""Messages, config and values that go in together, or not at all where somebody was quicker."""

from __future__ import annotations

from typing import Any

import pytest

from sessionstore import ConflictError, SessionDB

NEW = [{"role": "user", "content": "x"}]


def add(db: SessionDB, config: Any, before: Any, **values: tuple[str | None, str]) -> list[int]:
    return db.append_if_unchanged(
        "s", NEW, model_config=config, expected_config=before, values=values
    )


@pytest.fixture
def stored(store: SessionDB) -> SessionDB:
    store.create_session("s", "cli")
    return store


def test_what_nobody_changed_goes_in_together(stored: SessionDB):
    first = add(stored, {"a": 1}, None, k=(None, "1"))
    second = add(stored, {"a": 2}, {"a": 1}, k=("1", "2"), other=(None, "3"))

    assert [each["id"] for each in stored.get_messages("s")] == [*first, *second]
    assert stored.get_session("s")["model_config"] == {"a": 2}
    assert (stored.get_meta("k"), stored.get_meta("other")) == ("2", "3")


@pytest.mark.parametrize("before", [None, "0", "2"])
def test_a_value_that_is_another_by_now_keeps_all_of_it_out(stored: SessionDB, before: str | None):
    stored.set_meta("k", "1")

    with pytest.raises(ConflictError, match="'k' was changed meanwhile"):
        add(stored, {"a": 1}, None, k=(before, "3"))

    assert stored.get_messages("s") == []
    assert stored.get_session("s")["model_config"] is None
    assert stored.get_meta("k") == "1"


def test_a_value_that_went_meanwhile_keeps_all_of_it_out(stored: SessionDB):
    with pytest.raises(ConflictError, match="'k' was changed meanwhile"):
        add(stored, {"a": 1}, None, k=("1", "2"))

    assert stored.get_messages("s") == []
    assert stored.get_meta("k") is None


def test_a_config_that_is_another_by_now_keeps_all_of_it_out(stored: SessionDB):
    add(stored, {"a": 1}, None)

    with pytest.raises(ConflictError, match="config of session s was changed meanwhile"):
        add(stored, {"a": 2}, None, k=(None, "1"))

    assert len(stored.get_messages("s")) == 1
    assert stored.get_session("s")["model_config"] == {"a": 1}
    assert stored.get_meta("k") is None
