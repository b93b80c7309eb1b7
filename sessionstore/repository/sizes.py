"""What the file of a store consists of, in bytes."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sessionstore.records import FileSizes

# Which table's pages, and its indexes', belong to which part; all else is `other`.
_PARTS = {
    "messages": "text",
    "sessions": "sessions",
    "session_model_usage": "sessions",
    "system_prompts": "prompts",
}
_INDEXES = {"messages_fts_trigram": "trigram_index", "messages_fts": "word_index"}


def file_sizes(connection: Connection) -> FileSizes | None:
    """Say how many bytes of the file each part takes; None where there is no file.

    Whole pages where this SQLite has `dbstat`; else the lengths of what is stored, and the
    rest of the pages as `other`.
    """
    if connection.dialect.name != "sqlite":
        return None
    page, pages, free = (
        int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
        for name in ("page_size", "page_count", "freelist_count")
    )
    found: dict[str, int] = {}
    try:
        rows = connection.exec_driver_sql(
            "SELECT d.name, coalesce(m.tbl_name, d.name), sum(d.pgsize) FROM dbstat d "
            "LEFT JOIN sqlite_master m ON m.name = d.name WHERE d.aggregate = TRUE GROUP BY 1, 2"
        ).all()
        exact = True
        for _name, table, size in rows:
            part = _part_of(str(table))
            found[part] = found.get(part, 0) + int(size)
    except OperationalError:  # no such table: it was left out when SQLite was compiled
        exact, found = False, _lengths(connection)
    total = page * pages
    named = ("text", "word_index", "trigram_index", "prompts", "sessions")
    parts = {name: found.get(name, 0) for name in named}
    rest = total - sum(parts.values()) - free * page
    sizes = {**parts, "other": max(rest, 0), "free": free * page, "total": total, "exact": exact}
    return cast("FileSizes", sizes)


def _part_of(table: str) -> str:
    for index, part in _INDEXES.items():  # the longer name is first
        if table == index or table.startswith(f"{index}_"):
            return part
    return _PARTS.get(table, "other")


def _lengths(connection: Connection) -> dict[str, int]:
    """Add up the lengths of what is stored, where pages cannot be counted."""

    def total(table: str, *columns: str) -> int:
        lengths = " + ".join(f"coalesce(length(CAST({name} AS BLOB)), 0)" for name in columns)
        try:
            found: Any = connection.exec_driver_sql(f"SELECT sum({lengths}) FROM {table}").scalar()
        except OperationalError:  # an index that is switched off or lost
            return 0
        return int(found or 0)

    long_columns = (
        *("content", "tool_calls", "tool_name", "reasoning", "reasoning_content"),
        *("reasoning_details", "codex_reasoning_items", "codex_message_items"),
    )
    return {
        "text": total("messages", *long_columns),
        "prompts": total("system_prompts", "prompt"),
        "sessions": total("sessions", "id", "title", "model_config"),
    } | {
        part: total(f"{index}_data", "block") + total(f"{index}_content", "c0")
        for index, part in _INDEXES.items()
    }
