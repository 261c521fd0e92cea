"""Who burns a processor inside CUDA's driver, and stays at one place of its Python code, waits for the GPU: nobody else does.

The driver is a stand-in, compiled here, in a file of its name: these machines have no GPU. docs/gpu.md tells what was seen on one.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from crashkit.collect.attach import attach
from crashkit.collect.standstill import Standing, Standstill
from crashkit.pipeline import Options
from tests.collect.conftest import Crashkit
from tests.crashes import DEADLINE, NO_COMPILER, Interpreter, every_interpreter, needs_gdb, needs_x86_64

pytestmark = needs_x86_64()

LIBRARY = """
#include <sched.h>
#include <time.h>
enum { SPIN, ASK, YIELD };
static long submitted;
static volatile int never;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static __attribute__((noinline)) void look(int how, double until, volatile long *wanted) {
    volatile char room[512];
    for (room[0] = 0; !never && (how == SPIN || now() < until); room[0]++)
        if (how == YIELD) sched_yield();
    *wanted = 0;
}
static __attribute__((noinline)) void look_at(volatile double *until, volatile long *wanted) {
    volatile char room[512];
    for (room[0] = 0; now() < *until; room[0]++);
    *wanted = 0;
}
/* Like driver 580, whose outer functions keep the number of what they wait for on the stack. */
static __attribute__((noinline)) void wait(int how, double seconds) {
    volatile long wanted = ++submitted;
    look(how, now() + seconds, &wanted);
}
void forever(void) { wait(SPIN, 0); }
void asking_the_time(void) { wait(ASK, 1e9); }
void letting_others_run(void) { wait(YIELD, 1e9); }
int cuCtxSynchronize(void) { wait(ASK, 1e9); return 0; }
void for_a_while(double seconds) { wait(ASK, seconds); }
/* Unlike it: one such wait looks like the other. */
static double until;
void alike(double seconds) { volatile long wanted = 0; until = now() + seconds; look_at(&until, &wanted); }
"""

HEAD = """
import ctypes, sys, threading
sys.path.insert(0, "lib/python3/site-packages")
cuda, other = ctypes.CDLL("./libcuda.so.1"), ctypes.CDLL("./libother.so")
cuda.for_a_while.argtypes = cuda.alike.argtypes = [ctypes.c_double]
print("ready", flush=True)
"""
PACKAGE = "def synchronize(driver):\n    driver.forever()\n"

WAITS = {
    "a loop": "cuda.forever()  # HERE\n",
    "a library's function": "from gpulib import stream\nstream.synchronize(cuda)  # HERE\n",
    "beside idle threads": "threading.Thread(target=threading.Event().wait, daemon=True).start()\ncuda.forever()  # HERE\n",
    "in a thread without Python": """
