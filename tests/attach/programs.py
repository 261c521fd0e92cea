"""Programs that hang on purpose, and how to know that they do: each thread stands in the system call that it was written to end in."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crashkit.collect.attach import attach
from crashkit.model import Crash
from crashkit.pipeline import Options
from tests.crashes import DEADLINE, Interpreter

WITHOUT_GDB = Options(gdb=None)

HEAD = "import os, sys, threading\n"
READY = "print('ready', *[t.name for t in threading.enumerate()], os.getpid(), flush=True)\n"

TWO_LOCKS = (
    HEAD
    + """
a, b = threading.Lock(), threading.Lock()
has_a, has_b = threading.Event(), threading.Event()
def one():
    with a:
        has_a.set(); has_b.wait()
        with b: pass
def two():
    with b:
        has_b.set(); has_a.wait()
        with a: pass
threads = [threading.Thread(target=f, name=f.__name__, daemon=True) for f in (one, two)]
[t.start() for t in threads]
"""
    + READY
    + "threads[0].join()\n"
)

STACKED = (
    TWO_LOCKS.replace("import os, sys, threading", "import contextlib, os, sys, threading")
    .replace(
        "    with a:\n        has_a",
        "    with contextlib.ExitStack() as stack:\n        [stack.enter_context(contextlib.suppress()) for _ in range(70)]\n"
        "        stack.enter_context(a)\n        has_a",
    )
    .replace(
        "    with b:\n        has_b",
        "    with contextlib.ExitStack() as stack:\n        stack.enter_context(b)\n        has_b",
    )
)
"""The same, in stacks of contexts."""
POPPED = STACKED.replace("        with b: pass", "        mine = stack.pop_all()\n        with b: pass")
"""What `one` has entered belongs to another stack now, whose block nobody is in."""

RLOCK_AND_CONDITION = (
    HEAD
    + """
class Store:
    def __init__(self):
        self.guard, self.changed = threading.RLock(), threading.Condition()
        self.has_guard, self.has_changed = threading.Event(), threading.Event()
    def one(self):
        self.guard.acquire(); self.has_guard.set(); self.has_changed.wait()
        with self.changed: pass
    def two(self):
        with self.changed:
            self.has_changed.set(); self.has_guard.wait()
            self.guard.acquire()
store = Store()
threads = [threading.Thread(target=f, name=f.__name__, daemon=True) for f in (store.one, store.two)]
[t.start() for t in threads]
"""
    + READY
    + "threads[0].join()\n"
)

TAKEN_TWICE = (
    HEAD
    + """
state = threading.Lock()
def update():
    with state:
        read()
def read():
    with state: pass
"""
    + READY
    + "update()\n"
)

NOTIFIED = (
    HEAD
    + """
changed = threading.Condition(threading.Lock())
wakes, never = threading.Event(), threading.Event()
def one():
    with changed:
        wakes.set()
        changed.wait()
def two():
    wakes.wait()
    with changed:
        changed.notify()
        never.wait()
threads = [threading.Thread(target=f, name=f.__name__, daemon=True) for f in (two, one)]
[t.start() for t in threads]
"""
    + READY
    + "threads[0].join()\n"
)
"""A condition releases its lock while it waits, and then waits to have it again."""

FINISHED_WITH = (
    HEAD
    + """
a, b = threading.Lock(), threading.Lock()
left = threading.Event()
b.acquire()
def one():
    for _ in [0]:
        for _ in [0]:
            for _ in [0]:
                for _ in [0]:
                    with a: pass
    left.set()
    with b: pass
def two():
    with a: pass
threading.Thread(target=one, name="one", daemon=True).start()
left.wait()
a.acquire()
other = threading.Thread(target=two, name="two", daemon=True)
other.start()
"""
    + READY
    + "other.join()\n"
)
"""Nothing tells who has the locks. One thread left its `with` block long ago, but the lock's `__exit__` still lies on its stack."""

QUEUE = HEAD + "import queue\nq = queue.Queue()\n" + READY + "q.get()\n"

SIMPLE_QUEUE = HEAD + "import queue\nq = queue.SimpleQueue()\n" + READY + "q.get()\n"

