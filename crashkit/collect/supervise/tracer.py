"""`crashkit run --keep minimal`: traces the command and all that it starts, and takes a minimal core of whoever is about to die.

The tracer is a process of ours. It holds the dying process at the signal that kills it, with all of its threads, for as long as it takes to
find out which memory a report needs; the other processes run on. Then the kernel need not write a core. A signal that has a handler
is let through: faulthandler's raises it again, and then it has none.

If the tracer ends, however that happens, the kernel lets go of everything, and writes the core of who dies then.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit import isolation
from crashkit.collect.host import linux
from crashkit.collect.host.limits import allow_large_files
from crashkit.collect.supervise.sighting import say
from crashkit.crashfolder.work import Work
from crashkit.descriptors import close_all_but
from crashkit.memory import ptrace
from crashkit.memory.stop import facts, reap, stop_threads
from crashkit.naming.signals import DUMPS_CORE

_STOPPING = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_MOST_SECONDS = 300
"""For the analysis."""
_OTHER_REGISTERS = (2, 0x202, 0x400, 0x401, 0x405, 0x406)
"""NT_FPREGSET, NT_X86_XSTATE, NT_ARM_VFP, NT_ARM_TLS, NT_ARM_SVE, NT_ARM_PAC_MASK: elf.h."""


class HeldThread(NamedTuple):
    """A thread that stands in a stop of the tracer's."""

    tid: int
    registers: bytes
    """NT_PRSTATUS."""
    others: tuple[tuple[int, bytes], ...]
    """Further sets, by the type of their notes."""


class Held(NamedTuple):
    """What only the tracer can say of a process, and what only it may open."""

    pid: int
    number: int
    """The signal of which it dies."""
    information: bytes
    """Its `siginfo_t`."""
    threads: tuple[HeldThread, ...]
    """The one that got the signal first."""
    memory: int
    """/proc/PID/mem, opened."""
    pagemap: int
    """/proc/PID/pagemap, opened; -1 where it cannot be."""


Take = Callable[[Held, Path], bool]
"""Writes a minimal core into a new file; whether it is there. Called in a process that may import what it needs."""


