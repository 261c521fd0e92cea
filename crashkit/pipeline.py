"""The path of a crash from its evidence to its account, one call a stage. Read this first.

Every stage adds to the `Crash` of the stage before. One that fails leaves a soft error and the rest of the report stands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional, Union

import msgspec

from crashkit import __version__
from crashkit.debugger.session import NativeResult, NativeThread, PlacedModule, PythonResult, Session
from crashkit.errors import DebuggerError, EvidenceError
from crashkit.evidence.core import open_core
from crashkit.evidence.describe import Scene, describe
from crashkit.evidence.elf_file import has_debug_symbols
from crashkit.evidence.input import open_input
from crashkit.evidence.module_files import Finder
from crashkit.model import Crash, SoftError, Thread
from crashkit.stacks.libpython import PythonStack, find_script, python_stacks
from crashkit.stacks.deep import Ends, join
from crashkit.stacks.native import Covered, ModuleIndex, frames_between, native_frames
from crashkit.stacks.source import Sources

DEADLINE = 120.0
"""Seconds that gdb may take."""

Progress = Callable[[str, Crash], None]
"""Told the name of each stage as it begins, and what is known by then."""

AnyPath = Union[str, Path]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where things lie, and how much may be spent."""

    exe: Optional[Path] = None
    """The executable's file, where it is not where the core says."""
    sysroot: Optional[Path] = None
    """The root folder of the crashed system (a container's file system)."""
    path_maps: tuple[tuple[str, Path], ...] = ()
    extra_dirs: tuple[Path, ...] = ()
    """Folders to search for modules and debug files, by build-id."""
    debuginfod: bool = False
    libpython: Optional[Path] = None
    gdb: Optional[str] = "gdb"
    """The program; None to go without."""
    deadline: float = DEADLINE
    signatures: tuple[Path, ...] = ()
    """Folders with signatures of the user's own."""


def analyze(
    paths: Union[AnyPath, Sequence[AnyPath]],
    exe: Optional[AnyPath] = None,
    sysroot: Optional[AnyPath] = None,
    *,
    options: Optional[Options] = None,
    progress: Optional[Progress] = None,
) -> Crash:
    """Everything that can be found out about one crash from these pieces of evidence.

    Raises EvidenceError where a path is no evidence of a crash.
    """
    options = options or Options()
    if exe is not None:
        options = msgspec.structs.replace(options, exe=Path(exe))
    if sysroot is not None:
        options = msgspec.structs.replace(options, sysroot=Path(sysroot))
    places = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    return _analyze_core(places[0], options, progress or (lambda _stage, _crash: None))


def _analyze_core(path: Path, options: Options, progress: Progress) -> Crash:
    clock = _Clock()
    finder = Finder(options.sysroot, options.path_maps, options.extra_dirs, options.debuginfod)
    with open_input(path) as source:
        core = open_core(source.file, path, source.size)
        if core is None:
            raise EvidenceError(f"{path} is no evidence of a crash that crashkit knows", "Give a core, a log or a crash folder.")
        scene = describe(core, source, finder, options.exe)
        crash = msgspec.structs.replace(scene.crash, crashkit=__version__)
        clock.lap("notes")
        progress("gdb", crash)
        native, python, soft_errors = _ask_gdb(source.path, scene, options, finder, clock)
        crash = _add_stacks(crash, scene, native, python, finder)
        clock.lap("stacks")
    return msgspec.structs.replace(crash, soft_errors=(*crash.soft_errors, *soft_errors), seconds=clock.laps)


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now


def _ask_gdb(
    core: Path, scene: Scene, options: Options, finder: Finder, clock: _Clock
) -> tuple[Optional[NativeResult], Optional[PythonResult], list[SoftError]]:
    native: Optional[NativeResult] = None
    python: Optional[PythonResult] = None
    soft_errors: list[SoftError] = []
    if options.gdb is None:
        return None, None, [SoftError(stage="gdb", message="gdb was not asked", hint="Leave --no-gdb away for native frames.")]
    placed = [PlacedModule(scene.files[m.path].path, m.base, m.end, m.bias) for m in scene.modules]
    try:
        with Session(core, options.deadline, options.gdb, _debug_folders(options)) as session:
            native = session.native(placed, scene.crash.crashed_thread)
            soft_errors += [SoftError(stage="native", message=message) for message in native.errors]
            clock.lap("native")
            python, problem = _ask_libpython(session, scene, options, finder, native)
            soft_errors += problem
            clock.lap("python")
    except DebuggerError as error:
        soft_errors.append(SoftError(stage="gdb", message=str(error), hint=error.hint))
    return native, python, soft_errors


