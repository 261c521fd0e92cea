"""Which artefacts are of one crash: by process and thread ids, thread identifiers, executable, place and signal. Pure.

A core is a crash. A log joins the crash that it tells of, however far apart they lie; what tells of no process that left a core is a
crash of its own, unless it only repeats that something died of a signal of which there is a better account.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from crashkit.batch.artefact import Artefact, Facts
from crashkit.model import SoftError


class Case(NamedTuple):
    """The evidence of one crash, the best piece first."""

    artefacts: tuple[Artefact, ...]

    @property
    def main(self) -> Artefact:
        """The piece that tells most."""
        return self.artefacts[0]

    @property
    def facts(self) -> Facts:
        """What all of its pieces tell together."""
        known = [artefact.facts for artefact in self.artefacts]
        return Facts(
            pids=frozenset().union(*(one.pids for one in known if one.has_stack)) or self.main.facts.pids,
            tids=frozenset().union(*(one.tids for one in known)),
            idents=frozenset().union(*(one.idents for one in known)),
            signal=next((one.signal for one in known if one.signal), None),
            executable=next((one.executable for one in known if one.executable), None),
            time=self.main.facts.time,
            has_stack=any(one.has_stack for one in known),
        )


class Paired(NamedTuple):
    """The crashes, and what was left over."""

    cases: tuple[Case, ...]
    soft_errors: tuple[SoftError, ...]


_WEIGHT = ("bundle", "folder", "core", "gpu-core", "log", "junit")
_TEXTS = frozenset({"log", "junit"})
_FIRST = frozenset({"bundle", "folder", "core"})


def pair(artefacts: Iterable[Artefact]) -> Paired:
    """Join what belongs together. The order of the artefacts means nothing, but for that of the crashes."""
    ordered = sorted(artefacts, key=lambda one: (_WEIGHT.index(one.kind), one.shown, one.lines or (0, 0)))
    cases: list[Case] = []
    problems: list[SoftError] = []
    for artefact in ordered:
        if artefact.kind not in _FIRST:
            continue
        twin = next((case for case in cases if _same_process(case, artefact)), None)
        if twin is None:
            cases.append(Case((artefact,)))
        else:
            problems.append(_note(f"{artefact.shown} is of the same process as {twin.main.shown}: it was left out"))
    for artefact in ordered:
        if artefact.kind == "gpu-core":
            _join(cases, artefact, _of_gpu(cases, artefact))
    logs = [artefact for artefact in ordered if artefact.kind in _TEXTS]
    # What knows most of its process goes first: the others may then repeat it.
    for artefact in sorted(logs, key=lambda one: (not one.facts.idents, not one.facts.has_stack, one.facts.signal is None)):
        at = _of_log(cases, artefact, logs)
        if at is None and (other := _repeated(cases, artefact)):
            # A JUnit file always repeats what the log has.
            if artefact.kind != "junit":
                problems.append(
                    _note(f"{artefact.shown} reports a death without naming the process: it was assigned to {other.main.shown}")
                )
            continue
        _join(cases, artefact, at)
    return Paired(tuple(cases), tuple(problems))


def _join(cases: list[Case], artefact: Artefact, at: Optional[int]) -> None:
    if at is None:
        cases.append(Case((artefact,)))
    elif artefact.shown not in [one.shown for one in cases[at].artefacts] or artefact.lines:
        cases[at] = Case((*cases[at].artefacts, artefact))


def _same_process(case: Case, artefact: Artefact) -> bool:
    """One dump of memory of the same threads at the same addresses: a copy of it, such as one in an archive."""
    mine, other = case.main.facts, artefact.facts
    return bool(mine.tids) and (mine.tids, mine.idents, mine.executable) == (other.tids, other.idents, other.executable)


def _of_gpu(cases: Sequence[Case], artefact: Artefact) -> Optional[int]:
    """The process whose thread is the driver's in the dump; else the one whose pid its name has."""
    by_thread = [at for at, case in enumerate(cases) if artefact.facts.tids & case.facts.tids]
    by_pid = [at for at, case in enumerate(cases) if artefact.facts.pids & (case.facts.pids | case.facts.tids)]
    return next(iter(by_thread or by_pid), None)


def _of_log(cases: Sequence[Case], artefact: Artefact, logs: Sequence[Artefact]) -> Optional[int]:
    known = artefact.facts
    fitting = [at for at, case in enumerate(cases) if _agree(case.facts.signal, known.signal)]
    # Forked processes share the identifiers of their threads: then pid and place decide.
    by_ident = [at for at, case in enumerate(cases) if known.idents & case.facts.idents]
    if by_ident:
        return max(by_ident, key=lambda at: (at in fitting, *_closeness(cases[at], artefact)))
    if known.idents:
        # It names its process's threads: they are nobody's here whose threads are known.
        fitting = [at for at in fitting if not cases[at].facts.idents]
    by_pid = [at for at in fitting if known.pids & (cases[at].facts.pids | cases[at].facts.tids)]
    if by_pid:
        return max(by_pid, key=lambda at: _closeness(cases[at], artefact))
    # Alone with one crash in its folder.
    beside = [at for at in fitting if any(one.place == artefact.place for one in cases[at].artefacts)]
    others = [one for one in logs if one.place == artefact.place and one.facts.idents]
    alone = sum(any(one.place == artefact.place for one in case.artefacts) for case in cases) == 1
    return beside[0] if len(beside) == 1 and alone and not others and artefact.lines is None else None


def _closeness(case: Case, artefact: Artefact) -> tuple[int, int, float]:
    """How well a log and a crash go together, beside their threads: common numbers, the same folder, written at about the same time."""
    mine, other = case.facts, artefact.facts
    apart = abs(mine.time - other.time) if mine.time is not None and other.time is not None else float("inf")
    beside = any(one.place == artefact.place for one in case.artefacts)
    return len(other.pids & (mine.pids | mine.tids)), int(beside), -apart


def _repeated(cases: Sequence[Case], artefact: Artefact) -> Optional[Case]:
    """The crash of which a log without a stack, thread or process probably tells: `Segmentation fault (core dumped)`, exit 139."""
    if artefact.facts.has_stack or artefact.facts.idents:
        return None
    return next((case for case in cases if _agree(case.facts.signal, artefact.facts.signal)), None)


def _agree(one: Optional[str], other: Optional[str]) -> bool:
    return one is None or other is None or one == other


def _note(message: str) -> SoftError:
    return SoftError(stage="pair", message=message)
