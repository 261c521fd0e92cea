"""Real crashes, each made to be known by one signature (fixtures/crashers/causes.py and faults.py), with their cores and logs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from crashkit.model import Crash
from crashkit.pipeline import analyze

from ..crashes import CRASHERS, NO_COMPILER, Folder, Interpreter, lock, python_crash

DEADLINE = 120


class Cause(NamedTuple):
    signature: str
    script: str = "causes.py"
    kind: Optional[str] = None
    """Argument of the script, where it is not the signature's name."""
    needs_library: bool = False
    pythons: tuple[str, ...] = ("3.9", "3.11", "3.13")
    old: bool = False
    """Newer Pythons do not die of it."""
    before: tuple[int, ...] = (4,)
    """The first version of Python that does not die of it."""
    wanted: Optional[int] = None
    """The signal by which it ends, where that is a race."""


def cxx(signature: str, **more: object) -> Cause:
    return Cause(signature, needs_library=True, **more)  # type: ignore[arg-type]


CAUSES = (
    Cause("null-deref", "faults.py", "null"),
    Cause("null-function-call", "faults.py", "null_call"),
    Cause("wild-pointer", "faults.py", "wild"),
    Cause("misaligned-access", "faults.py", "misaligned", pythons=("3.11",)),
    Cause("return-address-overwritten", "faults.py", "wild_return", pythons=("3.11",)),
    Cause("privileged-instruction", "faults.py", "privileged", pythons=("3.11",)),
    Cause("jump-to-unmapped", "faults.py", "unmapped_call", pythons=("3.11",)),
    Cause("jump-to-unmapped", "faults.py", "small_call", pythons=("3.11",)),
    Cause("jump-into-data", "faults.py", "no_exec"),
    Cause("write-to-readonly", "faults.py", "read_only"),
    Cause("stack-overflow", "faults.py", "c_overflow"),
    Cause("stack-overflow", "faults.py", "large_frame", pythons=("3.11",)),
    Cause("sigfpe-integer-divide", "faults.py", "divide"),
    Cause("sigfpe-quotient-overflow", "faults.py", "quotient", pythons=("3.11",)),
    Cause("seccomp-denied", "faults.py", "forbidden", pythons=("3.11",)),
    Cause("library-replaced-in-place", "faults.py", "replaced_library", pythons=("3.11",)),
    Cause("library-replaced-in-place", "faults.py", "zeroed_library", pythons=("3.11",)),
    Cause("heap-corruption-invalid-free", "faults.py", "free_unmapped", pythons=("3.11",)),
    Cause("heap-corruption-invalid-free", "faults.py", "realloc_unmapped", pythons=("3.11",)),
    Cause("sigill-trap", "faults.py", "ud2"),
    Cause("object-overwritten", "collected.py", "member"),
    Cause("ctypes-callback-freed"),
    Cause("heap-corruption-double-free"),
    Cause("heap-corruption-invalid-free"),
    Cause("heap-corruption-overflow"),
    Cause("gil-not-held", pythons=("3.9", "3.11", "3.12", "3.13")),
    Cause("refcount-none-dealloc", pythons=("3.8", "3.11"), old=True),
    Cause("mmap-file-truncated-sigbus"),
    Cause("dataloader-worker-sigbus"),
    Cause("shared-memory-sigbus"),
    cxx("cxx-uncaught-exception"),
    cxx("cxx-throw-in-destructor"),
    cxx("cxx-terminate-no-exception"),
    cxx("cxx-pure-virtual"),
    cxx("stack-smashing"),
    # From 3.14 on a daemon thread that would have to end waits for ever instead.
    cxx("cxx-forced-unwind", pythons=("3.11", "3.13"), before=(3, 14), wanted=signal.SIGABRT),
    cxx("finalization-static-dtor"),
    cxx("deadlock-gil-native-lock"),
    cxx("deadlock-gil-static-init"),
)


@cache
def library(name: str, *options: str, source: Optional[str] = None) -> Path:
    """A shared library: causes.cpp, or this text. Built once a session."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    root = Path(os.environ["CRASHKIT_TEST_CRASHES"])
    path = root / f"lib{name}.so"
    with lock(root / f"lib{name}.lock"):
        if not path.exists():
            text = root / f"{name}.cpp"
            text.write_text(source if source is not None else (CRASHERS / "causes.cpp").read_text())
            partial = path.with_suffix(".part")
            flags = ["-g", "-O0", "-w", "-shared", "-fPIC", "-fstack-protector-all", "-pthread", *options]
            subprocess.run([compiler, *flags, text, "-o", partial, "-ldl"], check=True, timeout=DEADLINE)
            partial.rename(path)
    return path


def made(cause: Cause, python: Interpreter, faulthandler: bool = True) -> Folder:
    arguments = [cause.kind or cause.signature]
    if cause.needs_library:
        arguments.append(str(library("causes")))
    return python_crash(cause.script, *arguments, python=python, faulthandler=faulthandler, wanted=cause.wanted)


def evidence(folder: Folder) -> list[Path]:
    """Core and log, as a crash folder holds them."""
    log = folder.path / "stderr.txt"
    return [folder.core, log] if log.stat().st_size else [folder.core]


def first(crash: Crash) -> Optional[str]:
    return crash.findings[0].id if crash.findings else None


def analyzed(paths: list[Path]) -> Crash:
    return analyze(list(paths))


def log_of(tmp_path: Path, *command: str, **environment: str) -> Path:
    """Output of a program that ends without a core worth keeping."""
    log = tmp_path / "stderr.log"
    with log.open("wb") as file:
        subprocess.run(
            ["prlimit", "--core=0", *command],
            stdout=file,
            stderr=file,
            check=False,
            timeout=DEADLINE,
            cwd=tmp_path,
            env={**os.environ, **environment},
        )
    return log
