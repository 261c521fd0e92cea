"""Reads and writes manifest.json: what the collector recorded of a crash."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Optional, TypedDict, Union

from crashkit.crashfolder.files import create, open_regular
from crashkit.limits import LONGEST_FILE_NAME

SCHEMA = "crashkit.manifest/1"
OTHERS = "others"
"""The folder of the other processes of an incident, each in a crash folder of its own."""
SOURCE, SNAPSHOT, RECORDED = "source", "allocator-snapshot", "flight-recorder"
"""Kinds of files that explain a GPU core: a kernel's source or what torch.compile generated, and what torch's allocator dumped."""
_NAME = "manifest.json"
_TEMPORARY = ".manifest"
MOST_MANIFEST = 4 << 20


class File(TypedDict, total=False):
    """One file of a crash folder."""

    name: str
    kind: str
    """core, log, faulthandler, gdb, kernel-log, gpu-core, rank-log (a rank's own stderr), error-file (torchelastic's), flight-recorder (a
    rank's dump), source and allocator-snapshot (what explains a GPU core)."""
    size: int
    expected: int
    """For a core: size in bytes by its headers. If it exceeds `size`, the core is truncated."""
    compression: str
    path: str
    """For a source and a snapshot: where it was on the crashed system."""
    minimal: bool
    """For a core: True if only the memory that a report needs was kept."""


class Killed(TypedDict):
    """The sender of SIGKILL, if known, and the evidence for it."""

    by: str
    """oom, unknown."""
    evidence: list[str]


class Manifest(TypedDict, total=False):
    """manifest.json. Every field may be missing."""

    schema: str
    crashkit: str
    id: str
    time: str
    """When the death was noticed, UTC, ISO 8601."""
    seen: float
    """The same in seconds since 1970, to order the deaths of one incident."""
    pid: int
    namespace_pid: int
    """The pid in the process's own namespace, if it differs; the core contains this one."""
    ppid: int
    start: int
    """Start time in clock ticks since boot; with the pid it identifies the process."""
    name: str
    executable: str
    argv: list[str]
    cwd: str
    is_command: bool
    """True for the command itself, False for one of its descendants."""
    command: list[str]
    signal: int
    signal_name: str
    exit_status: int
    core_dumped: bool
    """As reported by the kernel."""
    killed: Killed
    """For SIGKILL only."""
    alive: str
    """Why a living process was looked at: it made no progress, or another one had failed. Its core was taken without an end."""
    live: dict[str, Any]
    """What else it showed: see `collect/live_evidence.py`."""
    others: list[str]
    """Crash folders in this one's folder `others`: processes that died of the same cause, and those that lived then."""
    files: list[File]
    versions: dict[str, str]
    environment: dict[str, str]
    """Allow-listed variables, their secrets masked."""
    limits: dict[str, list[int]]
    coredump_filter: str
    cgroup: dict[str, str]
    core_pattern: str
    host: str
    """Its name. Clocks of several differ, and their pids may be equal."""
    kernel: str
    machine: str
    capture: str
    """core, ptrace, none: the capture method."""
    notes: list[str]
    """What could not be captured, and why."""
    record: str
    """32 random hexadecimal digits, by which the history knows this crash wherever its folder is analyzed; not set without a history."""
    analysis: str
    """pending, done, failed, none: state of the report. `none` was not asked for."""
    interrupted: int
    """How often the analysis was started again because it was killed."""


def write_manifest(folder: Union[Path, int], manifest: Manifest) -> None:
    """Replace manifest.json of a folder, given by path or descriptor, atomically (by rename). Raises OSError.

    Only one process at a time may do so: see `work`.
    """
    if isinstance(folder, Path):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            write_manifest(descriptor, manifest)
        finally:
            os.close(descriptor)
        return
    import json  # not at the start of `crashkit run`: it costs time there, as does msgspec below

    with contextlib.suppress(FileNotFoundError):
        os.unlink(_TEMPORARY, dir_fd=folder)
    with create(_TEMPORARY, folder) as file:
        file.write(json.dumps(manifest, indent=1, ensure_ascii=True).encode())
    os.rename(_TEMPORARY, _NAME, src_dir_fd=folder, dst_dir_fd=folder)


def read_manifest(folder: Union[Path, int]) -> Optional[Manifest]:
    """Read manifest.json of a folder, given by path or descriptor; None if it is missing or invalid."""
    try:
        with open_regular(folder / _NAME) if isinstance(folder, Path) else open_regular(_NAME, folder) as file:
            text = file.read(MOST_MANIFEST)
    except OSError:
        return None
    return decode_manifest(text)


def decode_manifest(text: bytes) -> Optional[Manifest]:
    """The contents of a manifest.json; None if they are invalid. Pure."""
    import msgspec

    from crashkit.prepared import prepared

    try:
        manifest: Manifest = msgspec.json.decode(text, type=prepared(Manifest))
    except (ValueError, RecursionError):
        return None
    if manifest.get("schema") != SCHEMA:
        return None
    manifest["files"] = [file for file in manifest.get("files", []) if _is_plain(file.get("name", ""))]
    if "others" in manifest:
        manifest["others"] = list(filter(_is_plain, manifest["others"]))
    return manifest


def _is_plain(name: str) -> bool:
    """No way out of the folder, and no name that a file cannot have."""
    return "/" not in name and "\0" not in name and name not in ("", ".", "..") and len(os.fsencode(name)) <= LONGEST_FILE_NAME


def ending(manifest: Manifest) -> Optional[str]:
    """How the process ended: `SIGSEGV`, `exit 1`, or `alive`; None if it is not known. Pure."""
    status = manifest.get("exit_status")
    return manifest.get("signal_name") or ("alive" if "alive" in manifest else f"exit {status}" if status else None)
