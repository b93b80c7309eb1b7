"""Say beside a text what it is, instead of within it.

`messages.content_encoding` is NULL where `content` is the text itself, `json` where it is
JSON of the real value (a list, a dict, or a text that not every back end can hold), and
`json-pieces` where it is a JSON list of texts that joined make the value: one in which two
halves of a surrogate pair stand side by side, which JSON would take for one character.
`messages.json_columns` names, with commas between, the other text columns that hold JSON of
a text for the same reason.

Rows in the old form - a NUL character, `json:`, JSON - are converted; what begins so and
goes on as no JSON was text and stays text. Going back converts to that form again; a text
in pieces then loses the seam, and a text that only looks marked becomes JSON of that text.
On PostgreSQL, which cannot hold NUL, a value becomes the bare JSON.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from alembic import context, op
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

MARK = b"\x00json:"
TEXTS = (
    "content",
    "tool_name",
    "tool_call_id",
    "finish_reason",
    "reasoning",
    "reasoning_content",
)
AT_ONCE = 500
DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)


def upgrade() -> None:
    """Add the columns and convert the rows that are marked within."""
    for name in ("content_encoding", "json_columns"):
        _add("messages", name, "TEXT", "{0} IS NULL")
    if op.get_context().dialect.name == "sqlite":
        _despite_the_index(_tell_beside)


def _tell_beside() -> None:
    for name in TEXTS:
        for message_id, stored in _marked(name):
            value = _value(stored)
            if isinstance(value, str) and _is_plain(value):
                _set(message_id, **{name: value})
            elif name == "content" and isinstance(value, str | list | dict):
                # The JSON as it stands: written anew, a number might read otherwise.
                held = stored[len(MARK) :].decode()
                _set(message_id, content=held, content_encoding="json")
            elif isinstance(value, str):
                _set(message_id, **{name: json.dumps(value)})
                op.get_bind().execute(
                    text(
                        "UPDATE messages SET json_columns = "
                        "coalesce(json_columns || ',', '') || :name WHERE id = :id"
                    ),
                    {"name": name, "id": message_id},
                )


def downgrade() -> None:
    """Mark the values within again and drop the columns."""
    if op.get_context().dialect.name == "sqlite":
        _despite_the_index(_tell_within)
    else:
        _join_pieces("")
    _drop("messages", "json_columns")
    _drop("messages", "content_encoding")


def _tell_within() -> None:
    bind = op.get_bind()
    for name in TEXTS:
        # A text that only looks marked: as JSON of a text it stays one.
        for message_id, stored in _marked(name):
            value = json.dumps(stored.decode("utf-8", "replace"))
            _set(message_id, **{name: "\x00json:" + value})
    bind.execute(
        text(
            "UPDATE messages SET content = char(0) || 'json:' || content "
            "WHERE content_encoding = 'json'"
        )
    )
    _join_pieces("\x00json:")
    for name in TEXTS[1:]:
        bind.execute(
            text(
                f"UPDATE messages SET {name} = char(0) || 'json:' || {name} "
                "WHERE instr(',' || json_columns || ',', :name) > 0"
            ),
            {"name": f",{name},"},
        )


def _join_pieces(mark: str) -> None:
    found = op.get_bind().execute(
        text("SELECT id, content FROM messages WHERE content_encoding = 'json-pieces'")
    )
    for message_id, content in found.all():
        _set(message_id, content=mark + json.dumps("".join(json.loads(content))))


def _despite_the_index(convert: Callable[[], None]) -> None:
    """Convert messages; where a damaged search index forbids it, leave the index as it is."""
    bind = op.get_bind()
    if not _goes_on():
        try:
            with bind.begin_nested():
                convert()
        except DBAPIError as error:
            if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF not in DAMAGED:
                raise
        else:
            return
    triggers = bind.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
        "AND name IN ('messages_fts_update', 'messages_fts_trigram_update')"
    ).all()
    for name, _ in triggers:
        bind.exec_driver_sql(f"DROP TRIGGER {name}")
    convert()
    for _, statement in triggers:
        bind.exec_driver_sql(statement)


def _goes_on() -> bool:
    """Say whether the walk ends where this index is made anew in another shape (0022)."""
    try:
        end = str(context.get_revision_argument())
    except KeyError:
        return False
    return end.isdecimal() and int(end) > int("0021")


def _marked(name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the rows in the old form, as bytes: text functions of SQLite stop at NUL."""
    after = -(2**63)
    while True:
        rows = (
            op.get_bind()
            .execute(
                text(
                    f"SELECT id, CAST({name} AS BLOB) FROM messages WHERE id > :after "
                    f"AND typeof({name}) = 'text' "
                    f"AND substr(CAST({name} AS BLOB), 1, {len(MARK)}) = :mark "
                    f"ORDER BY id LIMIT {AT_ONCE}"
                ),
                {"after": after, "mark": MARK},
            )
            .all()
        )
        yield from ((message_id, stored) for message_id, stored in rows)
        if not rows:
            return
        after = rows[-1][0]


def _value(stored: bytes) -> Any:
    """Read the JSON behind the mark; None, which no content is, where there is none."""
    try:
        return json.loads(stored[len(MARK) :].decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    msg = f"{constant} is no JSON"
    raise ValueError(msg)


def _is_plain(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _set(message_id: int, **values: str) -> None:
    assignments = ", ".join(f"{name} = :{name}" for name in values)
    op.get_bind().execute(
        text(f"UPDATE messages SET {assignments} WHERE id = :id"), {**values, "id": message_id}
    )


def _add(table: str, name: str, kind: str, fits: str) -> None:
    """Add a column; a column of this name that is another program's steps aside.

    One that is declared alike and says only what fits is taken for ours. Of one that steps
    aside, under a name that says so, what fits is taken over.
    """
    aside = f"{name}_before_{revision}"
    there = _columns(table)
    if name in there:
        unfit = f"SELECT 1 FROM {table} WHERE ({fits.format(name)}) IS NOT 1 LIMIT 1"
        if there[name] == kind and not op.get_bind().exec_driver_sql(unfit).all():
            return
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {name} TO {aside}")
    op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    if name in there:
        op.execute(f"UPDATE {table} SET {name} = {aside} WHERE {fits.format(aside)}")


def _drop(table: str, name: str) -> None:
    """Drop a column, and let the one that stepped aside have its name again."""
    op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    if (aside := f"{name}_before_{revision}") in _columns(table):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {aside} TO {name}")


def _columns(table: str) -> dict[str, str]:
    """Map the columns to how they are declared; PostgreSQL has nobody's but ours."""
    if op.get_context().dialect.name != "sqlite":
        return {}
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {
        name.lower(): kind
        + (" NOT NULL" if required else "")
        + (f" DEFAULT {default}" if default else "")
        for _, name, kind, required, default, _ in rows
    }
