"""Sorts the evidence of one crash into the core, GPU cores, snapshots of torch's allocator, texts, and the crash folder's manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, NamedTuple, Optional

import msgspec
from msgspec.structs import replace

from crashkit.attempt import failed
from crashkit.crashfolder.files import is_regular
from crashkit.crashfolder.manifest import RECORDED, SNAPSHOT, SOURCE, Manifest, read_manifest
from crashkit.elf.headers import of_file
from crashkit.errors import EvidenceError
from crashkit.evidence.archive_kind import kind_of_head
from crashkit.evidence.below import cores_below, is_core
from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.gpu.dump import GpuDump, open_dump
from crashkit.evidence.input import Input, open_input
from crashkit.model import Crash, LogLine, Process, Signal, SoftError
from crashkit.naming.signals import signal_name

if TYPE_CHECKING:
    from crashkit.evidence.gpu.allocator import Snapshot

_CORES = frozenset({"core", "gpu-core"})
_NAMED = 4
_HISTORY = "history.sqlite"
OURS = ("manifest.json", "report.json", "report.html", "analysis.log", _HISTORY, f"{_HISTORY}-wal", f"{_HISTORY}-shm", "history.spool")
"""Files of a crash folder that are no evidence: crashkit wrote them."""


_REPORT = re.compile(
    rb"\s{0,9}(?:"
    rb'\{\s{0,9}"schema":\s?"crashkit\.\w{1,20}/'
    rb'|<!DOCTYPE html>.{0,200}<meta name="generator" content="crashkit"'
    rb")",
    re.DOTALL,
)
"""How the documents begin that crashkit writes (report/json.py, report/templates/head.html)."""


class _OldReport(EvidenceError):
    """What an earlier analysis wrote, a file or a folder. Beside evidence it is no mistake: core* names it, too."""


class GpuPiece(NamedTuple):
    """An opened GPU core."""

    dump: GpuDump
    source: Input


class KeptFile(msgspec.Struct, frozen=True):
    """A file of the crashed system in the crash folder."""

    name: str
    """Its path there."""
    kind: str
    path: Path


class Pieces(msgspec.Struct, frozen=True):
    """The sorted evidence of one crash; missing pieces are None or empty."""

    core: Optional[Core]
    core_input: Optional[Input]
    gpus: tuple[GpuPiece, ...]
    texts: tuple[Input, ...]
    manifest: Optional[Manifest]
    folder: Optional[Path]
    soft_errors: tuple[SoftError, ...]
    snapshots: tuple[Snapshot, ...] = ()
    """Of torch's allocator."""
    kept: tuple[KeptFile, ...] = ()
    """Sources of GPU kernels, snapshots of torch's allocator and dumps of its flight recorder in the crash folder."""


