"""What tasks wait for, and who has it where no `async with` block tells: bare `acquire()`, semaphores, conditions, events, queues."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crashkit.collect.attach import attach
from crashkit.interpreter.acquired import Parsed, Standing, Taken
from crashkit.interpreter.code import Code
from crashkit.interpreter.frames import FrameState
from crashkit.interpreter.task_locks import TaskLock, TaskLockReader, TaskLocks, _Wanted, stuck_in_circles
from crashkit.interpreter.tasks import OFFSETS, Tasks, TaskState
from crashkit.interpreter.view import TimeUp
from crashkit.model import Crash
from crashkit.naming import tasks as wording
from crashkit.pipeline import Options, analyze
from tests.attach.programs import leaves_core, running, until_asleep
from tests.attach.test_task_locks import WITHOUT_GDB, attached, named, program
from tests.crashes import Interpreter, an_interpreter, cores_land_in_cwd, every_interpreter, interpreters, needs_x86_64
from tests.test_support_matrix import sid, sid_is_there

pytestmark = needs_x86_64()

BARE = """
async def one(shared):
    await shared.first.acquire()
    try:
        shared.has_first.set()
        await shared.has_second.wait()
        await shared.second.acquire()
    finally:
        shared.first.release()
async def two(shared):
    lock = shared.second
    _ = await asyncio.wait_for(lock.acquire(), 5)
    shared.has_second.set(); await shared.has_first.wait()
    if lock.locked():
        await take(shared)
    lock.release()
async def take(shared):
    async with shared.first:
        pass
"""
SEMAPHORES = """
SIZE = 1
async def one(shared):
    shared.pool = asyncio.BoundedSemaphore(SIZE)
    async with shared.pool:
        shared.has_first.set(); await shared.has_second.wait()
        await shared.gate.acquire()
async def two(shared):
    shared.gate = asyncio.Semaphore(value=1)
    await shared.gate.acquire()
    shared.has_second.set(); await shared.has_first.wait()
    async with shared.pool:
        pass
"""
LIMITED_JOIN = """
async def one(shared):
    shared.two_is_there = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(3600):
        await (await shared.two_is_there)
async def two(shared):
    await asyncio.sleep(0)
    shared.two_is_there.set_result(asyncio.current_task())
    await next(task for task in asyncio.all_tasks() if task.get_name() == "one")
"""
"""They wait for each other, but not for ever, and for no lock."""
ALL_OF_A_POOL = """
async def holder(shared):
    async with shared.pool:
        shared.come += 1
        if shared.come == 2: shared.has_second.set()
        async with shared.first:
            pass
one = two = holder
async def three(shared):
    shared.pool, shared.come = asyncio.BoundedSemaphore(2), 0
    async with shared.first:
        tasks = [asyncio.create_task(holder(shared), name=name) for name in ("one", "two")]
        await shared.has_second.wait()
        async with shared.pool:
            pass
"""
"""Who has the lock needs a unit of the pool, and whoever has one needs the lock."""
OTHER_RELEASED = BARE.replace(
    "    await shared.first.acquire()\n",
    "    await shared.first.acquire()\n    other = asyncio.Lock()\n    await other.acquire()\n    other.release()\n",
)
"""What was released is another lock."""
STACK = """
import contextlib
async def one(shared):
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(shared.first)
        shared.has_first.set(); await shared.has_second.wait()
        await shared.second.acquire()
async def two(shared):
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(shared.second)
        shared.has_second.set(); await shared.has_first.wait()
        async with shared.first:
            pass
"""
STUCK = {
    "bare": (BARE, "one, two", {"one", "two"}),
    "other-released": (OTHER_RELEASED, "one, two", {"one", "two"}),
    "stack": (STACK, "one, two", {"one", "two"}),
    "semaphores": (SEMAPHORES, "one, two", {"one", "two"}),
    "all-of-a-pool": (ALL_OF_A_POOL, "three", {"one", "two", "three"}),
}

RELEASED = BARE.replace("shared.has_first.set()", "shared.first.release(); shared.has_first.set()").replace(
    "async with shared.first:\n        pass", "await asyncio.Event().wait()"
)
"""Nobody has the first lock; and one, who waits for the second one, has nothing."""
BY_ANOTHER = """
def unlock_it(shared):
    shared.first.release()
