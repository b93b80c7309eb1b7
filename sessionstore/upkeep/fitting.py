"""What a row has to be to fit into any store: the types of its columns, and no NUL.

SQLite keeps whatever other programs put into a column; a server does not.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double, Integer, Table, Text

from sessionstore.codec import as_number, as_text, encode_content, encode_text, is_plain
from sessionstore.models import MESSAGES, SESSIONS
from sessionstore.repository.message_reading import ENCODED_TEXTS
from sessionstore.repository.transfer import LONGEST_TITLE
from sessionstore.search import index_text

_64_BITS = 2**63


def fitted(table: Table, row: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Give a row as every back end can hold it, and say whether that is not what it was.

    A message's text with NUL or half a pair is encoded, as a new one would be. Elsewhere such
    a character becomes U+FFFD; bytes are read as text, a figure that is none is the default
    of its column, else 0 where there must be one and NULL where not.
    """
    fit = row
    if any(not _fits(column.type, row[column.name], column.nullable) for column in table.columns):
        fit = dict(row)
        for column in table.columns:
            value = fit[column.name]
            if not _fits(column.type, value, column.nullable):
                fit[column.name] = _nearest(column, value)
    if table is MESSAGES:
        fit = _encoded(fit)
    else:
        fit = {
            name: _without_nul(value) if isinstance(value, str) else value
            for name, value in fit.items()
        }
    if table is SESSIONS and len(fit["title"] or "") > LONGEST_TITLE:
        fit["title"] = fit["title"][:LONGEST_TITLE]
    return fit, fit != row


def _fits(kind: Any, value: Any, nullable: bool | None) -> bool:
    if value is None:
        return bool(nullable)
    if isinstance(kind, Text):
        return isinstance(value, str)
    if isinstance(kind, Double):
        return type(value) is float
    return type(value) is int and -_64_BITS <= value < _64_BITS


def _nearest(column: Any, value: Any) -> Any:
    if isinstance(column.type, Text):
        return as_text(value)
    number = as_number(value)
    if isinstance(column.type, Double):
        return 0.0 if number is None and not column.nullable else number
    if isinstance(column.type, Integer) and number is not None and number.is_integer():
        return int(max(-_64_BITS, min(number, _64_BITS - 1024)))
    default = column.server_default
    if default is not None:
        return int(str(default.arg))
    return None if column.nullable else 0


def _encoded(message: dict[str, Any]) -> dict[str, Any]:
    texts = {name: value for name, value in message.items() if isinstance(value, str)}
    if all(is_plain(value) for value in texts.values()):
        return message
    fit = dict(message)
    encoded = [name for name in (fit["json_columns"] or "").split(",") if name]
    for name, value in texts.items():
        if is_plain(value):
            continue
        if name == "content" and fit["content_encoding"] is None:
            fit["content"], fit["content_encoding"] = encode_content(value)
        elif name in ENCODED_TEXTS and name not in encoded:
            fit[name] = encode_text(value)
            encoded.append(name)
        else:
            fit[name] = _without_nul(value)
    fit["json_columns"] = ",".join(encoded) or None
    fit["search_text"] = index_text(
        fit["content"], fit["content_encoding"], fit["tool_name"], fit["tool_calls"]
    )
    return fit


def _without_nul(value: str) -> str:
    if is_plain(value):
        return value
    return "".join(each if is_plain(each) else "\ufffd" for each in value)
