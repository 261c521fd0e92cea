"""A crash's words mean the same whatever a logger, a terminal, an exporter, a page or an editor has put around them.

Each text of a crash, in each wrapping: what is read must be what is read of the text alone. A new form of either is one more entry.
"""

# ruff: noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence.input import open_input
from crashkit.evidence.text.log import read_log
from crashkit.evidence.text.wrapping import bare, unfold, views

TEXTS = {
    "faulthandler": "Fatal Python error: Segmentation fault\n"
    "\n"
    "Current thread 0x00007f0000000700 (most recent call first):\n"
    '  File "/work/app.py", line 12 in decode\n'
    '  File "/work/app.py", line 30 in <module>\n',
    "shell": "Segmentation fault (core dumped)\n",
    "bare": "Segmentation fault\n",
    "abort": "Aborted\n",
    "bus": "Bus error\n",
    "ill": "Illegal instruction\n",
    "fpe": "Floating point exception\n",
    "killed": "Killed\n",
    "plugin host": "error: plugin_host-3.8 has exited unexpectedly, some plugin functionality won't be available\n",
    "nanny": "Worker process 991 exited with status 1\n",
    "negative": "Server with PID 212 exited with code -11.\n",
    "control-C": "forrtl: error (200): program aborting due to control-C event\n",
    "musl without its head": "libpython3.12.so.1.0: preadv2: symbol not found\n",
    "zsh": "zsh: segmentation fault  python app.py\n",
    "zshjob": "[1]    5705 abort      python vegvisir.py\n",
    "bash": "./run.sh: line 3: 12345 Segmentation fault      python app.py\n",
    "mac": "Segmentation fault: 11\n",
    "gdb": "Program received signal SIGSEGV, Segmentation fault.\n"
    "0x00007ffff7e5 in memcpy () from /lib/libc.so.6\n"
    "(gdb) bt\n"
    "#0  0x00007ffff7e5 in memcpy () from /lib/libc.so.6\n"
    "#1  0x00007ffff7e6 in decode (p=0x0) at dec.c:12\n",
    "kernel": "python[1106536]: segfault at 0 ip 0000779ec13010da sp 0000779ebbdff7c0 error 4 in _c104.so[779ec12c4000+147000]\n",
    "trap": "traps: python3[123] trap invalid opcode ip:7f00 sp:7ffe error:0 in libfoo.so[7f00+100]\n",
    "terminate": "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no such thing\n",
    "bare-terminate": "terminate called without an active exception\n",
    "libcxx": "libc++abi: terminating due to uncaught exception of type std::bad_cast: std::bad_cast\n",
    "doublefree": "free(): double free detected in tcache 2\n",
    "assert": "python: a.c:1: f: Assertion `x > 0' failed.\n",
    "macassert": "Assertion failed: (x > 0), function f, file a.c, line 30.\n",
    "rust": "thread 'main' panicked at src/main.rs:3:5:\nindex out of bounds\nnote: run with `RUST_BACKTRACE=1`\n",
    "rustold": "thread 'main' panicked at 'index out of bounds', src/main.rs:3:5\n",
    "go": "panic: runtime error: invalid memory address or nil pointer dereference\n"
    "[signal SIGSEGV: segmentation violation code=0x1 addr=0x30 pc=0x68c30f]\n"
    "\n"
    "goroutine 68 [running]:\n"
    "main.f()\n",
    "gofatal": "fatal error: unexpected signal during runtime execution\n"
    "[signal SIGSEGV: segmentation violation code=0x1 addr=0x30 pc=0x68c30f]\n",
    "xla": "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.\n",
    "dyld": "ImportError: dlopen(/x/_a.so, 2): Symbol not found: _ERR_new\n",
    "elastic": "SignalException: Process 1234 got signal: 15\n",
    "heroku": "Error R15 (Memory quota vastly exceeded)\n",
    "ouch": "    at tail+0: 0x00 *** OUCH\n",
    "metal": "failed assertion `A command encoder is already encoding to this command buffer'\n",
    "julia": "signal (11): Segmentation fault\nin expression starting at /work/x.jl:3\n",
    "R": " *** caught segfault ***\naddress 0x10, cause 'memory not mapped'\n",
    "jvm": "#\n# A fatal error has been detected by the Java Runtime Environment:\n#\n#  SIGSEGV (0xb) at pc=0x00007f, pid=12, tid=13\n#\n",
    "asan": "==811==ERROR: AddressSanitizer: heap-use-after-free on address 0x60200 at pc 0x55 bp 0x7f sp 0x7f\n"
    "READ of size 1 at 0x60200 thread T0\n"
    "    #0 0x55 in main program.cpp:2\n"
    "    #1 0x56 in start program.cpp:9\n",
    "ubsan": "program.cpp:1:66: runtime error: shift exponent 40 is too large for 32-bit type 'int'\n",
    "tsan": "WARNING: ThreadSanitizer: data race (pid=811)\n"
    "  Write of size 4 at 0x55 by main thread:\n"
    "    #0 main program.cpp:1 (program+0x1)\n",
    "valgrind": "==12== Invalid read of size 8\n"
    "==12==    at 0x4C2B: decode (dec.c:12)\n"
    "==12==    by 0x4C2C: main (main.c:3)\n"
    "==12==  Address 0x0 is not stack'd, malloc'd or (recently) free'd\n",
    "glog": "F0523 14:00:00.123456 12345 server.cc:69] Check failed: x > 0 (0 vs. 1) \n",
    "tfcheck": "2018-03-27 15:29:16.782845: F tensorflow/core/kernels/conv_ops.cc:659] Check failed: stream->parent()->GetConvolveAlgorithms(&algorithms)\n",
    "winerr": "Process finished with exit code -1073741819 (0xC0000005)\n",
    "winfatal": "Windows fatal exception: access violation\n"
    "\n"
    "Current thread 0x00000ee4 (most recent call first):\n"
    '  File "C:\\app.py", line 12 in decode\n',
    "exit139": "Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)\n",
    "apple": "Exception Type:        EXC_BAD_ACCESS (SIGSEGV)\n"
    "Exception Codes:       KERN_INVALID_ADDRESS at 0x0000000000000010\n"
    "\n"
    "Thread 0 Crashed:: Dispatch queue: com.apple.main-thread\n"
    "0   libfoo.dylib        \t0x00007fffb945bd42 decode + 10\n"
    "1   libfoo.dylib      \t0x00007fffb9549457 run + 90\n",
    "coredumpd": "Process 7777 (python3) of user 1000 dumped core.\n",
    "systemd": "app.service: Main process exited, code=killed, status=11/SEGV\n",
    "celery": "billiard.exceptions.WorkerLostError: Worker exited prematurely: signal 11 (SIGSEGV) Job: 3.\n",
    "uwsgi": "DAMN ! worker 1 (pid: 5541) died, killed by signal 11 :( trying respawn ...\n",
    "oom": "Out of memory: Killed process 811 (python) total-vm:1kB, anon-rss:1kB\n",
    "torchrun": "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -11) local_rank: 0 (pid: 44260) of binary: /envs/x/bin/python\n",
    "dataloader": "RuntimeError: DataLoader worker (pid 8) is killed by signal: Segmentation fault.\n",
    "cudaassert": "RuntimeError: CUDA error: device-side assert triggered\n",
    "omp15": "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.\n",
    "qt": 'qt.qpa.plugin: Could not load the Qt platform plugin "xcb" in "" even though it was found.\n'
    "This application failed to start because no Qt platform plugin could be initialized.\n",
    "llvm": "LLVM ERROR: out of memory\n",
    "objc": "objc[123]: +[__NSCFConstantString initialize] may have been in progress in another thread when fork() was called.\n",
    "stackoverflow": "Fatal Python error: Cannot recover from stack overflow.\nPython runtime state: initialized\n",
    "zeromq": "Assertion failed: nbytes == sizeof (dummy) (src/signaler.cpp:303)\n",
    "musl": "Error relocating /usr/lib/x.so: _ZNSt7__cxx1112basic_stringIcE: symbol not found\n",
    "pyspy": 'Thread 811 (idle): "MainThread"\n    wait (threading.py:320)\n    <module> (serve.py:13)\n'
    'Thread 812 (active+gil): "Thread-1"\n    decode (/srv/app.py:12)\n    run (threading.py:982)\n',
    "backward": 'Stack trace (most recent call last):\n#2    Object "/opt/libx.so", at 0x12, in main\n'
    '#1    Source "../a.cpp", line 98, in load [0x13]\nSegmentation fault (Signal sent by the kernel [(nil)])\n',
    "translated": "Speicherzugriffsfehler (Speicherabzug geschrieben)\n",
}

