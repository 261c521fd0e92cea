"""Stacks that overflowed: the reason, both ends, what repeats between them, in a report of bounded size."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from crashkit.limits import WHOLE_STACK
from crashkit.model import Crash, ElidedFrames, NativeFrame, PythonFrame, Thread
from crashkit.naming.functions import plain
from crashkit.pipeline import analyze
from crashkit.report import html, json
from crashkit.stacks.deep import INNER, OUTER
from tests.crashes import (
    CRASHERS,
    DEADLINE,
    GUARDS_ITS_STACK,
    Folder,
    an_interpreter,
    c_crash,
    interpreter,
    needs_gdb,
    needs_x86_64,
    python_crash,
    some_interpreters,
)

pytestmark = [pytest.mark.slow, needs_x86_64(), needs_gdb]

PURE_PYTHON = """\
import sys
sys.setrecursionlimit(10**9)

def down(depth):
    return down(depth + 1)

def main():
    down(0)

main()
"""

PURE_C = """\
#include <stdio.h>

__attribute__((noinline, noclone)) static long even(volatile long *depth);

__attribute__((noinline, noclone)) static long odd(volatile long *depth)
{
    volatile char room[1000];
    room[0] = (char)++*depth;
    return even(depth) + room[0];
}

__attribute__((noinline, noclone)) static long even(volatile long *depth)
{
    volatile char room[500];
    room[0] = (char)++*depth;
    return odd(depth) + room[0];
}

