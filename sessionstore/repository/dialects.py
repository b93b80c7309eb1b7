"""What is said otherwise to each back end; only the dialect of the one at hand is loaded."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, text
from sqlalchemy.sql.dml import ReturningInsert

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


def insert_into(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """Give the INSERT of a dialect that knows ON CONFLICT.

    The other dialect is not imported: loading PostgreSQL's takes a fifth of the time in which
    a short command starts and ends.
    """
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one has its key; return whether it was inserted."""
    made = connection.execute(_insert_if_absent(connection.dialect.name, table), dict(values))
    return made.first() is not None


@functools.cache
def _insert_if_absent(dialect: str, table: Table) -> ReturningInsert[Any]:
    # What it returns says whether it made a row; a count is not to be had on PostgreSQL.
    return insert_into(table, dialect).on_conflict_do_nothing().returning(*table.primary_key)


_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


def one_at_a_time(connection: Connection, name: str) -> None:
    """Keep other transactions that name the same off until the end of this one.

    Writers who do not ask for it go on. SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"name": name})
