"""Write what the supervisor saw of one crash into the store, and analyze it.

This runs in a separate process, forked from the supervisor, so that a failure here does not affect the supervision.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Optional

from crashkit import __version__, isolation, scratch
from crashkit.collect.host import cuda, handlers, linux, oom
from crashkit.collect.host.limits import FILTER, allow_large_files
from crashkit.collect.host.snapshot import versions
from crashkit.collect.inventory import inventory
from crashkit.collect.supervise.core_watch import CoreFile
from crashkit.collect.supervise.sighting import RunSettings, Sighting, printable, say, taken_of
from crashkit.collect.supervise.stderr_tail import KEPT
from crashkit.crashfolder.files import create, is_regular, open_regular
from crashkit.crashfolder.ids import identity
from crashkit.crashfolder.manifest import OTHERS, SCHEMA, File, Manifest, read_manifest, write_manifest
from crashkit.crashfolder.store import Store, prune, temporary_store
from crashkit.crashfolder.work import Work
from crashkit.environment import is_one_of_several, shown
from crashkit.errors import CollectError, EvidenceError
from crashkit.history.address import NONE, VARIABLE, chosen, default
from crashkit.history.release import VARIABLE as RELEASE
from crashkit.history.release import commit_of, named
from crashkit.naming.signals import signal_name
from crashkit.secrets.text import Secrets

_RESERVE = 256 << 20
"""Bytes of disk space to leave free."""
_ANALYSIS_DEADLINE = 900
_DELIVERY_DEADLINE = 60
_CHUNK, _BLOCK = 1 << 20, 4096
_ZEROS = bytes(_BLOCK)
_TRACEBACK = b"Traceback (most recent call last):"
_CHAINED = (b"The above exception was the direct cause", b"During handling of the above exception")
_LAST_LINES = 40
_LONGEST_SENTENCE = 240
_LONGEST_ANSWER = 160
_NOBODY_KNOWN = ", sender unknown"
"""Cells of the user's own line in what is said of a crash."""
ERROR_FILE = "error.json"
"""torchelastic's, of the exception that ended a rank."""
_MINIMAL = ".core.minimal"
PARTIAL = ".core.partial"
"""A copy in progress."""


def keep(seen: Sighting, settings: RunSettings, store: Store, work: Work) -> Manifest:
    """Move a crash into a work folder of the store and publish it; its manifest.

    The core comes first and everything else is optional, so that no failure costs more than the file that it is about. What is
    moved is in one of two places at any moment: in the run's folder, or in this crash's own. `recover` looks into both.

    Raises OSError and CollectError: the core is where `whereabouts` says.
    """
    clean = _Clean(seen, settings)
    manifest = _gather(seen, settings, store, work, clean)
    notes: list[str] = []
    for other in seen.others:
        name = _entry(other)
        with _optional(f"{OTHERS}/{name}", notes):
            _keep_other(other, settings, store, work, name, clean)
            manifest.setdefault("others", []).append(name)
    manifest["notes"] += map(clean.text, notes)
    publish(work, manifest, store, seen.when, settings.history)
    return manifest


def _entry(seen: Sighting) -> str:
    return f"rank{seen.rank}-{seen.pid}" if seen.rank is not None else str(seen.pid)


