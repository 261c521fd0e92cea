"""The system call that a thread is in, from its registers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import msgspec

from crashkit.arch import Architecture
from crashkit.model import Thread

Read = Callable[[int, int], bytes]
"""Memory at an address; short or empty if it is missing."""


class Blocked(msgspec.Struct, frozen=True):
    """The system call that a thread is in."""

    name: str
    arguments: tuple[int, ...]


def call_of(thread: Thread, architecture: Architecture, read: Read) -> Optional[Blocked]:
    """The system call that the thread is in; None if it is in none that can wait, or that is not known."""
    number = thread.registers.get(architecture.system_call or "")
    pc = thread.registers.get(architecture.program_counter)
    if number is None or pc is None or number not in architecture.system_calls:
        return None
    # Before the kernel restarts a call it steps back to the instruction.
    around = [(read(pc - len(code), len(code)), read(pc, len(code)), code) for code in architecture.system_call_codes]
    if not any(code in (before, behind) for before, behind, code in around):
        # The code may be in a file that is not here.
        is_known = any(before or behind for before, behind, _ in around)
        if is_known or not architecture.system_call_is_told:
            return None
    arguments = tuple(int(thread.registers.get(name, 0)) for name in architecture.system_call_arguments)
    return Blocked(architecture.system_calls[number], arguments)
