"""Claims about crashes of native code below a Python line, of programs of which the cause is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.model import Crash, NativeFrame
from crashkit.pipeline import analyze

from ..crashes import Interpreter, an_interpreter, build_library, library_crash, needs_gdb, needs_x86_64, python_crash, some_interpreters

pytestmark = [needs_x86_64(), needs_gdb]
CALLS = """
import ctypes
def work(library):
    {call}
work(ctypes.CDLL({{library!r}}))
"""


def crash_of(call: str, folder: Path) -> Crash:
    return analyze(library_crash("misused.c", CALLS.format(call=f"library.{call}"), folder, an_interpreter()).core)


def all_of(crash: Crash) -> str:
    finding = crash.findings[0]
    return " ".join([finding.title, finding.summary or "", finding.cause or "", *finding.fix])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "known", "wanted", "unwanted"),
    [
        ("overflow_on_the_heap()", ("stack-smashing", "certain"), "buffer overflow detected", "Stack buffer"),
        ("percent_n(b'x')", ("libc-fatal", "certain"), 'printf("%s", text)', "PYTHONMALLOC"),
        ("interrupt()", ("privileged-instruction", "certain"), "interrupt", "ioperm"),
        ("guarded()", ("guarded-memory", "certain"), "guarded in misused.so", "was never"),
        ("given_back()", ("unmapped-access", "certain"), "free() unmaps large blocks", "was never a pointer"),
        ("write_empty_file(b'empty')", ("mmap-file-truncated-sigbus", "certain"), "ftruncate(", "read the file instead"),
        ("read_empty_file(b'empty')", ("mmap-file-truncated-sigbus", "certain"), "read the file instead", "ftruncate("),
        ("unopened(b'/no/such')", ("null-deref", "certain"), "did not check a result", "was used as a pointer there"),
        ("never_set()", ("longjmp-bad-buffer", "certain"), "never filled by setjmp()", "--asan"),
        ("queued(11)", ("self-signal", "certain"), "sent SIGSEGV to its own process, by queued", "--asan"),
        ("queued(6)", ("self-signal", "certain"), "sent SIGABRT to its own process, by queued", "gave up"),
        ("coroutine()", ("stack-overflow", "certain"), "Give it a larger stack: this one has 32 KiB", "threading.stack_size"),
    ],
)
def test_the_first_finding(call: str, known: tuple[str, str], wanted: str, unwanted: str, tmp_path: Path) -> None:
    crash = crash_of(call, tmp_path)
    assert crash.findings, crash.signal
    assert (crash.findings[0].id, crash.findings[0].confidence) == known
    assert wanted in all_of(crash) and unwanted not in all_of(crash)


@pytest.mark.slow
def test_a_timer(tmp_path: Path) -> None:
    """The kernel names the timer where it else names a sender."""
    build_library("misused.c", tmp_path, an_interpreter())
    program = tmp_path / "program.py"
    program.write_text(CALLS.format(call="library.timer()").format(library=str(tmp_path / "misused.so")))
    crash = analyze(python_crash(program, python=an_interpreter(), faulthandler=False).core)
    assert crash.signal is not None and (crash.signal.reason, crash.signal.sender_pid) == ("timer", None)
    assert (crash.findings[0].id, crash.findings[0].confidence) == ("own-timer", "certain")
    assert "timer_create() sent SIGABRT" in (crash.findings[0].summary or "")


@pytest.mark.slow
def test_what_lies_before_a_guard(tmp_path: Path) -> None:
    crash = crash_of("guarded()", tmp_path)
    assert crash.signal is not None and "allows no access, directly after the anonymous memory (rw-)" in (crash.signal.detail or "")


@pytest.mark.slow
def test_a_number_is_no_null_pointer(tmp_path: Path) -> None:
    program = tmp_path / "orders.py"
    program.write_text(
        "import ctypes\nlibc, count, buffer = ctypes.CDLL(None), 4711, ctypes.create_string_buffer(64)\n"
        "def label(number):\n    libc.sprintf(buffer, b'order %s', number)\nlabel(count)\n"
    )
    crash = analyze(python_crash(program, python=an_interpreter()).core)
    assert crash.signal is not None and ": 4711 was used as a pointer: a number, or a null pointer plus " in (crash.signal.detail or "")
    assert " used the number 4711 as a pointer (fault address " in (crash.findings[0].summary or "")


@pytest.mark.slow
def test_minus_one_need_not_be_an_error(tmp_path: Path) -> None:
    signal = crash_of("minus_one()", tmp_path).signal
    assert signal is not None and "or memory that is filled with 0xff" in (signal.detail or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "pending"),
    [
        ("attribute(4)", "AttributeError(\"'int' object has no attribute 'no_such_attribute'\")"),
        pytest.param("module('no.such')", "ModuleNotFoundError(\"No module named 'no'\")", marks=pytest.mark.long),
        ("arguments(('of', 7))", "ValueError('of', 7)"),
        pytest.param("arguments('one')", "ValueError('one')", marks=pytest.mark.long),
        ("nothing(4)", None),
    ],
)
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"))
def test_an_exception_that_nobody_looked_at(call: str, pending: str | None, python: Interpreter, tmp_path: Path) -> None:
    """It is why there was a null pointer."""
    build_library("unchecked.c", tmp_path, python)
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport unchecked\nunchecked.{call}\n")
    crash = analyze(python_crash(program, python=python).core)
    assert crash.thread is not None and crash.thread.pending == pending
    finding = crash.findings[0]
    if pending is None:
        assert finding.id == "null-deref"
    else:
        assert (finding.id, finding.confidence) == ("unchecked-api-error", "likely")
        assert pending in (finding.summary or "") and f"raises the {pending.partition('(')[0]}" in finding.fix[0]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "known"), [("null_by_jump", "null-function-call"), ("wild_by_jump", "jump-to-unmapped")])
@pytest.mark.parametrize("faulthandler", [False, True])
def test_a_tail_call_through_a_wrong_pointer(call: str, known: str, faulthandler: bool, tmp_path: Path) -> None:
    """What jumped there left no frame; the call before the return address names it."""
    build_library("misused.c", tmp_path, an_interpreter())
    program = tmp_path / "program.py"
    program.write_text(CALLS.format(call=f"library.{call}(3)").format(library=str(tmp_path / "misused.so")))
    crash = analyze(python_crash(program, python=an_interpreter(), faulthandler=faulthandler).core)
    assert crash.thread is not None and crash.signal is not None
    frames = [frame for frame in crash.thread.frames if isinstance(frame, NativeFrame)]
    at = next(index for index, frame in enumerate(frames) if frame.pc == crash.signal.address)
    assert [frame.function for frame in frames[at + 1 : at + 3]] == ["jumps", call] and frames[at + 1].trust == "tail-call"
    assert crash.findings[0].id == known
    assert any("jumps in misused.so" in fix for fix in crash.findings[0].fix)


@pytest.mark.slow
def test_a_call_has_its_frame(tmp_path: Path) -> None:
    crash = crash_of("null_by_call(3)", tmp_path)
    assert crash.thread is not None and crash.findings[0].id == "null-function-call"
    assert not any(isinstance(frame, NativeFrame) and frame.trust == "tail-call" for frame in crash.thread.frames)
    assert "null_by_call in misused.so" in crash.findings[0].fix[0]
