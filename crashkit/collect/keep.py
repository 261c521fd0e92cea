"""Write what the supervisor saw of one crash into the store, and analyze it.

This runs in a separate process, forked from the supervisor, so that a failure here does not affect the supervision.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from crashkit import __version__
from crashkit.collect.host import cuda, handlers, oom
from crashkit.collect.host.limits import FILTER, all_limits
from crashkit.collect.host.snapshot import versions
from crashkit.collect.supervise.core_watch import CoreFile
from crashkit.collect.supervise.sighting import RunSettings, Sighting, say
from crashkit.crashfolder.files import create
from crashkit.crashfolder.ids import identity
from crashkit.crashfolder.manifest import SCHEMA, File, Killed, Manifest, write_manifest
from crashkit.crashfolder.redaction import allowed_environment, scrub, scrub_argv
from crashkit.crashfolder.store import Store, prune
from crashkit.elf.core_head import read_head
from crashkit.naming.signals import signal_name

_RESERVE = 256 << 20
"""Bytes of disk space to leave free."""
_ANALYSIS_DEADLINE = 900


def keep(seen: Sighting, settings: RunSettings) -> tuple[Path, Manifest]:
    """Write the crash's folder into the store; the folder and its manifest. Raises OSError and CollectError."""
    store = settings.store
    work = store.work_folder("crash")
    notes = list(seen.notes)
    files: list[File] = []
    core, note = _keep_core(seen, settings, work)
    if core is not None:
        files.append(core)
    if note:
        notes.append(note)
    if seen.stderr:
        with create(work / "stderr.log") as file:
            file.write(scrub(seen.stderr.decode("utf-8", "replace")).encode())
        files.append({"name": "stderr.log", "kind": "log"})
    if settings.capture == "ptrace":
        stacks = settings.capture_folder / f"{seen.pid}.gdb.txt"
        if stacks.exists():
            os.rename(stacks, work / "gdb.txt")
            files.append({"name": "gdb.txt", "kind": "gdb"})
        elif core is None and seen.signal != signal.SIGKILL:
            notes.append("gdb traced the process, but saved neither a core nor its stacks")
    if settings.gpu_folder is not None:
        for path in cuda.dumps(settings.gpu_folder, _own_pid(seen)):
            os.rename(path, work / path.name)
            os.chmod(work / path.name, 0o600)
            files.append({"name": path.name, "kind": "gpu-core", "size": (work / path.name).stat().st_size})
    lines = oom.kernel_log(settings.began_monotonic)
    if lines:
        with create(work / "dmesg.log") as file:
            file.write(scrub("\n".join(lines) + "\n").encode())
        files.append({"name": "dmesg.log", "kind": "kernel-log"})
    manifest = _manifest(seen, settings, files, notes, lines or [])
    write_manifest(work, manifest)
    executable = manifest.get("executable") or manifest.get("name") or settings.command[0]
    name = identity(seen.when, seen.pid, executable)
    manifest["id"] = name
    write_manifest(work, manifest)
    folder = store.publish(work, name)
    if folder.name != name:
        manifest["id"] = folder.name
        write_manifest(folder, manifest)
    return folder, manifest


def _own_pid(seen: Sighting) -> int:
    return seen.process.namespace_pid if seen.process else seen.pid


def _keep_core(seen: Sighting, settings: RunSettings, work: Path) -> tuple[Optional[File], Optional[str]]:
    """Move or copy the core into the folder; its entry in the manifest, or why there is none."""
    target = work / "core"
    core = seen.core
    failure: Optional[str] = None
    if core is not None:
        if core.in_store and core.link is not None:
            os.rename(core.link, target)
            os.chmod(target, 0o600)
        else:
            failure = copy_core(core, target, settings.store)
        core.drop()
    elif settings.capture == "core" and settings.pattern.kind == "pipe" and seen.core_dumped:
        failure = handlers.fetch(settings.pattern, seen.pid, settings.began, seen.process and seen.process.cwd, target)
    captured = settings.capture_folder / f"{seen.pid}.core"
    if not target.exists() and captured.exists():
        os.rename(captured, target)
    if not target.exists():
        return None, failure
    entry: File = {"name": "core", "kind": "core", "size": target.stat().st_size}
    with open(target, "rb") as file:
        head = read_head(file.fileno())
    if head is not None:
        entry["expected"] = head.expected
    return entry, failure


def copy_core(core: CoreFile, target: Path, store: Store) -> Optional[str]:
    """Copy a core, keeping it sparse; the reason of a failure, else None."""
    needed = os.fstat(core.descriptor).st_blocks * 512
    if needed + _RESERVE > store.free():
        return f"the core of {needed >> 20} MiB was not kept: the disk of the crash store has only {store.free() >> 20} MiB free"
    size = core.size
    try:
        with create(target) as out:
            at = 0
            while at < size:
                try:
                    at = os.lseek(core.descriptor, at, os.SEEK_DATA)
                except OSError:  # ENXIO: nothing but a hole to the end
                    break
                hole = os.lseek(core.descriptor, at, os.SEEK_HOLE)
                out.seek(at)
                while at < hole and (data := os.pread(core.descriptor, min(1 << 20, hole - at), at)):
                    out.write(data)
                    at += len(data)
            out.truncate(size)
    except OSError as error:
        with contextlib.suppress(OSError):
            target.unlink()
        return f"cannot copy the core into the crash store: {error.strerror}"
    return None


