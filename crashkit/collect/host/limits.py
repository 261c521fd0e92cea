"""What a process must be given before it starts so that the kernel writes its core."""

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
"""Heaps and stacks, the build-ids of the modules, and heaps on huge pages: without one of them there is no Python stack or no names."""

FILTER = Path("/proc/self/coredump_filter")


def chosen_filter(current: int, cuda: bool) -> int:
    """The coredump_filter for the command: what is needed, on top of what the user chose.

    With CUDA never the file-backed mappings: managed memory is a shared mapping of /dev/nvidia-uvm, and to dump it would migrate
    its pages back from a GPU that has just faulted.
    """
    chosen = current | NEEDED
    if cuda:
        chosen &= ~(FILE_PRIVATE | FILE_SHARED)
    return chosen


def core_limit() -> tuple[int, int]:
    """Soft and hard RLIMIT_CORE in bytes; -1 is unlimited."""
    return resource.getrlimit(resource.RLIMIT_CORE)


def allow_core(cuda: bool = False, raise_limit: bool = True) -> list[str]:
    """Raise this process's core limit to the hard limit and set its filter; both are inherited. What could not be done, in words.

    Without `raise_limit` only the filter is set, which gdb's gcore heeds too.
    """
    failures = []
    _, hard = core_limit()
    try:
        if raise_limit:
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    except (OSError, ValueError) as error:
        failures.append(f"the core limit could not be raised: {error}")
    try:
        FILTER.write_text(hex(chosen_filter(int(FILTER.read_text(), 16), cuda)))
    except (OSError, ValueError) as error:
        failures.append(f"the coredump filter could not be set: {error}")
    return failures


def all_limits() -> dict[str, tuple[int, int]]:
    """Every limit of this process by name, soft and hard; -1 is unlimited."""
    limits = {}
    for name in sorted(dir(resource)):
        if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE":  # BSD's name of RLIMIT_NOFILE
            with contextlib.suppress(OSError, ValueError):
                limits[name] = resource.getrlimit(getattr(resource, name))
    return limits