def _debug_folders(options: Options) -> list[Path]:
    folders = [Path("/usr/lib/debug"), *options.extra_dirs]
    if options.sysroot:
        folders.insert(0, options.sysroot / "usr/lib/debug")
    return folders


def _ask_libpython(
    session: Session, scene: Scene, options: Options, finder: Finder, native: NativeResult
) -> tuple[Optional[PythonResult], list[SoftError]]:
    interpreter = scene.interpreter
    if interpreter is None:
        return None, []
    file = scene.files[interpreter.module.path]
    if file.path is None or not (file.debug or has_debug_symbols(file.path)):
        return None, [
            SoftError(
                stage="python",
                message=f"{interpreter.module.path} has no debug info here: libpython.py cannot read its frames",
                hint=f"Install it (Debian, Ubuntu: python{interpreter.version}-dbg).",
            )
        ]
    main = scene.crash.process.executable if scene.crash.process else None
    script = options.libpython or find_script(interpreter, main, scene.files, finder)
    if script is None:
        return None, [
            SoftError(
                stage="python",
                message=f"no libpython.py for Python {interpreter.version} on this machine",
                hint="Give CPython's Tools/gdb/libpython.py of that version: --libpython FILE.",
            )
        ]
    try:
        if str(file.path) not in native.loaded:
            session.load(PlacedModule(file.path, interpreter.module.base, interpreter.module.end, interpreter.module.bias))
        result = session.python(script)
    except DebuggerError as error:
        return None, [SoftError(stage="python", message=str(error), hint=error.hint)]
    return result, [SoftError(stage="python", message=message) for message in result.errors]


def _add_stacks(crash: Crash, scene: Scene, native: Optional[NativeResult], python: Optional[PythonResult], finder: Finder) -> Crash:
    index = ModuleIndex(scene.modules)
    by_lwp = {thread.lwp: thread for thread in native.threads} if native else {}
    stacks = python_stacks(python, crash.threads) if python else {}
    sources = Sources(finder.source, _modified(crash))
    soft_errors: list[SoftError] = []
    covered: Covered = lambda _pc: None  # noqa: E731
    threads = []
    for thread in crash.threads:
        walked = by_lwp.get(thread.tid or 0, NativeThread(lwp=0, cut="gdb gave no frames"))
        frames = native_frames(walked.frames, index, covered)
        stack = stacks.get(thread.tid or 0, PythonStack((), None, None))
        annotated = tuple(map(sources.annotate, stack.frames))
        merged = join(
            Ends(
                native=frames,
                python=annotated,
                native_outer=native_frames(walked.outer, index, covered),
                python_outer=tuple(map(sources.annotate, stack.outer)),
                native_cut=walked.cut is not None,
                python_total=stack.total,
                native_between=frames_between(walked),
            )
        )
        if merged.frames is None:
            soft_errors.append(SoftError(stage="merge", message=f"thread {thread.tid}: {merged.why}; both stacks are shown side by side"))
        threads.append(
            msgspec.structs.replace(
                thread,
                name=stack.name,
                holds_gil=stack.holds_gil,
                frames=merged.frames if merged.frames is not None else frames,
                python_frames=() if merged.frames is not None else annotated,
            )
        )
    soft_errors += [
        SoftError(stage="source", message=f"{name} was changed after the crash: its lines may be others", hint="Look at the version that ran.")
        for name in sorted(sources.newer)
    ]
    runtime = crash.python
    if runtime and python:
        runtime = msgspec.structs.replace(
            runtime, version=python.version or runtime.version, debug_info=True, finalizing=python.finalizing
        )
    return msgspec.structs.replace(
        crash, threads=tuple(threads), python=runtime, soft_errors=(*crash.soft_errors, *soft_errors)
    )


def _modified(crash: Crash) -> Optional[float]:
    try:
        return os.stat(crash.source.path).st_mtime if crash.source else None
    except OSError:
        return None


__all__ = ["Options", "Thread", "analyze"]
