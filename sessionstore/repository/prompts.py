"""System prompts: each stored once, for as long as a session has it."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, delete, exists, func, select

from sessionstore.models import SESSIONS, SYSTEM_PROMPTS
from sessionstore.repository.dialects import insert_if_absent

_UNUSED = ~exists().where(SESSIONS.c.system_prompt_hash == SYSTEM_PROMPTS.c.hash)


def hash_of(prompt: str) -> str:
    """Name a prompt: SHA-256, in lower-case hexadecimal, of its UTF-8 bytes."""
    return hashlib.sha256(prompt.encode()).hexdigest()


def keep(connection: Connection, prompt_hash: str, prompt: str) -> None:
    """Store a prompt unless it is there."""
    insert_if_absent(connection, SYSTEM_PROMPTS, {"hash": prompt_hash, "prompt": prompt})


def collect(connection: Connection, prompt_hash: str | None) -> None:
    """Delete a prompt that no session has any more."""
    if prompt_hash is None:
        return
    connection.execute(delete(SYSTEM_PROMPTS).where(SYSTEM_PROMPTS.c.hash == prompt_hash, _UNUSED))


def count_unused(connection: Connection) -> int:
    """Count the prompts that no session has: other programs delete sessions without them."""
    return connection.execute(
        select(func.count()).select_from(SYSTEM_PROMPTS).where(_UNUSED)
    ).scalar_one()


def collect_all(connection: Connection) -> None:
    """Delete every prompt that no session has."""
    connection.execute(delete(SYSTEM_PROMPTS).where(_UNUSED))


def hash_in(connection: Connection, session_id: str) -> str | None:
    """Return the hash of a session's prompt; None without one, or without the session."""
    return connection.execute(
        select(SESSIONS.c.system_prompt_hash).where(SESSIONS.c.id == session_id)
    ).scalar_one_or_none()
