"""The path of a crash from evidence to report, one call per stage. Read this first.

Each stage adds to the `Crash` of the previous one. A stage that fails adds a soft error (`attempt`); the rest of the report is unaffected.
What not every crash needs, or none before gdb works, is imported where it is used: most of the time to the first line goes into imports.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Optional, Union

import msgspec
from msgspec.structs import replace

from crashkit import __version__
from crashkit.attempt import attempt, failed
from crashkit.crashfolder.ids import identity
from crashkit.crashfolder.manifest import SOURCE, Manifest, read_manifest
from crashkit.debugger.ask import ask
from crashkit.debugger.ask import start as start_debuggers
from crashkit.debugger.contract import Answer, Debugger
from crashkit.debugger.debug_info import interpreter_has_debug_info
from crashkit.debugger.gdb.ahead import Ahead
from crashkit.debugger.gdb.debugger import GdbDebugger, GdbSettings
from crashkit.debugger.pystack.debugger import PystackDebugger
from crashkit.errors import CatalogError, EvidenceError
from crashkit.evidence.below import is_core
from crashkit.evidence.bundle import Opened, open_archives
from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.describe import Scene, describe, text_at
from crashkit.evidence.frozen_loader import core_of_loader
from crashkit.evidence.input import Input
from crashkit.evidence.module_files import Finder
from crashkit.evidence.pieces import Pieces, add_manifest, sort_out
from crashkit.evidence.place import local_path
from crashkit.gdb_files import DEBUG_ROOT
from crashkit.memory.pages import Pages
from crashkit.model import (
    AccessedArray,
    Crash,
    Frame,
    Gpu,
    Greenlet,
    LogLine,
    NativeFrame,
    Process,
    PythonFrame,
    PythonRuntime,
    Signal,
    SoftError,
    Source,
    Task,
    Thread,
)
from crashkit.naming.signals import SENT

if TYPE_CHECKING:
    from crashkit.debugger.direct import DirectReader
    from crashkit.diagnose import Catalog
    from crashkit.evidence.core.last_words import Words
    from crashkit.evidence.job.survey import Stacks, Survey
    from crashkit.evidence.text.log import LogEvidence
    from crashkit.evidence.text.several import Known
    from crashkit.job.join import Joined
    from crashkit.stacks.living import Living

DEADLINE = 120.0
"""Default time limit for gdb in seconds."""

REHEARSAL = "rehearsal"
"""A stage in which nothing is left to do until a debugger has answered. What is done then with the crash so far, its findings among it,
loads and compiles what the whole one needs, and is thrown away."""

_DIRECT_READER = "the reader of Python's memory"
_MOST_BELOW = 4
"""Buffers that end below the fault address."""

Progress = Callable[[str, Callable[[], Crash]], None]
"""Called as each stage begins, with its name and what gives the crash so far, as it may be shown."""

_Tell = Callable[[str, Crash], None]
"""The same with the crash as it is."""

AnyPath = Union[str, Path]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where to find files, which tools to use, and the time limit in seconds."""

    exe: Optional[Path] = None
    """The executable, if it is not at the path in the core."""
    sysroot: Optional[Path] = None
    """The root folder of the crashed system (a container's file system)."""
    path_maps: tuple[tuple[str, Path], ...] = ()
    extra_dirs: tuple[Path, ...] = ()
    """Folders to search for modules and debug files, by build-id."""
    debuginfod: bool = False
    libpython: Optional[Path] = None
    gdb: Optional[str] = "gdb"
    """The gdb program; None disables gdb."""
    deadline: float = DEADLINE
    signatures: tuple[Path, ...] = ()
    """Folders with the user's own signatures."""
    show_secrets: bool = False
    """Show what looks like a secret, instead of masking it."""
    locals: bool = True
    """Report the values of arguments and local variables."""
    indexes: Optional[Path] = None
    """For many cores of one program: a private folder where gdb keeps what it computed of debug info, by build-id."""
    minimal: Optional[Path] = None
    """Also write a minimal core into this new file; where that fails, a soft error says why."""
    threads: tuple[int, ...] = ()
    """Without a core: identifiers (pthread_self) of the crash's threads, which show which of several crashes in a log is meant."""


def analyze(
    paths: Union[AnyPath, Sequence[AnyPath]],
    exe: Optional[AnyPath] = None,
    sysroot: Optional[AnyPath] = None,
    *,
    options: Optional[Options] = None,
    progress: Optional[Progress] = None,
    debuggers: Optional[Sequence[Debugger]] = None,
    living: Optional[Living] = None,
    ahead: Optional[Ahead] = None,
) -> Crash:
    """Analyze one crash from these pieces of evidence.

    `debuggers` provide the stacks of a core, best first; the default is `default_debuggers` beside crashkit's own reading of Python frames.
    `living`: the core was just taken from a process that still runs, and this is what else was read from it.
    `ahead`: a gdb that was started before.
    Raises EvidenceError if a path holds no evidence of a crash, CatalogError if one of `options.signatures` is invalid.
    """
    options = options or Options()
    if exe is not None:
        options = replace(options, exe=Path(exe))
    if sysroot is not None:
        options = replace(options, sysroot=Path(sysroot))
    options = absolute(options)
    given = [paths] if isinstance(paths, (str, Path)) else paths
    places = [Path("/dev/stdin") if str(path) == "-" else local_path(path) if isinstance(path, str) else path for path in given]
    with ExitStack() as stack:
        opened = open_archives(places, stack)
        options = with_files_of(opened, options)
        finder = Finder(options.sysroot, options.path_maps, options.extra_dirs, options.debuginfod)
        if debuggers is None:
            foreign = (*crash_folders(opened.paths), *opened.folders)
            asked = _Asked(default_debuggers(options, finder, foreign, ahead), direct=True, living=living, ahead=ahead)
        else:
            asked = _Asked(debuggers, direct=False, living=living)
        with opened.by_their_names():
            return _analyze(opened, options, finder, asked, progress)


def analyze_stopped(file: BinaryIO, path: Path, size: int, options: Options) -> Crash:
    """Write `options.minimal` of a core that is no file on a disk: that of a process which stands still as long as this takes.

    The crash is as far as the stacks. Raises EvidenceError if this is no core.
    """
    from crashkit.debugger.on_demand import OnDemand

    finder = Finder(options.sysroot, options.path_maps, options.extra_dirs, options.debuginfod)
    core = Core(file, path, size)
    core.reads = Pages()
    asked = _Asked((OnDemand(core, gdb_settings(options), finder),), direct=True)
    source = Input(file=file, path=path, size=size, original=path, original_size=size)
    return _analyze_core(core, source, (), (), asked, finder, options, lambda _stage, _crash: None, _Clock())


