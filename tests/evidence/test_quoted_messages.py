"""A line that only quotes a message shows none: source code with the message as a string, a change that repaired what led to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text import quoted
from crashkit.evidence.text.log import crash_of_log, read_log

MESSAGES = (
    "free(): invalid pointer",
    "double free or corruption (!prev)",
    "corrupted size vs. prev_size",
    "*** stack smashing detected ***: terminated",
    "terminate called without an active exception",
    "pure virtual method called",
    "CUDA error: device-side assert triggered",
    "Fatal Python error: deallocating None",
    "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.",
)
QUOTES = (
    'fprintf(stderr, "{}\\n");',
    'with pytest.raises(RuntimeError, match="{}"):',
    "    assert_in('{}', stderr)",
    'raise RuntimeError("{}")',
    'if stderr.contains("{}") {{',
    'PATTERNS = ["core dumped", "{}", "Bus error"]',
    'grep(b"{}", log)',
    "- Fixed {} on exit",
    "Avoid `{}` when the file is empty",
    "Prevents: {}",
    "- fix: {} when the file is missing",
    "fix(io): {} at exit",
    "* Fixed: {}",
    "- bug fix: {}",
    "- {} on exit is fixed",
    'It would be nice if it raised an exception where it now says "{}".',
    'An error such as "{}" means that memory was freed twice.',
    "If you see `{}`, update the driver.",
    "    // {} if the destructor runs twice",
    "- {} \u2014 reinstall the driver",
    "* `{}` => the library is too old",
    "| {} | not enough memory |",
    "{} is just a warning that it prints when it is closed",
    "`{}` means that memory was freed twice",
    'std::cerr << "{}" << std::endl;',
    'After an update it may print "{}".',
)
PRINTED = (
    "{}",
    "2024-01-01 10:00:00 ERROR app: {}",
    'RuntimeError("{}")',
    "Exception: torch.AcceleratorError('{}')",
    'time=12 level=error msg="{}" pid=3',
    '{{"level": "error", "message": "{}"}}',
    'write(2, "{}\\n", 24) = 24',
    "python: {}",
    "- {}",
    "1. {}",
    "worker-1 | {}",
    'I get "{}" when I close the window.',
    "What does `{}` mean?",
    ">   raise_from(x)\nE   RuntimeError: {}",
)


GOES_ON = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (caught, batch size is now 32)\nstep 12 loss 0.3",
    "torch.cuda.OutOfMemoryError: CUDA out of memory.\nretrying with a smaller batch",
    "RuntimeError: can't start new thread\nfalling back to a single thread",
    "ImportError: /usr/lib/libfoo.so: undefined symbol: _ZN3fooEv\nfalling back to the implementation in Python",
    "Warning! ***HDF5 library version mismatched error***\nheaders are 1.10.4, library is 1.10.6: continuing",
)
ENDS = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\nprocess ended",
    "*** caught segfault ***\naddress 0x10, cause 'memory not mapped'",
    "WARNING: x\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  retries are used up\n",
)


SURVIVED = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "[W502 socket.cpp:752] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 111 - Connection refused).",
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 9010).",
    "n1:33:44 [0] NCCL WARN NET/IB : Got async event : port error",
    "MemoryError: Unable to allocate 3.7 GiB for an array with shape (1000, 500000) and data type float64",
)
OWN_END = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nKeyError: 'labels'"
CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"
ABORTED = ("Windows fatal exception: access violation", "free(): invalid pointer", "Fatal Python error: deallocating None")


@pytest.mark.parametrize("end", [OWN_END, "Training complete.", "Process finished with exit code 0"])
@pytest.mark.parametrize("message", SURVIVED)
def test_what_was_outlived(message: str, end: str, tmp_path: Path) -> None:
    assert set(_confidences(f"{message}\nEpoch 1: 40%\nEpoch 2: 80%\n{end}", tmp_path)) <= {"possible"}


@pytest.mark.parametrize("end", [OWN_END, f"{CHAINED}{OWN_END}", f"Epoch 1: 40%{CHAINED}{OWN_END}", f"{OWN_END}\nSegmentation fault", ""])
def test_what_was_not(end: str, tmp_path: Path) -> None:
    assert not set(_confidences(f"{SURVIVED[0]}\n{end}", tmp_path)) <= {"possible"} or "Segmentation" in end


@pytest.mark.parametrize(
    "end",
    [
        OWN_END.replace("KeyError: 'labels'", "AttributeError: 'NoneType' object has no attribute 'eval'"),
        OWN_END.replace("KeyError: 'labels'", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        "cleaning up\nDone",
    ],
)
def test_what_may_follow_from_it(end: str, tmp_path: Path) -> None:
    assert "certain" in _confidences(f"{SURVIVED[0]}\nloading the model failed\n{end}", tmp_path)


def test_a_panic_in_a_text_that_is_too_long_for_its_rows(tmp_path: Path) -> None:
    text = "2024-01-01 INFO a request was served by this worker, and all is well\n" * 1500
    assert _confidences(f"{text}panic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:", tmp_path) == ["certain"]


@pytest.mark.parametrize("message", (*SURVIVED, *ABORTED))
def test_what_happened_in_tests_that_passed(message: str, tmp_path: Path) -> None:
    passed = f"tests/test_a.py::test_expected {message}\nPASSED\n"
    assert set(_confidences(f"{passed}====== 12 passed in 3.33s ======", tmp_path)) <= {"possible"}


@pytest.mark.parametrize("message", ABORTED[1:])  # the other one may be handled
@pytest.mark.parametrize("summary", ["====== 1 failed, 12 passed in 3.33s ======", "Aborted (core dumped)", "Epoch 3\nTraining complete."])
def test_what_did_not_pass(message: str, summary: str, tmp_path: Path) -> None:
    assert not set(_confidences(f"{message}\n{summary}", tmp_path)) <= {"possible"}


@pytest.mark.parametrize("text", GOES_ON)
def test_a_program_that_says_that_it_goes_on(text: str, tmp_path: Path) -> None:
    assert set(_confidences(text, tmp_path)) <= {"possible"}


@pytest.mark.parametrize("text", ENDS)
def test_a_program_that_does_not(text: str, tmp_path: Path) -> None:
    assert not set(_confidences(text, tmp_path)) <= {"possible"}


@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("message", MESSAGES)
def test_quoted(quote: str, message: str, tmp_path: Path) -> None:
    assert set(_confidences(quote.format(message), tmp_path)) <= {"possible"}


@pytest.mark.parametrize("quote", [quote for quote in QUOTES if "'{}'" not in quote])
def test_quoted_with_marks_of_its_own(quote: str, tmp_path: Path) -> None:
    message = "terminate called after throwing an instance of 'c10::Error'"
    assert set(_confidences(quote.format(message), tmp_path)) <= {"possible"}


@pytest.mark.parametrize("wrapping", PRINTED)
@pytest.mark.parametrize("message", MESSAGES)
def test_printed(wrapping: str, message: str, tmp_path: Path) -> None:
    text = wrapping.format(message)
    assert not any(quoted.how(line, "x", lambda piece: "x" if message in piece else None) for line in text.splitlines()), text


def _confidences(text: str, folder: Path) -> list[str]:
    path = folder / "posted.txt"
    path.write_text(text + "\n")
    return [finding.confidence for finding in diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings]
