"""Whom of several debuggers is asked for what, and that a debugger of one file is enough to give a report its stacks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from crashkit import pipeline
from crashkit.debugger.ask import ask, start
from crashkit.debugger.contract import Answer, NativeStack, PythonStack, always
from crashkit.model import Address, NativeFrame, PythonFrame, SoftError
from crashkit.pipeline import Options, analyze
from tests.crashes import Folder, an_interpreter, python_crash
from tests.evidence.synthetic import EM_X86_64, header, program_header
from tests.hostile_inputs import NOTES

TID = 7
SECONDS = 60
NATIVE = {TID: NativeStack((NativeFrame(function="memcpy", pc=Address(16)),))}
WHOLE = {TID: PythonStack((PythonFrame(function="f", file="f.py", line=1),), None, None)}
GAP = {TID: PythonStack((PythonFrame(function="f", file="f.py"),), None, None)}


class Toy:
    """Answers what it was told to; notes what it was asked."""

    def __init__(self, name: str, *answers: Answer, python: bool = True, problem: str | None = None) -> None:
        self.name = name
        self.answers = list(answers)
        self.asked: list[bool] = []
        self.python: list[bool] = []
        self.closed = False
        self.asks = lambda: None
        self._python = python
        self._problem = problem

    def start(self):
        return SoftError(stage=self.name, message=self._problem, hint="?") if self._problem else None

    def reads_python(self, scene):
        return self._python

    def examine(self, core, scene, native, lap, python=always):
        self.asked.append(native)
        self.asks()
        self.python.append(python())
        lap(self.name)
        return self.answers.pop(0)

    def close(self):
        self.closed = True


def asked(*debuggers: Toy, python_is_known: bool = False) -> list[Answer]:
    """The scene is the toys' own affair."""
    with ThreadPoolExecutor(1) as pool:
        return ask(debuggers, Path("core"), None, pool, lambda _part: None, lambda: python_is_known)


def test_the_next_is_not_asked_where_nothing_is_missing():
    best, second = Toy("best", Answer(native=NATIVE, python=WHOLE)), Toy("second")
    assert len(asked(best, second)) == 1
    assert (best.asked, second.asked) == ([True], [])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(native=NATIVE),
        Answer(native=NATIVE, python=GAP),
        Answer(native=NATIVE, python=WHOLE, python_is_whole=False),
    ],
    ids=["none", "gap", "errors"],
)
def test_the_next_is_asked_for_the_python_frames_that_are_missing(answer):
    second = Toy("second", Answer(python=WHOLE))
    assert len(asked(Toy("best", answer), second)) == 2
    assert second.asked == [False]


def test_the_next_is_asked_for_everything_where_native_frames_are_missing():
    second = Toy("second", Answer(native=NATIVE, python=WHOLE))
    asked(Toy("best", Answer()), second)
    assert second.asked == [True]


def test_who_reads_python_is_asked_without_waiting_for_who_does_not():
    second = Toy("second", Answer(python=WHOLE))
    assert [answer.python for answer in asked(Toy("best", Answer(native=NATIVE), python=False), second)] == [None, WHOLE]
    assert second.asked == [False]


def test_and_again_where_native_frames_turn_out_to_be_missing():
    second = Toy("second", Answer(python=WHOLE), Answer(native=NATIVE, python=WHOLE))
    answers = asked(Toy("best", Answer(), python=False), second)
    assert [answer.native for answer in answers] == [None, NATIVE]
    assert second.asked == [False, True]


@pytest.mark.parametrize("reads_python", [True, False])
def test_nobody_is_asked_only_for_python_frames_that_are_known(reads_python: bool):
    best, second = Toy("best", Answer(native=NATIVE), python=reads_python), Toy("second")
    assert len(asked(best, second, python_is_known=True)) == 1
    assert (best.asked, second.asked) == ([True], [])


@pytest.mark.parametrize("reads_python", [True, False])
def test_the_best_is_asked_before_it_turns_out_what_is_known(reads_python: bool):
    best, second = Toy("best", Answer(native=NATIVE), python=reads_python), Toy("second", Answer(python=WHOLE))
    examined, in_time = threading.Event(), []
    best.asks = examined.set

    def known() -> bool:
        in_time.append(examined.wait(SECONDS))
        return True

    with ThreadPoolExecutor(1) as pool:
        ask([best, second], Path("core"), None, pool, lambda _part: None, known)
    assert all(in_time) and best.python == [False] and second.asked == []


def test_but_for_native_frames_somebody_is():
    second = Toy("second", Answer(native=NATIVE))
    assert len(asked(Toy("best", Answer()), second, python_is_known=True)) == 2
    assert (second.asked, second.python) == ([True], [False])


def test_python_frames_are_asked_for_where_they_are_not_known():
    best, second = Toy("best", Answer(python=GAP), python=False), Toy("second", Answer(python=WHOLE), Answer(native=NATIVE))
    asked(best, second)
    assert (best.python, second.python) == ([True], [True, True])


