"""How a process ended, as other programs print it: shells, supervisors, editors, other loaders and compilers' runtimes; and look-alikes."""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from .test_public_reports import Report, check_named_first, check_nothing_claimed, judged

FORMS = [
    # A shell's words, copied with hyphens or other capitals.
    ("illegal-instruction", "python3 detect.py\nIllegal-instruction (core dumped)"),
    ("illegal-instruction", "$ ./run.py\nillegal-hardware-instruction (core-dumped)"),
    ("illegal-instruction", "It stops with an illegal-instruction error in the second epoch"),
    ("illegal-instruction", "importing the wheel crashes python 2.7 on OS X (EXC_BAD_INSTRUCTION)"),
    ("trap-reached", "The app dies on launch on the M1: EXC_BREAKPOINT"),
    ("self-abort", "/usr/bin/serve: line 9: abort (Core dumped)"),
    # Intel's Fortran.
    (
        "fortran-runtime-error",
        "epoch 3\nforrtl: error (200): program aborting due to control-C event\nImage              PC                Routine",
    ),
    ("fortran-runtime-error", "forrtl: error (200): program aborting due to window-CLOSE event"),
    ("fortran-runtime-error", "forrtl: error (69): process interrupted (SIGINT)"),
    ("killed-by-sigterm", "forrtl: error (78): process killed (SIGTERM)\nImage              PC                Routine            Line"),
    (
        "windows-access-violation",
        "forrtl: severe (157): Program Exception - access violation\nImage              PC                Routine",
    ),
    ("stack-overflow", "forrtl: severe (170): Program Exception - stack overflow\nImage              PC                Routine"),
    ("illegal-instruction", "forrtl: severe (168): Program Exception - illegal instruction"),
    # Supervisors.
    ("supervisor-worker-crashed", "Starting monitor for PID 212.\nServer with PID 212 exited with code -11."),
    ("supervisor-worker-crashed", "watcher: app (pid 7731) died unexpectedly, status -6"),
    ("supervisor-worker-crashed", "[pid=88] terminated abnormally, returncode=-7"),
    ("supervisor-worker-crashed", "render backend exited unexpectedly with code -11"),
    ("supervisor-worker-crashed", "watchdog: web.1 (pid 33): exit status -11"),
    ("supervisor-worker-crashed", "00:00:01 web.1  | process terminated rc=-11"),
    ("supervisor-worker-crashed", "Subprocess 4411 exited with -6"),
    ("supervisor-worker-crashed", "Process Process-2 exited with code -11."),
    ("supervisor-worker-crashed", "Kernel 3f4d died with exit code -7"),
    (
        "supervisor-worker-crashed",
        "distributed.nanny - WARNING - Worker process 991 exited with status 1\ndistributed.nanny - WARNING - Restarting worker",
    ),
    ("supervisor-worker-crashed", "2024/01/01 10:00:00 [alert] 12#12: worker process 31 exited with code 2"),
    ("supervisor-worker-crashed", 'LOG:  background worker "python ext" (PID 3121) exited with exit code 1'),
    ("supervisor-worker-crashed", "WARNING: [pool www] child 77 exited with code 70 after 3.1 seconds from start"),
    # Editors.
    (
        "supervisor-worker-crashed",
        "error: plugin_host-3.8 has exited unexpectedly, some plugin functionality won't be available until Sublime Text has been restarted",
    ),
    ("supervisor-worker-crashed", "Extension host terminated unexpectedly. The following extensions were running: ms-python.python"),
    ("supervisor-worker-crashed", "[info] Extension host with pid 4242 exited with code: 0, signal: SIGSEGV."),
    ("supervisor-worker-crashed", "The Pylance server crashed 5 times in the last 3 minutes. The server will not be restarted."),
    ("supervisor-worker-crashed", "[Error - 9:10:11] Connection to server got closed. Server will not be restarted."),
    ("supervisor-worker-crashed", "Client pylsp quit with exit code 0 and signal 11. Check log for errors: lsp.log"),
    ("supervisor-worker-crashed", "Client jedi_language_server quit with exit code 1 and signal 0. Check log for errors: lsp.log"),
    (
        "supervisor-worker-crashed",
        "Server pylsp:31337/starting exited with status signal(check corresponding stderr buffer for details). Do you want to restart it?",
    ),
    ("supervisor-worker-crashed", "Process elpy-rpc<2> segmentation fault (core dumped)"),
    ("supervisor-worker-crashed", "\nProcess Python aborted"),
    # A DataLoader's message as torch's source has it.
    (
        "supervisor-worker-crashed",
        "-> 1243     raise RuntimeError('DataLoader worker (pid(s) {}) exited unexpectedly'.format(pids_str)) from e\n   1244 if isinstance(e, queue.Empty):",
    ),
    ("supervisor-worker-crashed", "    raise RuntimeError(f'DataLoader worker (pid(s) {pids_str}) exited unexpectedly') from e"),
    # A service manager's line, where nothing else is known.
    ("supervisor-worker-crashed", "systemd[1]: app.service: Main process exited, code=killed, status=11/SEGV"),
    ("supervisor-worker-crashed", "systemd[1]: app.service: Main process exited, code=dumped, status=6/ABRT"),
    # What a program says in its own handler of SIGTERM.
    ("killed-by-sigterm", "MainThread : Signal 15 caught, saving and exiting..."),
    ("killed-by-sigterm", "worker.py:227 Caught TERM signal, shutting down"),
    ("killed-by-sigterm", "INFO Received SIGTERM, flushing 3 records"),
    # Checks and lists of compilers and runtimes.
    (
        "triton-compile-crash",
        "loc(\"k.py\":7:4): error: failed to legalize operation 'ttg.convert_layout' that was explicitly marked illegal",
    ),
    ("cuda-oom", "Buffer 1:\n\tSize: 2.97GiB\n\tXLA Label: custom-call\n\tShape: bf16[3114720,512]"),
    (
        "runtime-out-of-memory",
        'RPython traceback:\n  File "rpython_rlib.c", line 15560, in rbigint\nout of memory: couldn\'t allocate a few KB more\nAborted',
    ),
    ("native-result-and-exception", "SystemError: <built-in function get_version> returned NULL without setting an error"),
    ("native-result-and-exception", "SystemError: <method 'f' of 'x.Y' objects> returned a result with an exception set"),
    # What a fault was, in the words of UCX and of Apple's crash reporter.
    (
        "guarded-memory",
        "[node:7:0:7] Caught signal 11 (Segmentation fault: invalid permissions for mapped object at address 0x2b176ad8bf74)",
    ),
    ("misaligned-access", "Exception Type: EXC_BAD_ACCESS (SIGBUS)\nException Subtype: EXC_ARM_DA_ALIGN at 0x000000010f2c1a3e"),
    # The word of another library in a run whose end is known.
    (
        "windows-access-violation",
        " Used AVX2 \n Illegal instruction sets are not used\nProcess finished with exit code -1073741819 (0xC0000005)",
    ),
    # Loaders.
    ("abi-undefined-symbol", "python3 does not start on the router:\nlibpython3.12.so.1.0: preadv2: symbol not found"),
    ("abi-undefined-symbol", "/usr/bin/tool: __res_init: symbol not found"),
    ("abi-undefined-symbol", 'ld-elf.so.1: /usr/local/lib/libopen.so.3: Undefined symbol "open_all"'),
    (
        "abi-undefined-symbol",
        "ld.so.1: python3: fatal: relocation error: file /opt/lib/_fast.so: symbol fast_open: referenced symbol not found",
    ),
    (
        "abi-undefined-symbol",
        'ImportError: dlopen failed: cannot locate symbol "PyFoo_New" referenced by "/data/data/com.termux/files/usr/lib/_foo.so"...',
    ),
    # GLib's check in a method of C++, which has colons and spaces in its name.
    (
        "c-assertion-failed",
        "APP:ERROR:../src/view.cc:41:bool app::view::View::paint(int, app::Area*): assertion failed: (area != nullptr)\nBail out! APP:ERROR:../src/view.cc:41:bool app::view::View::paint(int, app::Area*): assertion failed: (area != nullptr)\nAborted",
    ),
]

