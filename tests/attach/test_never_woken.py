"""Tasks that nobody is left to wake, and loops that only look like that: whose connection, timer, pipe or thread may still wake them."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.model import Crash
from tests.attach import programs
from tests.attach.programs import seen
from tests.crashes import an_interpreter, needs_x86_64

pytestmark = [needs_x86_64(), pytest.mark.slow]

HEAD = programs.HEAD + "import asyncio\nasync def main():\n"
TAIL = "\nasyncio.run(main())\n"
READY = "\n    " + programs.READY

READS = """reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)"""


def program(made: str, awaited: str) -> str:
    return f"{HEAD}    {made}{READY}    await {awaited}{TAIL}"


def findings(crash: Crash) -> dict[str, str]:
    return {finding.id: finding.confidence for finding in crash.findings}


@pytest.mark.parametrize(
    ("made", "awaited", "confidence", "told"),
    [
        ("jobs = asyncio.Queue()", "jobs.get()", "likely", "for an item of the queue jobs (empty)"),
        ("pool = asyncio.Semaphore(0)", "pool.acquire()", "likely", "for the semaphore pool"),
        # A handler of a signal may set it.
        ("ready = asyncio.Event()", "ready.wait()", "possible", "for the event ready (not set)"),
    ],
)
def test_nobody_is_left(made: str, awaited: str, confidence: str, told: str, tmp_path: Path) -> None:
    crash = seen(an_interpreter(), program(made, awaited), tmp_path)
    assert findings(crash) == {"deadlock-task-never-woken": confidence}
    assert told in (crash.findings[0].summary or "") and "main (program.py:" in crash.findings[0].fix[0]


@pytest.mark.parametrize(
    ("made", "awaited"),
    [
        ("stop = asyncio.Event(); server = await asyncio.start_server(print, '127.0.0.1', 0)", "stop.wait()"),
        ("stop = asyncio.Event(); asyncio.get_running_loop().call_later(1000, stop.set)", "stop.wait()"),
        ("jobs = asyncio.Queue()", "asyncio.wait_for(jobs.get(), 1000)"),
        (READS, "reader.read()"),
    ],
    ids=["idle server", "timer", "time limit", "pipe"],
)
def test_somebody_may_still_wake_it(made: str, awaited: str, tmp_path: Path) -> None:
    crash = seen(an_interpreter(), program(made, awaited), tmp_path)
    assert [task.state for task in crash.tasks] == ["waiting"] * len(crash.tasks) and crash.tasks
    assert findings(crash) == {}


def test_a_thread_that_is_busy_elsewhere_may_wake_it(tmp_path: Path) -> None:
    made = "jobs = asyncio.Queue(); threading.Thread(target=sys.stdin.read, daemon=True).start()"
    assert "deadlock-task-never-woken" not in findings(seen(an_interpreter(), program(made, "jobs.get()"), tmp_path, 2))
