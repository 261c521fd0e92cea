"""gdb over a core that is no file: it gets a small one in memory, and another one when it misses memory that the whole one has."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import BinaryIO, Optional

from crashkit.debugger.contract import Answer, IsWanted, Lap, always
from crashkit.debugger.gdb.debugger import GdbDebugger, GdbSettings
from crashkit.debugger.gdb.reads import logged_misses, logged_reads
from crashkit.errors import EvidenceError
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.describe import Scene
from crashkit.evidence.core.minimal import write_for_debugger
from crashkit.evidence.module_files import Finder
from crashkit.memory.pages import Pages
from crashkit.model import SoftError

_MOST_ROUNDS = 6
_WHOLE = 64 << 20
"""Bytes: up to here gdb gets the whole."""
_AROUND = 32 << 10
"""Bytes on either side of what gdb missed: it follows pointers, and misses one after the other."""
_PIECE = 1 << 20


class OnDemand:
    """A `Debugger`, namely gdb. What it reads is added to the core's `reads`."""

    name = "gdb"

    def __init__(self, core: Core, settings: GdbSettings, finder: Finder) -> None:
        self._core = core
        self._settings = settings
        self._finder = finder
        self._gdb = GdbDebugger(settings, finder)
        self._around: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._ended = False

    def start(self) -> Optional[SoftError]:
        """Nothing: each round has a gdb of its own."""
        return None

    def reads_python(self, scene: Scene) -> bool:
        """As gdb."""
        return self._gdb.reads_python(scene)

    def close(self) -> None:
        """End gdb; no later round starts one."""
        with self._lock:
            self._ended = True
            self._gdb.close()

    def examine(self, core: Path, scene: Scene, native: bool, lap: Lap, python: IsWanted = always) -> Answer:
        """As gdb; the path means nothing."""
        python()  # once that is known, what crashkit reads itself is in the core that gdb gets
        for _ in range(_MOST_ROUNDS):
            with _Nameless() as log, _Nameless() as small:
                gdb = self._next(log.path)
                problem = gdb.start()
                if problem is not None:
                    return Answer(soft_errors=(problem,))
                try:
                    self._write(small.file, scene)
                except (EvidenceError, OSError) as error:
                    return Answer(soft_errors=(SoftError(stage="gdb", message=f"gdb could not be used: {error}"),))
                answer = gdb.examine(small.path, scene, native, lap, python)
                for address, size in logged_reads(log.path):
                    if self._core.reads is not None:
                        self._core.reads.add(address, size)
                known = len(self._around)
                there = self._core.aside()
                self._around += dict.fromkeys(one for one in logged_misses(log.path) if one not in self._around and there.read(*one))
                if len(self._around) == known:
                    break
        return answer

    def _next(self, reads: Path) -> GdbDebugger:
        """The gdb of the next round; one that does not start if `close` was called before."""
        gdb = GdbDebugger(self._settings._replace(reads=reads), self._finder)
        with self._lock:
            self._gdb.close()
            self._gdb = gdb
            if self._ended:
                gdb.close()
        return gdb

    def _write(self, file: BinaryIO, scene: Scene) -> None:
        """The core that gdb gets."""
        core = self._core.aside()
        if core.size <= _WHOLE:
            for at in range(0, core.size, _PIECE):
                if any(data := core.part_of_file(at, _PIECE)):
                    file.seek(at)
                    file.write(data)
            file.truncate(core.size)
        else:
            core.reads = Pages()
            for start, end in self._core.reads.ranges() if self._core.reads is not None else ():
                core.reads.add(start, end - start)
            for address, size in self._around:
                core.reads.add(max(0, address - _AROUND), size + 2 * _AROUND)
            missing = {module.path for module in scene.modules if scene.files[module.path].path is None}
            write_for_debugger(core, file, scene.modules, missing)
        file.flush()


class _Nameless:
    """A file in memory, at whose path another process can open it."""

    def __init__(self) -> None:
        self.file: BinaryIO = os.fdopen(os.memfd_create("crashkit", os.MFD_CLOEXEC), "r+b")
        self.path = Path(f"/proc/{os.getpid()}/fd/{self.file.fileno()}")

    def __enter__(self) -> _Nameless:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
