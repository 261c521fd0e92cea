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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from crashkit.elf.file import has_dwarf, read_build_id

CRASHERS = Path(__file__).parent.parent / "fixtures" / "crashers"

PATTERN = Path("/proc/sys/kernel/core_pattern")
PATTERN_LOCK = Path("/tmp/crashkit-core-pattern.lock")
DEADLINE = 120
MOST_TRIES = 25

# Reasons to skip are said in the same words everywhere: the summary counts them (conftest.py).
NO_PYTHON = "no Python here but that of the tests: apt-get install python3"
NO_DEBUG_INFO = "no Python with debug info here: pyenv install 3.11, or the distribution's python3-dbg"
NO_SUCH_VERSION = "no Python of the one version that the test is about: pyenv install 3.8 3.11 3.13"
NO_STRIPPED = "no stripped Python here: apt-get install python3"
NO_HEADERS = "no headers of Python here: apt-get install python3-dev"
NO_CORES = "the hard limit for cores is 0: ulimit -H -c unlimited, as root"
CORES_GO_ELSEWHERE = "core_pattern leaves no core in the working directory, and cannot be changed: sysctl kernel.core_pattern=core"
NO_GDB = "no gdb here: apt-get install gdb"
NO_COMPILER = "no compiler here: apt-get install gcc g++ libc6-dev"
NO_BINUTILS = "no strip, objcopy, readelf here: apt-get install binutils"
NO_TORCH = "torch is not installed: pip install '.[tests]'"
NO_NAMESPACES = "namespaces may not be made here: run as root outside of a container"

needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason=NO_GDB)
needs_binutils = pytest.mark.skipif(shutil.which("objcopy") is None, reason=NO_BINUTILS)

FAVOURITE = (3, 11)
"""The version of the tests that take one interpreter of those at hand."""

