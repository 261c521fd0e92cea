"""What tasks wait for, and who has it where no `async with` block tells: bare `acquire()`, semaphores, conditions, events, queues."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.interpreter.acquired import Parsed, Standing
from crashkit.interpreter.task_locks import stuck_in_circles
from crashkit.interpreter.tasks import OFFSETS
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
STUCK = {
    "bare": (BARE, "one, two", {"one", "two"}),
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
    assert crash.findings == () and cycle(crash) == set()
    if kind == "released":
        assert named(crash)["two"].awaits == "Event.wait()" and held_by(crash, "one") == "two"
    elif kind == "by-another":
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
    assert cycle(crash) == set() and not crash.findings


@pytest.mark.slow
def test_a_barrier_says_how_many_have_come(tmp_path: Path) -> None:
    python = next((one for one in interpreters() if one.version >= (3, 11, 0)), None)
    if python is None:
        pytest.skip("no interpreter with asyncio.Barrier")
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
    assert set(Parsed(SOURCE).taken(Standing("work", 2, line, column))) == taken
    assert Parsed(SOURCE).taken(Standing("other", 2, line, column)) == Parsed("(").taken(Standing("work", 2, line)) == ()


def test_first_values() -> None:
    parsed = Parsed(
        "self.a = asyncio.Semaphore()\nb = Semaphore(2)\nb = Semaphore(3)\nc: X = BoundedSemaphore(value=4)\nd, e = Semaphore(n), 1"
    )
    assert [parsed.first_value(name) for name in "abcde"] == [1, None, 4, None, None]


def test_any_one_of_several_may_be_enough() -> None:
    assert stuck_in_circles({1: [], 2: [3], 3: []}, {1: [2, 4], 3: [1]}) == set()
    assert stuck_in_circles({2: [3], 4: [3]}, {1: [2, 4], 3: [1]}) == {1, 2, 3, 4}
