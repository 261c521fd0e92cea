"""How lines are found, freed of what carriers put around them, and told apart by process."""

# ruff: noqa: E501

from __future__ import annotations

import contextlib
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.errors import EvidenceError
from crashkit.evidence.text import formats, skim
from crashkit.evidence.text.log import MOST_LINES, MOST_OF_A_KIND, read_log
from crashkit.evidence.text.log_patterns import Classifier, line_patterns, literals
from crashkit.evidence.text.prefixes import clean, strip
from crashkit.pipeline import analyze

DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 (most recent call first):
  File "/srv/app.py", line 10 in infer
  File "/srv/app.py", line 20 in main

Thread 0x00007f0000000002 (most recent call first):
  File "/srv/app.py", line 30 in wait
"""
ASSERT = "../aten/src/ATen/native/cuda/Loss.cu:242: nll_loss_forward: block: [1,0,0], thread: [7,0,0] Assertion `t >= 0 && t < n_classes` failed."
BENIGN = "INFO step 17 loss 0.3 lr 0.001\n"


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "stderr.log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("prefix", "who"),
    [
        ("2026-11-20T23:12:00.123456789Z ", ""),
        ("2026-11-20T23:12:00.123456789+01:00 stderr F ", ""),
        ("[rank3]: ", "rank3"),
        ("[default0]:", "default0"),
        ("[default0]:[rank0]: ", "default0 rank0"),
        ("[0]: ", "0"),
        ("[0]:", "0"),
        ("[1,3]<stderr>: ", "1,3"),
        ("3: ", "3"),
        ("[pod/trainer-0/main] ", "pod/trainer-0/main"),
        ("worker-1  | ", "worker-1"),
        ("(EngineCore pid=4711) ", "EngineCore pid=4711"),
        ("2026-11-20T23:12:00Z [rank1]: ", "rank1"),
        ("\x1b[36m[rank1]:\x1b[0m ", "rank1"),
        ("Nov 20 23:12:00 gpu17 python[811]: ", "python[811]"),
        ("Nov 20 23:12:00 gpu17 kernel: [12345.678901] ", ""),
    ],
)
def test_prefixes(prefix: str, who: str, tmp_path: Path) -> None:
    text = "".join(f"{prefix}{line}\n" for line in DUMP.splitlines())
    evidence = read_log(written(tmp_path, text))
    assert evidence.lines[0].text == "Fatal Python error: Segmentation fault"
    assert (evidence.lines[0].process or "") == who
    assert [[frame.line for frame in thread.pythons()] for thread in evidence.threads] == [[10, 20], [30]]


@pytest.mark.parametrize(
    "line", ["12 | some table", "std::vector<int>: x", "[INFO]: hello", "foo: bar", "a[3]: b", "Thread 0x01 (most recent call first):"]
)
def test_what_is_no_prefix(line: str) -> None:
    assert strip(line) == ("", line)


def test_docker_json_lines(tmp_path: Path) -> None:
    text = "".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-20T23:12:00Z"}) + "\n" for line in DUMP.splitlines()
    )
    assert [len(thread.frames) for thread in read_log(written(tmp_path, text)).threads] == [2, 1]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_colours_and_bytes_that_are_no_text(end: str, tmp_path: Path) -> None:
    colored = end.join(f"\x1b[31;1m{line}\x1b[0m" for line in DUMP.splitlines()).encode()
    evidence = read_log(written(tmp_path, b"\xff\xfe\x80 caf\xe9" + end.encode() + colored + b"\x00\xff"))
    assert [len(thread.frames) for thread in evidence.threads] == [2, 1]
    assert not any("\x1b" in line.text for line in evidence.lines)


def test_progress_bar_before_the_error(tmp_path: Path) -> None:
    evidence = read_log(written(tmp_path, "\r10%|#\r20%|##\rRuntimeError: CUDA error: misaligned address\n"))
    assert evidence.lines[0].text == "RuntimeError: CUDA error: misaligned address"


def test_interleaved_processes(tmp_path: Path) -> None:
    """Two ranks dump at the same time: each line goes to its own dump."""
    other = DUMP.replace("/srv/app.py", "/srv/other.py").splitlines()
    mixed = "".join(f"[rank0]: {one}\n[rank1]: {two}\n" for one, two in zip(DUMP.splitlines(), other, strict=True))
    evidence = read_log(written(tmp_path, mixed))
    assert [{frame.file for frame in thread.pythons()} for thread in evidence.threads] == [{"/srv/app.py"}] * 2
    assert [line.process for line in evidence.lines] == ["rank0", "rank1"]


def test_foreign_lines_within_a_dump(tmp_path: Path) -> None:
    lines = DUMP.splitlines()
    mixed = "\n".join([*lines[:3], BENIGN.strip(), lines[3], "another process says hello", *lines[4:]])
    assert [len(thread.frames) for thread in read_log(written(tmp_path, mixed)).threads] == [2, 1]


def test_second_fatal_error_of_one_process(tmp_path: Path) -> None:
    """CPython 3.12 and 3.13: the GIL's fatal error first, then the signal that ended the process."""
    text = "Fatal Python error: PyThreadState_Get: the function must be called with the GIL held\nPython runtime state: initialized\n\n"
    evidence = read_log(written(tmp_path, text + DUMP))
    assert evidence.signal is not None
    assert evidence.signal.name == "SIGSEGV"
    assert [line.fields.get("message", "").split(":")[0] for line in evidence.lines if line.kind == "fatal-python-error"] == [
        "PyThreadState_Get",
        "Segmentation fault",
    ]


