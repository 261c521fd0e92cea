"""Real crashes of real processes: a program is run until it dies, and the core that the kernel wrote is kept.

The kernel's core_pattern belongs to the whole machine: whoever makes a core holds a shared lock while the process dies, whoever
changes the pattern holds it exclusively.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

CRASHERS = Path(__file__).parent.parent / "fixtures" / "crashers"

PATTERN = Path("/proc/sys/kernel/core_pattern")
PATTERN_LOCK = Path("/tmp/crashkit-core-pattern.lock")
DEADLINE = 120
MOST_TRIES = 25


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: tuple[int, int, int]
    has_debug_info: bool
    free_threaded: bool = False

    @property
    def name(self) -> str:
        kind = ("t" if self.free_threaded else "") + ("" if self.has_debug_info else "-stripped")
        return ".".join(map(str, self.version)) + kind


@dataclass(frozen=True)
class Folder:
    """What one dead process left."""

    path: Path
    program: Path
    status: int
    """As subprocess has it: minus the signal that ended the process."""
    pid: int

    @property
    def core(self) -> Path:
        return self.path / "core"

    @property
    def stderr(self) -> str:
        return (self.path / "stderr.txt").read_text(errors="backslashreplace")

    def backtrace(self) -> str:
        """What a plain gdb says of every thread."""
        cached = self.path / "backtrace.txt"
        with lock(self.path / "backtrace.lock"):
            if not cached.exists():
                cached.write_text(plain_gdb(self.program, self.core))
            return cached.read_text()


@cache
def interpreters() -> tuple[Interpreter, ...]:
    """Every CPython 3 of pyenv, and the system's."""
    roots = [os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"]
    found = {path.resolve() for root in roots if root for path in Path(root).glob("versions/3.*/bin/python")}
    system = shutil.which("python3", path="/usr/bin")
    if system:
        found.add(Path(system).resolve())
    known = [interpreter for interpreter in map(_inspect, sorted(found)) if interpreter]
    return tuple(sorted(known, key=lambda interpreter: (interpreter.version, interpreter.has_debug_info)))


def _inspect(path: Path) -> Interpreter | None:
    script = (
        "import sys, sysconfig; print(*sys.version_info[:3]); print(sysconfig.get_config_var('LDLIBRARY')); "
        "print(sysconfig.get_config_var('LIBDIR')); print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    )
    try:
        run = subprocess.run([path, "-I", "-c", script], capture_output=True, text=True, timeout=DEADLINE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version, library, folder, free_threaded = run.stdout.splitlines()
    shared = Path(folder) / library
    file = shared if library.endswith(".so") and shared.exists() else path
    return Interpreter(path, tuple(map(int, version.split())), b".debug_info" in file.read_bytes(), free_threaded == "1")


def interpreter(version: str) -> Interpreter:
    """The newest one of that version with debug info; skips the test where there is none."""
    wanted = tuple(map(int, version.split(".")))
    found = [one for one in interpreters() if one.version[: len(wanted)] == wanted and one.has_debug_info]
    if not found:
        pytest.skip(f"no CPython {version} with debug info here (pyenv)")
    return found[-1]


@contextmanager
def lock(path: Path, shared: bool = False) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def leaves_core_in_cwd(pattern: str) -> bool:
    return pattern.startswith("core") and "/" not in pattern


@contextmanager
def cores_land_in_cwd() -> Iterator[None]:
    """While this holds, a process that dies leaves its core in its working directory; skips the test where that cannot be had."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("the hard limit for cores is 0")
    with lock(PATTERN_LOCK, shared=True):
        if leaves_core_in_cwd(PATTERN.read_text().strip()):
            yield
            return
    with lock(PATTERN_LOCK):
        before = PATTERN.read_text()
        if leaves_core_in_cwd(before.strip()):
            yield
            return
        try:
            PATTERN.write_text("core")
        except OSError:
            pytest.skip(f"core_pattern is {before.strip()!r} and cannot be changed: run as root, or: sysctl kernel.core_pattern=core")
        try:
            yield
        finally:
            PATTERN.write_text(before)


def crash(
    command: Sequence[str | bytes | Path], folder: Path, environment: dict[str, str] | None = None, program: Path | None = None
) -> Folder:
    """Run the command in the empty folder until a signal ends it. `program` is what the core is of, where it is not the command."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | (environment or {})
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with cores_land_in_cwd(), (folder / "stderr.txt").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
        )
        try:
            status = process.wait(DEADLINE)
        finally:
            process.kill()
            process.wait()
    made = Folder(folder, program or Path(os.fsdecode(command[0])), status, process.pid)
    assert status < 0, f"{command} did not crash, exit {status}: {made.stderr[-2000:]}"
    cores = list(folder.glob("core*"))
    assert len(cores) == 1, f"{command} left {cores or 'no core'}"
    cores[0].rename(made.core)
    return made


def python_crash(
    script: str | Path,
    *arguments: str | bytes,
    python: Interpreter | Path | None = None,
    faulthandler: bool = True,
    environment: dict[str, str] | None = None,
    wanted: int | None = None,
) -> Folder:
    """The crash of a script of fixtures/crashers (or a path), made once in a test session and shared by all that ask for it.

    `wanted` is the signal of a crash that is a race by nature: it is made again until that ends it, MOST_TRIES times at most.
    """
    path = CRASHERS / script
    program = python.path if isinstance(python, Interpreter) else Path(python or sys.executable)
    variables = {**(environment or {}), **({"PYTHONFAULTHANDLER": "1"} if faulthandler else {})}
    key = repr((str(program), path.read_bytes(), arguments, sorted(variables.items())))
    name = f"{program.parent.parent.name}-{path.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    def make(folder: Path) -> Folder:
        for left in reversed(range(MOST_TRIES if wanted else 1)):
            try:
                made = crash([program, path, *arguments], folder, variables)
                if wanted is None or made.status == -wanted:
                    return made
            except AssertionError:
                if not left:
                    raise
            for entry in folder.iterdir():
                entry.unlink()
        raise AssertionError(f"{path} {arguments} did not end by signal {wanted} in {MOST_TRIES} tries")

    return _once(name, make)


def c_crash(source: str, *arguments: str, python: Interpreter | None = None) -> Folder:
    """The crash of a C program of fixtures/crashers, built with gcc; with `python`, linked against it."""
    path = CRASHERS / source
    key = hashlib.sha256(repr((path.read_bytes(), arguments, python)).encode()).hexdigest()[:12]

    def make(folder: Path) -> Folder:
        build = folder.with_name(f"{folder.name}-build")
        build.mkdir()
        program = build / path.stem
        compile_c(path, program, python)
        return crash([program, *arguments], folder, {"PYTHONHOME": str(python.path.parent.parent)} if python else None)

    return _once(f"{path.stem}-{key}", make)


def compile_c(source: Path, program: Path, python: Interpreter | None = None) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    options = ["-g", "-O1", "-fno-omit-frame-pointer", "-pthread"]
    if python:
        prefix = python.path.parent.parent
        version = ".".join(map(str, python.version[:2]))
        abi = "m" if python.version < (3, 8) else ""
        options += [f"-I{prefix}/include/python{version}{abi}"]
        libraries = [f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", f"-lpython{version}{abi}"]
    else:
        libraries = []
    subprocess.run([compiler, *options, source, "-o", program, *libraries], check=True, timeout=DEADLINE)


def _once(name: str, make) -> Folder:
    root = Path(os.environ["CRASHKIT_TEST_CRASHES"])
    folder = root / name
    record = root / f"{name}.status"
    with lock(root / f"{name}.lock"):
        if not record.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            made = make(folder)
            record.write_text(f"{made.status} {made.pid} {made.program}")
        status, pid, program = record.read_text().split(" ", 2)
    return Folder(folder, Path(program), int(status), int(pid))


def plain_gdb(program: Path, core: Path) -> str:
    gdb = shutil.which("gdb")
    if gdb is None:
        pytest.skip("no gdb here")
    options = ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-ex", "set print frame-arguments none"]
    command = [gdb, *options, "-ex", "thread apply all bt", program, core]
    return subprocess.run(command, capture_output=True, timeout=DEADLINE, check=True).stdout.decode(errors="backslashreplace")


def needs_x86_64() -> pytest.MarkDecorator:
    return pytest.mark.skipif(not re.fullmatch("x86_64|amd64", platform.machine()), reason="machine code of x86-64")