def with_files_of(opened: Opened, options: Options) -> Options:
    """The options, with the files of the crashed system that came in an archive; those that the user names count first."""
    if opened.root is not None and options.sysroot is None:
        return replace(options, sysroot=opened.root, extra_dirs=(*options.extra_dirs, *opened.loose))
    return replace(options, extra_dirs=(*options.extra_dirs, *opened.folders))


def absolute(options: Options) -> Options:
    """gdb and PyStack start in a folder of their own, where relative paths would mean something else. Raises EvidenceError."""
    try:
        return replace(
            options,
            exe=options.exe and options.exe.absolute(),
            sysroot=options.sysroot and options.sysroot.absolute(),
            path_maps=tuple((before, after.absolute()) for before, after in options.path_maps),
            extra_dirs=tuple(folder.absolute() for folder in options.extra_dirs),
            libpython=options.libpython and options.libpython.absolute(),
        )
    except FileNotFoundError as error:
        raise EvidenceError("the working directory was removed", "Change to another folder, or pass absolute paths.") from error


def crash_folders(places: Sequence[Path]) -> list[Path]:
    """The folders among these, and the crash folders of these files: what lies there came with the crash."""
    folders = [place if place.is_dir() else place.parent for place in places]
    return [folder for place, folder in zip(places, folders, strict=True) if folder == place or read_manifest(folder) is not None]


def default_debuggers(
    options: Options, finder: Finder, foreign: Sequence[Path] = (), ahead: Optional[Ahead] = None
) -> tuple[Debugger, ...]:
    """gdb and PyStack, in this order. `foreign` folders hold files that came with the crash."""
    return GdbDebugger(gdb_settings(options, foreign)._replace(ahead=ahead), finder), PystackDebugger(options.deadline)


def gdb_settings(options: Options, foreign: Sequence[Path] = ()) -> GdbSettings:
    """How gdb is run for these options."""
    folders = [Path(DEBUG_ROOT), *options.extra_dirs]
    if options.sysroot:
        folders.insert(0, options.sysroot / DEBUG_ROOT.lstrip("/"))
    return GdbSettings(
        options.gdb,
        options.deadline,
        tuple(folders),
        options.libpython,
        options.sysroot,
        tuple(foreign),
        options.indexes,
        _log_of_reads(options.minimal) if options.minimal else None,
    )


def _log_of_reads(minimal: Path) -> Path:
    return minimal.with_name(f"{minimal.name}.reads")


def _analyze(opened: Opened, options: Options, finder: Finder, asked: _Asked, progress: Optional[Progress]) -> Crash:
    clock = _Clock()
    broken: list[SoftError] = []
    surveyed = attempt("job", "the survey of a job's files", lambda: _surveyed(opened.paths, finder), None, broken)
    if surveyed is not None:
        clock.lap("job")
    with ExitStack() as stack:
        pieces = sort_out(opened.paths if surveyed is None else surveyed.chosen, stack)
        finder = finder.of_process_in((pieces.manifest or {}).get("cwd", ""))
        if asked.ahead is not None and pieces.core is not None and pieces.core_input is not None and pieces.core.forged is None:
            asked.ahead.open(pieces.core_input.path)
        if options.minimal is not None and pieces.core is not None:
            pieces.core.reads = Pages()
            stack.callback(_log_of_reads(options.minimal).unlink, missing_ok=True)
        joined = _joined(pieces, surveyed, broken)
        fit = _fit_to_show(pieces.core, options)
        # Masking takes its time: only where somebody listens.
        shown = fit if options.locals else lambda so_far: fit(_without_locals(so_far))
        told: _Tell = partial(_tell, progress, shown, options) if progress else (lambda _stage, _crash: None)
        # The user's signatures may be invalid: fail before the slow part.
        asked_for = pieces.texts or options.signatures
        logs = _read_logs(pieces, _catalog(options)[0].log_patterns, options.threads, joined) if asked_for else []
        clock.lap("log")
        asked = asked._replace(living=asked.living or _living_of(pieces.manifest), looked_at=(pieces.manifest or {}).get("alive"))
        gpus = _describe_gpus(pieces, finder, logs, broken)
        if pieces.gpus:
            clock.lap("gpu")
        if pieces.core is not None and pieces.core_input is not None:
            crash = _analyze_core(pieces.core, pieces.core_input, gpus, logs, asked, finder, options, told, clock)
        elif pieces.gpus and not logs:
            crash = _of_gpu(pieces)
        elif joined is not None and not logs and pieces.manifest is None:
            crash = Crash(source=Source(path=str(opened.paths[0]), kind="job"))
        else:
            crash = _of_logs(pieces, logs)
        silence: tuple[str, ...] = ()
        words = attempt("log", "the reader of last words", lambda: _last_lines(pieces), silence, broken)
        crash = replace(crash, last_words=words)
    if gpus:
        apart = crash
        crash = attempt("gpu", "the join with GPU cores", lambda: _add_gpus(apart, gpus, pieces), replace(apart, gpu=gpus), broken)
    catalog, problems = _catalog(options)
    manifest = pieces.manifest
    if manifest is not None:
        crash = attempt("collect", "the reader of manifests", lambda: add_manifest(crash, manifest), crash, broken)
    if joined is not None:
        alone, job = crash, joined
        whose = (manifest.get("namespace_pid") or manifest.get("pid")) if manifest is not None else None
        crash = attempt("job", "the join with a job", lambda: _with_job(alone, job, whose), replace(alone, job=job.job), broken)
    elif manifest is not None and pieces.folder is not None:
        from crashkit.evidence import siblings

        found = siblings.of_folder(pieces.folder, manifest, partial(_preview, finder))
        crash = replace(crash, siblings=found.siblings)
        broken += found.soft_errors
    if surveyed is not None and surveyed.incident is not None:
        crash = replace(crash, id=surveyed.incident)
    told_of = (*opened.soft_errors, *pieces.soft_errors, *problems, *broken)
    crash = opened.named(replace(crash, crashkit=__version__, soft_errors=(*crash.soft_errors, *told_of)))
    if not options.locals:
        crash = _without_locals(crash)
    crash = _shortened(crash)
    told("diagnose", crash)
    # Known failures and the fingerprint are found in what was said, not in what is left of it.
    crash = _diagnosed(crash, catalog)
    clock.lap("diagnose")
    crash = fit(crash)
    clock.lap("mask")
    return replace(crash, seconds=clock.laps)


