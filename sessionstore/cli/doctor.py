"""The command that looks a store over, and sets right what is derived: doctor."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from sessionstore import schema
from sessionstore.cli.output import Failure, json_option, talk, write_json
from sessionstore.cli.store import existing_location, opened, store_options
from sessionstore.engine import open_read_only
from sessionstore.errors import SessionStoreError, StoreBusyError
from sessionstore.export.text import one_line, safe
from sessionstore.location import Location, locate
from sessionstore.settings import StoreSettings
from sessionstore.store import SessionDB
from sessionstore.upkeep import Finding, examine, index_finding, schema_objects

_INDENT = " " * 7


@click.command()
@click.option(
    "--fix", is_flag=True, help="Repair what is derived from messages; they are not changed."
)
@json_option
@store_options
def doctor(*, fix: bool, as_json: bool) -> None:
    """Examine the store, and explain what is wrong.

    The SQLite in use and its known bugs, file modes, journal, integrity, references, schema,
    indexes and triggers, counters against rows, times, unused prompts, and the search index
    against the messages. Each finding says what --fix would do; it never changes messages or
    the sessions' own fields. The exit status is 1 if anything is wrong.
    """
    location = existing_location()
    findings = _findings(location)
    before = findings
    if fix and any(each["repairable"] for each in findings):
        _repair(findings)
        findings = _findings(location)
    ok = not any(each["state"] == "wrong" for each in findings)
    if as_json:
        write_json({"location": str(location), "ok": ok, "findings": findings})
    else:
        _show(findings)
        left = {each["subject"] for each in findings if each["repairable"]}
        for each in before if fix else ():
            if each["repairable"] and each["subject"] not in left:
                talk(f"{each['subject']}: repaired")
    if not ok:
        click.get_current_context().exit(1)


def _show(findings: Sequence[Finding]) -> None:
    """Print each finding; what could not be looked at for the same reason is said once."""
    width = shutil.get_terminal_size().columns
    for _, alike in itertools.groupby(findings, key=_told):
        group = list(alike)
        said, subjects = group[0], ", ".join(each["subject"] for each in group)
        mark = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}[said["state"]]
        lines = [f"{mark}  {subjects}: {one_line(said['found'])}"]
        if said["means"]:
            lines.append(f"{_INDENT}{safe(said['means'])}")
        if said["fix"]:
            lines.append(f"{_INDENT}--fix would do: {safe(said['fix'])}")
        for line in lines:
            wrapped = textwrap.wrap(
                line,
                width,
                subsequent_indent=_INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
            click.echo("\n".join(wrapped))


def _told(finding: Finding) -> tuple[str | None, ...]:
    return finding["state"], finding["found"], finding["means"], finding["fix"]


def _findings(location: Location) -> list[Finding]:
    """Look at everything; a newer store, and another program's, are refused untouched."""
    store = open_read_only(location, StoreSettings())
    try:
        try:
            status = store.ask(schema.read_status)
        except StoreBusyError:
            raise
        except SessionStoreError:
            pass  # the findings say what is damaged
        else:
            schema.check_supported(status, location)
        findings = list(examine(store, _fresh_objects))
    finally:
        store.close()
    current = any(each["subject"] == "schema" and each["state"] == "ok" for each in findings)
    if current:
        findings.append(_index_finding(location))
    return findings


def _index_finding(location: Location) -> Finding:
    """Compare the search index with the messages; that takes the write lock, if it is to be had."""
    writable = location.path is None or os.access(location.path, os.W_OK)
    try:
        with opened(to_write=writable) as db:
            return index_finding(db.check_search_index())
    except (SessionStoreError, click.ClickException) as error:
        return index_finding([f"it could not be looked at ({error})"])


def _repair(findings: Sequence[Finding]) -> None:
    broken = {each["subject"] for each in findings if each["repairable"]}
    with opened(to_write=True) as db:
        if broken - {"search index"}:
            db.repair(_fresh_objects())
        if broken & {"search index", "indexes and triggers"}:
            db.rebuild_search_index()


@functools.cache
def _fresh_objects() -> Mapping[str, tuple[str, str]]:
    """Make a store in a folder that goes again, and see which indexes and triggers it has."""
    try:
        with tempfile.TemporaryDirectory(prefix="sessionstore-") as folder:
            path = Path(folder) / "fresh.db"
            SessionDB(path).close()
            store = open_read_only(locate(path), StoreSettings())
            try:
                return store.ask(schema_objects)
            finally:
                store.close()
    except OSError as error:
        raise Failure(f"no fresh store could be made to compare with: {error}") from error