import ctypes
pthread = ctypes.CDLL(None).pthread_create
thread, lock = ctypes.c_ulong(), threading.Lock()
pthread(ctypes.byref(thread), None, cuda.forever, None)
lock.acquire(); lock.acquire()  # HERE
""",
    "asking the time": "cuda.asking_the_time()  # HERE\n",
    "letting others run": "cuda.letting_others_run()  # HERE\n",
}
WORKS = {
    "a training whose steps wait for the GPU": "while True:\n    cuda.for_a_while(0.03)\n",
    "a loop that counts": "for step in range(10**9): cuda.alike(0.03)\n",
    "a loop over a list": "for _ in [None] * 10**6: cuda.alike(0.03)\n",
    "a computation outside CUDA": "other.forever()\n",
    "a loop in Python": "while True: pass\n",
    "a wait beside a computation": "threading.Thread(target=other.forever, daemon=True).start()\ncuda.forever()\n",
}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(LIBRARY)
    for name in ("libcuda.so.1", "libother.so"):
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", folder / name, folder / "driver.c"], check=True, timeout=DEADLINE)
    package = folder / "lib" / "python3" / "site-packages" / "gpulib"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "stream.py").write_text(PACKAGE)
    return folder


@contextmanager
def running(libraries: Path, code: str, python: str | Path = sys.executable) -> Iterator[tuple[int, IO[str]]]:
    program = libraries / "program.py"
    program.write_text(HEAD + code)
    with subprocess.Popen([python, "-I", program], cwd=libraries, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        try:
            yield child.pid, child.stdout
        finally:
            child.kill()


def line_of(code: str) -> int:
    return next(number for number, line in enumerate((HEAD + code).splitlines(), 1) if line.endswith("# HERE"))


class Look(NamedTuple):
    standing: Standing | None
    seconds: float
    """For how long it had been standing then."""


def looks(pid: int, count: int, enough: float = math.inf) -> list[Look]:
    """What each of so many looks says, as the watch looks, with samples in between; no more looks after it stood for so many seconds."""
    watch, said = Standstill(pid), list[Look]()
    while len(said) < count and not (said and said[-1].seconds > enough):
        for _ in range(10):
            time.sleep(0.005)  # what is watched is time
            watch.sample()
        standing = watch.look()
        said.append(Look(standing, time.monotonic() - standing.since if standing else 0.0))
    watch.close()
    return said


def waits(libraries: Path, kind: str, python: Interpreter | None = None) -> None:
    with running(libraries, WAITS[kind], python.path if python else sys.executable) as (pid, _):
        last = looks(pid, 200, enough=0.5)[-1]
    assert last.standing is not None
    called = " (gpulib.stream.synchronize)" if kind == "a library's function" else ""
    assert last.standing.place == f"program.py:{line_of(WAITS[kind])}{called}"


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_every_python_waits(python: Interpreter, libraries: Path) -> None:
    waits(libraries, "a loop", python)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in WAITS if kind != "a loop"])
def test_waits(kind: str, libraries: Path) -> None:
    waits(libraries, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORKS)
def test_works(kind: str, libraries: Path) -> None:
    """Two looks may find it in the same wait, or the second has nothing to compare with yet."""
    with running(libraries, WORKS[kind]) as (pid, _):
        since = Counter(one.standing.since for one in looks(pid, 20) if one.standing is not None)
    assert max(since.values(), default=0) <= 3, since


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize(("library", "expected"), [("cuda", [("cuda", "cuCtxSynchronize")]), ("other", [])])
def test_attach_says_for_what_it_burns_a_processor(library: str, expected: list[tuple[str, str]], libraries: Path) -> None:
    with running(libraries, f"{library}.cuCtxSynchronize()\n") as (pid, _):
        crash = attach(pid, Options())
    (thread,) = crash.threads
    assert thread.activity == "busy"
    assert [(wait.kind, wait.name) for wait in crash.waits] == expected


@pytest.mark.slow
def test_who_comes_back_has_moved(libraries: Path) -> None:
    """Between two looks it was elsewhere."""
    code = "cuda.for_a_while(2)\nprint('moved', flush=True)\ncuda.forever()\n"
    with running(libraries, code) as (pid, said):
        watch = Standstill(pid)
        while watch.look() is None:
            time.sleep(0.01)
        assert not watch.sample()
        assert said.readline() == "moved\n"
        assert watch.sample() and watch.look() is None
        watch.close()


@pytest.fixture
def crashkit(tmp_path: Path) -> Crashkit:
    return Crashkit(tmp_path)


@pytest.mark.long
def test_run_tells_of_one_that_waits(crashkit: Crashkit, libraries: Path) -> None:
    """With the same evidence and the same end as any other hang."""
    code = WAITS["a library's function"]
    program = libraries / "waiting.py"
    program.write_text(HEAD + code)
    options = ("--no-analyze", "--hang-after", "1", "--on-hang", "abort")
    done = crashkit("run", *options, "--", sys.executable, "-I", program, cwd=libraries)
    assert done.returncode == 128 + signal.SIGTERM
    why = f"it waits for the GPU at waiting.py:{line_of(code)} (gpulib.stream.synchronize) for 1 s"
    assert f"the command hangs: {why}" in done.stderr
    (manifest,) = (json.loads(path.read_text()) for path in crashkit.home.glob("*/manifest.json"))
    assert manifest["alive"] == why and "core" in {file["kind"] for file in manifest["files"]}


@pytest.mark.long
def test_run_lets_others_work(crashkit: Crashkit, libraries: Path) -> None:
    """One waits for the GPU again and again, for longer than that in all; the other once, for less than that."""
    program = libraries / "working.py"
    program.write_text(HEAD + "for _ in range(150): cuda.for_a_while(0.03)\ncuda.for_a_while(0.8)\n")
    done = crashkit("run", "--no-analyze", "--hang-after", "1", "--on-hang", "abort", "--", sys.executable, "-I", program, cwd=libraries)
    assert done.returncode == 0 and "hangs" not in done.stderr
