"""The frames on a data stack from the oldest on, where nothing leads to them: the thread's state is lost, or a link between its frames.

A part of a data stack is mapped memory of its own, which begins with a header (`_PyStackChunk`) and the oldest frame in it, and which is
unmapped when its thread ends. Each frame ends where the next begins (`_PyThreadState_PushFrame`, Python/pystate.c). Behind the newest frame
lie those that have returned. What tells them apart is where their values end: a frame that runs has -1 there up to 3.13
(`_PyFrame_GetStackPointer`, Include/internal/pycore_frame.h), one that has returned never has; later one that has returned has none
(`_PyFrame_ClearLocals`, Python/frame.c). So the last that runs is the newest that is sure, and what lies before it waits for it.

Generators and coroutines hold their frames themselves: which of them run between these frames, or further in, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Optional

import msgspec

from crashkit.interpreter.frame_fields import OWNED_BY_THREAD, TAGS, builtins_at
from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.search import MOST_FOR_STACKS, heap
from crashkit.interpreter.threads import linked
from crashkit.interpreter.view import Unreadable, View

_PAGE = 4096
_SIZES = frozenset(1 << bits for bits in range(14, 29))
"""Bytes of a part: `DATA_STACK_CHUNK_SIZE` (Python/pystate.c), or twice, four times ... as many."""
_MOST_PARTS, _MOST_FRAMES = 1 << 16, 1 << 18
"""Of all data stacks together."""
_MOST_WORDS = 1 << 20
_LONGEST, _MOST_PLACES = 1024, 1 << 20
"""Words of a frame whose code object is lost, and how many places are looked at for the ends of all of these."""
_RUNS = -1


class _Part(msgspec.Struct, frozen=True):
    """A part of a data stack: where its frames begin, and where they end at the latest."""

    start: int
    end: int


def newest_parts(view: View, layout: Layout, states: Collection[int]) -> list[int]:
    """The newest part of each data stack in the process that belongs to none of these thread states."""
    chunk, thread = layout.chunk, layout.thread
    if chunk is None or thread.chunk is None or view.word_size != 8:
        return []
    owned: set[int] = set()
    for state in states:
        try:
            owned.update(linked(view, view.word(state + thread.chunk), chunk.previous, _MOST_PARTS - len(owned)))
        except Unreadable:
            continue
    found: dict[int, int] = {}
    for start, piece in heap(view, MOST_FOR_STACKS):
        # `previous`, `size`, `top` (Include/cpython/pystate.h).
        columns = (piece[-start % _PAGE // 8 + field :: _PAGE // 8] for field in range(3))
        for page, (previous, size, top) in enumerate(zip(*columns, strict=False)):
            address = start + -start % _PAGE + page * _PAGE
            if size in _SIZES and previous % _PAGE == 0 and 8 * top <= size and address not in owned:
                found[address] = previous
    older = set(found.values())
    return [part for part in found if part not in older]


class Upwards:
    """Reads data stacks from their beginnings."""

    def __init__(self, objects: Objects, is_mapped: Callable[[int], bool]) -> None:
        self._objects, self._view, self._is_mapped = objects, objects.view, is_mapped
        self._builtins_at = builtins_at(objects)
        self._parts_left, self._frames_left, self._places_left = _MOST_PARTS, _MOST_FRAMES, _MOST_PLACES

    def frames(self, newest: int, top: Optional[int] = None) -> list[int]:
        """The addresses of the frames on the data stack whose newest part is this one, newest first, as far out from the oldest as is sure.

        `top` is the end of what is used of the newest part, if that is known.
        """
        if self._objects.layout.chunk is None or self._objects.layout.frame.stack_top is None:
            return []
        found: list[int] = []
        try:
            parts = list(self._parts(newest, top))
            for part in reversed(parts):
                frames, is_full = self._between(part, found[-1] if found else 0)
                if part is parts[0] and not (is_full and top is not None):
                    self._drop_returned(frames)
                found += frames
                if not is_full:
                    break
        except Unreadable:
            return []
        return found[::-1]

    def _parts(self, newest: int, top: Optional[int]) -> Iterator[_Part]:
        """Newest first. Raises Unreadable unless the oldest is reached."""
        chunk, word = self._objects.layout.chunk, self._view.word_size
        assert chunk is not None
        previous = newest
        for part in linked(self._view, newest, chunk.previous, self._parts_left):
            self._parts_left -= 1
            previous, size, used = self._view.words(part, 3)
            used_end = top or part + size if part == newest else part + chunk.data + used * word
            if not part < used_end <= part + size:
                raise Unreadable(f"no part of a data stack at {part:#x}")
            # The first word of the oldest part is never used (`push_chunk`).
            yield _Part(part + chunk.data + (0 if previous else word), used_end)
        if previous:
            raise Unreadable("a data stack without its oldest part")

    def _between(self, part: _Part, below: int) -> tuple[list[int], bool]:
        """The frames in this part as far as they can be followed, oldest first, and whether they fill it. `below` is the one before it."""
        found: list[int] = []
        start: Optional[int] = part.start
        while start is not None and start < part.end and self._frames_left > 0:
            self._frames_left -= 1
            try:
                if not self._is_frame(start, below, part):
                    break
                found.append(start)
                following = self._following(start, part)
                further = self._running_behind(start, part) if following is None else []
                if further:
                    found += further[:-1]
                    following = further[-1]
                below, start = found[-1], following
            except Unreadable:
                break
        return found, start == part.end

    def _is_frame(self, place: int, below: int, part: _Part) -> bool:
        """Whether there is a frame in this place that one in `below` may have called, itself or through others. Raises Unreadable."""
        view, layout = self._view, self._objects.layout.frame
        if layout.owner is None or view.byte(place + layout.owner) != OWNED_BY_THREAD:
            return False
        code, previous = view.word(place + layout.code) & ~TAGS, view.word(place + layout.previous)
        if not code or code % 8 or not self._is_mapped(code) or (previous and not self._is_mapped(previous)):
            return False
        if not below:
            return True
        if previous == below:
            # From 3.12 on, C stands between two frames of which the outer one runs.
            return self._objects.version < (3, 12) or self._objects.version >= (3, 14) or not self.runs(below)
        return previous != 0 and not part.start <= previous < part.end

    def _following(self, frame: int, part: _Part) -> Optional[int]:
        """Where the frame behind this one begins. Raises Unreadable.

        The code object says how long a frame is. Where that is lost, the frame behind names this one, if this one called it without C.
        """
        code, layout, word = self._objects.layout.code, self._objects.layout.frame, self._view.word_size
        executable = self._view.word(frame + layout.code) & ~TAGS
        if code.frame_slots is None or code.stack_size is None:
            return None
        try:
            words = self._objects.constants.int32(executable + code.frame_slots) + self._objects.constants.int32(
                executable + code.stack_size
            )
        except Unreadable:
            naming = [
                one
                for one in self._places(frame, part)
                if self._view.word(one + layout.previous) == frame and self._is_frame(one, frame, part)
            ]
            # What is left of frames that have returned may lie among the values of this one.
            return naming[0] if len(naming) == 1 else None
        end = frame + layout.locals + words * word
        return end if 0 <= words < _MOST_WORDS and end <= part.end else None

    def _running_behind(self, frame: int, part: _Part) -> list[int]:
        """The next frame behind this one that runs, and before it those that it names. Raises Unreadable.

        Its built-in names are the same; what is left of frames that have returned does not run.
        """
        view, layout = self._view, self._objects.layout.frame
        builtins = view.word(frame + self._builtins_at)
        for place in self._places(frame, part):
            if view.word(place + self._builtins_at) == builtins and self.runs(place):
                found = [place]
                while frame < (previous := view.word(found[-1] + layout.previous)) < found[-1] and self._places_left > 0:
                    self._places_left -= 1
                    found.append(previous)
                if all(self._is_frame(one, below, part) for one, below in zip(found, (*found[1:], frame), strict=True)):
                    return found[::-1]
        return []

    def _places(self, frame: int, part: _Part) -> range:
        """Where the frame behind this one may begin, if its code object is lost."""
        size, word = self._objects.layout.frame.locals, self._view.word_size
        places = range(frame + size, min(part.end, frame + size + _LONGEST * word) - size + 1, word)
        self._places_left -= len(places)
        return places if self._places_left >= 0 else range(0)

    def _drop_returned(self, frames: list[int]) -> None:
        """Drop those behind the last one that runs."""
        while frames and not self.runs(frames[-1]):
            frames.pop()

    def runs(self, frame: int) -> bool:
        """Whether a frame runs that lies on a data stack, or, from 3.14 on, whether it has not returned. Raises Unreadable."""
        layout = self._objects.layout.frame
        if self._objects.version < (3, 14):
            return self._view.int32(frame + (layout.stack_top or 0)) == _RUNS
        values = self._view.word(frame + (layout.stack_top or 0)) - frame - layout.locals
        return 0 < values < _MOST_WORDS * self._view.word_size