def _keep_other(seen: Sighting, settings: RunSettings, store: Store, work: Work, name: str, clean: _Clean) -> None:
    """Another process of the incident, in a crash folder below its own. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(OTHERS, 0o700, dir_fd=work.descriptor)
    entry = f"{OTHERS}/{name}"
    os.mkdir(entry, 0o700, dir_fd=work.descriptor)
    descriptor = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=work.descriptor)
    folder = Work(work.path / entry, descriptor, -1)
    try:
        manifest = _gather(seen, settings, store, folder, clean, is_head=False)
        manifest["files"] = inventory(folder, manifest.get("files", ()))
        manifest["analysis"] = "none"
        write_manifest(folder.descriptor, manifest)
    finally:
        folder.close()


def _gather(seen: Sighting, settings: RunSettings, store: Store, work: Work, clean: _Clean, is_head: bool = True) -> Manifest:
    """Move what there is of one process into the folder; the manifest for it. Raises OSError and CollectError.

    The kernel's log, the same for all of an incident, is only at its head.
    """
    notes = list(seen.notes)
    manifest = _manifest(seen, settings, notes, clean)
    if seen.core is not None:  # in case that the second manifest.json fails
        manifest["files"] = [{"name": "core", "kind": "core", "size": seen.core.size}]
    with _optional("the first manifest.json", notes):
        write_manifest(work.descriptor, manifest)
    if note := _keep_core(seen, settings, store, work):
        notes.append(note)
    if seen.alive is not None:
        with _optional("the stacks of the living process", notes):
            notes += _keep_live(seen.pid, settings.inbox, work, manifest)
    # A launcher may send the stderr of its ranks into files.
    for name, stderr in (("stderr.log", seen.stderr), ("rank.log", _own_stderr(seen))):
        if stderr:
            with _optional(name, notes):
                work.write(name, clean.text(stderr.decode("utf-8", "replace")).encode())
    if seen.error_file:
        with _optional(ERROR_FILE, notes):
            work.write(ERROR_FILE, clean.text(seen.error_file.decode("utf-8", "replace")).encode())
    if settings.capture == "ptrace":
        with _optional("gdb.txt", notes):
            entry = f"{seen.pid}.gdb.txt"
            if stacks := stacks_of_gdb(settings.inbox, entry):
                work.write("gdb.txt", clean.text(stacks).encode())
                settings.inbox.remove(entry)
            elif work.stat("core") is None and seen.signal != signal.SIGKILL:
                notes.append("the process was traced, but neither a core nor its stacks were saved")
    dumps: list[str] = []
    if settings.gpu_folder is not None:
        for path in cuda.dumps(settings.gpu_folder, _own_pid(seen)):
            with _optional(path.name, notes):
                _move(path, work)
                dumps.append(path.name)
        recording = settings.gpu_folder / f"{cuda.RECORDING}{seen.rank}"
        if is_regular(recording):
            with _optional(recording.name, notes):
                _move(recording, work)
    if dumps:
        files, left_out = _copy_gpu_files(dumps, seen, settings, work, clean)
        manifest["files"] = [*manifest.get("files", []), *files]
        notes += left_out
    lines = oom.kernel_log(settings.began_monotonic) if is_head else []
    if lines:
        lines = clean.text("\n".join(lines)).split("\n")
        with _optional("dmesg.log", notes):
            work.write("dmesg.log", ("\n".join(lines) + "\n").encode())
    if seen.killed is not None:
        by, evidence = oom.confirm(seen.killed["by"], seen.killed["evidence"], lines or [], seen.pid)
        manifest["killed"] = {"by": by, "evidence": evidence}
    manifest["notes"] = list(map(clean.text, notes))
    return manifest


def _move(path: Path, work: Work) -> None:
    """Move what the process wrote into the crash folder. Raises OSError."""
    os.rename(path, path.name, dst_dir_fd=work.descriptor)
    os.chmod(path.name, 0o600, dir_fd=work.descriptor)


def _copy_gpu_files(dumps: list[str], seen: Sighting, settings: RunSettings, work: Work, clean: _Clean) -> tuple[list[File], list[str]]:
    from crashkit.collect import gpu_files  # not at the start of `crashkit run`: it imports the readers of GPU cores

    process = seen.process
    run = gpu_files.Run(
        pid=_own_pid(seen),
        cwd=process.cwd if process else None,
        argv=process.argv if process else settings.command,
        environment=settings.environment,
        began=settings.began,
        ended=seen.when,
        rank=seen.rank,
    )
    masks = None if settings.show_secrets else gpu_files.Masks(clean.text, clean.source)
    return gpu_files.copy_files(dumps, run, work, masks)


def _own_stderr(seen: Sighting) -> bytes:
    """The end of a rank's stderr where its launcher sends that into a file."""
    path = seen.process.stderr if seen.process is not None else None
    if path is None or not path.startswith("/"):
        return b""
    try:
        with open_regular(path) as file:
            if os.path.samestat(os.fstat(file.fileno()), os.fstat(2)):
                return b""  # the log of all
            file.seek(max(0, os.fstat(file.fileno()).st_size - KEPT))
            return file.read(KEPT)
    except OSError:
        return b""