def test_device_assert(tmp_path: Path) -> None:
    line = read_log(written(tmp_path, BENIGN + ASSERT + "\n")).lines[0]
    assert line.kind == "device-assert-line"
    assert line.line == 2
    assert line.fields == {
        "place": "../aten/src/ATen/native/cuda/Loss.cu:242",
        "kernel": "nll_loss_forward",
        "block": "1,0,0",
        "thread": "7,0,0",
        "assertion": "t >= 0 && t < n_classes",
    }


def test_where_python_reported_it(tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "/x.py", line 6, in f\n    loss.item()\nRuntimeError: CUDA error: device-side assert triggered\n'
    line = read_log(written(tmp_path, ASSERT + "\n" + text)).lines[1]
    assert (line.kind, line.fields["reported_at"]) == ("device-assert", "/x.py:6")


CSAN = """============================
CSAN detected a possible data race on tensor with data pointer 139719969079296
Access by stream 94646435460352 during kernel:
aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)
writing to argument(s) self, out, and to the output
With stack trace:
  File "example_error.py", line 6, in <module>
    torch.mul(a, 5, out=a)
  File "/venv/torch/cuda/_sanitizer.py", line 364, in _handle_kernel_launch
    stack_trace = traceback.StackSummary.extract(

Previous access by stream 0 during kernel:
aten::rand(int[] size, *, int? dtype=None, Device? device=None) -> Tensor
writing to the output
With stack trace:
  File "example_error.py", line 3, in <module>
    a = torch.rand(10000, device="cuda")

Tensor was allocated with stack trace:
  File "example_error.py", line 3, in <module>
    a = torch.rand(10000, device="cuda")
"""


def test_csan_report(tmp_path: Path) -> None:
    fields = read_log(written(tmp_path, CSAN)).lines[0].fields
    assert fields["stream"] == "94646435460352"
    assert fields["previous_stream"] == "0"
    assert fields["operator"].startswith("aten::mul.out(")
    assert fields["previous_operator"].startswith("aten::rand(")
    assert fields["effect"] == "writing to argument(s) self, out, and to the output"
    assert fields["place"] == "example_error.py:6 in <module>"
    assert fields["allocation_place"] == fields["previous_place"] == "example_error.py:3 in <module>"


def test_compute_sanitizer_report(tmp_path: Path) -> None:
    text = (
        "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n=========     at store(int *, int)+0x90 in kernels.cu:3\n"
        "=========     by thread (5,0,0) in block (1,0,0)\n=========     Address 0x7f0000000014 is out of bounds\n"
    )
    line = next(line for line in read_log(written(tmp_path, text)).lines if line.fields.get("kernel"))
    assert line.fields["kernel"] == "store(int *, int)"
    assert (line.fields["place"], line.fields["thread"], line.fields["block"]) == ("kernels.cu:3", "5,0,0", "1,0,0")


@pytest.mark.parametrize(
    ("text", "signal", "status"),
    [
        ("Segmentation fault (core dumped)", "SIGSEGV", 139),
        ("./run.sh: line 3:  4711 Killed                  python train.py", "SIGKILL", 137),
        ("Killed", "SIGKILL", 137),
        ("Error: Process completed with exit code 139.", "SIGSEGV", 139),
        ("failed (exitcode: -11) local_rank: 3 (pid: 4711) of binary: /usr/bin/python", "SIGSEGV", 139),
        ("  traceback : Signal 6 (SIGABRT) received by PID 4711", "SIGABRT", 134),
        ("python3[4711]: segfault at 10 ip 00007f1 sp 00007f2 error 4 in libc.so.6[7f0+1]", "SIGSEGV", 139),
        ("terminate called without an active exception", "SIGABRT", 134),
    ],
)
def test_how_it_ended(text: str, signal: str, status: int, tmp_path: Path) -> None:
    evidence = read_log(written(tmp_path, text + "\n"))
    assert evidence.signal is not None
    assert evidence.signal.name == signal
    assert evidence.process is not None
    assert evidence.process.exit_status == status


@pytest.mark.parametrize(
    "text",
    [
        "A/libc: Fatal signal 11 (SIGSEGV), code 128, fault addr 0x0 in tid 2733 (Thread-1)",
        "signal 11 (SIGSEGV), code 128 (SI_KERNEL), fault addr 0x0000000000000000",
        "[signal SIGSEGV: segmentation violation code=0x80 addr=0x0 pc=0x689f5]",
        "[signal 0xb code=0x80 addr=0x0 pc=0x689f5]",
        "siginfo: si_signo: 11 (SIGSEGV), si_code: 128 (SI_KERNEL), si_addr: 0x0000000000000000",
        "Received signal 11 SI_KERNEL 000000000000",
        "[1234] signal (11.128): Segmentation fault",
        "[1234] signal 11 (128): Segmentation fault",
        "--- SIGSEGV {si_signo=SIGSEGV, si_code=SI_KERNEL, si_addr=NULL} ---",
        "Caught signal 11 (Segmentation fault: Sent by the kernel at address (nil))",
        "[host:1] *** Process received signal ***\n[host:1] Signal: Segmentation fault (11)\n[host:1] Signal code:  (128)\n"
        "[host:1] Failing at address: (nil)",
    ],
)
def test_an_address_that_the_kernel_did_not_report_is_no_null_pointer(text: str, tmp_path: Path) -> None:
    """SI_KERNEL, however it is written."""
    log = tmp_path / "out.log"
    log.write_text(text + "\n")
    crash = analyze(log)
    assert crash.signal is not None
    assert (crash.signal.name, crash.signal.code_name, crash.signal.address, crash.signal.reason) == ("SIGSEGV", "SI_KERNEL", None, None)
    assert "null-deref" not in {finding.id for finding in crash.findings}


def test_kernel_line_tells_the_address(tmp_path: Path) -> None:
    text = "[12345.678901] python3[4711]: segfault at 10 ip 00007f12345678 sp 00007f2 error 6 in libc.so.6[7f0+1]\n"
    signal = read_log(written(tmp_path, text)).signal
    assert signal is not None
    assert (signal.address, signal.access, signal.reason) == (0x10, "write", "null-pointer")


@pytest.mark.parametrize("content", [BENIGN * 100, "exited normally\n", "CUDA is available: True\n", "the signal was good\n"])
def test_no_evidence(content: str, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="contains no crash evidence"):
        read_log(written(tmp_path, content))


def test_line_without_end(tmp_path: Path) -> None:
    """One line of 20 MB, the telling text in its middle and across the edge of what is read at once."""
    for position in (10_000_000, skim.LONGEST_PIECE - 10, skim.CHUNK - 5):
        content = b"x" * position + b" CUDA error: an illegal memory access was encountered " + b"y" * (20_000_000 - position)
        evidence = read_log(written(tmp_path, content))
        assert {line.kind for line in evidence.lines} == {"cuda-illegal-access"}
        assert all(line.line == 1 for line in evidence.lines)


@pytest.mark.slow
def test_flood_is_bounded_and_rare_lines_survive_it(tmp_path: Path) -> None:
    """Each of a hundred thousand lines is telling: the first and the last are kept, and the one of another kind in the middle."""
    flood = "".join(ASSERT.replace("[7,0,0]", f"[{number},0,0]") + "\n" for number in range(60_000))
    content = flood + "double free or corruption (fasttop)\n" + flood.replace("[1,0,0]", "[2,0,0]")
    evidence = read_log(written(tmp_path, content))
    assert len(evidence.lines) <= MOST_LINES
    asserts = [line for line in evidence.lines if line.kind == "device-assert-line"]
    assert len(asserts) <= MOST_OF_A_KIND
    assert asserts[0].line == 1
    assert asserts[-1].line == 120_001
    assert [line.line for line in evidence.lines if line.kind == "double-free"] == [60_001]
    assert any("were omitted" in error.message for error in evidence.soft_errors)


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    with path.open("wb") as file:
        for _ in range(300):
            file.write(BENIGN.encode() * 32_000)
        file.write(DUMP.encode())
    code = (
        "import sys; from pathlib import Path; from crashkit.evidence.text.log import read_log\n"
        "evidence = read_log(Path(sys.argv[1])); assert len(evidence.threads) == 2 and evidence.lines[0].line == 300 * 32_000 + 1, evidence\n"
        # Not ru_maxrss: that starts from what this process had when it forked.
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert path.stat().st_size > 250_000_000
    assert int(done.stdout) < 200_000, "kB"


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log.gz"
    path.write_bytes(gzip.compress(DUMP.encode()))
    assert len(read_log(path).threads) == 2


def test_every_pattern_is_found_by_its_texts() -> None:
    """A pattern without fixed text would never be reached by the search."""
    assert [pattern.kind for pattern in line_patterns() if not literals(pattern.pattern)] == []
    assert len(Classifier().literals) < 530, "more texts make the search slower: share them (log_lines.toml)"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("abcdef", ("abcdef",)),
        ("(?:abcd|efgh)x", ("abcd", "efgh")),
        ("a+bcdefg?", ("bcdef",)),
        ("(abcd)?", ()),
        (r"\d+ abcde \w*", (" abcde ",)),
        ("^(?=(.*?abcdef))\\1.*", ("abcdef",)),
        ("(?!abcdef)x", ()),
        ("(?i)abcdef", ()),
        (".*", ()),
    ],
)
def test_fixed_texts_of_a_pattern(pattern: str, expected: tuple[str, ...]) -> None:
    assert literals(pattern) == expected