async def one(shared):
    await shared.first.acquire()
    unlock_it(shared)
    await shared.has_first.wait()
    await shared.second.acquire()
async def lock_it(shared):
    await shared.first.acquire()
async def two(shared):
    await shared.second.acquire()
    await asyncio.sleep(0)
    await lock_it(shared)
    shared.has_first.set()
    await shared.first.acquire()
"""
"""one gave the first lock away, in a function of its own; two took it in one that has returned."""
ALIAS = """
async def takes(lock):
    await lock.acquire()
async def one(shared):
    lock = shared.first
    await lock.acquire()
    RELEASES
    shared.has_first.set(); await shared.has_second.wait()
    await shared.second.acquire()
async def two(shared):
    await shared.second.acquire()
    await shared.has_second.wait()
    await shared.first.acquire()
async def three(shared):
    await shared.has_first.wait()
    await takes(shared.first)
    shared.has_second.set()
    await asyncio.sleep(3600)
"""
"""three has the first lock, which one has released through another name of it; nothing tells that three took it."""
NOT_ALWAYS = BARE.replace("    await shared.first.acquire()\n", "    if len(sys.argv) < 9:\n        await shared.first.acquire()\n")
UNKNOWN_SIZE = SEMAPHORES.replace("asyncio.Semaphore(value=1)", "asyncio.Semaphore(len(sys.argv))")
ONE_LEFT = (
    ALL_OF_A_POOL.replace(
        "asyncio.BoundedSemaphore(2), 0", 'asyncio.BoundedSemaphore(3), 0\n    asyncio.create_task(idle(shared), name="idle")'
    )
    + """
async def idle(shared):
    async with shared.pool:
        await asyncio.sleep(3600)
"""
)
"""One more has a unit of the pool, and will give it back."""
SOMEWHERE = SEMAPHORES.replace("SIZE = 1", "SIZE = 2").replace(
    "    async with shared.pool:\n        shared.has_first",
    "    await takes(shared.pool)\n    async with shared.pool:\n        shared.has_first",
)
SOMEWHERE += """
async def takes(semaphore):
    await semaphore.acquire()
"""
"""Who has the second unit is not known."""
NOTIFIED = """
async def one(shared):
    shared.changed = asyncio.Condition()
    async with shared.changed:
        shared.has_first.set()
        await shared.changed.wait()
async def two(shared):
    await shared.has_first.wait()
    async with shared.changed:
        shared.changed.notify()
        await asyncio.sleep(3600)
"""
"""A condition releases its lock while it waits, and waits for it again once it is notified."""
HEALTHY = {
    "released": (RELEASED, "one, two"),
    "by-another": (BY_ANOTHER, "one, two"),
    "by-another-name": (ALIAS.replace("RELEASES", "shared.first.release()"), "one, two, three"),
    "by-a-name-that-is-gone": (ALIAS.replace("RELEASES", "same = shared.first; same.release(); del same"), "one, two, three"),
    "by-getattr": (ALIAS.replace("RELEASES", "getattr(lock, 'release')()"), "one, two, three"),
    "not-always": (NOT_ALWAYS, "one, two"),
    "unknown-size": (UNKNOWN_SIZE, "one, two"),
    "somewhere": (SOMEWHERE, "one, two"),
    "one-left": (ONE_LEFT, "three"),
    "notified": (NOTIFIED, "one, two"),
}

OBJECTS = """
async def lock(shared):
    await shared.first.acquire()
    await asyncio.create_task(again(shared), name="again")
async def again(shared):
    await helper(shared)
    await shared.second.acquire()
async def helper(shared):
    await shared.second.acquire()
async def event(shared):
    await shared.has_first.wait()
async def condition(shared):
    changed = asyncio.Condition()
    async with changed:
        await changed.wait_for(lambda: False)
async def get(shared):
    await jobs.get()
async def put(shared):
    results = asyncio.Queue(2)
    for number in range(3): await results.put(number)
async def join(shared):
    todo = asyncio.LifoQueue()
    for number in range(3): todo.put_nowait(number)
    await todo.get()
    todo.task_done()
    await todo.join()
async def future(shared):
    await asyncio.get_running_loop().create_future()