def _fit_to_show(core: Optional[Core], options: Options) -> Callable[[Crash], Crash]:
    """Masks a crash. What the process had in its environment is known to be secret wherever it stands."""
    if options.show_secrets:
        return lambda crash: crash
    entries = core.arguments_and_environment()[1] if core is not None else ()

    @cache
    def known() -> frozenset[str]:
        from crashkit.secrets.text import of_environment

        return frozenset(of_environment(dict(entry.split("=", 1) for entry in entries if "=" in entry)))

    def fit(crash: Crash) -> Crash:
        from crashkit.secrets.crash import masked

        return masked(crash, known())

    return fit


def _without_locals(crash: Crash) -> Crash:
    from crashkit.secrets.crash import without_locals

    return without_locals(crash)


def _shortened(crash: Crash) -> Crash:
    from crashkit.shorten import shortened

    return shortened(crash)


def _tell(progress: Progress, shown: Callable[[Crash], Crash], options: Options, stage: str, so_far: Crash) -> None:
    progress(stage, lambda: shown(_diagnosed(so_far, _catalog(options)[0]) if stage == REHEARSAL else so_far))


def _diagnosed(crash: Crash, catalog: Catalog) -> Crash:
    """With fingerprint and findings."""
    from crashkit.diagnose import diagnose
    from crashkit.diagnose.fingerprint import fingerprint

    broken: list[SoftError] = []
    known = replace(crash, fingerprint=attempt("diagnose", "the fingerprint", lambda: fingerprint(crash), None, broken))
    found = attempt("diagnose", "the search for known failures", lambda: diagnose(known, catalog), known, broken)
    return replace(found, soft_errors=(*found.soft_errors, *broken))


def _catalog(options: Options) -> tuple[Catalog, tuple[SoftError, ...]]:
    """The built-in, configured and requested signatures; only requested ones must be valid."""
    from crashkit.diagnose import load_catalog
    from crashkit.diagnose.catalog import configured

    own = configured(os.environ)
    try:
        return load_catalog((*own, *options.signatures)), ()
    except CatalogError as error:
        if not own:
            raise
        return load_catalog(options.signatures), (SoftError(stage="diagnose", message=str(error), hint=error.hint),)


def _surveyed(paths: Sequence[Path], finder: Finder) -> Optional[Survey]:
    """The job that these files are of, if they are of one. A single core is not."""
    if len(paths) == 1 and is_core(paths[0]):
        return None
    from crashkit.evidence.job.survey import survey

    return survey(paths, lambda core, source: _python_stacks(core, source, finder))


def _with_job(crash: Crash, joined: Joined, pid: Optional[int]) -> Crash:
    from crashkit.job.told import with_job

    return with_job(crash, joined, pid)


def _joined(pieces: Pieces, surveyed: Optional[Survey], problems: list[SoftError]) -> Optional[Joined]:
    """The job that the evidence is of, if it is of one. A pipe can be read only now."""
    if surveyed is not None:
        problems += surveyed.soft_errors
        return surveyed.joined
    piped = [text for text in pieces.texts if not text.original.is_file()]
    if not piped:
        return None
    from crashkit.evidence.job.survey import survey_texts

    return attempt("job", "the survey of a job's logs", lambda: survey_texts(piped), None, problems)


def _read_logs(pieces: Pieces, patterns: Sequence[str], idents: Sequence[int], joined: Optional[Joined]) -> list[_Log]:
    """Read the logs. Without a core, a GPU core, a manifest or a job, at least one must hold evidence."""
    from crashkit.evidence import kernel_log
    from crashkit.evidence.text.several import Known

    logs, problems = [], []
    known = _known(pieces) if pieces.core is not None else Known(frozenset(idents))
    picked = pieces.core is None and not pieces.gpus and pieces.manifest is None and joined is None
    for text in pieces.texts:
        try:
            logs.append(_read_log(text, patterns, known, alone=picked and len(pieces.texts) == 1))
        except EvidenceError as error:
            problems.append(error)
    if problems and not logs and picked:
        for text in pieces.texts:
            with suppress(EvidenceError):
                logs.append(_read_log(text, patterns, known, alone=True))
        if not logs:
            raise problems[0]
    manifest = pieces.manifest
    if manifest is None:
        return logs
    said = [line for log in logs if not _is_kernels(log.text) for line in log.evidence.lines]
    return [log._replace(evidence=kernel_log.of_process(log.evidence, manifest, said)) if _is_kernels(log.text) else log for log in logs]


def _is_kernels(text: Input) -> bool:
    return text.original.name.startswith("dmesg")


def _read_log(text: Input, patterns: Sequence[str], known: Known, alone: bool) -> _Log:
    """Raises EvidenceError for what is no evidence; an error of the reader is a soft one."""
    from crashkit.evidence.text.log import LogEvidence, read_log_input

    try:
        return _Log(text, read_log_input(text, patterns, known, alone=alone))
    except EvidenceError:
        raise
    except Exception as error:
        return _Log(text, LogEvidence(kind="log", soft_errors=(failed("log", f"the reader of {text.original}", error),)))


def _known(pieces: Pieces) -> Known:
    from crashkit.evidence.text.several import Known

    core, source = pieces.core, pieces.core_input
    if core is None:
        return Known()
    tids = {thread.tid for thread in core.threads()} | ({core.process.pid} if core.process else set())
    return Known(_idents(core), frozenset(tids), _modified(source.original) if source is not None else None)


def _idents(core: Core) -> frozenset[int]:
    """The pthread identifiers of the core's threads, by which faulthandler names them."""
    found = (core.architecture.pthread(thread.registers, thread.tid, core.read) for thread in core.threads())
    return frozenset(ident for ident in found if ident is not None)


