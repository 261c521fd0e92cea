"""What a condition found."""

from __future__ import annotations

from typing import Optional

import msgspec

from crashkit.model import Evidence


class Outcome(msgspec.Struct, frozen=True):
    """Whether a condition holds, what shows it, and names for the texts of a signature."""

    holds: bool
    evidence: tuple[Evidence, ...] = ()
    fields: dict[str, str] = {}
    why: Optional[str] = None
    """What was looked for and what was found, in words."""


def no(why: str) -> Outcome:
    """The outcome of a condition that does not hold; `why` says what was found instead."""
    return Outcome(False, why=why)
