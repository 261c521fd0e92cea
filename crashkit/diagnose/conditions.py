"""Answers each condition of a signature for one crash, with the evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Optional, Union

from crashkit.diagnose import gpu as gpu_core
from crashkit.diagnose.case import FAULTS, Case, Native, Stack, compiled, compiled_loosely
from crashkit.diagnose.facts import ENDS_PYTHON, FACTS, fault_address, frames_undecided
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.diagnose.places import python_line
from crashkit.diagnose.signature import SUBJECTS, Condition, FramePattern
from crashkit.diagnose.versions import satisfies
from crashkit.environment import SHOWN
from crashkit.evidence.text import hearsay
from crashkit.memory import mapping_at
from crashkit.model import Evidence, Gpu, LogLine, Signal
from crashkit.naming.failing import code_in, said
from crashkit.naming.gpu_exceptions import meaning_of
from crashkit.naming.signals import SENT

MOST_LOG_EVIDENCE = 5


def answer(condition: Condition, case: Case) -> Outcome:
    """Whether the condition holds for the crash."""
    subject = next(name for name in SUBJECTS if getattr(condition, name) is not None)
    return _ANSWERS[subject](condition, case)


def _signal(condition: Condition, case: Case) -> Outcome:
    names = condition.signal or ()
    signal = case.crash.signal
    if signal is None and "none" not in names:
        return unknown("the signal that ended the process")
    name = signal.name if signal is not None else "none"
    if signal is not None and name in FAULTS and signal.reason in SENT and not condition.sent:
        return no(f"{name} was sent, not caused by an instruction")
    return Outcome(name in names, _signal_evidence(signal), why=f"the signal is {name}")


def _signal_evidence(signal: Optional[Signal]) -> tuple[Evidence, ...]:
    return () if signal is None else (Evidence(text=signal.name if signal.code_name is None else f"{signal.name} ({signal.code_name})"),)


def _code(condition: Condition, case: Case) -> Outcome:
    signal = case.crash.signal
    name = signal.code_name if signal is not None else None
    if name is None:
        return unknown("the signal's si_code")
    return Outcome(name in (condition.code or ()), _signal_evidence(signal), why=f"si_code is {name}")


def _reason(condition: Condition, case: Case) -> Outcome:
    reason = case.crash.signal.reason if case.crash.signal is not None else None
    if reason is None:
        # It follows from the address that was accessed.
        return unknown("the fault address" if isinstance(fault_address(case), Outcome) else "the reason of the signal")
    return Outcome(reason in (condition.reason or ()), (Evidence(text=reason),), why=f"the reason is {reason}")


def _access(condition: Condition, case: Case) -> Outcome:
    access = case.crash.signal.access if case.crash.signal is not None else None
    if access is None:
        return unknown("how the memory was accessed")
    return Outcome(access in (condition.access or ()), why=f"the access is a {access}")


def _address(condition: Condition, case: Case) -> Outcome:
    address = fault_address(case)
    if isinstance(address, Outcome):
        return address
    first, last = condition.address or (0, 0)
    return Outcome(first <= address <= last, (Evidence(text=f"fault address {address}"),), why=f"the fault address is {address}")


def _in_mapping(condition: Condition, case: Case) -> Outcome:
    address = fault_address(case)
    if isinstance(address, Outcome):
        return address
    if not case.crash.mappings:
        return unknown("the address space")
    mapping = mapping_at(case.crash.mappings, address)
    if mapping is None or mapping.path is None:
        return no("no file is mapped at the fault address")
    holds = compiled(condition.in_mapping or "").search(mapping.path) is not None
    text = f"the fault address is in {mapping.path}"
    return Outcome(holds, (Evidence(text=text),), {"mapped_file": mapping.path}, text)


def _instruction(condition: Condition, case: Case) -> Outcome:
    found = next((item for item in case.crash.instructions if item.faulting), None)
    if found is None or condition.instruction is None:
        return unknown("the faulting instruction")
    holds = compiled(condition.instruction).search(found.text) is not None
    return Outcome(holds, (Evidence(text=f"faulting instruction {found.text}"),), {"instruction": found.text}, f"it is {found.text}")


def _frames(condition: Condition, case: Case) -> Outcome:
    patterns = condition.frames or ()
    if case.crashed is None:
        return unknown("the crashed thread")
    frames: Sequence[Native] = case.crashed.whole if condition.above_handler else case.crashed.natives
    if not frames:
        return unknown("the native stack of the crashed thread")
    found = case.in_order(patterns, frames)
    if found is None:
        return frames_undecided(case, case.crashed, patterns, frames) or no(
            f"{_described(patterns)}: not on the crashed thread in this order"
        )
    reach = 1 if condition.top else condition.within
    if reach is not None:
        start = case.crashed.whole if condition.above_handler else case.crashed.failing
        first = next((frame for frame in start[:reach] if case.is_frame(patterns[0], frame)), None)
        if first is None or (found := case.in_order(patterns, [frame for frame in frames if frame.index >= first.index])) is None:
            if first is None and any(case.could_be_frame(patterns[0], frame) for frame in start[:reach]):
                return unknown("the names of the innermost native frames")
            return no(f"{_described(patterns)}: not where the thread crashed")
    return Outcome(True, _frame_evidence(case.crashed, found), {"frame": _said(case.crashed, found[0])})


def _threads(condition: Condition, case: Case) -> Outcome:
    patterns = condition.threads or ()
    hits = [(stack, found) for stack in case.others if (found := case.in_order(patterns, stack.natives)) is not None]
    if len(hits) < condition.at_least:
        return _threads_undecided(case, case.others, patterns, condition.at_least) or no(
            f"{_described(patterns)}: on {len(hits)} other threads"
        )
    evidence = tuple(item for stack, found in hits[:8] for item in _frame_evidence(stack, found[:1]))
    return Outcome(True, evidence, {"others": str(len(hits))})


def _anywhere(condition: Condition, case: Case) -> Outcome:
    patterns = condition.anywhere or ()
    hits = [(stack, found) for stack in case.stacks if (found := case.in_order(patterns, stack.natives)) is not None]
    if len(hits) < condition.at_least:
        return _threads_undecided(case, case.stacks, patterns, condition.at_least) or no(f"{_described(patterns)}: on {len(hits)} threads")
    evidence = tuple(item for stack, found in hits[:8] for item in _frame_evidence(stack, found))
    return Outcome(True, evidence, {"frame": _said(hits[0][0], hits[0][1][0])})


def _threads_undecided(
    case: Case, stacks: Sequence[Stack], patterns: Sequence[Union[str, FramePattern]], at_least: int
) -> Optional[Outcome]:
    if not case.shows_all_threads:
        return unknown("the native stacks of all threads")
    open_ = [outcome for stack in stacks if (outcome := frames_undecided(case, stack, patterns)) is not None]
    return open_[0] if len(open_) >= at_least else None


def _frame_evidence(stack: Stack, found: Sequence[Native]) -> tuple[Evidence, ...]:
    return tuple(Evidence(text=frame.name or code_in(frame.frame), thread=stack.thread.tid, frame=frame.index) for frame in found)


def _said(stack: Stack, frame: Native) -> str:
    return frame.name or said(stack.thread.frames, frame.index)


def _described(patterns: Sequence[Union[str, FramePattern]]) -> str:
    return " > ".join(pattern if isinstance(pattern, str) else f"{pattern.function or '.*'} [{pattern.module}]" for pattern in patterns)


def _python(condition: Condition, case: Case) -> Outcome:
    stacks = case.stacks if case.crashed is None else [case.crashed]
    outcomes = [_python_of(stack, condition.python or ()) for stack in stacks if stack.pythons]
    if not outcomes:
        if case.crash.python is None and case.shows_all_threads:
            return no("the process ran no Python")
        return unknown("the Python stack of the failing thread")
    return next((outcome for outcome in outcomes if outcome.holds), outcomes[0])


def _python_of(stack: Stack, patterns: Sequence[str]) -> Outcome:
    rest = iter(stack.pythons)
    evidence: list[Evidence] = []
    for pattern in patterns:
        item = next((item for item in rest if compiled(pattern).search(f"{item[1].file}:{item[1].function}")), None)
        if item is None:
            return no(f"{pattern}: not among the Python frames")
        index, frame = item
        evidence.append(Evidence(text=python_line(frame), thread=stack.thread.tid, frame=index))
    return Outcome(True, tuple(evidence))


def _modules(condition: Condition, case: Case) -> Outcome:
    if not case.crash.modules:
        return unknown("the loaded modules")
    paths = sorted({module.path for module in case.crash.modules if compiled(condition.modules or "").search(module.path)})
    evidence = tuple(Evidence(text=path, module=path) for path in paths[:4])
    return Outcome(len(paths) >= condition.at_least, evidence, why=f"{len(paths)} such modules are loaded")


def _log(condition: Condition, case: Case) -> Outcome:
    hits: list[tuple[int, LogLine]] = []
    fields: dict[str, str] = {}
    for position, line in enumerate(case.crash.log):
        if condition.log != "*" and line.kind != condition.log:
            continue
        match: Optional[re.Match[str]] = None
        if condition.pattern is not None and (match := _in_line(condition.pattern, line)) is None:
            continue
        hits.append((position, line))
        named = match.groupdict() if match else {}
        for name, value in {**line.fields, **named}.items():
            if value and value != "unknown":  # as Triton names the kernel of an assertion
                fields.setdefault(name, value)
    if not hits:
        return (
            no(f"no {'such' if condition.log == '*' else condition.log} line in the log") if case.has_log else unknown("the process's log")
        )
    fields.setdefault("line", hits[0][1].text)
    return Outcome(True, tuple(Evidence(text=line.text, log=position) for position, line in hits[:MOST_LOG_EVIDENCE]), fields)


def _in_line(pattern: str, line: LogLine) -> Optional[re.Match[str]]:
    """The match in the line; whatever the case of the letters, if somebody typed it in another one (`evidence.text.hearsay`)."""
    text = line.text if line.kind != hearsay.KIND else hearsay.undenied(line.text)
    return (compiled_loosely if "loosely" in line.fields else compiled)(pattern).search(text)


def _exit(condition: Condition, case: Case) -> Outcome:
    status = case.crash.process.exit_status if case.crash.process is not None else None
    if status is None:
        return unknown("the exit status")
    return Outcome(status in (condition.exit or ()), (Evidence(text=f"exit status {status}"),), why=f"the exit status is {status}")


def _environment(condition: Condition, case: Case) -> Outcome:
    have = case.environment
    evidence: list[Evidence] = []
    for name, pattern in (condition.environment or {}).items():
        if name not in have:
            # What may not be shown is left out of an environment that is known.
            return no(f"{name} is not set") if have and SHOWN.has(name) else unknown(f"the value of {name}")
        if compiled(pattern).search(have[name]) is None:
            return no(f"{name} is {have[name]}")
        evidence.append(Evidence(text=f"{name}={have[name]}"))
    return Outcome(True, tuple(evidence))


def _version(condition: Condition, case: Case) -> Outcome:
    have = dict(case.crash.process.versions) if case.crash.process is not None else {}
    if case.crash.python is not None and case.crash.python.version:
        have.setdefault("python", case.crash.python.version)
    evidence: list[Evidence] = []
    for name, requirement in (condition.version or {}).items():
        if name not in have:
            return unknown(f"the version of {name}")
        if not satisfies(have[name], requirement):
            return no(f"{name} is {have[name]}")
        evidence.append(Evidence(text=f"{name} {have[name]}"))
    return Outcome(True, tuple(evidence))


def _finalizing(condition: Condition, case: Case) -> Outcome:
    """By the runtime's own flag, by the dump's state line, or by a thread in Py_FinalizeEx or in exit handlers."""
    shown: list[Evidence] = []
    if case.crash.python is not None and case.crash.python.finalizing:
        shown.append(Evidence(text="the interpreter was finalizing"))
    for position, line in enumerate(case.crash.log):
        if line.kind == "python-state" and line.fields.get("state", "").startswith("finalizing"):
            shown.append(Evidence(text=line.text, log=position))
    for stack in case.stacks:
        for frame in stack.natives:
            if frame.name in ENDS_PYTHON:
                shown.append(Evidence(text=frame.name, thread=stack.thread.tid, frame=frame.index))
                break
    if not shown and condition.finalizing and (case.crash.python is None or case.crash.python.finalizing is not False):
        return unknown("whether the interpreter was finalizing")
    return Outcome(bool(shown) == condition.finalizing, tuple(shown[:3]), why="finalizing" if shown else "it was not finalizing")


def _package(condition: Condition, case: Case) -> Outcome:
    name = condition.package or ""
    inside = re.compile(rf"(?:site|dist)-packages/{re.escape(name)}(?:[/.-]|$)|/lib{re.escape(name)}[\w.-]*\.so")
    modules = [module.path for module in case.crash.modules if inside.search(module.path)]
    frames = [frame.file for stack in case.stacks for _, frame in stack.pythons if frame.file and inside.search(frame.file)]
    if found := [*modules, *frames]:
        return Outcome(True, (Evidence(text=found[0]),))
    if case.crash.process is not None and name in case.crash.process.versions:
        return Outcome(True, (Evidence(text=f"{name} {case.crash.process.versions[name]}"),))
    return no(f"nothing of {name} is loaded") if case.crash.modules else unknown("the loaded modules")


def _fact(condition: Condition, case: Case) -> Outcome:
    return FACTS[condition.fact or ""](case)


def _gpu(condition: Condition, case: Case) -> Outcome:
    gpu = case.crash.failed_gpu
    wanted = frozenset(condition.gpu or ())
    if gpu is None:
        return _gpu_log(condition, case, wanted)
    for exception in gpu.exceptions:
        if wanted & gpu_core.kinds(exception) and _is_kernel(condition, exception.mangled):
            text = f"{exception.name} in {exception.kernel or 'a kernel without a name'}"
            return Outcome(True, _gpu_evidence(gpu, text), gpu_core.exception_names(case.crash, gpu, exception))
    for kernel, kinds in gpu_core.hanging(gpu):
        if wanted & kinds and _is_kernel(condition, kernel.mangled):
            text = f"{kernel.name or 'a kernel without a name'} was running"
            return Outcome(True, _gpu_evidence(gpu, text), gpu_core.kernel_names(case.crash, gpu, kernel))
    return no("the GPU core shows " + (", ".join(exception.name for exception in gpu.exceptions) or "no exception"))


def _gpu_log(condition: Condition, case: Case, wanted: frozenset[str]) -> Outcome:
    """Without a GPU core, the driver's own line about it names the exception, but not the kernel."""
    for position, line in enumerate(case.crash.log if condition.kernel is None and not case.crash.gpu else ()):
        told = meaning_of(line.fields.get("exception", "").removeprefix("CUDBG_EXCEPTION_"))
        if line.kind == "gpu-exception" and told.kind in wanted:
            return Outcome(True, (Evidence(text=line.text, log=position),), {"gpu_exception": told.words})
    return no("neither a GPU core nor the log shows that of a kernel")