int main(void)
{
    volatile long depth = 0;
    return (int)even(&depth);
}
"""


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    folder = tmp_path_factory.mktemp("overflow")

    def written(name: str, text: str) -> Path:
        path: Path = folder / name
        path.write_text(text)
        return path

    return written


@cache
def analyzed(folder: Folder) -> Crash:
    return analyze(folder.core)


def check(crash: Crash) -> tuple[Thread, ElidedFrames]:
    """What holds for every overflow."""
    assert crash.signal.reason == "stack-overflow"
    assert "stack" in crash.signal.detail
    thread = crash.thread
    assert not thread.python_frames
    (gap,) = [frame for frame in thread.frames if isinstance(frame, ElidedFrames)]
    assert len(thread.frames) <= INNER + OUTER + 1
    assert [error.message for error in crash.soft_errors if error.stage in ("gdb", "native", "merge")] == []
    assert len(json.encode(crash)) < 1 << 20
    assert len(html.render(crash)) < 2 << 20
    return thread, gap


def ends(thread: Thread) -> tuple[list[str], list[str]]:
    names = ["…" if isinstance(frame, ElidedFrames) else frame.function or "??" for frame in thread.frames]
    at = names.index("…")
    return names[:at], names[at + 1 :]


def begins(thread: Thread) -> bool:
    """Whether the outermost frame is the one where threads begin, which a stripped C library does not name."""
    last = thread.frames[-1]
    assert isinstance(last, NativeFrame)
    in_library = last.function is None and (last.module or "").endswith("/libc.so.6")
    return in_library or plain(last.function or "") in ("_start", "clone3", "__clone3", "clone")


def frames_of_gdb(folder: Folder) -> int:
    """How many frames a plain gdb counts; it names none, which keeps it quick."""
    options = ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no"]
    command = ["gdb", *options, "-ex", "bt -1", str(folder.program), str(folder.core)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout
    return int(out.strip().splitlines()[-1].split()[0].lstrip("#")) + 1


@pytest.mark.parametrize("handler", [False, True], ids=["plain", "faulthandler"])
def test_python_recursion(write, handler):
    """3.8: every Python call is a call of the interpreter."""
    crash = analyzed(python_crash(write("pure.py", PURE_PYTHON), python=interpreter("3.8"), faulthandler=handler))
    thread, gap = check(crash)
    inner, outer = ends(thread)
    assert inner.count("down") > 30
    assert outer[-1] == "_start" and "main" in outer and "<module>" in outer
    assert outer.index("down") < outer.index("main") < outer.index("<module>")
    assert "down" in gap.cycle
    # 8 MiB hold some ten thousand Python calls of some hundred bytes each.
    assert 10_000 < gap.count < 500_000
    assert crash.signal.recovered == handler


@pytest.mark.parametrize("python", some_interpreters("3.11", "3.13"))
def test_python_recursion_through_c(python):
    """`sorted(key=...)` in a thread with a small stack: from 3.11 on only a call through C takes stack."""
    if python.version >= GUARDS_ITS_STACK:
        command = [python.path, CRASHERS / "faults.py", "python_overflow"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0 and "RecursionError: Stack overflow (used " in done.stderr, "it dies: the rest of this test is for it"
        return
    crash = analyzed(python_crash("faults.py", "python_overflow", python=python, faulthandler=False))
    assert crash.signal.reason == "stack-overflow"
    thread = crash.thread
    # Such a small stack is not too deep to be shown whole.
    assert not thread.python_frames and not any(isinstance(frame, ElidedFrames) for frame in thread.frames)
    names = [frame.function or "??" for frame in thread.frames]
    if python.has_debug_info:
        assert thread.name == "deep" and names.count("list_sort_impl") >= 50
    assert names.count("recurse") >= 50 and begins(thread)
    assert [name for name in names if name in ("run", "_bootstrap_inner", "_bootstrap")] == ["run", "_bootstrap_inner", "_bootstrap"]
    pythons = [frame for frame in thread.frames if isinstance(frame, PythonFrame)]
    assert {frame.source for frame in pythons if frame.function == "recurse"} == {"return sorted([item, item], key=recurse)"}


def test_c_recursion(write):
    """Against the number of frames that a plain gdb counts, one by one."""
    folder = c_crash(str(write("recursion.c", PURE_C)))
    crash = analyzed(folder)
    assert crash.signal.reason == "stack-overflow"
    names = [frame.function for frame in crash.thread.frames]
    true = frames_of_gdb(folder)
    assert true > 5_000
    if true <= WHOLE_STACK:
        # A plain gdb ends at main.
        assert true <= len(names) <= true + 3 and set(names[:5_000]) == {"even", "odd"} and "main" in names[-5:]
        return
    thread, gap = check(crash)
    inner, outer = ends(thread)
    assert set(inner) == {"even", "odd"}
    assert outer[-3:] == ["main", "__libc_start_call_main", "__libc_start_main_impl"] or outer[-1] == "_start"
    assert sorted(gap.cycle) == ["even", "odd"]
    assert abs(gap.count + len(inner) + len(outer) - true) < true / 100


@pytest.mark.parametrize("handler", [False, True], ids=["plain", "faulthandler"])
@pytest.mark.parametrize("kind", ["c_overflow", "c_overflow_thread"])
def test_c_recursion_below_python(kind, handler):
    """The Python frames stand at the outer end, which gdb was never walked to."""
    crash = analyzed(python_crash("faults.py", kind, python=an_interpreter(), faulthandler=handler))
    thread, gap = check(crash)
    _, outer = ends(thread)
    pythons = [frame.function for frame in thread.pythons()]
    assert pythons[:2] == ["execute", "c_overflow"]
    assert pythons[-1] == ("_bootstrap" if kind.endswith("thread") else "<module>")
    assert begins(thread)
    assert outer.index("execute") < outer.index(pythons[-1]) < len(outer) - 1
    # The machine code calls itself with eight bytes a call.
    assert 900_000 < gap.count < 1_100_000


NESTED = [
    ("chained", "chain_next", "Do not wrap an iterator in another one in a loop: `chain_next` calls itself once for each of about "),
    ("mapped", "map_next", "Do not wrap an iterator in another one in a loop: `map_next` calls itself once for each of about "),
    (
        "freed",
        "deque_dealloc",
        "Take the chain of objects apart in a loop before the last reference to it goes: each holds the next one, and `deque",
    ),
    (
        "called",
        "method_vectorcall",
        "Do not wrap a function in another one again and again: `method_vectorcall` calls itself once for ",
    ),
    ("hashed", "tuplehash", "Make the data flatter if `tuplehash` follows nested data: it calls itself in C, about "),
]


@pytest.mark.parametrize(("kind", "function", "fix"), NESTED, ids=[kind for kind, *_ in NESTED])
def test_nested_objects(kind, function, fix):
    """No Python function calls itself: what to do is about the objects, and the cycle is told."""
    crash = analyzed(python_crash("nested.py", kind, python=interpreter("3.11")))
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("stack-overflow", "certain")
    assert finding.fix[0].startswith(fix)
    assert "End the recursion" not in "".join(finding.fix)
    assert function in finding.summary and f"nested.py:{next(iter(crash.thread.pythons())).line} in {kind}" in finding.summary


def test_recursion_of_python_functions_is_not_blamed_on_objects(write):
    crash = analyzed(python_crash(write("pure.py", PURE_PYTHON), python=interpreter("3.8"), faulthandler=False))
    assert crash.findings[0].fix[0].startswith("End the recursion: `down` is about ")
    assert not any(text in "".join(crash.findings[0].fix) for text in ("calls itself", "Take the chain"))
