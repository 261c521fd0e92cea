"""The limit and the filter that a process needs so that the kernel writes its core."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

# core(5), "Controlling which mappings are written to the core dump".
ANONYMOUS_PRIVATE = 1 << 0
ANONYMOUS_SHARED = 1 << 1
FILE_PRIVATE = 1 << 2
FILE_SHARED = 1 << 3
ELF_HEADERS = 1 << 4
HUGE_PRIVATE = 1 << 5

NEEDED = ANONYMOUS_PRIVATE | ELF_HEADERS | HUGE_PRIVATE
"""Heaps and stacks, build-ids of modules, and heaps on huge pages: without any of them, Python stacks or names are lost."""

FILTER = Path("/proc/self/coredump_filter")


def chosen_filter(current: int, cuda: bool) -> int:
    """The coredump_filter for the command: the needed bits in addition to the user's.

    With CUDA, file-backed mappings are excluded: managed memory is a shared mapping of /dev/nvidia-uvm, and dumping it would
    migrate its pages back from a GPU that has just faulted.
    """
    chosen = current | NEEDED
    if cuda:
        chosen &= ~(FILE_PRIVATE | FILE_SHARED)
    return chosen


def core_limit() -> tuple[int, int]:
    """Soft and hard RLIMIT_CORE in bytes; -1 is unlimited."""
    return resource.getrlimit(resource.RLIMIT_CORE)


def allow_core(cuda: bool = False, raise_limit: bool = True) -> list[str]:
    """Raise this process's core limit to the hard limit and set its filter; both are inherited. Returns messages about failures.

    Without `raise_limit`, only the filter is set; gdb's gcore respects it too.
    """
    failures = []
    _, hard = core_limit()
    try:
        if raise_limit:
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    except (OSError, ValueError) as error:
        failures.append(f"cannot raise the core limit: {error}")
    try:
        FILTER.write_text(hex(chosen_filter(int(FILTER.read_text(), 16), cuda)))
    except (OSError, ValueError) as error:
        failures.append(f"cannot set the coredump filter: {error}")
    return failures


def allow_large_files() -> None:
    """Raise this process's limit on file sizes as far as it may: reports and cores in memory are files, too."""
    limit = resource.RLIMIT_FSIZE
    for most in (resource.RLIM_INFINITY, resource.getrlimit(limit)[1]):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (most, most))
            return


def all_limits() -> dict[str, tuple[int, int]]:
    """Soft and hard value of every limit of this process, by name; -1 is unlimited."""
    limits = {}
    for name in sorted(dir(resource)):
        if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE":  # BSD's name of RLIMIT_NOFILE
            with contextlib.suppress(OSError, ValueError):
                limits[name] = resource.getrlimit(getattr(resource, name))
    return limits
