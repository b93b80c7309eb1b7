"""list, show, search, stats: what people are told, and what programs are."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_helpers import THEN, Run, files_in, sha256
from rich.cells import cell_len

from sessionstore import SessionDB


def lines_of(text: str) -> Sequence[str]:
    return [line for line in text.splitlines() if line]


def test_a_conversation_is_listed_by_title_or_by_how_it_begins(run: Run):
    head, *rows = lines_of(run("list").stdout)

    assert head.split() == [
        "ID",
        "TITLE",
        "OR",
        "PREVIEW",
        "SOURCE",
        "ACTIVE",
        "MESSAGES",
        "TOKENS",
    ]
    assert [row.split()[0] for row in rows] == ["20250101_a2", "lone", "20250101_a1"]
    assert "now zebra, then chat-send" in rows[0]
    assert "a_b%c 桂林" in rows[1]
    assert rows[2].split()[1:] == ["Fix", "the", "build", "cli", "2025-06-15", "4", "12k"]


def test_the_list_can_be_ordered_by_start_and_hold_children(run: Run):
    def ids(*options: str) -> list[str]:
        return [each["id"] for each in json.loads(run("list", "--json", *options).stdout)]

    assert ids("--sort", "started") == ["lone", "20250101_a2", "20250101_a1"]
    assert ids("--source", "cli") == ["20250101_a1"]
    assert ids("--source", "cl") == []
    assert set(ids("--include-children")) == {
        "lone",
        "20250101_a1",
        "20250101_a1sub",
        "20250101_a2",
    }


def test_a_list_that_is_cut_says_so_beside_the_result(run: Run):
    result = run("list", "--limit", "2")

    assert len(lines_of(result.stdout)) == 3
    assert result.stderr == "There are more; --limit shows them.\n"
    assert run("list", "--limit", "3").stderr == ""


@pytest.mark.parametrize("columns", [60, 90, 100, 200])
def test_no_line_of_a_list_is_wider_than_the_terminal(run: Run, filled: Path, columns: int):
    with SessionDB(filled) as db:
        db.create_session("x" * 36, "cli", title="大" * 100, started_at=THEN)

    text = run("list", columns=columns).stdout

    facts = [line for line in text.splitlines() if " · " in line]
    assert len(facts) == (4 if columns < 100 else 0)  # an id is never cut
    assert max(cell_len(line) for line in text.splitlines() if line not in facts) <= columns
    assert "x" * 36 in text
    assert "…" in text


def test_json_is_one_document_with_the_real_characters(run: Run, filled: Path):
    with SessionDB(filled, read_only=True) as db:
        expected = db.list_sessions_rich(order_by_last_active=True)
    text = run("list", "--json").stdout

    assert json.loads(text) == expected
    assert "桂林" in text


def test_nothing_stored_is_no_failure(run: Run, tmp_path: Path):
    SessionDB(tmp_path / "empty.db").close()

    for command in (["list"], ["search", "x"], ["stats"], ["export"]):
        assert run(*command, db=tmp_path / "empty.db").exit_code == 0
    assert json.loads(run("list", "--json", db=tmp_path / "empty.db").stdout) == []
    assert "unknown" in run("stats", db=tmp_path / "empty.db").stdout


def test_a_source_nobody_foresaw_is_in_list_search_and_stats_and_the_sums_agree(run: Run):
    assert "brand-new" in run("list").stdout
    assert "brand-new" in run("search", "zebra", "--source", "brand-new").stdout
    assert "brand-new" in run("stats").stdout
    figures = json.loads(run("stats", "--json").stdout)
    assert sum(each["sessions"] for each in figures["sources"].values()) == figures["sessions"] == 4
    tokens = sum(each["total_tokens"] for each in figures["sources"].values())
    assert tokens == figures["total_tokens"] == 12_345
    assert figures["messages"] == 6


def test_an_unknown_cost_is_shown_as_unknown(run: Run):
    text = run("stats").stdout
    costs = json.loads(run("stats", "--json").stdout)["costs"]

    assert "Cost       $0.5000 (known for 1 of 4 sessions)" in text
    assert "Estimate   unknown" in text
    assert costs["estimated_cost_usd"] == {"sum": None, "known_sessions": 0}
    assert "cost unknown" in run("show", "lone").stdout


def test_the_size_of_the_store_is_that_of_its_files(run: Run, filled: Path):
    assert json.loads(run("stats", "--json").stdout)["size_bytes"] == filled.stat().st_size


@pytest.mark.parametrize("name", ["20250101_a1", "Fix the build", "lo"])
def test_a_session_is_named_by_id_title_or_beginning(run: Run, name: str):
    result = run("show", name)

    assert result.exit_code == 0
    assert ("20250101_a1" if name != "lo" else "lone") in result.stdout


@pytest.mark.parametrize("name", ["zz", "20250101%", "2025010__a1", "", "fix the build", "\udcff"])
def test_a_session_that_is_not_there_is_an_error(run: Run, filled: Path, name: str):
    before = sha256(filled)

    result = run("show", name)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "no session has the id or title" in result.stderr
    assert sha256(filled) == before


def test_a_beginning_of_several_ids_lists_them(run: Run):
    result = run("show", "20250101_")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "20250101_a1, 20250101_a1sub, 20250101_a2" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_exact_title_goes_before_the_beginning_of_an_id(run: Run, filled: Path):
    with SessionDB(filled) as db:
        db.set_session_title("20250101_a2", "lon")

    assert "20250101_a2" in run("show", "lon").stdout


def test_a_conversation_sets_roles_apart_and_folds_what_tools_say(run: Run):
    text = run("show", "20250101_a1", columns=60).stdout

    assert [line.split()[1] for line in text.splitlines() if line.startswith("## ")] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert '  -> terminal {"command": "ls 网络"}\n' in text
    assert "  line one line two xxx" in text
    assert "(518 characters)" in text
    assert "Done.\n[image]\n" in text
    assert all(cell_len(line) <= 70 for line in text.splitlines())
    full = run("show", "20250101_a1", "--full").stdout
    assert "line one\nline two " + "x" * 500 in full
    assert '-> terminal {"command":\n "ls 网络"}' in full


def test_the_last_messages_alone(run: Run):
    text = run("show", "20250101_a1", "--last", "1").stdout

    assert "(3 earlier messages not shown)" in text
    assert "Looking." not in text
    shown = json.loads(run("show", "20250101_a1", "--last", "2", "--json").stdout)
    assert [each["role"] for each in shown["messages"]] == ["tool", "assistant"]
    assert shown["title"] == "Fix the build"


def test_what_is_stored_cannot_drive_the_terminal(run: Run, filled: Path):
    connection = sqlite3.connect(filled)  # a title that no release of this package would write
    connection.execute(
        "UPDATE sessions SET title = ?, source = ? WHERE id = 'lone'",
        ("\x1b]0;evil\x07\nx\u202e", "t\x1b[2J"),
    )
    connection.commit()
    connection.close()

    for arguments in (["list"], ["show", "lone"], ["search", "pair"], ["stats"]):
        for columns in (60, 100):
            text = run(*arguments, columns=columns).stdout
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert "half \\ud83d a pair \\x1b[31m\\x07\\x9b2J" in run("show", "lone").stdout
    as_json = run("show", "lone", "--json").stdout
    assert "\x9b" not in as_json
    assert json.loads(as_json)["messages"][0]["content"] == "half \ud83d a pair \x1b[31m\x07\x9b2J"


def test_hits_stand_under_their_sessions_with_their_marks(run: Run):
    text = run("search", "chat-send", "--sort", "oldest").stdout

    assert text.splitlines()[0] == "Fix the build  20250101_a1 · cli · 2025-06-15"
    assert "检查网络配置, then run >>>chat-send<<<" in text
    assert text.index("20250101_a1") < text.index("20250101_a2")
    assert run("search", "网络").stdout.count("Fix the build") == 1


def test_a_hit_has_the_id_by_which_it_is_shown_in_its_conversation(run: Run):
    said = run("search", "line two", "--role", "tool").stdout
    hit = re.search(r"  tool  2025-06-15 \d\d:\d\d  id (\d+)  ", said)
    assert hit
    around = run("show", "20250101_a1", "--around", hit[1]).stdout
    assert "检查网络配置, then run chat-send" in around
    assert f"id {hit[1]}\n" in around


def test_a_search_says_that_there_are_more_hits_than_it_shows(run: Run):
    one = run("search", "chat-send", "--limit", "1")
    assert one.stdout.count(">>>") == 1
    assert one.stderr == "There are more; --limit or --offset shows them.\n"
    assert len(json.loads(run("search", "chat-send", "--limit", "1", "--json").stdout)) == 1
    assert run("search", "chat-send", "--limit", "2").stderr == ""
    assert run("search", "chat-send", "--limit", "1", "--offset", "1").stderr == ""


def test_a_conversation_that_was_split_says_where_it_goes_on(run: Run, filled: Path):
    with SessionDB(filled) as db:
        db.continue_session("lone", "lone2")
        db.continue_session("lone2", "lone3")
    assert "goes on in lone3" in run("show", "lone").stdout
    assert "goes on in" not in run("show", "lone3").stdout


def test_marks_become_style_where_colour_is_wanted(run: Run):
    coloured = run("search", "网络", FORCE_COLOR="1", TERM="xterm").stdout
    without = run("search", "网络", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1").stdout

    assert ">>>" not in coloured
    assert "\x1b[1;30;43m网络\x1b[0m" in coloured
    assert "\x1b[1m网络\x1b[0m" in without
    assert "43m" not in without


def test_search_takes_sources_roles_and_times(run: Run):
    def found(*options: str) -> list[str]:
        return [each["session_id"] for each in json.loads(run("search", "--json", *options).stdout)]

    assert found("chat-send", "--sort", "newest") == ["20250101_a2", "20250101_a1"]
    assert found("chat-send", "--source", "cli", "--source", "telegram") == ["20250101_a1"]
    assert found("网络", "--role", "assistant") == ["20250101_a1"]
    assert found("chat-send", "--since", "2025-06-16") == ["20250101_a2"]
    assert found("chat-send", "--until", "2025-06-15") == ["20250101_a1"]
    assert found("chat-send", "--until", str(THEN)) == ["20250101_a1"]
    assert found("chat-send", "--since", "2025-06-16T10:00:00+00:00") == ["20250101_a2"]
    assert found("chat-send", "--since", "2026") == []
    days = run("search", "chat-send", "--since", "7")
    assert days.exit_code == 2
    assert "7 may be days or epoch seconds; write 7d or 7.0\n" in days.stderr
    assert len(found("chat-send", "--since", "2025", "--until", "2025")) == 2
    assert found("chat-send", "--until", "2024") == []
    assert found("zebra", "chat-send") == ["20250101_a2"]
    assert found("chat-send", "--limit", "1", "--sort", "newest") == ["20250101_a2"]


@pytest.mark.parametrize("option", ["--before", "--after", "--older-than", "--newer-than"])
def test_what_may_be_a_year_or_days_is_asked_back(run: Run, option: str):
    result = run("list", option, "2027")

    assert result.exit_code == 2
    assert "write 2027-01-01 or 2027d" in result.stderr
    assert run("list", option, "2027d").exit_code == 0
    assert run("list", option, "3000").exit_code == 0


@pytest.mark.parametrize("bad", ["-1", "1.5", "many", "", "９", "9" * 30, "1e3"])
def test_a_count_that_is_none_is_wrong_usage(run: Run, bad: str):
    result = run("list", f"--limit={bad}")

    assert result.exit_code == 2
    assert "is not a whole number of at least 0" in result.stderr
    assert run("list", "--min-messages", str(2**63 - 2), "--limit", str(2**63 - 2)).exit_code == 0


@pytest.mark.parametrize("moment", ["yesterday", "2025-13-01", "nan", "9999-99-99", "", "1e5"])
def test_a_time_that_is_none_is_wrong_usage(run: Run, moment: str):
    result = run("search", "x", "--since", moment)

    assert result.exit_code == 2
    assert "is not a time" in result.stderr


@pytest.mark.parametrize("query", ['"', "*", "^", "NOT", " ", "😀", "100%", "\udcff"])
def test_no_query_is_an_error(run: Run, query: str):
    result = run("search", "--", query)

    assert result.exit_code == 0
    empty = "Nothing found: the query is empty.\n"
    assert result.stderr == empty if query == " " else result.stderr in ("", "Nothing found.\n")


def test_a_query_that_is_too_long_is_one_line(run: Run):
    result = run("search", "x" * 3000)

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "2,048" in result.stderr


def test_an_index_that_cannot_be_used_is_told_and_search_goes_on(run: Run, filled: Path):
    connection = sqlite3.connect(filled)
    connection.execute("DROP TABLE messages_fts")
    connection.commit()
    connection.close()

    result = run("search", "zebra")

    assert "20250101_a2" in result.stdout
    assert result.stderr.count("the search index cannot be used") == 1
    assert "doctor --fix" in result.stderr
    assert run("db", "check").exit_code == 1
    assert "search index  ok" not in run("db", "check").stdout


def test_reading_changes_nothing_and_leaves_nothing(run: Run, filled: Path):
    before = sha256(filled), files_in(filled.parent)

    for arguments in (
        ["list"],
        ["show", "lone"],
        ["search", "x"],
        ["stats"],
        ["export"],
        ["db", "current"],
        ["db", "check"],
    ):
        assert run(*arguments).exit_code == 0

    assert (sha256(filled), files_in(filled.parent)) == before


def test_the_store_may_be_named_after_the_command(run: Run, filled: Path, tmp_path: Path):
    nowhere = tmp_path / "absent.db"

    assert run("list", "--db", str(filled), db=nowhere).exit_code == 0
    assert run("db", "current", "--db", str(filled), db=nowhere).exit_code == 0
    assert run("list", "--url", f"sqlite:///{filled}").exit_code == 2
    assert (
        "absent.db does not exist; name another store with --db" in run("list", db=nowhere).stderr
    )
    assert run("list", db=nowhere).exit_code == 1
    assert not nowhere.exists()


def test_a_path_may_have_any_character(run: Run, filled: Path, tmp_path: Path):
    odd = tmp_path / "a?b=%41 #网络.db"
    odd.write_bytes(filled.read_bytes())

    assert run("list", db=odd).exit_code == 0
    assert json.loads(run("db", "current", "--json", db=odd).stdout)["up_to_date"]


def test_a_search_is_narrowed_to_a_session_a_user_and_a_later_page(run: Run):
    def found(*options: str) -> list[str]:
        hits = json.loads(run("search", "chat-send", "--json", *options).stdout)
        return [hit["session_id"] for hit in hits]

    assert found() == ["20250101_a2", "20250101_a1"]
    assert found("--session", "Fix the build") == ["20250101_a1"]
    assert found("--session", "20250101_a2") == ["20250101_a2"]
    assert found("--user", "u1") == ["20250101_a1"]
    assert found("--offset", "1") == ["20250101_a1"]
    assert run("search", "x", "--session", "nope").exit_code == 1


def test_a_time_of_a_search_may_be_an_age(run: Run, filled: Path):
    with SessionDB(filled) as db:
        db.append_message("lone", "user", "just now: chat-send")

    hits = json.loads(run("search", "chat-send", "--json", "--since", "2h").stdout)
    assert [hit["session_id"] for hit in hits] == ["lone"]
    hits = json.loads(run("search", "chat-send", "--json", "--until", "2h").stdout)
    assert len(hits) == 2


def test_a_range_of_times_that_nothing_is_in_is_wrong_usage(run: Run):
    refused = run("search", "x", "--since", "2026-02-01", "--until", "2026-01-01")
    assert refused.exit_code == 2
    assert "nothing could be found" in refused.stderr
    assert "the query is empty" in run("search", "  ").stderr
