"""Which known failures a crash is: `diagnose` tries every signature, ranks what matched, and says why the nearest others did not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Optional

import msgspec

from crashkit.diagnose.case import FAULTS, Case
from crashkit.diagnose.catalog import Catalog, is_ours
from crashkit.diagnose.conditions import answer
from crashkit.diagnose.fixes import fitting
from crashkit.diagnose.next_steps import next_steps
from crashkit.diagnose.outcome import Outcome, no
from crashkit.diagnose.signature import CONFIDENCES, SEVERITIES, Condition, Rule, Signature
from crashkit.diagnose.texts import fill_all, names
from crashkit.evidence.text import causes
from crashkit.limits import SIGNATURE_SECONDS
from crashkit.model import Crash, Evidence, Finding, LookedFor, SoftError
from crashkit.processor_time import TooSlow, at_most

MOST_LOOKED_FOR = 12
MOST_EVIDENCE = 24

# Facts of most processes, which make no signature come close.
_ORDINARY = frozenset({"null-address", "single-thread", "runs-python", "gil-held-by-it", "user-division", "hang"})


class Match(msgspec.Struct, frozen=True):
    """A signature that matched."""

    signature: Signature
    confidence: str
    evidence: tuple[Evidence, ...]
    fields: dict[str, str]

    @property
    def first_line(self) -> Optional[int]:
        """Index of the first log line in the evidence; None if there is none."""
        return min((item.log for item in self.evidence if item.log is not None), default=None)


def diagnose(crash: Crash, catalog: Catalog) -> Crash:
    """The crash with its findings, best first; without a cause, also what came close. A bad rule is a soft error, never an exception."""
    case = Case(crash)
    matches: list[Match] = []
    near: list[tuple[int, bool, int, str, Signature]] = []
    errors: list[SoftError] = []
    for signature in catalog.signatures:
        try:
            # Ours are known to take linear time; a user's may not end.
            with nullcontext() if is_ours(signature) else at_most(SIGNATURE_SECONDS):
                match, close = _try(signature, case)
        except TooSlow:
            hint = "Look for a repeat inside a repeat in its patterns."
            message = f"signature {signature.id} took more than {SIGNATURE_SECONDS:.0f} s of processor time and was left out"
            errors.append(SoftError(stage="diagnose", message=message, hint=hint))
            continue
        except Exception as error:
            hint = f"Run crashkit signatures test --only {signature.id} to see it." if not signature.file else f"See {signature.file}."
            errors.append(SoftError(stage="diagnose", message=f"signature {signature.id} failed: {error!r}", hint=hint))
            continue
        if match is not None:
            matches.append(match)
        elif close:
            near.append((-close, not signature.general, SEVERITIES.index(signature.severity), signature.id, signature))
    findings = tuple(_finding(match, case, followers) for match, followers in _ranked(matches))
    explained = any(not match.signature.general for match in matches)
    nearest = [] if explained or case.is_only_mentioned else sorted(near, key=lambda one: one[:-1])[:MOST_LOOKED_FOR]
    looked_for = tuple(judge(signature, case) for *_, signature in nearest)
    return msgspec.structs.replace(
        crash,
        findings=findings,
        ruled_out=tuple(one.id for one in looked_for if one.verdict == "contradicted"),
        looked_for=looked_for,
        next_steps=() if explained else next_steps(case),
        soft_errors=(*crash.soft_errors, *errors),
    )


def match_signature(signature: Signature, case: Case) -> Optional[Match]:
    """The first of its rules that matches."""
    return _try(signature, case)[0]


def judge(signature: Signature, case: Case) -> LookedFor:
    """Why a signature did not match: undecided if one of its rules might hold, as far as the evidence goes; else contradicted."""
    verdicts = [_obstacle(rule, signature, case) for rule in signature.rule if not _is_told(rule)]
    verdicts.sort(key=lambda verdict: verdict.missing is None)
    first = next(iter(verdicts), no("it has no rule"))
    return LookedFor(
        id=signature.id,
        title=signature.title,
        verdict="contradicted" if first.missing is None else "undecided",
        by=first.why if first.missing is None else first.missing,
    )


def _is_told(rule: Rule) -> bool:
    """Whether the rule is about what somebody says of the cause: that nobody does decides nothing."""
    return any((condition.log or "").startswith(causes.PREFIX) for condition in rule.all)


def _obstacle(rule: Rule, signature: Signature, case: Case) -> Outcome:
    """What keeps the rule from matching: the first fact that contradicts it, else the first thing that is not known."""
    failed = [outcome for condition in rule.all if not (outcome := answer(condition, case)).holds]
    if rule.any:
        outcome = answer(Condition(any=rule.any), case)
        failed += [] if outcome.holds else [outcome]
    failed += [_excluded(outcome) for condition in (*signature.none, *rule.none) if (outcome := answer(condition, case)).holds]
    return next((outcome for outcome in failed if outcome.missing is None), None) or next(iter(failed), no("another finding"))


def _excluded(outcome: Outcome) -> Outcome:
    shown = next((item.text for item in outcome.evidence), outcome.why)
    return no(shown or "an exception to the rule")


def _try(signature: Signature, case: Case) -> tuple[Optional[Match], int]:
    """The match, and how close it came: 2 where something telling of it was there (a frame, a line, a module, a fact), 1 where the
    signal at least was its own, else 0."""
    if not signature.rule or any(answer(condition, case).holds for condition in signature.none):
        return None, 0
    close = 0
    for rule in signature.rule:
        outcomes, told = _answers(rule, case)
        if outcomes is not None:
            evidence = tuple(dict.fromkeys(item for outcome in outcomes for item in outcome.evidence))
            fields: dict[str, str] = {}
            for outcome in outcomes:
                fields = {**outcome.fields, **fields}
            return Match(signature, _confidence(signature, rule, case, evidence), evidence[:MOST_EVIDENCE], fields), 2
        close = max(close, told)
    return None, close


def _confidence(signature: Signature, rule: Rule, case: Case, evidence: Sequence[Evidence]) -> str:
    signal = case.crash.signal
    faulted = signal is not None and signal.name in FAULTS
    in_other_words = any(item.log is not None and "loosely" in case.crash.log[item.log].fields for item in evidence)
    return "possible" if case.is_hearsay or in_other_words or (signature.exception and faulted) else rule.confidence


def _answers(rule: Rule, case: Case) -> tuple[Optional[list[Outcome]], int]:
    told = 0
    held: list[Outcome] = []
    matches = True
    for condition in rule.all:
        outcome = answer(condition, case)
        if outcome.holds:
            told = max(told, 2 if _tells(condition) else int(condition.signal is not None))
        matches = matches and outcome.holds
        held.append(outcome)
        if not matches and not outcome.holds and not _tells(condition):
            return None, told
    if rule.any and matches:
        any_held = [outcome for condition in rule.any if (outcome := answer(condition, case)).holds]
        matches = bool(any_held)
        held += any_held
    matches = matches and not any(answer(condition, case).holds for condition in rule.none)
    return (held if matches else None), told


def _tells(condition: Condition) -> bool:
    if condition.fact in _ORDINARY:
        return False
    return any(
        getattr(condition, name) is not None for name in ("frames", "log", "threads", "anywhere", "fact", "gpu", "modules", "python")
    )


def _ranked(matches: Iterable[Match]) -> list[tuple[Match, list[Match]]]:
    """Best first, each with those matches that follow from it."""
    remaining = sorted(matches, key=_rank)
    strong = [match for match in remaining if match.confidence != "possible"]
    kept: list[tuple[Match, list[Match]]] = []
    followers: dict[str, list[Match]] = {}
    for match in remaining:
        cause = next((other for other in strong if other is not match and _yields(match, other) and not _yields(other, match)), None)
        if cause is None:
            kept.append((match, followers.setdefault(match.signature.id, [])))
        else:
            followers.setdefault(cause.signature.id, []).append(match)
    return kept


def _yields(match: Match, other: Match) -> bool:
    return any(fnmatchcase(other.signature.id, pattern) for pattern in match.signature.yields_to) and not (
        other.signature.general and not match.signature.general
    )


def _rank(match: Match) -> tuple[bool, int, bool, int, int, str]:
    """Causes before kinds of fault, higher confidence first, log evidence (earliest line first) before frames."""
    line = match.first_line
    return (
        match.signature.general,
        CONFIDENCES.index(match.confidence),
        line is None,
        line or 0,
        SEVERITIES.index(match.signature.severity),
        match.signature.id,
    )


def _finding(match: Match, case: Case, followers: Iterable[Match]) -> Finding:
    signature = match.signature
    known = {**names(case), **match.fields}
    if case.crash.signal is not None:
        known["signal"] = case.crash.signal.name  # a line may name it in words of its own
    follows = tuple(
        Evidence(text=f"{follower.signature.title}: follows from this") for follower in followers if not follower.signature.general
    )
    return Finding(
        id=signature.id,
        title=signature.title,
        confidence=match.confidence,
        severity=signature.severity,
        summary=" ".join(fill_all(signature.summary, known)) or signature.cause,
        cause=signature.cause,
        fix=fitting(signature.fixes, case, known),
        next_steps=() if match.confidence == "certain" else fitting(signature.steps, case, known),
        evidence=(*match.evidence, *follows),
        references=signature.references,
    )
