"""Titles: cleaning them, keeping each with one session, and numbering a lineage."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Select, select, update

from sessionstore import checks
from sessionstore.codec import as_text, is_plain
from sessionstore.errors import TitleTakenError
from sessionstore.models import SESSIONS
from sessionstore.repository import chains

MAX_TITLE_LENGTH = 100

# Characters that are not seen: zero-width ones and those that set a direction of writing
# (https://www.unicode.org/reports/tr9/, 2.1-2.6), the joiner of graphemes, fillers of Hangul
# and Braille, and tags.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_NUMBERED = re.compile(r"(?P<base>.*) #(?P<number>[0-9]+)", re.DOTALL)


def sanitize_title(title: str | None) -> str | None:
    """Clean a title: one line, one form, nothing unseen; None if nothing is left.

    Control, zero-width and direction characters go (so `a<U+200B>b` is `ab`, and the
    members of a joined emoji stand apart), lone surrogates too; a run of white space becomes
    one blank; the result is in NFC, so that the composed and the decomposed form are one.

    Raises:
        ValueError: Over 100 characters are left.
        TypeError: It is no text.
    """
    if checks.optional_text("title", title) is None or title is None:
        return None
    spaced = re.sub(r"\s+", " ", title)
    seen = "".join(
        character
        for character in _UNSEEN.sub("", spaced)
        if unicodedata.category(character) not in {"Cc", "Cs"}
    )
    cleaned = unicodedata.normalize("NFC", re.sub(r"\s+", " ", seen).strip())
    if len(cleaned) > MAX_TITLE_LENGTH:
        msg = f"title too long: {len(cleaned)} characters, at most {MAX_TITLE_LENGTH}"
        raise ValueError(msg)
    return cleaned or None


def get_title(connection: Connection, session_id: str) -> str | None:
    """Return the title of a session; None if it has none or does not exist."""
    title = connection.execute(
        select(SESSIONS.c.title).where(SESSIONS.c.id == session_id)
    ).scalar_one_or_none()
    return as_text(title) if title else None


def find_by_title(
    connection: Connection, title: str | None, *, user_id: str | None = None
) -> str | None:
    """Return the id of the session that holds this title, in whichever normal form.

    Exactly this comes before its other form, which other programs may have stored.
    """
    if not title:
        return None
    forms = {title, *(unicodedata.normalize(form, title) for form in ("NFC", "NFD"))}
    held = select(SESSIONS.c.id).where(SESSIONS.c.title.in_(sorted(forms)))
    return (
        connection.execute(_of_user(held, user_id).order_by(SESSIONS.c.title != title))
        .scalars()
        .first()
    )


def look_up(title: str, find: Callable[[str], str | None]) -> str | None:
    """Find by a title as it is given, since other programs store what is not clean; then cleaned.

    One that is too long when cleaned is nobody's.
    """
    found = find(title) if is_plain(title) else None
    if found is None:
        with suppress(ValueError):
            cleaned = sanitize_title(title)
            found = None if cleaned is None else find(cleaned)
    return found


def _of_user(query: Select[Any], user_id: str | None) -> Select[Any]:
    return query if user_id is None else query.where(SESSIONS.c.user_id == user_id)


def set_title(connection: Connection, session_id: str, title: str | None) -> bool:
    """Give a session a title that is clean already; say whether there is such a session.

    A session that this one continues gives the title up; nobody else does.

    Raises:
        TitleTakenError: Another session holds the title.
    """
    here = select(SESSIONS.c.id).where(SESSIONS.c.id == session_id)
    if connection.execute(here).first() is None:
        return False
    holder = find_by_title(connection, title)
    if title is not None and holder is not None and holder != session_id:
        if holder not in chains.continued_by(connection, session_id):
            raise TitleTakenError(title, holder)
        connection.execute(update(SESSIONS).where(SESSIONS.c.id == holder).values(title=None))
    connection.execute(update(SESSIONS).where(SESSIONS.c.id == session_id).values(title=title))
    return True


def split_number(title: str) -> tuple[str, int | None]:
    """Part `X #2` into `X` and 2; a title without a number has None."""
    found = _NUMBERED.fullmatch(title)
    return (found["base"], int(found["number"])) if found else (title, None)


def lineage_of(
    connection: Connection, base: str, *, user_id: str | None = None
) -> list[tuple[str, int]]:
    """List the sessions titled `base` or `base #N`, newest-started first, each with its N."""
    # The titles that begin with "base #" lie between it and "base $", the next code point,
    # in byte order: a range of the unique index, and case counts.
    newest_first = (
        select(SESSIONS.c.id, SESSIONS.c.title)
        .where(
            (SESSIONS.c.title == base)
            | ((SESSIONS.c.title >= f"{base} #") & (SESSIONS.c.title < f"{base} $"))
        )
        .order_by(SESSIONS.c.started_at.desc(), SESSIONS.c.id.desc())
    )
    found = connection.execute(_of_user(newest_first, user_id))
    members: list[tuple[str, int]] = []
    for session_id, title in found:
        if title == base:
            members.append((session_id, 1))
        elif (parted := split_number(title))[0] == base and parted[1] is not None:
            members.append((session_id, parted[1]))
    return members


def resolve(connection: Connection, title: str, *, user_id: str | None = None) -> str | None:
    """Return the newest-started session of a lineage, or just the one if a number is given."""
    if not title:
        return None
    if split_number(title)[1] is not None:
        return find_by_title(connection, title, user_id=user_id)
    members = lineage_of(connection, title, user_id=user_id)
    return members[0][0] if members else None


def next_in_lineage(connection: Connection, title: str) -> str:
    """Return the title for the next session of a lineage: the highest number and one.

    A number given is left off first; gaps are not filled; a lineage without members begins
    with the bare title.
    """
    base, _ = split_number(title)
    members = lineage_of(connection, base)
    if not members:
        return base
    # Cutting the base leads into another lineage, whose numbers count as well.
    while True:
        number = max((number for _, number in members), default=1) + 1
        suffix = f" #{number}"
        shorter = _cut(base, MAX_TITLE_LENGTH - len(suffix))
        if shorter == base:
            return base + suffix
        base = shorter
        members = lineage_of(connection, base)


def _cut(text: str, length: int) -> str:
    """Shorten a text without parting a character from what belongs to it."""
    if len(text) <= length:
        return text
    while length > 0 and _is_one_character(text, length):
        length -= 1
    return text[:length].rstrip()


_LETTER_OF_A_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
_JOINER = "\u200d"


def _is_one_character(text: str, at: int) -> bool:
    """Say whether what stands on the two sides of a position is seen as one."""
    after = text[at]
    if _LETTER_OF_A_FLAG.match(after):
        letters = 0
        while letters < at and _LETTER_OF_A_FLAG.match(text[at - 1 - letters]):
            letters += 1
        return letters % 2 == 1
    return (
        unicodedata.category(after) in {"Mn", "Me", "Mc"}
        or "🏻" <= after <= "🏿"
        or _JOINER in (after, text[at - 1])
    )
