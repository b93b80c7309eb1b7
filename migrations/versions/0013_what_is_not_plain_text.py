"""Say beside a text what it is, instead of within it.

`messages.content_encoding` is NULL where `content` is the text itself, `json` where it is
JSON of the real value (a list, a dict, or a text that not every back end can hold), and
`json-pieces` where it is a JSON list of texts that joined make the value: one in which two
halves of a surrogate pair stand side by side, which JSON would take for one character.
`messages.json_columns` names, with commas between, the other text columns that hold JSON of
a text for the same reason.

Rows in the old form - a NUL character, `json:`, JSON - are converted; what begins so and
goes on as no JSON was text and stays text. Going back converts to that form again; a text
in pieces then loses the seam. On PostgreSQL, which cannot hold NUL, it becomes the bare JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from alembic import op
from sqlalchemy import text

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


def upgrade() -> None:
    """Add the columns and convert the rows that are marked within."""
    there = _columns("messages")
    for name in ("content_encoding", "json_columns"):
        if name not in there:
            op.execute(f"ALTER TABLE messages ADD COLUMN {name} TEXT")
    if op.get_context().dialect.name != "sqlite":
        return
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
    bind = op.get_bind()
    if op.get_context().dialect.name == "sqlite":
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
    for message_id, content in bind.execute(
        text("SELECT id, content FROM messages WHERE content_encoding = 'json-pieces'")
    ).all():
        mark = "\x00json:" if op.get_context().dialect.name == "sqlite" else ""
        _set(message_id, content=mark + json.dumps("".join(json.loads(content))))
    if op.get_context().dialect.name == "sqlite":
        for name in TEXTS[1:]:
            bind.execute(
                text(
                    f"UPDATE messages SET {name} = char(0) || 'json:' || {name} "
                    "WHERE instr(',' || json_columns || ',', :name) > 0"
                ),
                {"name": f",{name},"},
            )
    op.execute("ALTER TABLE messages DROP COLUMN json_columns")
    op.execute("ALTER TABLE messages DROP COLUMN content_encoding")


def _marked(name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the rows in the old form, as bytes: text functions of SQLite stop at NUL."""
    after = -(2**63)
    while True:
        rows = (
            op.get_bind()
            .execute(
                text(
                    f"SELECT id, CAST({name} AS BLOB) FROM messages WHERE id > :after "
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


def _columns(table: str) -> set[str]:
    if op.get_context().dialect.name != "sqlite":
        return set()
    rows = op.get_bind().exec_driver_sql(f"PRAGMA table_info({table})")
    return {name for _, name, *_ in rows}
