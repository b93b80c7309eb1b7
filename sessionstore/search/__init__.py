"""Search over the messages of a store."""

from __future__ import annotations

from sessionstore.search.body import text_of

__all__ = ["text_of"]