def sort_out(paths: Sequence[Path], open_files: ExitStack) -> Pieces:
    """Open every path; `open_files` closes them. One that is empty, gone or unreadable is a soft error beside others that are not.

    Raises EvidenceError if none can be opened, or if more than one is a core: these are several crashes.
    """
    core: Optional[Core] = None
    core_input: Optional[Input] = None
    gpus: list[GpuPiece] = []
    texts: list[Input] = []
    snapshots: list[Snapshot] = []
    manifest: Optional[Manifest] = None
    folder: Optional[Path] = None
    soft_errors: list[SoftError] = []
    others = 0
    unread: list[EvidenceError] = []
    # The order on the command line means nothing, nor does naming one twice.
    for path in sorted(dict.fromkeys(paths)):
        pieces = [path]
        if path.is_dir():
            try:
                path = _only_crash(path)
                pieces = _of_folder(path, read_manifest(path))
            except EvidenceError as error:
                unread.append(error)
                continue
            manifest = manifest or read_manifest(path)
            folder = path
        for piece in pieces:
            try:
                source = open_files.enter_context(open_input(piece))
                dump = open_dump(of_file(source.file), source.size)
                opened = open_core(source.file, piece, source.size) if dump is None else None
                snapshot: Optional[Snapshot] = None
                if dump is None and opened is None:
                    _refuse_archive(source, piece)
                    _refuse_report(source, piece)
                    snapshot = _snapshot(source, piece)
            except EvidenceError as error:
                # One damaged file does not make the others worthless: the empty log of `python app.py 2> err.log` beside the core.
                if piece is path:
                    unread.append(error)
                else:
                    soft_errors.append(_soft(error))
                continue
            except Exception as error:
                problem = failed("evidence", f"the reader of {piece}", error)
                if len(paths) == 1 and piece is path:
                    raise EvidenceError(problem.message, "This is a bug in crashkit: please report it.") from error
                soft_errors.append(problem)
                continue
            if dump is not None:
                gpus.append(GpuPiece(dump, source))
            elif snapshot is not None:
                snapshots.append(snapshot)
                source.close()
            elif opened is None:
                texts.append(source)
            elif core is None:
                core, core_input = opened, source
            else:
                others += 1
                source.close()
    if unread and len(unread) == len(set(paths)):
        raise unread[0]
    soft_errors += [_soft(error) for error in unread if not isinstance(error, _OldReport)]
    if snapshots and core is None and not gpus and not texts and manifest is None:
        raise EvidenceError(f"{snapshots[0].path} is a snapshot of torch's allocator: it shows no crash", "Pass the GPU core as well.")
    if others:
        given = " ".join(map(str, paths[:_NAMED])) + (" …" if len(paths) > _NAMED else "")
        raise EvidenceError(
            f"these are {others + 1} crashes, not one: each core is from a different one",
            f"To analyze them all and group equal ones: crashkit ci {given} --out DIR",
        )
    kept = _kept(folder, manifest) if folder is not None and manifest is not None else ()
    return Pieces(core, core_input, tuple(gpus), tuple(texts), manifest, folder, tuple(soft_errors), tuple(snapshots), kept)


def _snapshot(source: Input, piece: Path) -> Optional[Snapshot]:
    """A snapshot of torch's allocator; None for anything else."""
    from crashkit.evidence.gpu.allocator import is_snapshot, read_snapshot

    return read_snapshot(source.file, str(piece)) if is_snapshot(source.file) else None


def _soft(error: EvidenceError) -> SoftError:
    return SoftError(stage="evidence", message=str(error), hint=error.hint)


def _kept(folder: Path, manifest: Manifest) -> tuple[KeptFile, ...]:
    files = ((file.get("path", ""), str(file.get("kind")), folder / file.get("name", "")) for file in manifest.get("files", []))
    return tuple(KeptFile(*file) for file in files if file[1] in (SOURCE, SNAPSHOT, RECORDED) and is_regular(file[2]))


def _refuse_archive(source: Input, piece: Path) -> None:
    """Archives were unpacked before, where they can be. Raises EvidenceError."""
    source.file.seek(0)
    if kind_of_head(source.file.read(512)) is not None:
        message = f"{piece} is an archive that was not unpacked: it came through a pipe, or is in a crash folder or nested too deeply"
        raise EvidenceError(message, "Pass it as a file, or unpack it yourself and pass its files.")
    source.file.seek(0)


def _refuse_report(source: Input, piece: Path) -> None:
    """It quotes evidence, and would be taken for a log. Raises _OldReport."""
    source.file.seek(0)
    if _REPORT.match(source.file.read(1024)) is not None:
        page = piece.with_name("report.html")
        hint = f"Open {page}, or pass the core or log itself." if page.is_file() else "Pass the core or the log that it was written for."
        raise _OldReport(f"{piece} is a report of crashkit, not evidence", hint)
    source.file.seek(0)


def _only_crash(folder: Path) -> Path:
    """The crash folder of a store that has no other; else the folder itself. Raises EvidenceError if it has several, of several causes."""
    if read_manifest(folder) is not None:
        return folder
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.name not in OURS]
    except OSError:
        return folder
    if any(not entry.is_dir() for entry in entries):
        return folder
    crashes = [entry for entry in entries if not entry.is_symlink() and read_manifest(entry) is not None]
    if len(crashes) > 1:
        raise EvidenceError(
            f"{folder} contains {len(crashes)} crashes, not one", f"Pass one of its folders, such as {max(crashes)} (`crashkit list`)."
        )
    return crashes[0] if crashes else folder