def test_one_that_cannot_be_used_leaves_a_soft_error_and_is_closed_like_the_others():
    best, second = Toy("best", problem="not installed"), Toy("second")
    with ExitStack() as stack:
        ready, errors = start([best, second], stack)
        assert ready == [second]
        assert [(error.stage, error.message) for error in errors] == [("best", "not installed")]
        assert not (best.closed or second.closed)
    assert best.closed and second.closed


def test_without_debuggers_there_are_no_answers():
    assert asked() == []


@pytest.fixture(scope="module")
def crashed() -> Folder:
    return python_crash("threads.py", python=an_interpreter())


class TestReport:
    """A toy debugger through the whole pipeline, without gdb and PyStack."""

    def test_its_stacks_are_merged_and_placed(self, crashed):
        notes = analyze(crashed.core, debuggers=())
        tid, pc = notes.crashed_thread, notes.thread.registers["rip"]
        python = PythonFrame(function="handle", file=__file__, line=1, entry=True, origin="toy")
        native = (
            NativeFrame(function="crash_here", pc=pc),
            NativeFrame(function="_PyEval_EvalFrameDefault", pc=pc),
            NativeFrame(function="_start", pc=pc),
        )
        toy = Toy(
            "toy",
            Answer(
                debugger="Toy 1",
                native={tid: NativeStack(native)},
                python={tid: PythonStack((python,), "worker", True)},
                python_version="3.11.99",
                symbols={notes.modules[0].path: "full"},
                abort_message="free(): invalid pointer",
                soft_errors=(SoftError(stage="toy", message="half of it"),),
            ),
        )
        crash = analyze(crashed.core, debuggers=(toy,))
        assert toy.asked == [True] and toy.closed
        assert [frame.function for frame in crash.thread.frames] == ["crash_here", "handle", "_start"]
        innermost, handle, _ = crash.thread.frames
        assert innermost.module and innermost.offset is not None and innermost.trust == "context"
        assert handle.source == Path(__file__).read_text().splitlines()[0].strip() and handle.origin == "toy"
        assert (crash.thread.name, crash.thread.holds_gil) == ("worker", True)
        assert (crash.debugger, crash.modules[0].symbols) == ("Toy 1", "full")
        assert any(line.text == "free(): invalid pointer" and line.path == "core" for line in crash.log)
        assert "half of it" in [error.message for error in crash.soft_errors]
        assert "toy" in crash.seconds

    def test_other_threads_stand_where_their_registers_say(self, crashed):
        crash = analyze(crashed.core, debuggers=(Toy("toy", Answer()),))
        assert len(crash.threads) == 7
        for thread in crash.threads:
            (frame,) = thread.frames
            assert (frame.pc, frame.trust) == (thread.registers["rip"], "context")

    def test_a_thread_that_one_could_not_walk_is_another_ones(self, crashed):
        tids = [thread.tid for thread in analyze(crashed.core, debuggers=()).threads]
        frame = NativeFrame(function="theirs", pc=Address(16))
        first = Toy("first", Answer(native={tids[0]: NativeStack(()), tids[1]: NativeStack((frame,))}))
        second = Toy("second", Answer(native={tid: NativeStack((frame,)) for tid in tids}))
        crash = analyze(crashed.core, debuggers=(first, second))
        assert {thread.frames[0].function for thread in crash.threads} == {"theirs"}


def test_what_runs_side_by_side_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: now[0])
    ours = pipeline._Clock()
    theirs = None
    for seconds, lap in ((1, "notes"), (3, "native"), (4, "frames"), (8, "python"), (9, "stacks")):
        now[0] = seconds
        if lap == "stacks":
            ours.join(theirs)
        (theirs if lap in ("native", "python") else ours).lap(lap)
        theirs = theirs or ours.beside()
    assert ours.laps == {"notes": 1, "native": 2, "frames": 3, "python": 5, "stacks": 1}


def test_nobody_is_asked_of_a_core_that_no_kernel_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would read the same notes over and over: this is a core in which three segments are all the same part of the file."""
    notes = NOTES * 40
    at = 64 + 56 * 3
    forged, witness = tmp_path / "core", tmp_path / "gdb-was-asked"
    forged.write_bytes(header(EM_X86_64, 3) + program_header(4, 0, at, 0, len(notes), 0) * 3 + notes)
    gdb = tmp_path / "gdb"
    gdb.write_text(f"#!/bin/sh\nread -r command && touch {witness}\n")
    gdb.chmod(0o755)
    read: list[object] = []
    monkeypatch.setattr(pipeline, "_read_directly", lambda *arguments: read.append(arguments))
    crash = analyze(forged, options=Options(gdb=str(gdb)))
    assert "no kernel wrote this core" in " ".join(error.message for error in crash.soft_errors)
    assert not witness.exists() and read == [] and crash.debugger is None
    # The control: one segment is honest.
    forged.write_bytes(header(EM_X86_64, 1) + program_header(4, 0, 64 + 56, 0, len(notes), 0) + notes)
    analyze(forged, options=Options(gdb=str(gdb)))
    assert witness.exists() and read
