"""Find the sender of a SIGKILL. Only the kernel's out-of-memory killer leaves traces: in the cgroup's counters and the kernel log."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Optional

_MAX_RECORDS = 20000


def cgroup_paths(text: str) -> dict[str, str]:
    """Path of each controller in /proc/PID/cgroup; the key of cgroup v2 is empty."""
    paths = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def parse_counters(text: str) -> dict[str, int]:
    """Counters in memory.events (cgroup v2) or memory.oom_control (v1): one name and number per line."""
    counters = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            counters[name] = int(value)
    return counters


_FILES_V2 = ("memory.current", "memory.peak", "memory.max", "memory.high", "memory.swap.current", "memory.swap.max")
_FILES_V1 = ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.failcnt")


def cgroup_memory(pid: int | str = "self") -> dict[str, str]:
    """Memory figures and event counters of a process's cgroup, as text from the kernel; empty if there are none."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        paths = cgroup_paths(Path(f"/proc/{pid}/cgroup").read_text())
        version_2 = Path("/sys/fs/cgroup") / paths.get("", "/").lstrip("/")
        version_1 = Path("/sys/fs/cgroup/memory") / paths.get("memory", "/").lstrip("/")
        # Inside a container the path is the host's; the container's own cgroup is mounted at the root.
        roots = (version_2, Path("/sys/fs/cgroup"), version_1, Path("/sys/fs/cgroup/memory"))
        for folder in roots:
            for name in (*_FILES_V2, *_FILES_V1):
                with contextlib.suppress(OSError):
                    found.setdefault(name, (folder / name).read_text().strip())
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    for counter, value in parse_counters((folder / name).read_text()).items():
                        found.setdefault(f"{name}:{counter}", str(value))
            if found:
                break
    return found


def oom_kills(memory: dict[str, str]) -> Optional[int]:
    """Number of out-of-memory kills in the cgroup; None if the kernel does not count them."""
    for name in ("memory.events:oom_kill", "memory.oom_control:oom_kill"):
        if name in memory:
            return int(memory[name])
    return None


def kernel_log(since: float) -> Optional[list[str]]:
    """Kernel messages since this time.monotonic(), which is the log's clock except for suspends; None if we may not read them."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    lines = []
    try:
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(descriptor, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                break
            except BrokenPipeError:  # this record was overwritten meanwhile; the next read goes on
                continue
            head, _, text = record.partition(";")
            fields = head.split(",")
            if len(fields) >= 3 and fields[2].isdigit() and int(fields[2]) / 1e6 >= since:
                lines.append(f"[{int(fields[2]) / 1e6:.6f}] {text.splitlines()[0] if text else ''}")
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return lines


# mm/oom_kill.c, __oom_kill_process
_KILLED = re.compile(r"(?:Out of memory|Memory cgroup out of memory): Killed process (\d+)")


def oom_lines(lines: list[str], pid: int) -> list[str]:
    """The lines that report an out-of-memory kill of this pid, which counts in the initial namespace."""
    return [line for line in lines if (match := _KILLED.search(line)) and int(match.group(1)) == pid]


def blame(before: Optional[int], after: Optional[int], lines: list[str]) -> tuple[str, list[str]]:
    """`oom` with its evidence, or `unknown`, from the oom_kill counter before and after and the lines of `oom_lines`."""
    evidence = list(lines)
    if before is not None and after is not None and after > before:
        evidence.append(f"the cgroup's oom_kill counter rose from {before} to {after} while the command ran")
    return ("oom" if evidence else "unknown"), evidence


_INITIAL_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: there, the kernel's log names the same pids as /proc."""


def confirm(by: str, evidence: list[str], lines: list[str], pid: int) -> tuple[str, list[str]]:
    """What `blame` found, and what the kernel's log says of this pid.

    A counter counts for all in the cgroup, such as the tasks of a SLURM step. If the log names who was killed for lack of memory, and not
    this process, it counted the others.
    """
    found = oom_lines(lines, pid)
    if found:
        return "oom", [*found, *evidence]
    if by == "oom" and any(map(_KILLED.search, lines)) and _pids_are_the_kernels():
        return "unknown", []
    return by, evidence


def _pids_are_the_kernels() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL_NAMESPACE
    except OSError:
        return False
