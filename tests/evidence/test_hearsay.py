"""What somebody says of a crash counts where a text is all there is, and says no more than it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.input import open_input
from crashkit.evidence.text.log import crash_of_log, read_crashes, read_log, read_log_input
from crashkit.pipeline import analyze

SAID = {
    "Bus error happened within these code.": "SIGBUS",
    "Segfault error 4 in libc.so.6": "SIGSEGV",
    "python3 segfaults since the update": "SIGSEGV",
    "I showed a segmention fault when running it": "SIGSEGV",
    "It ends in a Segmentation Fault on Ubuntu": "SIGSEGV",
    "my training dies: SIGBUS": "SIGBUS",
    "An illegal instruction on my old laptop": "SIGILL",
    "it is a floating point exception": "SIGFPE",
    "Abort trap on my Mac": "SIGABRT",
    "the program dumped core": None,
    'The terminal shows the message "KILLED" only': "SIGKILL",
    "the program stops running and says killed": "SIGKILL",
    'a window: "Python quit unexpectedly"': None,
    "python.exe has stopped working": None,
    "The program has crashed.": None,
    "my process dies silently with no error": None,
    "Python crashes on import torch": None,
    "Crash when opening a second window": None,
    "it crashes without any error message": None,
    "CrashLoopBackOff": None,
    "a Seg Fault, then a seg-fault again": "SIGSEGV",
    "SIGSEV after an update": "SIGSEGV",
    "Segmentation faut on Ubuntu": "SIGSEGV",
    "the training gets killed after an hour": "SIGKILL",
    "Loading model...Killed": "SIGKILL",
    "Loading model...Aborted": "SIGABRT",
}


def _written(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "posted.txt"
    path.write_text(text + "\n")
    return path


@pytest.mark.parametrize("text", SAID)
def test_what_is_said(text: str, tmp_path: Path) -> None:
    path = _written(text, tmp_path)
    found = read_log(path)
    assert (found.signal.name if found.signal else None) == SAID[text]
    assert [error.message for error in found.soft_errors] == [
        "this text only speaks of a crash (line 1): no line of a shell, a runtime or the kernel shows one"
    ]
    findings = diagnose(crash_of_log(path, found), load_catalog()).findings
    assert [finding.id for finding in findings if finding.confidence != "possible"] == []


@pytest.mark.parametrize(
    "text",
    [
        "the handler for SIGSEGV was installed",
        "faulthandler: SIGSEGV SIGFPE SIGABRT SIGBUS SIGILL",
        "Fixed a segfault in the parser",
        "this avoids a bus error on ARM",
        "no core dumped",
        "if it receives SIGABRT it writes its state",
        "kill(4711, SIGSEGV) = 0",
        "segments: 12, faults: 0",
        "the output was killed by a reviewer's remark",
        "it prints how many enemies were killed",
        "0 workers crashed",
        "the crash reporter was started",
        "no crash so far",
        "handles a crash in the worker",
        "avoids a crash on exit",
        "Aborted!",
    ],
)
def test_what_is_not_said(text: str, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError):
        read_log(_written(text, tmp_path))


def test_a_line_of_a_program_counts_more(tmp_path: Path) -> None:
    text = "somebody told of a bus error\npython: a.c:1: f: Assertion `x' failed.\nit may be a segfault"
    found = read_log(_written(text, tmp_path))
    assert [line.kind for line in found.lines] == ["c-assert"] and found.signal is not None and found.signal.name == "SIGABRT"
    assert found.soft_errors == ()


def test_not_beside_other_evidence_nor_in_a_search(tmp_path: Path) -> None:
    path = _written("somebody told of a segfault", tmp_path)
    with open_input(path) as source:
        assert read_crashes(source) == ()
        with pytest.raises(EvidenceError):
            read_log_input(source)


def test_the_report_says_so(tmp_path: Path) -> None:
    crash = analyze([_written("Bus error when testing", tmp_path)])
    assert crash.signal is not None and crash.signal.name == "SIGBUS"
    assert any("only speaks of a crash" in error.message for error in crash.soft_errors)
