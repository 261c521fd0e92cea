"""Finds the signal or exit status that ended the process, from log lines alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Optional

from crashkit.evidence.text.sanitizer import HIGH_ADDRESS
from crashkit.memory import PAGE
from crashkit.model import Address, LogLine, Process, Signal
from crashkit.naming.addresses import END, is_no_function, is_null, may_be_stack
from crashkit.naming.signals import (
    SI_KERNEL,
    SIGABRT,
    SIGALRM,
    SIGBUS,
    SIGFPE,
    SIGHUP,
    SIGILL,
    SIGKILL,
    SIGPROF,
    SIGQUIT,
    SIGSEGV,
    SIGSYS,
    SIGTERM,
    SIGTRAP,
    SIGUSR1,
    SIGUSR2,
    SIGVTALRM,
    SIGXCPU,
    SIGXFSZ,
    code_name,
    signal_name,
    signal_number,
)

# Page-fault error code bits: arch/x86/include/asm/trap_pf.h.
_PRESENT, _WRITE, _FETCH = 1, 2, 16
_NEAR_STACK = 64 << 10
"""Bytes from the stack pointer: nothing is mapped there only where the stack is used up."""

_TRAPS = {
    "general protection": SIGSEGV,
    "trap stack segment": SIGBUS,
    "trap invalid opcode": SIGILL,
    "trap divide error": SIGFPE,
    "trap int3": SIGTRAP,
    "control protection": SIGSEGV,
    "trap bounds": SIGSEGV,
    "trap overflow": SIGSEGV,
    "trap invalid tss": SIGSEGV,
    "trap segment not present": SIGBUS,
    "trap alignment check": SIGBUS,
}

# What shells, Python's faulthandler, uWSGI and Paddle call a signal; in lower case.
_TEXTS = {
    "segmentation fault": SIGSEGV,
    "segfault": SIGSEGV,
    "memory fault": SIGSEGV,
    "aborted": SIGABRT,
    "abort": SIGABRT,
    "abort trap": SIGABRT,
    "iot instruction": SIGABRT,
    "iot trap": SIGABRT,
    "process abort signal": SIGABRT,
    "bus error": SIGBUS,
    "access to an undefined portion of a memory object": SIGBUS,
    "illegal instruction": SIGILL,
    "illegal hardware instruction": SIGILL,
    "illegal operation": SIGILL,
    "illegal": SIGILL,
    "numerical": SIGFPE,
    "floating point exception": SIGFPE,
    "floating exception": SIGFPE,
    "erroneous arithmetic operation": SIGFPE,
    "trace/breakpoint trap": SIGTRAP,
    "trace/bpt trap": SIGTRAP,
    "trace trap": SIGTRAP,
    "exc_bad_access": SIGSEGV,
    "killed": SIGKILL,
    "terminated": SIGTERM,
    "hangup": SIGHUP,
    "quit": SIGQUIT,
    "alarm": SIGALRM,
    "virtual time alarm": SIGVTALRM,
    "profile signal": SIGPROF,
    "user-defined signal 1": SIGUSR1,
    "user-defined signal 2": SIGUSR2,
    "cpu limit exceeded": SIGXCPU,
    "cpu time limit exceeded": SIGXCPU,
    "file size limit exceeded": SIGXFSZ,
    "invalid system call": SIGSYS,
    "bad system call": SIGSYS,
    "alarm clock": SIGALRM,
    "user defined signal 1": SIGUSR1,
    "user defined signal 2": SIGUSR2,
}

# Lines that name the signal which ended the process itself, best first; then those of its launcher or server.
_NAMED = (
    "process-end",
    "gdb-signal",
    "qemu-signal",
    "shell",
    "jvm",
    "valgrind-end",
    "asan",
    "handler-aborts",
    "launcher-signal",
    "supervisor-signal",
    "server-worker-signal",
    "heap-limit",
    "told",
)

# Messages after which the runtime aborts the process, or whose text names the signal.
_BY_KIND = {
    "worker-segfault": SIGSEGV,
    "worker-bus-error": SIGBUS,
    "memory-failure": SIGBUS,
    "worker-killed": SIGKILL,
    "worker-terminated": SIGTERM,
    "sigterm-banner": SIGTERM,
    "oom-cgroup": SIGKILL,
    "oom-host": SIGKILL,
    "shell-killed": SIGKILL,
    "server-worker-killed": SIGKILL,
    "stack-smashing": SIGABRT,
    "double-free": SIGABRT,
    "invalid-free": SIGABRT,
    "heap-overflow": SIGABRT,
    "c-assert": SIGABRT,
    "libc-fatal": SIGABRT,
    "mps-assert": SIGABRT,
    "glog-check": SIGABRT,
    "llvm-abort": SIGABRT,
    "tcl-panic": SIGABRT,
    "qt-platform-fatal": SIGABRT,
    "qt-unhandled": SIGABRT,
    "qt-no-application": SIGABRT,
    "qt-thread-destroyed": SIGABRT,
    "rust-alloc-failed": SIGABRT,
    "rust-no-unwind": SIGABRT,
    "terminate": SIGABRT,
    "terminate-c10": SIGABRT,
    "terminate-protobuf": SIGABRT,
    "terminate-bare": SIGABRT,
    "terminate-again": SIGABRT,
    "not-rethrown": SIGABRT,
    "pure-virtual": SIGABRT,
    "rocm-fault": SIGABRT,
    "rocm-queue": SIGABRT,
    "gui-thread-fatal": SIGABRT,
    "display-aborts": SIGABRT,
    "numba-workqueue": SIGABRT,
    "hdf5-mismatch": SIGABRT,
    "fd-set-overflow": SIGABRT,
    "code-signature": SIGKILL,
}

# The words of macOS (EXC_I386_GPFLT, mach/i386/exception.h) and valgrind for a general protection fault: the address was none.
_PROTECTION_FAULTS = ("EXC_I386_GPFLT", "General Protection Fault")

# SEGV_MAPERR by its name and number (as Android and Go print it), in the words of Open MPI and UCX, in R's, in valgrind's, and macOS's
# KERN_INVALID_ADDRESS.
_MAPERR = re.compile(
    r"SEGV_MAPERR|[Aa]ddress not mapped|\bmemory not mapped|Access not within mapped region|KERN_INVALID_ADDRESS|"
    r"\bsi_code(?: |=|: ?)1\b|\), code 1\b|\bcode=0x1\b|EXC_BAD_ACCESS \(code=1\b"
)

_ACCERR = re.compile(r"SEGV_ACCERR|Invalid permissions|KERN_PROTECTION_FAILURE|\bsi_code(?: |=|: ?)2\b|\), code 2\b|\bcode=0x2\b")

# SI_KERNEL (128) by its name and number, as Android, Java, strace, Open MPI, Julia and Go print it, and in the words of UCX and psiginfo().
# The processor refused the access without an address, and the kernel says 0 in its place (exc_general_protection, arch/x86/kernel/traps.c).
_BY_KERNEL = re.compile(
    r"\bSI_KERNEL\b|\b(?:si_)?code(?: |=|: {1,4})\(?(?:128|0x80)\b|\(128\)$|\bsignal \(?11[.( ]{1,2}128\)|Sent by the kernel at address|"
    r"Signal sent by the kernel\b"
)

# Codes of 0 and less are those of signals that a process sent: its pid and user id are in the place of the address (siginfo_t,
# include/uapi/asm-generic/siginfo.h). By name, by number as Android, Go, Julia and Open MPI print it, and in the words of the latter, of
# UCX and of psiginfo().
_SENT = re.compile(
    r"\bSI_(?:USER|TKILL|QUEUE)\b|\bsi_code(?: |=|: ?)(?:-\d|0\b)|\), code (?:-\d|0\b)|\bcode=0x(?:0\b|f{7,15}[0-9a-f]\b)|"
    r"^\((?:0|-\d{1,2})\)$|\bsignal \(?11[.( ]{1,2}(?:0|-\d{1,2})\)|\bUser function \(kill|Signal sent by (?!the kernel)|"
    r"Sent by (?:kill|sigqueue)|\btkill\(2\)"
)

_HEX = re.compile(r"0x[0-9a-f]{1,16}")
_FAULTS = (SIGSEGV, SIGBUS)
_BY_INSTRUCTIONS = (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP)
_OF_FAULTS = ("process-end", "jvm", "asan")
"""Kinds of lines that tell of the fault itself."""
_FATAL = (SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGSYS)
"""Of which a status of 128 and more tells: a program may use any other number itself (billiard's 155 is its own)."""


def of_lines(lines: Sequence[LogLine], told: Optional[int]) -> tuple[Optional[Signal], Optional[Process]]:
    """The signal and the process, each None if no line shows it. `told` is the signal number from a multi-line text, if any."""
    lines = sorted(lines, key=_is_stopped)  # stable: the order of the log otherwise
    status = next((number for line in lines if (number := _status(line)) is not None), None)
    pids = (_number(line.fields.get(name, "")) for line in lines for name in ("pid", "pid2"))
    pid = next((pid for pid in pids if pid is not None), None)
    signal = _signal(lines, told, status)
    if status is None and signal is not None:
        status = 128 + signal.number
    commands = {line.fields["command_line"] for line in lines if "command_line" in line.fields}
    argv = _words(commands.pop()) if len(commands) == 1 else ()
    executable = next((path for line in lines if (path := line.fields.get("executable"))), None)
    process = Process(pid=pid, exit_status=status, argv=argv, executable=executable)
    return signal, process if process != Process() else None


def _words(command: str) -> tuple[str, ...]:
    """The words of a command line, which a program may have printed without quoting them; none where that leaves them unknown."""
    with suppress(ValueError):
        words = shlex.split(command)
        # What follows is code, with spaces in it.
        if "-c" not in words or any(mark in command for mark in "\\'\""):
            return tuple(words)
    return ()


_KILLED_RANK = re.compile(r"\bexit status of rank \d{1,7}: killed by signal 9\b")
"""MPICH's MPD kills the other ranks so, and prints them in any order."""


def _is_stopped(line: LogLine) -> bool:
    """Whether the line is about a process that a launcher stopped because another one had failed: that other one is the crash."""
    if line.kind in ("launcher-stops", "sigterm-banner") or line.fields.get("signal") == "SIGTERM":
        return True
    if _KILLED_RANK.search(line.text):
        return True
    return line.kind == "launcher-child" and _status(line) == 128 + SIGTERM


def _ends_all(line: LogLine) -> bool:
    """Whether the line tells that a process ended with a status that is no signal's: its master or launcher then stops all others."""
    if line.kind == "server-worker-exited":
        return True
    return line.kind == "launcher-child" and not _is_stopped(line) and 0 < (_status(line) or 0) <= 128


def _signal(lines: Sequence[LogLine], told: Optional[int], status: Optional[int]) -> Optional[Signal]:
    kernel = next((line for line in lines if line.kind == "kernel-segfault"), None)
    if kernel is not None and told in (None, SIGSEGV):
        return _page_fault(kernel)
    failed = [line for line in lines if not _is_stopped(line)]
    stopped = [] if any(_ends_all(line) for line in lines) else [line for line in lines if _is_stopped(line)]
    numbers = (
        told,
        next((_TRAPS[line.fields["trap"].lower()] for line in lines if line.kind == "kernel-trap"), None),
        *(number for kind in _NAMED for line in failed if line.kind == kind and (number := named(line.fields))),
        next((_BY_KIND[line.kind] for line in failed if line.kind in _BY_KIND), None),
        *(number for kind in _NAMED for line in stopped if line.kind == kind and (number := named(line.fields))),
        next((_BY_KIND[line.kind] for line in stopped if line.kind in _BY_KIND), None),
        status - 128 if status is not None and 128 < status <= 192 else None,
    )
    number = next((number for number in numbers if number), None)
    if number is None:
        return None
    if number in _BY_INSTRUCTIONS and any(map(_is_sent_by_itself, lines)):
        return Signal(number=number, name=signal_name(number), reason="raised", detail="the process sent the signal to itself")
    of_faults = [line for line in lines if line.kind in _OF_FAULTS]
    sent = [line for line in of_faults if _says(_SENT, line)]
    address = next((address for line in lines if line not in sent and (address := _address(line, number)) is not None), None)
    if sent and address is None and number in _BY_INSTRUCTIONS:
        return Signal(number=number, name=signal_name(number), reason="sent", detail="the signal was sent, not caused by an instruction")
    # Until Mac OS X 10.6, an access to the null page was a SIGBUS.
    by_mach = number == SIGBUS and any(line.fields.get("reason", "").startswith("KERN_") for line in lines)
    reason = "null-pointer" if address is not None and (number == SIGSEGV or by_mach) and is_null(address) else None
    if not any(_tells_unmapped(line) or _ACCERR.search(line.text) for line in lines) and (
        address == 0 or any("from PID" in line.text for line in lines)
    ):
        reason = None  # Where the kernel has no address, it says 0; where a process sent the signal, its pid stands there.
    if number == SIGSEGV and any(line.fields.get("reason") in (*_PROTECTION_FAULTS, HIGH_ADDRESS) for line in lines):
        reason = "non-canonical"
    if number == SIGSEGV and not address and reason != "non-canonical" and any(_says(_BY_KERNEL, line) for line in of_faults):
        return Signal(number=number, name=signal_name(number), code=SI_KERNEL, code_name=code_name(number, SI_KERNEL))
    if reason is None and number == SIGSEGV and address is not None and address < END and not may_be_stack(address):
        reason = "unmapped" if any(map(_tells_unmapped, lines)) else None
    return Signal(number=number, name=signal_name(number), address=address, reason=reason)


def _is_sent_by_itself(line: LogLine) -> bool:
    """Whether a handler of glog's or Paddle's shows that the process had sent itself the signal.

    It prints no si_code, and si_addr for both: for a signal that was sent, the sender's pid and user id are at that place (siginfo_t).
    """
    address, pid = line.fields.get("address", ""), _number(line.fields.get("pid", ""))
    return "from PID" in line.text and _HEX.fullmatch(address) is not None and int(address, 16) & 0xFFFFFFFF == pid


def _says(code: re.Pattern[str], line: LogLine) -> bool:
    """Whether the line tells this si_code, by itself or in what was parsed from it."""
    return any(code.search(text) for text in (line.text, line.fields.get("code", ""), line.fields.get("reason", "")))


def _tells_unmapped(line: LogLine) -> bool:
    """Whether the line says, in the words of a system or of a library for si_code, that nothing is mapped at the address."""
    return line.fields.get("exception_code") == "1" or _says(_MAPERR, line)


def aborts(line: LogLine) -> bool:
    """Whether the line is a message after which the runtime calls abort()."""
    return _BY_KIND.get(line.kind or "") == SIGABRT


def named(fields: dict[str, str]) -> Optional[int]:
    """The signal's number, from its name or number in a line; numbers of macOS differ, so the name counts first."""
    text = fields.get("signal", fields.get("signal2", "")).strip() or _of_exception(fields)
    number = signal_number(text.upper()) or signal_number("SIG" + text.upper()) or _TEXTS.get(text.lower().replace("-", " "))
    if number is not None:
        return number
    given = next((fields[name] for name in ("number", "number2") if name in fields), "").lstrip("-")
    return int(given) if given.isdecimal() and len(given) <= 2 and 0 < int(given) <= 64 else None


# What macOS makes of a Mach exception that lldb shows: bsd/uxkern/ux_exception.c. KERN_PROTECTION_FAILURE is 2.
# And what lldb says in the place of SIGABRT where it finds assert() on the stack (AssertFrameRecognizer.cpp).
_EXCEPTIONS = {"EXC_BAD_INSTRUCTION": "SIGILL", "EXC_ARITHMETIC": "SIGFPE", "EXC_BREAKPOINT": "SIGTRAP", "hit program assert": "SIGABRT"}


def _of_exception(fields: dict[str, str]) -> str:
    exception, code = fields.get("exception", ""), fields.get("exception_code")
    if exception == "EXC_BAD_ACCESS" and code is not None:
        return "SIGBUS" if code == "2" else "SIGSEGV"
    return _EXCEPTIONS.get(exception, "")


def _address(line: LogLine, number: int) -> Optional[Address]:
    """The fault address that a signal handler printed with the signal."""
    text = line.fields.get("address", "")
    if line.kind not in _OF_FAULTS or number not in _FAULTS or named(line.fields) not in (None, number):
        return None
    if line.kind == "asan" and "signal" not in line.fields:
        return None  # that of the access, which was no fault
    if text in ("(nil)", "NULL"):
        return Address(0)
    try:
        return Address(int(text, 16))
    except ValueError:
        return None


def _status(line: LogLine) -> Optional[int]:
    """The status as a shell reports it; torchrun writes a signal as a negative number. A supervisor's counts where it is a signal's."""
    if line.kind not in ("exit-status", "launcher-child", "supervisor-exit"):
        return None
    value = _number(line.fields.get("status", ""))
    if value is None or (line.kind == "supervisor-exit" and -value not in _FATAL and value - 128 not in _FATAL):
        return None
    return 128 - value if -64 <= value < 0 else value


def _number(text: str) -> Optional[int]:
    """None for what is no number of a signal, a status or a process: Linux has none of more than seven digits."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _page_fault(line: LogLine) -> Signal:
    """The signal from the kernel's own line: arch/x86/mm/fault.c, show_signal_msg."""
    address, error = int(line.fields["address"][:16], 16), int(line.fields["error"][:16], 16)
    access = "execute" if error & _FETCH else "write" if error & _WRITE else "read"
    return Signal(number=SIGSEGV, name="SIGSEGV", address=Address(address), access=access, reason=_why(line, address, error))


def _goes_up(address: int, sp: int) -> bool:
    """Whether the access is the first of a page above sp: that of a copy that has run out at the upper end of the stack."""
    return address > sp and address % PAGE == 0


def _why(line: LogLine, address: int, error: int) -> Optional[str]:
    if is_null(address) and not (error & _FETCH and is_no_function(address)):
        return "null-pointer"
    if not error & _PRESENT:
        sp = int(line.fields["sp"][:16], 16)
        if abs(address - sp) <= _NEAR_STACK and not error & _FETCH and not _goes_up(address, sp):
            return "stack-overflow"
        return "unmapped" if not error & _FETCH and address < END else None
    return "read-only" if error & _WRITE else None
