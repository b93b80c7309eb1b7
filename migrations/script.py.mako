"""${message}.

What changes, why, what happens to existing rows, and what going back loses.
"""

from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """State what the new shape is; on SQLite look first, then act."""
    ${upgrades if upgrades else 'raise NotImplementedError'}


def downgrade() -> None:
    """Restore the shape before, or raise with a reason."""
    ${downgrades if downgrades else 'raise NotImplementedError'}