def _last_lines(pieces: Pieces) -> tuple[str, ...]:
    """Of the process's own log: not of the kernel's."""
    own = [text for text in pieces.texts if not _is_kernels(text)]
    if not own:
        return ()
    from crashkit.evidence.text.neighbours import last_words as last_lines

    return last_lines(max(own, key=lambda text: text.original.name.startswith("stderr")).file)


def _of_logs(pieces: Pieces, logs: Sequence[_Log]) -> Crash:
    """A crash that left only logs: the log with the most informative stacks is the main one."""
    if not logs:
        if pieces.manifest is None:
            unread = "".join(f"; {error.message}" for error in pieces.soft_errors[:1])
            raise EvidenceError(f"no evidence of a crash in the given files{unread}", "Pass a core, a log or a crash folder.")
        return Crash(id=pieces.manifest.get("id"), source=Source(path=str(pieces.folder), kind="folder"))
    from crashkit.evidence.text.log import crash_of_log

    main = max(logs, key=lambda log: (log.evidence.stacks == "native", log.evidence.signal is not None, len(log.evidence.threads)))
    crash = crash_of_log(main.text.original, main.evidence, main.text.original_size)
    crash = replace(crash, signal=_fuller(crash.signal, [log.evidence.signal for log in logs]))
    if main.evidence.stacks == "native":
        from crashkit.stacks.assemble import add_dumps

        crash = replace(crash, threads=add_dumps(crash.threads, _dumps(logs)))
    return replace(crash, log=_lines(logs), soft_errors=_soft_errors(logs))


def _fuller(signal: Optional[Signal], others: Sequence[Optional[Signal]]) -> Optional[Signal]:
    """This signal with the fault address that another log has for it: the kernel's log tells it, stderr does not."""
    known = [other for other in others if other is not None and (signal is None or other.number == signal.number)]
    if signal is not None and signal.address is not None:
        return signal
    return next((other for other in known if other.address is not None), signal or next(iter(known), None))


def _of_gpu(pieces: Pieces) -> Crash:
    """A crash that left only GPU cores."""
    source = pieces.gpus[0].source
    kind, path, size = ("gpu-core", source.original, source.original_size) if pieces.manifest is None else ("folder", pieces.folder, None)
    return Crash(source=Source(path=str(path), kind=kind, size=size, compression=source.compression))


def _describe_gpus(pieces: Pieces, finder: Finder, logs: Sequence[_Log], problems: list[SoftError]) -> tuple[Gpu, ...]:
    """The GPU cores, those with an exception first."""
    if not pieces.gpus:
        return ()
    from crashkit.evidence.gpu.allocator import with_memory
    from crashkit.evidence.gpu.assertions import with_asserted_lines
    from crashkit.evidence.gpu.describe import describe_dump
    from crashkit.evidence.gpu.disassembly import disassembler
    from crashkit.evidence.gpu.inductor import with_lines
    from crashkit.stacks.source import Sources, readable_text

    found = []
    kept = {file.name: file.path for file in pieces.kept if file.kind == SOURCE}

    def locate(name: str) -> Optional[Path]:
        # A copy is as it was at the crash.
        return kept.get(name) or finder.source(name)

    for dump, source in pieces.gpus:
        path, sources = source.original, Sources(locate, _modified(source.original))
        known = Gpu(path=str(path), size=dump.size)
        describe_it = partial(describe_dump, dump, path, sources.annotate, disassembler())
        gpu = attempt("gpu", "the reader of GPU cores", describe_it, known, problems)
        said = [line for log in logs for line in log.evidence.lines]
        asserted = partial(with_asserted_lines, gpu, said, sources.annotate)
        gpu = attempt("gpu", "the reader of assertions", asserted, gpu, problems)
        remembered = partial(with_memory, gpu, pieces.snapshots, sources.annotate)
        gpu = attempt("gpu", "the reader of torch's allocator", remembered, gpu, problems)
        fused = partial(with_lines, gpu, locate, readable_text, pieces.texts, tuple(kept.values()))
        found.append(attempt("gpu", "the reader of what torch.compile wrote", fused, gpu, problems))
    return tuple(sorted(found, key=lambda gpu: (not gpu.exceptions, gpu.time or "", gpu.path or "")))


def _add_gpus(crash: Crash, gpus: Sequence[Gpu], pieces: Pieces) -> Crash:
    """The crash with its GPU cores, each joined with the thread that launched what failed."""
    from crashkit.stacks.launch import belongs, launched_from

    environment = {**(pieces.manifest or {}).get("environment", {}), **(crash.process.environment if crash.process else {})}
    pid = crash.process.pid if crash.process else None
    # A text may show some of the threads, and name them otherwise.
    threads = crash.threads if pieces.core is not None else ()
    errors = [error for _, source in pieces.gpus for error in source.soft_errors]
    cut = [source.original.name for dump, source in pieces.gpus if dump.cut]
    errors += [
        SoftError(stage="gpu", message=f"some threads of the GPU core {name} were left out: reading them takes too long") for name in cut
    ]
    joined = []
    for gpu in gpus:
        name = Path(gpu.path or "").name
        if belongs(gpu, threads, pid) is False:
            message = f"the GPU core {name} is of a different process and was left out"
            errors.append(SoftError(stage="gpu", message=message, hint="Pass the core and the GPU core of the same process."))
            continue
        if gpu.truncated:
            message = f"the GPU core {name} is truncated: threads, code or names may be missing"
            errors.append(
                SoftError(stage="gpu", message=message, hint="Allow enough time and disk space for the whole file to be written.")
            )
        joined.append(replace(gpu, launched_from=launched_from(gpu, crash.threads, environment)))
    errors += _disagreement(crash.log, joined)
    time = crash.time or next((gpu.time for gpu in joined if gpu.time), None)
    process = crash.process or Process(pid=next((gpu.pid for gpu in joined if gpu.pid), None))
    return replace(
        crash,
        id=crash.id or identity(_seconds(time), process.pid, "gpu"),
        time=time,
        process=process,
        gpu=tuple(joined),
        soft_errors=(*crash.soft_errors, *errors),
    )


def _disagreement(log: Sequence[LogLine], gpus: Sequence[Gpu]) -> list[SoftError]:
    """The driver prints the exception that its dump is about; a log of several processes may hold more of them."""
    told = [line.fields.get("exception", "").removeprefix("CUDBG_EXCEPTION_") for line in log if line.kind == "gpu-exception"]
    found = [exception.name for gpu in gpus for exception in gpu.exceptions]
    if not told or not found or set(told) & set(found):
        return []
    message = f"the log reports {told[0]}, the GPU core {found[0]}"
    return [SoftError(stage="gpu", message=message, hint="Pass the log and the GPU core of the same process.")]