LOOK_ALIKES = [
    "systemd[1]: app.service: Main process exited, code=exited, status=0/SUCCESS",
    "The handler is called when the process received SIGUSR1, not before",
    "warning: failed to legalize the names of 3 columns that were explicitly marked illegal",
    "Label: XLA is the compiler, Shape: f32[3]",
    "the function returned NULL without setting errno",
    "Illegal-instruction handlers are documented in the manual (see core dumps).",
    "forrtl: error (200) is explained in the FAQ of the compiler.",
    "forrtl: warning (406): fort: (1): In call to F, an array temporary was created for argument #1",
    "Server with PID 43 exited with code 0.",
    "Process finished with exit code -1",
    "Subprocess 4411 exited with -1",
    "The server exited at -11 degrees.",
    "Process 43 exited normally. See chapter -11 of the list.",
    "the job (pid 9) died of 3.5 -4 °C",
    "distributed.nanny - INFO - Worker process 991 exited with status 0",
    "2024/01/01 10:00:00 [notice] 12#12: worker process 31 exited with code 0",
    "NCARCluster(processes=9, memory='10GB', resource_spec='select=1:ncpus=36:mem=10GB') cannot be used with dask workers, they are restarted",
    "Client pylsp quit with exit code 0 and signal 0.",
    "[info] Extension host with pid 4242 exited with code: 0, signal: unknown.",
    "Process Python finished",
    "if self._workers_status: raise RuntimeError('DataLoader worker (pid(s) {}) has a timeout')",
    "readme.txt: preadv2: symbol not found in the index",
    "GLib-CRITICAL **: g_object_ref: assertion 'G_IS_OBJECT (object)' failed",
]


