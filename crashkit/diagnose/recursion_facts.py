"""Stacks that repeat a cycle of calls: whether Python functions are among them, and what C code follows that deep otherwise. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from crashkit.diagnose.case import Case, Stack
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import ElidedFrames, Evidence, NativeFrame, PythonFrame
from crashkit.naming.functions import plain

_MANY = 300
"""Frames of a stack that is shown whole, from which on a function that most of them run is a recursion."""
_SOME = 30
"""The same where the stack is known to have overflowed: a thread's stack may be small."""
_CUT = 90
"""Python frames of a stack whose end was left out (faulthandler prints the 100 innermost), all of which repeat one cycle: no program that
was not about to use up its stack is found in the middle of a call of this cycle."""
_LONGEST_CYCLE = 12
_KINDS = (
    # Each asks the iterator that it was made of: Modules/itertoolsmodule.c, Python/bltinmodule.c, Objects/enumobject.c.
    ("iterators", ("_next",), ()),
    # What frees an object drops what it refers to: tp_dealloc and tp_clear of CPython, destructors of C++, drop glue of Rust.
    ("freed", ("dealloc", "_clear"), ("::~", "::_M_release", "::_M_dispose", "::_M_destroy", "::_M_erase", "drop_in_place")),
    ("callables", ("_vectorcall", "_call"), ("functools_partial", "cm_descr_get")),
)
"""What C code follows when it calls itself, by the ends and parts of the names of the functions that do it. Everything else is nested
data, or a recursion of its own."""


def deep_cycle(case: Case) -> Outcome:
    """The crashed thread's stack repeats one cycle of calls very often."""
    stack = case.crashed
    if stack is None or not stack.thread.frames:
        return unknown("the stack of the crashed thread")
    for frame in stack.thread.frames:
        if frame_cycle := getattr(frame, "cycle", ()):
            return _repeats(stack, f"the stack repeats {_told(frame_cycle)}", frame_cycle)
    if cut_cycle := _cut_cycle(stack):
        return _repeats(stack, f"all that was printed of the stack repeats {_told(cut_cycle)}", cut_cycle)
    names = [frame.name for frame in stack.natives if frame.name]
    many = _many(case)
    if len(names) >= many:
        most, count = Counter(names).most_common(1)[0]
        if count * 10 > len(names) and count >= min(many, _SOME):
            return _repeats(stack, f"{most} occurs {count} times on the stack", (most,))
    return no("no repeating cycle on the stack")


def recursion_in_c(case: Case) -> Outcome:
    """The cycle that the crashed thread's stack repeats has no Python function in it: C code calls itself.

    Its function is told under the name of what it follows: `iterators`, `freed`, `callables` or `nested`.
    """
    outcome = deep_cycle(case)
    stack = case.crashed
    if not outcome.holds or stack is None:
        return outcome
    cycle, count = _cycle(stack, _many(case))
    if not cycle or _repeated(stack) & set(cycle):
        return no("Python functions are part of the recursion")
    # Where the stack was used up, any function of the cycle may be the innermost: it is known by the one that was called first.
    entered = next((frame.name for frame in reversed(stack.natives) if frame.name in cycle), cycle[-1])
    kind, function = next(_known(cycle), ("nested", entered))
    return Outcome(True, outcome.evidence, {"cycle": _told(cycle), kind: function, **_depth(cycle, count)})


def recursion_in_python(case: Case) -> Outcome:
    """The cycle that the crashed thread's stack repeats has Python functions in it, which are told as `repeated`."""
    outcome = deep_cycle(case)
    stack = case.crashed
    if not outcome.holds or stack is None:
        return outcome
    cycle, count = _cycle(stack, _many(case))
    known = _repeated(stack)
    repeated = tuple(name for name in cycle if name in known)
    if not repeated:
        return no("no Python function is part of the recursion")
    return Outcome(True, outcome.evidence, {"cycle": _told(cycle), "repeated": _told(repeated), **_depth(cycle, count)})


def _repeated(stack: Stack) -> set[str]:
    """The Python functions that may be part of a cycle: not one that is there once, with the name of a C function, which it called."""
    counts = Counter(frame.function for _, frame in stack.pythons if frame.function)
    natives = {frame.name for frame in stack.natives}
    return {name for name, count in counts.items() if count > 1 or name not in natives}


def _depth(cycle: Sequence[str], count: int) -> dict[str, str]:
    """How often the cycle is on the stack, to two digits; nothing where so few of its frames are known that it says little."""
    depth = count // len(cycle)
    return {"depth": f"about {round(depth, 2 - len(str(depth))):,}"} if depth >= _SOME else {}


def _known(cycle: Sequence[str]) -> Iterator[tuple[str, str]]:
    for kind, ends, parts in _KINDS:
        for name in map(plain, cycle):
            if name.endswith(ends) or any(part in name for part in parts):
                yield kind, name


def _many(case: Case) -> int:
    signal = case.crash.signal
    return _SOME if signal is not None and signal.reason == "stack-overflow" else _MANY


def _cycle(stack: Stack, many: int) -> tuple[tuple[str, ...], int]:
    """The functions that repeat, and how many of their frames there are; no function where the evidence names none."""
    # Where both stacks are shown side by side, C functions that run Python code repeat with it: they are not why.
    pythons = Counter(frame.function for frame in stack.thread.python_frames if frame.function)
    if often := [(name, count) for name, count in pythons.most_common(3) if count >= many]:
        return tuple(name for name, _ in often), sum(count for _, count in often)
    frames = stack.thread.frames
    for frame in frames:
        if isinstance(frame, ElidedFrames) and frame.cycle:
            known = tuple(name for name in frame.cycle if name.strip("?…"))
            return (known, (frame.count or 0) * len(known) // len(frame.cycle))
    if cut_cycle := _cut_cycle(stack):
        return cut_cycle, 0
    counts = Counter(frame.function for frame in frames if isinstance(frame, (NativeFrame, PythonFrame)) and frame.function)
    often = _alike(counts, many)
    return tuple(name for name, _ in often), sum(count for _, count in often)


def _alike(counts: Counter[str], many: int) -> list[tuple[str, int]]:
    """The functions that occur about as often as the one that occurs most: all of a cycle, in the order of the stack."""
    most = max(counts.values(), default=0)
    return [(name, count) for name, count in counts.items() if count >= many and 2 * count > most][:_LONGEST_CYCLE]


def _cut_cycle(stack: Stack) -> tuple[str, ...]:
    """The functions of a cycle that is all of a stack whose outer frames were left out, each with the same line every time; else none."""
    frames = stack.thread.frames
    if len(frames) <= _CUT or not isinstance(frames[-1], ElidedFrames):
        return ()
    shown = [(frame.function, frame.file, frame.line) for frame in frames if isinstance(frame, PythonFrame)]
    if len(shown) != len(frames) - 1:
        return ()
    for length in range(1, _LONGEST_CYCLE + 1):
        if shown[length:] == shown[:-length]:
            return tuple(function or "?" for function, _, _ in shown[:length])
    return ()


def _repeats(stack: Stack, text: str, cycle: Sequence[str]) -> Outcome:
    return Outcome(True, (Evidence(text=text, thread=stack.thread.tid),), {"cycle": _told(cycle)})


def _told(cycle: Sequence[str]) -> str:
    return " > ".join(cycle[:6])


RECURSION_FACTS = {
    "deep-cycle": deep_cycle,
    "recursion-in-c": recursion_in_c,
    "recursion-in-python": recursion_in_python,
}