def _keep_live(pid: int, run: Work, work: Work, manifest: Manifest) -> list[str]:
    """Move what was taken of a living process from a run's folder; what is missing. Raises OSError."""
    core, told = taken_of(pid)
    if run.stat(core) is not None:
        os.rename(core, "core", src_dir_fd=run.descriptor, dst_dir_fd=work.descriptor)
    if run.stat(told) is None:
        return ["nothing could be read from the living process"]
    with open_regular(told, run.descriptor) as file:
        found = json.loads(file.read())
    run.remove(told)
    problem = found.pop("problem", None)
    if problem is None:
        manifest["live"] = found
    left_out = found.pop("left_out", 0)
    return (
        [problem]
        if problem
        else [f"{left_out >> 20:,} MiB of memory were not copied, so as not to stop the process for longer"]
        if left_out
        else []
    )


def stacks_of_gdb(run: Work, entry: str) -> Optional[str]:
    """What gdb saved of a traced process in a run's folder; None if it is not there. Raises OSError."""
    if run.stat(entry) is None:
        return None
    with open_regular(entry, run.descriptor) as file:
        return file.read().decode("utf-8", "replace")


def _shown(settings: RunSettings) -> list[str]:
    """The options of `analyze` that the run was given, too."""
    return [*(["--show-secrets"] if settings.show_secrets else []), *([] if settings.locals else ["--no-locals"])]


def _smaller(settings: RunSettings, work: Work) -> list[str]:
    """The options of `analyze` that also write a minimal core."""
    if not settings.minimal or work.stat("core") is None:
        return []
    work.remove(_MINIMAL)
    return ["--minimal-core", str(work.path / _MINIMAL)]


def _take_minimal(work: Work, manifest: Manifest) -> None:
    """Let the minimal core that the analysis wrote take the place of the whole one. Raises OSError; then the whole one stays."""
    made, whole = work.stat(_MINIMAL), work.stat("core")
    file = next((one for one in manifest.get("files", []) if one.get("name") == "core"), None)
    if made is None or whole is None or file is None:
        return
    # When the process died.
    os.utime(_MINIMAL, ns=(whole.st_atime_ns, whole.st_mtime_ns), dir_fd=work.descriptor, follow_symlinks=False)
    os.rename(_MINIMAL, "core", src_dir_fd=work.descriptor, dst_dir_fd=work.descriptor)
    file["size"] = file["expected"] = made.st_size
    file["minimal"] = True
    write_manifest(work.descriptor, manifest)


def publish(work: Work, manifest: Manifest, store: Store, when: float, index: Optional[str] = None) -> None:
    """List the evidence in the manifest and give the folder its name. Raises OSError and CollectError.

    A crash that is not to be analyzed now goes into the history, `index` or the store's own, with what is known of it.
    """
    manifest["files"] = inventory(work, manifest.get("files", ()))
    if chosen(index, os.environ, store.path) != NONE:
        manifest.setdefault("record", os.urandom(16).hex())
    executable = manifest.get("executable") or manifest.get("name") or (manifest.get("command") or ["unknown"])[0]
    manifest["id"] = identity(when, manifest.get("pid", 0), executable)
    with _optional("the complete manifest.json", manifest.setdefault("notes", [])):
        write_manifest(work.descriptor, manifest)
    if read_manifest(work.descriptor) is None:
        raise OSError(errno.ENOSPC, "cannot write manifest.json")
    store.publish(work, manifest["id"])
    if work.path.name != manifest["id"]:
        manifest["id"] = work.path.name
        with _optional("the complete manifest.json", []):
            write_manifest(work.descriptor, manifest)
    if manifest.get("analysis") != "pending":
        remember(work, manifest, index)


@contextlib.contextmanager
def _optional(name: str, notes: list[str]) -> Iterator[None]:
    """A failure here costs this file, and is noted."""
    try:
        yield
    except OSError as error:
        notes.append(f"{name} was not kept: {error.strerror}")


def whereabouts(seen: Sighting, settings: RunSettings, work: Optional[Work] = None) -> Optional[str]:
    """The path of the core of a crash that could not be kept; None if it has none."""
    captured = f"{seen.pid}.core"
    if work is not None and work.stat("core") is not None:
        return str(work.path / "core")
    if settings.inbox.stat(captured) is not None:
        return str(settings.inbox.path / captured)
    return seen.core.place if seen.core is not None else None


