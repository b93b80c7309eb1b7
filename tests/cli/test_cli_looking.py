"""show around a message and page by page, and the figures of stats, on narrow terminals too."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from cli_helpers import COMMAND, THEN, Run
from rich.cells import cell_len

from sessionstore import SessionDB


@pytest.fixture
def used(filled: Path) -> Path:
    """The store, with what two models and another day used of it."""
    with SessionDB(filled) as db:
        db.update_token_counts(
            "lone", input_tokens=5, output_tokens=1, model="m2", billing_provider="p",
            estimated_cost_usd=0.25,
        )  # fmt: skip
        db.create_session(
            "later", "brand-new", started_at=THEN + 5 * 86400, system_prompt="be kind"
        )
    return filled


def test_figures_by_source_model_day_and_part_of_the_file(run: Run, used: Path):
    figures = json.loads(run("stats", "--json").stdout)

    assert figures["sessions"] == sum(each["sessions"] for each in figures["sources"].values()) == 5
    assert {each["model"]: each["total_tokens"] for each in figures["models"]} == {
        "m1": 12_345,
        "m2": 6,
    }
    days = {each["day"]: each for each in figures["days"]}
    assert days["2025-06-15"]["total_tokens"] == figures["total_tokens"]
    assert days["2025-06-20"]["cost_usd"] is None
    assert days["2025-06-15"]["cost_usd"] == 0.75
    file = dict(figures["file"])
    file.pop("exact")
    assert file.pop("total") == sum(file.values()) == used.stat().st_size
    assert min(file[part] for part in ("text", "word_index", "trigram_index", "prompts")) > 0
    assert json.loads(run("stats", "--json", "--days", "1").stdout)["days"] == [days["2025-06-20"]]


def test_unknown_costs_are_unknown_and_bars_are_as_long_as_figures(run: Run, used: Path):
    text = run("stats").stdout
    rows = {line.split()[0]: line for line in text.splitlines() if line}

    assert "unknown" in rows["2025-06-20"]
    assert "$0.7500" in rows["2025-06-15"]
    assert rows["m1"].count("█") == 24
    assert rows["m2"].count("█") == 1
    assert rows["2025-06-20"].count("█") == 0


def test_what_was_charged_for_a_model_is_kept_apart_from_what_was_reckoned(run: Run, used: Path):
    with SessionDB(used) as db:
        db.update_token_counts("20250101_a2", model="m9", output_tokens=1, estimated_cost_usd=0.125)
        db.update_token_counts(
            "later", model="m9", actual_cost_usd=0.5, estimated_cost_usd=0.25, output_tokens=1
        )
    row = next(line for line in run("stats").stdout.splitlines() if line.startswith("m9 "))
    assert row.split()[:5] == ["m9", "2", "$0.5000", "$0.3750", "2"]


@pytest.mark.parametrize("command", ["stats", "list", "show 20250101_a1", "prune --dry-run"])
def test_sixty_columns_are_enough(run: Run, used: Path, command: str):
    for line in run(*command.split(), columns=60).stdout.splitlines():
        facts = " · " in line or "Store" in line or line.startswith(("Cache", "line"))
        assert facts or cell_len(line) <= 60, line


def test_messages_around_one_are_shown_with_their_ids(run: Run, filled: Path):
    with SessionDB(filled) as db:
        ids = db.append_messages(
            "lone", [{"role": "user", "content": f"number {n}."} for n in range(40)]
        )
    text = run("show", "lone", "--around", str(ids[20])).stdout

    assert [n for n in range(40) if f"number {n}." in text] == list(range(15, 26))
    assert f"id {ids[20]}" in text
    assert run("show", "lone", "--around", "999999").exit_code == 1
    assert run("show", "lone", "--around", "1", "--last", "1").exit_code == 2


def on_a_terminal(path: Path, *arguments: str, **env: str) -> str:
    """Run the real command where it believes that somebody watches."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, *arguments, "--db", str(path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "LINES": "20", "COLUMNS": "80"} | env,
    )
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 65536):
            said += more
    except OSError:
        pass  # the other end was closed
    os.close(ours)
    running.wait(60)
    return said.decode()


def test_what_is_longer_than_the_terminal_is_paged(filled: Path, tmp_path: Path):
    with SessionDB(filled) as db:
        db.append_messages("lone", [{"role": "user", "content": f"number {n}"} for n in range(40)])
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\nexec cat\n")
    pager.chmod(0o700)

    assert "PAGED" in on_a_terminal(filled, "show", "lone", PAGER=str(pager))
    assert "number 39" in on_a_terminal(filled, "show", "lone", PAGER=str(pager))
    assert "PAGED" not in on_a_terminal(filled, "show", "lone", "--no-pager", PAGER=str(pager))


def test_a_long_export_draws_a_bar(filled: Path, tmp_path: Path):
    said = on_a_terminal(filled, "export", "-o", str(tmp_path / "out.jsonl"))

    assert "] 4 of 4 sessions" in said or "Note: " in said
