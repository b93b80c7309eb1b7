"""How Alembic reaches the database.

The package hands over a connection that is in a transaction already, through
`config.attributes["connection"]`; Alembic then neither begins nor commits
(MigrationContext, "external transaction"). At a prompt the connection comes from
`sessionstore.schema.locked`, so that a file gets the same care, the same refusals and the
same lock; the whole command is then one transaction. Logging is left alone either way.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection, MetaData

# The full-text tables and the shadow tables that FTS5 keeps beside each
# (https://www.sqlite.org/fts5.html#fts5_data_structures) are raw DDL, and not mapped.
FULL_TEXT = "messages_fts"


def include_name(name: str | None, kind: str, _parents: MutableMapping[Any, str | None]) -> bool:
    """Keep autogenerate from seeing the full-text tables."""
    return not (kind == "table" and name is not None and name.startswith(FULL_TEXT))


def run(connection: Connection, metadata: MetaData | None) -> None:
    """Run what the command asks for on a connection that is in a transaction."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=include_name,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


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
            run(connection, Base.metadata)
    except (SessionStoreError, ValueError) as error:
        raise CommandError(str(error)) from error


handed_over = context.config.attributes.get("connection")
if handed_over is None:
    run_at_a_prompt()
else:
    run(handed_over, context.config.attributes.get("metadata"))
