"""The function that called through a wrong pointer and left no frame: its last call was a jump, after it had left the stack.

Its caller did call it. The return address is still where calls leave it, at the stack pointer, and the call before that names the function:
it had not returned, or nothing would be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Optional

from msgspec.structs import replace

from crashkit.arch import Architecture
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.memory import Memory, word_at
from crashkit.model import Address, Crash, NativeFrame, Offset, Thread
from crashkit.naming.itanium import demangled_function
from crashkit.stacks.unwinding import Unwinding

TAIL_CALL = "tail-call"
_JUMPS = frozenset({"null-pointer", "unmapped", "no-exec"})
"""What a jump to a wrong address leads to where the program counter has that address."""

Read = Callable[[int, int], bytes]


def with_tail_call(
    crash: Crash,
    architecture: Architecture,
    memory: Memory,
    constants: Read,
    modules: Sequence[LoadedModule],
    files: Mapping[str, Optional[Path]],
) -> Crash:
    """The crash with that function among the frames of the crashed thread, where the call proves it.

    `constants` reads memory, or what a core omits from a module's file; `files` are those of the modules.
    """
    signal, thread = crash.signal, crash.thread
    if signal is None or thread is None or signal.access != "execute" or signal.reason not in _JUMPS or signal.address is None:
        return crash
    at = _jumped(thread, int(signal.address))
    if at is None:
        return crash
    caller = thread.frames[at + 1]
    registers = {name: int(value) for name, value in thread.registers.items()}
    stack_pointer = registers.get(architecture.stack_pointer)
    if stack_pointer is None or not isinstance(caller, NativeFrame) or caller.pc is None:
        return crash
    returns_to = architecture.return_address(registers, memory.read(stack_pointer, memory.word.size))
    if returns_to != caller.pc:
        return crash
    called = architecture.called_before(returns_to, constants, partial(word_at, memory))
    index = ModuleIndex(modules)
    module = index.at(called) if called else None
    unwinding = Unwinding(index, files, architecture)
    # Bytes that look like a call name no function's first instruction.
    if not called or called == signal.address or module is None or unwinding.function_start(called) != called:
        return crash
    name = unwinding.name(called)
    lost = NativeFrame(
        function=demangled_function(name) if name else None,
        module=module.path,
        offset=Offset(called - module.base),
        pc=Address(called),
        trust=TAIL_CALL,
    )
    whole = replace(thread, frames=(*thread.frames[: at + 1], lost, *thread.frames[at + 1 :]))
    return replace(crash, threads=tuple(whole if one is thread else one for one in crash.threads))


def _jumped(thread: Thread, address: int) -> Optional[int]:
    """The place of the frame that is at the wrong address, if a frame of native code called it."""
    for index, frame in enumerate(thread.frames[:-1]):
        if isinstance(frame, NativeFrame) and frame.pc == address:
            return index
    return None
