"""The table of docs/peers.md: the same processes and cores, read by crashkit, PyStack and py-spy; faulthandler's dump is the truth.

`CRASHKIT_WRITE_DOCS=1 pytest -n0 tests/test_peers.py` writes the table. py-spy comes from the package index.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from platform import machine
from signal import SIGSEGV
from typing import NamedTuple

import pytest

from crashkit.report.json import decode
from tests.built_pythons import FREE_THREADED, free_threaded_python
from tests.crashes import CRASHERS, DEADLINE, Interpreter, cores_land_in_cwd, interpreter, interpreters, lock
from tests.interpreter.process import opened, printed, state_of
from tests.interpreter.test_damage import layout_of_core
from tests.packages import CACHE, install
from tests.test_stacks_truth import python_lines
from tests.test_support_matrix import debuggable, sid, sid_is_there, stripped
from tests.truth import faulthandler

pytestmark = [pytest.mark.network, pytest.mark.slow]

PEERS = Path(__file__).parent.parent / "docs" / "peers.md"
PY_SPY = "py-spy==0.4.3"
PYSTACK = "pystack==1.7.2"

Frames = Counter[tuple[str, int, str]]
"""How often each function, line and file's name is on the stacks of all threads."""


class Process(NamedTuple):
    """A process that stands still, then its core."""

    program: Path
    pid: int
    folder: Path


class Case(NamedTuple):
    """What is given to the readers: a live process, or a core."""

    program: Path
    pid: int
    core: Path | None = None
    root: Path | None = None
    """The root folder of the container in which the process ran, and in which the others read it."""

    def inside(self, *command: str | Path) -> list[str | Path]:
        """The command, which runs where the process ran; of a live one, with its /proc."""
        if self.root is None:
            return list(command)
        entered = ["nsenter", "-t", str(self.pid), "--mount", "--root"] if self.core is None else ["chroot", self.root]
        return [*entered, *(f"/{word.relative_to(self.root)}" if isinstance(word, Path) else word for word in command)]


@contextmanager
def standing(program: Path, environment: dict[str, str], folder: Path, command: Sequence[str | Path] = ()) -> Iterator[Process]:
    """`command` starts the program in another way."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with (folder / "stderr.txt").open("wb") as stderr:
        process = subprocess.Popen(
            command or [program, CRASHERS / "standing.py"],
            cwd=folder,
            env={**variables, **environment, "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
        )
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            yield Process(program, process.pid, folder)
        finally:
            process.kill()
            process.communicate()


def killed(process: Process) -> Path:
    """The core of the process."""
    with cores_land_in_cwd():
        os.kill(process.pid, SIGSEGV)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    (core,) = process.folder.glob("core*")
    return core.rename(process.folder / "whole")


def truncated(core: Path) -> Path:
    with core.open("rb") as file:
        data = file.read(core.stat().st_size * 95 // 100)
    return written(core.with_name("truncated"), data)


def unlinked(core: Path) -> Path:
    """With a link of the interpreter's list of threads overwritten, as a heap overflow does it."""
    with opened(core) as memory:
        state = state_of(memory, with_file=True)
        assert state is not None
        return overwritten(core, state.threads[1].state.address + layout_of_core(memory).thread.next, "unlinked")


def without_code(core: Path) -> Path:
    """With a frame's pointer to its code object overwritten."""
    with opened(core) as memory:
        state = state_of(memory, with_file=True)
        assert state is not None
        frame = state.threads[1].stack.inner[2]
        return overwritten(core, frame.address + layout_of_core(memory).frame.code, "without-code")


def overwritten(core: Path, address: int, name: str) -> Path:
    data = bytearray(core.read_bytes())
    with opened(core) as memory:
        segment = memory.segment(address)
        assert segment is not None
        place = segment.position + address - segment.start
    data[place : place + 8] = b"overflow"
    return written(core.with_name(name), data)


def written(path: Path, data: bytes | bytearray) -> Path:
    path.write_bytes(data)
    return path


DAMAGES: dict[str, Callable[[Path], Path]] = {
    "core": lambda core: core,
    "core, 95 % of it": truncated,
    "core, list of threads damaged": unlinked,
    "core, a frame's code pointer overwritten": without_code,
}


