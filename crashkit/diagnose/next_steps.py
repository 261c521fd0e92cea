"""What to do next where no known failure explains a crash. The steps are data (next_steps.toml)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from crashkit.diagnose.case import Case
from crashkit.diagnose.conditions import answer
from crashkit.diagnose.fixes import fitting
from crashkit.diagnose.signature import Fix
from crashkit.diagnose.texts import names
from crashkit.own_tables import own_table
from crashkit.prepared import prepared

_MOST = 4


class _Steps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: tuple[Fix, ...]


@cache
def _steps() -> tuple[Fix, ...]:
    return msgspec.convert(own_table(Path(__file__).with_name("next_steps.toml")), prepared(_Steps)).step


def next_steps(case: Case) -> tuple[str, ...]:
    """The first steps that are for this run."""
    known = names(case)
    for step in _steps():
        for condition in step.when:
            known.update(answer(condition, case).fields)
    return fitting(_steps(), case, known)[:_MOST]
