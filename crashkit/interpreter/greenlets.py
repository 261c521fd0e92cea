"""greenlet's greenlets, and so gevent's: which one each thread runs, where the others stand, and whose children they are.

Nothing leads to all of them: who waits for a greenlet has it. So memory is searched for objects of the type and of those that inherit from
it. A suspended greenlet keeps its innermost frame, which begins a chain of its own. Up to greenlet 1 all is in the object, since 2.0 in a
structure of C++ that it points to; how large that is depends on both versions, so what is behind the frame is found by what it must be.

Sources: src/greenlet/greenlet.h of greenlet 0.4 to 3.5, greenlet_greenlet.hpp (TGreenlet.hpp) and greenlet_thread_state.hpp since 2.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

import msgspec

from crashkit.interpreter.frames import Frames, FrameState, Stack
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.search import places_of
from crashkit.interpreter.threads import module_contents
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import TimeUp, Unreadable

MOST_GREENLETS = 100_000
_MOST_FRAMES = 200
"""Of one greenlet."""
_MOST_TYPES = 500
_MOST_SEARCHED = 2 << 30
"""Bytes of memory that are looked through."""
_PATIENCE = 3.0
"""Seconds of processor time after which no more greenlets are read."""

_MAIN = (1 << 64) - 1
"""`stack_stop` of a thread's own greenlet."""
_SUBCLASSES_BEHIND_DICTIONARY = 72
"""From `tp_dictoffset` to `tp_subclasses`, in a PyTypeObject of any version."""
_FRAME_AT = 8
"""`PyFrameObject.f_frame`, 3.11 and newer, behind the object's head."""
_IMPLEMENTATION_AT = 16
"""`PyGreenlet.pimpl`, greenlet 2.0 and newer, whose objects end there, behind the object's head."""
_TAIL = 24
"""Words behind the frame among which `_self`, `_main_greenlet`, `_run_callable` and `_parent` are."""


class GreenletState(msgspec.Struct, frozen=True):
    """One greenlet that has not ended."""

    address: int
    type: str
    state: str
    """running, suspended, new (it has not begun)."""
    is_main: bool
    """Whether it is what its thread ran before it switched to any other."""
    stack: Optional[int]
    """An address in the C stack of its thread."""
    parent: Optional[int]
    """Address of the greenlet that goes on when this one ends."""
    stood: Stack
    """The frames of a suspended one, innermost first."""

    @property
    def frames(self) -> tuple[FrameState, ...]:
        """The innermost ones."""
        return self.stood.inner[:_MOST_FRAMES]


class Greenlets(msgspec.Struct, frozen=True):
    """The greenlets of one interpreter."""

    found: tuple[GreenletState, ...] = ()
    in_time: bool = True
    """False if the time ran out."""
    left_out: int = 0
    """How many there are besides."""
    all_counted: bool = True
    """False if there may be still more."""


class _Seen(msgspec.Struct, frozen=True):
    """What an object tells by itself. All but the first two are addresses."""

    address: int
    kind: int
    start: int
    """0 for one that has not begun or has ended."""
    stop: int
    """Where its C stack begins; 0 for one that has not begun."""
    frame: int
    own: tuple[int, ...]
    """Words among which its parent is, the thread's own greenlet first among the greenlets that they name."""


