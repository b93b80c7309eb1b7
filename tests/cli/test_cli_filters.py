"""One set of filters for list, export, prune and archive, typed at the real command."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cli_helpers import THEN, Run, process

from sessionstore import SessionDB, StoreSettings

DAY = 86400.0
LITERALS = ("a_b", "a%b", "a\\b", "a_", "%", "\\")


@pytest.fixture
def literal(tmp_path: Path) -> Path:
    """A store whose sessions differ by one character that a pattern would take for any."""
    path = tmp_path / "literal.db"
    with SessionDB(path, settings=StoreSettings(clock=lambda: THEN)) as db:
        for name, text in {"under": "a_b", "percent": "a%b", "slash": "a\\b", "x": "axb"}.items():
            db.create_session(name, text, model=text, title=text, user_id=text)
            db.update_token_counts(name, input_tokens=0, billing_provider=text)
            db.end_session(name, text)
    return path


MORE = {"list": ["--json"], "prune": ["--dry-run", "--json"], "archive": ["--dry-run", "--json"]}


def ids_in(command: str, told: str) -> set[str]:
    """Read which sessions passed, from whatever the command tells."""
    if command == "export":
        return {json.loads(line)["id"] for line in told.splitlines()}
    found = json.loads(told)
    if command == "list":
        return {each["id"] for each in found}
    return set(found["pruned" if command == "prune" else "archived"])


@pytest.mark.parametrize("command", ["list", "export", "prune", "archive"])
def test_no_character_of_a_filter_stands_for_another(run: Run, literal: Path, command: str):
    texts = {"a_b": {"under"}, "a%b": {"percent"}, "a\\b": {"slash"}}
    more = MORE.get(command, [])
    for option in ("--title", "--model", "--provider", "--end-reason", "--source", "--user"):
        for text, ids in texts.items():
            told = run(command, *more, option, text, db=literal).stdout
            assert ids_in(command, told) == ids, (option, text)
    typed = process(command, *more, "--title", "A_B", "--db", str(literal))
    assert ids_in(command, typed.stdout.decode()) == {"under"}


def test_every_literal_in_every_field(run: Run, literal: Path):
    texts = {"under": "a_b", "percent": "a%b", "slash": "a\\b", "x": "axb"}
    for field in ("--title", "--model", "--provider", "--end-reason"):
        for typed in LITERALS:
            found = json.loads(run("list", "--json", field, typed, db=literal).stdout)
            assert {each["id"] for each in found} == {
                name for name, text in texts.items() if typed in text
            }, (field, typed)


@pytest.fixture
def ages(tmp_path: Path) -> Path:
    """Sessions that were last active 1, 10, 100 and 1,000 days ago, the last one open."""
    path, now = tmp_path / "ages.db", time.time()
    for days in (1, 10, 100, 1000):
        with SessionDB(
            path, settings=StoreSettings(clock=lambda days=days: now - days * DAY)
        ) as db:
            db.create_session(f"d{days}", "cli")
            db.append_message(f"d{days}", "user", "x")
            if days != 1000:
                db.end_session(f"d{days}", "done")
            db.update_token_counts(f"d{days}", input_tokens=days if days > 1 else 0)
    return path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--older-than", "5"], "d10 d100 d1000"),
        (["--older-than", "2w"], "d100 d1000"),
        (["--newer-than", "36h"], "d1"),
        (["--older-than", "5d", "--newer-than", "20w"], "d10 d100"),
        (["--before", "2020-01-01"], ""),
        (["--after", "2020-01-01T00:00:00+00:00"], "d1 d10 d100 d1000"),
        (["--older-than", "0"], "d1 d10 d100 d1000"),
        (["--max-tokens", "0"], "d1"),
        (["--min-tokens", "100"], "d100 d1000"),
        (["--min-cost", "0"], ""),
        (["--min-messages", "1", "--max-tool-calls", "0"], "d1 d10 d100 d1000"),
        (["--no-open"], "d1 d10 d100"),
        (["--pinned"], ""),
    ],
    ids=str,
)
def test_ages_times_and_bounds(run: Run, ages: Path, options: list[str], expected: str):
    found = json.loads(run("list", "--json", *options, db=ages).stdout)

    assert {each["id"] for each in found} == set(expected.split())


@pytest.mark.parametrize(
    "options",
    [
        ["--older-than", "2w", "--newer-than", "1w"],
        ["--after", "2026-02-01", "--before", "2026-01-01"],
        ["--after", "2026-01-01", "--before", "2026-01-01"],
        ["--min-messages", "3", "--max-messages", "2"],
        ["--min-cost", "nan"],
        ["--min-tokens", "-1"],
        ["--max-tokens", "99999999999999999999"],
        ["--older-than", "yesterday"],
        ["--title", "\udcff"],
    ],
    ids=repr,
)
@pytest.mark.parametrize("command", ["list", "export", "prune", "archive"])
def test_a_window_that_is_empty_is_wrong_usage(run: Run, command: str, options: list[str]):
    result = run(command, *options)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_an_inverted_bound_is_named_as_it_was_typed(run: Run):
    result = run("list", "--min-tool-calls", "3", "--max-tool-calls", "2")

    assert "--min-tool-calls 3 is above --max-tool-calls 2" in result.stderr
