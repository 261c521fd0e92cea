"""docs/support-matrix.md, cell by cell, on real cores.

The rows of Debian sid need a chroot. It is made by debootstrap, as root, where CRASHKIT_TEST_CHROOT is set, and kept in
CRASHKIT_TEST_CACHE (default: ~/.cache/crashkit-tests).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from tests.anywhere import CACHE, NoSystem, bare_system
from tests.built_pythons import CONDA_ENVIRONMENT, conda_python, musl_python, place
from tests.crashes import CRASHERS, DEADLINE, NO_GDB, Folder, at_hand, crash, interpreter, interpreters, lock, python_crash
from tests.debugger.test_pystack import relocated
from tests.interpreter.process import opened, state_of
from tests.interpreter.test_damage import Survivors, layout_of_core
from tests.test_stacks_truth import check_native, python_lines, true_lines
from tests.truth import backtrace, faulthandler

MATRIX = Path(__file__).parent.parent / "docs" / "support-matrix.md"
PYTHON_LEVELS = ["none", "some", "exact"]
NATIVE_LEVELS = ["none", "addresses", "names", "exact"]


@dataclass(frozen=True)
class Made:
    """A crash, what plain gdb said of it, and where its files lie."""

    folder: Folder
    sysroot: Path | None = None
    native: dict[int, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    row: str
    column: str
    python: str
    native: str
    frames: str
    """`24 of 30`: Python frames read, of those whose memory survived, when the table was written."""


def cells() -> list[Cell]:
    """Those of the document's first table."""
    _, _, text = MATRIX.read_text().partition("| interpreter |")
    table = text.partition("\n\n")[0]
    lines = [line.strip("|\n ").split(" | ") for line in ("| interpreter |" + table).splitlines() if line.startswith("| ")]
    columns = lines[0][1:]
    return [Cell(line[0], column, *text.split(", ")) for line in lines[1:] for column, text in zip(columns, line[1:], strict=True)]


def debuggable(version: str) -> bool:
    found = at_hand(version)
    return found is not None and found.has_debug_info


def with_debug_info(version: str) -> Made:
    return Made(python_crash("threads.py", python=interpreter(version)))


def without_symbols(version: str) -> Made:
    program, environment = stripped(version)
    return Made(python_crash("threads.py", python=program, environment=environment))


def stripped(version: str) -> tuple[Path, dict[str, str]]:
    """A copy of that interpreter without symbol tables, and the environment that it needs."""
    original = interpreter(version)
    prefix = Path(os.environ["CRASHKIT_TEST_CRASHES"]) / f"stripped-{version}"
    with lock(prefix.with_suffix(".lock")):
        if not prefix.exists():
            prefix.mkdir()
            relocated(original, prefix)
            for file in (*(prefix / "bin").iterdir(), *(prefix / "lib").iterdir()):
                file.chmod(0o755)
                subprocess.run(["strip", "--strip-all", file], check=True)
    return prefix / "bin" / original.path.name, {"PYTHONHOME": str(original.path.parent.parent), "LD_LIBRARY_PATH": str(prefix / "lib")}


def of_distribution() -> Made:
    return Made(python_crash("threads.py", python=[one for one in interpreters() if not one.has_debug_info][-1]))


def sid_is_there() -> bool:
    can_be_made = "CRASHKIT_TEST_CHROOT" in os.environ and shutil.which("debootstrap")
    return os.geteuid() == 0 and bool(can_be_made or (CACHE / "sid").exists())


@cache
def sid() -> Path:
    """A copy of the bare Debian sid, with the debug info of its Python."""
    root = CACHE / "sid"
    CACHE.mkdir(parents=True, exist_ok=True)
    with lock(CACHE / "sid.lock"):
        if not root.exists():
            partial = CACHE / f"sid.{os.getpid()}"
            try:
                subprocess.run(["cp", "-a", "--reflink=auto", bare_system("sid"), partial], check=True)
                install = "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3.14-dbg"
                command = ["chroot", partial, "sh", "-c", f"{install} || {{ apt-get update -qq && {install}; }}"]
                made = subprocess.run(command, capture_output=True, text=True)
                if made.returncode:
                    pytest.skip(f"the debug info of Debian sid's Python cannot be installed: {made.stderr.strip().splitlines()[-1:]}")
                partial.rename(root)
            except NoSystem as error:
                pytest.skip(str(error))
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return root


def from_container(debug_info: bool) -> Made:
    """Made in the chroot, analyzed outside. Without debug info: in a copy of the few files that the process had mapped."""
    root = sid()
    inside = root / "tmp" / f"crashkit-{os.getpid()}"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    try:
        shutil.copy(CRASHERS / "threads.py", inside)
        command = ["chroot", root, "/bin/sh", "-c", f"cd /tmp/{inside.name} && exec /usr/bin/python3.14 threads.py"]
        crash(command, inside, {"PYTHONFAULTHANDLER": "1"})
        kept = Path(os.environ["CRASHKIT_TEST_CRASHES"]) / f"{inside.name}-{'debug' if debug_info else 'stripped'}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(inside, kept / "crash")
    finally:
        shutil.rmtree(inside, ignore_errors=True)
    sysroot = root
    if not debug_info:
        sysroot = kept / "root"
        for module in analyze(kept / "crash" / "core", options=Options(gdb=None, sysroot=root)).modules:
            copy = sysroot / module.path.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            if module.found:
                shutil.copy(module.found, copy)
    folder = Folder(kept / "crash", sysroot / "usr/bin/python3.14", -11, 0)
    return Made(folder, sysroot, gdb_in(sysroot, folder))