jobs = asyncio.Queue() if sys.version_info >= (3, 10) else None
"""
SAID = {
    "again": "the lock shared.second (taken; asyncio does not record by whom)",
    "event": "the event shared.has_first (not set)",
    "condition": "the condition changed (not notified)",
    "get": "an item of the queue jobs (empty)",
    "put": "room in the queue results (full, with 2)",
    "join": "all items of the queue todo (task_done() is still to come 2 times)",
    "future": "a Future",
}
BARRIER = """
async def one(shared):
    shared.gate = asyncio.Barrier(3)
    await shared.gate.wait()
async def two(shared):
    await shared.gate.wait()
"""
WILL_RUN = """
async def one(shared):
    await shared.has_first.wait()
async def two(shared):
    await asyncio.sleep(0)
    shared.has_first.set()
    print("ready", os.getpid(), flush=True)
    sys.stdin.read()
"""
"""What one waits for has happened; the loop is only too busy to run it."""


def cycle(crash: Crash) -> set[str | None]:
    return {task.name for task in crash.tasks if task.cycle}


def held_by(crash: Crash, name: str) -> str | None:
    index = named(crash)[name].held_by
    return crash.tasks[index].name if index is not None else None


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_crossed_bare_acquires(python: Interpreter, tmp_path: Path) -> None:
    crash = attached(python, BARE, "one, two", tmp_path)
    assert cycle(crash) == {"one", "two"}
    assert (held_by(crash, "one"), held_by(crash, "two")) == ("two", "one")
    assert [finding.id for finding in crash.findings] == ["deadlock-tasks"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUCK)
def test_circles_over_a_core(kind: str, tmp_path: Path) -> None:
    body, names, stuck = STUCK[kind]
    with cores_land_in_cwd(), running(an_interpreter(), program(body, names), tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        leaves_core(process, signal.SIGABRT)
    crash = analyze(tmp_path / "core", options=WITHOUT_GDB)
    assert cycle(crash) == stuck
    assert [finding.id for finding in crash.findings] == ["deadlock-tasks"]
    if kind == "semaphores":
        assert "for the semaphore shared.gate, held by two in two" in (crash.findings[0].summary or "")
    if kind == "all-of-a-pool":
        assert "for the semaphore shared.pool (2 tasks have it), held by " in (crash.findings[0].summary or "")


def test_a_source_that_changed_tells_nothing(tmp_path: Path) -> None:
    with cores_land_in_cwd(), running(an_interpreter(), program(BARE, "one, two"), tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        leaves_core(process, signal.SIGABRT)
    later = (tmp_path / "core").stat().st_mtime + 60
    os.utime(tmp_path / "program.py", (later, later))
    crash = analyze(tmp_path / "core", options=WITHOUT_GDB)
    assert not cycle(crash) and held_by(crash, "one") is None
    assert "deadlock-tasks" not in [finding.id for finding in crash.findings]
    assert named(crash)["one"].detail == "taken; asyncio does not record by whom"


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEALTHY)
def test_who_may_go_on_is_in_no_deadlock(kind: str, tmp_path: Path) -> None:
    crash = attached(an_interpreter(), *HEALTHY[kind], tmp_path)
    # Some of them are stuck all the same, since no task is left that could act.
    assert {finding.id for finding in crash.findings} <= {"deadlock-task-never-woken"} and cycle(crash) == set()
    if kind == "released":
        assert named(crash)["two"].awaits == "Event.wait()" and held_by(crash, "one") == "two"
    elif ("three" in HEALTHY[kind][1] and kind.startswith("by-")) or kind == "by-another":
        assert held_by(crash, "two") is None and held_by(crash, "one") == "two"
    elif kind == "notified":
        assert held_by(crash, "one") == "two"
    elif kind == "one-left":
        assert named(crash)["three"].detail == "3 tasks have it"


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_what_each_waits_for(python: Interpreter, tmp_path: Path) -> None:
    # Up to 3.9 a queue belongs to the loop that was there when it was made.
    body = OBJECTS.replace("await jobs.get()", "await (jobs or asyncio.Queue()).get()")
    crash = attached(python, body, "lock, event, condition, get, put, join, future", tmp_path)
    found = {str(task.name): wording.wait(crash, task).partition(" for ")[2] for task in crash.tasks}
    said = {**SAID, **({"get": "an item of a queue (empty)"} if python.version < (3, 10) else {})}
    assert {name: found[name] for name in said} == said
    assert cycle(crash) == set() and {finding.id for finding in crash.findings} <= {"deadlock-task-never-woken"}


def _with_asyncio(name: str) -> Interpreter:
    """An interpreter that has what came with 3.11."""
    python = next((one for one in interpreters() if one.version >= (3, 11, 0)), None)
    if python is None:
        pytest.skip(f"no interpreter with asyncio.{name}")
    return python


@pytest.mark.slow
def test_who_waits_for_each_other_for_a_time_is_in_no_deadlock(tmp_path: Path) -> None:
    python = _with_asyncio("timeout")
    crash = attached(python, LIMITED_JOIN, "one, two", tmp_path)
    assert (named(crash)["one"].awaits, named(crash)["two"].awaits) == ("two", "one")
    assert cycle(crash) == set() and not crash.findings


@pytest.mark.slow
def test_a_barrier_says_how_many_have_come(tmp_path: Path) -> None:
    python = _with_asyncio("Barrier")
    crash = attached(python, BARRIER, "one, two", tmp_path)
    assert {task.detail for task in crash.tasks if task.name != "Task-1"} == {"2 of 3 have come"}
    assert wording.wait(crash, named(crash)["two"]).endswith("for the barrier shared.gate (2 of 3 have come)")


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_who_only_has_to_be_run_waits_for_nothing(python: Interpreter, tmp_path: Path) -> None:
    if python.version[:2] not in OFFSETS:
        pytest.skip(f"tasks of {python.name} are not read")
    with running(python, program(WILL_RUN, "one, two"), tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        crash = attach(process.pid, WITHOUT_GDB)
    one = named(crash)["one"]
    assert (one.state, one.awaits, one.detail) == ("ready", None, None)


@pytest.fixture
def inside() -> Iterator[Path]:
    """A folder in the sid."""
    folder = sid() / "tmp" / f"crashkit-tasks-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.chroot
@pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1")
def test_of_314(inside: Path) -> None:
    body = BARE + OBJECTS + BARRIER.replace("one(", "first(").replace("two(", "second(")
    names = "one, two, condition, get, put, join, future, first, second"
    with running(Path("/usr/bin/python3.14"), program(body, names), inside, root=sid()) as (process, _):
        until_asleep(process.pid, 1)
        crash = attach(process.pid, Options(gdb=None))
    assert cycle(crash) == {"one", "two"}
    assert (held_by(crash, "one"), held_by(crash, "two")) == ("two", "one")
    found = {str(task.name): wording.wait(crash, task).partition(" for ")[2] for task in crash.tasks}
    assert {name: found[name] for name in SAID if name in found} == {name: SAID[name] for name in SAID if name not in ("again", "event")}
    assert found["first"] == "the barrier shared.gate (2 of 3 have come)"


SOURCE = """
@decorated
async def work(self):
    await self.a.acquire()
    try:
        await here1()
        for item in items:
            await here2()
            self.b.release()
    except ValueError:
        await here3()
    finally:
        self.a.release()
        await here4()
    if x:
        await b.acquire()
        await here5()
    await here6(); b = 3
    async with lock: await c.acquire(); await here7()
    while True:
        await here8()
        await d.acquire()
    def inner():
        a.release()
