"""Processes on musl, the C library of Alpine: it has no unwind tables, and checks its heap without a word.

The recorded crash is read everywhere. The C programs need musl-gcc, and CPython a build that takes minutes (tests/built_pythons.py).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from tests.built_pythons import conda_python, musl_python
from tests.crashes import CRASHERS, DEADLINE, crash, python_crash
from tests.interpreter.process import opened, state_of
from tests.interpreter.recorded import recorded
from tests.interpreter.test_known_threads import PROGRAM, check

FOLDER = Path(__file__).parent.parent / "fixtures" / "musl"
NO_COMPILER = "no compiler for musl here: apt-get install musl-tools"
NO_GDB = Options(gdb=None)


def test_a_recorded_crash_of_cpython(tmp_path: Path) -> None:
    made = recorded("3.13", PROGRAM, tmp_path, FOLDER)
    with opened(made.core) as core:
        check(core, state_of(core), made)


@pytest.mark.parametrize("gdb", ["gdb", None])
def test_without_the_files_nothing_is_invented(gdb: str | None, tmp_path: Path) -> None:
    """Neither has musl unwind tables, nor is its code in a core: what a debugger finds behind it is a guess."""
    if gdb is not None and shutil.which(gdb) is None:
        pytest.skip("no gdb here: apt-get install gdb")
    made = recorded("3.13", PROGRAM, tmp_path, FOLDER)
    found = analyze(made.core, options=Options(gdb=gdb, sysroot=tmp_path / "nothing"))
    assert len(found.threads) == 5
    assert all(len(list(thread.natives())) == 1 for thread in found.threads)
    # The crashed one stands where the fault was, not in the handler that ended the process.
    elsewhere = [thread for thread in found.threads if next(iter(thread.natives())).pc != thread.registers["rip"]]
    assert elsewhere == [found.thread]
    assert all(frame.module for thread in found.threads for frame in thread.natives())
    assert all(any(thread.pythons()) for thread in found.threads)


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("musl-gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    program = tmp_path_factory.mktemp("musl") / "musl_checks"
    options = ["-g", "-O0", "-w", "-fstack-protector-all", "-Wl,--eh-frame-hdr"]
    subprocess.run([compiler, *options, CRASHERS / "musl_checks.c", "-o", program], check=True, timeout=DEADLINE)
    return program


def crashed(program: Path, kind: str, folder: Path, options: Options | None = None) -> Crash:
    return analyze(crash([program, kind], folder).core, options=options or Options())


def functions(found: Crash) -> list[str | None]:
    assert found.thread is not None
    return [frame.function for frame in found.thread.natives()]


@pytest.mark.slow
@pytest.mark.parametrize("options", [Options(), NO_GDB], ids=["gdb", "no gdb"])
@pytest.mark.parametrize(
    ("kind", "names", "finding"),
    [
        ("double free", ["free", "main"], "heap-check-of-musl"),
        ("big double free", ["free", "main"], "heap-check-of-musl"),
        ("overflow", ["free", "main"], "heap-check-of-musl"),
        ("interior pointer", ["free", "main"], "heap-check-of-musl"),
        ("wild pointer", ["free", "main"], "heap-check-of-musl"),
        ("realloc", ["realloc", "main"], "heap-check-of-musl"),
        ("canary", ["__stack_chk_fail", "writes_too_much"], "stack-smashing"),
        ("abort", ["raise", "abort", "main"], "self-abort"),
        ("Assertion", ["raise", "abort", "__assert_fail", "main"], "c-assertion-failed"),
        ("thread", ["raise", "abort", "aborts"], "self-abort"),
    ],
)
def test_what_its_checks_stop(checks: Path, kind: str, names: list[str], finding: str, options: Options, tmp_path: Path) -> None:
    found = crashed(checks, kind, tmp_path, options)
    assert found.signal is not None and found.signal.name == ("SIGABRT" if "abort" in names else "SIGSEGV")
    assert [name for name in functions(found) if name][: len(names)] == names
    assert found.findings[0].id == finding
    assert "control flow" not in (found.signal.detail or "")
    if kind != "canary":
        # What called the program's own functions is musl's, which has no name; then comes nothing.
        assert [frame.module for frame in found.thread.natives()][-1].endswith("/libc.so")  # type: ignore[union-attr]
        assert functions(found)[functions(found).index(names[-1]) + 1 :] == [None]


@pytest.mark.slow
def test_a_stack_of_the_default_size_overflows(checks: Path, tmp_path: Path) -> None:
    found = crashed(checks, "stack", tmp_path)
    assert found.signal is not None and found.signal.reason == "stack-overflow"
    assert functions(found)[-2:] == ["falls", None] and found.findings[0].id == "stack-overflow"


@pytest.mark.long
@pytest.mark.parametrize("stripped", [False, True])
def test_cpython_knows_what_the_process_knew(stripped: bool) -> None:
    check_built(musl_python("3.13", stripped))


@pytest.mark.long
def test_cpython_as_conda_builds_it() -> None:
    check_built(conda_python())


def check_built(program: Path) -> None:
    made = python_crash(PROGRAM, python=program, environment={"LD_LIBRARY_PATH": str(program.parent.parent / "lib")})
    with opened(made.core) as core:
        check(core, state_of(core), made)
    for options in (Options(), NO_GDB):
        found = analyze(made.core, options=options)
        # Each thread's stack reaches from the kernel to its beginning, through the signal handler of the one that crashed.
        assert all(frame.module for thread in found.threads for frame in thread.natives())
        assert not [error for error in found.soft_errors if error.stage == "merge"]
        assert all(thread.natives() for thread in found.threads)
