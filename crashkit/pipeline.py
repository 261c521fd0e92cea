"""The path of a crash from its evidence to its account, one call a stage. Read this first.

Every stage adds to the `Crash` of the stage before. One that fails leaves a soft error and the rest of the report stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional, Union

import msgspec

from crashkit import __version__
from crashkit.debugger.examine import Examined, Settings, examine
from crashkit.debugger.names import Unwinding
from crashkit.debugger.session import NativeThread
from crashkit.errors import EvidenceError
from crashkit.evidence.core import open_core
from crashkit.evidence.describe import Scene, describe
from crashkit.evidence.input import open_input
from crashkit.evidence.module_files import Finder
from crashkit.evidence.modules import ModuleIndex
from crashkit.model import Crash, SoftError
from crashkit.stacks.deep import Ends, join
from crashkit.stacks.libpython import PythonStack, python_stacks
from crashkit.stacks.native import frames_between, native_frames
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
        examined = Examined(None, None, None, {}, None, ())
        if options.gdb is not None:
            examined = examine(source.path, scene, finder, _settings(options, options.gdb), clock.lap)
        crash = _add_stacks(crash, scene, examined, finder)
        clock.lap("stacks")
    return msgspec.structs.replace(crash, seconds=clock.laps)


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now


def _settings(options: Options, program: str) -> Settings:
    folders = [Path("/usr/lib/debug"), *options.extra_dirs]
    if options.sysroot:
        folders.insert(0, options.sysroot / "usr/lib/debug")
    return Settings(program, options.deadline, tuple(folders), options.libpython)


def _add_stacks(crash: Crash, scene: Scene, examined: Examined, finder: Finder) -> Crash:
    native, python = examined.native, examined.python
    index = ModuleIndex(scene.modules)
    by_lwp = {thread.lwp: thread for thread in native.threads} if native else {}
    stacks = python_stacks(python, crash.threads) if python else {}
    sources = Sources(finder.source, _modified(crash))
    soft_errors = list(examined.soft_errors)
    covered = Unwinding(index, {path: file.path for path, file in scene.files.items()}).covers
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
        SoftError(stage="source", message=f"{name} was changed after the crash: its lines may be others", hint="Look at what ran then.")
        for name in sorted(sources.newer)
    ]
    runtime = crash.python
    if runtime and python:
        runtime = msgspec.structs.replace(
            runtime,
            version=python.version or runtime.version,
            debug_info=True,
            finalizing=python.finalizing,
            script=str(examined.script) if examined.script else None,
        )
    return msgspec.structs.replace(
        crash,
        threads=tuple(threads),
        python=runtime,
        modules=tuple(
            msgspec.structs.replace(module, symbols=examined.symbols[module.path]) if module.path in examined.symbols else module
            for module in crash.modules
        ),
        debugger=examined.debugger,
        soft_errors=(*crash.soft_errors, *soft_errors),
    )


def _modified(crash: Crash) -> Optional[float]:
    try:
        return Path(crash.source.path).stat().st_mtime if crash.source else None
    except OSError:
        return None


__all__ = ["Options", "analyze"]
