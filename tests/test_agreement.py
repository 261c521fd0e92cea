"""The report, the findings and the fingerprint name the same line for the same crash."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.diagnose.case import Case
from crashkit.diagnose.fingerprint import fingerprint
from crashkit.diagnose.stable_names import python_name
from crashkit.diagnose.texts import names
from crashkit.model import Crash, Frame, NativeFrame, PythonFrame, Signal, Thread
from crashkit.pipeline import analyze
from crashkit.report import json as report_json
from crashkit.report import text, wording
from tests.crashes import GUARDS_ITS_STACK, an_interpreter, needs_x86_64, python_crash
from tests.naming.test_own_code import NOT_OWN, OWN
from tests.report import samples

GPU = Path(__file__).parent.parent / "fixtures" / "gpu"
OWN_CODE = "the user's own code"


def crashed(*frames: Frame) -> Crash:
    signal = Signal(number=11, name="SIGSEGV", code=1, code_name="SEGV_MAPERR")
    return Crash(signal=signal, crashed_thread=1, threads=(Thread(tid=1, crashed=True, frames=frames),))


def told_by_report(crash: Crash) -> str | None:
    """`FILE:LINE` (own code is given in full) of the line that the summary on the terminal calls one's own."""
    if crash.thread is None:
        return None  # Its line is that of a thread of which nobody says that it crashed: nothing may rest on it.
    labels = {line[2:12].strip(): line[12:].split("  ") for line in text.summary(crash, None, color=False, width=10_000)}
    own = labels.get("your code")
    if own is None:
        inner = wording.python_at(crash.thread)
        own = labels.get("python") if inner is not None and wording.own_at(crash.thread) is inner else None
    return own[1] if own else None


def told_by_findings(crash: Crash) -> str | None:
    """The same of `{python}`, where it is one's own."""
    told = names(Case(crash)).get("python")
    return told.rpartition(" in ")[0] if told else None


def told_by_fingerprint(crash: Crash) -> str | None:
    """The name of the innermost frame that it took as one's own."""
    notes = [note.removeprefix("took ") for note in fingerprint(crash).notes]
    return next((note.removesuffix(f": {OWN_CODE}") for note in notes if note.endswith(OWN_CODE)), None)


LIBRARY = PythonFrame(file="/usr/lib/python3.11/ctypes/__init__.py", line=519, function="string_at")
OUTER = PythonFrame(file="/srv/outer.py", line=2, function="outer")


@pytest.mark.parametrize(("file", "function"), OWN)
def test_own_code_is_named_by_all(file: str, function: str) -> None:
    frame = PythonFrame(file=file, line=7, function=function)
    crash = crashed(NativeFrame(function="strlen", module="/lib/libc.so.6"), LIBRARY, frame, OUTER)
    assert told_by_report(crash) == f"{file}:7"
    assert told_by_findings(crash) == f"{file}:7"
    assert told_by_fingerprint(crash) == python_name(frame)


@pytest.mark.parametrize(("file", "function"), NOT_OWN)
def test_other_code_is_passed_over_by_all(file: str | None, function: str) -> None:
    other = PythonFrame(file=file, line=7, function=function)
    crash = crashed(NativeFrame(function="strlen", module="/lib/libc.so.6"), other, OUTER)
    assert told_by_report(crash) == "/srv/outer.py:2"
    assert told_by_findings(crash) == "/srv/outer.py:2"
    assert told_by_fingerprint(crash) == "outer.outer"


FRAMES = st.one_of(
    st.sampled_from([*OWN, *NOT_OWN]).map(lambda pair: PythonFrame(file=pair[0], function=pair[1], line=1)),
    st.sampled_from(["strlen", "raise", "abort", "_PyEval_EvalFrameDefault", "shop::buy", None]).map(
        lambda name: NativeFrame(function=name)
    ),
    st.just(NativeFrame(function="<signal handler called>", trust="signal")),
)


@given(st.lists(FRAMES, max_size=8))
def test_any_stack(frames: list[Frame]) -> None:
    agree(crashed(*frames))


def agree(crash: Crash) -> PythonFrame | None:
    """The one line that all name, where there is one."""
    thread = crash.thread
    if thread is None:
        # Nobody names a line then; the fingerprint of a hang may still be made of its only thread.
        assert told_by_report(crash) is None and told_by_findings(crash) is None
        return None
    own = wording.own_at(thread)
    shown = own or wording.python_at(thread)
    assert names(Case(crash)).get("python") == (f"{shown.file}:{shown.line} in {shown.function}" if shown else None)
    if own is None:
        assert told_by_fingerprint(crash) is None
    elif fingerprint(crash).frames[:1] != ("recursion",) and own.function not in ("<listcomp>", "<setcomp>", "<dictcomp>"):
        assert told_by_fingerprint(crash) == python_name(own)
    return own


@cache
def real(script: str, *arguments: str) -> Crash:
    return analyze(python_crash(script, *arguments, python=an_interpreter()).core)


@pytest.mark.slow
@needs_x86_64()
@pytest.mark.parametrize(
    ("script", "argument", "line"),
    [
        *(("faults.py", kind, "faults.py") for kind in ("null", "wild", "read_only", "divide", "double_free", "abort")),
        *([] if an_interpreter().version >= GUARDS_ITS_STACK else [("faults.py", "python_overflow", "faults.py")]),
        ("threads.py", None, "threads.py"),
        ("asyncio_tasks.py", None, "asyncio_tasks.py"),
    ],
)
def test_real_crashes(script: str, argument: str | None, line: str) -> None:
    own = agree(real(script, *([argument] if argument else [])))
    assert own is not None and own.file is not None and own.file.endswith(line)


def test_a_crash_that_names_its_thread_by_tid_only() -> None:
    frame = PythonFrame(file="/srv/app.py", line=7, function="f")
    crash = Crash(crashed_thread=2, threads=(Thread(tid=1, frames=(OUTER,)), Thread(tid=2, frames=(frame,))))
    assert agree(crash) is frame
    assert told_by_report(crash) == told_by_findings(crash) == "/srv/app.py:7"


@pytest.mark.parametrize("report", sorted((GPU / "reports").glob("*.json")), ids=lambda path: path.stem)
def test_reports_of_real_gpu_crashes(report: Path) -> None:
    agree(report_json.decode(report.read_bytes()))


@pytest.mark.parametrize("log", sorted((GPU / "logs").glob("*.log")), ids=lambda path: path.stem)
def test_real_logs(log: Path) -> None:
    agree(analyze(log))


@pytest.mark.parametrize("name", samples.ALL)
def test_samples(name: str) -> None:
    agree(samples.ALL[name]())