def is_possible() -> bool:
    """Whether the system lets us trace a process of our own, as far as it can be known before (Yama's ptrace_scope, proc(5))."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text()) < 3
    except (OSError, ValueError):
        return True


def watcher(inbox: Work, take: Take) -> Callable[[int], int]:
    """A function that traces a pid, which waits for that, and returns the pid of the tracer; 0 if it could not, which it says."""

    def watch(pid: int) -> int:
        reader, writer = os.pipe()
        tracer = os.fork()
        if tracer:
            os.close(writer)
            with open(reader, "rb", buffering=0) as pipe:
                answer = pipe.read(1)
            if answer:
                return tracer
            with contextlib.suppress(ChildProcessError):
                os.waitpid(tracer, 0)
            say("the command cannot be traced: the kernel writes a whole core first, as with --capture core")
            return 0
        try:
            os.setsid()  # a terminal's Ctrl-C is for the command
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for number in range(1, signal.NSIG):
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an OSError can be told
            allow_large_files()
            signal.set_wakeup_fd(-1)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            os.chdir(isolation.NEUTRAL_FOLDER)
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1):
                os.dup2(nothing, descriptor)
            close_all_but(0, 1, 2, writer, inbox.descriptor)
            ptrace.seize(pid, ptrace.FOLLOWS_ALL)
            os.write(writer, b".")
            os.close(writer)
            _Tracer(inbox, take).follow()
        except BaseException as error:
            with contextlib.suppress(BaseException):
                say(f"the command is no longer traced: {type(error).__name__}: {error}")
        finally:
            os._exit(0)

    return watch


class _Dying(NamedTuple):
    """A process that is held."""

    pid: int
    tid: int
    number: int
    stopped: dict[int, int]
    """Its threads that stand, with the signal each is to get."""


class _Tracer:
    def __init__(self, inbox: Work, take: Take) -> None:
        self._inbox, self._take = inbox, take
        self._later: list[tuple[int, int]] = []
        """What other processes did while we waited for the threads of one."""
        self._dying: dict[int, _Dying] = {}
        """By the pid of the process of ours that reads it."""

    def follow(self) -> None:
        """Until nobody is left."""
        while True:
            if self._later:
                self._handle(*self._later.pop(0))
                continue
            try:
                tid, status = os.waitpid(-1, ptrace.WALL)
            except ChildProcessError:
                return
            self._handle(tid, status)

    def _handle(self, tid: int, status: int) -> None:
        if not os.WIFSTOPPED(status):
            if (dying := self._dying.pop(tid, None)) is not None:
                self._finish(dying, status == 0)
            return
        if (number := ptrace.delivered(status)) in DUMPS_CORE and (pid := _dies_of(tid, number)) is not None:
            with contextlib.suppress(OSError):
                self._hold(pid, tid, number)
                return
        held = next((one for one in self._dying.values() if _thread_of(one.pid, tid)), None)
        if held is not None:  # it stopped late
            held.stopped[tid] = number
            return
        with contextlib.suppress(OSError):
            _let_go(tid, status)

    def _hold(self, pid: int, tid: int, number: int) -> None:
        """Stop the process and let a process of ours read it. Raises OSError if it is gone."""
        information = ptrace.signal_information(tid)
        stopped = {tid: number}
        stop_threads(pid, stopped, _traced_already, self._next)
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        pagemap = -1
        with contextlib.suppress(OSError):
            pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        order = [tid, *sorted(stopped.keys() - {tid}, key=lambda one: (one != pid, one))]
        threads = tuple(HeldThread(one, ptrace.registers(one), _others(one)) for one in order)
        reader = os.fork()
        if reader == 0:
            status = 1
            try:
                signal.alarm(_MOST_SECONDS)
                status = self._taken(Held(pid, number, information, threads, memory, pagemap))
            except BaseException as error:
                with contextlib.suppress(BaseException):
                    say(f"process {pid}: {type(error).__name__}: {error}; the kernel writes its core")
            finally:
                os._exit(status)
        self._dying[reader] = _Dying(pid, tid, number, stopped)
        for descriptor in (memory, pagemap):
            if descriptor >= 0:
                os.close(descriptor)

    def _taken(self, held: Held) -> int:
        """The exit status: 0 once the core has its name."""
        partial, inbox = f"{held.pid}.partial", self._inbox
        inbox.remove(partial)
        try:
            if not self._take(held, inbox.path / partial):
                return 1
            os.rename(partial, f"{held.pid}.core", src_dir_fd=inbox.descriptor, dst_dir_fd=inbox.descriptor)
        finally:
            inbox.remove(partial)
        return 0

    def _next(self, waiting: set[int]) -> tuple[int, int]:
        """A thread of these that has stopped or ended; 0 if none has."""
        for index, (tid, status) in enumerate(self._later):
            if tid in waiting:
                del self._later[index]
                return tid, status
        return reap(waiting)

    def _finish(self, dying: _Dying, taken: bool) -> None:
        """Let it die; without a core of the kernel's if there is one of ours."""
        if taken:
            with contextlib.suppress(OSError, ValueError):
                _, hard = resource.prlimit(dying.pid, resource.RLIMIT_CORE)
                resource.prlimit(dying.pid, resource.RLIMIT_CORE, (0, hard))
        for tid, number in dying.stopped.items():
            with contextlib.suppress(OSError):
                ptrace.go_on(tid, number)


def _traced_already(_tid: int) -> None:
    """It is from its first instruction."""


def _let_go(tid: int, status: int) -> None:
    if status >> 16 == ptrace.EVENT_STOP and os.WSTOPSIG(status) in _STOPPING:
        ptrace.listen(tid)
    else:
        ptrace.go_on(tid, ptrace.delivered(status))


def _dies_of(tid: int, number: int) -> Optional[int]:
    """The process of the thread, if this signal ends it; None if it has a handler, or is ignored."""
    said = dict(facts(tid))
    bit = 1 << (number - 1)
    try:
        handled = (int(said["SigCgt"], 16) | int(said["SigIgn"], 16)) & bit
        return None if handled else int(said["Tgid"])
    except (KeyError, ValueError):
        return None


def _thread_of(pid: int, tid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/task/{tid}")


def _others(tid: int) -> tuple[tuple[int, bytes], ...]:
    found = ((kind, ptrace.registers(tid, kind)) for kind in _OTHER_REGISTERS)
    return tuple((kind, registers) for kind, registers in found if registers)
