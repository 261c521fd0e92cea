"""Who waits for what: from each thread's system call, its frames, and the locks in the memory of the process. Pure.

A thread in futex(2) names an address; what lies there tells whether it is a mutex, whose owner glibc records (`__owner`,
sysdeps/nptl/bits/struct_mutex.h), a lock of Python's, or the end of another thread.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Optional

from msgspec.structs import replace

from crashkit.arch import Architecture
from crashkit.interpreter.locks import Lock, PythonLocks
from crashkit.model import Address, Crash, Frame, NativeFrame, PythonFrame, Thread, Wait
from crashkit.naming.cuda import DRIVER, SYNCHRONISES, SYSTEM
from crashkit.naming.functions import plain
from crashkit.naming.machinery import handler_end
from crashkit.naming.own_code import python_frames
from crashkit.regex import regex
from crashkit.stacks.living import Living
from crashkit.stacks.system_call import Blocked, Read, call_of

_NEAR = 14
"""Innermost frames that tell what a thread waits for; below them stands who wanted it."""
_ASKS = 4
"""Innermost frames among which one is the driver's where that asks for the time."""
_BUSY = 0.5
"""The share of the time that it runs from which a thread counts as busy."""

_MUTEX = regex(
    r"(?:pthread_)?mutex_(?:timed|clock)?lock\w*|_*lll_lock_wait\w*|std::(?:recursive_)?(?:timed_)?mutex::lock|pthread_mutex_\w+"
)
_CONDITION = regex(r"pthread_cond_(?:timed|clock)?wait\w*|std::condition_variable\w*::wait\w*")
_JOIN = regex(r"(?:pthread_)?(?:clock|timed)?join\w*|pthread_(?:clock|timed)?join\w*|std::thread::join")
_PYTHON_LOCK = regex(
    r"PyThread_acquire_lock(?:_timed)?|acquire_timed|r?lock_(?:PyThread_)?acquire\w*|_?PyMutex_Lock\w*|_PyParkingLot_Park|PyEvent_Wait\w*"
)
_COLLECTIVE_THREAD = regex(
    r"c10d::ProcessGroup\w*::(?:runLoop|watchdogHandler|ncclCommWatchdog|heartbeatMonitor|workCleanupLoop|runHookLoop)"
    r"|c10d::ProcessGroup\w*::(?:Watchdog|HeartbeatMonitor)::\w+|gloo::transport::\w+::Loop::run|c10d::detail::\w+::run"
    r"|ncclProxy(?:Service|Progress)\w*|rasThreadMain"
)
"""A backend's own threads, which wait for work. NCCL's (src/proxy.cc, src/ras/ras.cc) do so from the first communicator on."""
_SIMPLE_QUEUE = regex(r"_queue_SimpleQueue_get\w*")
"""Modules/_queuemodule.c. It has no frame of Python's."""
_COLLECTIVE = regex(r"c10d::(?:ProcessGroup|Work)\w*::.*|gloo::.*|nccl[A-Z]\w*|MPI_\w+|c10d::(?:TCP|Prefix|File)?Store::\w+")
_CUDA = regex(r"cu(?:da)?(?:Stream|Event|Ctx|Device)(?:Synchronize|Query)\w*|cu(?:da)?Mem(?:cpy|set)\w*|cuLaunch\w*")

_PYTHON = (
    # file:function of the innermost Python frames, the first that matches any of them.
    ("import", regex(r"<frozen importlib\._bootstrap>:acquire")),
    ("collective", regex(r".*torch/distributed/distributed_c10d\.py:\w+")),
    ("queue", regex(r".*(?:^|/)(?:queue\.py:(?:get|put|join)|multiprocessing/queues\.py:(?:get|put))")),
    ("thread", regex(r".*(?:^|/)threading\.py:(?:join|_wait_for_tstate_lock)")),
    ("barrier", regex(r".*(?:^|/)threading\.py:_?(?:wait_barrier|_wait)")),
)
_WAIT = regex(r".*(?:^|/)threading\.py:wait")
_WITHIN = 4
_LOCKS = ("lock", "semaphore", "futex", "condition-variable")
"""What waiting in Python code looks like from below."""