class _Clean:
    """What may be written into the crash folder: texts without secrets, also without those that only the environment names."""

    def __init__(self, seen: Sighting, settings: RunSettings) -> None:
        self._secrets = None if settings.show_secrets else Secrets()
        if self._secrets is not None:
            self._secrets.environment(settings.environment)
            self._secrets.arguments(settings.command)
            self._secrets.arguments(seen.process.argv if seen.process else ())

    def text(self, text: str) -> str:
        return text if self._secrets is None else self._secrets.repeated(self._secrets.text(text))

    def source(self, text: str) -> str:
        return text if self._secrets is None else self._secrets.repeated(self._secrets.text(text, source=True))

    def arguments(self, arguments: Sequence[str]) -> list[str]:
        return list(arguments) if self._secrets is None else list(map(self._secrets.repeated, self._secrets.arguments(arguments)))

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        kept = shown(variables)
        if self._secrets is None:
            return kept
        return {name: self._secrets.repeated(value) for name, value in self._secrets.environment(kept).items()}


def _own_pid(seen: Sighting) -> int:
    return seen.process.namespace_pid if seen.process else seen.pid


def _keep_core(seen: Sighting, settings: RunSettings, store: Store, work: Work) -> Optional[str]:
    """Move or copy the core into the folder; what went wrong, if anything did."""
    core = seen.core
    captured = f"{seen.pid}.core"
    failure: Optional[str] = None
    is_cut = core is not None and core.head is not None and core.head.expected > core.size
    if core is not None and (is_cut or settings.minimal) and settings.inbox.stat(captured) is not None:
        # A limit cut the kernel's, and the tracer's is whole; or a minimal one was taken, and the kernel wrote its own all the same.
        core.drop()
        core = None
    if core is not None:
        failure = _take(core, store, work, settings)
    elif settings.capture == "core" and settings.pattern.kind == "pipe" and seen.core_dumped:
        failure = handlers.fetch(settings.pattern, seen.pid, settings.began, seen.process and seen.process.cwd, work.path / "core")
    if work.stat("core") is None and settings.inbox.stat(captured) is not None:
        try:
            os.rename(captured, "core", src_dir_fd=settings.inbox.descriptor, dst_dir_fd=work.descriptor)
        except OSError:
            return f"the core could not be moved and stays at {settings.inbox.path / captured}"
        failure = None
    if core is None:  # other programs than the kernel write zeros where nothing was ever stored
        with contextlib.suppress(OSError):
            _make_sparse(work)
    return failure


def _take(core: CoreFile, store: Store, work: Work, settings: RunSettings) -> Optional[str]:
    """Move the kernel's core into the folder by its second name, or copy it; what went wrong, if anything did."""
    if core.second is not None and core.second.in_store:
        with contextlib.suppress(OSError):
            found = os.stat(core.second.entry, dir_fd=core.second.inbox, follow_symlinks=False)
            if os.path.samestat(found, os.fstat(core.descriptor)):
                os.rename(core.second.entry, "core", src_dir_fd=core.second.inbox, dst_dir_fd=work.descriptor)
                with contextlib.suppress(OSError):
                    os.chmod("core", 0o600, dir_fd=work.descriptor)
                core.drop()
                return None
    failure = copy_core(core.descriptor, work, store)
    if failure is None:
        core.drop()
        return None
    if settings.analyze and _copy_minimal(core.descriptor, work):
        failure = f"{failure}, but a minimal one was"
    return f"{failure}; it stays at {core.place}" if core.place else failure


def _copy_minimal(source: int, work: Work) -> bool:
    """Write a minimal core of an open one into the folder, where there is no space for the whole; whether it is there."""
    work.remove(_MINIMAL)
    path = f"/proc/{os.getpid()}/fd/{source}"
    command = isolation.crashkit("analyze", path, "--json", "--quiet", "--minimal-core", str(work.path / _MINIMAL))
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        isolation.run(command, _ANALYSIS_DEADLINE, folder=work.path, keep=isolation.FOR_PYTHON, stdout=subprocess.DEVNULL)
    if work.stat(_MINIMAL) is None:
        return False
    try:
        found = os.fstat(source)
        os.utime(_MINIMAL, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=work.descriptor, follow_symlinks=False)
        os.rename(_MINIMAL, "core", src_dir_fd=work.descriptor, dst_dir_fd=work.descriptor)
    except OSError:
        return False
    return True