LOCKS_WITHOUT_OWNERS = (
    HEAD
    + """
a, b = threading.Lock(), threading.Lock()
both = threading.Barrier(3)
def one():
    a.acquire(); both.wait(); b.acquire()
def two():
    b.acquire(); both.wait(); a.acquire()
threads = [threading.Thread(target=f, name=f.__name__, daemon=True) for f in (one, two)]
[t.start() for t in threads]
both.wait()
"""
    + READY
    + "threads[0].join()\n"
)

NOBODY_SETS = HEAD + "done = threading.Event()\n" + READY + "done.wait()\n"

WITH_A_LIMIT = HEAD + "import queue\nq = queue.Queue()\n" + READY + "q.get(timeout=3600)\n"

SOMEBODY_MAY_FILL = (
    HEAD
    + "import queue, time\nq = queue.Queue()\n"
    + "threading.Thread(target=lambda: (time.sleep(3600), q.put(1)), name='filler', daemon=True).start()\n"
    + READY
    + "q.get()\n"
)

ANOTHER_PROCESS_MAY_FILL = HEAD + "import multiprocessing\nq = multiprocessing.Semaphore(0)\n" + READY + "q.acquire()\n"

FORK = (
    HEAD
    + """
guard, taken = threading.Lock(), threading.Event()
def keeper():
    with guard:
        taken.set(); threading.Event().wait()
threading.Thread(target=keeper, name="keeper", daemon=True).start()
taken.wait()
pid = os.fork()
if pid == 0:
    print('ready child', os.getpid(), flush=True)
    guard.acquire()
os.waitpid(pid, 0)
"""
)

ASYNCIO = (
    HEAD + "import asyncio\nasync def never():\n    await asyncio.get_running_loop().create_future()\n" + READY + "asyncio.run(never())\n"
)

NEVER_WOKEN = (
    HEAD
    + """
import asyncio
async def fetch(future):
    await future  # nobody sets its result
async def page(future):
    await asyncio.gather(asyncio.create_task(fetch(future), name="fetch-1"))
async def serve():
    loop = asyncio.get_running_loop()
    other = asyncio.create_task(page(loop.create_future()), name="page")
    # By then every task has come to where it waits.
    loop.call_later(0.1, print, "ready", os.getpid())
    loop.call_later(0.1, sys.stdout.flush)
    await other
asyncio.run(serve())
"""
)
"""A task waits for another one, and that for a future that nobody completes."""

RANK = """
import os, sys
import torch, torch.distributed as dist
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
dist.barrier()
def load_batch():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
def train_step():
    print("ready", os.getpid(), flush=True)
    dist.all_reduce(torch.ones(1))
load_batch() if rank else train_step()
"""
"""Rank 1 does not come to the collective in which rank 0 waits."""

SERVER = (
    HEAD
    + """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print('ready', os.getpid(), flush=True)
listening.accept()
"""
)

SOCKET = (
    HEAD
    + """
import socket
listening = socket.create_server(("127.0.0.1", 0))
pid = os.fork()
if pid == 0:
    accepted, _ = listening.accept()
    threading.Event().wait()
connection = socket.create_connection(listening.getsockname())
connection.sendall(b"question")
print('ready', pid, os.getpid(), flush=True)
connection.recv(100)
"""
)

BUSY_PYTHON = (
    HEAD
    + "def spin():\n    while True: pass\nthreading.Thread(target=spin, name='spinner', daemon=True).start()\n"
    + READY
    + "threading.Event().wait()\n"
)

BUSY_C = (
    HEAD
    + "import ctypes\nspin = ctypes.CDLL(sys.argv[1]).spin\nthreading.Thread(target=spin, name='spinner', daemon=True).start()\n"
    + READY
    + "threading.Event().wait()\n"
)

GIL_AND_MUTEX = (
    HEAD
    + """
import ctypes
library = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(None)
callback = CALLBACK(lambda: None)
def owner():
    library.call_with_mutex(callback)
def wants_mutex():
    library.wait_for_owner()
    ctypes.PyDLL(sys.argv[1]).take_mutex()
print('ready', os.getpid(), flush=True)
[threading.Thread(target=f, name=f.__name__, daemon=True).start() for f in (owner, wants_mutex)]
threading.Event().wait()
"""
)