FILE_CALLS = {
    **dict.fromkeys("read write pread64 pwrite64 readv writev fsync fdatasync fcntl flock".split(), "file"),
    **dict.fromkeys("connect accept accept4 sendto recvfrom sendmsg recvmsg recvmmsg".split(), "socket"),
}
"""System calls whose first argument is a file descriptor, and what it is if nothing tells."""
_POLL = frozenset("poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2".split())
_CALLS = {
    **dict.fromkeys(("wait4", "waitid"), "child"),
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), "sleep"),
    **dict.fromkeys(("pause", "rt_sigsuspend", "rt_sigtimedwait"), "signal"),
    "semop": "semaphore",
}
_OPENS = {"open": 0, "openat": 1}
"""System calls that open a file, and which argument is the path; the next one are the flags."""
_ACCESS = ("for reading", "for writing", "for reading and writing")
"""By the lowest bits of the flags (O_ACCMODE, open(2))."""
_LONGEST_PATH = 4096
_IDLE = frozenset(("poll", "sleep", "signal"))
_POOL = regex(r".*(?:concurrent/futures/thread\.py:_worker|multiprocessing/pool\.py:(?:worker|_handle_\w+)|socketserver\.py:serve_forever)")
_LISTENS = frozenset(("accept", "accept4"))
NO_FILE = 1 << 31
_FOR_EVER = 0xFFFFFFFF
"""A time limit of -1."""

# linux/futex.h
_PRIVATE, _OPERATION = 0x80, 0x7F
_WAITING = frozenset({0, 6, 9})
"""FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET: their fourth argument is the time limit."""


def kind_of_call(name: str) -> str:
    """What a thread in this system call waits for, as `Wait.kind`, as far as the call alone tells; else the call's name."""
    return "poll" if name in _POLL else FILE_CALLS.get(name) or ("open" if name in _OPENS else _CALLS.get(name, name))


def with_waits(
    crash: Crash, architecture: Architecture, read: Read, locks: Optional[PythonLocks], living: Optional[Living] = None
) -> Crash:
    """The crash with `waits` and each thread's `activity`. `read` reads memory, also what is only in the modules' files."""
    found = _Waits(crash, architecture, read, locks, living or Living())
    waits = {tid: wait for thread in crash.threads if (tid := thread.tid) is not None and (wait := found.of(thread)) is not None}
    stuck = cycles({tid: wait.held_by for tid, wait in waits.items() if wait.held_by is not None})
    marked = [replace(wait, cycle=tid in stuck) for tid, wait in waits.items()]
    threads = tuple(_with_activity(thread, waits.get(thread.tid or -1), living, found.call(thread)) for thread in crash.threads)
    main = crash.process.pid if crash.process is not None else None
    told = sorted(marked, key=lambda wait: (not wait.cycle, not wait.lost, wait.held_by is None, wait.thread != main))
    return replace(crash, threads=threads, waits=tuple(told))


def cycles(edges: Mapping[int, int]) -> set[int]:
    """The threads on a cycle; each waits for at most one other."""
    found: set[int] = set()
    seen: set[int] = set()
    for start in edges:
        path: dict[int, int] = {}
        at: Optional[int] = start
        while at is not None and at not in seen and at not in path:
            path[at] = len(path)
            at = edges.get(at)
        if at is not None and at in path:
            found.update(tid for tid, place in path.items() if place >= path[at])
        seen.update(path)
    return found