def _seconds(text: Optional[str]) -> Optional[float]:
    return None if text is None else datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _dumps(logs: Sequence[_Log]) -> list[tuple[Thread, ...]]:
    return [log.evidence.threads for log in logs if log.evidence.stacks == "python"]


def _soft_errors(logs: Sequence[_Log]) -> tuple[SoftError, ...]:
    return tuple(error for log in logs for error in log.evidence.soft_errors)


def _of_process(logs: Sequence[_Log], crash: Crash) -> tuple[LogLine, ...]:
    if not logs:
        return ()
    from crashkit.evidence.text.several import of_process

    return of_process(_lines(logs), crash)


def _lines(logs: Sequence[_Log]) -> tuple[LogLine, ...]:
    return tuple(line for log in logs for line in log.evidence.lines)


def _analyze_core(
    core: Core,
    source: Input,
    gpus: tuple[Gpu, ...],
    logs: Sequence[_Log],
    asked: _Asked,
    finder: Finder,
    options: Options,
    tell: _Tell,
    clock: _Clock,
) -> Crash:
    problems: list[SoftError] = []
    with ExitStack() as stack:
        ready, unready = start_debuggers(asked.debuggers, stack)
        pool = stack.enter_context(ThreadPoolExecutor(4))
        scene = _described(core, source, finder, options.exe)
        clock.lap("notes")
        theirs = clock.beside()
        known: Future[bool] = Future()
        try:
            # Nothing else is on the way to the debuggers: what they do takes longest.
            asking = pool.submit(ask, ready, source.path, scene, pool, theirs.lap, known.result) if scene.forged is None else None
            direct = _read_directly(core, scene, problems) if asked.direct and scene.forged is None else None
            known.set_result(direct is not None and direct.tells_all)
            clock.lap("frames")
            tell("gdb", replace(_with_source(direct.reader, direct.preview, finder) if direct else scene.crash, gpu=gpus))
            # The debuggers leave us idle: read the values of variables and last words meanwhile.
            meanwhile = _read_meanwhile(core, scene, direct, finder)
            if direct is not None and asking is not None and not asking.done():
                tell(REHEARSAL, direct.preview)
            answers = asking.result() if asking is not None else [_not_asked(scene.forged or "")]
            clock.join(theirs)
        except BaseException:
            known.cancel()
            # Told to end: the pool waits for what runs in it.
            for debugger in ready:
                debugger.close()
            raise
        if meanwhile.answer is not None:
            # libpython.py knows more of values than we do.
            answers.insert(1 if answers and answers[0].python_script else 0, meanwhile.answer)
    every = [Answer(soft_errors=tuple(unready)), *answers]
    told = replace(scene.crash, soft_errors=(*scene.crash.soft_errors, *_soft_errors(logs), *(e for a in every for e in a.soft_errors)))
    crash = attempt("stacks", "the assembly of stacks", lambda: _add_stacks(scene, every, logs, finder), told, problems)
    named = partial(_with_cython_sources, crash, scene)
    crash = attempt("stacks", "the search for sources of Cython", named, crash, problems)
    by_tables = partial(_with_names, crash, core, scene)
    crash = attempt("stacks", "the search for the names of functions", by_tables, crash, problems)
    gil = partial(_add_gil, core, scene, crash, direct)
    crash = attempt("waits", "the search for who waits for the GIL", gil, crash, problems)
    if scene.forged is None and _shows_waits(crash):
        apart = crash
        crash = attempt(
            "waits", "the search for what threads wait for", lambda: _add_waits(core, scene, apart, direct, asked), apart, problems
        )
    apart = crash
    crash = attempt("python", "the join with the interpreter's state", lambda: meanwhile.told.added_to(apart), crash, problems)
    clock.lap("stacks")
    lines = _of_process(logs, crash)
    words = meanwhile.words
    problems += meanwhile.problems
    if not words:
        words = _abort_message(answers)
        words += attempt("stacks", "the reader of fatal errors", lambda: _fatal_error(core, scene, crash), words[:0], problems)
    said = (line for line in words if not any(_is_same(line, other) for other in lines))
    told_already = [line.text for line in (*lines, *words)]
    printed = tuple(line for line in meanwhile.unwritten if not any(line.strip() in text for text in told_already))
    classified = (line for line in map(_line_of_core, printed) if line.kind is not None)
    crash = replace(crash, log=(*lines, *said, *classified), unwritten=printed, soft_errors=(*crash.soft_errors, *problems))
    if options.minimal is None:
        return crash
    loaded = direct.reader.loaded() if direct is not None else ()
    unwritten: list[SoftError] = []
    writer = partial(_write_minimal, core, scene, crash, loaded, options)
    unwritten += attempt("minimal", "the writer of minimal cores", writer, [], unwritten)
    clock.lap("minimal")
    return replace(crash, soft_errors=(*crash.soft_errors, *unwritten))


def _write_minimal(core: Core, scene: Scene, crash: Crash, loaded: Sequence[str], options: Options) -> list[SoftError]:
    """Write the minimal core; why that is not possible."""
    path, reads = options.minimal, core.reads
    if path is None or reads is None:
        return []
    from crashkit.debugger.gdb.reads import logged_reads
    from crashkit.evidence.core.minimal import write_minimal
    from crashkit.secrets.crash import hidden, masked, strings
    from crashkit.secrets.memory import SecretBytes
    from crashkit.secrets.text import Secrets

    for address, size in logged_reads(_log_of_reads(path)):
        reads.add(address, size)
    entries = core.arguments_and_environment()[1]
    variables = Secrets()
    variables.environment(dict(entry.split("=", 1) for entry in entries if "=" in entry))
    secrets = SecretBytes(hidden(crash) | variables.hidden, tuple(strings(masked(crash, variables.found))))
    pointers = [thread.registers.get(core.architecture.stack_pointer) for thread in crash.threads]
    missing = {module.path for module in crash.modules if module.symbols in ("missing", "mismatch")}
    try:
        write_minimal(core, path, scene.modules, missing, {int(one) for one in pointers if one is not None}, loaded, secrets)
    except EvidenceError as error:
        return [SoftError(stage="minimal", message=str(error), hint=error.hint)]
    except OSError as error:
        message = f"no minimal core was written to {path}: {error.strerror}"
        return [SoftError(stage="minimal", message=message, hint="Free some disk space.")]
    return []


