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
    "Illegal instuction (core dumped)": "SIGILL",
    "it ends with segmentation  fault (core dumped)": "SIGSEGV",
    "Jupyter kernel keeps dying when I run model.fit": None,
    "Python has encountered a problem and needs to close": None,
    "The terminal process terminated with exit code: 3221226091": None,
    "Microsoft Visual C++ Runtime Library: this application has requested the Runtime to terminate it in an unusual way": None,
    "it returns 139": "SIGSEGV",
    "exit code was -11": "SIGSEGV",
    "fails with signal 6": "SIGABRT",
    "Got SEGV": "SIGSEGV",
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
        "this text only mentions a crash (line 1): no line of a shell, a runtime or the kernel shows one"
    ]
    findings = diagnose(crash_of_log(path, found), load_catalog()).findings
    assert [finding.id for finding in findings if finding.confidence != "possible"] == []


def test_a_misspelt_signal_below_a_stack(tmp_path: Path) -> None:
    stack = "#0  0x00007f1b2a3c4d5e in compute_forces () from /usr/lib/libforce.so\n#1  0x000055d5f9a1b111 in main ()"
    found = read_log(_written(f"{stack}\nIllegal instuction (core dumped)", tmp_path))
    assert found.signal is not None and found.signal.name == "SIGILL"


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
        "the output was killed by a reviewer's remark",
        "it prints how many enemies were killed",
        "0 workers crashed",
        "the crash reporter was started",
        "no crash so far",
        "how to debug crashes",
        "feat: add crash recovery for workers",
        "Aborted!",
        "it may be a segfault",
        "epoch 1 loss 0.3 crash_rate=0.0",
        "https://stackoverflow.com/questions/1",
        "see the Stack Overflow question",
        "handles a crash in the worker",
        "avoids a crash on exit",
    ],
)
def test_what_is_not_said(text: str, tmp_path: Path) -> None:
    """Its words are those of a crash, so it is a report; nothing is concluded from them (mentions.py)."""
    path = _written(text, tmp_path)
    found = read_log(path)
    assert ({line.kind for line in found.lines}, found.signal, found.process) == ({"mentioned"}, None, None)
    assert diagnose(crash_of_log(path, found), load_catalog()).findings == ()


BROKEN = {
    "RuntimeError: DataLoader worker (pid 47) is killed by signal: Bus\nerror. It is possible that": ("worker-bus-error", 1),
    "it says\nterminate called after throwing an\ninstance of 'std::bad_alloc'": ("terminate", 2),
    "The server socket has failed to listen on any local network\naddress.": ("rendezvous", 1),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_message_broken_over_two_lines(text: str, tmp_path: Path) -> None:
    """It is the program's: what is claimed of it is as certain as of a whole one."""
    found = read_log(_written(text, tmp_path))
    assert ([(line.kind, line.line) for line in found.lines], found.soft_errors) == ([BROKEN[text]], ())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "RuntimeError: NCCL error in:\n/pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:784, unhandled\nsystem error, NCCL version 2.7.8",
            "nccl-error",
        ),
        (
            "python[811]: segfault at 8 ip\n00007ffa7b8c855a sp 00007ffe07639160 error 4\nin libfoo.so.5[7ffa7b83e000+8d000]",
            "kernel-segfault",
        ),
    ],
)
def test_a_message_broken_over_three_lines(text: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "posted.txt"
    path.write_text(f"Hello,\n\n{text}\n\nany idea?\n")
    assert kind in [line.kind for line in read_log(path).lines]


def test_lines_with_an_empty_one_between_them_are_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "posted.txt"
    path.write_text("RuntimeError: NCCL error in:\n\n/pytorch/ProcessGroupNCCL.cpp:784, unhandled\nsystem error\n")
    assert "nccl-error" not in [line.kind for line in read_log(path).lines]


TYPED = {
    "llvm error: out of memory": "llvm-abort",
    "libc++abi: Terminating with uncaught exception of type std::bad_cast": "cxx-uncaught-exception",
    "worker exited prematurely: Signal 11": "supervisor-worker-crashed",
    "this application failed to start because no qt platform plugin could be initialized. reinstalling may fix it.": "qt-platform-plugin",
}


@pytest.mark.parametrize("text", TYPED)
def test_a_message_typed_in_other_letters(text: str, tmp_path: Path) -> None:
    """Somebody typed it: no more than possible."""
    found = read_log(_written(text, tmp_path))
    findings = diagnose(crash_of_log(tmp_path / "posted.txt", found), load_catalog()).findings
    assert [(finding.id, finding.confidence) for finding in findings][:1] == [(TYPED[text], "possible")]
    assert len(found.soft_errors) == 1


def test_a_long_text_is_not_searched_for_what_was_typed(tmp_path: Path) -> None:
    path = _written("an ordinary line\n" * 1000 + "llvm error: out of memory", tmp_path)
    assert [(line.kind, line.line) for line in read_log(path).lines] == [("mentioned", 1001)]


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
    assert any("only mentions a crash" in error.message for error in crash.soft_errors)


PATCH = """\
docs/troubleshooting.rst
+A job that ends like this was preempted:
+
+  slurmstepd: error: *** JOB 32391783 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO PREEMPTION ***
+
+Submit it again.
"""


def test_what_a_patch_adds_is_nobody_s_output(tmp_path: Path) -> None:
    """A page or a test quotes messages; a shell's trace (`set -x`) has a plus before commands, not before what they print."""

    def confidence(text: str) -> str:
        (tmp_path / "a.log").write_text(text)
        crash = analyze(tmp_path / "a.log")
        return next(finding.confidence for finding in crash.findings if finding.id == "slurm-job-cancelled")

    printed = PATCH.splitlines()[3].removeprefix("+  ")
    assert confidence(PATCH) == "possible"
    assert confidence(f"+ cd /srv\n+ srun python train.py\n{printed}\n") == "certain"
