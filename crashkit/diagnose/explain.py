"""Explains, condition by condition, why a signature matched a crash or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from crashkit.diagnose.case import Case
from crashkit.diagnose.conditions import answer
from crashkit.diagnose.outcome import Outcome
from crashkit.diagnose.signature import SUBJECTS, Condition, FramePattern, Signature

_REFINEMENTS = ("sent", "pattern", "top", "within", "above_handler", "at_least")
_DEFAULTS = {name: getattr(Condition(), name) for name in _REFINEMENTS}


def explain(signature: Signature, case: Case) -> Iterator[str]:
    """Lines: `+` for what helps the match, `-` for what contradicts it, `?` for what the evidence cannot decide."""
    for condition in signature.none:
        yield from _line("none", condition, case, wanted=False)
    for number, rule in enumerate(signature.rule, 1):
        yield f"rule {number} ({rule.confidence})"
        for name, several, wanted in (("all", rule.all, True), ("any", rule.any, True), ("none", rule.none, False)):
            for condition in several:
                yield from (f"  {line}" for line in _line(name, condition, case, wanted))


def _line(name: str, condition: Condition, case: Case, wanted: bool) -> Iterator[str]:
    outcome = answer(condition, case)
    mark = "+" if outcome.holds == wanted else "?" if outcome.missing else "-"
    yield f"{mark} {name}: {told(condition)}"
    if (shown := _shown(outcome)) and (outcome.holds or wanted):
        yield f"      {shown}"


def _shown(outcome: Outcome) -> str:
    if outcome.holds:
        return "; ".join(item.text if item.thread is None else f"{item.text} (thread {item.thread})" for item in outcome.evidence[:4])
    return outcome.why or ""


def told(condition: Condition) -> str:
    """The condition on one line, as in the TOML file."""
    subject = next(name for name in SUBJECTS if getattr(condition, name) is not None)
    refined = [f"{name} = {_value(getattr(condition, name))}" for name in _REFINEMENTS if getattr(condition, name) != _DEFAULTS[name]]
    return ", ".join([f"{subject} = {_value(getattr(condition, subject))}", *refined])


def _value(value: Any) -> str:
    if isinstance(value, Condition):
        return "{ " + told(value) + " }"
    if isinstance(value, FramePattern):
        return (
            "{ " + ", ".join(f"{name} = {part!r}" for name in ("function", "module") if (part := getattr(value, name)) is not None) + " }"
        )
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {part!r}" for name, part in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)
