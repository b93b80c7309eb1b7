"""Giving space back, and statistics for the planner: what no transaction may hold.

Such a function takes the driver's own connection, and the tables of a store on a server, which
may have those of others too; None is a file, which is the store's alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import Connection, text

from sessionstore.models import Base
from sessionstore.search import server_index

# The version in which who does not own a table may be let vacuum it.
_GRANTS_MAINTAIN = (17,)


def vacuum(raw: Any, tables: Sequence[str] | None) -> None:
    """Write a file anew without its free space; make that of tables free for new rows."""
    _run(raw, tables, in_file="VACUUM", on_server="VACUUM (ANALYZE)")


def rewrite(raw: Any, tables: Sequence[str] | None) -> None:
    """Write a file or tables anew, without what was deleted."""
    _run(raw, tables, in_file="VACUUM", on_server="VACUUM (FULL, ANALYZE)")


def analyze(raw: Any, tables: Sequence[str] | None) -> None:
    """Refresh the planner's statistics, in a file where they are worth it."""
    _run(raw, tables, in_file="PRAGMA optimize", on_server="ANALYZE")


def _run(raw: Any, tables: Sequence[str] | None, *, in_file: str, on_server: str) -> None:
    if tables is None:
        raw.execute(in_file)
        return
    for table in tables:
        raw.execute(f"{on_server} {table}")


def checkpoint(raw: Any, mode: Literal["PASSIVE", "TRUNCATE"]) -> bool:
    """Move the write-ahead log into its file; say whether nobody was in the way.

    https://www.sqlite.org/pragma.html#pragma_wal_checkpoint
    """
    busy, _, _ = raw.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not busy


def await_tables(connection: Connection) -> None:
    """Wait until nobody holds a table of a store on a server, as long as for any lock.

    Before `rewrite`, which would wait for ever, and all others behind it: only a transaction can
    say for how long, and none may hold it.
    """
    connection.exec_driver_sql(f"LOCK TABLE {', '.join(tables_of(connection))}")


def tables_of(connection: Connection) -> list[str]:
    """Name the tables of a store on a server, each with its schema, as a statement needs it."""
    return [name for name, _ in _tables(connection)]


def not_ours(connection: Connection) -> list[str]:
    """Name those of them that this role may not vacuum, which a server would pass over.

    That takes their owner, or the owner of the database, or from PostgreSQL 17 on a grant of
    MAINTAIN (https://www.postgresql.org/docs/current/sql-vacuum.html).
    """
    return [name for name, may in _tables(connection) if not may]


def _tables(connection: Connection) -> list[tuple[str, bool]]:
    may = "pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE')"
    if (connection.dialect.server_version_info or (0,)) >= _GRANTS_MAINTAIN:
        may += " OR has_table_privilege(c.oid, 'MAINTAIN')"
    found = connection.execute(
        text(
            f"SELECT format('%I.%I', n.nspname, c.relname), {may} "
            "FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n "
            "ON n.oid = c.relnamespace JOIN pg_catalog.pg_database AS d "
            "ON d.datname = current_database() WHERE n.nspname = current_schema() "
            "AND c.relkind = 'r' AND c.relname = ANY(:names) ORDER BY c.relname"
        ),
        {"names": [*Base.metadata.tables, *server_index.TABLES]},
    )
    return [(name, allowed) for name, allowed in found]