def _of_folder(folder: Path, manifest: Optional[Manifest]) -> list[Path]:
    """The evidence in a folder: what its manifest lists, or else every regular file that is not ours."""
    if manifest is not None:
        kinds = {str(file.get("name")): str(file.get("kind")) for file in manifest.get("files", [])}
        names = [name for wanted in (_CORES, {SNAPSHOT}, _text_kinds()) for name, kind in kinds.items() if kind in wanted]
    else:
        try:
            names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(".") and entry.name not in OURS)
        except OSError as error:
            raise EvidenceError(f"{folder} cannot be read: {error.strerror}", "Run as its owner or as root.") from error
    found = [folder / name for name in names if Path(name).name == name and not (folder / name).is_symlink() and (folder / name).is_file()]
    if manifest is None and not any(map(is_core, found)):
        found += _core_below(folder)
    if not found and manifest is None:
        if (folder / "report.html").is_file():
            raise _OldReport(f"{folder} contains a report, not evidence", f"Open {folder / 'report.html'}, or pass the core or log itself.")
        raise EvidenceError(f"{folder} contains no crash evidence", "Pass a core, a log or a crash folder.")
    return found


def _core_below(folder: Path) -> list[Path]:
    """The one core in the subfolders of a folder that has none itself, if there is one. Raises EvidenceError if there are several."""
    below = cores_below(folder)
    if len(below.cores) <= 1:
        return [*below.cores]
    named = ", ".join(str(core.relative_to(folder)) for core in below.cores[:_NAMED]) + (", …" if len(below.cores) > _NAMED else "")
    more = "" if below.all_seen else " or more"
    raise EvidenceError(
        f"{folder} contains {len(below.cores)}{more} crashes, not one: {named}",
        f"Pass one of these cores, or analyze them all and group equal ones: crashkit ci {folder} --out DIR",
    )


def _text_kinds() -> frozenset[str]:
    """What a manifest calls a file that `evidence.text` reads."""
    from crashkit.evidence.text import formats

    return frozenset({"log", "rank-log", "kernel-log"}).union(format.source for format in formats.FORMATS)


def add_manifest(crash: Crash, manifest: Manifest) -> Crash:
    """Add what the collector recorded, for facts that the evidence itself lacks."""
    number = manifest.get("signal")
    if number == SIGKILL and crash.signal is not None and crash.signal.number != SIGKILL:
        crash = _without_another_death(crash)
    process = crash.process or Process()
    process = replace(
        process,
        pid=process.pid or manifest.get("namespace_pid") or manifest.get("pid"),
        ppid=process.ppid or manifest.get("ppid"),
        name=process.name or manifest.get("name"),
        executable=process.executable or manifest.get("executable"),
        argv=process.argv or tuple(manifest.get("argv", ())),
        exit_status=manifest.get("exit_status", process.exit_status),
        environment={**manifest.get("environment", {}), **process.environment},
        # What was found on the living host counts: this one may have other versions in the same place.
        versions={**process.versions, **manifest.get("versions", {})},
    )
    signal = crash.signal
    if signal is None and number:
        signal = Signal(number=number, name=signal_name(number))
    killed = manifest.get("killed")
    lines = tuple(map(_oom_line, killed.get("evidence", ()))) if killed and killed.get("by") == "oom" else ()
    return replace(
        crash,
        id=manifest.get("id", crash.id),
        time=crash.time or manifest.get("time"),
        process=process,
        signal=signal,
        log=(*crash.log, *lines),
        soft_errors=(*crash.soft_errors, *(SoftError(stage="collect", message=note) for note in manifest.get("notes", ()))),
    )


def _without_another_death(crash: Crash) -> Crash:
    """SIGKILL leaves neither a dump nor a line in the kernel's log: those are of another process with the same stderr or kernel."""
    name = crash.signal.name if crash.signal else "another signal"
    note = SoftError(
        stage="log", message=f"the logs report {name}: that was another process, since this one was killed; its stacks are omitted"
    )
    log = tuple(line for line in crash.log if line.kind not in ("kernel-segfault", "kernel-trap"))
    return replace(crash, signal=None, process=None, threads=(), crashed_thread=None, log=log, soft_errors=(*crash.soft_errors, note))


def _oom_line(text: str) -> LogLine:
    """A note of the collector: a kernel message, or its own text about the cgroup's counter."""
    from crashkit.evidence.text.log_patterns import Classifier

    kind, fields = Classifier().classify(text) or ("oom-event", {})
    return LogLine(text=text, kind=kind, fields=fields)
