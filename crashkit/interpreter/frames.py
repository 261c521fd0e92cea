"""The Python frames of one thread, from its current one outwards, as faulthandler walks them (Python/traceback.c).

Up to 3.10 each frame is a `PyFrameObject`, run by an interpreter call of its own. From 3.11 on it is a `_PyInterpreterFrame`, and one call
runs several; from 3.12 on a frame that belongs to C marks where a call begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple, Optional

import msgspec

from crashkit.interpreter import datastack
from crashkit.interpreter.cframes import CStacks
from crashkit.interpreter.code import Code, Slot, read_code, read_slots
from crashkit.interpreter.frame_fields import LAST_OWNER, OWNED_BY_C, OWNED_BY_OBJECT, OWNED_BY_THREAD, TAGS, globals_at, locals_at
from crashkit.interpreter.linetable import Position
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.running import running_chains
from crashkit.interpreter.upwards import Upwards
from crashkit.interpreter.view import Unreadable
from crashkit.limits import WHOLE_STACK

INNER, OUTER = WHOLE_STACK, 200
"""Frames read at either end of a deep stack."""
_MOST_FRAMES, _MOST_LINKS = 500_000, 8_000_000
"""Of all threads together: frames read, and frames only counted. A damaged or hostile core could have any number."""
_MOST_INNERMOST = 16
"""Frames of one C stack of which it is tried whether they are the innermost."""
_MOST_TABLES = 16 << 20
"""Bytes of line tables decoded, which takes some seconds."""
_TAGGED_INTEGER = 3

_LAST_LINE = 10_000_000

IsMapped = Callable[[int], bool]
"""Whether the process had memory at an address, be it in the core or not."""


class FrameState(NamedTuple):
    """One frame."""

    address: int
    code: Optional[Code]
    """None if the code object is missing from the memory at hand."""
    position: Optional[Position]
    is_entry: bool
    """Whether an interpreter call begins here."""


class Variable(msgspec.Struct, frozen=True):
    """A variable of a frame."""

    name: str
    value: int
    """Address of the object."""
    is_argument: bool


class Stack(msgspec.Struct, frozen=True):
    """The frames of one thread, innermost first; of a deep stack both ends, of one with a gap what lies on either side of it."""

    inner: tuple[FrameState, ...] = ()
    outer: tuple[FrameState, ...] = ()
    total: Optional[int] = None
    """How many frames a deep stack has."""
    cut: bool = False
    """Whether the way outwards is lost."""
    gap: bool = False
    """Whether frames may be missing between `inner` and `outer`; where there is no `outer`, further in than `inner`."""


class Frames:
    """Reads stacks; each code object once."""

    def __init__(self, objects: Objects, is_mapped: IsMapped) -> None:
        self._objects = objects
        self._view = objects.view
        self._layout = objects.layout.frame
        self._is_mapped = is_mapped
        self._upwards = Upwards(objects, is_mapped)
        self._c_stacks: Optional[CStacks] = None
        self._codes: dict[int, Optional[Code]] = {}
        self._slots: dict[int, tuple[Slot, ...]] = {}
        self._positions: dict[tuple[int, int], Optional[Position]] = {}
        self._frames_left, self._links_left, self._tables_left = _MOST_FRAMES, _MOST_LINKS, _MOST_TABLES

    def stack(self, address: Optional[int], state: Optional[int] = None) -> Stack:
        """The stack whose innermost frame is at `address`; 0 for none, None if that is lost.

        Where the memory that leads on is lost, the data stack of the thread state at `state` does.
        """
        inner: list[FrameState] = []
        seen: set[int] = set()
        behind: Optional[dict[int, int]] = None
        try:
            if address is None:
                address, behind = self._order(state, None)
            current = address
            while address and len(inner) < INNER:
                self._frames_left -= 1
                if address in seen or self._frames_left < 0:
                    raise Unreadable("a stack that never ends")
                seen.add(address)
                if inner and self._is_lost(address):
                    if behind is None:
                        _, behind = self._order(state, current)
                    if address not in behind:
                        raise Unreadable("a frame that is lost")
                    inner[-1] = inner[-1]._replace(is_entry=True)
                    address = behind[address]
                else:
                    address = self._add(address, inner)
        except Unreadable:
            outer = self._outer(inner, state) if state is not None else ()
            return Stack(tuple(inner), outer, cut=True, gap=bool(outer)) if inner else Stack(outer, cut=True, gap=bool(outer))
        return self._deep(inner, address) if address else Stack(tuple(inner))

    def upwards(self, newest: int) -> tuple[FrameState, ...]:
        """The frames that are sure on the data stack whose newest part is at `newest`, where the state of its thread is lost."""
        return self._all(self._upwards.frames(newest))

    def running(self, types: Collection[int], known: Collection[int]) -> list[tuple[FrameState, ...]]:
        """The running frames in memory besides those at the `known` addresses, as they name each other: from 3.11 on only those of
        generators and coroutines.

        `types` is where the types are of what holds them.
        """
        return [self._all(chain) for chain in running_chains(self._objects, self._is_mapped, types, known)]

    def on_c_stack(self, registers: Mapping[str, int]) -> Optional[Stack]:
        """By the C stack of a thread with these registers, its whole stack, where its state is lost (3.11 and 3.12); else None."""
        if self._c_stacks is None:
            self._c_stacks = CStacks(self._view.memory, self._objects.layout, self._is_running)
        named = self._c_stacks.frames(registers)
        for innermost in islice(dict.fromkeys(named), _MOST_INNERMOST):
            stack = self.stack(innermost)
            # What is left of a call that has returned names a frame that runs again, if any: one further out.
            if not stack.cut and not stack.outer and {frame.address for frame in stack.inner}.issuperset(named):
                return stack
        return None

    def _is_running(self, address: int) -> bool:
        """Whether a thread or a generator has a running frame at this address, of 3.11 and newer."""
        try:
            code, owner = self._view.word(address + self._layout.code), self._view.byte(address + (self._layout.owner or 0))
            return owner < OWNED_BY_OBJECT and code % 8 == 0 and self._is_mapped(code) and self._upwards.runs(address)
        except Unreadable:
            return False

    def is_outermost(self, frame: FrameState) -> bool:
        """Whether this frame, with which what is known of a stack ends, is the first of its thread."""
        try:
            # From 3.11 on a data stack is read from its first frame on; a generator's frame is never the first.
            if self._layout.owner is not None:
                return self._view.byte(frame.address + self._layout.owner) == OWNED_BY_THREAD
            return self._view.word(frame.address + self._layout.previous) == 0
        except Unreadable:
            return False

    def named(self, frame: FrameState) -> int:
        """The address of what this frame names as the one outwards of it, which may be an entry frame on the C stack (3.12 and newer); 0
        for none."""
        try:
            return self._view.word(frame.address + self._layout.previous)
        except Unreadable:
            return 0

    def _outer(self, inner: Sequence[FrameState], state: int) -> tuple[FrameState, ...]:
        """The frames on the data stack of this thread that lie further out than those that were reached."""
        thread = self._objects.layout.thread
        if thread.chunk is None or thread.top is None:
            return ()
        try:
            found = self._upwards.frames(self._view.word(state + thread.chunk), self._view.word(state + thread.top))
        except Unreadable:
            return ()
        reached = {frame.address for frame in inner}
        behind = max((index + 1 for index, address in enumerate(found) if address in reached), default=0)
        return self._all(found[behind:])

    def _all(self, addresses: Sequence[int]) -> tuple[FrameState, ...]:
        """The frames at these addresses, newest first; of very many the oldest, which tell whose they are.

        Nothing if one of them is no frame.
        """
        addresses = addresses[-INNER:]
        found: list[FrameState] = []
        if self._frames_left < len(addresses):
            return ()
        self._frames_left -= len(addresses)
        try:
            for address, outer in zip_longest(addresses, addresses[1:]):
                previous = self._add(address, found)
                if self._layout.is_entry is None and self._layout.owner is not None:
                    found[-1] = found[-1]._replace(is_entry=previous != outer)
        except Unreadable:
            return ()
        return tuple(found)

    def _order(self, state: Optional[int], current: Optional[int]) -> datastack.Order:
        if state is None:
            raise Unreadable("a stack without a thread state")
        return datastack.order(self._objects, state, current, self._is_mapped)

    def _is_lost(self, address: int) -> bool:
        """Whether the process had memory here that is not at hand."""
        try:
            self._view.word(address + self._layout.previous)
        except Unreadable:
            return self._is_mapped(address)
        return False

    def frame(self, address: int) -> FrameState:
        """The one frame at `address`, such as that of a suspended coroutine. Raises Unreadable."""
        found: list[FrameState] = []
        self._frames_left -= 1
        if self._frames_left >= 0:
            self._add(address, found)
        if not found:
            raise Unreadable(f"no frame at {address:#x}")
        return found[0]

    def stood(self, address: int, instruction: int, line: int) -> FrameState:
        """The frame at `address`, as a traceback has it: at this instruction, in bytes, and in this line if that is above 0.

        Raises Unreadable.
        """
        code_address = self._view.word(address + self._layout.code) & ~TAGS
        code = self._code(code_address) if self._is_mapped(code_address) else None
        if code is None:
            raise Unreadable(f"no frame at {address:#x}")
        at = instruction // 2 if self._objects.version >= (3, 11) else instruction
        known = code.position(at) if code.table is not None and at >= 0 else None
        position = Position(line) if 0 < line <= _LAST_LINE and (known is None or known.line != line) else known
        return FrameState(address, code, position, False)

    def _deep(self, inner: list[FrameState], address: int) -> Stack:
        """Follow the links without reading the frames, then read the last ones."""
        last: deque[int] = deque(maxlen=OUTER)
        outer: list[FrameState] = []
        count = steps = 0
        behind, turn = address, 1
        try:
            while address and self._links_left > 0:
                self._links_left -= 1
                steps += 1
                count += not self._is_shim(address)
                last.append(address)
                address = self._view.word(address + self._layout.previous)
                # Brent's way to notice a cycle: a set of millions of addresses would be large.
                if address == behind:
                    raise Unreadable("a stack that never ends")
                if steps == turn:
                    behind, turn = address, 2 * turn
            for place in last:
                self._add(place, outer)
        except Unreadable:
            return Stack(tuple(inner), tuple(outer), len(inner) + count, cut=True)
        return Stack(tuple(inner), tuple(outer), len(inner) + count, cut=address != 0)

    def _is_shim(self, address: int) -> bool:
        return self._layout.owner is not None and self._view.byte(address + self._layout.owner) >= OWNED_BY_C

    def _add(self, address: int, frames: list[FrameState]) -> int:
        """Add the frame at `address`, unless it runs no Python code; the address of the next one. Raises Unreadable if it is no frame."""
        layout, view = self._layout, self._view
        previous = view.word(address + layout.previous)
        owner = view.byte(address + layout.owner) if layout.owner is not None else 0
        if owner >= OWNED_BY_C:
            if owner > LAST_OWNER:
                raise Unreadable(f"no frame at {address:#x}")
            if frames:
                frames[-1] = frames[-1]._replace(is_entry=True)
            return previous
        code_address = view.word(address + layout.code) & ~TAGS
        if not self._is_mapped(code_address) or (previous and not self._is_mapped(previous)):
            raise Unreadable(f"no frame at {address:#x}")
        # Up to 3.10 each frame is one.
        is_entry = view.byte(address + layout.is_entry) != 0 if layout.is_entry is not None else layout.owner is None
        code = self._code(code_address)
        frames.append(FrameState(address, code, self._set_position(address) or self._position(address, code), is_entry))
        return previous

    def _set_position(self, address: int) -> Optional[Position]:
        """The line that somebody set, which counts before the instruction's from 3.10 on (`PyFrame_GetLineNumber`, Objects/frameobject.c):
        code that Nuitka compiled has no instructions, and a tracing function sees the line that it is told of."""
        version, view, layout = self._objects.version, self._view, self._layout
        if version < (3, 10):
            return None
        try:
            if version < (3, 11):
                line = view.int32(address + layout.instruction + 4)
            else:
                # `frame_obj` of _PyInterpreterFrame; `f_frame`, `f_lineno` of PyFrameObject, behind its head and f_back
                # (Include/internal/pycore_frame.h).
                frame = view.word(address + layout.code + view.word_size * (6 if version >= (3, 12) else 1))
                fields = frame + self._objects.layout.object.type + 2 * view.word_size
                if not frame or view.word(fields) != address:
                    return None
                line = view.int32(fields + 2 * view.word_size)
        except Unreadable:
            return None
        return Position(line) if 0 < line <= _LAST_LINE else None

    def _code(self, address: int) -> Optional[Code]:
        if address not in self._codes:
            try:
                self._codes[address] = read_code(self._objects, address)
            except Unreadable:
                self._codes[address] = None
        return self._codes[address]

    def _position(self, address: int, code: Optional[Code]) -> Optional[Position]:
        if code is None:
            return None
        try:
            instruction = self._instruction(address, code)
        except Unreadable:
            return None
        if instruction is None or code.table is None:
            return None
        place = (code.address, instruction)
        if place not in self._positions:
            self._view.check_time()
            self._tables_left -= len(code.table)
            self._positions[place] = code.position(instruction) if self._tables_left >= 0 else None
        return self._positions[place]

    def _instruction(self, address: int, code: Code) -> Optional[int]:
        """The current instruction as the code's line table counts: in bytes up to 3.10, in units of two bytes after that."""
        place = address + self._layout.instruction
        if not code.bytecode:
            index = self._view.int32(place)
            return index * 2 if self._objects.version >= (3, 10) else index
        pointer = self._view.word(place)
        index = (pointer - code.bytecode) // 2
        if -1 <= index < code.units:
            return index
        if code.copies and self._layout.bytecode_copy is not None:
            # Each thread of a free-threaded 3.14 runs a copy of its own: behind their number (Include/cpython/code.h, `_PyCodeArray`).
            copy = self._view.uint32(address + self._layout.bytecode_copy)
            index = (pointer - self._view.word(code.copies + self._view.word_size * (1 + copy))) // 2
            return index if -1 <= index < code.units else None
        return None

    def variables(self, frame: FrameState, most: int) -> list[Variable]:
        """The first `most` of the frame's variables that have a value. Those that cannot be read are omitted."""
        if frame.code is None:
            return []
        self.slots(frame.code)
        found: list[Variable] = []
        start = frame.address + self._layout.locals
        for index, slot in enumerate(self._slots[frame.code.address]):
            try:
                value = self.untagged(self._view.word(start + index * self._view.word_size))
                if value and slot.is_cell:
                    value = self._view.word(value + self._objects.layout.cell.content)
            except Unreadable:
                continue
            if value and slot.name and not slot.name.startswith("."):
                found.append(Variable(slot.name, value, index < frame.code.arguments))
                if len(found) >= most:
                    break
        return found

    def is_of_module(self, frame: FrameState) -> bool:
        """Whether the frame runs the code of a module: its variables are the module's (`f_globals`, `f_locals`)."""
        try:
            names, own = (self._view.word(frame.address + at(self._objects)) for at in (globals_at, locals_at))
        except Unreadable:
            return False
        return names != 0 and names == own

    def first_slot(self, frame: FrameState) -> int:
        """The object in the frame's first variable, which need not have a name; 0 for none. Raises Unreadable."""
        return self.untagged(self._view.word(frame.address + self._layout.locals))

    def instruction(self, frame: FrameState) -> Optional[int]:
        """The frame's current instruction, counted as in its code's tables; None if it is not known. Raises Unreadable."""
        return self._instruction(frame.address, frame.code) if frame.code is not None else None

    def slots(self, code: Code) -> int:
        """How many variables the frames of this code have, cells included."""
        if code.address not in self._slots:
            self._slots[code.address] = read_slots(self._objects, code.address)
        return len(self._slots[code.address])

    def untagged(self, value: int) -> int:
        """The address in a reference to an object; 0 for one that is none."""
        if self._objects.version < (3, 14):
            return value
        return 0 if value & _TAGGED_INTEGER == _TAGGED_INTEGER else value & ~TAGS
