"""How far each frame of a thread's Python stack can be trusted: what other sources read in its place. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile, zip_longest
from typing import NamedTuple, Optional

import msgspec
from msgspec.structs import replace

from crashkit.debugger.contract import PythonStack
from crashkit.model import PythonFrame

DUMP = "faulthandler"
NO_FRAME = "no frame"


class Pair(msgspec.Struct, frozen=True):
    """What two sources read at one place of a stack; None where a source has no frame."""

    depth: Optional[int]
    """Of the frame of the first source, counted from the innermost frame, from 0."""
    one: Optional[PythonFrame]
    other: Optional[PythonFrame]

    @property
    def differs(self) -> bool:
        """What one of them could not read is no contradiction."""
        if self.one is None or self.other is None:
            return True
        names, lines = (self.one.function, self.other.function), (self.one.line, self.other.line)
        return (all(names) and names[0] != names[1]) or (None not in lines and lines[0] != lines[1])

    @property
    def is_same(self) -> bool:
        """Whether both know the frame, and as the same."""
        if self.one is None or self.other is None or not self.one.function or self.one.line is None:
            return False
        return is_same(self.one, self.other)


class Judged(NamedTuple):
    """A stack whose frames say how far they can be trusted, and where another source contradicts it."""

    stack: PythonStack
    contradictions: tuple[tuple[PythonStack, tuple[Pair, ...]], ...]
    """The other stack and the places, innermost first."""


def judged(stack: PythonStack, others: Sequence[PythonStack]) -> Judged:
    """The stack that was chosen, compared with each other one of the same thread.

    A dump of faulthandler can confirm and never contradicts: a log can hold the dump of a forked sibling, whose threads have the same
    idents, or one that was written earlier.
    """
    confirmed: defaultdict[int, list[str]] = defaultdict(list)
    contradicted: defaultdict[int, dict[str, str]] = defaultdict(dict)
    contradictions = []
    for other in others:
        name = origin(other)
        pairs = compared(stack, other)
        different = tuple(pair for pair in pairs if pair.differs)
        if different and DUMP in (name, origin(stack)):
            continue
        if different:
            contradictions.append((other, different))
        for pair in pairs:
            if pair.depth is None:
                continue
            if pair.differs:
                contradicted[pair.depth][name] = told(pair.other)
            elif pair.is_same and name != origin(stack) and name not in confirmed[pair.depth]:
                confirmed[pair.depth].append(name)

    def trusted(depth: int, frame: PythonFrame) -> PythonFrame:
        by, but = tuple(confirmed.get(depth, ())), contradicted.get(depth, {})
        trust = "contradicted" if but else "confirmed" if by else "alone"
        return replace(frame, trust=trust, confirmed_by=by, contradicted_by=but)

    by_depth = _by_depth(stack)
    done = tuple(trusted(depth, frame) for depth, frame in by_depth)
    inner = len(stack.frames)
    return Judged(stack._replace(frames=done[:inner], outer=done[inner:]), tuple(contradictions))


def compared(one: PythonStack, other: PythonStack) -> list[Pair]:
    """The frames of two stacks of one thread side by side, innermost first: those that both should have.

    Of a deep or broken stack only the ends are there. Where whole stacks have different lengths, a frame is missing from one of them, not
    every frame beyond it wrong: their equal inner and outer ends are put beside each other.
    """
    if not one.frames or not other.frames:
        return []
    if any(stack.gap and not stack.outer for stack in (one, other)):
        # Of one of them the innermost frames may be missing, and which is not known: it is no proof against the other's.
        same = _equal(one.frames[::-1], other.frames[::-1])
        return [Pair(len(one.frames) - at, one.frames[-at], other.frames[-at]) for at in range(same, 0, -1)]
    depth = _depth(one)
    if depth is not None and depth == _depth(other):
        theirs = dict(_by_depth(other))
        return [Pair(at, frame, theirs[at]) for at, frame in _by_depth(one) if at in theirs]
    if one.cut or other.cut or one.total or other.total or DUMP in (origin(one), origin(other)):
        return [Pair(at, frame, beside) for at, (frame, beside) in enumerate(zip(one.frames, other.frames, strict=False))]
    return list(_of_different_lengths(one.frames, other.frames))


def is_same(one: PythonFrame, other: PythonFrame) -> bool:
    """Whether they are the same function, file and line."""
    return (one.function, one.file, one.line) == (other.function, other.file, other.line)


def told(frame: Optional[PythonFrame]) -> str:
    """The frame in a sentence: its function and line."""
    if frame is None:
        return NO_FRAME
    place = f"{frame.file or '?'}:{frame.line if frame.line is not None else '?'}"
    return f"{frame.function or '?'} ({place})"


def origin(stack: PythonStack) -> str:
    """The source of a stack."""
    return next((frame.origin for frame in stack.frames if frame.origin), None) or "one source"


def _of_different_lengths(one: Sequence[PythonFrame], other: Sequence[PythonFrame]) -> Iterator[Pair]:
    inner = _equal(one, other)
    outer = _equal(one[inner:][::-1], other[inner:][::-1])
    between = zip_longest(range(inner, len(one) - outer), other[inner : len(other) - outer])
    for at in range(inner):
        yield Pair(at, one[at], other[at])
    for depth, beside in between:
        yield Pair(depth, None if depth is None else one[depth], beside)
    for at in range(outer, 0, -1):
        yield Pair(len(one) - at, one[-at], other[-at])


def _equal(one: Sequence[PythonFrame], other: Sequence[PythonFrame]) -> int:
    """How many frames are the same from the beginning on."""
    pairs = (Pair(None, frame, beside) for frame, beside in zip(one, other, strict=False))
    return sum(1 for _ in takewhile(lambda pair: not pair.differs, pairs))


def _depth(stack: PythonStack) -> Optional[int]:
    """How many frames it has in all; None where that is not known."""
    return None if stack.cut else stack.total or len(stack.frames)


def _by_depth(stack: PythonStack) -> list[tuple[int, PythonFrame]]:
    """`frames` and `outer`, each with its distance from the innermost frame."""
    inner = len(stack.frames)
    outer = max(stack.total or 0, inner + len(stack.outer)) - len(stack.outer)
    return [*enumerate(stack.frames), *enumerate(stack.outer, outer)]
