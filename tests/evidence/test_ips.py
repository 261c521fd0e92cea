"""Crash reports of macOS as files (.ips). They are written by hand: fixtures/reports-of-macos says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crashkit.evidence.text import ips
from crashkit.model import Crash
from crashkit.naming.functions import plain
from crashkit.pipeline import analyze
from crashkit.report import text, wording

REPORTS = Path(__file__).parent.parent.parent / "fixtures" / "reports-of-macos"
ON_LINUX_ONLY = ("crashkit run", "LD_", "valgrind", "coredumpctl", "dmesg", "/proc/", "ulimit")


def steps(crash: Crash) -> str:
    return "\n".join((*crash.next_steps, *(fix for finding in crash.findings for fix in (*finding.fix, *finding.next_steps))))


@pytest.mark.parametrize(
    ("name", "signal", "cause", "function", "tells"),
    [
        ("null-pointer", "SIGSEGV", "null-deref", "decode_row", "decode.cpp:88"),
        ("invalid-free", "SIGABRT", "heap-corruption-invalid-free", "release_row", "pointer being freed was not allocated"),
        ("objc-fork", "SIGABRT", "macos-objc-fork", "__abort_with_payload", "NSCharacterSet"),
    ],
)
def test_a_report(name: str, signal: str, cause: str, function: str, tells: str) -> None:
    crash = analyze(REPORTS / f"{name}.ips")
    native = wording.native_at(crash.thread, crash.signal)
    assert crash.signal is not None and crash.signal.name == signal
    assert native is not None and plain(native.function or "") == plain(function)
    assert crash.findings[0].id == cause and crash.findings[0].confidence == "certain"
    assert crash.process is not None and crash.process.pid == 4711 and crash.process.executable is not None
    assert crash.process.executable.endswith("/MacOS/Python")
    screen = "\n".join(text.summary(crash, None, color=False, width=120))
    assert tells in screen and "log ends" not in screen and not crash.soft_errors
    assert all(line.line is None for line in crash.log), "its lines are not those of the file"
    assert not any(word in steps(crash) for word in ON_LINUX_ONLY), steps(crash)


def test_its_threads_and_address() -> None:
    crash = analyze(REPORTS / "null-pointer.ips")
    assert [(thread.name, thread.crashed) for thread in crash.threads] == [("com.apple.main-thread", False), ("decoder", True)]
    assert crash.signal is not None and crash.signal.address == 0x10
    frames = list(crash.threads[1].natives())
    assert [frame.function for frame in frames][1:] == ["py_decode", "cfunction_call", None]
    assert (frames[3].module, frames[3].offset) == ("Python", 30000), "of a function that it does not know, the place in the module"


@pytest.mark.parametrize("part", [0.3, 0.45, 0.55, 0.75, 0.95])
def test_of_a_cut_one_the_crashed_thread_or_none(part: float, tmp_path: Path) -> None:
    whole = (REPORTS / "null-pointer.ips").read_bytes()
    (cut := tmp_path / "Python.ips").write_bytes(whole[: int(len(whole) * part)])
    crash = analyze(cut)
    assert crash.signal is not None and (crash.signal.name, crash.signal.address) == ("SIGSEGV", 0x10)
    assert [finding.id for finding in crash.findings] == ["null-deref"]
    native = wording.native_at(crash.thread, crash.signal)
    assert native is None or plain(native.function or "") == "decode_row"
    assert any("cut off or damaged" in error.message for error in crash.soft_errors)


def test_frames_that_were_pasted_alone(tmp_path: Path) -> None:
    (log := tmp_path / "posted.txt").write_text(
        'It crashes when the mouse moves:\n"queue":"com.apple.main-thread","frames":[{"imageOffset":1407,"imageIndex":0},\n'
        '{"imageOffset":28946,"symbol":"__pthread_kill","symbolLocation":10,"imageIndex":1},\n'
        '{"imageOffset":531728,"symbol":"abort","symbolLocation":123,"imageIndex":2},\n'
        '{"imageOffset":2147987,"symbol":"fatal_error","symbolLocation":51,"imageIndex":3},\n'
        '{"imageOffset":2153304,"symbol":"_Py_FatalErrorFormat","symbolLocation":280,"imageIndex":3},\n'
        '{"imageOffset":2164609,"symbol":"PyGILState_Release","symbolLocation":257,"imageIndex":3},\n'
        '{"imageOffset":1279385,"symbol":"wxPyCallback::EventThunker(wxEvent&)","symbolLocation":553,"im\n'
    )
    crash = analyze(log)
    assert crash.findings[0].id == "gil-not-held" and crash.signal is not None and crash.signal.name == "SIGABRT"
    assert len(crash.threads) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"threads": "none"},
        {"exception": None},
        {"usedImages": [{"base": "x"}]},
        {"asi": {"a": "text", "b": [1, {"c": []}]}},
        {"procName": "a\nThread 0 Crashed:\n0 b 0x1 c + 1"},
        {"threads": [{"frames": [{"imageIndex": 10**12, "imageOffset": -5}]}]},
        {"osVersion": {"train": ["x"]}, "faultingThread": 99},
    ],
)
def test_a_report_that_says_something_else(changed: dict[str, Any], tmp_path: Path) -> None:
    """It is read as far as it goes, or not at all: nothing in it can be a line of its own, or end the analysis."""
    head, _, body = (REPORTS / "null-pointer.ips").read_text().partition("\n")
    (log := tmp_path / "a.ips").write_text(f"{head}\n{json.dumps({**json.loads(body), **changed})}")
    crash = analyze(log)
    assert crash.signal is not None or "exception" in changed or "threads" in changed
    assert not any("bug in crashkit" in error.message for error in crash.soft_errors)
    shown = ips.as_text(log.read_bytes())
    assert shown is None or sum(line.startswith("Thread 0 Crashed") for line in shown.splitlines()) == 0