class _Waits:
    def __init__(self, crash: Crash, architecture: Architecture, read: Read, locks: Optional[PythonLocks], living: Living) -> None:
        self._crash, self._architecture, self._read, self._locks, self._living = crash, architecture, read, locks, living
        self._tids = {thread.tid for thread in crash.threads}
        by_pthread = {int(thread.pthread): thread.tid for thread in crash.threads if thread.pthread is not None}
        natives = {one.ident: one.native_id for one in locks.threads if one.native_id in self._tids} if locks else {}
        self._by_ident = {**natives, **by_pthread}
        self._idents = {tid: ident for ident, tid in self._by_ident.items()}
        self._at: dict[int, Lock] = {lock.waited_at: lock for lock in locks.locks.values()} if locks else {}
        self._holders: dict[int, tuple[int, int]] = {}
        for one in locks.threads if locks else ():
            tid = self._by_ident.get(one.ident)
            for held in one.held if tid is not None else ():
                self._holders.setdefault(held.lock, (tid, held.frame))  # type: ignore[arg-type]
        self._holder_of_gil = next((thread.tid for thread in crash.threads if thread.holds_gil), None)

    def of(self, thread: Thread) -> Optional[Wait]:
        """What the thread waits for; None if it runs or nothing tells."""
        tid = thread.tid or 0
        if thread.waits_for_gil:
            return Wait(thread=tid, kind="gil", held_by=self._holder_of_gil if self._holder_of_gil != tid else None)
        below = thread.frames[handler_end(thread.frames) :][:_NEAR]
        names = [plain(frame.function or "") for frame in below if isinstance(frame, NativeFrame)]
        pythons = python_frames(thread)
        call = self.call(thread)
        # Of a core nobody knows who ran.
        ran = not self._living.processor or self._living.processor.get(tid, 0.0) >= _BUSY
        if call is None and ran and (name := _asks_the_gpu(below)) is not None:
            return Wait(thread=tid, kind="cuda", name=name)
        if call is None and not self._waits_by_name(thread, names):
            return None
        for kind, pattern in (("collective", _COLLECTIVE), ("cuda", _CUDA)):
            name = next((name for name in names if pattern.fullmatch(name)), None)
            if name is not None and not any(map(_COLLECTIVE_THREAD.fullmatch, names)):
                return Wait(thread=tid, kind=kind, name=name)
        wait = self._of_call(tid, call, names) if call is not None else Wait(thread=tid, kind="lock")
        if wait is None:
            return None
        return replace(self._as_python_says(wait, pythons), inside=call is not None and (_is_inside(call) or self._is_closed(call)))

    def call(self, thread: Thread) -> Optional[Blocked]:
        """The system call that the thread is in."""
        return call_of(thread, self._architecture, self._read)

    def _waits_by_name(self, thread: Thread, names: Sequence[str]) -> bool:
        """A handler of a signal hides the system call that it interrupted."""
        return handler_end(thread.frames) > 0 and any(_PYTHON_LOCK.fullmatch(name) for name in names)

    def _of_call(self, tid: int, call: Blocked, names: Sequence[str]) -> Optional[Wait]:
        first = call.arguments[0] if call.arguments else 0
        if call.name == "futex":
            return self._futex(tid, first, names)
        if call.name in FILE_CALLS:
            return self._file(tid, first, FILE_CALLS[call.name])
        if call.name in _OPENS:
            return Wait(thread=tid, kind="open", name=self._path(tid, call))
        if call.name in _POLL:
            if call.name in ("poll", "ppoll") and call.arguments[1] == 1 and len(data := self._read(first, 4)) == 4:
                return self._file(tid, struct.unpack("=i", data)[0], "poll")
            return Wait(thread=tid, kind="poll")
        if call.name in ("wait4", "waitid"):
            pid = first if call.name == "wait4" else call.arguments[1] if first == 1 else 0
            known = pid if 0 < pid < NO_FILE else next(iter(self._living.children), None) if len(self._living.children) == 1 else None
            told = self._living.awaited_children
            name = told.get(known, f"process {known}") if known else "; ".join(told.values()) or None
            return Wait(thread=tid, kind="child", name=name, process=known)
        return Wait(thread=tid, kind=_CALLS.get(call.name, call.name))

    def _is_closed(self, call: Blocked) -> bool:
        """Whether an event loop waits, without a time limit, for events that only this process can make (epoll_wait(2))."""
        if call.name not in ("epoll_wait", "epoll_pwait") or len(call.arguments) < 4:
            return False
        return call.arguments[3] & 0xFFFFFFFF == _FOR_EVER and call.arguments[0] & 0xFFFFFFFF in self._living.closed_polls

    def _path(self, tid: int, call: Blocked) -> Optional[str]:
        """The path that the call opens, and what for: of a FIFO, another process has to do the opposite."""
        at = _OPENS[call.name]
        path, flags = call.arguments[at : at + 2]
        # Memory that is mapped may end behind the path.
        pieces = (self._read(path, size) for size in (_LONGEST_PATH, -path % _LONGEST_PATH, 256, 64))
        text, end, _ = next((piece for piece in pieces if b"\0" in piece), b"").partition(b"\0")
        if not text or not end:
            return None
        how = f" {_ACCESS[flags & 3]}" if flags & 3 < len(_ACCESS) else ""
        if tid in self._living.opening_fifos and flags & 3 < 2:
            how += f", a FIFO that nobody has open {_ACCESS[1 - (flags & 3)]}"
        return text.decode("utf-8", "replace") + how

    def _file(self, tid: int, descriptor: int, kind: str) -> Wait:
        known = self._living.files.get(descriptor & 0xFFFFFFFF)
        if known is None:
            return Wait(thread=tid, kind=kind, name=f"file descriptor {descriptor}" if descriptor < NO_FILE else None)
        return Wait(thread=tid, kind=known.kind, name=known.name, process=known.process)

    def _futex(self, tid: int, address: int, names: Sequence[str]) -> Wait:
        lock = self._at.get(address)
        if lock is None and len(data := self._read(address - 8, 8)) == 8:
            # `struct wait_entry` (3.13 and newer, Python/parking_lot.c): what is waited for, then the semaphore.
            lock = self._at.get(struct.unpack("=Q", data)[0])
        if lock is not None:
            return self._python_lock(tid, lock)
        mutex = self._read(address, 12)
        if len(mutex) == 12:
            state, _, owner = struct.unpack("=IIi", mutex)
            named = any(_MUTEX.fullmatch(name.lstrip("_")) for name in names[:6])
            if state in (1, 2) and owner > 0 and owner != tid and (named or (state == 2 and owner in self._tids)):
                lost = owner not in self._tids
                return Wait(thread=tid, kind="mutex", address=Address(address), held_by=None if lost else owner, lost=lost)
            if named:
                return Wait(thread=tid, kind="mutex", address=Address(address))
            if state in self._tids and state != tid and any(_JOIN.fullmatch(name.lstrip("_")) for name in names[:6]):
                return Wait(thread=tid, kind="thread", held_by=state)
        kinds = (("queue", _SIMPLE_QUEUE), ("condition-variable", _CONDITION), ("mutex", _MUTEX), ("lock", _PYTHON_LOCK))
        kind = next(
            (kind for kind, pattern in kinds for name in names if pattern.fullmatch(name.lstrip("_")) or pattern.fullmatch(name)), None
        )
        if kind is None and any("sem_" in name or "new_sem" in name for name in names[:6]):
            kind = "semaphore"
        return Wait(thread=tid, kind=kind or "futex", address=Address(address))

    def _python_lock(self, tid: int, lock: Lock) -> Wait:
        name = self._locks.names.get(lock.address) if self._locks else None
        owner: Optional[int] = None
        held_at: Optional[int] = None
        lost = False
        if lock.owner:
            owner = self._by_ident.get(lock.owner)
            lost = owner is None
        holder = self._holders.get(lock.address)
        if holder is not None and owner in (None, holder[0]):
            owner, held_at = holder[0], self._frame_index(holder[0], holder[1])
            lost = False
        elif owner is None and not lock.owner:
            # A forked process has one thread: nobody else could ever have released it.
            process = self._crash.process
            lost = len(self._tids) == 1 and process is not None and process.forked is True
        if owner == tid:
            owner = tid  # it waits for itself: a lock that is no RLock was taken twice
        return Wait(thread=tid, kind=lock.kind, name=name, address=Address(lock.address), held_by=owner, held_at=held_at, lost=lost)

    def _frame_index(self, tid: int, number: int) -> Optional[int]:
        """The index among all frames of the thread of its n-th Python frame."""
        thread = next((thread for thread in self._crash.threads if thread.tid == tid), None)
        if thread is None or thread.python_frames:
            return None
        places = [index for index, frame in enumerate(thread.frames) if isinstance(frame, PythonFrame)]
        return places[number] if number < len(places) else None

    def _as_python_says(self, wait: Wait, pythons: Sequence[PythonFrame]) -> Wait:
        """The innermost Python frames know what a wait is for; the kernel sees a lock."""
        if wait.kind not in _LOCKS:
            return wait
        places = [f"{frame.file}:{frame.function}" for frame in pythons[:_WITHIN]]
        ident = self._idents.get(wait.thread)
        awaited = self._locks.awaited.get(ident) if self._locks and ident is not None else None
        if awaited is not None:
            other = self._by_ident.get(awaited.owner)
            return replace(
                wait,
                kind=awaited.kind,
                name=awaited.name or None,
                held_by=other,
                held_at=None,
                lost=other is None and awaited.kind == "import",
            )
        kind = next((kind for kind, pattern in _PYTHON if any(pattern.fullmatch(place) for place in places)), None)
        if kind is None:
            waiting = [place for place in places[:2] if _WAIT.fullmatch(place)]
            kind = {1: "condition", 2: "event"}.get(len(waiting))
            if kind is not None and not (places and _WAIT.fullmatch(places[0])):
                kind = None
        if kind is None:
            return wait
        # The lock of a waiter in a condition is taken by nobody.
        return replace(wait, kind=kind, name=None, held_by=None, held_at=None, lost=False)


