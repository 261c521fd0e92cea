"""What the process said as it died, from the core alone: nobody may have kept what it wrote, and it may have written nothing.

Everything is read from memory and from the modules' files, without a debugger and without debug info.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Optional

import msgspec

from crashkit.evidence.core.abort_message import abort_message
from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.cxx_exception import Thrown, handled, in_flight
from crashkit.evidence.core.describe import Scene, text_at
from crashkit.evidence.core.fatal_error import fatal_error
from crashkit.evidence.core.freed_chunk import freed_chunk
from crashkit.evidence.core.logged import fatal_message
from crashkit.evidence.core.qt_message import qt_message
from crashkit.evidence.core.rust_panic import panic
from crashkit.evidence.core.stream_message import stream_message
from crashkit.evidence.core.walk import Frame, names, walk
from crashkit.regex import regex

# What throws or looks for a handler is on the stack only where there is none: the runtime ends the process from within.
_TERMINATES = regex(
    r"_ZSt9terminatev|_ZN10__cxxabiv111__terminateE\w+|_ZN9__gnu_cxx27__verbose_terminate_handlerEv"
    r"|__cxa_call_terminate|__cxa_(?:re)?throw|__gxx_personality_v\d"
)
_RAISES = frozenset({"SIGABRT", "SIGTRAP", "SIGILL"})
"""What a process that gives up on itself is ended by."""


_VERDICTS = {
    "twice": ("heap-freed-twice", "the block {block} is in the allocator's list of free blocks already"),
    "merged": ("heap-freed-twice", "the block {block} is in a free block of the allocator's already"),
    "unlisted": (
        "heap-damaged",
        "the header at {end}, where the block {block} ends, says that it is free, but no list has it: something wrote past its end",
    ),
    "size": (
        "heap-damaged",
        "the header of the block {block} has a size that no block has, {size}: overwritten, or this is no block",
    ),
    "behind": ("heap-damaged", "no header stands at {end}, where the block {block} ends: that or the block's own header was overwritten"),
}
"""Kind of the line and its text, for each verdict on a block that free() refused."""


class Words(msgspec.Struct, frozen=True):
    """One thing that was said."""

    text: str
    kind: Optional[str] = None
    """As in `LogLine.kind`; None: by its text."""
    fields: Mapping[str, str] = {}
    thrown: Optional[int] = None
    """The address of the exception of C++ that nobody caught. None for one of the C++ library's, which refers to nothing of Python."""


def last_words(core: Core, scene: Scene) -> list[Words]:
    """In the order in which a reader wants them: the process's own message, then what led to it."""
    if not core.statuses or not scene.faults:
        return []
    return list(_Dying(core, scene).words())


class _Dying:
    """The thread that ended the process."""

    def __init__(self, core: Core, scene: Scene) -> None:
        self._core = core
        self._scene = scene
        self._arch = core.architecture
        registers = scene.faults[-1].registers
        self._stack_pointer = registers.get(self._arch.stack_pointer, 0)
        self._thread_pointer = registers.get(self._arch.thread_pointer or "", 0)
        self._frames: list[Frame] = walk(core, scene.modules, scene.files, registers)
        self._names = names(self._frames, scene.files)
        self._read: Callable[[int, int], bytes] = lambda address, size: read_constant(core, scene.files, address, size)
        self._text: Callable[[int], Optional[str]] = lambda address: text_at(core, scene.files, address)

    def words(self) -> Iterator[Words]:
        fatal = fatal_error(self._frames, self._names, self._read, self._text, self._arch)
        if fatal is not None:
            yield Words(fatal)
        signal = self._scene.crash.signal
        aborted = signal is not None and (signal.name == "SIGABRT" or signal.ended_with == "SIGABRT")
        if aborted:
            message = abort_message(self._core, self._scene.modules)
            if message:
                yield Words(message)
            if message and message.startswith("double free or corruption"):
                yield from self._of_heap()
        if signal is not None and signal.name in _RAISES and fatal is None:
            yield from self._of_libraries()

    def _of_heap(self) -> Iterator[Words]:
        """What the heap shows of the block, where the message may mean either."""
        chunk = freed_chunk(self._frames, self._names, self._core)
        if chunk is not None and chunk.verdict is not None:
            kind, said = _VERDICTS[chunk.verdict]
            said = said.format(block=f"{chunk.address:#x}", size=f"{chunk.size:#x}", end=f"{chunk.address + chunk.size - 16:#x}")
            yield Words(said, kind, {"heap": said})

    def _of_libraries(self) -> Iterator[Words]:
        terminated = [name for name in self._names if name is not None and _TERMINATES.fullmatch(name)]
        thrown = handled(self._core, self._thread_pointer, self._text) if self._thread_pointer else None
        known = self._arch.dynamic_thread_vector is not None and self._core.missing == 0 and "__cxa_throw" not in terminated
        if terminated and thrown is None and known:
            yield Words("terminate called without an active exception")
        elif thrown is not None:
            said = "terminate called after throwing an instance of" if terminated else "aborted while handling a C++ exception of type"
            yield Words(f"{said} '{thrown.type}'", thrown=thrown.address if terminated and not thrown.is_standard else None)
            if thrown.what:
                yield Words(f"  what():  {thrown.what}")
        if terminated:
            yield from map(_unwinding, in_flight(self._core, [frame.registers for frame in self._frames], self._text))
        logged = fatal_message(self._core, self._frames, self._core.statuses[0].tid)
        if logged is not None:
            yield Words(logged)
        qt = qt_message(self._frames, self._names, self._read, self._text, self._arch)
        if qt is not None:
            yield Words(qt)
        streamed = stream_message(self._core, self._stack_pointer, self._text)
        if streamed is not None:
            yield Words(f"F {streamed.place}] {streamed.text}", "glog-check", {"place": streamed.place, "expression": streamed.text})
        panicked = panic(self._core, self._stack_pointer, self._read)
        if panicked is not None:
            fields = {name: value for name, value in panicked._asdict().items() if value is not None}
            where = f" at {panicked.place}" if panicked.place else ""
            yield Words(f"panicked{where}: {panicked.message}", "rust-panic", fields)


def _unwinding(thrown: Thrown) -> Words:
    words = f"'{thrown.type}'" + (f": {thrown.what}" if thrown.what else "")
    return Words(f"a C++ exception was unwinding the stack: {words}", "cxx-in-flight", {"type": thrown.type, "said": words})
