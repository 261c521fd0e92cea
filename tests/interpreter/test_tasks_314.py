"""asyncio's tasks of CPython 3.14 in a Debian sid, held to the program's own view and to `python -m asyncio ps` and `pstree`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from struct import unpack
from typing import NamedTuple

import pytest

from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from crashkit.interpreter.finding import Module, find
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.read import read_python
from crashkit.interpreter.task_lists import USUAL, _definition, _table
from crashkit.interpreter.tasks import TaskState
from crashkit.interpreter.view import View
from crashkit.memory.live import LiveProcess
from crashkit.pipeline import Options, analyze
from tests.crashes import CRASHERS, DEADLINE, Folder, crash, needs_binutils
from tests.interpreter.process import interpreter_of, opened
from tests.interpreter.test_tasks import PROGRAM, check_waits, compare
from tests.test_support_matrix import sid, sid_is_there

pytestmark = [
    pytest.mark.chroot,
    pytest.mark.slow,
    pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1"),
]


@pytest.fixture(scope="module")
def inside() -> Iterator[Path]:
    """A folder in the sid with the program."""
    folder = sid() / "tmp" / f"crashkit-tasks-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(CRASHERS / PROGRAM, folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(inside: Path) -> Folder:
    command: list[str | bytes | Path] = ["chroot", sid(), "/bin/sh", "-c", f"cd /tmp/{inside.name} && exec /usr/bin/python3.14 {PROGRAM}"]
    return crash(command, inside, {"PYTHONFAULTHANDLER": "1"})


def test_they_are_what_the_program_saw(made: Folder) -> None:
    found = analyze(made.core, options=Options(gdb=None, sysroot=sid()))
    compare(found, made.stderr)
    check_waits(found.tasks)


def test_without_any_file_of_the_process(made: Folder, tmp_path: Path) -> None:
    """The offsets are in the process itself."""
    found = analyze(made.core, options=Options(gdb=None, sysroot=tmp_path))
    truth = json.loads(next(line for line in made.stderr.splitlines() if line.startswith("[{")))
    assert {task.name: task.state for task in found.tasks} == {one["name"]: one["state"] for one in truth}


@needs_binutils
def test_the_offsets_are_those_of_the_build(made: Folder) -> None:
    module = next((sid() / "usr/lib/python3.14/lib-dynload").glob("_asyncio.cpython-314-*.so"))
    section = made.path / "section"
    subprocess.run(["objcopy", "-O", "binary", "--only-section=.AsyncioDebug", module, section], check=True)
    words = unpack("=13Q", section.read_bytes()[:104])
    with opened(made.core) as core:
        loaded, version = interpreter_of(core)
        found = find(View(core), [Module(loaded, None)], version, {})
        assert found is not None
        objects = Objects(View(core), found.layout, found.version)
        heads = {_table(objects, _definition(objects, one)) for one in found.interpreters}
    assert words[:7] == USUAL.of_a_task and heads == {words[7:]}


class Live(NamedTuple):
    """A live process, as CPython's own tools show it and as we read it."""

    ps: list[str]
    pstree: list[str]
    tasks: list[TaskState]


@pytest.fixture(scope="module")
def live(inside: Path) -> Live:
    # They find files by /proc, where their names are those of its own mounts.
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/python3.14 "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, str(sid()), f"/tmp/{inside.name}/{PROGRAM}", "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None and child.stderr.readline().startswith("[{")
            ps, pstree = (_told(child.pid, tool) for tool in ("ps", "pstree"))
            child.send_signal(signal.SIGSTOP)
            with LiveProcess(child.pid) as process:
                found = find_interpreter(loaded_modules(process), "/usr/bin/python3.14")
                assert found is not None
                state = read_python(process, [Module(found.module, None)], Version(3, 14), {})
                assert state is not None
                read = state.tasks(lambda _name: None)
                tasks, in_time = read.found, read.in_time
        finally:
            child.kill()
    assert in_time
    return Live(ps, pstree, list(tasks))


def _told(pid: int, tool: str) -> list[str]:
    command = ["nsenter", "-t", str(pid), "--mount", "--root", "/usr/bin/python3.14", "-m", "asyncio", tool, str(pid)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout.splitlines()


def test_a_live_process_as_asyncios_ps_shows_it(live: Live) -> None:
    told, tasks = live.ps, live.tasks
    # Its columns overflow: tid and task id stand first, the awaiter's id last, and the task's name fits.
    rows = [
        (line.split()[1], line[told[0].index("task name") : told[0].index("coroutine stack")].strip(), line.split()[-1])
        for line in told[2:]
    ]
    assert {task.address: task.name for task in tasks} == {int(task, 16): name for task, name, _ in rows}
    theirs = {(int(awaiter, 16), int(task, 16)) for task, _, awaiter in rows if int(awaiter, 16)}
    # It does not look behind what `run_coroutine_threadsafe` returns.
    ours = {name: address for address, name in ((task.address, task.name) for task in tasks)}
    theirs.add((ours["hands over"], ours["of another thread"]))
    assert {(task.address, other) for task in tasks for other in task.awaits} == theirs


def test_a_live_process_as_asyncios_pstree_shows_it(live: Live) -> None:
    frames, awaits = _tree(live.pstree)
    names = {task.address: task.name for task in live.tasks}
    ours = {
        str(task.name): [
            (frame.code.name, frame.code.file, frame.position.line) for frame in reversed(task.frames) if frame.code and frame.position
        ]
        for task in live.tasks
    }
    # It ends at what is no coroutine itself: generators, and functions that a coroutine called.
    inner = {name: [frame[0] for frame in stack[len(frames[name]) :]] for name, stack in ours.items()}
    assert {name: stack for name, stack in inner.items() if stack} == {"fetch-42": ["parse"], "old": ["old_style"], "spins": ["__sleep0"]}
    assert {name: stack[: len(frames[name])] for name, stack in ours.items()} == frames
    # It does not look behind what `run_coroutine_threadsafe` returns.
    awaits["hands over"] = {"of another thread"}
    assert {task.name: {names[other] for other in task.awaits} for task in live.tasks if task.awaits} == awaits


def _tree(lines: list[str]) -> tuple[dict[str, list[tuple[str, str, int]]], dict[str, set[str]]]:
    """The frames of each task, outermost first, and the tasks it awaits, by name. A task stands below each that awaits it."""
    frames: dict[str, list[tuple[str, str, int]]] = {}
    awaits: dict[str, set[str]] = {}
    above: list[str] = []
    """The tasks that the line is below, for each step of indentation the innermost."""
    for line in filter(None, lines):
        branch, label = re.fullmatch(r"([ │├└─]*)(.*)", line).groups()  # type: ignore[union-attr]
        # Four columns a step, and one more before what is no task, whose mark is empty.
        depth = len(branch) // 4
        owner = above[depth - 1] if depth > 1 else ""
        del above[depth:]
        above += [owner] * (depth - len(above))
        if label.startswith("(T) "):
            above.append(label[4:])
            frames[label[4:]] = []
            if owner:
                awaits.setdefault(owner, set()).add(label[4:])
        else:
            above.append(owner)
            name, file, number = re.fullmatch(r"(\S+) (.+):(\d+)", label).groups()  # type: ignore[union-attr]
            frames[owner].append((name.rpartition(".")[2], file, int(number)))
    return frames, awaits
