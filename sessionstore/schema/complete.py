"""Hold the columns of a file against the declared ones; files do not always keep promises."""

from __future__ import annotations

import logging

from sqlalchemy import Connection
from sqlalchemy.schema import CreateColumn

from sessionstore.models import Base

logger = logging.getLogger("sessionstore")


def add_missing_columns(connection: Connection) -> None:
    """Add the declared columns that a file at the newest revision lacks.

    Only those that may be NULL or have a default: the rows there are would have no value.
    A server has no file that another program made.
    """
    if connection.dialect.name != "sqlite":
        return
    for table in Base.metadata.sorted_tables:
        found = connection.exec_driver_sql(f"PRAGMA table_info({table.name})").all()
        there = {name.lower() for _, name, *_ in found}
        for column in table.columns if there else ():
            optional = column.nullable or column.server_default is not None
            if column.name not in there and optional:
                declared = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {declared}")
                logger.warning("%s lacked %s; it is empty now", table.name, column.name)