def test_numbers_that_are_links_in_a_copied_log() -> None:
    """GitHub's page of a log makes links of them."""
    link = "(https://github.com/o/r/actions/runs/1/job/2#step:10:9)"
    assert clean(f"ld-linux-x[8]{link}6-64.so.2, line 4[1]{link}, [3](https://x.org/a)".encode()) == (
        "ld-linux-x86-64.so.2, line 41, [3](https://x.org/a)"
    )


BROKEN = """\
Traceback (most recent call last):
  File "/app/a.py", line 1, in <module>
    import numpy
RuntimeError: NumPy was built with baseline optimizations:
(X86_V2) but your machine doesn't support:
(X86_V2).
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [(BROKEN, "cpu-too-old"), (BROKEN.replace("doesn't", "does"), "exception"), (BROKEN.replace("\n(", "\n\n("), "exception")],
)
def test_the_message_of_an_exception_over_several_lines(text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(text)
    found = read_log(tmp_path / "a.log")
    assert [line.kind for line in found.lines] == [kind]
    assert [frame.line for thread in found.threads for frame in thread.frames] == [1]


def test_a_broken_message_is_the_reason_beside_a_line_that_tells_only_of_the_end(tmp_path: Path) -> None:
    frames = BROKEN.partition("\n")[2].splitlines()
    rows = [f"backend-1  | {row}" for row in (*frames, "2026-06-03 14:13:00,611 WARN exited: backend (exit status 1; not expected)")]
    (tmp_path / "a.log").write_text("\n".join(rows))
    assert {"cpu-too-old", "server-worker-exited"} <= {line.kind for line in read_log(tmp_path / "a.log").lines}


@given(st.binary(max_size=400))
def test_any_bytes_are_cleaned(raw: bytes) -> None:
    text = clean(raw)
    assert "\x1b" not in text
    strip(text)


@pytest.mark.slow
@given(data=st.data())
def test_any_text_is_read(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever stands in it: evidence or an EvidenceError, never another exception."""
    pieces = [
        *DUMP.splitlines(),
        *CSAN.splitlines(),
        ASSERT,
        "Traceback (most recent call last):",
        "#0  0x1 in f () from x",
        "==1==ERROR: AddressSanitizer: x",
    ]
    lines = data.draw(st.lists(st.one_of(st.sampled_from(pieces), st.text(max_size=40)), max_size=40))
    path = tmp_path_factory.mktemp("any") / "stderr.log"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    with contextlib.suppress(EvidenceError):
        read_log(path)


