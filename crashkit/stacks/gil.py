"""Which threads wait for the GIL: by what they wait for in the kernel, and by their frames. Pure.

A free-threaded build has one that is off, unless an extension or PYTHON_GIL=1 turned it on. The functions that wait for it are called
there, too: a thread in them waits until a stopped world goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from crashkit.arch import Architecture
from crashkit.model import Crash, Thread
from crashkit.naming.gil import waits_for_gil
from crashkit.naming.machinery import handler_end
from crashkit.stacks.system_call import Read, call_of


def with_gil(crash: Crash, architecture: Architecture, read: Read, places: Sequence[range]) -> Crash:
    """The crash with each thread's `waits_for_gil`, and nobody's `holds_gil` where there is none to hold.

    `places` are the addresses at which threads wait for the GIL, from its own state: none where it is off.
    """
    if crash.python is not None and crash.python.free_threaded and not places:
        return replace(crash, threads=tuple(replace(one, holds_gil=None, waits_for_gil=False) for one in crash.threads))
    return replace(crash, threads=tuple(replace(one, waits_for_gil=_waits(one, architecture, read, places)) for one in crash.threads))


def _waits(thread: Thread, architecture: Architecture, read: Read, places: Sequence[range]) -> bool | None:
    call = call_of(thread, architecture, read) if places else None
    if call is not None and call.name == "futex" and any(call.arguments[0] in place for place in places):
        return True
    # Between two waits, or under a handler of a signal, it is in another call or in none.
    if waits_for_gil(thread.frames[handler_end(thread.frames) :]):
        return True
    return False if places and thread.holds_gil is not None else None
