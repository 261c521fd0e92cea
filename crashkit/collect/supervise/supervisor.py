"""Run a command transparently, and notice every descendant that dies of a signal.

One loop over a signalfd, the stderr relay, inotify and pidfds. All signals are blocked here and read from the signalfd, so that no
system call is interrupted; the command gets the signal mask that we were started with. Slow work (copying a core, the analysis) runs
in forked processes, one at a time.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.collect.host import cuda, linux, oom
from crashkit.collect.host.limits import allow_core, core_limit
from crashkit.collect.host.snapshot import ProcessSnapshot, Stat, read_stat, working_folder
from crashkit.collect.supervise import proc_events
from crashkit.collect.supervise.core_watch import CoreFile, CoreWatch
from crashkit.collect.supervise.fatal_errors import PATIENCE as FATAL_PATIENCE
from crashkit.collect.supervise.fatal_errors import FatalErrors
from crashkit.collect.supervise.group_witness import GroupWitness
from crashkit.collect.supervise.hang import HangWatch
from crashkit.collect.supervise.hang import Limits as HangLimits
from crashkit.collect.supervise.incident import SECONDS as SAME_INCIDENT
from crashkit.collect.supervise.incident import Incident
from crashkit.collect.supervise.last_error import to_blame
from crashkit.collect.supervise.lost_peer import only_lost_peers
from crashkit.collect.supervise.passed_on import UNSEEN, PassedOn
from crashkit.collect.supervise.process_tree import Death, ProcessTree
from crashkit.collect.supervise.restart import Restart
from crashkit.collect.supervise.sighting import RunSettings, Sighting, printable, say, taken_of
from crashkit.collect.supervise.spawn import SpawnError, spawn
from crashkit.collect.supervise.stderr_tail import open_tail
from crashkit.collect.supervise.storm import Storm
from crashkit.collect.supervise.taker import Taker
from crashkit.crashfolder.files import open_regular
from crashkit.crashfolder.manifest import Killed
from crashkit.elf.core_head import CoreHead
from crashkit.environment import ERROR_FILE, is_given_a_rank, is_one_of_several
from crashkit.naming.signals import DUMPS_CORE, signal_name

ASKED_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
"""These end the whole tree; SIGHUP may also mean reload."""
EXPECTED = ASKED_TO_END | {signal.SIGPIPE}
"""Not crashes: requested termination, or the reader of a pipe is gone."""

_CORE_PATIENCE = 2.0
"""Seconds to wait for the core file after the kernel reported a core dump."""
_DEATH_PATIENCE = 1.0
"""Seconds to wait for the death of a process after its core is complete."""
_TAIL_PATIENCE = 10.0
_LAST_PATIENCE = 0.5
"""Seconds for processes that end by themselves once the command has, such as multiprocessing's resource tracker."""
_SAME_DEATH = 10.0
"""Seconds within which the same pid means the same process."""
_DETACH_PATIENCE = 5.0
_GPU_GRACE = 60.0
_MOST_TAKEN = 16
"""Processes of a tree that are looked at."""
_MOST_RANKS = 64
"""Of a job, its ranks on this host."""
_LARGEST_ERROR_FILE = 1 << 20
_CLEANING_UP = 2.0
"""Seconds before its end in which a command may kill processes that it started, as Ray kills its agents."""
_TICKS = os.sysconf("SC_CLK_TCK")
_CLEANING_UP_LONG = 30.0
"""The same in seconds more, where its parent has ended, too, or could not yet, or another process has crashed: the command may take its
time."""
_HANG_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL for a command that hangs."""
_NOT_ASKED = "the GPU was not asked for its core, of which the process ends: --on-hang abort and --on-hang restart do that"
_DRAIN = 900.0
"""Seconds to wait for unfinished reports after the command has ended."""


class Options(NamedTuple):
    """How to start the command, and how often."""

    environment: dict[str, str]
    """The environment of the command."""
    storm: Storm
    cuda: bool = False
    keep_stderr: bool = True
    restart: Optional[Restart] = None
    again: Optional[Callable[[int, bytes], bool]] = None
    """Asked when the command has ended and its crashes are reported, with its status as in wait(2) and the end of stderr: once more?"""
    kills_on_purpose: bool = False
    """Whether a SIGKILL of unknown sender is no crash, except of the command itself: tests kill the servers that they start."""
    helpers: frozenset[int] = frozenset()
    """Pids of our own processes that run already."""
    wait_daemons: bool = False
    """Stay while any descendant lives."""
    watcher: Optional[Callable[[int], int]] = None
    """Starts a tracer for this pid before the command is executed; returns the tracer's pid. See `capture`."""
    hang: Optional[HangLimits] = None
    siblings: bool = False
    """When one of several processes fails, also look at those that live."""


class _Wanted(NamedTuple):
    """A death whose core has not been found yet."""

    death: Death
    is_command: bool
    until: float


class _Killed(NamedTuple):
    """A process below the command that a SIGKILL of unknown sender ended."""

    death: Death
    killed: Killed
    until: float
    parent: Optional[Stat]
    """Its parent then."""


class _Taking(NamedTuple):
    """Living processes that are being looked at."""

    why: str
    pids: list[int]
    is_hang: bool