DECLINED = """\
Program terminated with signal SIGSEGV, Segmentation fault.
#0  __strlen_evex () at ../sysdeps/x86_64/multiarch/strlen-evex.S:79
79\t../sysdeps/x86_64/multiarch/strlen-evex.S: No such file or directory.
warning: File "/usr/bin/python3.11-gdb.py" auto-loading has been declined by your `auto-load safe-path' set to "$debugdir".
To enable execution of this file add
\tadd-auto-load-safe-path /usr/bin/python3.11-gdb.py
line to your configuration file "/home/me/.config/gdb/gdbinit".
\tinfo "(gdb)Auto-loading safe path"
#0  __strlen_evex () at ../sysdeps/x86_64/multiarch/strlen-evex.S:79
#1  0x00007f30f914c608 in string_at (size=-1,
    ptr=0x0) at Modules/_ctypes/_ctypes.c:5564
"""


def test_what_gdb_says_of_scripts_is_no_frame(tmp_path: Path) -> None:
    path = tmp_path / "gdb.log"
    path.write_text(DECLINED)
    (thread,) = read_log(path).threads
    assert thread.crashed
    assert [(frame.function, frame.line) for frame in thread.natives()] == [("__strlen_evex", 79), ("string_at", 5564)]


def test_several_crashes_in_one_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_text(DUMP + "restarting\n" + DUMP.replace("line 10 in infer", "line 11 in infer"))
    (error,) = [error for error in read_log(path).soft_errors if "crashes" in error.message]
    assert error.message.startswith("this log contains 2 crashes: number 2 is shown")
    path.write_text(DUMP)
    assert not read_log(path).soft_errors


