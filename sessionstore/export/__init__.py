"""Ways to write sessions down: records in, text out; no database and no files."""

from __future__ import annotations

from sessionstore.export.jsonl import json_text, lines

__all__ = ["json_text", "lines"]
