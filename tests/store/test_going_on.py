"""Lists and conversations in pages, each going on where the one before it ended."""

from __future__ import annotations

import itertools

import pytest

from sessionstore import ListPlace, SessionDB


@pytest.fixture
def crowded(store: SessionDB) -> SessionDB:
    """Nine sessions, some active at the same moment, two pinned, one chain, one child."""
    for number in range(7):
        store.create_session(f"c{number}", "cli", model="m", started_at=500.0 + number // 3)
        store.append_message(f"c{number}", "user", "x", timestamp=1000.0 + number // 2)
    store.continue_session("c3", "c3b", started_at=2000.0)
    store.create_session("sub", "tool", parent_session_id="c2", started_at=600.0)
    store.update_token_counts("sub", input_tokens=5, output_tokens=2, estimated_cost_usd=0.25)
    store.set_session_pinned("c1", True)
    store.set_session_pinned("c4", True)
    return store


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("by_activity", "children", "pinned_first"), tuple(itertools.product([True, False], repeat=3))
)
def test_pages_joined_are_the_whole_list(
    crowded: SessionDB, size: int, by_activity: bool, children: bool, pinned_first: bool
):
    def page(limit: int | None, past: ListPlace | None = None):
        return crowded.list_sessions_rich(
            limit=limit,
            past=past,
            order_by_last_active=by_activity,
            include_children=children,
            pinned_first=pinned_first,
        )

    joined, past = [], None
    while found := page(size, past):
        joined += found
        last = found[-1]
        past = ListPlace(
            pinned_first and last["pinned"],
            last["last_active"] if by_activity else last["started_at"],
            last["_lineage_root_id"] or last["id"],
        )

    assert joined == page(None)
    assert len(joined) == (9 if children else 7)


def test_a_page_of_messages_ends_before_an_id(store: SessionDB):
    store.create_session("s", "cli")
    ids = store.append_messages("s", [{"role": "user", "content": str(n)} for n in range(10)])
    store.create_session("other", "cli")
    store.append_message("other", "user", "elsewhere")
    store.rewind_to_message("s", ids[7])

    def said(**page: int | bool) -> str:
        return "".join(str(each["content"]) for each in store.get_messages("s", **page))

    assert said(last=3, before_id=ids[5]) == "234"
    assert said(before_id=ids[2]) == "01"
    assert said(last=3) == "456"
    assert said(last=3, include_inactive=True) == "789"
    assert said(last=2, before_id=ids[9], include_inactive=True) == "78"
    assert said(limit=2, after_id=ids[6], include_inactive=True) == "78"
    assert said(after_id=ids[1], before_id=ids[5], include_inactive=True) == "234"
    assert said(limit=0, include_inactive=True) == ""
    with pytest.raises(TypeError, match="before_id"):
        store.get_messages("s", before_id="x")


def test_usage_is_told_by_source_and_by_model(crowded: SessionDB):
    by_source = crowded.usage_by("source")

    assert by_source[0] == {
        "name": "tool",
        "sessions": 1,
        "messages": 0,
        "total_tokens": 7,
        "cost_usd": 0.25,
        "known_sessions": 1,
    }
    assert [(each["name"], each["sessions"]) for each in by_source] == [("tool", 1), ("cli", 8)]
    by_model = {each["name"]: each["messages"] for each in crowded.usage_by("model")}
    assert by_model == {"unknown": 0, "m": 7}
    with pytest.raises(ValueError, match="by source or model"):
        crowded.usage_by("title")