def test_dump_of_python_3_14() -> None:
    """What Debian's 3.14 printed; fixtures/logs/README.md says how it was made."""
    evidence = read_log(Path(__file__).parents[2] / "fixtures" / "logs" / "faulthandler-3.14.txt")
    crashed = next(thread for thread in evidence.threads if thread.crashed)
    assert crashed.name == "crasher"
    assert [frame.function for frame in crashed.pythons()] == ["string_at", "boom", "crash", "run", "_bootstrap_inner", "_bootstrap"]
    natives = list(crashed.natives())
    assert natives[0].function == "_Py_DumpStack"
    assert "ffi_call" in [frame.function for frame in natives]
    assert len(natives) == 27
    assert len(evidence.threads) == 4


GDB = "Program terminated with signal {signal}, gone.\n#0  0x00007f0000000001 in f () from /lib/x.so\n"
PAGE_FAULT = "python3[7]: segfault at 10 ip 00007f0000000001 sp 00007ffd00000000 error 4 in x.so[7f0000000000+1000]\n"


@pytest.mark.parametrize(
    ("text", "number", "address"),
    [
        (GDB.format(signal="SIGSEGV") + PAGE_FAULT, 11, 0x10),
        (GDB.format(signal="SIGABRT") + PAGE_FAULT, 6, None),
        (DUMP + PAGE_FAULT, 11, 0x10),
        (DUMP.replace("Segmentation fault", "Aborted") + PAGE_FAULT, 6, None),
        (DUMP.replace("Segmentation fault", "Aborted") + GDB.format(signal="SIGSEGV"), 11, None),
        (GDB.format(signal="SIGSEGV") + DUMP.replace("Segmentation fault", "Aborted"), 11, None),
    ],
)
def test_the_signal_is_that_of_the_stacks_which_are_shown(tmp_path: Path, text: str, number: int, address: int | None) -> None:
    """The kernel's line of another process does not speak for them; of this one it adds the address."""
    signal = read_log(written(tmp_path, text)).signal
    assert signal is not None
    assert (signal.number, signal.address) == (number, address)