@pytest.mark.parametrize(("expected", "text"), FORMS, ids=[f"{number}-{form[0]}" for number, form in enumerate(FORMS)])
def test_form(expected: str, text: str) -> None:
    check_named_first(expected, text)


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_nothing_is_claimed_of_a_look_alike(text: str) -> None:
    check_nothing_claimed(text)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("c-assertion-failed", "Assertion failed when training the second chain\n\nbash: line 1: 23670 Aborted                 (core dumped) ( compute-prob )"),
        ("c-assertion-failed", "assertion error in the decoder\nAbort trap: 6"),
        ("fatal-python-error", 'Fatal Python error when the adapter shuts down\n  "exception" : {"codes":"0x0","type":"EXC_CRASH","signal":"SIGABRT"},'),
        ("fatal-python-error", "fatal python error on exit of the second interpreter"),
        # What TensorFlow says on a machine without a GPU is no error of the program's.
        ("killed-by-signal-9-unknown", "It always got killed at iteration 1\n\n2022-11-25 08:59:37.07: E tsl/cuda_driver.cc:267] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"),
        ("killed-by-signal-9-unknown", "my job just gets killed after an hour\nE cuda_driver.cc:318] failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error"),
    ],
)  # fmt: skip
def test_a_title_says_what_the_output_does_not(expected: str, text: str) -> None:
    verdict = judged(Report(url="", text=text + "\n"))
    assert (verdict.taken, verdict.false) == (expected, ())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("c-assertion-failed", "Assertion failed when the test compares both lists\nAssertionError: lists differ"),
        ("c-assertion-failed", "Assertion failed in gather on my Mac: MPSNDArray, total bytes of NDArray > 2**32\nAbort trap: 6"),
        ("fatal-python-error", "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f12 (most recent call first):\n  File \"a.py\", line 3 in f\n"),
        ("fatal-python-error", "Fixed a fatal Python error on shutdown"),
    ],
)  # fmt: skip
def test_a_title_that_says_something_else(wrong: str, text: str) -> None:
    assert judged(Report(url="", text=text + "\n")).taken != wrong


NVDA = """\
INFO - watchdog.waitForFreezeRecovery (01:16:54.018) - watchdog (18536):
Starting freeze recovery after 0.5 seconds.
Listing stacks for Python threads:
Python stack for thread 10748 (MainThread):
  File "core.pyc", line 382, in run
"""


@pytest.mark.parametrize(
    "text",
    [
        "The screen reader crashes when the laptop wakes up\n" + NVDA,
        "Crash in a browser\nERROR - watchdog._watcher (01:16:59.018):\nCore frozen in stack! (10.1 seconds)\n",
        "the server crashes under load\n=====\nMon Jan  1 10:00:00 2024 : Greenlet <Greenlet at 0x7f10: handle(<Request 3>)> appears to be blocked\n",
        "My worker dies\nBlocking detector ALARMED at\n  File \"hub.py\", line 9, in run\n",
    ],
)  # fmt: skip
def test_a_program_watches_its_own_main_loop(text: str) -> None:
    verdict = judged(Report(url="", text=text))
    assert (verdict.taken, verdict.false) == ("hang-faulthandler-timeout", ())


@pytest.mark.parametrize(
    "text",
    [
        NVDA,  # a log in which nobody tells of a crash
        "It crashes at once.\nINFO - watchdog: the watchdog was started, freeze recovery after 10 seconds is enabled\n",
        "It crashes.\nThe path appears to be blocked by a firewall.\n",
        "Segmentation fault (core dumped)\nStarting freeze recovery after 0.5 seconds.\n",
    ],
)
def test_no_frozen_loop(text: str) -> None:
    assert judged(Report(url="", text=text, crash=False)).taken != "hang-faulthandler-timeout"
