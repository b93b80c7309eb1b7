"""Code in colours, by classes that the style sheet knows: no style stands in the page itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from pygments import format as written_by
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

# Beyond that it takes longer than reading does.
_LONGEST = 20_000
_LONGEST_LINE = 5_000
# Of the processor, for one block; code takes a tenth of it. Of some languages there is text that
# takes the square of its length: 6 s for 20,000 times the same letter.
_PATIENCE_S = 0.5
_FORM: HtmlFormatter[Any] = HtmlFormatter(nowrap=True)


def highlighted(code: str, language: str, _rest: str = "") -> str:
    """Mark up code in a language that is named; "" where that is unknown, or takes too long."""
    if not language or len(code) > _LONGEST:
        return ""
    if max(map(len, code.splitlines()), default=0) > _LONGEST_LINE:
        return ""  # one look at a line can take its square, and no time is told within it
    try:
        lexer = get_lexer_by_name(language)
        return str(written_by(_in_time(lexer.get_tokens(code)), _FORM))
    except (ClassNotFound, TimeoutError):
        return ""


def _in_time(tokens: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    ends = time.thread_time() + _PATIENCE_S
    for token in tokens:
        if time.thread_time() > ends:
            raise TimeoutError
        yield token
