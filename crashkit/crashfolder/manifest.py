"""manifest.json: what the collector saw of a crash."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Optional, TypedDict

from crashkit.crashfolder.files import create, open_regular

SCHEMA = "crashkit.manifest/1"
_MAX_MANIFEST = 4 << 20


class File(TypedDict, total=False):
    """One file of a crash folder."""

    name: str
    kind: str
    """core, log, faulthandler, gdb, kernel-log, gpu-core."""
    size: int
    expected: int
    """Of a core: bytes that its headers promise. More than `size`: truncated."""
    compression: str


class Killed(TypedDict):
    """Who sent SIGKILL, as far as known, and the evidence for it."""

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
    pid: int
    namespace_pid: int
    """As the process itself saw it, where it is another; the core speaks of this one."""
    ppid: int
    start: int
    """Clock ticks since boot: with the pid it names the process."""
    name: str
    executable: str
    argv: list[str]
    cwd: str
    is_command: bool
    """The command itself, not a process below it."""
    command: list[str]
    signal: int
    signal_name: str
    exit_status: int
    core_dumped: bool
    """What the kernel said."""
    killed: Killed
    """For SIGKILL only."""
    files: list[File]
    versions: dict[str, str]
    environment: dict[str, str]
    """By allow-list, scrubbed."""
    limits: dict[str, list[int]]
    coredump_filter: str
    cgroup: dict[str, str]
    core_pattern: str
    kernel: str
    machine: str
    capture: str
    """core, ptrace, none: how the evidence was to be had."""
    notes: list[str]
    """What could not be had, and why."""
    analysis: str
    """pending, done, failed: what became of the report."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace manifest.json by one rename."""
    temporary = folder / f".manifest-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    import json  # not at the start of `crashkit run`: it costs time there, as does msgspec below

    with create(temporary) as file:
        file.write(json.dumps(manifest, indent=1, ensure_ascii=True).encode())
    os.rename(temporary, folder / "manifest.json")


def read_manifest(folder: Path) -> Optional[Manifest]:
    """None where there is none, or it is not one of ours."""
    try:
        with open_regular(folder / "manifest.json") as file:
            text = file.read(_MAX_MANIFEST)
        import msgspec

        manifest = msgspec.json.decode(text, type=Manifest)
    except (OSError, ValueError, RecursionError):
        return None
    if manifest.get("schema") != SCHEMA:
        return None
    manifest["files"] = [file for file in manifest.get("files", []) if _is_plain(file.get("name", ""))]
    return manifest


def _is_plain(name: str) -> bool:
    """No way out of the folder."""
    return "/" not in name and name not in ("", ".", "..")