"""


@pytest.mark.parametrize(
    ("place", "taken"),
    [
        ("here1", {("self", "a")}),
        ("here2", {("self", "a")}),
        ("here3", {("self", "a")}),
        ("here4", set()),
        ("here5", {("b",)}),
        ("here6", set()),
        ("here7", {("c",)}),
        ("here8", set()),
    ],
)
def test_what_is_taken_at_a_place(place: str, taken: set[tuple[str, ...]]) -> None:
    lines = SOURCE.splitlines()
    line = next(number for number, line in enumerate(lines, 1) if place in line)
    column = lines[line - 1].index("await " + place)
    assert {one.lock for one in Parsed(SOURCE).taken(Standing("work", 2, line, column))} == taken
    assert Parsed(SOURCE).taken(Standing("other", 2, line, column)) == Parsed("(").taken(Standing("work", 2, line)) == ()


def test_first_values() -> None:
    parsed = Parsed(
        "self.a = asyncio.Semaphore()\nb = Semaphore(2)\nb = Semaphore(3)\nc: X = BoundedSemaphore(value=4)\nd, e = Semaphore(n), 1"
    )
    assert [parsed.first_value(name) for name in "abcde"] == [1, None, 4, None, None]


RELEASED_SOMEHOW = {
    "handed-on": "loop.call_later(1.0, self.limit.release)",
    "in-a-variable": "done = self.limit.release; done()",
    "in-a-block": "async with self.unlocked(self.limit):",
    "as-a-condition": "if self.release_all():",
    "as-a-subject": "match self.release_all():\n     case _:",
    "as-what-is-iterated": "for one in self.release_all():",
    "where-it-stands": "",
    "by-getattr": 'getattr(self.limit, "release")()',
    "by-an-unknown-name": "getattr(self.limit, name)()",
    "by-its-own-exit": "await self.limit.__aexit__(None, None, None)",
    "by-a-stack": "await stack.aclose()",
    "by-who-is-given-it": "await done(self.limit)",
    "by-a-keyword": "await done(lock=self.limit)",
    "by-a-text": "exec(code)",
    "set-through-another-name": "other.limit = None",
}
TRY = """
async def work(self):
    await self.limit.acquire()
    try:
        self.limit.release()
        await self.event.wait()
    except* ValueError:
        await here()