def _with_cython_sources(crash: Crash, scene: Scene) -> Crash:
    from crashkit.evidence.cython_source import with_cython_sources

    return with_cython_sources(crash, scene.files)


def _with_names(crash: Crash, core: Core, scene: Scene) -> Crash:
    from crashkit.stacks.method_tables import with_method_names
    from crashkit.stacks.moved_parts import with_moved_parts
    from crashkit.stacks.tail_calls import with_tail_call

    constants, files = partial(read_constant, core, scene.files), {path: file.path for path, file in scene.files.items()}
    named = with_moved_parts(crash, core.architecture, scene.modules, files)
    named = with_method_names(named, core, constants, scene.modules, files)
    return with_tail_call(named, core.architecture, core, constants, scene.modules, files)


def _shows_waits(crash: Crash) -> bool:
    """After a fault, what the other threads wait for explains nothing."""
    from crashkit.diagnose.case import FAULTS

    return crash.signal is None or crash.signal.name not in FAULTS or crash.signal.reason in SENT


def _living_of(manifest: Optional[Manifest]) -> Optional[Living]:
    """What `crashkit run` saw of a process that hung."""
    if manifest is None:
        return None
    from crashkit.stacks.living import of_json

    return of_json(manifest.get("live"))


def _add_gil(core: Core, scene: Scene, crash: Crash, direct: Optional[_Direct]) -> Crash:
    from crashkit.stacks.gil import with_gil

    places = direct.reader.gil_waiters if direct is not None else ()
    return with_gil(crash, core.architecture, lambda address, size: read_constant(core, scene.files, address, size), places)


def _add_waits(core: Core, scene: Scene, crash: Crash, direct: Optional[_Direct], asked: _Asked) -> Crash:
    from crashkit.stacks.waits import with_waits

    locks = direct.reader.locks() if direct is not None else None
    waiting = with_waits(
        crash, core.architecture, lambda address, size: read_constant(core, scene.files, address, size), locks, asked.living
    )
    if asked.living is None or crash.source is None:
        return waiting
    path = f"/proc/{crash.process.pid if crash.process else ''}"
    return replace(waiting, source=replace(crash.source, kind="live", path=path, looked_at=asked.looked_at))


def _read_directly(core: Core, scene: Scene, problems: list[SoftError]) -> Optional[_Direct]:
    def read() -> _Direct:
        from crashkit.debugger.direct import DirectReader

        reader = DirectReader(core, scene)
        return _Direct(reader, reader.preview(), reader.tells_all)

    return attempt("python", _DIRECT_READER, read, None, problems)


def _preview(finder: Finder, core: Core, source: Input) -> Crash:
    from crashkit.debugger.direct import DirectReader

    return DirectReader(core, describe(core, source, finder)).preview()


def _python_stacks(core: Core, source: Input, finder: Finder) -> Stacks:
    """Where a process of a job stood, by its core alone."""
    from crashkit.debugger.direct import DirectReader
    from crashkit.evidence.job.survey import Stacks

    scene = describe(core, source, finder)
    reader = DirectReader(core, scene)
    crash = _with_source(reader, reader.preview(), finder)
    pid = crash.process.pid if crash.process is not None else None
    known = {thread.tid: replace(thread, registers={}) for thread in crash.threads if thread.python_frames}
    return Stacks(known.get(crash.crashed_thread) if crash.crashed_thread else None, known.get(pid))


def _with_source(reader: DirectReader, preview: Crash, finder: Finder) -> Crash:
    """The preview with the source lines of the crashed thread: they say which of its values matter."""
    from crashkit.stacks.source import Sources, in_no_file

    kept = in_no_file(reader.kept_sources, preview.process.argv if preview.process else ())
    sources = Sources(_locator(preview, finder), None, kept)
    threads = tuple(
        replace(thread, python_frames=sources.stack(thread.python_frames)) if thread is preview.thread else thread
        for thread in preview.threads
    )
    return replace(preview, threads=threads)


def _read_meanwhile(core: Core, scene: Scene, direct: Optional[_Direct], finder: Finder) -> _Meanwhile:
    """All that needs no stacks: it costs no time before a debugger has them."""
    from crashkit.evidence.core.last_words import last_words
    from crashkit.evidence.package_versions import package_versions

    none: tuple[LogLine, ...] = ()
    silence: list[Words] = []
    problems: list[SoftError] = []
    answer = _answered(direct.reader) if direct is not None else None
    told = _told_by_interpreter(scene.crash, direct.reader, finder, problems) if direct is not None else _Told()
    said = attempt("stacks", "the reader of last words", lambda: last_words(core, scene), silence, problems)
    words = tuple(map(_line_of_words, said))
    thrown = next((one.thrown for one in said if one.thrown is not None), None)
    if direct is not None and thrown is not None:
        words += attempt("stacks", "the reader of what a C++ exception carried", lambda: _carried(direct.reader, thrown), none, problems)
    silent: tuple[str, ...] = ()
    unwritten = attempt("stacks", "the reader of buffers", lambda: _unwritten(core, scene, direct), silent, problems)
    if answer is not None and _is_of_this_machine(scene):
        # Which of them count is known with the stacks; what is installed is remembered until then.
        known: dict[str, str] = {}
        attempt("python", "the reader of packages' versions", lambda: package_versions(answer.loaded, finder.folder), known, [])
    return _Meanwhile(answer, told, words, unwritten, problems)


def _told_by_interpreter(crash: Crash, reader: DirectReader, finder: Finder, problems: list[SoftError]) -> _Told:
    before = replace(crash, soft_errors=())
    ran = partial(_source_that_ran, _locator(crash, finder), crash)
    tasks = attempt("tasks", "the reader of asyncio's tasks", partial(reader.with_tasks, before, ran), before, problems)
    every = attempt("greenlets", "the reader of greenlets", partial(reader.with_greenlets, tasks), tasks, problems)
    lines = attempt("python", "the reader of torch's forward lines", partial(reader.with_forward, every), every, problems)
    return _Told(lines.tasks, lines.greenlets, tuple(thread.forward for thread in lines.threads), lines.soft_errors)


