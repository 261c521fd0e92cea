"""Can a core be had, before anything has crashed? The facts are gathered here, the judgement is pure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.collect.host import core_pattern
from crashkit.collect.host.core_pattern import CorePattern
from crashkit.collect.host.limits import core_limit

_TYPICAL = 256 << 20
"""Bytes: a small torch process leaves this much; less free disk than that is worth a word."""


class Facts(NamedTuple):
    pattern: CorePattern
    hard_limit: int
    """Bytes; -1 is unlimited."""
    folder: Optional[str]
    """Where a core would be written; None for pipes, and where the pattern's folder depends on the process."""
    writable: bool
    free: int
    """Bytes on the folder's disk."""
    coredumpctl: bool
    container: bool
    suid_dumpable: int


class Problem(NamedTuple):
    message: str
    mend: str
    fatal: bool
    """No core can be had at all."""


def read_pattern() -> CorePattern:
    """The kernel's pattern of this moment; of kind `none` where it cannot be read."""
    try:
        text = Path("/proc/sys/kernel/core_pattern").read_text(errors="surrogateescape")
        uses_pid = Path("/proc/sys/kernel/core_uses_pid").read_text().strip() != "0"
    except OSError:
        return CorePattern("", "none")
    return core_pattern.parse(text, uses_pid)


def gather(cwd: str) -> Facts:
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
        shutil.which("coredumpctl") is not None and os.path.isdir("/run/systemd/system"),
        in_container(),
        _number("/proc/sys/fs/suid_dumpable"),
    )


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0


def in_container() -> bool:
    """By the marks that Docker, Podman and Kubernetes leave."""
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv") or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    try:
        return any(word in Path("/proc/1/environ").read_bytes() for word in (b"container=",))
    except OSError:
        return False


def judge(facts: Facts) -> list[Problem]:
    """What stands between a crash and its core, worst first. Pure."""
    return sorted([*_limit_problems(facts), *_pattern_problems(facts), *_folder_problems(facts)], key=lambda problem: not problem.fatal)


def _limit_problems(facts: Facts) -> list[Problem]:
    if facts.pattern.kind == "pipe" and facts.pattern.handler != "systemd-coredump":
        return []  # the kernel does not apply the limit to a pipe; systemd-coredump does by itself
    if facts.hard_limit == 0:
        return [
            Problem(
                "the hard limit of core files is 0 (ulimit -Hc)",
                "raise it where the service is started: LimitCORE=infinity (systemd), --ulimit core=-1 (docker), "
                "ulimit -Hc unlimited (as root)",
                True,
            )
        ]
    if 0 < facts.hard_limit < _TYPICAL:
        return [Problem(f"cores are cut off at {facts.hard_limit} bytes (ulimit -Hc)", "raise the hard limit of core files", False)]
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
            "the host's systemd-coredump, out of this container's reach"
            if facts.container
            else "systemd-coredump, and coredumpctl is missing"
        )
        return [Problem(f"cores go to {where}", "on the host: coredumpctl list; here: crashkit run --capture ptrace", True)]
    if handler in ("systemd-coredump", "apport"):
        if facts.container and handler == "apport":
            return [Problem("cores go to the host's apport, out of this container's reach", "crashkit run --capture ptrace", True)]
        return []
    if handler:
        return [
            Problem(
                f"cores go to a program that we cannot ask: {pattern.text}",
                "sysctl -w kernel.core_pattern=core.%p (as root, on the host), or crashkit run --capture ptrace",
                True,
            )
        ]
    return []


def _folder_problems(facts: Facts) -> list[Problem]:
    if facts.folder is None or facts.pattern.kind != "file":
        return []
    if not facts.writable:
        return [
            Problem(
                f"cores would be written to {facts.folder}, which this user cannot write to"
                if os.path.isdir(facts.folder)
                else f"cores would be written to {facts.folder}, which does not exist",
                f"make {facts.folder} writable, or start the command in a folder that is",
                True,
            )
        ]
    if facts.free < _TYPICAL:
        return [
            Problem(
                f"only {facts.free >> 20} MiB are free in {facts.folder}, where cores are written: they may be cut off",
                "free some space there",
                facts.free < 1 << 20,
            )
        ]
    return []
