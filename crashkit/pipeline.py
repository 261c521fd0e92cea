"""The path of a crash from its evidence to its account, one call a stage. Read this first.

Every stage adds to the `Crash` of the stage before. One that fails leaves a soft error and the rest of the report stands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Optional, Union

import msgspec
from msgspec.structs import replace

from crashkit import __version__
from crashkit.debugger.examine import Examined, Settings, boot, can_read_python, examine
from crashkit.debugger.gdb import Gdb
from crashkit.diagnose import Catalog, diagnose, load_catalog
from crashkit.diagnose.catalog import configured
from crashkit.diagnose.fingerprint import fingerprint
from crashkit.errors import CatalogError, DebuggerError, EvidenceError
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.describe import Scene, describe
from crashkit.evidence.input import Input
from crashkit.evidence.module_files import Finder
from crashkit.evidence.pieces import Pieces, add_manifest, sort_out
from crashkit.evidence.text.log import LogEvidence, crash_of_log, read_log_input
from crashkit.evidence.text.log_patterns import Classifier
from crashkit.model import Crash, LogLine, PythonRuntime, SoftError, Source, Thread
from crashkit.stacks.assemble import add_dumps, assemble
from crashkit.stacks.pystack import PystackResult
from crashkit.stacks.pystack import python_stacks as pystack_stacks
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
        options = replace(options, exe=Path(exe))
    if sysroot is not None:
        options = replace(options, sysroot=Path(sysroot))
    given = [paths] if isinstance(paths, (str, Path)) else paths
    places = [Path("/dev/stdin") if str(path) == "-" else Path(path) for path in given]
    return _analyze(places, options, progress or (lambda _stage, _crash: None))


def _analyze(paths: Sequence[Path], options: Options, progress: Progress) -> Crash:
    clock = _Clock()
    with ExitStack() as stack:
        pieces = sort_out(paths, stack)
        # What the user wrote may be wrong: say so before the long part.
        logs = _read_logs(pieces, _catalog(options)[0].log_patterns) if pieces.texts or options.signatures else []
        clock.lap("log")
        if pieces.core is not None and pieces.core_input is not None:
            gdb = _boot_gdb(options, stack)
            pool = stack.enter_context(ThreadPoolExecutor(2))
            crash = _analyze_core(pieces.core, pieces.core_input, logs, gdb, options, progress, clock, pool)
        else:
            crash = _of_logs(pieces, logs)
    catalog, problems = _catalog(options)
    crash = replace(crash, crashkit=__version__, soft_errors=(*crash.soft_errors, *pieces.soft_errors, *problems))
    if pieces.manifest is not None:
        crash = add_manifest(crash, pieces.manifest)
    progress("diagnose", crash)
    crash = diagnose(replace(crash, fingerprint=fingerprint(crash)), catalog)
    clock.lap("diagnose")
    return replace(crash, seconds=clock.laps)


def _catalog(options: Options) -> tuple[Catalog, tuple[SoftError, ...]]:
    """The built-in signatures, those of the user's configuration, and those asked for; only the last must be right."""
    own = configured(os.environ)
    try:
        return load_catalog((*own, *options.signatures)), ()
    except CatalogError as error:
        if not own:
            raise
        return load_catalog(options.signatures), (SoftError(stage="diagnose", message=str(error), hint=error.hint),)


def _boot_gdb(options: Options, stack: ExitStack) -> Union[Gdb, DebuggerError]:
    if options.gdb is None:
        return DebuggerError("gdb was not asked (--no-gdb)", "Ask it for inlined frames, lines, arguments and locals.")
    gdb = boot(options.gdb, options.deadline)
    if isinstance(gdb, Gdb):
        stack.callback(gdb.close)
    return gdb


def _read_logs(pieces: Pieces, patterns: Sequence[str]) -> list[_Log]:
    """What the texts tell. A text beside other evidence need not tell anything; texts alone must."""
    logs, problems = [], []
    for text in pieces.texts:
        try:
            logs.append(_Log(text, read_log_input(text, patterns)))
        except EvidenceError as error:
            problems.append(error)
    if problems and not logs and pieces.core is None and pieces.manifest is None:
        raise problems[0]
    return logs


def _of_logs(pieces: Pieces, logs: Sequence[_Log]) -> Crash:
    """A crash that left texts only: the one with the most telling stacks speaks for it."""
    if not logs:
        if pieces.manifest is None:
            raise EvidenceError("there is no evidence of a crash in what was given", "Give a core, a log or a crash folder.")
        return Crash(id=pieces.manifest.get("id"), source=Source(path=str(pieces.folder), kind="folder"))
    main = max(logs, key=lambda log: (log.evidence.stacks == "native", log.evidence.signal is not None, len(log.evidence.threads)))
    crash = crash_of_log(main.text.original, main.evidence, main.text.original_size)
    if main.evidence.stacks == "native":
        crash = replace(crash, threads=add_dumps(crash.threads, _dumps(logs)))
    return replace(crash, log=_lines(logs), soft_errors=_soft_errors(logs))


def _dumps(logs: Sequence[_Log]) -> list[tuple[Thread, ...]]:
    return [log.evidence.threads for log in logs if log.evidence.stacks == "python"]


def _soft_errors(logs: Sequence[_Log]) -> tuple[SoftError, ...]:
    return tuple(error for log in logs for error in log.evidence.soft_errors)


