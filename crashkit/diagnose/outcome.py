"""What a condition found."""

from __future__ import annotations

from typing import Optional

import msgspec

from crashkit.model import Evidence


class Outcome(msgspec.Struct, frozen=True):
    """Whether a condition holds, what shows it, and names for the texts of a signature.

    One that does not hold is contradicted, unless `missing` says that the evidence does not show it either way.
    """

    holds: bool
    evidence: tuple[Evidence, ...] = ()
    fields: dict[str, str] = {}
    why: Optional[str] = None
    """What was looked for and what was found, in words."""
    missing: Optional[str] = None
    """What would have to be known to decide it, such as `the fault address`."""


def no(why: str) -> Outcome:
    """The outcome of a condition that the evidence contradicts; `why` says what was found instead."""
    return Outcome(False, why=why)


def unknown(missing: str) -> Outcome:
    """The outcome of a condition that the evidence cannot decide, because `missing` is not known."""
    return Outcome(False, why=f"not decidable without {missing}", missing=missing)