def _is_of_another(pid: int) -> bool:
    """Whether this process lives and does not descend from us. What we start does so even if its parent ends: we are its subreaper."""
    stat = read_stat(pid)
    if stat is None:
        return False
    while stat is not None and pid != os.getpid():
        pid = stat.ppid
        stat = read_stat(pid)
    return pid != os.getpid()


def _runs_python(process: Optional[ProcessSnapshot]) -> bool:
    return process is not None and ("python" in (process.executable or "") or any("/libpython" in path for path in process.libraries))


def _is_interpreter(process: ProcessSnapshot) -> bool:
    """Whether it has an interpreter of its own. A loader has not, wherever it lies."""
    name = os.path.basename(process.executable or "")
    return name.startswith("python") or any("/libpython" in path for path in process.libraries)


def _is_of_python(core: CoreFile) -> bool:
    return core.head is not None and core.head.name.startswith("python")


def _own_stderr(process: ProcessSnapshot) -> bytes:
    """The end of a rank's stderr where its launcher sends that into a file; empty where it has ours."""
    try:
        with open_regular(Path(process.stderr or "")) as file:
            if os.path.samestat(os.fstat(file.fileno()), os.fstat(2)):
                return b""
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LARGEST_ERROR_FILE))
            return file.read(_LARGEST_ERROR_FILE)
    except OSError:
        return b""


def _error_file(process: Optional[ProcessSnapshot]) -> bytes:
    """What torch's `@record` wrote as the process ended; its launcher removes the file."""
    path = dict(process.place).get(ERROR_FILE) if process is not None else None
    if not path:
        return b""
    try:
        with open_regular(Path(path)) as file:
            return file.read(_LARGEST_ERROR_FILE)
    except OSError:
        return b""


def _has_ended_or_could_not(before: Optional[Stat], now: Optional[Stat]) -> bool:
    """Whether a process has ended since it was looked at `before`, or wants to go on and had not the time: others kept the processors busy,
    or it was stopped."""
    if now is None or now.state in "ZXTt":
        return True
    ran = now.ticks - before.ticks if before is not None else 0
    return now.state in "RD" and ran < _CLEANING_UP * _TICKS