def no_room(place: str, store: Store) -> str:
    """What keeps the core at this path out of the crash store, and what to do, where its disk is too small; else an empty text."""
    try:
        needed, free = os.stat(place).st_blocks * 512, store.free()
    except OSError:
        return ""
    if needed + _RESERVE <= free:
        return ""
    wanted = (needed + _RESERVE) >> 20
    told = f"this takes {wanted} MiB free on the disk of {store.path}, which has {free >> 20}"
    return f": {told}; make room, or set CRASHKIT_HOME to another disk"


def copy_core(source: int, work: Work, store: Store) -> Optional[str]:
    """Copy an open core into the folder, keeping it sparse; the reason of a failure, else None.

    It gets its name once it is complete.
    """
    needed = os.fstat(source).st_blocks * 512
    if needed + _RESERVE > store.free():
        return f"the core of {needed >> 20} MiB was not kept: the disk of the crash store has only {store.free() >> 20} MiB free"
    work.remove(PARTIAL)
    try:
        with work.create(PARTIAL) as out:
            _copy_sparse(source, out)
        os.rename(PARTIAL, "core", src_dir_fd=work.descriptor, dst_dir_fd=work.descriptor)
    except OSError as error:
        work.remove(PARTIAL)
        return f"cannot copy the core into the crash store: {error.strerror}"
    return None


def _make_sparse(work: Work) -> None:
    """Give back the disk space of the core's blocks of zeros, such as the unused parts of thread stacks. Raises OSError."""
    descriptor = os.open("core", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=work.descriptor)
    try:
        for at, length in zeros(descriptor):
            linux.punch_hole(descriptor, at, length)
    finally:
        os.close(descriptor)


def zeros(descriptor: int) -> Iterator[tuple[int, int]]:
    """Position and length of each part of a file that consists of whole blocks of zeros."""
    at = began = 0
    while data := os.pread(descriptor, _CHUNK, at):
        for start in range(0, len(data), _BLOCK):
            block = data[start : start + _BLOCK]
            if block != _ZEROS[: len(block)]:
                if at + start > began:
                    yield began, at + start - began
                began = at + start + len(block)
        at += len(data)
    if at > began:
        yield began, at - began


def _copy_sparse(source: int, out: BinaryIO) -> None:
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole to the end
            break
        hole = os.lseek(source, at, os.SEEK_HOLE)
        out.seek(at)
        while at < hole and (data := os.pread(source, min(1 << 20, hole - at), at)):
            out.write(data)
            at += len(data)
    out.truncate(size)


def _manifest(seen: Sighting, settings: RunSettings, notes: list[str], clean: _Clean) -> Manifest:
    process = seen.process
    head = seen.core.head if seen.core is not None else None
    if process is not None and head is not None and head.name != process.name:
        process = None  # it has executed another program since the snapshot
    manifest: Manifest = {
        "schema": SCHEMA,
        "crashkit": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seen.when)),
        "seen": round(seen.when, 3),
        "is_command": seen.is_command,
        "command": clean.arguments(settings.command),
        "core_dumped": seen.core_dumped,
        "files": [],
        "versions": versions(process and process.executable, process.libraries if process else ()),
        "environment": clean.environment({**settings.environment, **dict(process.place if process is not None else ())}),
        "limits": {name: list(values) for name, values in settings.limits.items()},
        "cgroup": oom.cgroup_memory(),
        "core_pattern": settings.pattern.text,
        "host": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "capture": settings.capture,
        "notes": list(map(clean.text, notes)),
        "analysis": "pending" if settings.analyze else "none",
    }
    if seen.pid:
        manifest["pid"] = seen.pid
        manifest["start"] = seen.start
    if head is not None:
        manifest["ppid"], manifest["name"] = head.ppid, head.name
        manifest["argv"] = clean.arguments(head.arguments.split())
    if process is not None:
        manifest["ppid"] = process.ppid
        manifest["name"] = process.name
        manifest["argv"] = clean.arguments(process.argv)
        if process.executable:
            manifest["executable"] = process.executable
        if process.cwd:
            manifest["cwd"] = clean.text(process.cwd)
        if process.namespace_pid != process.pid:
            manifest["namespace_pid"] = process.namespace_pid
    if seen.alive is not None:
        manifest["alive"] = clean.text(seen.alive)
    if seen.signal:
        manifest.update(ended_by(seen.signal))
    elif seen.exit_status:
        manifest["exit_status"] = seen.exit_status
    if seen.killed is not None:
        manifest["killed"] = seen.killed
    with contextlib.suppress(OSError):
        manifest["coredump_filter"] = FILTER.read_text().strip()
    return manifest


