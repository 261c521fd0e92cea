"""Names of signals and of si_code values, as Linux numbers them on x86-64 and AArch64.

Source: include/uapi/asm-generic/signal.h and include/uapi/asm-generic/siginfo.h.
"""

from __future__ import annotations

SENT = frozenset({"sent-from-outside", "sent", "raised", "abort", "timer"})
"""Reasons of a signal that no instruction caused."""

SI_USER = 0
SI_KERNEL = 128
SI_QUEUE = -1
SI_TIMER = -2
SI_SIGIO = -5
SI_TKILL = -6
NOT_FROM_PROCESS = frozenset({SI_TIMER, SI_SIGIO, -4, -60})
"""What the kernel does for the process: a timer, a descriptor (F_SETSIG), asynchronous input, output and names. It has no sender."""

SENT_BY_PROCESS = frozenset({SI_USER, SI_QUEUE, -3, SI_TKILL})
"""Codes of signals that a process sent: siginfo has its pid."""

REQUESTS = frozenset({1, 2, 15})
"""SIGHUP, SIGINT and SIGTERM: somebody asks the process to end."""
SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
)
SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGSYS = 24, 25, 26, 27, 31
FAULTS = frozenset({SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS})
"""Signals that the kernel sends for what an instruction does."""

_SIGNALS = (
    *("SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2"),
    *("SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG"),
    *("SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS"),
)

# The kernel's real-time signals begin at 32; glibc keeps two for its threads and calls the next one SIGRTMIN: signal(7).
_FIRST_REALTIME, _RTMIN, LAST_SIGNAL = 32, 34, 64
ALL_SIGNALS = range(1, LAST_SIGNAL + 1)

_ANY_CODE = {
    0: "SI_USER",
    128: "SI_KERNEL",
    -1: "SI_QUEUE",
    -2: "SI_TIMER",
    -3: "SI_MESGQ",
    -4: "SI_ASYNCIO",
    -5: "SI_SIGIO",
    -6: "SI_TKILL",
    -7: "SI_DETHREAD",
    -60: "SI_ASYNCNL",
}

# The codes of each signal count from 1.
_CODES = {
    SIGILL: (
        "ILL_ILLOPC ILL_ILLOPN ILL_ILLADR ILL_ILLTRP ILL_PRVOPC ILL_PRVREG ILL_COPROC ILL_BADSTK ILL_BADIADDR __ILL_BREAK __ILL_BNDMOD"
    ),
    SIGTRAP: "TRAP_BRKPT TRAP_TRACE TRAP_BRANCH TRAP_HWBKPT TRAP_UNK TRAP_PERF",
    SIGBUS: "BUS_ADRALN BUS_ADRERR BUS_OBJERR BUS_MCEERR_AR BUS_MCEERR_AO",
    SIGFPE: (
        "FPE_INTDIV FPE_INTOVF FPE_FLTDIV FPE_FLTOVF FPE_FLTUND FPE_FLTRES FPE_FLTINV FPE_FLTSUB __FPE_DECOVF __FPE_DECDIV "
        "__FPE_DECERR __FPE_INVASC __FPE_INVDEC FPE_FLTUNK FPE_CONDTRAP"
    ),
    SIGSEGV: ("SEGV_MAPERR SEGV_ACCERR SEGV_BNDERR SEGV_PKUERR SEGV_ACCADI SEGV_ADIDERR SEGV_ADIPERR SEGV_MTEAERR SEGV_MTESERR SEGV_CPERR"),
    SIGSYS: "SYS_SECCOMP SYS_USER_DISPATCH",
}


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11, `SIGRTMIN+6` for 40 (as `kill -l` has it), `signal 99` for a number that Linux does not have."""
    if 1 <= number <= len(_SIGNALS):
        return _SIGNALS[number - 1]
    if _RTMIN <= number <= LAST_SIGNAL:
        return f"SIGRTMIN+{number - _RTMIN}" if number > _RTMIN else "SIGRTMIN"
    return f"SIG{number}" if _FIRST_REALTIME <= number < _RTMIN else f"signal {number}"


def sender_name(pid: int) -> str:
    """`process 812`: who sent a signal, by the pid in its siginfo. That is 0 where the sender has none here (pid_namespaces(7))."""
    return f"process {pid}" if pid else "a process outside this PID namespace"


def signals_gained(blocked: int | None, before: int | None) -> frozenset[int]:
    """The signals in one mask that were not in the other, bit n-1 for signal n; none where one of them is not known."""
    gained = blocked & ~before if blocked is not None and before is not None else 0
    return frozenset(number for number in ALL_SIGNALS if gained >> number - 1 & 1)


def signal_number(name: str | None) -> int | None:
    """The number of a signal by its name in `signal_name`, or by gdb's name (`SIG40` for a real-time signal); None for any other name."""
    return _NUMBERS.get(name or "")


def code_name(number: int, code: int) -> str | None:
    """`SEGV_MAPERR` for signal 11 with si_code 1; None for a code that Linux does not define."""
    if code in _ANY_CODE:
        return _ANY_CODE[code]
    names = _CODES.get(number, "").split()
    return names[code - 1] if 1 <= code <= len(names) else None


_NUMBERS = {
    **{f"SIG{number}": number for number in range(_FIRST_REALTIME, LAST_SIGNAL + 1)},
    **{signal_name(number): number for number in ALL_SIGNALS},
}
DUMPS_CORE = frozenset(_NUMBERS[name] for name in "SIGSEGV SIGBUS SIGABRT SIGFPE SIGILL SIGTRAP SIGSYS SIGQUIT SIGXCPU SIGXFSZ".split())
"""Signals whose default action dumps a core, signal(7)."""
