"""asyncio's tasks of CPython 3.14, in a Debian sid: held to the program's own view of them, and to `python -m asyncio ps` of a live one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from struct import unpack

import pytest

from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from crashkit.interpreter.finding import Module, find
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.read import read_python
from crashkit.interpreter.task_lists import USUAL, _definition, _table
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


def test_a_live_process_as_asyncio_itself_shows_it(inside: Path) -> None:
    # `ps` finds files by /proc, where their names are those of its own mounts.
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/python3.14 "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, str(sid()), f"/tmp/{inside.name}/{PROGRAM}", "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None and child.stderr.readline().startswith("[{")
            ps = ["nsenter", "-t", str(child.pid), "--mount", "--root", "/usr/bin/python3.14", "-m", "asyncio", "ps", str(child.pid)]
            told = subprocess.run(ps, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout.splitlines()
            child.send_signal(signal.SIGSTOP)
            with LiveProcess(child.pid) as live:
                found = find_interpreter(loaded_modules(live), "/usr/bin/python3.14")
                assert found is not None
                state = read_python(live, [Module(found.module, None)], Version(3, 14), {})
                assert state is not None
                tasks, in_time = state.tasks(lambda _name: None)[:2]
        finally:
            child.kill()
    assert in_time
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
