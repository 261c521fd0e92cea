"""asyncio's locks: which task holds the one that another wants. What hangs, and why, is what the program was written to do."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.interpreter.task_locks import in_circles
from crashkit.interpreter.tasks import OFFSETS
from crashkit.model import Crash, Task
from crashkit.pipeline import Options, analyze
from crashkit.report import text
from tests.attach.programs import running, until_asleep
from tests.crashes import Interpreter, an_interpreter, cores_land_in_cwd, every_interpreter, needs_x86_64

pytestmark = needs_x86_64()
WITHOUT_GDB = Options(gdb=None)
HEAD = """import asyncio, os, sys

async def settled(*tasks):
    # Each turn of the loop lets every task go on that can.
    for _ in range(20):
        await asyncio.sleep(0)
    print("ready", os.getpid(), flush=True)
    await asyncio.wait(tasks)

class Shared:
    def __init__(self):
        self.first, self.second = asyncio.Lock(), asyncio.Lock()
        self.has_first, self.has_second = asyncio.Event(), asyncio.Event()
"""
MAIN = """
async def main():
    shared = Shared()
    await settled(*(asyncio.create_task(one(shared), name=one.__name__) for one in (NAMES)))
asyncio.run(main())
"""
CROSSED = """
async def one(shared):
    async with shared.first:
        shared.has_first.set(); await shared.has_second.wait()
        async with shared.second:  # one waits
            pass
async def two(shared):
    second = shared.second
    async with second:
        shared.has_second.set(); await shared.has_first.wait()
        await take(shared)
async def take(shared):
    async with shared.first:  # two waits
        pass
"""
TAKEN_TWICE = """
async def one(shared):
    async with shared.first:
        async with shared.first:
            pass
"""
CHILD = """
async def child(shared):
    async with shared.first:
        pass
async def one(shared):
    async with shared.first:
        await asyncio.gather(asyncio.create_task(child(shared), name="child"))
"""
CONDITION = """
async def one(shared):
    async with shared.first:
        shared.has_first.set(); await shared.has_second.wait()
        async with shared.changed:
            pass
async def two(shared):
    shared.changed = asyncio.Condition()
    async with shared.changed:
        shared.has_second.set(); await shared.has_first.wait()
        async with shared.first:
            pass
"""
STUCK = {"crossed": (CROSSED, "one, two"), "twice": (TAKEN_TWICE, "one"), "child": (CHILD, "one"), "condition": (CONDITION, "one, two")}
"""Programs and their tasks."""

RELEASED_SOON = """
async def one(shared):
    async with shared.first:
        shared.has_first.set()
        await asyncio.sleep(3600)
async def two(shared):
    await shared.has_first.wait()
    async with shared.first:
        pass
"""
LEFT_BEFORE = """
async def takes(lock):
    await lock.acquire()
async def one(shared):
    for _ in [0]:
        for _ in [0]:
            for _ in [0]:
                async with shared.first: pass
    await takes(shared.first)
    shared.has_first.set(); await shared.has_second.wait()
    await takes(shared.second)
async def two(shared):
    for _ in [0]:
        for _ in [0]:
            for _ in [0]:
                async with shared.second: pass
    await takes(shared.second)
    shared.has_second.set(); await shared.has_first.wait()
    await takes(shared.first)
"""
"""Nothing tells who has the locks, though both tasks were in such a block before."""
WAIT_FOR = CROSSED.replace("async with shared.second:  # one waits", "await asyncio.wait_for(shared.second.acquire(), 3600)\n        if 1:")
TIMEOUT = CROSSED.replace("await take(shared)", "async with asyncio.timeout(3600):\n            await take(shared)")
ALL_IN_WAIT_FOR = (
    CROSSED.replace("async def one(", "async def inner(")
    + """
async def one(shared):
    await asyncio.wait_for(inner(shared), 3600)