GUARDS_ITS_STACK = (3, 14)
"""From this version on CPython measures the C stack: Python functions that call each other through C end in a RecursionError."""


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
        "import sys, sysconfig; print(*sys.version_info[:3]); print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0); "
        "print(next((line.split()[-1] for line in open('/proc/self/maps') if 'libpython' in line), ''))"
    )
    try:
        run = subprocess.run([path, "-I", "-c", script], capture_output=True, text=True, timeout=DEADLINE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version, free_threaded, library = run.stdout.splitlines()
    debuggable = _has_debug_info(Path(library) if library else path)
    return Interpreter(path, tuple(map(int, version.split())), debuggable, free_threaded == "1")


def _has_debug_info(file: Path) -> bool:
    """In the file, or in the separate one that the distribution's debug package puts where gdb looks."""
    build_id = read_build_id(file) or ""
    return has_dwarf(file) or has_dwarf(Path(f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"))


def _favourite(among: Sequence[Interpreter]) -> Interpreter:
    """The newest one of the favourite version; without it the newest of all."""
    return max(among, key=lambda one: (one.version[:2] == FAVOURITE, not one.free_threaded, one.version))


def an_interpreter() -> Interpreter:
    """For what every CPython must show: one with debug info where there is one, else the distribution's as it is."""
    return _one_of(interpreters())


def an_unguarded_interpreter() -> Interpreter:
    """The same for a recursion that 3.14 would end. Ask `unguarded_interpreters` first: there may be none."""
    return _one_of(unguarded_interpreters())


def unguarded_interpreters() -> list[Interpreter]:
    return [one for one in interpreters() if one.version < GUARDS_ITS_STACK]


def _one_of(known: Sequence[Interpreter]) -> Interpreter:
    found = [one for one in known if one.has_debug_info] or known
    if not found:
        pytest.skip(NO_PYTHON)
    return _favourite(found)


def a_debuggable_interpreter() -> Interpreter:
    """For what only debug info can tell."""
    found = [one for one in interpreters() if one.has_debug_info]
    if not found:
        pytest.skip(NO_DEBUG_INFO)
    return _favourite(found)


def interpreter(version: str) -> Interpreter:
    """Exactly this version: only where it is the point."""
    found = at_hand(version)
    if found is None:
        pytest.skip(NO_SUCH_VERSION)
    return found


def at_hand(version: str) -> Interpreter | None:
    """The newest one of that version, with debug info if there is one."""
    wanted = tuple(map(int, version.split(".")))
    found = [one for one in interpreters() if one.version[: len(wanted)] == wanted]
    return max(found, key=lambda one: (one.has_debug_info, one.version), default=None)


def some_interpreters(*versions: str) -> list[ParameterSet]:
    """Parameters: one interpreter a version, of those that are at hand; without any of them the one that there is."""
    found = [one for one in map(at_hand, versions) if one]
    return _parameters(found or ([_favourite(interpreters())] if interpreters() else []), NO_PYTHON)


def stripped_interpreters() -> list[ParameterSet]:
    """Parameters: those without debug info, as distributions ship them."""
    return _parameters([one for one in interpreters() if not one.has_debug_info], NO_STRIPPED)


def these_versions(*versions: str) -> list[ParameterSet]:
    """The same without a substitute: where the versions are the point."""
    return _parameters([one for one in map(at_hand, versions) if one], NO_SUCH_VERSION)


def every_interpreter(debuggable: bool = False) -> list[ParameterSet]:
    """Parameters: all that are at hand, or those of CRASHKIT_TEST_INTERPRETERS ("3.6 stripped"): CI has no time for all of them."""
    wanted = os.environ.get("CRASHKIT_TEST_INTERPRETERS", "").split()
    found = [one for one in interpreters() if one.has_debug_info or not debuggable]
    chosen = [one for one in found if not wanted or {"{}.{}".format(*one.version), "" if one.has_debug_info else "stripped"} & {*wanted}]
    return _parameters(chosen or found, NO_DEBUG_INFO if debuggable else NO_PYTHON)


def _parameters(found: Sequence[Interpreter], missing: str) -> list[ParameterSet]:
    """Where there is none, one skipped parameter says so."""
    return [pytest.param(one, id=one.name) for one in found] or [pytest.param(None, id="none", marks=pytest.mark.skip(missing))]


@contextmanager
def lock(path: Path, shared: bool = False, blocking: bool = True) -> Iterator[None]:
    """Hold the lock of that file. Raises BlockingIOError where another process has it and `blocking` is false."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # it may be another user's
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if blocking else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def leaves_core_in_cwd(pattern: str) -> bool:
    return pattern.startswith("core") and "/" not in pattern


@contextmanager
def cores_land_in_cwd() -> Iterator[None]:
    """While this holds, a process that dies leaves its core in its working directory; skips the test where that cannot be had."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip(NO_CORES)
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
            pytest.skip(CORES_GO_ELSEWHERE)
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

    return once(name, make)


def c_crash(source: str, *arguments: str, python: Interpreter | None = None) -> Folder:
    """The crash of a C program of fixtures/crashers, built with gcc; with `python`, linked against it."""
    path = CRASHERS / source
    key = hashlib.sha256(repr((path.read_bytes(), arguments, python)).encode()).hexdigest()[:12]

    def make(folder: Path) -> Folder:
        build = folder.with_name(f"{folder.name}-build")
        shutil.rmtree(build, ignore_errors=True)
        build.mkdir()
        program = build / path.stem
        compile_c(path, program, python)
        return crash([program, *arguments], folder, {"PYTHONHOME": str(python.path.parent.parent)} if python else None)

    return once(f"{path.stem}-{key}", make)


def compile_c(source: Path, program: Path, python: Interpreter | None = None) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    options = ["-g", "-O1", "-fno-omit-frame-pointer", "-pthread"]
    if python:
        headers, prefix = headers_of(python), python.path.parent.parent
        options += [f"-I{headers}"]
        libraries = [f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", f"-l{headers.name}"]
    else:
        libraries = ["-lm"]
    command = [compiler, *options, source, "-o", program, *libraries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, f"{source.name} could not be built:\n{done.stderr}"


def headers_of(python: Interpreter) -> Path:
    """The folder of Python.h: `include/python3.11`."""
    version = ".".join(map(str, python.version[:2]))
    headers = python.path.parent.parent / "include" / f"python{version}{'m' if python.version < (3, 8) else ''}"
    return headers if (headers / "Python.h").exists() else pytest.skip(NO_HEADERS)


def build_library(source: str, folder: Path, python: Interpreter) -> Path:
    """A library built with gcc from a source of fixtures/crashers, which may be an extension module."""
    compiler = shutil.which("gcc") or pytest.skip(NO_COMPILER)
    library = folder / Path(source).with_suffix(".so").name
    command = [compiler, "-g", "-shared", "-fPIC", f"-I{headers_of(python)}", CRASHERS / source, "-o", library]
    subprocess.run(command, check=True, timeout=DEADLINE)
    return library


def library_crash(source: str, script: str, folder: Path, python: Interpreter) -> Folder:
    """The crash of a script in which {library} stands for the path of a library, built with gcc from a source of fixtures/crashers."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    library, program = folder / Path(source).with_suffix(".so"), folder / "program.py"
    subprocess.run([compiler, "-g", "-shared", "-fPIC", CRASHERS / source, "-o", library], check=True, timeout=DEADLINE)
    program.write_text(script.format(library=str(library)))
    return python_crash(program, python=python)


def made_once(name: str, make: Callable[[Path], Path]) -> Path:
    """A file that is made once in a test session, in a folder of its own."""
    folder = Path(os.environ["CRASHKIT_TEST_CRASHES"]) / name
    record = folder.with_name(f"{name}.made")
    with lock(folder.with_name(f"{name}.lock")):
        if not record.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            record.write_text(str(make(folder)))
        return Path(record.read_text())


def once(name: str, make: Callable[[Path], Folder]) -> Folder:
    """A crash that is made once in a test session, in a folder of its own."""
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
        pytest.skip(NO_GDB)
    options = ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-ex", "set print frame-arguments none"]
    command = [gdb, *options, "-ex", "thread apply all bt", program, core]
    return subprocess.run(command, capture_output=True, timeout=DEADLINE, check=True).stdout.decode(errors="backslashreplace")


def needs_x86_64() -> pytest.MarkDecorator:
    return pytest.mark.skipif(not re.fullmatch("x86_64|amd64", platform.machine()), reason="machine code of x86-64")