def output(command: Sequence[str | Path]) -> str:
    """What a reader prints; who fails or takes too long has read nothing more."""
    try:
        return subprocess.run(command, capture_output=True, timeout=DEADLINE, check=False).stdout.decode(errors="backslashreplace")
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="backslashreplace")


def crashkit(case: Case) -> Frames:
    what = ["attach", str(case.pid)] if case.core is None else ["analyze", case.core]
    sysroot = ["--sysroot", case.root] if case.root is not None and case.core is not None else []
    crash = decode(output([sys.executable, "-m", "crashkit", *what, *sysroot, "--json"]))
    lines = [line for thread in crash.threads for line in python_lines(thread)]
    # What is lost of a frame is missing.
    return Counter(frame(function, line, file) for function, line, file in lines if function and line and file)


_PYSTACK = re.compile(r'^ +(?:\(Python\) )?File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE)


def pystack(case: Case) -> Frames:
    what = ["remote", str(case.pid)] if case.core is None else ["core", case.core, case.program]
    if case.root is None:
        reader: list[str | Path] = [Path(sys.executable).with_name("pystack")]
    else:
        reader = ["/usr/bin/env", f"PYTHONPATH=/{packages_in(case.root).relative_to(case.root)}", "/usr/bin/python3.14", "-m", "pystack"]
    text = output(case.inside(*reader, "--no-color", *what))
    return Counter(frame(match["function"], int(match["line"]), match["file"]) for match in _PYSTACK.finditer(text))


def py_spy(case: Case) -> Frames:
    what = ["--pid", str(case.pid)] if case.core is None else ["--core", case.core]
    text = output(case.inside(the_py_spy() if case.root is None else packages_in(case.root) / "bin" / "py-spy", "dump", "--json", *what))
    threads = json.loads(text) if text.startswith("[") else []
    return Counter(frame(one["name"], one["line"], one["filename"]) for thread in threads for one in thread["frames"])


READERS: dict[str, Callable[[Case], Frames]] = {"crashkit": crashkit, "PyStack": pystack, "py-spy": py_spy}


def frame(function: str, line: int, file: str) -> tuple[str, int, str]:
    return printed(function.rpartition(".")[2]), line, PurePosixPath(file).name


@cache
def the_py_spy() -> Path:
    folder = CACHE / PY_SPY
    CACHE.mkdir(parents=True, exist_ok=True)
    with lock(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.{os.getpid()}")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", partial, PY_SPY]
            done = subprocess.run(pip, capture_output=True, text=True, timeout=DEADLINE)
            if done.returncode:
                shutil.rmtree(partial, ignore_errors=True)
                pytest.skip(f"pip cannot install {PY_SPY}: {done.stderr.strip().splitlines()[-1:]}")
            partial.rename(folder)
    return folder / "bin" / "py-spy"


def packages_in(root: Path) -> Path:
    return root / "tmp" / f"crashkit-peers-{os.getpid()}" / "packages"


@contextmanager
def in_container() -> Iterator[tuple[Path, list[str | Path]]]:
    """A folder in the Debian sid with the other readers, and the command that starts the program there, with a /proc of its own."""
    root = sid()
    folder = packages_in(root).parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        shutil.copy(CRASHERS / "standing.py", folder)
        wheel = ["--python-version", "3.14", "--implementation", "cp", "--abi", "cp314", "--abi", "none", "--only-binary", ":all:"]
        platforms = [word for version in ("2_28", "2_24", "2_17", "2_5") for word in ("--platform", f"manylinux_{version}_{machine()}")]
        here = Interpreter(Path(sys.executable), sys.version_info[:3], has_debug_info=False)
        install(here, packages_in(root), PYSTACK, PY_SPY, options=[*wheel, *platforms])
        script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "cd /tmp/$1 && exec /usr/bin/python3.14 standing.py"'
        yield folder, ["unshare", "--mount", "sh", "-c", script, root, folder.name]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read(case: Case, true: Frames) -> dict[str, tuple[int, int]]:
    """By reader: how many of the true frames it has, and how many others."""
    found = {name: reader(case) for name, reader in READERS.items()}
    return {name: ((frames & true).total(), (frames - true).total()) for name, frames in found.items()}


def rows() -> list[list[str]]:
    """Those of the document's table."""
    _, _, table = PEERS.read_text().partition("| interpreter |")
    return [line.strip("|\n ").split(" | ") for line in table.partition("\n\n")[0].splitlines() if line.startswith("| ")]


BUILDS = [f"CPython 3.{minor}{build}" for minor in range(6, 14) for build in (", debug info", ", symbol table stripped")]
FREE_THREADED_BUILDS = [f"CPython {version.removesuffix('t')}, free-threaded" for version in FREE_THREADED]
OF_DISTRIBUTION = "the distribution's python3, stripped"
OF_SID = "3.14 of Debian sid, in a container"


def program_of(build: str) -> tuple[Path, dict[str, str]]:
    if build == OF_DISTRIBUTION:
        bare = [one for one in interpreters() if not one.has_debug_info]
        if not bare:
            pytest.skip("every interpreter here has debug info")
        return bare[-1].path, {}
    version = build.removeprefix("CPython ").partition(",")[0]
    if build in FREE_THREADED_BUILDS:
        return free_threaded_python(f"{version}t"), {}
    if not debuggable(version):
        pytest.skip(f"no CPython {version} with debug info here")
    return stripped(version) if "stripped" in build else (interpreter(version).path, {})


@pytest.mark.parametrize("build", [*BUILDS, *FREE_THREADED_BUILDS, OF_DISTRIBUTION])
def test_no_peer_reads_more(build: str, tmp_path: Path) -> None:
    program, environment = program_of(build)
    the_py_spy()
    compare(build, program, environment, tmp_path)


@pytest.mark.chroot
@pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1")
def test_no_peer_reads_more_of_314() -> None:
    with in_container() as (folder, command):
        compare(OF_SID, sid() / "usr/bin/python3.14", {}, folder, command, sid())


def compare(
    build: str, program: Path, environment: dict[str, str], folder: Path, command: Sequence[str | Path] = (), root: Path | None = None
) -> None:
    with standing(program, environment, folder, command) as process:
        live = {name: reader(Case(program, process.pid, root=root)) for name, reader in READERS.items()}
        core = killed(process)
    dumped = faulthandler((folder / "stderr.txt").read_text())
    true = Counter(frame(line.function, line.line, line.file) for lines in dumped.values() for line in lines)
    assert len(dumped) == 6 and true.total() > 80
    counts = {"live": {name: ((frames & true).total(), (frames - true).total()) for name, frames in live.items()}}
    for damage, harm in DAMAGES.items():
        counts[damage] = read(Case(program, process.pid, harm(core), root), true)
    if "CRASHKIT_WRITE_DOCS" in os.environ:
        write(build, counts, true.total())
    for damage, by_reader in counts.items():
        ours, wrong = by_reader["crashkit"]
        assert wrong == 0 and all(ours >= theirs for theirs, _ in by_reader.values()), (damage, by_reader)
        if "95 %" not in damage:
            # The frame whose code object is lost has no name.
            assert ours == true.total() - ("code" in damage), (damage, by_reader)


def write(build: str, counts: dict[str, dict[str, tuple[int, int]]], total: int) -> None:
    def cell(true: int, wrong: int) -> str:
        return f"{true} of {total}" + (f", {wrong} wrong" if wrong else "")

    new = [f"| {build} | {damage} | {' | '.join(cell(*one) for one in by_reader.values())} |\n" for damage, by_reader in counts.items()]
    with lock(CACHE / "peers.lock"):
        lines = [line for line in PEERS.read_text().splitlines(keepends=True) if not line.startswith(f"| {build} |")]
        end = next(index for index, line in enumerate(lines) if line.startswith("|---")) + 1
        kept = {
            name: [line for line in lines[end:] if line.startswith(f"| {name} |")]
            for name in (*BUILDS, *FREE_THREADED_BUILDS, OF_DISTRIBUTION, OF_SID)
        }
        kept[build] = new
        rest = [line for line in lines[end:] if not line.startswith("| ")]
        PEERS.write_text("".join([*lines[:end], *(line for one in kept.values() for line in one), *rest]))
