"""Pages on this machine for people who would rather look than read a terminal.

Drawn by the server, so that they work without script; a little script makes them quicker to
use. They ask nothing of any other machine. Needs the extra `web`.
"""

from __future__ import annotations

from sessionstore.web.serving import serve

__all__ = ["serve"]