class GreenletReader:
    """Reads the greenlets of one interpreter."""

    def __init__(self, objects: Objects, frames: Frames, values: Values) -> None:
        self._objects, self._frames, self._values = objects, frames, values
        self._view = objects.view
        self._implementation_at = objects.head + _IMPLEMENTATION_AT
        self._has_implementation = True
        self._kinds: dict[int, str] = {}

    def read(self, interpreter: int) -> Greenlets:
        """The greenlets that have not ended, running ones first; none where there are only the threads' own."""
        seen: dict[int, _Seen] = {}
        found: list[GreenletState] = []
        all_counted = done = False
        try:
            with self._objects.within(_PATIENCE):
                for one in self._search(interpreter):
                    seen[one.address] = one
                    if len(seen) >= MOST_GREENLETS:
                        break
                else:
                    all_counted = True
        except TimeUp:
            pass
        if all(one.stop in (0, _MAIN) for one in seen.values()):
            return Greenlets((), all_counted, 0, all_counted)
        try:
            with self._objects.within(_PATIENCE):
                for state in self._states(seen):
                    found.append(state)
            done = True
        except TimeUp:
            pass
        ordered = tuple(sorted(found, key=lambda one: one.state != "running"))
        return Greenlets(ordered, all_counted and done, len(seen) - len(found), all_counted)

    def _search(self, interpreter: int) -> Iterator[_Seen]:
        try:
            contents = module_contents(self._objects, interpreter, "greenlet")
            kind = self._objects.item(contents, "greenlet") if contents else None
        except Unreadable:
            return
        if not kind:
            return
        try:
            self._has_implementation = self._view.word(kind + self._objects.layout.type.basic_size) == self._implementation_at + 8
        except Unreadable:
            return
        # What C calls it is in a file that may be missing.
        self._kinds = dict.fromkeys(self._with_subclasses(kind), "") | {kind: "greenlet.greenlet"}
        for place in places_of(self._view, list(self._kinds), _MOST_SEARCHED):
            try:
                one = self._seen(place - self._objects.layout.object.type)
            except Unreadable:
                continue
            # One that has begun and not gone on is over.
            if one is not None and (one.start or not one.stop):
                yield one

    def _with_subclasses(self, kind: int) -> list[int]:
        """The type and all that inherit from it."""
        found = [kind]
        for one in found:
            try:
                references = self._view.word(one + self._objects.layout.type.dictionary + _SUBCLASSES_BEHIND_DICTIONARY)
                for item in self._objects.dictionary(references, _MOST_TYPES) if references else ():
                    referent = self._view.word(item.value + self._objects.head)  # `PyWeakReference.wr_object`
                    if referent not in found and len(found) < _MOST_TYPES:
                        found.append(referent)
            except Unreadable:
                continue
        return found

    def _seen(self, address: int) -> Optional[_Seen]:
        """None if what points to the type is no greenlet, or one that was freed."""
        view, kind = self._view, self._objects.type_of(address)
        if not self._objects.is_alive(address):
            return None
        if self._has_implementation:
            return self._of_implementation(address, kind)
        start, stop, copy, saved, _previous, parent, _run, frame = (view.word(address + 16 + 8 * index) for index in range(8))
        # Nothing points back here: what only looks like a greenlet, such as old words in a stack's copy, must fail one of these.
        related = self._objects.type_of(parent) in self._kinds if parent else stop == _MAIN
        saves = start <= stop and saved <= stop - start and (copy != 0) == (saved != 0) and (start != 0 or not copy)
        if not related or not saves or (frame and self._frames.frame(frame).code is None):
            return None
        return _Seen(address, kind, start, stop, frame, (parent,))

    def _of_implementation(self, address: int, kind: int) -> Optional[_Seen]:
        view = self._view
        start = view.word(address + self._implementation_at)
        # Behind the table of virtual functions: `_self` (3.1 and newer), the exceptions being handled, two arguments, the C stack.
        handled = 3 if self._objects.version >= (3, 11) or self._objects.version < (3, 7) else 5
        names_itself = view.word(start + 8) == address
        stack = start + 8 * (1 + names_itself + handled + 2)
        # Contexts came with 3.7.
        frame = stack + 8 * (5 + (self._objects.version >= (3, 7)))
        tail = tuple(self._words(frame + 8))
        if not names_itself and address not in tail:
            return None
        return _Seen(address, kind, view.word(stack), view.word(stack + 8), view.word(frame), tail)

    def _words(self, start: int) -> Iterator[int]:
        try:
            for index in range(_TAIL):
                yield self._view.word(start + 8 * index)
        except Unreadable:
            return

    def _states(self, seen: dict[int, _Seen]) -> Iterator[GreenletState]:
        lineage = self._lineage(seen)
        main_of = {address: self._main(address, seen, lineage) for address in seen}
        stacks = {main_of[one.address]: one.stop for one in seen.values() if one.stop not in (0, _MAIN)}
        running = self._running(seen, main_of)
        for address in sorted(seen, key=lambda address: address not in running):
            one = seen[address]
            is_main = one.stop == _MAIN
            stood = self._stack(one.frame) if one.stop and address not in running else Stack()
            yield GreenletState(
                address,
                self._kinds[one.kind] or self._values.type_name(one.kind),
                "running" if address in running else "suspended" if one.stop else "new",
                is_main,
                one.stop if one.stop not in (0, _MAIN) else stacks.get(main_of[address]),
                lineage.get(address),
                stood,
            )

    def _lineage(self, seen: dict[int, _Seen]) -> dict[int, int]:
        """Parents, by address of the child."""
        parents: dict[int, int] = {}
        behind: set[int] = set()
        for one in seen.values():
            if one.stop == _MAIN:
                continue
            if len(one.own) == 1:
                parents[one.address] = one.own[0]
                continue
            # `_main_greenlet`, `_run_callable`, `_parent`: at the same place in all of them.
            for index, word in enumerate(one.own[:-2]):
                main = seen.get(word)
                if main is not None and main.stop == _MAIN:
                    behind.add(index + 2)
                    break
        place = min(behind, default=None)
        for one in seen.values():
            if place is not None and one.stop != _MAIN and place < len(one.own):
                parents[one.address] = one.own[place]
        return {child: parent for child, parent in parents.items() if parent in seen}

    def _main(self, address: int, seen: dict[int, _Seen], lineage: dict[int, int]) -> int:
        """The thread's own greenlet above this one; 0 if it is not known."""
        passed: set[int] = set()
        while address in seen and seen[address].stop != _MAIN and address not in passed:
            passed.add(address)
            address = lineage.get(address, 0)
        return address if address in seen and seen[address].stop == _MAIN else 0

    def _running(self, seen: dict[int, _Seen], main_of: dict[int, int]) -> set[int]:
        """One for each thread: the one that the thread's state names, else the one without a frame of its own."""
        found: set[int] = set()
        for main in {one for one in main_of.values() if one}:
            told = self._current(seen[main])
            if told in seen:
                found.add(told)
                continue
            frameless = [one for one in seen if main_of[one] == main and seen[one].stop and not seen[one].frame]
            found.update(frameless[:1] if len(frameless) == 1 else ())
        return found

    def _current(self, main: _Seen) -> int:
        """By `_thread_state` behind `_self` of the thread's own greenlet: the state begins with that one and the current one."""
        for own, place in zip(main.own, main.own[1:], strict=False):
            try:
                if own == main.address and place and self._view.word(place) == main.address:
                    return self._view.word(place + 8)
            except Unreadable:
                continue
        return 0

    def _stack(self, frame: int) -> Stack:
        if not frame:
            return Stack()
        try:
            return self._frames.stack(
                self._view.word(frame + self._objects.head + _FRAME_AT) if self._objects.version >= (3, 11) else frame
            )
        except Unreadable:
            return Stack(cut=True)
