"""asyncio's tasks, held to what the program said of them right before it crashed."""

from __future__ import annotations

import json
import random
import time
from functools import cache
from pathlib import Path

import pytest

from crashkit.interpreter.finding import Module
from crashkit.interpreter.read import read_python
from crashkit.interpreter.tasks import OFFSETS, Tasks, TaskState
from crashkit.model import Crash, Task
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text, wording
from crashkit.shorten import shortened
from tests.crashes import Folder, Interpreter, every_interpreter, python_crash, some_interpreters
from tests.interpreter.process import MORE, idents, interpreter_of, opened
from tests.interpreter.test_damage import Overwritten, garbage, words_of
from tests.packages import folder_with

PROGRAM = "waiting_tasks.py"
_SAMPLES = 60 * MORE
_PATIENCE = 0.3
_SLACK = 0.2
"""Seconds. Of processor time, so that it may be a busy machine; the longest step between two looks at the clock decodes a line table."""


def made_by(python: Interpreter) -> Folder:
    if python.version[:2] not in OFFSETS:
        pytest.skip(f"tasks of {python.name} are not read")
    return python_crash(PROGRAM, python=python)


@cache
def analyzed(core: Path) -> Crash:
    return analyze(core, options=Options(gdb=None))


def frames(task: Task) -> list[list[object]]:
    return [[frame.function, frame.line] for frame in task.frames]


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_they_are_what_the_program_saw(python: Interpreter) -> None:
    made = made_by(python)
    compare(analyzed(made.core), made.stderr)


def compare(crash: Crash, stderr: str, not_told: tuple[str, ...] = ()) -> None:
    """`not_told`: tasks that wait in an asynchronous generator, where the interpreter's file, which has its type's name, is missing."""
    truth = json.loads(next(line for line in stderr.splitlines() if line.startswith("[{")))
    ours = {task.name: task for task in crash.tasks}
    assert len(ours) == len(crash.tasks) == len(truth) >= 11
    for true in truth:
        task = ours[true["name"]]
        assert task.state == true["state"] and task.loop_thread == crash.crashed_thread
        if true["frames"] is not None and task.name not in not_told:
            assert frames(task) == true["frames"], task.name
        if true["awaits"]:
            assert task.awaits == true["awaits"]


@pytest.mark.parametrize("python", every_interpreter())
def test_who_waits_for_whom(python: Interpreter) -> None:
    check_waits(analyzed(made_by(python).core).tasks)


def check_waits(tasks: tuple[Task, ...]) -> None:
    ours = {task.name: task for task in tasks}

    def names(places: tuple[int, ...]) -> set[str | None]:
        return {tasks[place].name for place in places}

    assert names(ours["handler"].awaits_tasks) == {"fetch-42"}
    assert (ours["gathers"].awaits, names(ours["gathers"].awaits_tasks)) == ("gather", {"gated", "fetch-42"})
    assert names(ours["waits"].awaits_tasks) == {"gated"}
    assert (ours["takes"].awaits, ours["takes"].awaits_tasks) == ("Queue.get()", ())
    assert names(ours["fetch-42"].awaited_by) == {"handler", "gathers", "completes", "nests", "Task-1"}
    assert names(ours["shields"].awaits_tasks) == {"gated"}
    assert names(ours["shields for a time"].awaits_tasks) == {"gated"}
    assert (ours["completes"].awaits, names(ours["completes"].awaits_tasks)) == ("as_completed()", {"gated", "fetch-42"})
    assert (ours["nests"].awaits, names(ours["nests"].awaits_tasks)) == ("gather", {"gated", "fetch-42"})
    assert names(ours["hands over"].awaits_tasks) == {"of another thread"}
    if "grouped" in ours:
        assert names(ours["grouped"].awaits_tasks) == {"in group"}
        assert names(ours["in group"].awaited_by) == {"grouped"}


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_on_uvloop(python: Interpreter) -> None:
    """A loop of C does not tell its thread: the running task does."""
    made = python_crash(PROGRAM, "uvloop", str(folder_with(python, "uvloop")), python=python)
    crash = analyzed(made.core)
    compare(crash, made.stderr)
    check_waits(crash.tasks)
    assert wording.in_task(crash)


@pytest.mark.parametrize("python", every_interpreter()[-1:])
def test_the_first_screen_names_the_task_of_the_crash(python: Interpreter) -> None:
    crash = analyzed(made_by(python).core)
    running = next(task for task in crash.tasks if task.state == "running")
    assert [frame.function for frame in running.frames] == ["string_at", "crash", "parse", "fetch"]
    line = next(frame.line for task in crash.tasks if task.name == "handler" for frame in task.frames)
    told = f"fetch-42, awaited by handle_request (waiting_tasks.py:{line})"
    assert (wording.in_task(crash) or "").startswith(told)
    assert told in " ".join("\n".join(text.summary(crash, None, color=False, width=200)).split())
    page = html.render(crash)
    assert told in page and 'id="tasks"' in page and "waiting for fetch-42" in page


def test_a_report_that_is_cut_refers_to_no_task_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashkit.limits.OTHER_BYTES", 2000)
    monkeypatch.setattr("crashkit.limits.COROUTINE_BYTES", 0)
    tasks = tuple(Task(name=f"{'x' * 100}{index}", awaits_tasks=(99,), awaited_by=(0, 99), held_by=99, held_at=0) for index in range(100))
    kept = shortened(Crash(tasks=tasks)).tasks
    assert 1 < len(kept) < 50
    assert {(task.awaits_tasks, task.awaited_by, task.held_by, task.held_at) for task in kept} == {((), (0,), None, None)}
    assert wording.task_sentence(Crash(tasks=(Task(name="a", awaited_by=(7,)),)), Task(name="a", awaited_by=(7,))) == "a"


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.10", "3.13"))
def test_damage_is_survived_in_bounded_time(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    check_damage(made_by(python).core, monkeypatch)


def check_damage(path: Path, monkeypatch: pytest.MonkeyPatch, samples: int = _SAMPLES) -> None:
    with opened(path) as core:
        loaded, version = interpreter_of(core)
        module, known = Module(loaded, Path(loaded.path)), idents(core)
        found: list[TaskState] = []
        words = words_of(core, module, version, known, lambda state: found.extend(state.tasks(lambda _name: None).found))
        whole = len(found)
        monkeypatch.setattr("crashkit.interpreter.tasks._PATIENCE", _PATIENCE)
        assert whole >= 11 and len(words) > 500
        rng = random.Random(14)
        unharmed = 0
        for _ in range(samples):
            damage = {place: word for place in rng.sample(words, rng.choice([1, 5, 50])) for word in garbage(rng, place, words)}
            state = read_python(Overwritten(core, damage), [module], version, known)
            began = time.process_time()
            tasks = state.tasks(lambda _name: None) if state is not None else Tasks()
            assert time.process_time() - began < _PATIENCE + _SLACK
            unharmed += len(tasks.found) >= whole - 2
        assert unharmed > samples // 4


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_a_search_that_was_ended_says_so(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashkit.interpreter.tasks._PATIENCE", 0.0)
    crash = analyze(made_by(python).core, options=Options(gdb=None))
    assert [error.message for error in crash.soft_errors if error.stage == "tasks"] == [
        "the search for asyncio tasks took too long and was ended: 0 were read, and there may be more"
    ]
    assert crash.tasks == () and any(thread.frames for thread in crash.threads)