OPENING_LINES = (
    "[4711] signal (11.1): Segmentation fault",
    "[4711] signal 11 (1): Segmentation fault",
    "signal (6): Aborted",
    "CONTAINER ID   IMAGE     COMMAND   CREATED   STATUS    PORTS     NAMES",
    "CONTAINER ID  IMAGE       COMMAND     CREATED     STATUS      PORTS       NAMES",
    '        "State": {',
    '          "State": {',
    "NAME    READY   STATUS    RESTARTS   AGE",
    "Containers:",
    'Thread 0x7F768F77C740 (idle): "MainThread"',
    "Stack trace (most recent call last):",
    "JobID|JobName|State|ExitCode",
    "JobId=7 JobName=train",
    "Fatal Python error: Aborted",
    "Timeout (0:00:01)!",
    "~~~~~~~~~~~~~~~~~~~~~~ Stack of fetcher (140262755694272) ~~~~~~~~~~~~~~~~~~~~~~",
    "Current thread 0x00007f1 (most recent call first):",
    "Traceback (most recent call last):",
    "Traceback (most recent call first):",
    "#0  0x00007f0000000001 in f () from /lib/x.so",
    'Thread 1 (Thread 0x7f0000000001 (LWP 7) "python3"):',
    "Program terminated with signal SIGSEGV, Segmentation fault.",
    'Thread 1 "python3" received signal SIGSEGV, Segmentation fault.',
    "CSAN detected a possible data race on tensor with data pointer 1",
    "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x10",
    "WARNING: ThreadSanitizer: data race (pid=7)",
    "========= Invalid __global__ read of size 4 bytes",
    "==7== Invalid read of size 4",
    "==7== Process terminating with default action of signal 6 (SIGABRT)",
    "# A fatal error has been detected by the Java Runtime Environment:",
    "Native frames: (J=compiled Java code, j=interpreted, Vv=VM code, C=native code)",
    "*** SIGSEGV (@0x30) received by PID 48 (TID 0x7f317b7fe700) from PID 48; stack trace: ***",
    "*** Check failure stack trace: ***",
    "*** Aborted at 1501135804 (unix time) ***",
    "FatalError: `Segmentation fault` is detected by the operating system.",
    "    @     0x7f31cadd54b0 (unknown)",
    "C++ Traceback (most recent call last):",
    "Process:               Python [3577]",
    "Exception Type:        EXC_BAD_ACCESS (SIGSEGV)",
    "0   libsystem_c.dylib                 0x00007fff6a35e808 abort + 120",
    "Crashed Thread:        0  Dispatch queue: com.apple.main-thread",
    "Thread 4 Crashed:: Dispatch queue: com.apple.main-thread",
    "* thread #1, queue = 'com.apple.main-thread', stop reason = signal SIGABRT",
    "    frame #1: 0x0000000103a1b2c3 cv2.so`cv::imshow(int) + 12",
    "           PID: 1234 (python3)",
    "Process 1234 (python3) of user 1000 dumped core.",
    "                Stack trace of thread 1240:",
    "#0  0x000078a7c5a98e51 __futex_abstimed_wait_common64 (libc.so.6 + 0x98e51)",
    "[4217] signal 11 (1): Segmentation fault",
    "signal (11): Segmentation fault",
    "thread '<unnamed>' (7) panicked at src/lib.rs:41:9:",
    "thread 'main' panicked at 'no such job', src/lib.rs:41:9",
    "*** Process received signal ***",
    "Signal: Segmentation fault (11)",
    "Caught signal 11 (Segmentation fault: address not mapped to object at address 0x12)",
    "!!! uWSGI process 17715 got Segmentation Fault !!!",
    "*** backtrace of 17715 ***",
    "======= Backtrace: =========",
    "==== backtrace (tid: 7) ====",
    "/lib/libc.so.6(abort+0x12) [0x7f12]",
    "python(+0x12)[0x7f12]",
    "!!!!!!! Segfault encountered !!!!!!!",
    "frame #0: c10::Error::Error() + 0x57 (0x7f12 in /t/libc10.so)",
)