Wrap = Callable[[str], "str | bytes"]


def each(before: str, after: str = "") -> Wrap:
    """Around every line."""
    return lambda text: "".join((before + line + after).rstrip(" ") + "\n" for line in text.splitlines())


def as_json(key: str, **others: str) -> Wrap:
    return lambda text: "".join(json.dumps({**others, key: line}) + "\n" for line in text.splitlines())


WRAPPED: dict[str, Wrap] = {
    "quoted": each("> "),
    "fenced": lambda text: f"```bash\n$ python app.py\n{text}```\n",
    "indented": each("    "),
    "behind a tab": each("\t"),
    "in a pre": lambda text: f"<pre>{text}</pre>",
    "in a code": lambda text: f"<p><code>{text}</code></p>",
    "HTML": lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;").replace("'", "&#39;"),
    "HTML lines": each("", "<br>"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "no-break spaces": lambda text: text.replace("  ", "\u00a0 "),
    "trailing spaces": lambda text: text.replace("\n", "   \n"),
    "colour": each("\x1b[31m", "\x1b[0m"),
    "colour, and a character set": each("\x1b[0;1;31m", "\x1b(B\x1b[m"),
    "colour that an editor shows": each("^[[31m", "^[[0m"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, big end first": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "docker's JSON": as_json("log", stream="stderr", time="2024"),
    "docker's JSON, compact": lambda text: "".join(
        json.dumps({"stream": "stderr", "log": line + "\n"}, separators=(",", ":")) + "\n" for line in text.splitlines()
    ),
    "JSON lines": as_json("message", level="error", time="2024"),
    "the journal's JSON": as_json("MESSAGE", PRIORITY="3", _PID="12"),
    "Google's JSON": as_json("textPayload", severity="ERROR"),
    "one JSON": lambda text: json.dumps({"level": "error", "msg": text}) + "\n",
    "one JSON, pretty": lambda text: json.dumps({"level": "error", "errorMessage": text}, indent=2) + "\n",
    "JSON in a list": lambda text: json.dumps([{"stream": "stderr", "text": text}]) + "\n",
    "a notebook": lambda text: json.dumps({"outputs": [{"name": "stderr", "text": text.splitlines(True)}]}, indent=1) + "\n",
    "bytes": lambda text: repr(text.encode()) + "\n",
    "bytes of stderr": lambda text: f"stderr: {text.encode()!r}\n",
    "a string": lambda text: f"output = {text!r}\n",
    "logfmt": lambda text: "".join(f'time="2024-05-01T12:00:00Z" level=error msg={json.dumps(line)}\n' for line in text.splitlines()),
    "after other lines": lambda text: f"starting\n{text}done\n",
    "a heading": lambda text: f"## {text}" if not text.startswith("#") else text,
}
PREFIXES = (
    "2024-05-01T12:00:00.123Z ",
    "2024-05-01T12:00:00.1234567Z ##[error]",
    "2024-05-01T12:00:00.123456Z 01E ",
    "2024-05-01T12:00:00.123456789Z stderr F ",
    "2024-05-01 12:00:00,123 ",
    "[2024-05-01 12:00:00] ",
    "[2024-05-01T12:00:00.000Z] ",
    "2024-05-01 12:00:00.123456: ",
    "2024-05-01 12:00:00,123 - app.main - ERROR - ",
    "2024-05-01 12:00:00 [ERROR] ",
    "2024-05-01 12:00:00.123 | ERROR    | app.main:run:12 - ",
    "2024-05-01T12:00:00.000Z [ERROR] ",
    "[2024-05-01 12:00:00 +0000] [123] [ERROR] ",
    "[2024-05-01 12:00:00,123: ERROR/MainProcess] ",
    "12:00:00 ",
    "12:00:00.123 ",
    "12:00:00  ",
    "[12:00:00] ",
    "[12:00:00 PM] ",
    "[12:00:00][Step 1/2] ",
    "05/01/2024 12:00:00 ",
    "5/1/2024, 12:00:00 PM ",
    "2024/05/01 12:00:00.123456 ",
    "2024-05-01T12:00:00.123456+00:00 app[web.1]: ",
    "<13>1 2024-05-01T12:00:00Z host app 123 - - ",
    "May  1 12:00:00 host app[123]: ",
    "2024-05-01T12:00:00.123456+00:00 host app[123]: ",
    "[12345.678901] ",
    "kernel: [12345.678901] ",
    "[Wed May  1 12:00:00 2024] ",
    "web-1  | ",
    "web | ",
    "web-1  | 2024-05-01T12:00:00.123Z ",
    "[pod/app-7d9f/app] ",
    "app-7d9f4c-x2x1z app ",
    "build    Run tests    2024-05-01T12:00:00.1234567Z ",
    "#12 34.56 ",
    "#12 [5/9] ",
    "34.56 ",
    "[rank0]: ",
    "[default0]:",
    "[1,0]<stderr>:",
    "0: ",
    "(Worker pid=123) ",
    "(EngineCore_DP0 pid=123) ERROR 05-01 12:00:00 [core.py:7] ",
    "\x1b[36m(Actor pid=1)\x1b[0m ",
    "[2024-05-01, 12:00:00 UTC] {subprocess.py:93} INFO - ",
    "ERROR: ",
    "[ERROR] ",
    "ERROR:root:",
    "stderr: ",
    "| ",
    "app.log:12:",
    "E   ",
    "[gw0] ",
    "npm ERR! ",
    "0|app      | ",
    "1714564800000\t",
    "[pid 1234] ",
    "05-01 12:00:00.123  1234  1235 E python  : ",
    "[1234:0501/120000.123:ERROR:foo.cc(12)] ",
    "I0501 12:00:00.123456 1234 foo.py:12] ",
    "\u2502 ",
)
WRAPPED |= {prefix: each(prefix) for prefix in PREFIXES}
ALONE = ("in ticks", "in stars", "in quotes", "an item", "a starred item", "a numbered item")
WRAPPED |= {
    "in ticks": lambda text: f"`{text.rstrip()}`\n",
    "in stars": lambda text: f"**{text.rstrip()}**\n",
    "in quotes": lambda text: f'"{text.rstrip()}"\n',
    "an item": lambda text: f"- {text}",
    "a starred item": lambda text: f"* {text}",
    "a numbered item": lambda text: f"1. {text}",
}
WORDS = ("abort", "killed")
"""A logger that says one such word speaks of an operation of its own: nothing is read in its log, or only that it was told."""
LOGGED = tuple(prefix for prefix in PREFIXES if "ERROR" in prefix or "E python" in prefix or "INFO -" in prefix or "stderr:" in prefix)
OWN_FORM = {
    # The text has a prefix of its own, of the same form.
    ("kernel", "2024-05-01T12:00:00.123456Z 01E "),
}


def _read(data: str | bytes, tmp_path: Path) -> object:
    path = tmp_path / "posted.log"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    try:
        found = read_log(path)
    except EvidenceError:
        return "refused"
    frames = [len(thread.frames) for thread in found.threads]
    told = any("only mentions" in error.message for error in found.soft_errors)
    return (found.signal.name if found.signal else None, {line.kind for line in found.lines}, frames, told)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrap", [wrap if place % 3 == 0 else pytest.param(wrap, marks=pytest.mark.long) for place, wrap in enumerate(WRAPPED)]
)
def test_wrapped(wrap: str, tmp_path: Path) -> None:
    different = {}
    for name, text in TEXTS.items():
        if (name in WORDS and wrap in LOGGED) or (name, wrap) in OWN_FORM or (wrap in ALONE and text.count("\n") > 1):
            continue
        alone, wrapped = _read(text, tmp_path), _read(WRAPPED[wrap](text), tmp_path)
        if alone != wrapped:
            different[name] = (alone, wrapped)
    assert different == {}


@pytest.mark.parametrize(
    "text",
    [
        "#0  0x00007ffff7e5 in memcpy () from /lib/libc.so.6",
        "#12 0x7f in f (x=1) at a.c:3",
        "* thread #1, stop reason = signal SIGSEGV",
        "  * frame #0: 0x10 libfoo.dylib`decode",
        "* 1    Thread 0x7f (LWP 12) main () at a.c:3",
        "#  SIGSEGV (0xb) at pc=0x00007f, pid=12, tid=13",
        "# A fatal error has been detected by the Java Runtime Environment:",
        "WARNING: ThreadSanitizer: data race (pid=811)",
        "==12==    at 0x4C2B: decode (dec.c:12)",
        "0   libfoo.dylib        0x00007fffb945bd42 decode + 10",
        "[ 1] /lib/libc.so.6(+0x3c)[0x7f00]",
        "*** stack smashing detected ***: terminated",
        '  File "/work/app.py", line 12 in decode',
        "Current thread 0x00007f0000000700 (most recent call first):",
        "terminate called after throwing an instance of 'x'",
        "free(): invalid pointer",
        "Error in `python': double free or corruption (out): 0x1 ***",
        "what():  no such thing",
    ],
)
def test_what_is_no_wrapping(text: str) -> None:
    assert bare(text) == text


@pytest.mark.parametrize(
    "text", [r'File "C:\new\name.py", line 3 in f', "x = {1: 2}", "[1] 2 abort", "{not JSON}", "[12:00:00] Segmentation fault", "{}", "[]"]
)
def test_what_holds_no_lines(text: str) -> None:
    assert unfold(text) == ()


def test_what_is_unfolded() -> None:
    assert unfold(r"""  "msg": "Aborted\n\"x\"\tC:\\new\n",""") == ("Aborted", '"x"    C:\\new', '",')
    assert unfold('{"a": ["x\\ny", {"b": "z"}], "c": 3}') == ("x", "y", "z")


@pytest.mark.parametrize("text", ["INFO: Aborted", "2024-05-01 12:00:00 INFO Killed", "[INFO] Aborted"])
def test_a_word_of_a_logger_is_no_crash(text: str, tmp_path: Path) -> None:
    """It is mentioned only."""
    assert _read(text + "\n", tmp_path) == (None, {"mentioned"}, [], False)
    assert "Aborted" not in views(text) and "Killed" not in views(text)


def test_lines_are_shown_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("2024-05-01 12:00:00 ERROR app: Segmentation fault (core dumped)\n")
    assert [line.text for line in read_log(tmp_path / "app.log").lines] == ["ERROR app: Segmentation fault (core dumped)"]


def test_utf16_is_no_compression(tmp_path: Path) -> None:
    path = tmp_path / "posted.log"
    path.write_bytes("Aborted\n\u20ac\n".encode("utf-16"))
    with open_input(path) as source:
        assert (source.file.read(), source.compression, source.soft_errors) == ("Aborted\n\u20ac\n".encode(), None, ())
    path.write_bytes(b"\xff\xfe\x80 caf\xe9")
    with open_input(path) as source:
        assert source.file.read() == b"\xff\xfe\x80 caf\xe9"
