"""What two crashes share and where they differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from crashkit.model import Crash, NativeFrame, PythonFrame
from crashkit.naming.machinery import handler_end
from crashkit.report import wording

_FRAMES = 40


class Difference(NamedTuple):
    """One fact that differs; '' where a crash does not have it."""

    name: str
    left: str
    right: str


def same_crash(left: Crash, right: Crash) -> bool | None:
    """Whether both have the same fingerprint; None if one has none, or they were computed in different ways."""
    one, other = left.fingerprint, right.fingerprint
    if not one or not other or not one.hash or not other.hash or one.version != other.version:
        return None
    return one.hash == other.hash


def differences(left: Crash, right: Crash) -> list[Difference]:
    """The facts that tell one crash from the other, the most telling first. Process ids and addresses always differ: they are left out."""
    pairs = zip(_facts(left), _facts(right), strict=True)
    found = [Difference(name, one, other) for (name, one), (_, other) in pairs if one != other]
    found += _stack(left, right)
    found += _mapping("", wording.versions(left), wording.versions(right))
    found += _mapping("env ", left.process.environment if left.process else {}, right.process.environment if right.process else {})
    return found + _modules(left, right)


def _facts(crash: Crash) -> Iterator[tuple[str, str]]:
    signal, process, own = crash.signal, crash.process, wording.own_at(crash.thread)
    finding = wording.best_finding(crash)
    yield "signal", signal.name if signal else ""
    yield "reason", (wording.why(signal) or "") if signal else ""
    yield "cause", finding.title if finding else ""
    yield "your code", f"{own.function or '(no name)'} {wording.full_place(own)}" if own else ""
    native = wording.native_at(crash.thread, signal)
    yield "native", f"{wording.native_function(native)} in {wording.base_name(native.module or '')}" if native else ""
    yield "executable", (process.executable or "") if process else ""
    yield "command", " ".join(process.argv) if process else ""
    yield "threads", str(len(crash.threads))


def _stack(left: Crash, right: Crash) -> list[Difference]:
    """The first frame, from the innermost, where the crashed threads' stacks part."""
    for index, (one, other) in enumerate(zip_longest(_names(left), _names(right), fillvalue="")):
        if one != other:
            return [Difference(f"frame {index}", one, other)]
    return []


def _names(crash: Crash) -> list[str]:
    # Those of the handler that raised the signal again depend on how the process was started, not on the crash.
    thread = crash.thread
    frames = thread.frames[(start := handler_end(thread.frames)) : start + _FRAMES] if thread else ()
    named = (frame for frame in frames if isinstance(frame, (NativeFrame, PythonFrame)))
    return [wording.native_function(frame) if isinstance(frame, NativeFrame) else frame.function or "(no name)" for frame in named]


def _mapping(prefix: str, left: Mapping[str, str], right: Mapping[str, str]) -> list[Difference]:
    names = sorted({*left, *right})
    return [Difference(prefix + name, left.get(name, ""), right.get(name, "")) for name in names if left.get(name) != right.get(name)]


def _modules(left: Crash, right: Crash) -> list[Difference]:
    """Modules of one crash alone, or of which both have different builds."""
    one, other = ({module.path: module.build_id or "present" for module in crash.modules} for crash in (left, right))
    return _mapping("module ", one, other)
