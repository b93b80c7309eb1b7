"""Named values of the store as a whole."""

from __future__ import annotations

import functools

from sqlalchemy import Connection, Insert, select, update

from sessionstore.errors import ConflictError
from sessionstore.models import STATE_META
from sessionstore.repository.dialects import insert_if_absent, insert_into


def get(connection: Connection, key: str) -> str | None:
    """Return a value, or None."""
    return connection.execute(
        select(STATE_META.c.value).where(STATE_META.c.key == key)
    ).scalar_one_or_none()


def put(connection: Connection, key: str, value: str | None) -> None:
    """Set a value, whether or not there was one."""
    connection.execute(_upsert(connection.dialect.name), {"key": key, "value": value})


def exchange(connection: Connection, key: str, before: str | None, after: str) -> None:
    """Set a value that has to be `before` until now, None for absent.

    Raises:
        ConflictError: It is another.
    """
    if before is None:
        done = insert_if_absent(connection, STATE_META, {"key": key, "value": after})
    else:
        held = (STATE_META.c.key == key) & (STATE_META.c.value == before)
        changed = connection.execute(update(STATE_META).where(held).values(value=after))
        done = changed.rowcount > 0
    if not done:
        msg = f"the value {key!r} was changed meanwhile; nothing was written. Read it again"
        raise ConflictError(msg)


@functools.cache
def _upsert(dialect: str) -> Insert:
    made = insert_into(STATE_META, dialect)
    return made.on_conflict_do_update(
        index_elements=[STATE_META.c.key], set_={"value": made.excluded.value}
    )
