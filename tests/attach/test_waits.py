"""What hangs, and why, is what the program was written to do."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.interpreter.tasks import OFFSETS
from crashkit.model import Crash, Thread, Wait
from crashkit.naming.waits import sentence
from crashkit.pipeline import Options, analyze
from crashkit.report import text
from tests.attach import programs
from tests.attach.programs import WITHOUT_GDB, ended, leaves_core, running, seen, until_asleep, until_waiting
from tests.crashes import Interpreter, an_interpreter, cores_land_in_cwd, every_interpreter, needs_gdb, needs_x86_64

pytestmark = needs_x86_64()


def waits(crash: Crash) -> dict[str | None, Wait]:
    """By the name of the thread."""
    names = {thread.tid: thread.name for thread in crash.threads}
    return {names[wait.thread]: wait for wait in crash.waits}


def thread(crash: Crash, name: str) -> Thread:
    return next(thread for thread in crash.threads if thread.name == name)


def ids(crash: Crash) -> list[str]:
    return [finding.id for finding in crash.findings]


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_two_locks(python: Interpreter, tmp_path: Path) -> None:
    crash = seen(python, programs.TWO_LOCKS, tmp_path, 3)
    tells_two_locks(crash)
    assert crash.source is not None and crash.source.kind == "live"
    assert all(one.activity == "blocked" for one in crash.threads)


def tells_two_locks(crash: Crash) -> None:
    one, two = thread(crash, "one"), thread(crash, "two")
    found = waits(crash)
    assert found["one"].kind == found["two"].kind == "lock"
    assert (found["one"].name, found["one"].held_by, found["one"].cycle) == ("b", two.tid, True)
    assert (found["two"].name, found["two"].held_by, found["two"].cycle) == ("a", one.tid, True)
    assert (found["MainThread"].kind, found["MainThread"].held_by, found["MainThread"].cycle) == ("thread", one.tid, False)
    deadlock = crash.findings[0]
    assert (deadlock.id, deadlock.confidence) == ("deadlock-locks", "certain")
    told = deadlock.summary or ""
    assert "in one (program.py:8)" in told and "in two (program.py:12)" in told


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_rlock_has_an_owner_and_a_condition_a_lock(python: Interpreter, tmp_path: Path) -> None:
    tells_the_rlock(seen(python, programs.RLOCK_AND_CONDITION, tmp_path, 3))


def tells_the_rlock(crash: Crash) -> None:
    found = waits(crash)
    assert {name: (wait.held_by, wait.cycle) for name, wait in found.items() if name != "MainThread"} == {
        "one": (thread(crash, "two").tid, True),
        "two": (thread(crash, "one").tid, True),
    }
    assert (found["two"].kind, found["two"].name) == ("rlock", "self.guard")
    assert ids(crash) == ["deadlock-locks"]


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_locks_in_a_stack_of_contexts(python: Interpreter, tmp_path: Path) -> None:
    if python.version < (3, 8):
        pytest.skip("such a stack keeps functions, which do not tell whose they are")
    found = waits(crash := seen(python, programs.STACKED, tmp_path, 3))
    one, two = thread(crash, "one"), thread(crash, "two")
    assert (found["one"].name, found["one"].held_by, found["one"].cycle) == ("b", two.tid, True)
    assert (found["two"].name, found["two"].held_by, found["two"].cycle) == ("a", one.tid, True)
    assert ids(crash) == ["deadlock-locks"]


@pytest.mark.slow
def test_a_lock_that_a_stack_gave_away(tmp_path: Path) -> None:
    crash = seen(an_interpreter(), programs.POPPED, tmp_path, 3)
    found = waits(crash)
    assert (found["two"].name, found["two"].held_by) == ("a", None) and found["one"].held_by == thread(crash, "two").tid
    assert not any(wait.cycle for wait in crash.waits)


@pytest.mark.slow
def test_lock_taken_twice(tmp_path: Path) -> None:
    crash = seen(an_interpreter(), programs.TAKEN_TWICE, tmp_path)
    assert crash.process is not None and crash.process.pid is not None
    tells_the_lock_taken_twice(crash, crash.process.pid)


def tells_the_lock_taken_twice(crash: Crash, pid: int) -> None:
    (wait,) = crash.waits
    assert (wait.name, wait.held_by, wait.cycle) == ("state", pid, True)
    assert ids(crash) == ["deadlock-locks"]
    assert "which it holds itself" in (crash.findings[0].summary or "")


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_a_lock_that_was_left_is_not_held(python: Interpreter, tmp_path: Path) -> None:
    tells_no_owner(seen(python, programs.FINISHED_WITH, tmp_path, 3))


def tells_no_owner(crash: Crash) -> None:
    found = waits(crash)
    assert (found["one"].kind, found["one"].name, found["one"].held_by) == ("lock", "b", None)
    assert (found["two"].kind, found["two"].name, found["two"].held_by) == ("lock", "a", None)
    assert not any(one.cycle for one in crash.waits) and "deadlock-locks" not in ids(crash)


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_a_condition_does_not_hold_its_lock_while_it_waits(python: Interpreter, tmp_path: Path) -> None:
    crash = seen(python, programs.NOTIFIED, tmp_path, 3)
    found = waits(crash)
    two = next(thread.tid for thread in crash.threads if thread.name == "two" or thread.tid == found["two"].thread)
    assert (found["one"].kind, found["one"].held_by, found["one"].cycle) == ("lock", two, False)
    assert "deadlock-locks" not in ids(crash)


@pytest.mark.slow
def test_queue_never_filled(tmp_path: Path) -> None:
    tells_the_queue(seen(an_interpreter(), programs.QUEUE, tmp_path))


def tells_the_queue(crash: Crash) -> None:
    assert [(wait.kind, wait.held_by, wait.cycle, wait.inside) for wait in crash.waits] == [("queue", None, False, True)]
    assert crash.threads[0].activity == "blocked"
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == ("deadlock-nobody-left", "likely")
    assert (finding.summary or "").endswith("for a queue. There is no other thread.")


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_locks_whose_owners_nothing_tells(python: Interpreter, tmp_path: Path) -> None:
    """Two locks crossed, without `with`: each thread waits for one of this process, and none is left."""
    crash = seen(python, programs.LOCKS_WITHOUT_OWNERS, tmp_path, 3)
    found = waits(crash)
    assert {name: (wait.kind, wait.name, wait.held_by) for name, wait in found.items() if name != "MainThread"} == {
        "one": ("lock", "b", None),
        "two": ("lock", "a", None),
    }
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == ("deadlock-nobody-left", "likely")
    assert (finding.summary or "").endswith("All 3 threads wait without a time limit for each other.")
    shown = " ".join("\n".join(map(str, text.summary(crash, None, color=False, width=160))).split())
    assert "waits MainThread" in shown and "waits in two (program.py:8) for the lock a" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "threads", "confidence"),
    [
        (programs.NOBODY_SETS, 1, "possible"),  # a handler of a signal may
        (programs.WITH_A_LIMIT, 1, None),
        (programs.SOMEBODY_MAY_FILL, 2, None),
        (programs.ANOTHER_PROCESS_MAY_FILL, 1, None),
    ],
)
def test_who_may_still_be_woken(program: str, threads: int, confidence: str | None, tmp_path: Path) -> None:
    crash = seen(an_interpreter(), program, tmp_path, threads)
    assert {finding.id: finding.confidence for finding in crash.findings} == ({"deadlock-nobody-left": confidence} if confidence else {})


@pytest.mark.slow
def test_simple_queue_never_filled(tmp_path: Path) -> None:
    """It is written in C, as is what the workers of a ThreadPoolExecutor wait for."""
    tells_the_queue(seen(an_interpreter(), programs.SIMPLE_QUEUE, tmp_path))


@pytest.mark.slow
def test_import_lock(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text(programs.SHARED)
    (tmp_path / "slow_module.py").write_text(programs.SLOW_MODULE)
    tells_the_import(seen(an_interpreter(), programs.IMPORT, tmp_path, 3))


def tells_the_import(crash: Crash) -> None:
    found = waits(crash)
    assert (found["holds_lock"].kind, found["holds_lock"].name, found["holds_lock"].held_by) == (
        "import",
        "slow_module",
        thread(crash, "imports").tid,
    )
    assert (found["imports"].kind, found["imports"].held_by) == ("lock", thread(crash, "holds_lock").tid)
    assert ids(crash) == ["deadlock-import"]


@pytest.mark.slow
def test_fork_with_a_held_lock(tmp_path: Path) -> None:
    with running(an_interpreter(), programs.FORK, tmp_path) as (process, words):
        child = int(words[-1])
        with ended(child):
            until_asleep(child, 1)
            crash = attach(child, WITHOUT_GDB)
            parent = attach(process.pid, WITHOUT_GDB)
    (wait,) = crash.waits
    assert (wait.kind, wait.name, wait.lost, wait.held_by) == ("lock", "guard", True, None)
    assert ids(crash) == ["deadlock-fork"]
    assert (waits(parent)["MainThread"].kind, waits(parent)["MainThread"].process) == ("child", child)
    assert "deadlock-fork" not in ids(parent)


@pytest.mark.slow
@needs_gdb
def test_gil_against_a_mutex(library: Path, tmp_path: Path) -> None:
    with running(an_interpreter(), programs.GIL_AND_MUTEX, tmp_path, str(library)) as (process, _):
        until_asleep(process.pid, 3, but=3)
        stacks_end_in_futexes(process.pid)
        crash = attach(process.pid, Options())
    by_kind = {wait.kind: wait for wait in crash.waits if wait.cycle}
    gil, mutex = by_kind["gil"], by_kind["mutex"]
    assert (gil.held_by, mutex.held_by) == (mutex.thread, gil.thread)
    assert next(one for one in crash.threads if one.tid == mutex.thread).holds_gil
    assert ids(crash)[0] == "deadlock-gil-native-lock"


def stacks_end_in_futexes(pid: int) -> None:
    """The thread that waits for the GIL wakes up every 5 ms, to ask for it again: all are in futex(2), number 202, in one look."""
    while not all((task / "syscall").read_text().startswith("202 ") for task in Path(f"/proc/{pid}/task").iterdir()):
        pass


def test_socket_to_a_process_of_this_machine(tmp_path: Path) -> None:
    with running(an_interpreter(), programs.SOCKET, tmp_path) as (process, words):
        child = int(words[0])
        with ended(child):
            until_asleep(process.pid, 1)
            until_asleep(child, 1)
            crash = attach(process.pid, WITHOUT_GDB)
    (wait,) = crash.waits
    assert (wait.kind, wait.process) == ("socket", child)
    assert (wait.name or "").startswith("127.0.0.1:")
    assert ids(crash) == ["hang-io"]
    assert f"waits in <module> (program.py:{_line(programs.SOCKET, 'recv(100)')}) for the connection" in (crash.findings[0].summary or "")


@pytest.mark.slow
def test_a_server_waits_for_clients(tmp_path: Path) -> None:
    crash = seen(an_interpreter(), programs.SERVER, tmp_path)
    (wait,) = crash.waits
    assert re.search(r"waits in <module> \(program.py:\d\) for a new connection to 127\.0\.0\.1:\d+$", sentence(crash, wait))
    assert ids(crash) == []


@pytest.mark.slow
def test_asyncio_is_idle(tmp_path: Path) -> None:
    crash = seen(an_interpreter(), programs.ASYNCIO, tmp_path)
    assert [(wait.kind, wait.held_by) for wait in crash.waits] == [("poll", None)]
    assert crash.threads[0].activity == "idle" and ids(crash) == ["deadlock-task-never-woken"]


def _line(program: str, text: str) -> int:
    return next(number for number, line in enumerate(program.splitlines(), 1) if text in line)


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_a_task_that_is_never_woken(python: Interpreter, tmp_path: Path) -> None:
    """Which task waits for which, and at which line."""
    if python.version[:2] not in OFFSETS:
        pytest.skip(f"tasks of {python.name} are not read")
    _tells_the_tasks(seen(python, programs.NEVER_WOKEN, tmp_path))


def test_a_task_that_is_never_woken_over_a_core(tmp_path: Path) -> None:
    """Somebody ended it with a signal that leaves a core. tests/interpreter/test_tasks.py reads those of all interpreters."""
    with cores_land_in_cwd(), running(an_interpreter(), programs.NEVER_WOKEN, tmp_path) as (process, _):
        until_asleep(process.pid, 1)
        leaves_core(process, signal.SIGQUIT)
    _tells_the_tasks(analyze(tmp_path / "core", options=WITHOUT_GDB))


def _tells_the_tasks(crash: Crash) -> None:
    tasks = {task.name: task for task in crash.tasks}
    assert tasks["page"].awaits == "fetch-1" and tasks["fetch-1"].awaits not in tasks
    inner = tasks["fetch-1"].frames[0]
    assert (inner.function, inner.line) == ("fetch", _line(programs.NEVER_WOKEN, "await future"))
    shown = " ".join("\n".join(map(str, text.summary(crash, None, color=False, width=160))).split())
    assert f"task fetch-1 waits in fetch (program.py:{inner.line}) for a Future, awaited by page (program.py:" in shown


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_that_waits_for_another_one(tmp_path: Path) -> None:
    """It is told from a rank that does something else: that one is the culprit."""
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    script, store = tmp_path / "rank.py", tmp_path / "store"
    script.write_text(programs.RANK)
    with ExitStack() as stack:
        started = []
        for rank in (0, 1):
            command = [sys.executable, "-W", "ignore", str(script), str(rank), str(store)]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            assert process.stdout is not None and process.stdout.readline().startswith(b"ready")
        waiting, culprit = started
        until_waiting(waiting.pid)
        seen, other = attach(waiting.pid, WITHOUT_GDB), attach(culprit.pid, WITHOUT_GDB)
    (wait,) = (wait for wait in seen.waits if wait.thread == waiting.pid)
    assert wait.kind == "collective" and ids(seen) == ["hang-collective"]
    assert "train_step" in (seen.findings[0].summary or "")
    assert "hang-collective" not in ids(other)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "c"])
def test_busy_loop(language: str, library: Path, tmp_path: Path) -> None:
    program = programs.BUSY_PYTHON if language == "python" else programs.BUSY_C
    with running(an_interpreter(), program, tmp_path, str(library)) as (process, _):
        until_asleep(process.pid, 2, but=1)
        crash = attach(process.pid, WITHOUT_GDB)
    assert thread(crash, "spinner").activity == "busy" and (thread(crash, "spinner").processor or 0) >= 0.8
    assert thread(crash, "MainThread").activity == "blocked"
    assert ids(crash) == ["busy-loop"]


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGABRT])
def test_the_same_over_a_core(number: signal.Signals, tmp_path: Path) -> None:
    """Somebody ended the deadlock by a signal that leaves a core."""
    with cores_land_in_cwd(), running(an_interpreter(), programs.TWO_LOCKS, tmp_path) as (process, _):
        until_asleep(process.pid, 3)
        leaves_core(process, number)
    crash = analyze(tmp_path / "core")
    assert crash.signal is not None and crash.signal.name == number.name
    assert sorted(wait.name or "" for wait in crash.waits if wait.cycle) == ["a", "b"]
    assert ids(crash)[0] == "deadlock-locks"
