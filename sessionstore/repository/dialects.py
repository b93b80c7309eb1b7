"""INSERT … ON CONFLICT as each back end has it; only the one at hand is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Table

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
