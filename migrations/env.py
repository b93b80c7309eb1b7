"""How Alembic reaches the database.

The package hands over a connection that is in a transaction already, through
`config.attributes["connection"]`; Alembic then neither begins nor commits
(MigrationContext, "external transaction"). At a prompt the connection comes from
`sessionstore.schema.locked`, so that a file gets the same care, the same refusals and the
same lock; the whole command is then one transaction. Logging is left alone either way.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic import context
from alembic.util import CommandError
from sqlalchemy import REAL, Column, Connection, Double, Index, MetaData, Table, event
from sqlalchemy.exc import SAWarning
from sqlalchemy.schema import SchemaItem

# The full-text tables and the shadow tables that FTS5 keeps beside each
# (https://www.sqlite.org/fts5.html#fts5_data_structures) are raw DDL, and not mapped.
FULL_TEXT = "messages_fts"


def run(connection: Connection, metadata: MetaData | None) -> None:
    """Run what the command asks for on a connection that is in a transaction."""
    # Else Alembic would take the `alembic_version` of another schema for this store's, where
    # that one is on the search path too.
    schema = None
    if connection.dialect.name == "postgresql":
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar()
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=include_name,
        include_object=include_object,
        version_table_schema=schema,
        transactional_ddl=True,
    )
    if schema is not None and changes_the_schema():
        let_open_stores_finish(connection, schema)
    with context.begin_transaction(), reading_as_meant(connection), warnings.catch_warnings():
        if metadata is not None:
            # An index over an expression is compared as stored text, by a test.
            warnings.filterwarnings("ignore", "Skipped unsupported reflection", SAWarning)
            warnings.filterwarnings("ignore", "autogenerate skipping .*expression", UserWarning)
        context.run_migrations()


def changes_the_schema() -> bool:
    """Say whether the command is one that has a revision to arrive at."""
    try:
        context.get_revision_argument()
    except KeyError:
        return False
    return True


def let_open_stores_finish(connection: Connection, schema: str) -> None:
    """Wait for the transactions there are, and let those that come wait for this one.

    Each reads `alembic_version` as it begins, and so knows which schema it has until its end.
    """
    if connection.dialect.has_table(connection, "alembic_version", schema):
        named = connection.dialect.identifier_preparer.quote_schema(schema)
        connection.exec_driver_sql(f"LOCK TABLE {named}.alembic_version IN ACCESS EXCLUSIVE MODE")


def include_name(name: str | None, kind: str, _parents: object) -> bool:
    """Keep autogenerate from seeing the full-text tables, and Alembic's own."""
    return not (
        kind == "table"
        and name is not None
        and (name.startswith(FULL_TEXT) or name == "alembic_version")
    )


def include_object(
    item: SchemaItem,
    name: str | None,
    kind: str,
    _reflected: bool,
    _compare_to: SchemaItem | None,
) -> bool:
    """Keep autogenerate from comparing what cannot be told of SQLite: DESC, ON DELETE.

    The stored text of the schema is compared by a test instead.
    """
    if context.get_context().dialect.name != "sqlite":
        return True
    if kind == "foreign_key_constraint":
        return False
    if kind != "index":
        return True
    mapped = context.config.attributes.get("metadata")
    return not isinstance(item, Index) or name not in {
        index.name
        for table in (mapped.tables.values() if mapped else ())
        for index in table.indexes
        if not all(isinstance(part, Column) for part in index.expressions)
    }


@contextmanager
def reading_as_meant(connection: Connection) -> Iterator[None]:
    """Read a SQLite table as what it means: REAL is a double, and a key is never NULL.

    SQLite lets a primary key that is no INTEGER be NULL unless it says NOT NULL
    (https://www.sqlite.org/lang_createtable.html#the_primary_key); the old tables do not.
    """

    def read(_inspector: object, _table: object, column: Any) -> None:
        if isinstance(column["type"], REAL):
            column["type"] = Double()
        if column.get("primary_key"):
            column["nullable"] = False

    if connection.dialect.name != "sqlite":
        yield
        return
    event.listen(Table, "column_reflect", read)
    try:
        with warnings.catch_warnings():
            # An index over an expression, which is left to the test of the schema's text too.
            warnings.filterwarnings("ignore", message=".*expression-based index")
            yield
    finally:
        event.remove(Table, "column_reflect", read)


def run_at_a_prompt() -> None:
    """Find the database as the package does, lock it, and run."""
    from sessionstore.errors import SessionStoreError
    from sessionstore.models import Base
    from sessionstore.schema import locked

    if context.is_offline_mode():
        msg = "each revision looks at the database before it acts, so --sql cannot work"
        raise CommandError(msg)
    url = context.get_x_argument(as_dictionary=True).get("url")
    if not isinstance(url, str | None):
        msg = "give -x url= once"
        raise CommandError(msg)
    try:
        with locked(url) as connection:
            context.config.attributes["metadata"] = Base.metadata
            run(connection, Base.metadata)
    except (SessionStoreError, ValueError) as error:
        raise CommandError(str(error)) from error


handed_over = context.config.attributes.get("connection")
if handed_over is None:
    run_at_a_prompt()
else:
    run(handed_over, context.config.attributes.get("metadata"))
