"""The reason of real crashes, with the kernel's siginfo intact and with faulthandler in its way."""

from __future__ import annotations

import platform
import re
import resource
from pathlib import Path

import pytest

from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.describe import describe
from crashkit.evidence.input import open_input
from crashkit.evidence.module_files import Finder, ModuleFile
from crashkit.model import Crash, Signal
from crashkit.pipeline import Options, analyze
from tests.crashes import (
    Folder,
    an_interpreter,
    an_unguarded_interpreter,
    c_crash,
    every_interpreter,
    needs_x86_64,
    python_crash,
    unguarded_interpreters,
)

pytestmark = needs_x86_64()


def described(crash: Folder) -> Crash:
    with open_input(crash.core) as source:
        core = open_core(source.file, source.path, source.size)
        assert core is not None
        with core:
            return describe(core, source, Finder()).crash


def signal_of(crash: Folder) -> Signal:
    signal = described(crash).signal
    assert signal is not None
    return signal


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


# The guard of a thread's stack is memory that allows no access; from glibc 2.42 and Linux 6.13 on it is a hole in the stack's memory.
GUARD_IS_A_HOLE = _numbers(platform.libc_ver()[1]) >= (2, 42) and _numbers(platform.release()) >= (6, 13)
GUARD = "SEGV_MAPERR" if GUARD_IS_A_HOLE else "SEGV_ACCERR"

# What the kernel said first, whether or not a handler ran since.
FAULTS = {
    "null": ("SIGSEGV", "SEGV_MAPERR", "null-pointer", "read", 0),
    "null_field": ("SIGSEGV", "SEGV_MAPERR", "null-pointer", "read", 0x18),
    "null_index": ("SIGSEGV", "SEGV_MAPERR", "null-pointer", "read", 3_200_000),
    "null_call": ("SIGSEGV", "SEGV_MAPERR", "null-pointer", "execute", 0),
    "wild": ("SIGSEGV", "SI_KERNEL", "non-canonical", "read", 0xDEADBEEFDEADBEEF + 0x18),
    "wild_slot": ("SIGSEGV", "SI_KERNEL", "non-canonical", "execute", 0x4343434343434343),
    "wild_call": ("SIGSEGV", "SI_KERNEL", "non-canonical", "execute", 0x4141414141414141),
    "wild_return": ("SIGSEGV", "SI_KERNEL", "non-canonical", "execute", 0x4242424242424242),
    "misaligned": ("SIGSEGV", "SI_KERNEL", "misaligned", "read", ...),
    "privileged": ("SIGSEGV", "SI_KERNEL", "privileged-instruction", None, None),
    "unmapped": ("SIGSEGV", "SEGV_MAPERR", "unmapped", "read", ...),
    "read_only": ("SIGSEGV", "SEGV_ACCERR", "read-only", "write", ...),
    "no_access": ("SIGSEGV", "SEGV_ACCERR", "no-access", "read", ...),
    "no_exec": ("SIGSEGV", "SEGV_ACCERR", "no-exec", "execute", ...),
    "c_overflow": ("SIGSEGV", "SEGV_MAPERR", "stack-overflow", "write", ...),
    "c_overflow_thread": ("SIGSEGV", GUARD, "stack-overflow", "write", ...),
    "python_overflow": ("SIGSEGV", GUARD, "stack-overflow", "write", ...),
    "divide": ("SIGFPE", "FPE_INTDIV", "integer-divide", None, None),
    "quotient": ("SIGFPE", "FPE_INTDIV", "quotient-overflow", None, None),
    "large_frame": ("SIGSEGV", "SEGV_MAPERR", "stack-overflow", "write", ...),
    "large_frame_over_file": ("SIGSEGV", "SEGV_ACCERR", "stack-overflow", "write", ...),
    "unmapped_call": ("SIGSEGV", "SEGV_MAPERR", "unmapped", "execute", ...),
    "ud2": ("SIGILL", "ILL_ILLOPN", "trap", None, ...),
    "int3": ("SIGTRAP", "SI_KERNEL", "trap", None, None),
    "bus": ("SIGBUS", "BUS_ADRERR", "bus-truncated-file", "read", ...),
}
KINDS = [kind for kind in FAULTS if kind != "python_overflow" or unguarded_interpreters()]

# faulthandler leaves SIGTRAP alone, and its alternate stack is the main thread's only: elsewhere the kernel finds no room for the
# handler and sends SIGSEGV with SI_KERNEL.
NO_ROOM = {"c_overflow_thread", "python_overflow"}
NOT_HANDLED = {"int3", *NO_ROOM}


