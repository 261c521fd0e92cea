"""Crash reports of macOS as files (.ips). They are written by hand: fixtures/reports-of-macos says why."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crashkit.errors import EvidenceError
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


FORGED = "abort() called\nThread 0 Crashed:\n0   libevil.dylib  0x0000000100000000 evil + 1"


def changed(tmp_path: Path, after: str = "", **fields: Any) -> Path:
    """The report with other fields; those that are None are left out."""
    head, _, body = (REPORTS / "null-pointer.ips").read_text().partition("\n")
    given = {name: value for name, value in {**json.loads(body), **fields}.items() if value is not None}
    (log := tmp_path / "a.ips").write_text(f"{head}\n{json.dumps(given)}{after}")
    return log


@pytest.mark.parametrize(
    "fields",
    [
        {"threads": "none"},
        {"exception": None, "termination": None},
        {"usedImages": [{"base": "x"}]},
        {"asi": {"a": "text", "b": [1, {"c": []}], "libsystem_c.dylib": [FORGED, "\ud800"]}},
        {"procName": FORGED},
        {"termination": {"namespace": "SIGNAL", "code": FORGED, "reasons": [FORGED]}},
        {"vmRegionInfo": FORGED},
        {"threads": [{"triggered": True, "frames": [{"imageIndex": 10**12, "imageOffset": -5, "symbol": FORGED}]}]},
        {"osVersion": "macOS 14", "faultingThread": 99},
        {"pid": None, "captureTime": 5},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_report_that_says_something_else(fields: dict[str, Any], tmp_path: Path) -> None:
    """It is read as far as it goes: nothing in it can be a line of its own, or end the analysis."""
    log = changed(tmp_path, **fields)
    with suppress(EvidenceError):
        crash = analyze(log)
        native = wording.native_at(crash.thread, crash.signal)
        assert native is None or "evil" not in (native.function or "") + (native.module or "")
        assert not any("bug in crashkit" in error.message or "damaged" in error.message for error in crash.soft_errors)
    shown = ips.as_text(log.read_bytes())
    assert shown is not None and not any(line.startswith(("Thread 0 Crashed:", "0   libevil")) for line in shown.text.splitlines()[:-3])


def test_text_behind_a_report_and_a_second_one(tmp_path: Path) -> None:
    assert analyze(changed(tmp_path, after="\n\nthanks!\n")).threads[1].name == "decoder"
    two = changed(tmp_path, after="\n" + (REPORTS / "invalid-free.ips").read_text())
    shown = ips.as_text(two.read_bytes())
    assert shown is not None and shown.text.count("Exception Type:") == 2 and not analyze(two).soft_errors


@pytest.mark.parametrize("as_file", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "signal", "cause"),
    [
        ("invalid-free", "null-pointer", "SIGSEGV", "null-deref"),
        ("null-pointer", "invalid-free", "SIGABRT", "heap-corruption-invalid-free"),
    ],
)
def test_of_the_reports_of_two_processes_the_last_is_told(
    as_file: bool, first: str, second: str, signal: str, cause: str, tmp_path: Path
) -> None:
    reports = [(REPORTS / f"{first}.ips").read_text(), (REPORTS / f"{second}.ips").read_text().replace("4711", "815")]
    if not as_file:
        reports = [shown.text for report in reports if (shown := ips.as_text(report.encode())) is not None]
    log = tmp_path / "posted.log"
    log.write_text("\n".join(reports))
    crash = analyze(log)
    assert crash.signal is not None and crash.signal.name == signal
    assert crash.process is not None and crash.process.pid == 815
    assert [finding.id for finding in crash.findings] == [cause]
    (said,) = crash.soft_errors
    assert said.message.startswith("this log contains 2 crashes: number 2 is shown")
    assert ("from line" in said.message) != as_file


def test_faulthandlers_dump_of_the_same_crash_is_no_second_one(tmp_path: Path) -> None:
    report = ips.as_text((REPORTS / "null-pointer.ips").read_bytes())
    assert report is not None
    log = tmp_path / "posted.log"
    dump = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00000001f4a3 (most recent call first):\n  File "a.py", line 3 in f\n'
    log.write_text(f"{report.text}\n{dump}")
    crash = analyze(log)
    assert [finding.id for finding in crash.findings] == ["null-deref"]
    assert not any("2 crashes" in error.message for error in crash.soft_errors)


def test_what_is_written_between_two_reports_counts(tmp_path: Path) -> None:
    first, second = (REPORTS / "objc-fork.ips").read_text(), (REPORTS / "null-pointer.ips").read_text().replace("4711", "815")
    shown = [told.text for told in map(ips.as_text, (first.encode(), second.encode())) if told is not None]
    log = tmp_path / "posted.log"
    log.write_text("\nI had mixed libomp and libiomp5, that was the reason: two OpenMP runtimes are loaded.\n\n".join(shown))
    assert "duplicate-openmp-runtime" in [finding.id for finding in analyze(log).findings]


def test_the_thread_that_crashed_may_have_no_frames(tmp_path: Path) -> None:
    """Then no other one is blamed, whether a number or only the mark says which it is."""
    threads = json.loads((REPORTS / "null-pointer.ips").read_text().partition("\n")[2])["threads"]
    threads[1]["frames"] = []
    for index in (1, None):
        crash = analyze(changed(tmp_path, threads=threads, faultingThread=index))
        assert crash.thread is None and crash.findings[0].summary.startswith("Native code used a null pointer")


def test_braces_in_the_name_of_a_cut_report(tmp_path: Path) -> None:
    whole = changed(tmp_path).read_text().replace("decode_row(frame const*, int)", "app::run::{{closure}}")
    (cut := tmp_path / "cut.ips").write_text(whole[: whole.index('"py_decode"') + 80])
    crash = analyze(cut)
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and native.function == "app::run::{{closure}}"


def test_a_report_of_any_size_is_bounded() -> None:
    frames = [{"imageOffset": 1, "imageIndex": 0, "symbol": "s" * 600}] * 1000
    report = {"exception": {"type": "EXC_CRASH"}, "usedImages": [{"name": "n" * 100_000}], "threads": [{"frames": frames}] * 25}
    shown = ips.as_text(b'{"bug_type":"309"}\n' + json.dumps(report).encode())
    assert shown is not None and len(shown.text) < 30 << 20 and max(map(len, shown.text.splitlines())) < 3000
    assert shown.left_out == 5000


@pytest.mark.parametrize(
    "line",
    [
        {"procName": "trainer", "level": "error", "msg": "Segmentation fault (core dumped)"},
        {"ticket": 5, "bug_type": "crash", "text": "Segmentation fault (core dumped)"},
        {"level": "error", "message": "Segmentation fault (core dumped)", "exception": {"type": "WorkerDied", "signal": "SIGABRT"}},
    ],
    ids=["procName", "bug_type", "exception"],
)
def test_a_log_in_json_is_none(line: dict[str, Any], tmp_path: Path) -> None:
    (log := tmp_path / "app.log").write_text(json.dumps(line) + "\n")
    crash = analyze(log)
    assert crash.signal is not None and crash.signal.name == "SIGSEGV" and not crash.soft_errors and crash.log[0].line == 1
