"""Texts of servers, supervisors and other languages that run Python: what the first screen claims of each, and what it must not claim."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from crashkit.pipeline import analyze
from crashkit.report import text


class Judged(NamedTuple):
    text: str
    first: Optional[str]
    """The first finding."""
    said: tuple[str, ...]
    never: tuple[str, ...] = ()


TEXTS = {
    "uwsgi": Judged(
        """\
!!! uWSGI process 12779 got Segmentation Fault !!!
*** backtrace of 12779 ***
/srv/app/venv/lib/python3.11/site-packages/pyuwsgi.cpython-311-x86_64-linux-gnu.so(uwsgi_backtrace+0x2f) [0x7f87489c407f]
/srv/app/venv/lib/python3.11/site-packages/pyuwsgi.cpython-311-x86_64-linux-gnu.so(uwsgi_segfault+0x2f) [0x7f87489c44af]
/lib/x86_64-linux-gnu/libc.so.6(+0x3c050) [0x7f8748e5a050]
/lib/x86_64-linux-gnu/libc.so.6(+0x167ad8) [0x7f8748f85ad8]
/usr/local/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so(+0x8608) [0x7f874859d608]
/usr/local/lib/libpython3.11.so.1.0(_PyEval_EvalFrameDefault+0x2e53) [0x7f87490fd9c3]
/usr/local/lib/libpython3.11.so.1.0(_PyEval_EvalFrameDefault+0x3598) [0x7f87490fe108]
/srv/app/venv/bin/python(_start+0x21) [0x560eb7be0081]
*** end of backtrace ***
DAMN ! worker 2 (pid: 12779) died :( trying respawn ...
""",
        "supervisor-worker-crashed",
        ("it ran Python code, whose lines are not in this text",),
        ("no Python frame",),
    ),
    "julia": Judged(
        """\
[4217] signal 11 (1): Segmentation fault
in expression starting at none:0
pyjlcallback at /home/u/.julia/packages/PythonCall/L4cjh/src/JlWrap/C.jl:63
unknown function (ip: 0x7f2a4c18b2d4)
_PyObject_MakeTpCall at /usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0 (unknown line)
_PyEval_EvalFrameDefault at /usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0 (unknown line)
Py_RunMain at /usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0 (unknown line)
__libc_start_main at /lib/x86_64-linux-gnu/libc.so.6 (unknown line)
_start at python3 (unknown line)
Allocations: 2906034 (Pool: 2902101; Big: 3933); GC: 5
Segmentation fault (core dumped)
""",
        None,
        ("pyjlcallback  C.jl:63", "it ran Python code, whose lines are not in this text"),
        ("garbage collector", "starting  none"),
    ),
    "dotnet": Judged(
        """\
Fatal error. System.AccessViolationException: Attempted to read or write protected memory. This is often an indication that other memory is corrupt.
Repeat 2 times:
--------------------------------
   at Python.Runtime.Runtime+Delegates.PyObject_GetAttrString(Python.Runtime.BorrowedReference, Python.Runtime.StrPtr)
--------------------------------
   at Python.Runtime.Runtime.PyObject_GetAttrString(Python.Runtime.BorrowedReference, System.String)
   at Python.Runtime.PyObject.GetAttr(System.String)
   at Acme.Scoring.Model.Predict(System.Double[])
   at Acme.Scoring.Program.Main(System.String[])
Aborted (core dumped)
""",
        "windows-access-violation",
        ("and .NET on any system",),
        ("Windows ended the process",),
    ),
    "reticulate": Judged(
        """\
 *** caught segfault ***
address 0x30, cause 'memory not mapped'

Traceback:
 1: py_call_impl(callable, call_args$unnamed, call_args$named)
 2: model$fit(x_train, y_train, epochs = 5L)
 3: eval(expr, envir)
 4: source("train.R")

Possible actions:
1: abort (with core dump, if enabled)
2: normal R exit
3: exit R without saving workspace
4: exit R saving workspace
Selection:
""",
        "null-deref",
        ("0x0000000000000030",),
        ("ctypes",),
    ),
    "go": Judged(
        """\
fatal error: unexpected signal during runtime execution
[signal SIGSEGV: segmentation violation code=0x1 addr=0x10 pc=0x7f2a4c18b2d4]

runtime stack:
runtime.throw({0x4d8c1a?, 0x7f2a4d8777e5?})
	/usr/local/go/src/runtime/panic.go:1047 +0x5d

goroutine 1 [syscall]:
runtime.cgocall(0x4a8f40, 0xc00009fe48)
	/usr/local/go/src/runtime/cgocall.go:157 +0x5c
github.com/go-python/cpy3._Cfunc_PyObject_CallObject(0x0, 0x7f2a4c0a1040)
	_cgo_gotypes.go:1234 +0x4a
main.main()
	/src/main.go:27 +0x1d
exit status 2
""",
        "null-deref",
        ("0x0000000000000010",),
        ("ctypes",),
    ),
    "oom_of_a_unit": Judged(
        """\
Nov 27 09:14:03 web-3 kernel: python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
Nov 27 09:14:03 web-3 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/api.service,task_memcg=/system.slice/api.service,task=python3,pid=4217,uid=1000
Nov 27 09:14:03 web-3 kernel: Memory cgroup out of memory: Killed process 4217 (python3) total-vm:5820400kB, anon-rss:4190220kB, file-rss:12400kB, shmem-rss:0kB, UID:1000 pgtables:8800kB oom_score_adj:0
Nov 27 09:14:03 web-3 systemd[1]: api.service: A process of this unit has been killed by the OOM killer.
Nov 27 09:14:03 web-3 systemd[1]: api.service: Main process exited, code=killed, status=9/KILL
Nov 27 09:14:03 web-3 systemd[1]: api.service: Failed with result 'oom-kill'.
Nov 27 09:14:04 web-3 systemd[1]: api.service: Scheduled restart job, restart counter is at 3.
""",
        "host-oom-cgroup",
        ("MemoryMax",),
        ("docker",),
    ),
    "stop_timeout": Judged(
        """\
Nov 27 10:02:11 web-3 systemd[1]: Stopping ingest.service - Ingest...
Nov 27 10:03:41 web-3 systemd[1]: ingest.service: State 'stop-sigterm' timed out. Killing.
Nov 27 10:03:41 web-3 systemd[1]: ingest.service: Killing process 991 (python3) with signal SIGKILL.
Nov 27 10:03:41 web-3 systemd[1]: ingest.service: Main process exited, code=killed, status=9/KILL
Nov 27 10:03:41 web-3 systemd[1]: ingest.service: Failed with result 'timeout'.
""",
        "timeout-service-stop",
        ("ingest.service had been asked to stop",),
        ("did not report",),
    ),
    "liveness": Judged(
        """\
Containers:
  api:
    State:          Running
      Started:      Fri, 27 Nov 2026 08:42:41 +0000
    Last State:     Terminated
      Reason:       Error
      Exit Code:    137
      Started:      Fri, 27 Nov 2026 08:10:11 +0000
      Finished:     Fri, 27 Nov 2026 08:42:40 +0000
    Restart Count:  5
    Liveness:       http-get http://:8000/healthz delay=5s timeout=1s period=10s #success=1 #failure=3
Events:
  Type     Reason     Age                 From     Message
  ----     ------     ----                ----     -------
  Warning  Unhealthy  3m (x3 over 3m)     kubelet  Liveness probe failed: Get "http://10.0.3.12:8000/healthz": context deadline exceeded (Client.Timeout exceeded while awaiting headers)
  Normal   Killing    3m                  kubelet  Container api failed liveness probe, will be restarted
""",
        "timeout-liveness-probe",
        ("The kubelet ended api",),
        ("sender unknown",),
    ),
    "jvm": Judged(
        """\
#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f2a4c18b2d4, pid=4217, tid=4218
#
# JRE version: OpenJDK Runtime Environment (17.0.9+9) (build 17.0.9+9-Debian-1)
# Java VM: OpenJDK 64-Bit Server VM (17.0.9+9-Debian-1, mixed mode, sharing, tiered, compressed oops, compressed class ptrs, g1 gc, linux-amd64)
# Problematic frame:
# C  [_jpype.cpython-311-x86_64-linux-gnu.so+0x4c2d4]  JPJavaFrame::GetObjectField(_jobject*, _jfieldID*)+0x24
#
# Core dump will be written. Default location: Core dumps may be processed with "/usr/lib/systemd/systemd-coredump %P"
#
---------------  T H R E A D  ---------------

Current thread (0x00007f2a44012340):  JavaThread "main" [_thread_in_native, id=4218, stack(0x00007ffd4a0c2000,0x00007ffd4a8c2000)]

siginfo: si_signo: 11 (SIGSEGV), si_code: 1 (SEGV_MAPERR), si_addr: 0x0000000000000010

Native frames: (J=compiled Java code, j=interpreted, Vv=VM code, C=native code)
C  [_jpype.cpython-311-x86_64-linux-gnu.so+0x4c2d4]  JPJavaFrame::GetObjectField(_jobject*, _jfieldID*)+0x24
C  [_jpype.cpython-311-x86_64-linux-gnu.so+0x31f10]  PyJPField_get+0x90
C  [python3.11+0x14a1f5]  _PyEval_EvalFrameDefault+0x4c5
""",
        "jvm-crash",
        ("it ran Python code, whose lines are not in this text",),
        ("no Python frame",),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_first_screen(name: str, tmp_path: Path) -> None:
    judged = TEXTS[name]
    log = tmp_path / "output.log"
    log.write_text(judged.text)
    crash = analyze(log)
    shown = " ".join("\n".join(text.summary(crash, None, False, 120)).split())
    assert (crash.findings[0].id if crash.findings else None) == judged.first
    for words in judged.said:
        assert " ".join(words.split()) in shown
    for words in judged.never:
        assert " ".join(words.split()) not in shown