def _answered(reader: DirectReader) -> Answer:
    problems: list[SoftError] = []
    answer = attempt("python", _DIRECT_READER, reader.answer, Answer(), problems)
    return answer._replace(soft_errors=(*answer.soft_errors, *problems))


def _not_asked(forged: str) -> Answer:
    message = f"no kernel wrote this core: {forged}; debuggers would trust it, so none was run"
    return Answer(soft_errors=(SoftError(stage="stacks", message=message),))


def _described(core: Core, source: Input, finder: Finder, exe: Optional[Path]) -> Scene:
    """If describing the core fails: that it is one."""
    problems: list[SoftError] = []
    crash = Crash(source=Source(path=str(source.original), kind="core", size=source.original_size, truncated=core.truncated))
    scene = attempt("notes", "the reader of cores", lambda: describe(core, source, finder, exe), Scene(crash, (), {}, None, None), problems)
    loader = core_of_loader(scene)
    told = (loader,) if loader is not None else ()
    return scene._replace(crash=replace(scene.crash, soft_errors=(*told, *scene.crash.soft_errors, *problems)))


def _add_stacks(scene: Scene, answers: Sequence[Answer], logs: Sequence[_Log], finder: Finder) -> Crash:
    from crashkit.stacks.assemble import assemble
    from crashkit.stacks.handler import settle
    from crashkit.stacks.source import Sources, in_no_file

    crash = scene.crash
    kept = next((answer.kept_sources for answer in answers if answer.kept_sources), {})
    nowhere = in_no_file(kept, crash.process.argv if crash.process else ())
    sources = Sources(_locator(crash, finder), _modified(Path(crash.source.path)) if crash.source else None, nowhere)
    assembled = assemble(scene, answers, _dumps(logs), sources)
    changed = [
        SoftError(
            stage="source",
            message=f"{name} changed after the crash: line numbers may not match",
            hint="Compare with the version that was running.",
        )
        for name in sorted(sources.newer)
    ]
    told = [error for answer in answers for error in answer.soft_errors]
    symbols = dict(item for answer in reversed(answers) for item in answer.symbols.items())
    at = next((answer.visited for answer in answers if answer.visited), None)
    threads = tuple(replace(thread, visited=at) if thread.crashed and at else thread for thread in assembled.threads)
    settled = settle(scene, replace(crash, threads=threads))
    if (signal := settled.signal) is not None and (address := signal.address) is not None:
        # The stack has shown by now which fault it was.
        arrays = [array for answer in answers for array in answer.arrays]
        described = next((array for array in arrays if array.start <= address < array.end), None)
        settled = replace(settled, signal=replace(signal, array=described, below=_nearest_below(arrays, address)))
    return replace(
        settled,
        process=_with_versions(settled.process, scene, assembled.threads, [file for answer in answers for file in answer.loaded], finder),
        python=_runtime(scene, answers),
        modules=tuple(replace(module, symbols=symbols[module.path]) if module.path in symbols else module for module in crash.modules),
        debugger=_debugger(answers),
        soft_errors=(*crash.soft_errors, *_soft_errors(logs), *told, *assembled.soft_errors, *changed),
    )


def _nearest_below(arrays: Sequence[AccessedArray], address: int) -> tuple[AccessedArray, ...]:
    """Those that end below the address, one for each end, the nearest first."""
    by_end: dict[int, AccessedArray] = {}
    for array in arrays:
        if (end := max(array.end, array.owner_end or 0)) <= address:
            by_end.setdefault(end, array)
    return tuple(by_end[end] for end in sorted(by_end, reverse=True)[:_MOST_BELOW])


def _with_versions(
    process: Optional[Process], scene: Scene, threads: Sequence[Thread], loaded: Sequence[str], finder: Finder
) -> Optional[Process]:
    """Packages that were on a stack, mapped or imported, in this order, where this machine has the very files of the crashed one."""
    if process is None:
        return None
    from crashkit.evidence.package_versions import package_versions

    same = _is_of_this_machine(scene)
    # The same interpreter is here: so is what lies in its folders, though wheels seldom have a build-id.
    states = ("found", "unverified") if same else ("found",)
    mapped = {path: None for path, file in scene.files.items() if file.state in states}
    stacks = filter(None, (_file_of(frame) for thread in threads for frame in thread.frames))
    files = [*(file for file in stacks if same or file in mapped), *mapped, *(loaded if same else ())]
    return replace(process, versions={**package_versions(files, finder.folder), **process.versions})


def _is_of_this_machine(scene: Scene) -> bool:
    """Whether the very interpreter is here."""
    return scene.interpreter is not None and scene.files[scene.interpreter.module.path].state == "found"


def _file_of(frame: Frame) -> Optional[str]:
    """The file of its code, or the module that it is in."""
    return frame.file if isinstance(frame, PythonFrame) else frame.module if isinstance(frame, NativeFrame) else None


def _debugger(answers: Sequence[Answer]) -> Optional[str]:
    """The debugger that provided native frames, or else any that answered."""
    names = [answer.debugger for answer in sorted(answers, key=lambda answer: answer.native is None) if answer.debugger]
    return names[0] if names else None


def _abort_message(answers: Sequence[Answer]) -> tuple[LogLine, ...]:
    """glibc's abort message, which is also in the core."""
    text = next((answer.abort_message for answer in answers if answer.abort_message), None)
    if not text:
        return ()
    kind, fields = _classified(text)
    return (LogLine(text=text, kind=kind, path="core", from_core=True, fields=fields),)


def _line_of_words(words: Words) -> LogLine:
    kind, fields = (words.kind, dict(words.fields)) if words.kind else _classified(words.text)
    return LogLine(text=words.text, kind=kind, path="core", from_core=True, fields=fields)


def _carried(reader: DirectReader, thrown: int) -> tuple[LogLine, ...]:
    """What it could have said of the Python exception that the C++ one at this address carried."""
    carried = reader.carried(thrown)
    if carried is None:
        return ()
    where = f", raised in {carried.function} ({carried.file}:{carried.line})" if carried.function and carried.file else ""
    said = f"{carried.text}{where}"
    text = f"the C++ exception carried a Python exception: {said}"
    return (LogLine(text=text, kind="cxx-python-error", path="core", from_core=True, fields={"python_error": said}),)


