"""Bring a database to the schema this package works with, and refuse what it cannot work with.

The migration history does all of the work, for a new database as for an old one. A file of
Hermes walks it from the beginning: each revision looks at what is there before it acts.

One revision is one transaction, and the lock that keeps two programs from upgrading the same
database is the one that transaction holds anyway: SQLite's write lock, an advisory lock on
PostgreSQL. Whoever gets it reads the revision again and does the next step, so several
programs may take turns, and one that is killed leaves a whole number of revisions.

The only module that imports Alembic, late: opening an up-to-date store does without.
"""

from sessionstore.schema.opening import locked, look_at, open_current
from sessionstore.schema.status import (
    SchemaStatus,
    check_supported,
    read_status,
    require_current,
    upgrade_command,
)
from sessionstore.schema.walk import (
    RevisionInfo,
    downgrade,
    history,
    migrations_folder,
    upgrade,
)

__all__ = [
    "RevisionInfo",
    "SchemaStatus",
    "check_supported",
    "downgrade",
    "history",
    "locked",
    "look_at",
    "migrations_folder",
    "open_current",
    "read_status",
    "require_current",
    "upgrade",
    "upgrade_command",
]