def _is_kernel(condition: Condition, mangled: Optional[str]) -> bool:
    return condition.kernel is None or compiled(condition.kernel).search(mangled or "") is not None


def _gpu_evidence(gpu: Gpu, text: str) -> tuple[Evidence, ...]:
    found = gpu.launched_from
    if found is None:
        return (Evidence(text=text),)
    side = "launched from here" if found.exact else "the CPU was here when it was noticed"
    return (Evidence(text=text), Evidence(text=side, thread=found.thread, frame=found.frame))


def _any(condition: Condition, case: Case) -> Outcome:
    outcomes = [answer(each, case) for each in condition.any or ()]
    first = next((outcome for outcome in outcomes if outcome.holds), None)
    if first is not None:
        return first
    open_ = next((outcome for outcome in outcomes if outcome.missing), None)
    return open_ or no("; ".join(outcome.why or "" for outcome in outcomes))


def _all(condition: Condition, case: Case) -> Outcome:
    evidence: list[Evidence] = []
    fields: dict[str, str] = {}
    missing: Optional[Outcome] = None
    for each in condition.all or ():
        outcome = answer(each, case)
        if not outcome.holds and outcome.missing is None:
            return outcome
        missing = missing or (None if outcome.holds else outcome)
        evidence += outcome.evidence
        fields |= outcome.fields
    return missing or Outcome(True, tuple(evidence), fields)


_ANSWERS: dict[str, Callable[[Condition, Case], Outcome]] = {
    "signal": _signal,
    "code": _code,
    "reason": _reason,
    "access": _access,
    "address": _address,
    "in_mapping": _in_mapping,
    "instruction": _instruction,
    "frames": _frames,
    "threads": _threads,
    "anywhere": _anywhere,
    "python": _python,
    "modules": _modules,
    "log": _log,
    "exit": _exit,
    "environment": _environment,
    "version": _version,
    "finalizing": _finalizing,
    "package": _package,
    "fact": _fact,
    "gpu": _gpu,
    "any": _any,
    "all": _all,
}