def gdb_in(sysroot: Path, folder: Folder) -> dict[int, list[str]]:
    gdb = shutil.which("gdb")
    if gdb is None:
        pytest.skip(NO_GDB)
    settings = ["debuginfod enabled off", "auto-load no", f"sysroot {sysroot}", f"debug-file-directory {sysroot}/usr/lib/debug"]
    options = [word for setting in settings for word in ("-iex", f"set {setting}")]
    command = [
        gdb,
        "-nx",
        "-batch",
        *options,
        "-ex",
        "set print frame-arguments none",
        "-ex",
        "thread apply all bt",
        folder.program,
        folder.core,
    ]
    return backtrace(subprocess.run(command, capture_output=True, timeout=DEADLINE, check=True).stdout.decode(errors="backslashreplace"))


def on_musl(version: str, kind: str) -> Made:
    program = musl_python(version, stripped=kind == "stripped")
    return Made(python_crash("threads.py", python=program, environment={"LD_LIBRARY_PATH": str(program.parent.parent / "lib")}))


def musl_is_there(version: str, kind: str) -> bool:
    return place(f"musl-{version}{'-stripped' if kind == 'stripped' else ''}", version).exists()


def of_conda() -> Made:
    program = conda_python()
    return Made(python_crash("threads.py", python=program, environment={"CONDA_PREFIX": str(program.parent.parent)}))


ROWS: list[tuple[str, Callable[..., Made], Callable[..., object]]] = [
    (r"CPython (3\.\d+), debug info", with_debug_info, debuggable),
    (r"CPython (3\.\d+), symbol table stripped", without_symbols, lambda version: debuggable(version) and shutil.which("strip")),
    (r"the distribution's python3, stripped", of_distribution, lambda: [one for one in interpreters() if not one.has_debug_info]),
    (r"CPython (3\.\d+) on musl, (debug info|stripped)", on_musl, musl_is_there),
    (r"CPython 3\.13 built as for conda, stripped", of_conda, lambda: place(CONDA_ENVIRONMENT, "3.13").exists()),
    (r"3\.14 of Debian sid, from a container, debug info", lambda: from_container(True), sid_is_there),
    (r"3\.14 of Debian sid, from a container, stripped", lambda: from_container(False), sid_is_there),
]
"""What a row is called, how its crash is made, whether it can be made here."""


def is_at_hand(row: str) -> bool:
    there, match = next((there, match) for pattern, _, there in ROWS if (match := re.fullmatch(pattern, row)))
    return bool(there(*match.groups()))


@cache
def made(row: str) -> Made:
    make, match = next((make, match) for pattern, make, _ in ROWS if (match := re.fullmatch(pattern, row)))
    return make(*match.groups())


