"""A core that two threads read: while one reads values, the other gives gdb what it misses."""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor

from crashkit.evidence.core.core import Core
from tests.crashes import a_debuggable_interpreter, python_crash


class Shared(io.FileIO):
    """With one position for all, as the memory of a stopped process has."""

    def seek(self, offset: int, whence: int = 0) -> int:
        self.wanted = offset
        return super().seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        self.torn |= self.tell() != self.wanted or self.busy
        self.busy = True
        try:
            return super().read(-1 if size is None else size)
        finally:
            self.busy = False

    wanted, torn, busy = 0, False, False


def test_each_thread_gets_what_it_asked_for() -> None:
    path = python_crash("threads.py", python=a_debuggable_interpreter()).core
    whole = path.read_bytes()
    interval = sys.getswitchinterval()
    with Shared(str(path)) as file:
        core = Core(file, path, len(whole))
        places = range(0, len(whole) - 64, len(whole) // 20_000)

        def right(ordered: range) -> bool:
            return all(core.part_of_file(place, 64) == whole[place : place + 64] for place in ordered)

        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(2) as pool:
                assert all(pool.map(right, (places, places[::-1])))
        finally:
            sys.setswitchinterval(interval)
        assert not file.torn
