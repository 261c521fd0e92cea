"""The Python side of a live process: its interpreter, and the memory that its Python stacks are read from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from crashkit.arch import Architecture
from crashkit.attempt import attempt
from crashkit.elf.headers import Word
from crashkit.evidence.core.modules import loaded_modules, torch_storage
from crashkit.evidence.interpreter import find_interpreter
from crashkit.interpreter.finding import Module
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.read import read_python
from crashkit.memory import MemoryThread
from crashkit.memory.live import LiveProcess
from crashkit.memory.pages import SIZE, Pages
from crashkit.model import Mapping

_THREADS, _FRAMES = 64, 100
"""Those whose variables are read, too."""
_MOST_RANGES, _GAP = 1000, 4096
"""Each takes a hundredth of a millisecond in which the process is stopped; a program with torch has 700."""


def interpreter_of(memory: LiveProcess) -> Optional[tuple[Module, Version]]:
    """The module that contains CPython, and its version; None if there is none, or one too old to be read."""
    try:
        executable = os.readlink(f"/proc/{memory.pid}/exe")
    except OSError:
        return None
    found = find_interpreter(loaded_modules(memory), executable)
    if found is None or found.version is None or found.is_too_old:
        return None
    major, minor = map(int, found.version.split("."))
    # In a container, its files are below its own root.
    file = Path(f"/proc/{memory.pid}/root{found.module.path}")
    return Module(found.module, file), Version(major, minor, found.free_threaded)


def python_ranges(memory: LiveProcess) -> list[tuple[int, int]]:
    """The memory from which the stacks of the process are read as it stands, with their variables and locks; it runs meanwhile."""
    noted = _Noted(memory)
    attempt("attach", "reading Python's memory in advance", lambda: _read(memory, noted), None, [])
    return merged(list(noted.pages.ranges()))


def _read(memory: LiveProcess, noted: _Noted) -> None:
    interpreter = interpreter_of(memory)
    state = read_python(noted, [interpreter[0]], interpreter[1], {}) if interpreter is not None else None
    if state is None:
        return
    for thread in state.threads[:_THREADS]:
        for frame in thread.stack.inner[:_FRAMES]:
            state.variables(frame)
    state.locks()
    size = torch_storage(memory, loaded_modules(memory))
    if memory.architecture.descriptor_at_thread_pointer and size is not None:
        for thread in state.threads[:_THREADS]:
            state.forward(thread.state.ident, size)


def merged(ranges: Sequence[tuple[int, int]], most: int = _MOST_RANGES) -> list[tuple[int, int]]:
    """At most so many ranges, by address, that hold all of these: neighbours become one."""
    gap = _GAP
    while True:
        found: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if found and start - found[-1][1] <= gap:
                found[-1] = found[-1][0], max(found[-1][1], end)
            else:
                found.append((start, end))
        if len(found) <= most:
            return found
        gap *= 2


class _Noted:
    """A `Memory` that notes what is read."""

    def __init__(self, memory: LiveProcess) -> None:
        self._memory = memory
        self.pages = Pages()

    @property
    def architecture(self) -> Architecture:
        return self._memory.architecture

    @property
    def word(self) -> Word:
        return self._memory.word

    @property
    def page(self) -> int:
        return SIZE

    def read(self, address: int, size: int) -> bytes:
        data = self._memory.read(address, size)
        self.pages.add(address, len(data))
        return data

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        return self._memory.scan(start, end)

    def mappings(self) -> Sequence[Mapping]:
        return self._memory.mappings()

    def threads(self) -> Sequence[MemoryThread]:
        return self._memory.threads()
