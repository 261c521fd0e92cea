"""Predict whether a crash would leave a core. `gather` collects the facts; `judge` is pure."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit import isolation
from crashkit.collect.host import core_pattern
from crashkit.collect.host.core_pattern import CorePattern
from crashkit.collect.host.limits import core_limit

_TYPICAL = 256 << 20
"""Bytes: size of a small torch process's core; warn if less disk space is free."""


class Facts(NamedTuple):
    """The settings that decide whether the kernel writes a core."""

    pattern: CorePattern
    hard_limit: int
    """Bytes; -1 is unlimited."""
    folder: Optional[str]
    """Where a core would be written; None for pipes, or if the folder depends on the process."""
    writable: bool
    free: int
    """Free bytes on the folder's disk."""
    coredumpctl: bool
    container: bool
    suid_dumpable: int
    file_limit: int = -1
    """Bytes that a file may have, by the soft limit; -1 is unlimited. A core that the kernel writes is a file (core(5))."""


class Problem(NamedTuple):
    """Something that prevents or damages a core."""

    message: str
    mend: str
    """How to fix it."""
    fatal: bool
    """No core is possible at all."""
    cuts: bool = False
    """Cores of this kind are cut off by a limit, which does not count for one that gdb writes."""
    scarce: bool = False
    """There may be no room for a whole core."""


def read_pattern() -> CorePattern:
    """The current core_pattern; of kind `none` if it cannot be read."""
    try:
        text = Path("/proc/sys/kernel/core_pattern").read_text(errors="surrogateescape")
        uses_pid = Path("/proc/sys/kernel/core_uses_pid").read_text().strip() != "0"
    except OSError:
        return CorePattern("", "none")
    return core_pattern.parse(text, uses_pid)


def gather(cwd: str) -> Facts:
    """Collect the facts for a process with this working directory."""
    pattern = read_pattern()
    folder: Optional[str] = None
    if pattern.kind == "file":
        given = core_pattern.folder_glob(pattern)
        folder = os.path.join(cwd, given) if "*" not in given else None
    free = 0
    if folder is not None:
        try:
            status = os.statvfs(folder)
            free = status.f_bavail * status.f_frsize
        except OSError:
            free = 0
    return Facts(
        pattern,
        core_limit()[1],
        folder,
        folder is not None and os.access(folder, os.W_OK | os.X_OK),
        free,
        isolation.find_program("coredumpctl") is not None and os.path.isdir("/run/systemd/system"),
        in_container(),
        _number("/proc/sys/fs/suid_dumpable"),
        resource.getrlimit(resource.RLIMIT_FSIZE)[0],
    )


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0


def in_container() -> bool:
    """Whether Docker, Podman, Kubernetes or another runtime that sets `container` started us."""
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv") or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    try:
        return any(word in Path("/proc/1/environ").read_bytes() for word in (b"container=",))
    except OSError:
        return False


def judge(facts: Facts) -> list[Problem]:
    """Problems that would prevent or damage a core, fatal ones first. Pure."""
    return sorted([*_limit_problems(facts), *_pattern_problems(facts), *_folder_problems(facts)], key=lambda problem: not problem.fatal)


def _limit_problems(facts: Facts) -> list[Problem]:
    if facts.pattern.kind == "pipe" and facts.pattern.handler != "systemd-coredump":
        return []  # the kernel does not apply the limit to a pipe; systemd-coredump does by itself
    if facts.hard_limit == 0:
        return [
            Problem(
                "the hard limit for core files is 0 (ulimit -Hc)",
                "Raise it where the service is started: LimitCORE=infinity (systemd), --ulimit core=-1 (docker), "
                "ulimit -Hc unlimited (as root)",
                True,
            )
        ]
    if 0 < facts.hard_limit < _TYPICAL:
        return [
            Problem(f"cores are truncated at {facts.hard_limit} bytes (ulimit -Hc)", "Raise the hard limit for core files.", False, True)
        ]
    return []


def _pattern_problems(facts: Facts) -> list[Problem]:
    pattern = facts.pattern
    if pattern.kind == "none":
        return [
            Problem(
                "the kernel writes no cores: core_pattern is empty", "sysctl -w kernel.core_pattern=core.%p (as root, on the host)", True
            )
        ]
    handler = pattern.handler
    if handler == "systemd-coredump" and not facts.coredumpctl:
        where = (
            "systemd-coredump on the host, which this container cannot reach"
            if facts.container
            else "systemd-coredump, but coredumpctl is not installed"
        )
        return [Problem(f"cores go to {where}", "On the host: coredumpctl list; here: crashkit run --capture ptrace", True)]
    if handler in ("systemd-coredump", "apport"):
        if facts.container and handler == "apport":
            return [Problem("cores go to apport on the host, which this container cannot reach", "crashkit run --capture ptrace", True)]
        return []
    if handler:
        return [
            Problem(
                f"cores go to a program that crashkit does not support: {pattern.text}",
                "sysctl -w kernel.core_pattern=core.%p (as root, on the host), or crashkit run --capture ptrace",
                True,
            )
        ]
    return []


def _folder_problems(facts: Facts) -> list[Problem]:
    if facts.pattern.kind != "file":
        return []
    if 0 <= facts.file_limit < _TYPICAL:
        return [
            Problem(
                f"files are cut off at {facts.file_limit} bytes, and so are cores (ulimit -f)",
                "Raise it where the command is started: ulimit -f unlimited, LimitFSIZE=infinity (systemd), --ulimit fsize=-1 (docker)",
                False,
                scarce=True,
            )
        ]
    if facts.folder is None:
        return []
    if not facts.writable:
        return [
            Problem(
                f"cores would be written to {facts.folder}, which is not writable"
                if os.path.isdir(facts.folder)
                else f"cores would be written to {facts.folder}, which does not exist",
                f"Make {facts.folder} writable, or start the command in a writable folder.",
                True,
            )
        ]
    if facts.free < _TYPICAL:
        return [
            Problem(
                f"only {facts.free >> 20} MiB free in {facts.folder}, where cores are written: they may be truncated",
                "Free some space there.",
                facts.free < 1 << 20,
                scarce=True,
            )
        ]
    return []
