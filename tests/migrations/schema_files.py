"""Make database files, look into them without the package, and say what is in them."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from sessionstore import schema
from sessionstore.engine import Database, open_database
from sessionstore.location import locate
from sessionstore.settings import StoreSettings

DATA = Path(__file__).parents[1] / "data"
HERMES = DATA / "hermes"
SETTINGS = StoreSettings()
INDEXES = ("messages_fts", "messages_fts_trigram")

# name -> (type, NOT NULL, default) of each level, from the history of the schema.
SESSIONS_ADDED = {
    1: {
        "id": ("TEXT", 0, None),
        "source": ("TEXT", 1, None),
        "user_id": ("TEXT", 0, None),
        "model": ("TEXT", 0, None),
        "model_config": ("TEXT", 0, None),
        "system_prompt": ("TEXT", 0, None),
        "parent_session_id": ("TEXT", 0, None),
        "started_at": ("REAL", 1, None),
        "ended_at": ("REAL", 0, None),
        "end_reason": ("TEXT", 0, None),
        "message_count": ("INTEGER", 0, "0"),
        "tool_call_count": ("INTEGER", 0, "0"),
        "input_tokens": ("INTEGER", 0, "0"),
        "output_tokens": ("INTEGER", 0, "0"),
    },
    3: {"title": ("TEXT", 0, None)},
    5: {
        "cache_read_tokens": ("INTEGER", 0, "0"),
        "cache_write_tokens": ("INTEGER", 0, "0"),
        "reasoning_tokens": ("INTEGER", 0, "0"),
        "billing_provider": ("TEXT", 0, None),
        "billing_base_url": ("TEXT", 0, None),
        "billing_mode": ("TEXT", 0, None),
        "estimated_cost_usd": ("REAL", 0, None),
        "actual_cost_usd": ("REAL", 0, None),
        "cost_status": ("TEXT", 0, None),
        "cost_source": ("TEXT", 0, None),
        "pricing_version": ("TEXT", 0, None),
    },
    8: {"api_call_count": ("INTEGER", 0, "0")},
    12: {"system_prompt_hash": ("TEXT", 0, None)},
    14: {"rewind_count": ("INTEGER", 1, "0")},
    15: {"archived": ("INTEGER", 1, "0"), "pinned": ("INTEGER", 1, "0")},
    16: {"relation": ("TEXT", 0, None)},
    17: {"last_active_at": ("REAL", 0, None)},
    19: {
        "handoff_state": ("TEXT", 0, None),
        "handoff_platform": ("TEXT", 0, None),
        "handoff_error": ("TEXT", 0, None),
    },
}
MESSAGES_ADDED = {
    1: {
        "id": ("INTEGER", 0, None),
        "session_id": ("TEXT", 1, None),
        "role": ("TEXT", 1, None),
        "content": ("TEXT", 0, None),
        "tool_call_id": ("TEXT", 0, None),
        "tool_calls": ("TEXT", 0, None),
        "tool_name": ("TEXT", 0, None),
        "timestamp": ("REAL", 1, None),
        "token_count": ("INTEGER", 0, None),
    },
    2: {"finish_reason": ("TEXT", 0, None)},
    6: {
        "reasoning": ("TEXT", 0, None),
        "reasoning_details": ("TEXT", 0, None),
        "codex_reasoning_items": ("TEXT", 0, None),
    },
    7: {"reasoning_content": ("TEXT", 0, None)},
    9: {"codex_message_items": ("TEXT", 0, None)},
    13: {"content_encoding": ("TEXT", 0, None), "json_columns": ("TEXT", 0, None)},
    14: {"active": ("INTEGER", 1, "1"), "compacted": ("INTEGER", 1, "0")},
    20: {"platform_message_id": ("TEXT", 0, None)},
    21: {"search_text": ("TEXT", 0, None)},
}
_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
# table -> (the revision that makes it, its columns)
TABLES_ADDED = {
    "state_meta": (7, {"key": ("TEXT", 0, None), "value": ("TEXT", 0, None)}),
    "system_prompts": (12, {"hash": ("TEXT", 1, None), "prompt": ("TEXT", 1, None)}),
    "session_model_usage": (
        18,
        {
            "session_id": ("TEXT", 1, None),
            **dict.fromkeys(("model", "billing_provider", "task"), ("TEXT", 1, "''")),
            **dict.fromkeys(_COUNTERS, ("INTEGER", 1, "0")),
            **dict.fromkeys(("estimated_cost_usd", "actual_cost_usd"), ("REAL", 0, None)),
            **dict.fromkeys(("first_seen", "last_seen"), ("REAL", 1, None)),
        },
    ),
    "compression_locks": (
        19,
        {
            **dict.fromkeys(("session_id", "holder"), ("TEXT", 1, None)),
            **dict.fromkeys(("acquired_at", "expires_at"), ("REAL", 1, None)),
        },
    ),
    "gateway_routing": (
        19,
        {
            **dict.fromkeys(("scope", "session_key", "entry_json"), ("TEXT", 1, None)),
            "updated_at": ("REAL", 1, None),
        },
    ),
    "delivery_obligations": (
        19,
        {
            **dict.fromkeys(
                ("delivery_id", "session_id", "target", "payload_json"), ("TEXT", 1, None)
            ),
            "state": ("TEXT", 1, "'pending'"),
            "attempts": ("INTEGER", 1, "0"),
            **dict.fromkeys(("available_at", "created_at", "updated_at"), ("REAL", 1, None)),
            **dict.fromkeys(("claimed_by", "last_error"), ("TEXT", 0, None)),
            "lease_expires_at": ("REAL", 0, None),
        },
    ),
}
# What is beside tables and the search index, by the revision that makes it.
ADDED = {
    1: {
        "idx_sessions_source",
        "idx_sessions_parent",
        "idx_sessions_started",
        "idx_messages_session",
    },
    4: {"idx_sessions_title_unique"},
    12: {"ix_sessions_system_prompt_hash"},
    14: {"ix_messages_session_id_active_id"},
    15: {"ix_sessions_pinned"},
    17: {
        "ix_sessions_activity",
        *(f"messages_activity_{event}" for event in ("insert", "delete", "update")),
    },
    19: {"ix_delivery_obligations_state_available_at"},
    20: {"ix_messages_session_id_platform_message_id"},
}


def declared(added: dict[int, dict[str, tuple]], level: int) -> dict[str, tuple]:
    return {
        name: kind
        for number, columns in added.items()
        if number <= level
        for name, kind in columns.items()
    }


# ---- through the package


@contextmanager
def database(path: Path) -> Iterator[Database]:
    """The file, open to write, whatever it is at."""
    opened = open_database(locate(path), SETTINGS)
    try:
        yield opened
    finally:
        opened.close()


def open_store(path: Path, *, read_only: bool = False, migrate: bool = True) -> None:
    """Open the file as the store does, and close it."""
    schema.open_current(locate(path), SETTINGS, read_only=read_only, migrate=migrate).close()


def upgrade(opened: Database, to: str = "head", folder: Path | None = None) -> list[str]:
    return schema.upgrade(opened, SETTINGS, to=to, folder=folder)


def downgrade(opened: Database, to: str) -> list[str]:
    return schema.downgrade(opened, SETTINGS, to=to)


def upgrade_file(path: Path, to: str = "head", folder: Path | None = None) -> list[str]:
    with database(path) as opened:
        return upgrade(opened, to, folder)


def status(path: Path) -> schema.SchemaStatus:
    with database(path) as opened:
        return opened.read(schema.read_status)


# ---- without it


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection, text as bytes, each statement for itself."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = bytes
    try:
        yield connection
    finally:
        connection.close()


def change(path: Path, *statements: str) -> None:
    """Run statements on a file as any other program would."""
    with raw(path) as connection:
        for statement in statements:
            connection.execute(statement)


def down(path: Path, to: str) -> None:
    """Take a file back to an earlier revision."""
    with database(path) as opened:
        downgrade(opened, to=to)


def ask(path: Path, statement: str, *values: object) -> list[tuple]:
    with raw(path) as connection:
        connection.text_factory = str
        return connection.execute(statement, values).fetchall()


def master(path: Path) -> dict[str, str]:
    """Texts of the schema by name, but for what SQLite adds by itself."""
    found = ask(path, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    shadows = tuple(
        f"{table}_{part}"
        for table, text in found
        if text.startswith("CREATE VIRTUAL TABLE")
        for part in ("data", "idx", "content", "docsize", "config")
    )
    return {
        name: text for name, text in found if name not in shadows and not name.startswith("sqlite_")
    }


def texts(path: Path) -> dict[str, str]:
    """The same without plain tables: what has to be equal however old a file is."""
    return {
        name: text for name, text in master(path).items() if not text.startswith("CREATE TABLE")
    }


def columns(path: Path, table: str) -> dict[str, tuple]:
    return {
        name: (kind, required, default)
        for _, name, kind, required, default, _ in ask(path, f"PRAGMA table_info({table})")
    }


def shape(path: Path) -> tuple:
    """Everything about the schema that is no matter of column order."""
    tables = [name for name, text in master(path).items() if text.startswith("CREATE TABLE")]
    return texts(path), {table: columns(path, table) for table in tables}


def rows(path: Path, table: str) -> list[dict[str, object]]:
    """All rows in the order they were stored, text as bytes."""
    with raw(path) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute(f"SELECT rowid AS stored_as, * FROM {table} ORDER BY rowid")
        return [dict(row) for row in found]


def all_rows(path: Path) -> dict[str, list[dict[str, object]]]:
    return {table: rows(path, table) for table in ("sessions", "messages")}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def side_files(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.glob(path.name + "-*"))


def real_file(level: str, folder: Path) -> Path:
    path = folder / f"hermes-v{level}.db"
    shutil.copy(HERMES / path.name, path)
    return path


def fill(path: Path) -> None:
    """Put in three sessions and ten messages, each with a word of its own in its content.

    Every column of the file gets values, also what later levels added.
    """
    with raw(path) as connection:
        for number, (name, parent) in enumerate(
            (("parent", None), ("child", "parent"), ("alone", None))
        ):
            _insert(
                connection,
                "sessions",
                {
                    "id": name,
                    "source": "cli",
                    "parent_session_id": parent,
                    "started_at": 100.5 + number,
                    "title": f"Title {number}",
                    "model_config": '{"temperature": 0.7}',
                    "system_prompt": "Be brief.",
                    "message_count": 5,
                    "input_tokens": 2**40,
                    "cache_read_tokens": 7,
                    "estimated_cost_usd": 0.25,
                    "api_call_count": 3,
                },
            )
        for number in range(10):
            _insert(
                connection,
                "messages",
                {
                    "session_id": "parent" if number < 5 else "child",
                    "role": "user" if number % 2 else "assistant",
                    "content": f"{word(number)} 今天去广西旅游 and more",
                    "tool_calls": f'[{{"name": "called{number}"}}]' if number % 3 == 0 else None,
                    "tool_name": f"tool{number}" if number % 3 == 0 else None,
                    # A clock that steps back.
                    "timestamp": 1781773226.453548 - number,
                    "reasoning": f"because {number}",
                    "reasoning_content": "",
                    "finish_reason": "stop",
                },
            )


def _insert(connection: sqlite3.Connection, table: str, values: dict[str, object]) -> None:
    there = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
    kept = {name: value for name, value in values.items() if name.encode() in there}
    marks = ", ".join("?" * len(kept))
    connection.execute(
        f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({marks})", tuple(kept.values())
    )


def word(number: int) -> str:
    return f"quokka{number:03d}q"


# ---- what the schema is, as text to store


def sqlite_text(path: Path) -> str:
    return "".join(f"{text};\n\n" for _, text in sorted(master(path).items()))


def postgres_text(url: str) -> str:
    """Columns, constraints and indexes of a server, as its catalogue tells them."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return "\n".join(_postgres_lines(connection)) + "\n"