@pytest.mark.slow
@pytest.mark.parametrize("handler", [False, True], ids=["plain", "faulthandler"])
@pytest.mark.parametrize("kind", KINDS)
def test_fault(kind, handler):
    name, code_name, reason, access, address = FAULTS[kind]
    if handler and kind in NO_ROOM:
        code_name = "SI_KERNEL"
    python = an_unguarded_interpreter() if kind == "python_overflow" else an_interpreter()
    crash = python_crash("faults.py", kind, python=python, faulthandler=handler)
    # From 3.14 on faulthandler unwinds the native stack, too, and may fail itself: only with the stack is that known to be the later fault.
    signal = analyze(crash.core, options=Options(gdb=None)).signal if handler else signal_of(crash)
    assert signal is not None
    assert (signal.name, signal.code_name, signal.reason, signal.access) == (name, code_name, reason, access), signal
    assert -crash.status == signal.number
    assert signal.recovered == (handler and kind not in NOT_HANDLED)
    assert ("Fatal Python error" in crash.stderr) == signal.recovered
    if address is ...:
        assert signal.address
    else:
        assert signal.address == address


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "handler", "name", "reason"),
    [
        ("abort", False, "SIGABRT", "abort"),
        ("abort", True, "SIGABRT", "abort"),
        ("double_free", False, "SIGABRT", "abort"),
        ("double_free", True, "SIGABRT", "abort"),
        ("outside", False, "SIGSEGV", "sent-from-outside"),
        ("outside", True, "SIGSEGV", "sent"),
        ("itself", False, "SIGSEGV", "raised"),
    ],
)
def test_no_fault(kind, handler, name, reason):
    crash = python_crash("faults.py", kind, python=an_interpreter(), faulthandler=handler)
    signal = signal_of(crash)
    assert (signal.name, signal.reason, signal.address, signal.access, signal.recovered) == (name, reason, None, None, False), signal
    if kind == "outside" and not handler:
        assert signal.sender_pid not in (None, crash.pid)


@pytest.mark.parametrize("handler", [False, True], ids=["plain", "faulthandler"])
def test_the_size_of_a_stack_is_that_of_one_thread(handler):
    """Where the guard is a hole in its memory, the kernel makes one mapping of neighbouring stacks."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    size = 2 << 20 if limit == resource.RLIM_INFINITY else limit  # glibc's ARCH_STACK_DEFAULT_SIZE
    signal = signal_of(python_crash("faults.py", "c_overflow_thread", python=an_interpreter(), faulthandler=handler))
    assert f"below the end of the thread's stack ({size / 2**20:.1f} MiB, all used)" in signal.detail


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_stack_overflow_in_c_on_other_versions(python):
    signal = signal_of(python_crash("faults.py", "c_overflow", python=python))
    assert (signal.reason, signal.recovered) == ("stack-overflow", True)


def test_the_detail_names_instruction_and_register():
    signal = signal_of(python_crash("faults.py", "null_field", python=an_interpreter(), faulthandler=False))
    assert signal.detail == "read of 8 bytes at 0x18: a null pointer plus an offset of 24 bytes (mov rax, [rdi+0x18], rdi = 0)"


def test_a_truncated_file_is_named():
    signal = signal_of(python_crash("faults.py", "bus", python=an_interpreter(), faulthandler=False))
    assert "/weights-" in signal.detail


def test_what_lies_in_front_of_the_code_is_none_of_its_instructions():
    """The code is in a file, the memory directly in front of it in the core: both are read, and only one is code."""
    crash = described(python_crash("faults.py", "zeroed_library", python=an_interpreter()))
    assert [one.text for one in crash.instructions] == ["add byte ptr [rax], al"] * 8
    assert [one.faulting for one in crash.instructions] == [True, *[False] * 7]


def test_memory_is_read_across_the_border_of_core_and_file():
    folder = python_crash("faults.py", "zeroed_library", python=an_interpreter())
    with open_input(folder.core) as source:
        core = open_core(source.file, source.path, source.size)
        assert core is not None
        with core:
            library = next(one for one in core.files if one.path.endswith(".so") and "/plugin-" in one.path)
            files = {library.path: ModuleFile("found", Path(library.path))}
            assert read_constant(core, files, library.start - 16, 48) == b"\x90" * 16 + bytes(32)
            assert read_constant(core, {}, library.start - 16, 48) == b"\x90" * 16


def test_a_c_program():
    signal = signal_of(c_crash("no_python.c"))
    assert (signal.reason, signal.access, signal.address) == ("null-pointer", "read", 24)