"""


@pytest.mark.parametrize("kind", RELEASED_SOMEHOW)
def test_what_may_have_been_released_is_not_taken(kind: str) -> None:
    there = "await here(self.limit.release)" if kind == "where-it-stands" else "await here()"
    text = f"async def work(self):\n    await self.limit.acquire()\n    {RELEASED_SOMEHOW[kind]}\n"
    kept = f"async def work(self):\n    await self.limit.acquire()\n    {there.replace('self.limit.release', '')}\n"
    text += f"{' ' * (8 if text.endswith(':' + chr(10)) else 4)}{there}\n"
    for source, taken in ((text, ()), (kept, (Taken(("self", "limit")),))):
        lines = source.splitlines()
        line = next(number for number, line in enumerate(lines, 1) if "here" in line)
        assert Parsed(source).taken(Standing("work", 1, line, lines[line - 1].index("await"))) == taken
        assert Parsed(source).taken(Standing("work", 1, line)) == taken


def test_what_a_block_for_groups_of_exceptions_may_have_released() -> None:
    line = TRY.splitlines().index("        await here()") + 1
    assert Parsed(TRY).taken(Standing("work", 2, line, 8)) == ()
    if sys.version_info >= (3, 11):
        assert Parsed(TRY.replace("self.limit.release", "print")).taken(Standing("work", 2, line, 8)) == (Taken(("self", "limit")),)


def test_any_one_of_several_may_be_enough() -> None:
    assert stuck_in_circles({1: [], 2: [3], 3: []}, {1: 11, 3: 13}, {11: [2, 4], 13: [1]}) == set()
    assert stuck_in_circles({2: [3], 4: [3]}, {1: 11, 3: 13}, {11: [2, 4], 13: [1]}) == {1, 2, 3, 4}
    # Whoever has the lock that 1 waits for is stuck, but not in a circle with it.
    assert stuck_in_circles({5: [6], 6: [5]}, {1: 11, 2: 12}, {11: [2], 12: [5]}) == {5, 6}
    # 9 will release it, so 1 waits for nobody who is in a circle or behind one.
    assert stuck_in_circles({2: [5], 5: [6], 6: [5]}, {1: 11}, {11: [2, 9]}) == {5, 6}
    # 4 goes on, hence 3, hence 2, whatever else has what these wait for; 2 does not hold up 1 any more.
    assert stuck_in_circles({1: [2], 4: []}, {2: 12, 3: 13}, {12: [1, 3], 13: [2, 4]}) == set()


SOURCE_FILE, OWN_SOURCE = "/program.py", "self.pool = asyncio.Semaphore(2)"
POOL, FIRST, WAITERS = 1 << 30, 1 << 20, 3000


def waiting_task(address: int, *awaits: int, waits_for: str = "Semaphore.acquire()") -> TaskState:
    code = SimpleNamespace(file=SOURCE_FILE, name="work", first_line=1)
    frame = FrameState(address, cast(Code, code), None, True)
    return TaskState(address, None, "waiting", None, (frame,), awaits, waits_for)


class Stub(TaskLockReader):
    """Of tasks all of which wait for one semaphore that the first two have; each counts what is read of it."""

    def __init__(self, seconds_left: bool = True) -> None:
        self.counted: Counter[str] = Counter()
        self.limits: set[int] = set()
        self.timed, self.seconds_left = False, seconds_left
        stub = cast(Any, SimpleNamespace(within=self.within, view=self, integer=lambda value: value - 1))
        stub.attribute = self.attribute
        super().__init__(stub, cast(Any, None), cast(Any, None), lambda name: OWN_SOURCE if name == SOURCE_FILE else None)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self.timed = True
        yield
        self.timed = False

    def check_time(self) -> None:
        self.counted["check_time"] += 1
        assert self.timed

    def attribute(self, address: int, name: str) -> int | None:
        assert self.timed and address == POOL
        self.counted[name] += 1
        return 1 if name == "_value" else None

    def _wanted(self, frames: Sequence[FrameState]) -> _Wanted | None:
        return _Wanted(POOL, "semaphore", "acquire") if frames[0].address >= FIRST else None

    def _held(self, frames: Sequence[FrameState], locks: set[int], limited: set[int], task: int) -> Iterator[tuple[int, int]]:
        self.counted["held"] += 1
        if not self.seconds_left:
            raise TimeUp
        if task in self.limits:
            limited.add(task)
        if task in (FIRST, FIRST + 1):
            yield POOL, 0

    def _name(self, lock: int, frames: Sequence[FrameState]) -> str | None:
        self.counted["name"] += 1
        return "self.pool"

    def _files(self, tasks: Sequence[TaskState]) -> Sequence[str]:
        self.counted["files"] += 1
        return super()._files(tasks)


def test_what_many_wait_for_is_read_once() -> None:
    reader = Stub()
    tasks = [waiting_task(FIRST + number) for number in range(WAITERS)]
    locks = reader.read(tasks)
    assert {one.holders for one in locks.wanted.values()} == {(FIRST, FIRST + 1)} and len(locks.wanted) == WAITERS
    assert reader.counted["_bound_value"] == reader.counted["files"] == reader.counted["name"] == 1
    assert reader.counted["_value"] <= 2 and reader.counted["check_time"] < 2 * WAITERS
    assert Tasks(tuple(tasks), locks=locks).stuck() == set(locks.wanted) & {FIRST, FIRST + 1}


def test_where_nobody_is_found_to_have_it_nothing_is_counted() -> None:
    reader = Stub()
    locks = reader.read([waiting_task(FIRST + 2 + number) for number in range(9)])
    assert {one.holders for one in locks.wanted.values()} == {()}
    assert not reader.counted["files"] and not reader.counted["_bound_value"]


class Counted(tuple[int, ...]):
    """Counts how often one of it is looked at."""

    looked = 0

    def __iter__(self) -> Iterator[int]:
        for one in super().__iter__():
            Counted.looked += 1
            yield one


def test_the_holders_of_a_lock_are_looked_at_once_for_all_its_waiters() -> None:
    holders = Counted(range(FIRST, FIRST + 1000))
    tasks = tuple(waiting_task(FIRST + number) for number in range(WAITERS))
    lock = TaskLock("pool", FIRST, 0, None, holders, POOL)
    Counted.looked = 0
    assert Tasks(tasks, locks=TaskLocks({one.address: lock for one in tasks}, frozenset())).stuck() == set(range(FIRST, FIRST + 1000))
    assert Counted.looked <= 4 * len(holders)


@pytest.mark.parametrize(("limited", "stuck"), [(set(), {1, 2}), ({1}, set())])
def test_limits_count_where_nobody_waits_for_a_lock(limited: set[int], stuck: set[int]) -> None:
    reader = Stub()
    reader.limits = limited
    tasks = (waiting_task(1, 2, waits_for="Task"), waiting_task(2, 1, waits_for="Task"), waiting_task(3, waits_for="sleep()"))
    assert Tasks(tasks, locks=reader.read(tasks)).stuck() == stuck
    assert reader.counted["held"] == 2


def test_who_may_stand_in_a_limit_that_was_not_read_is_not_stuck() -> None:
    tasks = (waiting_task(1, 2, waits_for="Task"), waiting_task(2, 1, waits_for="Task"))
    assert Tasks(tasks, locks=Stub(seconds_left=False).read(tasks)).stuck() == set()