def _postgres_lines(connection: Connection) -> Iterator[str]:
    for statement in (
        (
            "SELECT 'column ' || c.table_name || '.' || c.column_name, c.data_type, "
            "CASE c.is_nullable WHEN 'NO' THEN 'NOT NULL' END, 'DEFAULT ' || c.column_default, "
            "'COLLATE ' || c.collation_name, "
            "CASE c.is_identity WHEN 'YES' THEN 'IDENTITY ' || c.identity_generation END "
            "FROM information_schema.columns AS c WHERE c.table_schema = 'public' "
            'ORDER BY c.table_name COLLATE "C", c.ordinal_position'
        ),
        (
            "SELECT 'constraint', conname, 'ON', conrelid::regclass::text, "
            "pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = 'public'::regnamespace "
            'ORDER BY conname COLLATE "C"'
        ),
        (
            "SELECT 'index', indexdef FROM pg_indexes WHERE schemaname = 'public' "
            'ORDER BY indexname COLLATE "C"'
        ),
        (
            "SELECT 'function', pg_get_functiondef(oid) FROM pg_proc "
            "WHERE pronamespace = 'public'::regnamespace "
            'ORDER BY proname COLLATE "C"'
        ),
        (
            "SELECT 'trigger', pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal "
            'ORDER BY tgname COLLATE "C"'
        ),
    ):
        for row in connection.exec_driver_sql(statement):
            yield " ".join(part for part in row if part)
