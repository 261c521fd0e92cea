"""What people paste of native crashes, in the forms in which they paste it: a debugger's stack, Windows in its languages, Markdown.

The look-alikes have the same words and show no crash of that kind.
"""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log

ABORT = "#0  __GI_raise (sig=sig@entry=6) at raise.c:58\n#1  0x00007ffff6f2d40a in __GI_abort () at abort.c:89\n"
SEGV = "Program received signal SIGSEGV, Segmentation fault.\n"
TOLD = {
    "windows-access-violation": [
        "Problemsignatur:\n  Problemereignisname:\tAPPCRASH\n  Fehlermodulname:\tntdll.dll\n  Ausnahmecode:\tc0000005\n  Ausnahmeoffset:\t0003d968\n",
        "Nom d’événement de problème: APPCRASH\nCode de l’exception: c0000005\n",
        "例外コード：c0000005\n",
        "<EventData>\n<Data>python.exe</Data>\n<Data>c0000005</Data>\n",
    ],
    "null-deref": [
        "(7f18.3c8c): Access violation - code c0000005 (first/second chance not available)\n   ExceptionCode: c0000005 (Access violation)\nAttempt to read from address 0000000000000008\n",
        "==65==ERROR: ThreadSanitizer: SEGV on unknown address 0x000000000000 (pc 0x0001024eb61c T35)\n",
    ],
    "gc-corrupted-object": [
        f'{ABORT}#2  0x00007ffff6f24ef2 in __GI___assert_fail (assertion=0x5fae87 "gc->gc.gc_refs != 0", file=0x5fae40 "../Modules/gcmodule.c", line=351, function=0x5fb2d8 <__PRETTY_FUNCTION__.9755> "update_refs") at assert.c:101\n'
    ],
    "gc-refcount-too-small": ["python: Modules/gcmodule.c:379: visit_decref: Assertion `((gc)->gc.gc_refs >> (1)) != 0' failed.\n"],
    "heap-corruption-invalid-free": [
        f'{ABORT}#3  0x00007ffff6ccf8ba in malloc_printerr (str=str@entry=0x7ff "free(): invalid pointer") at malloc.c:5342\n#4  0x00007ffff6cd6dec in _int_free (have_lock=0, p=0x7fff280e49a8) at malloc.c:4167\n',
        "Fatal Python error: bad ID: Allocated using API 'o', verified using API 'm'\n",
        f"{SEGV}#0  _int_free (av=0x7ff0 <main_arena>, p=0x5555a0, have_lock=0) at malloc.c:4007\n#1  0x00007ffff7a914f9 in __GI___libc_free (mem=<optimized out>) at malloc.c:2969\n",
    ],
    "heap-corruption-overflow": [
        "The structure misses a field, which causes an 8-byte heap buffer overflow.\n",
        f"{SEGV}#0  raise (sig=<optimized out>) at ../sysdeps/unix/sysv/linux/raise.c:51\n#1  0x00007f09c4cc4408 in handler_SIGSEGV(int, siginfo_t*, void*) () from /x/torch/lib/libtorch_python.so\n#2  <signal handler called>\n"
        "#3  _int_malloc (av=av@entry=0x7f09c7eafc40 <main_arena>, bytes=bytes@entry=5765296) at malloc.c:3924\n#4  0x00007f09c7b5967b in _int_memalign (av=0x7f09c7eafc40 <main_arena>) at malloc.c:4683\n",
        f"{SEGV}#0  0x00007ffff7a8f1aa in malloc_consolidate (av=av@entry=0x7ffff7dd1b20) at malloc.c:4180\n#1  0x00007ffff7a914f9 in _int_malloc (av=0x7ff0) at malloc.c:2969\n",
    ],
    "gil-not-held": [
        f'{ABORT}#2  0x00005555556c4fc2 in Py_FatalError (msg=0x5fae87 "PyThreadState_Get: no current thread") at pylifecycle.c:1457\n',
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  pybind11::handle::dec_ref() PyGILState_Check() failure.\nAborted (core dumped)\n",
    ],
    "stack-overflow": [
        "Fatal Python error: _Py_CheckRecursiveCall: Unrecoverable stack overflow (used 8190 kB) while calling a Python object\n"
    ],
    "import-order-libstdcxx": [
        "*** Error in `python': free(): invalid pointer: 0x00007f801fcdbb80 ***\n======= Backtrace: =========\n/lib/libc.so.6(cfree+0x4c)[0x7f80a2e7053c]\n"
        "/lib/libshm.so(_ZNSt6locale5_Impl16_M_install_facetEPKNS_2idEPKNS_5facetE+0x142)[0x7f801fa75802]\n"
    ],
    "gui-wrong-thread": [
        "Exception Type:        EXC_BREAKPOINT (SIGTRAP)\nTermination Reason:    Namespace SIGNAL, Code 5 Trace/BPT trap: 5\n\nThread 5 Crashed:\n"
        "0   libdispatch.dylib   0x1a0f5e0d4 _dispatch_assert_queue_fail + 120\n1   libdispatch.dylib   0x1a0f5e05c dispatch_assert_queue + 196\n2   HIToolbox   0x1aa1f6a08 islGetInputSourceListWithAdditions + 160\n"
    ],
    "objc-uncaught-exception": [
        "python[16824:5416784] -[NSApplication _setup:]: unrecognized selector sent to instance 0x7fbe9e66eb60\nAbort trap: 6\n",
        "It crashes python on startup with a `NSInvalidArgumentException`.\n",
    ],
    "abi-undefined-symbol": [
        "ImportError: undefined symbol: PyUnicodeUCS4_DecodeUTF8\n",
        'I get "ImportError: /usr/lib/gevent/_semaphore.so: undefined symbol: PyUnicodeUCS4_DecodeUTF8" when I import it\n',
        "gdb: symbol lookup error: gdb: undefined symbol: PyUnicodeUCS4_FromEncodedObject\n",
    ],
    "jvm-crash": [
        "Native frames: (J=compiled Java code, A=aot compiled Java code, j=interpreted, Vv=VM code, C=native code)\nC  [_jpype.so+0x1ba8a]  JPJavaEnv::NewString+0x2a\n"
    ],
    "valgrind-report": ["=11345== Invalid read of size 1\n==11345==    at 0x47CC63: subtype_dealloc (typeobject.c:1343)\n"],
    "pyqt-unhandled-exception": [
        'Current thread\'s C stack trace (most recent call first):\n  Binary file "/usr/lib/libpython3.14.so.1.0", at _Py_DumpStack+0x4d [0x7f390bf3e68a]\n'
        '  Binary file "/usr/lib/libc.so.6", at abort+0x26 [0x7f390ba255fe]\n  Binary file "/usr/lib/libQt6Core.so.6", at _ZNK14QMessageLogger5fatalEPKcz+0x103 [0x7f390909488f]\n'
        '  Binary file "/usr/lib/python3.14/site-packages/PyQt6/QtCore.abi3.so", at +0x1c7bec [0x7f3905bc7bec]\n',
        "Due to a change of behavior in Qt5, unhandled exceptions result in an abort().\n",
    ],
    "array-memory-gone": ["This crashes: the mapped memory behind the numpy array is freed, and then it is read. Segmentation fault\n"],
    "fd-set-overflow": [
        "*** buffer overflow detected ***: terminated\nThe process has more than 1024 file handles, and FD_SET writes beyond the set.\n"
    ],
    "supervisor-worker-crashed": ["[NbConvertApp] ERROR | Kernel died while waiting for execute reply.\n"],
    "timeout-slurm-job": ["    message: SLURM-job '4982330' failed, SLURM status is: 'TIMEOUT'. For further error details see the log.\n"],
    "illegal-instruction": [
        "Exception Type:        EXC_BAD_INSTRUCTION (SIGILL)\n\nThread 0 Crashed:: Dispatch queue: com.apple.main-thread\n0   org.python.python   0x00000001005b2086 _PyRandom_Init + 376\n1   org.python.python   0x00000001005af553 Py_InitializeEx + 345\n"
    ],
    "c-assertion-failed": [
        "+ thread \\#1: tid = 18364, 0x00007f29bbb06267 libc.so.6\\`\\_\\_GI_raise(sig=6) + 55 at raise.c:55, name = 'python', stop reason = signal SIGABRT\n"
        "frame \\#1: 0x00007f29bbb07eca libc.so.6\\`\\_\\_GI_abort + 362 at abort.c:89\nframe \\#2: 0x00007f29bbaff03d libc.so.6\\`\\_\\_assert_fail_base(fmt=\\<unavailable\\>) + 285 at assert.c:92\n"
    ],
}
LOOK_ALIKES = {
    "ld.lld: error: undefined symbol: PyObject_Call\n>>> referenced by module.c:12\n": "abi-undefined-symbol",
    "git show c0000005: fixes the reader\ncommit: c0000005ab\n": "windows-access-violation",
    "Attempt to read from address 0000000000000008 was blocked by the filter\n": "null-deref",
    "Thread 1:\n0   libdispatch.dylib   0x1a0f5e0d4 _dispatch_worker_thread2 + 120\n": "gui-wrong-thread",
    "raise an NSException in the handler if the colour is missing\n": "objc-uncaught-exception",
    "FD_SET takes at most 1024 descriptors.\n": "fd-set-overflow",
    "The kernel died down to a murmur\n": "supervisor-worker-crashed",
    "SLURM status is: 'RUNNING', time limit 2:00:00\n": "timeout-slurm-job",
    "heap: 12 MB of 64 MB used, no overflow\n": "heap-corruption-overflow",
    "*** stack smashing detected ***: terminated\n": "fd-set-overflow",
    "The memory of the array is freed when it goes out of scope.\n": "array-memory-gone",
    "The GIL must be held when dec_ref() is called; see PyGILState_Check()\n": "gil-not-held",
}


@pytest.mark.parametrize(("expected", "text"), [(expected, text) for expected, texts in TOLD.items() for text in texts])
def test_named_first(expected: str, text: str, tmp_path: Path) -> None:
    assert _found(text, tmp_path)[:1] == [expected]


@pytest.mark.parametrize(("text", "identity"), LOOK_ALIKES.items())
def test_look_alike(text: str, identity: str, tmp_path: Path) -> None:
    assert identity not in _found(text, tmp_path)


def _found(text: str, folder: Path) -> list[str]:
    path = folder / "posted.log"
    path.write_text(text)
    try:
        crash = crash_of_log(path, read_log(path))
    except EvidenceError:
        return []
    assert not crash.soft_errors or all("bug in crashkit" not in (error.hint or "") for error in crash.soft_errors)
    return [finding.id for finding in diagnose(crash, load_catalog()).findings]