def _is_inside(call: Blocked) -> bool:
    """Whether only this process can end the call. The kernel does not wake one process for a private futex of another (futex(2))."""
    if call.name != "futex" or len(call.arguments) < 4:
        return False
    operation, timeout = call.arguments[1] & 0xFFFFFFFF, call.arguments[3]
    return bool(operation & _PRIVATE) and operation & _OPERATION in _WAITING and not timeout


def _asks_the_gpu(frames: Sequence[Frame]) -> Optional[str]:
    """The call of CUDA in which a thread asks for the end of the GPU's work over and over, instead of a system call; None if in none."""
    natives = [frame for frame in frames if isinstance(frame, NativeFrame)]
    modules = [frame.module or "" for frame in natives[:_ASKS]]
    # The way out of the vDSO, which tells the time, is not always found at once.
    if not modules or not any(map(DRIVER.search, modules if not modules[0] or SYSTEM.search(modules[0]) else modules[:1])):
        return None
    return next(filter(SYNCHRONISES.fullmatch, (plain(frame.function or "") for frame in natives)), None)


def _with_activity(thread: Thread, wait: Optional[Wait], living: Optional[Living], call: Optional[Blocked]) -> Thread:
    share = living.processor.get(thread.tid or -1) if living is not None else None
    if share is not None and share >= _BUSY:
        activity: Optional[str] = "busy"
    elif wait is None:
        activity = None if living is None else "busy" if share else None
    else:
        served = any(_POOL.fullmatch(f"{frame.file}:{frame.function}") for frame in python_frames(thread)[:_WITHIN])
        idle = wait.kind in _IDLE or served or (call is not None and call.name in _LISTENS)
        activity = "idle" if idle else "blocked"
    return replace(thread, activity=activity, processor=share)