def ended_by(number: int) -> Manifest:
    """What a manifest says of a signal. Pure."""
    return {"signal": number, "signal_name": signal_name(number), "exit_status": 128 + number}


def analyse(folder: Path, options: Sequence[str] = (), variables: Optional[Mapping[str, str]] = None) -> bool:
    """Run `crashkit analyze` in a separate process, at our priority; whether it wrote a report. It may take 15 minutes.

    `variables` are added to its environment.

    Our working directory is the command's, where anyone may have put a `json.py`: the analysis starts in the private crash folder.
    """
    command = isolation.crashkit("analyze", str(folder), "--out", str(folder), *options)
    try:
        with create(folder / "analysis.log") as log:
            isolation.run(command, _ANALYSIS_DEADLINE, folder=folder, keep=isolation.FOR_PYTHON, extra=variables, stdout=log, stderr=log)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return (folder / "report.json").is_file()


def end_of(stderr: bytes) -> bytes:
    """How a log ends: its last traceback with those that it was raised from, and what follows; its last lines if it has none. Pure."""
    begin = len(stderr)
    while (found := stderr.rfind(_TRACEBACK, 0, begin)) >= 0:
        chained = begin == len(stderr) or any(words in stderr[found:begin] for words in _CHAINED)
        if not chained:
            break
        begin = found
    if begin == len(stderr):
        return b"\n".join(stderr.rstrip().split(b"\n")[-_LAST_LINES:])
    return stderr[stderr.rfind(b"\n", 0, begin) + 1 :]


def is_known_failure(log: bytes) -> bool:
    """Whether a signature finds the cause in this log, at least as likely. False if the analysis fails."""
    with scratch.Scratch("end") as folder:
        (folder / "stderr.log").write_bytes(log)
        command = isolation.crashkit("analyze", str(folder / "stderr.log"), "--json")
        try:
            done = isolation.run(command, _ANALYSIS_DEADLINE, folder=folder, keep=isolation.FOR_PYTHON)
            findings = json.loads(done.stdout)["findings"]
            return any(finding["confidence"] in ("certain", "likely") for finding in findings)
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
            return False


def compress_core(work: Work, manifest: Manifest) -> None:
    """Replace the core with core.zst. Raises OSError; the core is there until core.zst is complete."""
    import zstandard

    core = next((file for file in manifest.get("files", []) if file.get("name") == "core"), None)
    if core is None:
        return
    try:
        with open_regular("core", work.descriptor) as source, work.create(PARTIAL) as target:
            zstandard.ZstdCompressor(level=3).copy_stream(source, target, size=core.get("size", -1))
        os.rename(PARTIAL, "core.zst", src_dir_fd=work.descriptor, dst_dir_fd=work.descriptor)
    except OSError:
        work.remove(PARTIAL)
        raise
    core["name"], core["compression"] = "core.zst", "zstd"
    write_manifest(work.descriptor, manifest)
    work.remove("core")


def _compress_living(work: Work, seen: Sighting) -> None:
    """Cores of living processes have served: they take a quarter of the space."""
    for other in (other for other in seen.others if other.alive is not None):
        path = work.path / OTHERS / _entry(other)
        manifest = read_manifest(path)
        with contextlib.suppress(OSError):
            folder = Work(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), -1)
            try:
                if manifest is not None:
                    compress_core(folder, manifest)
            finally:
                folder.close()


def _is_rank(seen: Sighting) -> bool:
    """Whether it is one process of a job: what ended it explains the others' ends, known failure or not."""
    return seen.process is not None and is_one_of_several(dict(seen.process.place))