def examine(crash_made: Made, column: str, temporary: Path) -> Crash:
    core, options = crash_made.folder.core, Options(sysroot=crash_made.sysroot)
    if column == "no gdb":
        options = Options(sysroot=crash_made.sysroot, gdb=None)
    elif column == "no files":
        options = Options(sysroot=temporary / "nothing")
    elif column.endswith("%"):
        whole = core.read_bytes()
        core = temporary / "core"
        core.write_bytes(whole[: len(whole) * share(column) // 100])
    return analyze(core, options=options)


def python_level(crash: Crash, folder: Folder) -> str:
    truth = faulthandler(folder.stderr)
    ours = {thread.pthread: thread for thread in crash.threads}
    exact = [python_lines(ours[ident]) == true_lines(lines) for ident, lines in truth.items() if ident in ours]
    return "exact" if len(exact) == len(truth) and all(exact) else "some" if any(exact) else "none"


def share(column: str) -> int:
    """How many percent of the core there are."""
    return int(column.removesuffix(" %")) if column.endswith("%") else 100


class Frames(NamedTuple):
    """Python frames of all threads of a core that may be truncated."""

    survived: int
    """Those whose memory is there, by the whole core."""
    placed: int
    """Those of them of which something tells for sure, too, where on the stack they belong."""
    read: int
    """Those that crashkit's own reader finds in what there is of the core, and says in which thread they ran."""
    unplaced: int
    """Those that it finds, too, but whose thread nothing says."""


def surviving(path: Path, percent: int, temporary: Path) -> Frames:
    limit = path.stat().st_size * percent // 100
    part = temporary / "part"
    part.write_bytes(path.read_bytes()[:limit])
    with opened(path) as core, opened(part) as cut:
        state, ours = state_of(core), state_of(cut, with_file=True)
        assert state is not None
        survivors = Survivors(core, layout_of_core(core), limit)
        return Frames(
            survived=sum(survivors.frame(frame) for thread in state.threads for frame in thread.stack.inner),
            placed=sum(len(survivors.reachable(thread.state.address, thread.stack.inner)) for thread in state.threads),
            read=sum(len(thread.stack.inner) + len(thread.stack.outer) for thread in ours.threads) if ours else 0,
            unplaced=sum(map(len, ours.unplaced)) if ours else 0,
        )


def write(cell: Cell, frames: str) -> None:
    """Put these numbers into the table."""
    lines = MATRIX.read_text().splitlines(keepends=True)
    columns = next(line for line in lines if line.startswith("| interpreter |")).strip("|\n ").split(" | ")
    row = next(index for index, line in enumerate(lines) if line.startswith(f"| {cell.row} |"))
    words = lines[row].strip("|\n ").split(" | ")
    words[columns.index(cell.column)] = f"{cell.python}, {cell.native}, {frames}"
    lines[row] = f"| {' | '.join(words)} |\n"
    MATRIX.write_text("".join(lines))


def native_level(crash: Crash, crash_made: Made) -> str:
    truth = crash_made.native or backtrace(crash_made.folder.backtrace())

    class Truth:
        """What `check_native` asks of a folder."""

        def backtrace(self) -> dict[int, list[str]]:
            return truth

    threads = crash.threads
    if threads and is_exact(Truth(), crash):
        return "exact"
    # A thread caught where a stripped interpreter takes the GIL's mutex in a stripped libc has no name that anybody could read.
    namable = [thread for thread in threads if any(name != "??" for name in truth.get(thread.tid or 0, ()))]
    if namable and all(any(frame.function for frame in thread.natives()) for thread in namable):
        return "names"
    if threads and all(any(frame.pc for frame in thread.natives()) for thread in threads):
        return "addresses"
    return "none"


def is_exact(truth: object, crash: Crash) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.test_stacks_truth.backtrace", lambda text: text)
        try:
            check_native(truth, crash)
        except AssertionError:
            return False
    return True


ABSENT = [row for row in dict.fromkeys(cell.row for cell in cells()) if not is_at_hand(row)]


@pytest.mark.skipif(
    bool(ABSENT), reason=f"rows of the support matrix that need pyenv, or CRASHKIT_TEST_CHROOT=1 and root: {'; '.join(ABSENT)}"
)
def test_every_row_can_be_made() -> None:
    """The rest of this file takes the rows that can."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id=f"{cell.row}-{cell.column}", marks=[pytest.mark.chroot] if "Debian sid" in cell.row else [])
        for cell in cells()
        if cell.row not in ABSENT
    ],
)
def test_cell(cell: Cell, tmp_path: Path) -> None:
    crash_made = made(cell.row)
    crash = examine(crash_made, cell.column, tmp_path)

    assert crash.signal and crash.signal.name == "SIGSEGV" and crash.thread and crash.thread.registers
    assert len(crash.threads) == 7
    if cell.column in ("whole", "no gdb"):
        assert crash.signal.recovered and crash.signal.reason == "null-pointer", "faulthandler's handler stood before the fault"
    if cell.column.endswith("%"):
        assert crash.source and crash.source.truncated and crash.source.missing
    assert all(error.hint is None or error.hint for error in crash.soft_errors)
    python, native = python_level(crash, crash_made.folder), native_level(crash, crash_made)
    frames = surviving(crash_made.folder.core, share(cell.column), tmp_path)
    if "CRASHKIT_WRITE_DOCS" in os.environ:
        write(cell, f"{frames.read + frames.unplaced} of {frames.survived}")
    assert frames.placed <= frames.read
    assert frames.read + frames.unplaced == frames.survived
    # Up to 3.10 gdb knows from the C stack of frames of which nothing is left, too.
    assert sum(1 for thread in crash.threads for _ in thread.pythons()) >= frames.read
    # "some" is a matter of chance: which threads a cut core still holds, which stood before a function's first instruction.
    assert PYTHON_LEVELS.index(python) >= PYTHON_LEVELS.index(cell.python), crash.soft_errors
    assert NATIVE_LEVELS.index(native) >= NATIVE_LEVELS.index(cell.native), crash.soft_errors
    # Without gdb, a thread caught inside a stripped interpreter has a name only if libc6-dbg names its outermost frames.
    names_vary = cell.row == "the distribution's python3, stripped" and cell.column == "no gdb"
    if not cell.column.endswith("%") and cell.python != "some" and not names_vary:
        assert (python, native) == (cell.python, cell.native), "better than docs/support-matrix.md says: correct it"


def test_matrix_names_only_what_is_tested() -> None:
    assert {cell.column for cell in cells()} == {"whole", "no gdb", "no files", "95 %", "60 %", "5 %"}
    assert {cell.python for cell in cells()} <= set(PYTHON_LEVELS) and {cell.native for cell in cells()} <= set(NATIVE_LEVELS)
    assert all(re.fullmatch(r"\d+ of \d+", cell.frames) for cell in cells())
    assert all(any(re.fullmatch(pattern, cell.row) for pattern, *_ in ROWS) for cell in cells())