"""
)
FIRST_COMPLETED = CHILD.replace(
    'await asyncio.gather(asyncio.create_task(child(shared), name="child"))',
    "await asyncio.wait([asyncio.create_task(child(shared))], timeout=3600)",
)
HEALTHY = {
    "released-soon": (RELEASED_SOON, "one, two"),
    "left-before": (LEFT_BEFORE, "one, two"),
    "wait_for": (WAIT_FOR, "one, two"),
    "all-in-wait_for": (ALL_IN_WAIT_FOR, "one, two"),
    "timeout": (TIMEOUT, "one, two"),
    "wait": (FIRST_COMPLETED, "one"),
}
"""One waits, and may go on: the other runs, or a time limit ends it. Or it is not known who holds what."""


def program(body: str, names: str) -> str:
    return HEAD + body + MAIN.replace("NAMES", f"{names},")


def attached(python: Interpreter, body: str, names: str, folder: Path) -> Crash:
    if python.version[:2] not in OFFSETS:
        pytest.skip(f"tasks of {python.name} are not read")
    with running(python, program(body, names), folder) as (process, _):
        until_asleep(process.pid, 1)
        return attach(process.pid, WITHOUT_GDB)


def named(crash: Crash) -> dict[str | None, Task]:
    return {task.name: task for task in crash.tasks}


def line(body: str, words: str) -> int:
    return next(number for number, line in enumerate((HEAD + body).splitlines(), 1) if words in line)


def tells_the_crossed_locks(crash: Crash) -> None:
    tasks = named(crash)
    one, two = tasks["one"], tasks["two"]
    assert one.held_by is not None and two.held_by is not None
    assert crash.tasks[one.held_by] is two and crash.tasks[two.held_by] is one
    assert (one.lock, two.lock) == ("shared.second", "shared.first")
    assert one.held_at is not None and two.frames[one.held_at].function == "two"
    assert {task.name for task in crash.tasks if task.cycle} == {"one", "two"}
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == ("deadlock-tasks", "likely")
    at = line(CROSSED, "one waits"), line(CROSSED, "two waits"), line(CROSSED, "await take")
    assert sorted((finding.summary or "").removesuffix(".").split("; ")) == [
        f"task one waits in one (program.py:{at[0]}) for the lock shared.second, held by two in two (program.py:{at[2]})",
        f"task two waits in take (program.py:{at[1]}) for the lock shared.first, held by one in one (program.py:{at[0]})",
    ]
    assert "the lock shared.first, held by one in one" in "\n".join(text.summary(crash, None, color=False, width=400))


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_crossed_locks(python: Interpreter, tmp_path: Path) -> None:
    tells_the_crossed_locks(attached(python, *STUCK["crossed"], tmp_path))


def test_crossed_locks_over_a_core(tmp_path: Path) -> None:
    with cores_land_in_cwd(), running(an_interpreter(), program(*STUCK["crossed"]), tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        subprocess.run(["prlimit", "--pid", str(process.pid), "--core=unlimited:unlimited"], check=True)
        process.send_signal(signal.SIGQUIT)
        process.wait()
    tells_the_crossed_locks(analyze(tmp_path / "core", options=WITHOUT_GDB))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "stuck"), [("twice", {"one"}), ("child", {"one", "child"}), ("condition", {"one", "two"})])
def test_other_circles(kind: str, stuck: set[str], tmp_path: Path) -> None:
    crash = attached(an_interpreter(), *STUCK[kind], tmp_path)
    assert {task.name for task in crash.tasks if task.cycle} == stuck
    assert [finding.id for finding in crash.findings] == ["deadlock-tasks"]
    if kind == "twice":
        assert "for the lock shared.first, held by itself" in (crash.findings[0].summary or "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEALTHY)
def test_who_may_go_on_is_in_no_deadlock(kind: str, tmp_path: Path) -> None:
    crash = attached(an_interpreter(), *HEALTHY[kind], tmp_path)
    # It is stuck, but nothing tells that it is a circle.
    expected = ["deadlock-task-never-woken"] if kind == "left-before" else []
    assert [finding.id for finding in crash.findings] == expected and not any(task.cycle for task in crash.tasks)
    tasks = named(crash)
    if kind == "released-soon":
        assert tasks["two"].held_by is not None and crash.tasks[tasks["two"].held_by] is tasks["one"]
    elif kind == "left-before":
        assert tasks["one"].awaits == "Lock.acquire()" and tasks["one"].held_by is None
    elif kind != "wait":
        assert any(task.held_by is not None for task in crash.tasks), "the test shows nothing"


def test_circles() -> None:
    assert in_circles({1: [2], 2: [1], 3: [1], 4: [5], 5: [], 6: [6], 1000: [1001]}) == {1, 2, 6}
    chain = {number: [number + 1] for number in range(50_000)}
    assert in_circles(chain) == set()
    assert in_circles({**chain, 50_000: [0]}) == set(range(50_001))
    assert in_circles({1: [2, 9], 2: [3], 3: [1], 9: []}) == {1, 2, 3}