def process(seen: Sighting, settings: RunSettings) -> None:
    """Keep one crash, analyze it, run the --on-crash command, and prune the store. Prints what becomes of it."""
    os.nice(19)
    allow_large_files()
    if seen.exit_status and seen.is_command and not _is_rank(seen) and not is_known_failure(end_of(seen.stderr)):
        return
    work: Optional[Work] = None
    try:
        store = _present_store(settings.store)
        work = store.begin("crash")
        manifest = keep(seen, settings, store, work)
    except (OSError, CollectError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        place = whereabouts(seen, settings, work)
        mend = f"its core stays at {place}; crashkit list tries again" if place else "it has no core"
        say(f"{_describe(seen, {})}: cannot be written to the crash store {settings.store.path}: {reason}; {mend}")
        return
    what = _describe(seen, manifest)
    if work.stat("core") is None and (place := whereabouts(seen, settings, work)):
        say(
            f"{what}: its core could not be moved to the crash store and stays at {place}; crashkit list tries again{no_room(place, store)}"
        )
    try:
        done = settings.analyze and analyse_once(work, manifest, [*_shown(settings), *_smaller(settings, work)], settings.history)
    except OSError as error:  # it stays pending
        say(f"{what}: evidence in {work.path}; no report: {error.strerror}; crashkit show {work.path.name} tries again")
        return
    if done and settings.minimal:
        with contextlib.suppress(OSError):
            _take_minimal(work, manifest)
    if settings.kept is not None:
        with contextlib.suppress(OSError), open(settings.kept, "a", encoding="utf-8") as kept:
            kept.write(f"{work.path}\n")
    report = work.path / "report.html"
    is_oom = "killed" in manifest and manifest["killed"]["by"] == "oom"
    if done:
        say(f"{_answer(work.path, what, is_told=is_oom)}: {report if report.exists() else work.path / 'report.json'}")
    else:
        say(f"{what}: evidence in {work.path}" + (" (analysis failed, see analysis.log there)" if settings.analyze else ""))
    if settings.on_crash:
        _tell(settings.on_crash, work.path, report if report.exists() else work.path)
    if settings.compress:
        try:
            compress_core(work, manifest)
        except OSError as error:
            say(f"the core in {work.path} was not compressed: {error.strerror}")
    _compress_living(work, seen)
    name = work.path.name
    work.done()
    gone = prune(store, settings.retention, frozenset([name]))
    if gone:
        say(f"removed {len(gone)} old crash{'es' if len(gone) > 1 else ''} from {store.path}")


def analyse_once(work: Work, manifest: Manifest, options: Sequence[str] = (), index: Optional[str] = None) -> bool:
    """Analyze a published crash and record how that went; whether there is a report. Raises OSError if it cannot be recorded.

    The analysis writes the crash into the history, `index` or the store's own; of one that failed, the manifest's facts go there.
    """
    work.remove("analysis.log")
    here = os.stat(work.path, follow_symlinks=False)
    store = work.path.parent
    variables = _variables(store, manifest, chosen(index, os.environ, store))
    in_place = os.path.samestat(here, os.fstat(work.descriptor))
    done = in_place and analyse(work.path, options, variables)
    manifest["analysis"] = "done" if done else "failed"
    write_manifest(work.descriptor, manifest)
    if in_place and not done:
        remember(work, manifest, index)
    return done


def _variables(store: Path, manifest: Manifest, index: str) -> dict[str, str]:
    """What a process needs to write a crash into the history. In the environment: everybody can see a command line, with its password."""
    release = named(os.environ) or (commit_of(Path(manifest["cwd"])) if manifest.get("cwd", "").startswith("/") else "")
    return {VARIABLE: index, RELEASE: release, "CRASHKIT_HOME": str(store)}


def remember(work: Work, manifest: Manifest, index: Optional[str] = None) -> None:
    """Leave what is known of a crash without a report for the history, `index` or the store's own.

    `crashkit groups` takes it into that of the store, as the next crash does. Nobody may ever ask another one from here: it gets it now.
    """
    import socket

    from crashkit.history.entry import of_manifest
    from crashkit.history.spool import Spool

    store = work.path.parent
    index = chosen(index, os.environ, store)
    if index == NONE:
        return
    variables = _variables(store, manifest, index)
    entry = of_manifest(manifest, str(work.path), host=socket.gethostname(), release=variables[RELEASE])
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        Spool(store, index).put([entry])
        if index != default(store):
            deliver = isolation.entry("crashkit.history.record")
            isolation.run(deliver, _DELIVERY_DEADLINE, keep=isolation.FOR_PYTHON, extra=variables, stdout=subprocess.DEVNULL)


def _answer(folder: Path, what: str, is_told: bool) -> str:
    """What the report says: what happened, with the user's own line, its values and the cause; of a job, which process failed first.

    `is_told`: the cause is a part of `what`.
    """
    # This process ends soon; the supervisor, which does not, imports none of it.
    from crashkit.naming.standing import standing
    from crashkit.report import answer, job_wording, one_line, safe
    from crashkit.report.json import decode

    try:
        crash = decode((folder / "report.json").read_bytes())
    except (OSError, EvidenceError):
        return what
    if crash.job is not None and crash.job.root_cause is not None:
        return safe.clip(safe.line(f"{job_wording.described(crash.job)}: {job_wording.sentence(crash.job).rstrip('.')}"), _LONGEST_SENTENCE)
    found = answer.answer(crash)
    stands = standing(crash)
    where = f": {safe.clip(safe.line(stands.text), _LONGEST_ANSWER)}" if stands is not None else ""
    if found is not None:
        joint = " in" if found.chosen.why is None else "; meanwhile"
        where = f"{joint} {safe.clip(safe.line(answer.line(found, crash.signal)), _LONGEST_ANSWER)}"
    elif stands is None and (native := one_line.where(crash)):
        where = f" in {safe.clip(safe.line(native), _LONGEST_ANSWER)}"
    cause = "" if is_told else safe.line(one_line.cause(crash))
    if what.endswith(_NOBODY_KNOWN):
        # The report may know more than the process's status: a server's log says whom it killed, and why.
        known = bool(crash.findings) and not crash.findings[0].id.startswith("killed-by-signal-9")
        what, cause = (what.removesuffix(_NOBODY_KNOWN), cause) if known else (what, "")
    return f"{what}{where} ({cause})" if cause else f"{what}{where}"


def _present_store(store: Store) -> Store:
    """The store, or a fresh one if it was removed or something else is in its place. Raises CollectError if there is no place at all."""
    if store.is_there:
        return store
    fresh: Optional[Store] = None
    if not os.path.lexists(store.path):
        with contextlib.suppress(CollectError):
            fresh = Store(store.path)
    fresh = fresh or temporary_store()
    if fresh is None:
        raise CollectError("it was removed or replaced during the run", "Set CRASHKIT_HOME to another folder.")
    say(f"the crash store {store.path} was removed or replaced during the run: this crash goes to {fresh.path}")
    return fresh


def _describe(seen: Sighting, manifest: Manifest) -> str:
    name = manifest.get("name") or os.path.basename((manifest.get("command") or ["process"])[0])
    who = f"{printable(name)}[{seen.pid}]" if seen.pid else printable(name)
    if seen.is_command and _is_rank(seen):
        # Each task of a job may have a crashkit of its own, and all write to one log (`srun crashkit run`).
        who += f" (rank {seen.rank} on {printable(platform.node())})"
    if seen.exit_status:
        known = seen.is_command and not _is_rank(seen)
        return f"{who} exited with status {seen.exit_status}" + (" after a known failure" if known else "")
    if seen.alive is not None:
        return f"{who} was examined: {seen.alive}"
    if not seen.signal:
        return f"{who} had a fatal error"
    killed = manifest.get("killed")
    cause = {"oom": ", out of memory", "unknown": _NOBODY_KNOWN}[killed["by"]] if killed else ""
    return f"{who} died of {signal_name(seen.signal)}{cause}"


def _tell(command: str, folder: Path, report: Path) -> None:
    """Run the user's command with the report's path as its last argument."""
    environment: dict[str, str] = {**os.environ, "CRASHKIT_REPORT": str(report), "CRASHKIT_FOLDER": str(folder)}
    argv: Sequence[str] = [*shlex.split(command), str(report)]
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=2, timeout=600, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"--on-crash {command}: {error}")