def test_every_first_line_holds_one_of_its_formats_openers() -> None:
    """The skimmer and the reader go by them: a first line without one would never be seen."""
    unseen = set(formats.FORMATS)
    for line in OPENING_LINES:
        openers = [one for one in formats.FORMATS if one.opens(line) is not None]
        assert openers and all(any(opener in line for opener in one.openers) for one in openers), line
        unseen.difference_update(openers)
    assert not unseen


def test_the_first_line_of_gdbs_text_may_be_telling_by_itself(tmp_path: Path) -> None:
    lines = read_log(written(tmp_path, GDB.format(signal="SIGSEGV"))).lines
    assert [(line.line, line.kind) for line in lines] == [(1, "gdb-signal")]


def test_a_traceback_without_frames_does_not_hide_another(tmp_path: Path) -> None:
    begun = "Traceback (most recent call last):\n"
    text = "Killed\n" + begun + '  File "/srv/app.py", line 5, in f\n    g()\nValueError: handled\n' + begun + "INFO the rest was lost\n"
    (thread,) = read_log(written(tmp_path, text)).threads
    assert [frame.line for frame in thread.pythons()] == [5]


def test_fatal_error_of_python_3_14_outside_of_python(tmp_path: Path) -> None:
    """It prints all threads, aborts, and prints them once more with the C stack, which is none of theirs."""
    threads = DUMP.partition("\n\n")[2].replace("Current thread", "Thread")
    stack = """
Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3", at _Py_DumpStack+0x4a [0x49b2f9]
  Binary file "/usr/lib/libc.so.6", at abort+0x24 [0x7f25725ae507]
"""
    once = f"Fatal Python error: in_a_c_thread: it is said\nPython runtime state: initialized\n\n{threads}"
    again = f"Fatal Python error: Aborted\n\n{threads}{stack}"
    evidence = read_log(written(tmp_path, once + again))
    assert [(thread.tid, thread.crashed) for thread in evidence.threads] == [(0x7F0000000001, False), (0x7F0000000002, False), (None, True)]
    assert [frame.function for frame in evidence.threads[2].natives()] == ["_Py_DumpStack", "abort"]
    assert evidence.signal and evidence.signal.name == "SIGABRT"
    # Another process with other threads is another crash.
    other = read_log(written(tmp_path, once + again.replace("7f000000000", "7f000000001")))
    assert [thread.tid for thread in other.threads] == [0x7F0000000011, 0x7F0000000012, None]
    assert "contains 2 crashes" in other.soft_errors[0].message


@pytest.mark.slow
def test_a_pattern_is_tried_wherever_it_matches() -> None:
    """Which patterns are tried on a line is known from the texts that it has: none is left out that would match."""
    reports = msgspec.toml.decode((Path(__file__).parents[2] / "fixtures" / "public-reports" / "ninth-first.toml").read_bytes())["report"]
    rows = {row for report in reports for row in report["text"].splitlines() if row.isascii()}
    patterns = [re.compile(line.pattern) for line in line_patterns()]
    classifier = Classifier()
    told = {row for row in rows if any(pattern.search(row) for pattern in patterns)}
    assert {row for row in rows if classifier.classify(row) is not None} == told and len(told) > 200
