"""Sums of whole numbers that may need more than 64 bits.

SQLite refuses such a sum (https://www.sqlite.org/lang_aggfunc.html#sumunc), so the upper and
the lower half of each number are summed apart and put together outside the database. That is
exact for up to 2**31 rows, and takes a figure that is no whole number for its whole part.
"""

from __future__ import annotations

from typing import Any

_HALF = 32


def halves(number: str) -> str:
    """Give two result columns, the sums of the two halves of an SQL expression."""
    return f"coalesce(sum(({number}) >> {_HALF}), 0), coalesce(sum(({number}) & {2**_HALF - 1}), 0)"


def whole(upper: Any, lower: Any) -> int:
    """Put together what the two columns of `halves` gave; PostgreSQL gives decimal numbers."""
    return (int(upper) << _HALF) + int(lower)
