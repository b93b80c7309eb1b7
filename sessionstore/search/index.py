"""The full-text tables of a SQLite store: making them anew, and merging them.

They are derived from messages and never the authority. The definitions stand in the
revisions; here they are read back from the file, and repeated for a file that lost them.
"""

from __future__ import annotations

import logging

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sessionstore.search.sqlite import is_index_trouble

logger = logging.getLogger("sessionstore")

_DEFINITIONS = {
    "messages_fts": "CREATE VIRTUAL TABLE messages_fts USING fts5(\n    content\n)",
    "messages_fts_trigram": (
        "CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(\n"
        "    content,\n    tokenize='trigram'\n)"
    ),
}
_FILL = (
    "INSERT INTO {table}(rowid, content) SELECT id, COALESCE(content, '') || ' ' || "
    "COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '') FROM messages"
)


def rebuild(connection: Connection) -> None:
    """Make the search index anew from the messages, within a write transaction.

    Works on what is damaged and on what is missing, since the tables are dropped first. On
    PostgreSQL there is nothing to make: its indexes are kept by the server.

    Raises:
        DBAPIError: This SQLite cannot make such tables, or writing failed.
    """
    if connection.dialect.name != "sqlite":
        return
    for table, definition in _DEFINITIONS.items():
        found = connection.execute(
            text("SELECT sql FROM sqlite_master WHERE name = :table"), {"table": table}
        ).scalar()
        if found:
            _drop(connection, table)
        connection.exec_driver_sql(found or definition)
        connection.exec_driver_sql(_FILL.format(table=table))


def _drop(connection: Connection, table: str) -> None:
    """Drop a full-text table, whatever its shadow tables hold or lack.

    FTS5 opens a table to drop it, so it is first given what it writes for one without rows:
    averages and structure in the one, the version of the format in the other
    (https://www.sqlite.org/fts5.html#fts5_data_structures).
    """
    for statement in (
        f"CREATE TABLE IF NOT EXISTS {table}_data(id INTEGER PRIMARY KEY, block BLOB)",
        f"INSERT OR REPLACE INTO {table}_data VALUES(1, x''), (10, x'00000000000000')",
        f"CREATE TABLE IF NOT EXISTS {table}_config(k PRIMARY KEY, v) WITHOUT ROWID",
        f"INSERT OR REPLACE INTO {table}_config VALUES('version', 4)",
        f"DROP TABLE {table}",
    ):
        connection.exec_driver_sql(statement)


def optimize(connection: Connection) -> None:
    """Merge the search index into its smallest form; a damaged one is left as it is."""
    if connection.dialect.name != "sqlite":
        return
    for table in _DEFINITIONS:
        try:
            # https://www.sqlite.org/fts5.html#the_optimize_command
            connection.exec_driver_sql(f"INSERT INTO {table}({table}) VALUES('optimize')")
        except DBAPIError as error:
            if not is_index_trouble(error):
                raise
            logger.warning("%s cannot be optimized (%s); rebuild it", table, error.orig)
