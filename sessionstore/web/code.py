"""Code in colours, by classes that the style sheet knows: no style stands in the page itself."""

from __future__ import annotations

from typing import Any

from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

# Beyond that it takes longer than reading does.
_LONGEST = 20_000
_FORM: HtmlFormatter[Any] = HtmlFormatter(nowrap=True)


def highlighted(code: str, language: str, _rest: str = "") -> str:
    """Mark up code in a language that is named; "" for one that is unknown, or for much code."""
    if not language or len(code) > _LONGEST:
        return ""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return ""
    return str(highlight(code, lexer, _FORM))
