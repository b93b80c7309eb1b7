"""What an examination finds, in words that say what it means and what helps."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

# `note` is worth knowing, `wrong` has to be seen to.
State: TypeAlias = Literal["ok", "note", "wrong"]


class Finding(TypedDict):
    """One thing that was looked at.

    `means` and `fix` are None where nothing is to be said; `fix` says what a repair would do,
    and `repairable` whether one would do anything at all.
    """

    subject: str
    state: State
    found: str
    means: str | None
    fix: str | None
    repairable: bool


def fine(subject: str, found: str = "ok") -> Finding:
    """Say that all is well."""
    return Finding(subject=subject, state="ok", found=found, means=None, fix=None, repairable=False)


def note(
    subject: str, found: str, means: str, fix: str | None = None, *, repairable: bool = False
) -> Finding:
    """Say what is worth knowing."""
    return Finding(
        subject=subject, state="note", found=found, means=means, fix=fix, repairable=repairable
    )


def wrong(
    subject: str, found: str, means: str, fix: str | None = None, *, repairable: bool = False
) -> Finding:
    """Say what has to be seen to."""
    return Finding(
        subject=subject, state="wrong", found=found, means=means, fix=fix, repairable=repairable
    )