def _line_of_core(text: str) -> LogLine:
    kind, fields = _classified(text)
    return LogLine(text=text, kind=kind, path="core", from_core=True, fields=fields)


def _unwritten(core: Core, scene: Scene, direct: Optional[_Direct]) -> tuple[str, ...]:
    """The last lines that were still in the buffers of standard output and error, Python's and the C library's."""
    from crashkit.evidence.core.stdio import unwritten
    from crashkit.evidence.text.neighbours import last_lines

    pythons = direct.reader.unwritten() if direct is not None else []
    streams = [*pythons, *unwritten(core, scene.modules, {path: file.path for path, file in scene.files.items()})]
    return tuple(line for data in streams for line in last_lines(data))


def _classified(text: str) -> tuple[Optional[str], dict[str, str]]:
    """Kind and fields of a line."""
    from crashkit.evidence.text.log_patterns import Classifier

    return Classifier().classify(text) or (None, {})


def _is_same(words: LogLine, line: LogLine) -> bool:
    """Whether a log has these words, too: it may name the function that a core has lost, and tell a panic in two lines."""
    message = words.fields.get("message") if words.kind == "rust-panic" else None
    if message is not None:
        return line.kind == words.kind and line.fields.get("message") == message.partition("\n")[0].strip()
    return line.text.strip().endswith(words.text.removeprefix("Fatal Python error: ").strip())


def _fatal_error(core: Core, scene: Scene, crash: Crash) -> tuple[LogLine, ...]:
    """The interpreter's own last words, if no log has them."""
    from crashkit.stacks.fatal_error import fatal_error

    thread = crash.thread
    text = fatal_error(thread, lambda address: text_at(core, scene.files, address)) if thread is not None else None
    if text is None:
        return ()
    kind, fields = _classified(text)
    return (LogLine(text=text, kind=kind, path="core", from_core=True, fields=fields),)


def _runtime(scene: Scene, answers: Sequence[Answer]) -> Optional[PythonRuntime]:
    runtime = scene.crash.python
    versions = [answer.python_version for answer in answers if answer.python_version]
    if runtime is None:
        return PythonRuntime(version=versions[0] if versions else None) if any(answer.python for answer in answers) else None
    told = [answer for answer in answers if answer.python is not None]
    return replace(
        runtime,
        # The most exact one: 3.11.7 is more exact than 3.11.
        version=max([*filter(None, [runtime.version]), *versions], key=lambda version: version.count("."), default=None),
        debug_info=interpreter_has_debug_info(scene),
        finalizing=next((answer.python_finalizing for answer in told if answer.python_finalizing is not None), None),
        started=next((answer.python_started for answer in answers if answer.python_started is not None), None),
        pending_signals=next((answer.pending_signals for answer in told if answer.pending_signals), ()),
        script=next((str(answer.python_script) for answer in told if answer.python_script), None),
    )


def _locator(crash: Crash, finder: Finder) -> Callable[[str], Optional[Path]]:
    """Finds source files; a relative name (CPython 3.8 and older, a program that embeds Python) counts from where the process was started.

    A crash folder says where that was. PWD is the shell's: what another program started elsewhere has a wrong one, or none.
    """
    shell = crash.process.environment.get("PWD", "") if crash.process else ""
    folders = [folder for folder in (finder.working_folder, shell) if folder.startswith("/") and "\0" not in folder]

    def locate(name: str) -> Optional[Path]:
        names = [name] if name.startswith("/") else [f"{folder}/{name}" for folder in folders]
        return next((path for one in names if (path := finder.source(one)) is not None), None)

    return locate


def _source_that_ran(locate: Callable[[str], Optional[Path]], crash: Crash, name: str) -> Optional[str]:
    """The text of a source; None if it cannot be read or was changed after the crash."""
    from crashkit.stacks.source import readable_source

    path = locate(name)
    read = readable_source(path) if path is not None else None
    crashed_at = _modified(Path(crash.source.path)) if crash.source is not None and crash.source.kind != "live" else None
    return read[0] if read is not None and (crashed_at is None or read[1] <= crashed_at) else None


def _modified(path: Path) -> Optional[float]:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


class _Asked(NamedTuple):
    """Who reads the stacks of a core."""

    debuggers: Sequence[Debugger]
    """Best first."""
    direct: bool
    """Whether crashkit reads Python frames itself, too."""
    living: Optional[Living] = None
    looked_at: Optional[str] = None
    """Why it was, of a process that lived."""
    ahead: Optional[Ahead] = None
    """A gdb that is to open the core as soon as that was checked."""


class _Direct(msgspec.Struct, frozen=True):
    """What crashkit's own reader of Python frames knows before a debugger is asked."""

    reader: DirectReader
    preview: Crash
    tells_all: bool


class _Told(msgspec.Struct, frozen=True):
    """What the interpreter's memory tells beside the stacks."""

    tasks: tuple[Task, ...] = ()
    greenlets: tuple[Greenlet, ...] = ()
    forward: tuple[tuple[PythonFrame, ...], ...] = ()
    """Of each thread."""
    soft_errors: tuple[SoftError, ...] = ()

    def added_to(self, crash: Crash) -> Crash:
        """The crash with it; the crash's threads are those that were described."""
        told = zip(crash.threads, self.forward, strict=False) if any(self.forward) else ()
        threads = tuple(replace(thread, forward=forward) for thread, forward in told) or crash.threads
        errors = (*crash.soft_errors, *self.soft_errors)
        return replace(crash, tasks=self.tasks, greenlets=self.greenlets, threads=threads, soft_errors=errors)


class _Meanwhile(msgspec.Struct, frozen=True):
    """What is read while a debugger works."""

    answer: Optional[Answer]
    """crashkit's own."""
    told: _Told
    words: tuple[LogLine, ...]
    """What the process said as it died."""
    unwritten: tuple[str, ...]
    """What it had printed and not written."""
    problems: list[SoftError]


class _Log(NamedTuple):
    text: Input
    evidence: LogEvidence


class _Clock:
    """Of one thread."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now

    def beside(self) -> _Clock:
        """One for another thread, which begins now; its laps stand among these."""
        clock = _Clock()
        clock.laps = self.laps
        return clock

    def join(self, other: _Clock) -> None:
        """The other thread has ended: what passed until its last lap was not this one's."""
        self._last = max(self._last, other._last)


__all__ = ["Options", "analyze"]