class Supervisor:
    """Runs the command, restarts it as configured, and hands each crash to `keep`."""

    def __init__(self, settings: RunSettings, options: Options) -> None:
        self._settings = settings
        self._options = options
        self._poll = select.poll()
        self._mask: set[signal.Signals] = set()
        self._tree = ProcessTree(self._poll)
        self._tree.ours |= options.helpers
        self._leave_cores = core_limit()[0] != 0
        self._cores = CoreWatch(settings.pattern, settings.inbox, protect=not self._leave_cores)
        self._tail = open_tail(options.keep_stderr)
        self._command = 0
        self._tracer = 0
        self._started = 0.0
        self._status: Optional[int] = None
        self._end: Optional[Death] = None
        self._passed_on: set[int] = set()
        self._told_to_end = False
        self._held: list[int] = []
        self._held_until = 0.0
        self._wanted: list[_Wanted] = []
        self._kills: list[_Killed] = []
        self._unclaimed: list[tuple[CoreFile, float]] = []
        self._reported: dict[int, tuple[int, float]] = {}
        self._passed = PassedOn()
        self._queue: deque[Sighting] = deque()
        self._worker = 0
        self._next_walk = 0.0
        self._crashed = False
        self._abandoned = False
        self._overwritten_told = 0
        self._fatal = FatalErrors()
        self._oom_kills = oom.oom_kills(oom.cgroup_memory())
        self._hang = HangWatch(options.hang) if options.hang is not None else None
        self._taking: dict[int, _Taking] = {}
        """By the pids of our processes that do it."""
        self._taker: Optional[Taker] = None
        self._siblings_taken = 0.0
        self._living: list[Sighting] = []
        """Those that were looked at before the process that failed had ended."""
        self._incident: Optional[Incident] = None
        self._past: Optional[Incident] = None
        self._signs = 0
        self._hanging = False
        """The command is to end because it hangs, once its evidence is taken."""
        self._kill_at = 0.0

    # The run

    def run(self) -> int:
        """Run the command to its end and return the status to exit with. Raises SpawnError if it cannot be executed."""
        everything = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, everything)  # type: ignore[assignment]
        self._signals = linux.signalfd(everything)
        self._poll.register(self._signals, select.POLLIN)
        with contextlib.suppress(OSError):
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self._events = proc_events.listen()
        if self._events is not None:
            self._poll.register(self._events, select.POLLIN)
        self._witness = GroupWitness()
        self._tree.ours.add(self._witness.pid)
        if self._hang is not None and self._hang.probe is not None:
            self._tree.ours.add(self._hang.probe.pid)
        for descriptor in self._cores.descriptors:
            self._poll.register(descriptor, select.POLLIN)
        self._cores.watch({working_folder()})
        self._start()
        if self._options.restart is None and self._options.again is None:
            self._give_up_descriptors()
        while True:
            self._watch_command()
            if self._run_again():
                self._tail.forget()
                self._start()
                continue
            pause = self._pause_before_restart()
            if pause is None:
                break
            say(f"restarting the command in {pause:g} s")
            self._wait_until(time.monotonic() + pause, lambda: self._told_to_end)
            if self._told_to_end:
                break
            self._start()
        self._watch_daemons()
        self._finish()
        assert self._status is not None
        return os.WEXITSTATUS(self._status) if os.WIFEXITED(self._status) else 128 + os.WTERMSIG(self._status)

    def _start(self) -> None:
        descriptors = {}
        if self._tail.command_stderr is not None:
            descriptors[2] = self._tail.command_stderr
            if self._tail.both:
                descriptors[1] = self._tail.command_stderr
        watcher = self._options.watcher
        release, hold = os.pipe()

        def prepare() -> None:
            allow_core(self._options.cuda, raise_limit=watcher is None or self._settings.minimal)
            if watcher is not None:
                with contextlib.suppress(OSError):
                    linux.prctl(linux.PR_SET_PTRACER, linux.PR_SET_PTRACER_ANY)
                os.close(hold)
                os.read(release, 1)  # ends when the tracer is there

        def forked(pid: int) -> None:
            if watcher is not None:
                self._tracer = watcher(pid)
                self._tree.ours.add(self._tracer)
            os.close(release)
            os.close(hold)

        self._status = None
        self._crashed = False
        self._command = spawn(self._settings.command, self._options.environment, self._mask, descriptors, prepare, forked)
        self._tree.started(self._command, self._settings.command, self._options.environment)
        self._started = time.monotonic()
        self._next_walk = self._started
        self._hanging, self._kill_at = False, 0.0
        if self._hang is not None:
            self._hang.restarted()

    def _give_up_descriptors(self) -> None:
        """Close our stdin and stdout, so that the other ends of the pipes see when the command closes its own."""
        self._tail.started()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(nothing, descriptor)
        os.close(nothing)

    def _watch_command(self) -> None:
        while self._status is None:
            self._step(self._timeout())
        # Handle the events that came with the command's death.
        self._step(0)
        self._wait_until(time.monotonic() + _CORE_PATIENCE, lambda: not (self._wanted or (self._hanging and self._taking)))

    def _pause_before_restart(self) -> Optional[float]:
        if self._options.restart is None or not (self._crashed or self._hanging) or self._told_to_end or self._passed_on & ENDING:
            return None
        pause = self._options.restart.pause(time.monotonic() - self._started)
        if pause is None:
            say(f"the command crashed {self._options.restart.limit + 1} times and is not restarted")
        return pause

    def _run_again(self) -> bool:
        if self._options.again is None or self._told_to_end or self._passed_on & ENDING:
            return False
        assert self._status is not None
        self._wait_until(time.monotonic() + FATAL_PATIENCE + _DRAIN, self._idle)
        self._tail.catch_up()
        return self._options.again(self._status, self._tail.tail()) and not self._told_to_end

    def _wait_until(self, deadline: float, done: Callable[[], bool]) -> None:
        while not done() and (left := deadline - time.monotonic()) > 0:
            self._step(min(left, self._timeout()))

    def _watch_daemons(self) -> None:
        """Stay while any process of the command lives, if that is wanted."""
        if self._options.wait_daemons:
            self._wait_until(math.inf, lambda: self._told_to_end or bool(self._passed_on & ENDING) or not self._tree.living())

    def _say_who_is_left(self) -> None:
        self._wait_until(time.monotonic() + _LAST_PATIENCE, lambda: self._told_to_end or not self._tree.living())
        if left := self._tree.living():
            names = ", ".join(f"{printable(name)}[{pid}]" for pid, name in list(left.items())[:3])
            more = ", ..." if len(left) > 3 else ""
            them = "a process of the command still runs, and its" if len(left) == 1 else "processes of the command still run, and their"
            say(f"{them} crashes would not be seen: {names}{more}; --wait-daemons waits for the end of all")

    def _finish(self) -> None:
        """Wait for the reports, unless we are asked to terminate."""
        self._wait_until(time.monotonic() + FATAL_PATIENCE + _DRAIN, self._idle)
        if (failure := self._failure()) is not None:
            self._queue.append(failure)
            self._wait_until(time.monotonic() + _DRAIN, self._idle)
        if self._worker:
            with contextlib.suppress(OSError):
                os.killpg(self._worker, signal.SIGTERM)
            self._abandoned = True
        if self._abandoned or self._queue:
            say(f"some reports are not finished; run crashkit list to see the crashes in {self._settings.store.path}")
        if summary := self._options.storm.summary():
            say(summary)
        unseen = self._tail.fatal_errors - len(self._reported)
        if unseen > 0 and self._tail.fatal_errors > 1:
            say(f"{unseen} more fatal error{'s' if unseen > 1 else ''} on stderr, from processes whose end was not observed")
        self._say_who_is_left()
        if self._tracer in self._tree.ours:
            # Detach from daemons that outlive the command.
            with contextlib.suppress(OSError):
                os.kill(self._tracer, signal.SIGTERM)
            self._wait_until(time.monotonic() + _DETACH_PATIENCE, lambda: self._tracer not in self._tree.ours)
        for message in self._cores.close():
            say(message)
        self._forget_living()
        if self._taker is not None:
            self._taker.close()
        if self._hang is not None and self._hang.gpu is not None:
            self._hang.gpu.close()
        self._tail.leave()
        if self._witness.pid in self._tree.ours:  # else something has ended it, and the pid may be another's by now
            os.kill(self._witness.pid, signal.SIGKILL)

    def _failure(self) -> Optional[Sighting]:
        """The end of a command that exited with an error, if nothing else died and nobody asked it to end."""
        end, status = self._end, self._status
        if end is None or status is None or not os.WIFEXITED(status) or not os.WEXITSTATUS(status):
            return None
        is_rank = end.process is not None and is_one_of_several(dict(end.process.place))
        if not (self._settings.on_exit and (self._settings.analyze or is_rank)):
            return None
        if self._reported or self._fatal.count or self._told_to_end or self._passed_on & ENDING:
            return None
        self._tail.catch_up()
        stderr = self._tail.tail()
        if not stderr.strip():
            return None
        code = os.WEXITSTATUS(status)
        error = _error_file(end.process) if is_rank else b""
        seen = Sighting(time.time(), end.pid, end.start, 0, False, True, end.process, None, stderr, None, exit_status=code)
        return seen._replace(error_file=error)

    def _idle(self) -> bool:
        if self._told_to_end:
            return True
        if self._incident or self._worker or self._queue or self._taking or self._kills:
            return False
        return not (self._wanted or self._unclaimed or self._cores.busy or self._fatal.awaited)

    # One turn

    def _timeout(self) -> float:
        if self._cores.busy or self._wanted or self._unclaimed:
            return self._cores.patience if self._cores.busy else 0.05
        if self._kills and self._status is not None:
            return 0.05
        if self._held or self._fatal.awaited:
            return 0.5
        if self._hang is not None:
            return max(0.01, min(self._next_walk, self._hang.next_look()) - time.monotonic())
        return max(0.01, self._next_walk - time.monotonic())

    def _step(self, timeout: float) -> None:
        # Who died before the command did may only be seen in the turn after that in which the command is reaped.
        had_ended = self._status is not None
        rest = self._tail.rest()
        interest = self._tail.interest() if not rest else None
        if interest is not None:
            self._poll.register(*interest)
        if rest:
            timeout = min(timeout, rest)
        stirred = False
        deaths: list[tuple[Death, bool]] = []
        for descriptor, _ in self._poll.poll(max(0.0, timeout) * 1000):
            if descriptor == self._signals:
                while (info := linux.read_signal(self._signals)) is not None:
                    if info.number == signal.SIGCHLD:
                        deaths += self._reap()
                    else:
                        self._pass_on(info.number)
            elif interest is not None and descriptor == interest[0]:
                self._tail.pump()
            elif descriptor in self._cores.descriptors:
                self._cores.take()  # at once: the next core may replace it
                stirred = True
            elif self._events is not None and descriptor == self._events.fileno():
                deaths += [
                    (death, False) for event in self._events.exits() if (death := self._tree.told(event.pid, event.parent, event.status))
                ]
            elif (death := self._tree.ended(descriptor)) is not None:
                deaths.append((death, False))
        if interest is not None:
            self._poll.unregister(interest[0])
        now = time.monotonic()
        # More processes may die soon: look now, as unknown ones leave no trace.
        if now >= self._next_walk or self._tail.fatal_errors > self._fatal.count:
            self._tree.walk()
            self._cores.watch(self._tree.folders())
            self._next_walk = now + self._tree.interval
            self._stand_ready()
        if self._looks_at_siblings:
            self._look_at_siblings([death for death, _ in deaths], now)
        for death, _ in deaths:  # a parent may come before its child
            if death.parent and death.signal in DUMPS_CORE:
                self._passed.note(death.pid, death.parent, death.signal, now)
        for death, is_command in deaths:
            self._died(death, is_command, now)
        if stirred or deaths or self._wanted or self._unclaimed or self._cores.busy:
            self._match_cores(now)
        self._judge_kills(now, had_ended)
        self._read_log(now)
        self._let_go_of_signals(now)
        self._look_for_hang(now)
        self._close_incident(now, had_ended)
        self._start_worker()

    # Signals

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGWINCH:
            self._tail.resize()
        if not self._command or self._status is not None:
            self._told_to_end = self._told_to_end or number in ASKED_TO_END | {signal.SIGQUIT}
            return
        reached_group = self._witness.saw(number, self._command)
        self._passed_on.add(number)
        # A terminal that stops the group takes the SIGCONT before it back, also from the witness.
        taken_back = number == signal.SIGCONT and signal.sigpending() & _STOPS
        if reached_group or taken_back:
            return
        if self._gpu_dump_running() and number in ASKED_TO_END:
            if not self._held:
                say(f"{signal_name(number)} is delayed until the GPU core dump is written, at most {_GPU_GRACE:g} s")
                self._held_until = time.monotonic() + _GPU_GRACE
            self._held.append(number)
            return
        self._send(number)

    def _send(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.kill(self._command, number)

    def _gpu_dump_running(self) -> bool:
        return self._settings.gpu_folder is not None and cuda.dumping(self._settings.gpu_folder)

    def _let_go_of_signals(self, now: float) -> None:
        if self._held and (now >= self._held_until or not self._gpu_dump_running()):
            for number in self._held:
                self._send(number)
            self._held = []

    def _stop_too(self, number: int) -> None:
        """Stop like the command, so that a shell sees its job stopped. Returns when we are continued."""
        if number != signal.SIGSTOP:
            signal.sigtimedwait({number}, 0)  # the terminal's, if it still waits here: once is enough
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        with contextlib.suppress(ValueError):
            signal.pthread_sigmask(signal.SIG_BLOCK, {number} - {signal.SIGSTOP})
        self._tail.resize()

    # Deaths

    def _reap(self) -> list[tuple[Death, bool]]:
        deaths = []
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            pid = found.si_pid
            stat = read_stat(pid)
            _, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if os.WIFSTOPPED(status):
                if pid == self._command:
                    self._stop_too(os.WSTOPSIG(status))
                continue
            if pid == self._worker:
                self._worker = 0
                if status:
                    say("the process that saves a crash was killed; crashkit list recovers what it left")
                continue
            if pid in self._tree.ours:
                self._tree.ours.discard(pid)
                if pid in self._taking:
                    self._taken(self._taking.pop(pid))
                elif self._taker is not None and pid == self._taker.pid:
                    self._taker = None
                continue
            death = self._tree.reaped(pid, status, stat.start if stat else 0)
            if pid == self._command:
                self._status, self._end = status, death
            deaths.append((death, pid == self._command))
        return deaths

    def _died(self, death: Death, is_command: bool, now: float) -> None:
        number = death.signal
        if not number:
            self._exited(death, is_command)
            return
        if number in EXPECTED or self._is_reported(death):
            if number == signal.SIGTERM and self._incident is not None and self._incident.takes(death.process, now):
                self._incident.launcher_stops = True
            return
        if self._kill_at and number == signal.SIGKILL:
            return  # we ended what hung
        if number == signal.SIGABRT and self._was_asked_for_gpu_core(death):
            # Its evidence was taken while it lived.
            self._reported[death.pid] = (death.start, time.monotonic())
            self._fatal.explained()
            return
        if number not in DUMPS_CORE and number in self._passed_on:
            return
        if number == signal.SIGKILL:
            killed = self._blame()
            if killed["by"] == "unknown" and not is_command:
                if self._passed_on & ENDING or self._options.kills_on_purpose:
                    return  # a terminating master kills workers that take too long
                if self._past is not None and self._past.takes(death.process, now):
                    return  # a launcher's grace was over
                if not self._is_rank(death.process):
                    parent = read_stat(death.process.ppid) if death.process is not None else None
                    self._kills.append(_Killed(death, killed, now + _CLEANING_UP, parent))
                    return
            self._crash(death, is_command, None, killed)
            return
        # Of a process below the command the status may show no core where there is one. A parent that passes its child's signal on often
        # leaves none, and the child's tells whose child it was.
        may_follow = number in DUMPS_CORE and (self._cores.busy or bool(self._unclaimed))
        if (death.core_dumped or may_follow or (number in DUMPS_CORE and not death.certain)) and self._settings.pattern.kind == "file":
            if all(wanted.death.pid != death.pid for wanted in self._wanted):
                self._wanted.append(_Wanted(death, is_command, now + _CORE_PATIENCE))
            return
        self._crash(death, is_command, None)

    def _judge_kills(self, now: float, had_ended: bool) -> None:
        """Report those who were killed, unless the command did that itself as it ended: well, or because of another failure.

        Where it ended with an error, that may be because one of them was killed. Another failure may only be known by its core.
        """
        if not self._kills:
            return
        if self._status is not None:
            if not had_ended or self._cores.busy or self._wanted or self._unclaimed:
                return
            due, self._kills = [] if self._status == 0 or self._reported else self._that_explain_its_end(), []
        else:
            due = [one for one in self._kills if now >= one.until + (_CLEANING_UP_LONG if self._may_be_ending(one, now) else 0)]
            self._kills = [one for one in self._kills if one not in due]
        for one in due:
            self._crash(one.death, False, None, one.killed)

    def _that_explain_its_end(self) -> list[_Killed]:
        self._tail.catch_up()
        pid = to_blame(self._tail.tail(), [one.death.pid for one in self._kills])
        return [one for one in self._kills if one.death.pid == pid][:1]

    def _may_be_ending(self, one: _Killed, now: float) -> bool:
        """Whether it may have been killed by a process that ends, which ends soon after, or by the command because of another crash."""
        if any(now - when < SAME_INCIDENT for _, when in self._reported.values()):
            return True
        return one.death.process is not None and _has_ended_or_could_not(one.parent, read_stat(one.death.process.ppid))

    def _blame(self) -> Killed:
        """Find out who sent a SIGKILL: each out-of-memory kill in the cgroup's counter explains one death."""
        after = oom.oom_kills(oom.cgroup_memory())
        by, evidence = oom.blame(self._oom_kills, after, [])
        if by == "oom" and self._oom_kills is not None:
            self._oom_kills += 1
        return {"by": by, "evidence": evidence}

    def _match_cores(self, now: float) -> None:
        self._cores.take()
        for pid in self._cores.identified():
            self._tree.refresh(pid)  # still there while the kernel writes
            if self._looks_at_siblings and self._tree.find(pid) is not None:
                self._look_at_siblings([], now, pid)
        for core in self._cores.complete():
            if self._is_ours(core):
                assert core.head is not None
                self._passed.note(core.head.pid, self._parent_of(core.head), core.head.signal, now)
                if self._looks_at_siblings and self._tree.find(core.head.pid) is None:
                    # Of a process that was never seen, nothing else may tell that it died.
                    self._tree.walk()
                    self._look_at_siblings([], now, core.head.pid)
                core.is_ours_to_move = not self._leave_cores
                if core.is_ours_to_move and core.second is not None:
                    core.remove_original()
                self._unclaimed.append((core, now + _DEATH_PATIENCE))
            else:
                core.drop()
        for wanted in list(self._wanted):
            found = self._core_of(wanted.death)
            if found is None and now < wanted.until:
                # The process may have changed its directory just before it died: daemons go to the root.
                cwds = {wanted.death.process.cwd} if wanted.death.process and wanted.death.process.cwd else self._tree.folders()
                for folder in {folder for cwd in cwds | {working_folder(), "/"} for folder in self._cores.folders(cwd)}:
                    self._cores.search(folder)
                continue
            self._wanted.remove(wanted)
            self._crash(wanted.death, wanted.is_command, found)
        for core, until in list(self._unclaimed):
            if now >= until:
                self._unclaimed.remove((core, until))
                self._crash_from_core(core)

    def _is_ours(self, core: CoreFile) -> bool:
        head = core.head
        if head is None or head.pid in self._tree.ours:
            return False
        if self._tree.find(head.pid) is not None or self._tree.find(head.ppid) is not None:
            return True
        if head.ppid == os.getpid() or any(head.pid == wanted.death.pid for wanted in self._wanted):
            return True
        # A script may run several of us in one process group, as SLURM runs the tasks of a step.
        return head.group == os.getpgrp() and head.session == os.getsid(0) and not _is_of_another(head.ppid)

    def _core_of(self, death: Death) -> Optional[CoreFile]:
        pids = {death.pid} | ({death.process.namespace_pid} if death.process else set())
        for core, until in self._unclaimed:
            if core.head is not None and core.head.pid in pids:
                self._unclaimed.remove((core, until))
                return core
        return None

    def _crash_from_core(self, core: CoreFile) -> None:
        """Report a process that was too short-lived to be seen, or whose status is unknown, from its core alone."""
        assert core.head is not None
        process = self._tree.find(core.head.pid)
        pid = process.pid if process else core.head.pid
        start = process.start if process else 0
        self._crash(Death(pid, start, core.head.signal | 0x80, process, parent=core.head.ppid), pid == self._command, core)

    def _crash(self, death: Death, is_command: bool, core: Optional[CoreFile], killed: Optional[Killed] = None) -> None:
        if self._is_reported(death):
            if core is not None:
                core.drop()
            return
        self._reported[death.pid] = (death.start, time.monotonic())
        self._crashed = self._crashed or is_command
        self._fatal.explained()
        if (child := self._passed_on_by(death, core)) is not None:
            seen = death.process or (core.head if core is not None else None)
            name = printable(seen.name) if seen is not None else "a process"
            say(f"{name}[{death.pid}] only passed on the {signal_name(death.signal)} of its child {child}")
            if core is not None:
                core.drop()
            return
        by_kernel = self._settings.capture == "core" and death.signal in DUMPS_CORE
        notes = (self._why_no_core(death),) if core is None and by_kernel else ()
        follows = self._incident is not None and self._incident.takes(death.process, time.monotonic())
        if not follows and not self._options.storm.keeps(signal_name(death.signal), time.monotonic()):
            if core is not None:
                core.drop()
            if sum(self._options.storm.dropped.values()) == 1:
                say(f"more than {self._options.storm.burst} crashes in a short time: further ones are counted, but not kept")
            return
        self._tail.catch_up()
        self._failed(
            Sighting(
                time.time(),
                death.pid,
                death.start,
                death.signal,
                # The status that tells of a process below the command may be its main thread's, which died of another thread's fault.
                death.core_dumped or core is not None,
                is_command,
                death.process,
                core,
                self._tail.tail(),
                killed,
                notes,
                error_file=_error_file(death.process),
            )
        )

    def _parent_of(self, head: CoreHead) -> int:
        unseen = head.ppid and self._tree.find(head.ppid) is None and read_stat(head.ppid) is None
        return UNSEEN if unseen else head.ppid

    def _passed_on_by(self, death: Death, core: Optional[CoreFile]) -> Optional[int]:
        """The child whose signal this process raised again when it saw how the child ended; None if its death is its own."""
        if core is not None and (core.head is None or not core.head.raised):
            return None
        # One that was gone before it was seen leaves its name in its core.
        if _is_interpreter(death.process) if death.process is not None else core is not None and _is_of_python(core):
            return None
        pids = dict.fromkeys((death.pid, death.process.namespace_pid if death.process is not None else death.pid))
        now = time.monotonic()
        return next((child for pid in pids if (child := self._passed.child(pid, death.signal, now)) is not None), None)

    def _exited(self, death: Death, is_command: bool) -> None:
        """A rank that ends with an error does so because of an exception, or calls exit."""
        process = death.process
        if not death.status or is_command or process is None or not self._is_rank(process) or self._is_reported(death):
            return
        if not self._settings.on_exit or self._told_to_end or self._passed_on & ENDING or self._hanging:
            return
        now = time.monotonic()
        if self._past is not None and self._past.takes(process, now):
            return
        self._reported[death.pid] = (death.start, now)
        code = os.waitstatus_to_exitcode(death.status)
        error = _error_file(process)
        self._tail.catch_up()
        log = self._tail.tail()
        seen = Sighting(time.time(), death.pid, death.start, 0, False, False, process, None, log, None, (), code, error_file=error)
        before = next((one for one in (self._incident, self._past) if one is not None and one.is_before(process)), None)
        if before is not None and only_lost_peers(_own_stderr(process) or log, error, seen.rank, before.stderr):
            # The job was started again: what is left of the first failure is no other one.
            if before is self._incident:
                before.add(seen, now)
            return
        self._failed(seen)

    # Incidents

    def _failed(self, seen: Sighting) -> None:
        """Report it, with those that fail because of it and those that live."""
        now = time.monotonic()
        if self._incident is not None:
            if self._incident.takes(seen.process, now):
                self._incident.add(seen, now)
            else:
                self._queue.append(seen)
            return
        self._incident = Incident(seen, now)
        for one in self._living:
            self._incident.add(one, now)
        self._living = []

    def _close_incident(self, now: float, has_ended: bool) -> None:
        """Hand it over once nothing more belongs to it. `has_ended`: the command, and all deaths before its own have been seen."""
        if self._incident is None:
            if self._living and now - self._siblings_taken > SAME_INCIDENT:
                self._forget_living()
            return
        if self._taking and not self._told_to_end:
            return
        pending = self._wanted or self._unclaimed or self._cores.busy
        if self._told_to_end or (not pending and self._incident.is_over(now, has_ended)):
            self._tail.catch_up()
            whole = self._incident.whole(self._tail.tail())
            self._forget([one for one in (whole, *whole.others) if one.alive is None])
            self._queue.append(whole)
            self._past, self._incident = self._incident, None

    def _forget_living(self) -> None:
        """What was taken of processes when another one seemed to fail, which then did not."""
        self._forget(self._living)
        self._living = []

    def _forget(self, several: Sequence[Sighting]) -> None:
        """Remove what was taken of these processes while they lived."""
        for seen in several:
            for name in taken_of(seen.pid):
                self._settings.inbox.remove(name)

    def _is_reported(self, death: Death) -> bool:
        """Whether this death is known: several sources report it, some without the start time; a pid is reused only much later."""
        if death.pid not in self._reported:
            return False
        start, when = self._reported[death.pid]
        return start == death.start or time.monotonic() - when < _SAME_DEATH

    def _why_no_core(self, death: Death) -> str:
        pattern = self._settings.pattern
        if self._cores.overwritten > self._overwritten_told or self._another_took_its_name(death):
            self._overwritten_told += 1
            return (
                f"another process that died at the same moment overwrote its core ({pattern.text}); "
                "sysctl -w kernel.core_uses_pid=1 gives each its own"
            )
        if not death.core_dumped and death.certain:
            return (
                "the kernel wrote no core: the limit, the folder, the disk or the process itself (setuid, prctl) prevented it; "
                "run crashkit doctor to find out"
            )
        if pattern.kind == "file":
            return f"the kernel wrote a core, but no file matches core_pattern {pattern.text}"
        return f"the kernel piped the core to {pattern.text}"

    def _another_took_its_name(self, death: Death) -> bool:
        """Whether that explains it. The kernel also gives up if the name is taken, or taken away, while it opens it (fs/coredump.c)."""
        pattern = self._settings.pattern
        if pattern.kind != "file" or pattern.unique:
            return False
        recent = time.monotonic() - 2 * _CORE_PATIENCE
        return any(pid != death.pid and when > recent for pid, (_, when) in self._reported.items())

    def _read_log(self, now: float) -> None:
        """Report a fatal error on stderr as a crash if no other source reports it."""
        is_told = bool(self._wanted or self._unclaimed or self._cores.busy or self._queue or self._incident)
        self._fatal.seen(self._tail.fatal_errors, now, is_told)
        is_due = self._fatal.is_due(now, lambda: bool(self._tracer) and self._tree.any_held())
        if is_due and not self._cores.busy and self._options.storm.keeps("fatal error", now):
            note = "the log contains a fatal error; the end of the process was not observed"
            self._queue.append(Sighting(time.time(), 0, 0, 0, False, False, None, None, self._tail.tail(), None, (note,)))

    # Hangs

    def _look_for_hang(self, now: float) -> None:
        if self._hang is None or self._status is not None:
            return
        if self._kill_at and now >= self._kill_at:
            self._end_tree(signal.SIGKILL)
            return
        if self._taking or self._hanging or now < self._hang.next_look():
            return
        self._tree.walk()
        pids = list(self._tree.living())
        gpu = self._hang.gpu
        why = self._hang.look(pids)
        if gpu is None and self._hang.gpu is not None:
            self._tree.ours.add(self._hang.gpu.pid)
        if why is not None:
            say(f"the command hangs: {why}")
            self._hanging = self._hang.limits.action != "report"
            self._take(why, pids[:_MOST_TAKEN], is_hang=True)

    @property
    def _looks_at_siblings(self) -> bool:
        # Nobody can look at what gdb traces.
        return self._options.siblings and self._options.watcher is None

    def _stand_ready(self) -> None:
        """Be ready to look at the others once there are several: a launcher ends them a tenth of a second after the first has failed."""
        if self._looks_at_siblings and self._taker is None and sum(map(_runs_python, self._tree.processes())) > 1:
            self._taker = Taker(self._settings.inbox, self._settings.gpu_folder)
            self._tree.ours.add(self._taker.pid)

    def _look_at_siblings(self, deaths: list[Death], now: float, dying: Optional[int] = None) -> None:
        """When the first process fails: where the others stand, before a launcher ends them. `dying`: the kernel writes its core."""
        signs, self._signs = self._tail.signs - self._signs, self._tail.signs
        failed = next((death for death in deaths if self._has_failed(death)), None)
        recently = self._siblings_taken and now - self._siblings_taken < SAME_INCIDENT
        if recently or self._told_to_end or self._passed_on & ENDING or self._hanging:
            return
        if failed is None and dying is None and not signs:
            return
        gone = failed.pid if failed is not None else dying
        living = (self._python_process(pid) for pid in self._tree.living() if pid != gone)
        others = [process for process in living if process is not None]
        ranks = [process for process in others if self._is_rank(process)]
        if not others or not (gone or ranks):
            return  # of what was said alone it is not known who said it
        if failed is None:
            why = f"it was alive when process {gone} died" if gone else "it was alive when another process of the job failed"
        else:
            how = f"died of {signal_name(failed.signal)}" if failed.signal else f"ended with status {os.WEXITSTATUS(failed.status)}"
            why = f"it was alive when process {failed.pid} {how}"
        self._siblings_taken = now
        self._take(why, [process.pid for process in ranks[:_MOST_RANKS] or others[:_MOST_TAKEN]])

    def _python_process(self, pid: int) -> Optional[ProcessSnapshot]:
        """The process if it runs Python; it may have been a shell when it was last looked at."""
        if not _runs_python(self._tree.find(pid)):
            self._tree.refresh(pid)
        process = self._tree.find(pid)
        return process if _runs_python(process) else None

    def _is_rank(self, process: Optional[ProcessSnapshot]) -> bool:
        """Whether a launcher started it as a rank of a job, rather than a rank for its own purposes: that inherits the variables."""
        if process is None or process.rank is None:
            return False
        parent = self._tree.find(process.ppid)
        return parent is not None and is_given_a_rank(dict(process.place), dict(parent.place))

    def _has_failed(self, death: Death) -> bool:
        if death.signal:
            # A launcher that ends the others has seen the first one fail.
            by_launcher = death.signal == signal.SIGTERM and death.process is not None and death.process.rank is not None
            return death.signal not in EXPECTED or by_launcher
        return bool(death.status) and self._is_rank(death.process)

    def _take(self, why: str, pids: list[int], is_hang: bool = False) -> None:
        """Take the evidence of living processes, in a process of our own: it is there before they may be ended."""
        taker, self._taker = self._taker or Taker(self._settings.inbox, self._settings.gpu_folder), None
        # A process ends of being asked for its GPU core: one that is to live is not asked.
        taker.take(pids, in_a_hurry=not is_hang, of_gpu=is_hang and self._hanging)
        self._taking[taker.pid] = _Taking(why, pids, is_hang)
        self._tree.ours.add(taker.pid)

    def _taken(self, taking: _Taking) -> None:
        self._tail.catch_up()
        now = time.monotonic()
        for pid in taking.pids:
            process = self._tree.find(pid)
            start = process.start if process is not None else 0
            log = self._tail.tail() if taking.is_hang else b""
            notes = (_NOT_ASKED,) if taking.is_hang and self._could_be_asked_for_gpu_core(process) else ()
            seen = Sighting(time.time(), pid, start, 0, False, pid == self._command, process, None, log, None, notes, alive=taking.why)
            if taking.is_hang:
                self._queue.append(seen)
            elif self._incident is not None:
                self._incident.add(seen, now)
            else:
                self._living.append(seen)
        if self._hanging and not self._taking:
            if self._status is None:
                say("ending the command" if self._options.restart is None else "ending and restarting the command")
            self._end_tree(signal.SIGTERM)
            self._kill_at = time.monotonic() + _HANG_GRACE

    def _was_asked_for_gpu_core(self, death: Death) -> bool:
        folder = self._settings.gpu_folder
        return self._hang is not None and folder is not None and cuda.was_asked(folder, death.pid, death.start)

    def _could_be_asked_for_gpu_core(self, process: Optional[ProcessSnapshot]) -> bool:
        folder = self._settings.gpu_folder
        if self._hang is None or self._hang.limits.action != "report" or folder is None or process is None:
            return False
        return bool(cuda.pipes(folder, process.namespace_pid))

    def _end_tree(self, number: int) -> None:
        for pid in [*([self._command] if self._status is None else []), *self._tree.living()]:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    # Reports

    def _start_worker(self) -> None:
        if self._worker or not self._queue:
            return
        if self._tail.behind and time.time() - self._queue[0].when < _TAIL_PATIENCE:
            return  # our line comes after the command's own
        seen = self._queue.popleft()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setsid()
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, set())
                from crashkit.collect import keep  # not before: most runs never crash, and its imports cost time at the start

                keep.process(seen, self._settings)
                status = 0
            except BaseException as error:
                say(f"a crash could not be kept: {type(error).__name__}: {error}")
            finally:
                os._exit(status)
        self._worker = pid
        self._tree.ours.add(pid)
        if seen.core is not None:
            # The worker has its own descriptor and moves the file.
            seen.core.close()


__all__ = ["EXPECTED", "Options", "SpawnError", "Supervisor"]
