"""From keys that one statement gave to the rows that another one reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from sessionstore.errors import StoreUnavailableError

K = TypeVar("K")
V = TypeVar("V")


def in_order(connection: Connection, rows: Mapping[K, V], keys: Sequence[K]) -> list[V]:
    """Give the rows of these keys, in their order.

    A transaction of SQLite sees one state: a row that an index names and the table does not
    have is damage there, and leaving it out would hide that. On a server somebody deleted it
    between the two statements.

    Raises:
        StoreUnavailableError: The file is damaged.
    """
    if connection.dialect.name == "sqlite" and (
        lost := [each for each in keys if each not in rows]
    ):
        msg = (
            f"an index names row {lost[0]}, which is not there: the file is damaged; restore a "
            "backup, or save what can be read: sessionstore recover"
        )
        raise StoreUnavailableError(msg)
    return [rows[each] for each in keys if each in rows]
