"""The first screen tells the user's own line with the value that was wrong: real crashes, and every place where an answer is given."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markupsafe import escape
from msgspec.structs import replace

from crashkit.model import Address, Crash, NativeFrame, Process, PythonFrame, Signal, Source, Thread
from crashkit.pipeline import analyze
from crashkit.report import answer, html, markdown, text
from tests.crashes import a_debuggable_interpreter, an_interpreter, needs_gdb, python_crash

SAID = {
    "small": "decode (values.py:8): buffer = 24, used as a pointer by strlen",
    "wild": "decode (values.py:8): buffer = 105553116270592, used as a pointer by strlen",
    "literal": "literal (values.py:12): ptr = 105553116270592 in string_at, used as a pointer by strlen",
    "near": "far (values.py:16): table = 105553116270592, used as a pointer by strlen",
    "attribute": "read (values.py:24): self.handle = 40, used as a pointer by strlen",
    "item": 'item (values.py:27): rows[number]["at"] = 56, used as a pointer by strlen',
    "called": 'called (values.py:30): row["text"] = <c_void_p 0x1d8>, used as a pointer by strtol',
}


def said(crash: Crash) -> str:
    found = answer.answer(crash)
    assert found is not None
    return answer.line(found, crash.signal)


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("kind", SAID)
def test_the_value_that_was_used_as_a_pointer(kind: str) -> None:
    early: list[str] = []
    python = a_debuggable_interpreter()
    crash = analyze(
        python_crash("values.py", kind, python=python).core,
        progress=lambda stage, so_far: early.append(text.first_answer(so_far())) if stage == "gdb" else None,
    )
    assert said(crash) == SAID[kind]
    assert SAID[kind] in list(text.summary(crash, None, color=False, width=120))[1]
    assert f'<p class="said">{escape(SAID[kind])}</p>' in html.render(crash)
    assert SAID[kind] in markdown.summary(crash).replace("\\", "")
    # Before a debugger has started, the native function is not known, nor, but by ctypes' own Python code, that this is a call by ctypes.
    known = SAID[kind].rpartition(" by ")[0] if kind != "called" else SAID[kind].partition(",")[0]
    assert known in early[0].splitlines()[0]


@pytest.mark.slow
def test_the_same_without_gdb_or_debug_info() -> None:
    from crashkit.pipeline import Options

    crash = analyze(python_crash("values.py", "small", python=an_interpreter()).core, options=Options(gdb=None))
    assert said(crash).startswith("decode (values.py:8): buffer = 24, used as a pointer")


def own(function: str = "serve", **more: object) -> PythonFrame:
    return PythonFrame(function=function, file="/srv/app.py", line=4, **more)  # type: ignore[arg-type]


def crashed(**more: object) -> Thread:
    return Thread(tid=2, crashed=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (
            (Thread(tid=1, frames=(own(),)), Thread(tid=3, holds_gil=True, frames=(own("train"),))),
            "train (app.py:4) in thread 3, which held the GIL",
        ),
        ((Thread(tid=3, frames=(own("train"),)), Thread(tid=1, frames=(own(),))), "serve (app.py:4) in thread 1, the main thread"),
        ((Thread(tid=3, frames=(own("train"),)),), "train (app.py:4) in thread 3, the only one that ran Python code"),
        ((Thread(tid=3, frames=(own("a"),)), Thread(tid=4, frames=(own("b"),))), None),
        ((), None),
    ],
)
def test_the_thread_that_matters_where_the_crashed_one_ran_no_python(others: tuple[Thread, ...], expected: str | None) -> None:
    thread = crashed(frames=(NativeFrame(function="watchdog"),))
    crash = Crash(signal=Signal(number=6, name="SIGABRT"), process=Process(pid=1), threads=(thread, *others))
    if expected is None:
        assert answer.answer(crash) is None
        assert "no Python frame in this thread" in "\n".join(text.summary(crash, None, False, 100))
        return
    expected += "; the crashed thread ran no Python code"
    # Before a debugger has started, what failed is not known; that line is not where the process failed.
    assert f"; meanwhile {expected}" in text.first_answer(crash)
    expected += " and failed in watchdog"
    assert said(crash) == expected
    for shown in (" ".join("".join(text.summary(crash, None, False, 120)).split()), html.render(crash), markdown.summary(crash)):
        assert expected in shown


@pytest.mark.parametrize("truncated", [True, False])
def test_python_frames_that_could_not_be_read_are_not_denied(truncated: bool) -> None:
    thread = crashed(frames=(NativeFrame(function="watchdog"),), python_unread=True)
    crash = Crash(
        signal=Signal(number=6, name="SIGABRT"),
        process=Process(pid=1),
        threads=(thread,),
        source=Source(path="core", kind="core", truncated=truncated),
    )
    expected = "not readable: the core is truncated" if truncated else "not readable: the memory of its Python stack is damaged"
    for shown in ("\n".join(text.summary(crash, None, False, 120)), html.render(crash), markdown.summary(crash)):
        assert expected in shown and "no Python frame" not in shown
    nameless = replace(crash, threads=(crashed(frames=(PythonFrame(line=3),)),))
    assert expected.replace("not readable", "its frames cannot be named") in "\n".join(text.summary(nameless, None, False, 120))
    other = replace(crash, threads=(*crash.threads, Thread(tid=3, frames=(own("train"),))))
    expected = "train (app.py:4) in thread 3, the only one whose Python code is known; the crashed thread's Python frames are not readable"
    assert said(other) == f"{expected} and failed in watchdog"
    for shown in ("\n".join(text.summary(other, None, False, 160)), html.render(other), markdown.summary(other), text.first_answer(other)):
        assert "ran no Python" not in shown and "the only one that ran Python" not in shown


@pytest.mark.parametrize(
    ("signal", "frame", "expected"),
    [
        (None, own(source="work(a, b)", locals={"a": "1", "b": "<module 'os'>", "c": "3"}), "serve (app.py:4): a = 1"),
        (None, own(source="work('a', b.c)", locals={"a": "1", "b": "<B(c='x') at 0x7f>"}), "serve (app.py:4): b.c = 'x'"),
        ("SIGFPE", own(source="a // b", locals={"a": "7", "b": "0"}), "serve (app.py:4): b = 0"),
        # A small number that is not used in the line, and a number far from the address, are innocent.
        ("SIGSEGV", own(source="work(a)", locals={"a": "7", "b": "24"}), "serve (app.py:4): a = 7"),
        ("SIGSEGV", own(source="work(a)", locals={"a": "None"}), "serve (app.py:4): a = None"),
        ("SIGSEGV", own(source="work(a)", locals={"a": "-" + "9" * 400}), "serve (app.py:4): a = -" + "9" * 39 + "…"),
        ("SIGSEGV", own(), "serve (app.py:4)"),
    ],
)
def test_values_that_matter(signal: str | None, frame: PythonFrame, expected: str) -> None:
    number = Signal(number=11, name=signal, address=Address(24) if signal == "SIGSEGV" else None) if signal else None
    assert said(Crash(signal=number, threads=(crashed(frames=(frame,)),))) == expected


def test_the_line_of_a_dump_that_marks_no_thread(tmp_path: Path) -> None:
    """faulthandler's, of a process whose crashed thread is one of C: the only line that there is must not be missing."""
    program = tmp_path / "train.py"
    program.write_text("import faulthandler\n\ndef step():\n    faulthandler._fatal_error_c_thread()\n\nstep()\n")
    log = tmp_path / "stderr.log"
    log.write_text(subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60).stderr)
    crash = analyze(log)
    assert crash.thread is None and re.match(r"step \(train\.py:4\) in thread (?:0x|python \(0x)", said(crash)), "3.14 names it"
    for shown in (" ".join("".join(text.summary(crash, None, False, 200)).split()), html.render(crash), markdown.summary(crash)):
        assert "the only one in the dump; the dump does not say that it is the one that crashed" in shown
