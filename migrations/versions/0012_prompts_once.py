"""Keep each system prompt once, named by its hash.

`sessions.system_prompt_hash` refers to `system_prompts(hash, prompt)`; the hash is SHA-256,
in hexadecimal, of the prompt's UTF-8 bytes. Existing prompts move there, byte for byte, and
`sessions.system_prompt` becomes NULL; what other programs still write into it counts when it
is read. A file gets smaller when it is vacuumed.

Going back puts each prompt into its sessions again and loses nothing.
"""

from __future__ import annotations

import hashlib

from alembic import op
from sqlalchemy import text

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INDEX = (
    "CREATE INDEX ix_sessions_system_prompt_hash ON sessions(system_prompt_hash) "
    "WHERE system_prompt_hash IS NOT NULL"
)
SQLITE = (
    """\
CREATE TABLE system_prompts (
    hash TEXT NOT NULL PRIMARY KEY,
    prompt TEXT NOT NULL
)""",
    "ALTER TABLE sessions ADD COLUMN system_prompt_hash TEXT REFERENCES system_prompts(hash)",
)
POSTGRESQL = (
    """\
CREATE TABLE system_prompts (
    hash text COLLATE "C" PRIMARY KEY,
    prompt text NOT NULL
)""",
    """\
ALTER TABLE sessions ADD COLUMN system_prompt_hash text COLLATE "C"
    CONSTRAINT fk_sessions_system_prompt_hash_system_prompts REFERENCES system_prompts (hash)""",
)


def upgrade() -> None:
    """Make the table, move the prompts, index the references."""
    bind = op.get_bind()
    sqlite = op.get_context().dialect.name == "sqlite"
    for statement in SQLITE if sqlite else POSTGRESQL:
        op.execute(statement)
    # As bytes, since an old file may hold text that is no UTF-8: it moves unchanged.
    as_bytes = "CAST(system_prompt AS BLOB)" if sqlite else "convert_to(system_prompt, 'UTF8')"
    first = "min(rowid)" if sqlite else "min(id)"
    key = "rowid" if sqlite else "id"
    prompts = bind.exec_driver_sql(
        f"SELECT {first}, {as_bytes} FROM sessions WHERE system_prompt IS NOT NULL GROUP BY 2"
    ).all()
    for holder, prompt in prompts:
        parameters = {"hash": hashlib.sha256(prompt).hexdigest(), "holder": holder}
        bind.execute(
            text(
                "INSERT INTO system_prompts (hash, prompt) "
                f"SELECT :hash, {'CAST(system_prompt AS TEXT)' if sqlite else 'system_prompt'} "
                f"FROM sessions WHERE {key} = :holder"
            ),
            parameters,
        )
        bind.execute(
            text(
                "UPDATE sessions SET system_prompt_hash = :hash, system_prompt = NULL "
                "WHERE system_prompt = "
                f"(SELECT held.system_prompt FROM sessions held WHERE held.{key} = :holder)"
            ),
            parameters,
        )
    op.execute(INDEX)


def downgrade() -> None:
    """Put the prompts back and drop the table."""
    op.execute(
        "UPDATE sessions SET system_prompt = (SELECT prompt FROM system_prompts "
        "WHERE system_prompts.hash = sessions.system_prompt_hash) "
        "WHERE system_prompt_hash IS NOT NULL AND system_prompt IS NULL"
    )
    op.execute("DROP INDEX ix_sessions_system_prompt_hash")
    op.execute("ALTER TABLE sessions DROP COLUMN system_prompt_hash")
    op.execute("DROP TABLE system_prompts")
