"""The fault behind a signal handler, read back from the frame that the kernel pushed for the handler.

A handler that re-raises (faulthandler, torch's DataLoader workers) leaves a core whose siginfo speaks of the raise, and whose
registers stand on the alternate stack. The kernel saved the true registers, the trap number and the fault address in the
`struct ucontext` of the handler's frame (`struct rt_sigframe`, arch/x86/include/asm/sigframe.h; `struct sigcontext_64`,
arch/x86/include/uapi/asm/sigcontext.h). x86-64 only.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional

from crashkit.evidence.core.core import Core
from crashkit.evidence.core.fault import UCONTEXT_SIZE, Trap, read_ucontext

_SELECTORS_AT = 0xB8
# cs = 0x33 and ss = 0x2b with gs and fs 0 between them: every 64-bit process on Linux.
_SELECTORS = struct.pack("<HHHH", 0x33, 0, 0, 0x2B)
# faulthandler's alternate stack is SIGSTKSZ times 1.5 or more; a handler that formats text may use most of it.
_WINDOW = 1 << 20
_MOST_TRAP = 32


class SignalFrame(NamedTuple):
    """`address` is where the ucontext lies."""

    address: int
    registers: dict[str, int]
    trap: Trap


def find(core: Core, stack_pointer: int) -> Optional[SignalFrame]:
    """The innermost signal frame above the stack pointer, or None."""
    if core.architecture != "x86_64":
        return None
    start = stack_pointer & ~7
    segment = core.segment(start)
    if segment is None:
        return None
    window = core.read(start, min(_WINDOW, segment.end - start))
    at = window.find(_SELECTORS)
    while at >= 0:
        if at % 8 == 0 and at >= _SELECTORS_AT + 8:
            found = _decode(core, window, start, at - _SELECTORS_AT)
            if found is not None:
                return found
        at = window.find(_SELECTORS, at + 1)
    return None


def _decode(core: Core, window: bytes, start: int, at: int) -> Optional[SignalFrame]:
    if at + UCONTEXT_SIZE > len(window):
        return None
    (restorer,) = struct.unpack_from("<Q", window, at - 8)
    code = core.segment(restorer)
    if code is None or not code.flags & 1:
        return None
    registers, trap = read_ucontext(window[at : at + UCONTEXT_SIZE])
    if trap.number > _MOST_TRAP:
        return None
    return SignalFrame(start + at, registers, trap)