def _lines(logs: Sequence[_Log]) -> tuple[LogLine, ...]:
    return tuple(line for log in logs for line in log.evidence.lines)


def _analyze_core(
    core: Core,
    source: Input,
    logs: Sequence[_Log],
    gdb: Union[Gdb, DebuggerError],
    options: Options,
    progress: Progress,
    clock: _Clock,
    pool: ThreadPoolExecutor,
) -> Crash:
    finder = Finder(options.sysroot, options.path_maps, options.extra_dirs, options.debuginfod)
    scene = describe(core, source, finder, options.exe)
    clock.lap("notes")
    progress("gdb", scene.crash)
    # gdb leaves us idle: read the catalog meanwhile.
    pool.submit(load_catalog)
    gdb_is_there = isinstance(gdb, Gdb)
    # Without debug info only PyStack can tell Python frames: do not wait for gdb to find that out.
    early = pool.submit(_ask_pystack, source.path, scene, options, not gdb_is_there) if not can_read_python(scene) else None
    examined = examine(source.path, scene, finder, _settings(options), gdb, clock.lap)
    second = early.result() if early else None
    if second is None or (examined.native is None and gdb_is_there):
        second = _ask_pystack(source.path, scene, options, examined.native is None) if _wants_second_opinion(examined) else PystackResult()
    clock.lap("pystack")
    crash = _add_stacks(scene, examined, second, logs, finder)
    clock.lap("stacks")
    return replace(crash, log=(*_lines(logs), *_abort_message(examined)))


def _abort_message(examined: Examined) -> tuple[LogLine, ...]:
    """What glibc said before it aborted is in the core, too."""
    text = examined.native.abort_message if examined.native else None
    if not text:
        return ()
    kind, fields = Classifier().classify(text) or (None, {})
    return (LogLine(text=text, kind=kind, path="core", from_core=True, fields=fields),)


def _settings(options: Options) -> Settings:
    folders = [Path("/usr/lib/debug"), *options.extra_dirs]
    if options.sysroot:
        folders.insert(0, options.sysroot / "usr/lib/debug")
    return Settings(options.deadline, tuple(folders), options.libpython, options.sysroot)


def _wants_second_opinion(examined: Examined) -> bool:
    if examined.native is None or examined.python is None or examined.python.errors:
        return True
    return any(frame.line is None or not frame.function for thread in examined.python.threads for frame in thread.frames)


def _ask_pystack(core: Path, scene: Scene, options: Options, native: bool) -> PystackResult:
    """Python stacks where there is an interpreter; native ones too where gdb gives none."""
    main = scene.crash.process.executable if scene.crash.process else None
    file = scene.files.get(main) if main else None
    if scene.interpreter is None and not native:
        return PystackResult()
    if scene.interpreter is not None and scene.interpreter.is_too_old:
        message = f"Python {scene.interpreter.version} is too old: Python frames are read of 3.6 and newer"
        return PystackResult(soft_errors=(SoftError(stage="python", message=message),))
    if file is None or file.path is None:
        message = f"the executable {main or ''} is not on this machine: PyStack cannot read the core without it"
        return PystackResult(
            soft_errors=(SoftError(stage="pystack", message=message, hint="Give it with --exe, or its system with --sysroot."),)
        )
    files = {path: found.path for path, found in scene.files.items() if found.path}
    return pystack_stacks(core, file.path, files, options.deadline, native=native)


def _add_stacks(scene: Scene, examined: Examined, second: PystackResult, logs: Sequence[_Log], finder: Finder) -> Crash:
    crash = scene.crash
    sources = Sources(_locator(crash, finder), _modified(crash))
    assembled = assemble(scene, examined, second, _dumps(logs), sources)
    changed = [
        SoftError(stage="source", message=f"{name} was changed after the crash: its lines may be others", hint="Look at what ran then.")
        for name in sorted(sources.newer)
    ]
    return replace(
        crash,
        threads=assembled.threads,
        python=_runtime(scene, examined, second),
        modules=tuple(
            replace(module, symbols=examined.symbols[module.path]) if module.path in examined.symbols else module
            for module in crash.modules
        ),
        debugger=examined.debugger,
        soft_errors=(*crash.soft_errors, *_soft_errors(logs), *examined.soft_errors, *second.soft_errors, *assembled.soft_errors, *changed),
    )


def _runtime(scene: Scene, examined: Examined, second: PystackResult) -> Optional[PythonRuntime]:
    runtime = scene.crash.python
    if runtime is None:
        return PythonRuntime(version=second.version) if second.stacks else None
    runtime = replace(runtime, version=runtime.version or second.version, debug_info=can_read_python(scene))
    if examined.python is not None:
        runtime = replace(
            runtime,
            version=examined.python.version or runtime.version,
            finalizing=examined.python.finalizing,
            script=str(examined.script) if examined.script else None,
        )
    return runtime


def _locator(crash: Crash, finder: Finder) -> Callable[[str], Optional[Path]]:
    """Finds source files; a relative name (CPython 3.8 and older) counts from where the process was started."""
    base = crash.process.environment.get("PWD", "") if crash.process else ""
    return lambda name: finder.source(name if name.startswith("/") else f"{base}/{name}")


def _modified(crash: Crash) -> Optional[float]:
    try:
        return Path(crash.source.path).stat().st_mtime if crash.source else None
    except OSError:
        return None


class _Log(NamedTuple):
    text: Input
    evidence: LogEvidence


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now


__all__ = ["Options", "analyze"]
