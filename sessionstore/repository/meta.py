"""Named values of the store as a whole."""

from __future__ import annotations

import functools

from sqlalchemy import Connection, Insert, select

from sessionstore.models import STATE_META
from sessionstore.repository.dialects import insert_into


def get(connection: Connection, key: str) -> str | None:
    """Return a value, or None."""
    return connection.execute(
        select(STATE_META.c.value).where(STATE_META.c.key == key)
    ).scalar_one_or_none()


def put(connection: Connection, key: str, value: str | None) -> None:
    """Set a value, whether or not there was one."""
    connection.execute(_upsert(connection.dialect.name), {"key": key, "value": value})


@functools.cache
def _upsert(dialect: str) -> Insert:
    made = insert_into(STATE_META, dialect)
    return made.on_conflict_do_update(
        index_elements=[STATE_META.c.key], set_={"value": made.excluded.value}
    )
