"""AddressSanitizer's library for a program that was not built with it.

Preloaded, it replaces malloc() and free(), and checks the memory that memcpy(), memset(), strcpy() and their kind are given, whoever calls
them. What compiled code reads and writes by itself is checked only where that code was built with `-fsanitize=address`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.elf.file import open_elf
from crashkit.errors import CollectError
from crashkit.naming.musl import is_musl

_FOLDERS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib", "/usr/local/lib64", "/usr/local/lib")
_NAME = re.compile(r"libasan\.so\.(\d+)")
_FREE_THREADED = re.compile(r"python\d\.\d+td?")
_OPTIONS = "abort_on_error=1:disable_coredump=0:detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0"
"""An error leaves a core, what Python never frees is no error, and faults end the process as they do without it
(sanitizer_common/sanitizer_flags.inc of LLVM)."""
_LONGEST_PATH = 4096
_CXX = "libstdc++.so.6"
"""AddressSanitizer looks for __cxa_throw() when the program starts, and aborts at the first C++ exception if the library came later
(asan/asan_interceptors.cpp)."""


class Preload(NamedTuple):
    """The library, for a program that it suits."""

    library: Path
    program: Optional[Path]
    """What runs the command, if that is known."""

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Variables with which the program runs with the library. Its own libraries to preload and its own options stay; options that come
        later win. Python's small objects are allocated by malloc(), too."""
        # A free-threaded one refuses to start with another allocator than its own (Doc/using/cmdline.rst).
        free_threaded = self.program is not None and _FREE_THREADED.fullmatch(self.program.name) is not None
        return {
            # Before all others, or it refuses to start.
            "LD_PRELOAD": " ".join(filter(None, (str(self.library), _CXX, environment.get("LD_PRELOAD")))),
            "ASAN_OPTIONS": ":".join(filter(None, (_OPTIONS, environment.get("ASAN_OPTIONS")))),
            "PYTHONMALLOC": environment.get("PYTHONMALLOC", "default" if free_threaded else "malloc"),
        }


def preload(program: Optional[Path]) -> Preload:
    """The library for this program. Raises CollectError if it is not installed, or, as it is glibc's, cannot be loaded into the program."""
    found = library()
    if program is not None and is_musl(_loader(program)):
        raise CollectError(
            f"--asan does not work with {program}, which is linked with musl: the library is linked with glibc",
            "Run it without --asan: musl checks its heap itself, and stops the program where that is damaged.",
        )
    return Preload(found, program)


def _loader(program: Path) -> str:
    """The dynamic loader that a program names; "" if it has none or cannot be read."""
    try:
        elf = open_elf(program)
        section = elf.section(".interp") if elf is not None else None
        if section is None:
            return ""
        with program.open("rb") as file:
            return os.fsdecode(os.pread(file.fileno(), min(section.size, _LONGEST_PATH), section.offset)).rstrip("\0")
    except OSError:
        return ""


def library(root: Path = Path("/")) -> Path:
    """GCC's library, the newest of those in the system's folders below `root`. Raises CollectError if there is none."""
    found = [path for folder in _FOLDERS for path in root.glob(f"{folder.lstrip('/')}/libasan.so.*") if _NAME.fullmatch(path.name)]
    if not found:
        raise CollectError(
            "--asan needs AddressSanitizer's library, libasan.so, which is not installed",
            "It comes with GCC: sudo apt-get install gcc, or sudo dnf install libasan.",
        )
    return max(found, key=lambda path: int(path.name.rpartition(".")[2]))
