"""Finds the signal or exit status that ended the process, from log lines alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from crashkit.evidence.text.faulthandler import SIGNALS
from crashkit.model import Address, LogLine, Process, Signal
from crashkit.naming.addresses import is_null
from crashkit.naming.signals import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, signal_name

SIGKILL, SIGTERM = 9, 15

# Page-fault error code bits: arch/x86/include/asm/trap_pf.h.
_WRITE, _FETCH = 2, 16

_TRAPS = {"general protection": SIGSEGV, "trap invalid opcode": SIGILL, "trap divide error": SIGFPE}

# Messages after which the runtime aborts the process, or whose text names the signal.
_BY_KIND = {
    "worker-segfault": SIGSEGV,
    "worker-bus-error": SIGBUS,
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
    "terminate": SIGABRT,
    "terminate-c10": SIGABRT,
    "terminate-protobuf": SIGABRT,
    "terminate-bare": SIGABRT,
    "not-rethrown": SIGABRT,
    "pure-virtual": SIGABRT,
    "rocm-fault": SIGABRT,
}


def of_lines(lines: Sequence[LogLine], told: Optional[int]) -> tuple[Optional[Signal], Optional[Process]]:
    """The signal and the process, each None if no line shows it. `told` is the signal number from a multi-line text, if any."""
    status = next((number for line in lines if (number := _status(line)) is not None), None)
    pids = (_number(line.fields.get(name, "")) for line in lines for name in ("pid", "pid2"))
    pid = next((pid for pid in pids if pid is not None), None)
    signal = _signal(lines, told, status)
    if status is None and signal is not None:
        status = 128 + signal.number
    process = Process(pid=pid, exit_status=status) if (pid, status) != (None, None) else None
    return signal, process


def _signal(lines: Sequence[LogLine], told: Optional[int], status: Optional[int]) -> Optional[Signal]:
    kernel = next((line for line in lines if line.kind == "kernel-segfault"), None)
    if kernel is not None and told in (None, SIGSEGV):
        return _page_fault(kernel)
    numbers = (
        told,
        next((_TRAPS[line.fields["trap"]] for line in lines if line.kind == "kernel-trap"), None),
        next((_number(line.fields.get("number", "")) for line in lines if line.kind == "launcher-signal"), None),
        next((number for line in lines if (number := _of_shell(line))), None),
        next((_BY_KIND[line.kind] for line in lines if line.kind in _BY_KIND), None),
        status - 128 if status is not None and 128 < status <= 192 else None,
    )
    number = next((number for number in numbers if number), None)
    return Signal(number=number, name=signal_name(number)) if number else None


def _of_shell(line: LogLine) -> Optional[int]:
    if line.kind != "shell":
        return None
    text = line.fields.get("signal", "")
    return SIGKILL if text == "Killed" else SIGNALS.get(text)


def _status(line: LogLine) -> Optional[int]:
    """The status as a shell reports it; torchrun writes a signal as a negative number."""
    if line.kind not in ("exit-status", "launcher-child"):
        return None
    value = _number(line.fields["status"])
    if value is None:
        return None
    return 128 - value if -64 <= value < 0 else value


def _number(text: str) -> Optional[int]:
    """None for what is no number of a signal, a status or a process: Linux has none of more than seven digits."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _page_fault(line: LogLine) -> Signal:
    """The signal from the kernel's own line: arch/x86/mm/fault.c, show_signal_msg."""
    address, error = int(line.fields["address"][:16], 16), int(line.fields["error"][:16], 16)
    access = "execute" if error & _FETCH else "write" if error & _WRITE else "read"
    reason = "null-pointer" if is_null(address) else None
    return Signal(number=SIGSEGV, name="SIGSEGV", address=Address(address), access=access, reason=reason)