def _manifest(seen: Sighting, settings: RunSettings, files: list[File], notes: list[str], kernel_lines: list[str]) -> Manifest:
    process = seen.process
    head = seen.core.head if seen.core is not None else None
    if process is not None and head is not None and head.name != process.name:
        process = None  # it has executed another program since the snapshot
    manifest: Manifest = {
        "schema": SCHEMA,
        "crashkit": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seen.when)),
        "is_command": seen.is_command,
        "command": scrub_argv(settings.command),
        # The wait status of another parent's child is not known to us, but its core is proof.
        "core_dumped": seen.core_dumped or (seen.core is not None and any(file.get("kind") == "core" for file in files)),
        "files": files,
        "versions": versions(process and process.executable, process.libraries if process else ()),
        "environment": allowed_environment(settings.environment),
        "limits": {name: list(values) for name, values in all_limits().items()},
        "cgroup": oom.cgroup_memory(),
        "core_pattern": settings.pattern.text,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "capture": settings.capture,
        "notes": notes,
        "analysis": "pending",
    }
    if seen.pid:
        manifest["pid"] = seen.pid
        manifest["start"] = seen.start
    if head is not None:
        manifest["ppid"], manifest["name"] = head.ppid, head.name
        manifest["argv"] = scrub_argv(head.arguments.split())
    if process is not None:
        manifest["ppid"] = process.ppid
        manifest["name"] = process.name
        manifest["argv"] = scrub_argv(process.argv)
        if process.executable:
            manifest["executable"] = process.executable
        if process.cwd:
            manifest["cwd"] = process.cwd
        if process.namespace_pid != process.pid:
            manifest["namespace_pid"] = process.namespace_pid
    if seen.signal:
        manifest["signal"] = seen.signal
        manifest["signal_name"] = signal_name(seen.signal)
        manifest["exit_status"] = 128 + seen.signal
    if seen.killed is not None:
        lines = oom.oom_lines(kernel_lines, seen.pid)
        killed: Killed = {"by": "oom" if lines else seen.killed["by"], "evidence": [*lines, *seen.killed["evidence"]]}
        manifest["killed"] = killed
    with contextlib.suppress(OSError):
        manifest["coredump_filter"] = FILTER.read_text().strip()
    return manifest


def analyse(folder: Path) -> bool:
    """Run `crashkit analyze` in a separate process, at our priority; whether it wrote a report. It may take 15 minutes."""
    command = [sys.executable, "-m", "crashkit", "analyze", str(folder), "--out", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRASHKIT_ON_")}
    try:
        with create(folder / "analysis.log") as log:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_ANALYSIS_DEADLINE, env=environment, check=False
            )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return (folder / "report.json").is_file()


def compress_core(folder: Path, manifest: Manifest) -> None:
    """Replace the core with core.zst. Raises OSError."""
    import zstandard

    core = next((file for file in manifest.get("files", []) if file.get("name") == "core"), None)
    if core is None:
        return
    with open(folder / "core", "rb") as source, create(folder / "core.zst") as target:
        zstandard.ZstdCompressor(level=3).copy_stream(source, target, size=core.get("size", -1))
    core["name"], core["compression"] = "core.zst", "zstd"
    write_manifest(folder, manifest)
    os.unlink(folder / "core")


def process(seen: Sighting, settings: RunSettings) -> None:
    """Keep one crash, analyze it, run the --on-crash command, and prune the store. Raises OSError and CollectError."""
    os.nice(19)
    folder, manifest = keep(seen, settings)
    what = _describe(seen, manifest)
    done = analyse(folder) if settings.analyze else False
    manifest["analysis"] = "done" if done else "failed" if settings.analyze else "none"
    write_manifest(folder, manifest)
    report = folder / "report.html"
    if done:
        say(f"{what}: {report if report.exists() else folder / 'report.json'}")
    else:
        say(f"{what}: evidence in {folder}" + (" (analysis failed, see analysis.log there)" if settings.analyze else ""))
    if settings.on_crash:
        _tell(settings.on_crash, folder, report if report.exists() else folder)
    if settings.compress:
        compress_core(folder, manifest)
    gone = prune(settings.store, settings.retention, frozenset([folder.name]))
    if gone:
        say(f"removed {len(gone)} old crash{'es' if len(gone) > 1 else ''} from {settings.store.path}")


def _describe(seen: Sighting, manifest: Manifest) -> str:
    name = manifest.get("name") or os.path.basename((manifest.get("command") or ["process"])[0])
    who = f"{_printable(name)}[{seen.pid}]" if seen.pid else _printable(name)
    if not seen.signal:
        return f"{who} had a fatal error"
    killed = manifest.get("killed")
    cause = {"oom": ", out of memory", "unknown": ", sender unknown"}[killed["by"]] if killed else ""
    return f"{who} died of {signal_name(seen.signal)}{cause}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _tell(command: str, folder: Path, report: Path) -> None:
    """Run the user's command with the report's path as its last argument."""
    environment: dict[str, str] = {**os.environ, "CRASHKIT_REPORT": str(report), "CRASHKIT_FOLDER": str(folder)}
    argv: Sequence[str] = [*shlex.split(command), str(report)]
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=2, timeout=600, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"--on-crash {command}: {error}")