NATIVE = r"""
#include <pthread.h>
#include <sched.h>
#include <signal.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int owned, sink, seen;
/* Calls back, which needs the GIL, once somebody waits for the mutex: glibc's lock word is 2 then. */
void call_with_mutex(void (*callback)(void)) {
    pthread_mutex_lock(&mutex);
    owned = 1;
    while (*(volatile int *)&mutex != 2) sched_yield();
    callback();
    pthread_mutex_unlock(&mutex);
}
void wait_for_owner(void) { while (!owned) sched_yield(); }
void take_mutex(void) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); }
static void count(int number) { seen++; }
void count_signals(int number) { signal(number, count); }
int counted(void) { return seen; }
void spin(void) { for (;;) sink++; }
"""

IMPORT = (
    HEAD
    + """
sys.path.insert(0, os.path.dirname(__file__))
import shared
def holds_lock():
    with shared.lock:
        shared.has_lock.set(); shared.importing.wait()
        import slow_module
def imports():
    shared.has_lock.wait()
    import slow_module
threads = [threading.Thread(target=f, name=f.__name__, daemon=True) for f in (holds_lock, imports)]
[t.start() for t in threads]
"""
    + READY
    + "threads[0].join()\n"
)
SHARED = "import threading\nlock = threading.Lock()\nhas_lock, importing = threading.Event(), threading.Event()\n"
SLOW_MODULE = "import shared\nshared.importing.set()\nwith shared.lock:\n    pass\n"


@contextmanager
def running(
    python: Interpreter | Path, program: str, folder: Path, *arguments: str, root: Path = Path("/")
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The program, once it has said that it is ready, and the words that it said. `root`: the system that has the interpreter."""
    file = folder / "program.py"
    file.write_text(program)
    path = python.path if isinstance(python, Interpreter) else python
    command: list[str | Path] = [path, "-I", "/" / file.relative_to(root), *arguments]
    if root != Path("/"):
        command = ["chroot", root, "/bin/sh", "-c", 'cd "$0" && exec "$@"', "/" / folder.relative_to(root), *command]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            assert words[:1] == ["ready"]
            yield process, words[1:]
        finally:
            process.kill()


@contextmanager
def ended(pid: int) -> Iterator[None]:
    """Ends a process that the program left, afterwards."""
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def seen(python: Interpreter | Path, program: str, folder: Path, threads: int = 1) -> Crash:
    """What is seen of the program, without a debugger, once so many threads are at rest. It stays unharmed."""
    with running(python, program, folder) as (process, _):
        until_asleep(process.pid, threads)
        crash = attach(process.pid, WITHOUT_GDB)
        assert unharmed(process.pid)
    return crash


def unharmed(pid: int) -> bool:
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return status["TracerPid"] == "0" and status["State"][0] in "SR"


def leaves_core(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Ends it by this signal. Where its core goes is for `cores_land_in_cwd` to say."""
    resource.prlimit(process.pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    process.send_signal(number)
    process.wait()


def until_asleep(pid: int, threads: int, but: int = 0) -> None:
    """Until so many threads are there and all `but` so many stand in a system call: look after look in the same one."""
    ends = time.monotonic() + DEADLINE
    before: dict[str, str] = {}
    while time.monotonic() < ends:
        now = {task.name: (task / "syscall").read_text() for task in Path(f"/proc/{pid}/task").iterdir()}
        if (
            len(now) == threads
            and sum(call.split()[0] != "running" and before.get(tid) == call for tid, call in now.items()) >= threads - but
        ):
            return
        before = now
        time.sleep(0.02)
    raise AssertionError(f"the threads of {pid} do not come to rest: {before}")


def until_waiting(pid: int) -> None:
    """Until the main thread stands in one system call, look after look, whatever the other threads do."""
    ends = time.monotonic() + DEADLINE
    before = ""
    while time.monotonic() < ends:
        now = Path(f"/proc/{pid}/task/{pid}/syscall").read_text()
        if now == before and not now.startswith("running"):
            return
        before = now
        time.sleep(0.1)
    raise AssertionError(f"the main thread of {pid} does not come to rest: {before}")
