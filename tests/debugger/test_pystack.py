"""PyStack's stacks are faulthandler's, on every interpreter and however little is left of it; its own death costs nothing else."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crashkit.debugger.contract import Answer
from crashkit.debugger.pystack import debugger, process
from crashkit.debugger.pystack.debugger import PystackDebugger, ask_pystack
from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.describe import describe
from crashkit.evidence.input import open_input
from crashkit.evidence.module_files import Finder
from crashkit.limits import WHOLE_STACK
from crashkit.model import NativeFrame, Thread
from crashkit.naming.functions import without_suffix
from crashkit.stacks.merge import is_evaluation, merge, runs
from tests.crashes import (
    Folder,
    Interpreter,
    an_interpreter,
    every_interpreter,
    needs_binutils,
    python_crash,
    some_interpreters,
    these_versions,
)
from tests.truth import backtrace, faulthandler, faulting_thread

MARKUP = "</script><script>alert(1)</script>"


@pytest.fixture(params=every_interpreter())
def python(request: pytest.FixtureRequest) -> Interpreter:
    found: Interpreter = request.param
    return found


def ask(made: Folder, locals: bool = True, native: bool = False) -> Answer:
    return ask_pystack(made.core, made.program.resolve(), locals=locals, native=native)


def same_as_faulthandler(result: Answer, made: Folder) -> None:
    """Every thread's function, line and file. faulthandler names threads by their pthread ids, so stacks are compared, not names."""
    ours = Counter(tuple(begun(result, f.function, f.line, f.file) for f in stack.frames) for stack in result.python.values())
    theirs = Counter(tuple(begun(result, *line) for line in stack) for stack in faulthandler(made.stderr).values() if stack)
    assert sum(theirs.values()) > 1
    assert ours == theirs


def begun(result: Answer, function: str | None, line: int | None, file: str | None) -> tuple[str | None, int | None, str | None]:
    """A spinner may stand before the first instruction of `advance`: up to 3.10 PyStack gives such a frame the function's second line."""
    old = result.python_version in ("3.6", "3.7", "3.8", "3.9", "3.10")
    return function, 28 if old and (function, line) == ("advance", 27) else line, file


@pytest.mark.slow
def test_every_thread_is_as_faulthandler_saw_it(python: Interpreter) -> None:
    made = python_crash("threads.py", python=python)
    result = ask(made)
    same_as_faulthandler(result, made)
    assert result.python_version == "{}.{}".format(*python.version)
    assert result.soft_errors == ()
    crashed = faulthandler(made.stderr)[faulting_thread(made.stderr) or 0]
    holder = [stack for stack in result.python.values() if stack.holds_gil]
    assert len(holder) == 1 and [frame.function for frame in holder[0].frames] == [line.function for line in crashed]
    assert {frame.origin for stack in result.python.values() for frame in stack.frames} == {"pystack"}
    request = next(frame for frame in holder[0].frames if frame.function == "handle")
    assert request.args == ("self",) and request.locals["label"] == '"request of 16"'


@pytest.mark.slow
@pytest.mark.parametrize("debuggable", every_interpreter(debuggable=True))
def test_python_and_native_stacks_fit_together(debuggable: Interpreter) -> None:
    """By the names of the interpreter's functions."""
    made = python_crash("threads.py", python=debuggable)
    result = ask(made, native=True)
    assert len(result.native) == 7
    for tid, stack in result.python.items():
        native = result.native[tid].frames
        assert sum(map(is_evaluation, native)) == len(runs(stack.frames))
        assert merge(native, stack.frames).frames is not None


def bare(function: str) -> str:
    """Without suffixes, versions and the leading underscores in which aliases differ."""
    return without_suffix(function or "").partition("@")[0].lstrip("_").removeprefix("GI_").lstrip("_")


@pytest.mark.slow
def test_native_functions_are_those_of_gdb() -> None:
    made = python_crash("threads.py", python=an_interpreter())
    result = ask(made, native=True)
    for tid, names in backtrace(made.backtrace()).items():
        ours = [bare(f.function) for f in result.native[tid].frames if f.function and f.trust != "inline"]
        theirs = [bare(name) for name in names]
        # PyStack's libdw and gdb differ in what they count as inlined, and PyStack knows no signal frame.
        common = [name for name in ours if name in theirs]
        assert len(common) > 0.8 * len(ours), (ours, theirs)
        assert theirs[-1] in (ours[-1], "??")


def relocated(python: Interpreter, folder: Path) -> tuple[Path, dict[str, str]]:
    """A copy of an interpreter's binaries in a prefix of their own, and the environment that runs it."""
    prefix = python.path.parent.parent
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    copy = Path(shutil.copy(python.path, folder / "bin"))
    for library in prefix.glob("lib/libpython3.*.so.1.0"):
        shutil.copy(library, folder / "lib")
    return copy, {"PYTHONHOME": str(prefix), "LD_LIBRARY_PATH": str(folder / "lib")}


@pytest.mark.slow
@needs_binutils
@pytest.mark.parametrize("original", some_interpreters("3.8", "3.10", "3.11", "3.12", "3.13"))
@pytest.mark.parametrize("damage", ["symbols", "section headers"])
def test_interpreter_without_symbol_table(original: Interpreter, damage: str, tmp_path: Path) -> None:
    python, environment = relocated(original, tmp_path)
    for file in (python, *(tmp_path / "lib").iterdir()):
        file.chmod(0o755)
        subprocess.run(["strip", "--strip-all", file], check=True)
        if damage == "section headers":
            with file.open("r+b") as binary:
                binary.seek(40)
                binary.write(struct.pack("<Q", 0))
                binary.seek(58)
                binary.write(struct.pack("<HHH", 64, 0, 0))
    made = python_crash("threads.py", python=python, environment=environment)
    same_as_faulthandler(ask(made), made)


RECURSION = """
import sys
sys.setrecursionlimit(10**9)
def recurse(depth):
    return [x for x in map(recurse, [depth + 1])]
recurse(0)
"""


@pytest.mark.long
@pytest.mark.parametrize("interpreter", these_versions("3.9", "3.11"))
def test_overflowing_stack(interpreter: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(RECURSION)
    made = python_crash(tmp_path / "deep.py", python=interpreter)
    result = ask(made, native=True)
    assert result.soft_errors == ()
    ((tid, python),) = result.python.items()
    native = result.native[tid]
    # Each of these Python frames takes some native ones, more where the interpreter was not optimised.
    assert (native.between or 0) + 1200 > (50_000 if interpreter.has_debug_info else (python.total or 0) // 2) > 5_000
    assert (len(native.frames), len(native.outer)) == (WHOLE_STACK, 200)
    assert (len(python.frames), len(python.outer)) in ((WHOLE_STACK, 200), (python.total or len(python.frames), 0))
    assert python.frames[500].function in ("recurse", "<listcomp>") and (python.outer or python.frames)[-1].function == "<module>"
    # Debian's stripped interpreters export `_start` or do not.
    assert native.outer[-1].function == "_start" or not interpreter.has_debug_info


HOSTILE = f"""
import ctypes
MARKUP = {MARKUP!r}
class Rogue:
    def __repr__(self):
        open("repr-was-executed", "w").close()
def crash(address, markup, escapes, surrogate, endless, many, rogue):
    return ctypes.string_at(address)
crash(16, MARKUP, "\\x1b[31m\\n", "\\udcff", "x" * 1000000, list(range(1000000)), Rogue())
"""


@pytest.mark.slow
def test_hostile_values_are_bounded_and_never_executed(python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE)
    made = python_crash(tmp_path / "hostile.py", python=python)
    ((_, stack),) = ask(made).python.items()
    values = stack.frames[1].locals
    assert list(values) == ["address", "markup", "escapes", "surrogate", "endless", "many", "rogue"] == list(stack.frames[1].args)
    assert MARKUP in values["markup"]
    assert max(map(len, values.values())) <= 201
    assert not (made.path / "repr-was-executed").exists()
    msgspec.json.encode(Thread(frames=stack.frames))


@pytest.mark.slow
def test_hostile_names_are_survived(python: Interpreter) -> None:
    stacks = ask(python_crash("hostile.py", python=python)).python.values()
    frames = [frame for stack in stacks for frame in stack.frames]
    # PyStack leaves out the frame whose file has a name beyond Latin-1.
    assert {"string_at", "crash", "_bootstrap", "<module>"} <= {frame.function for frame in frames}
    msgspec.json.encode([Thread(frames=stack.frames) for stack in stacks])


def test_name_that_pystack_cannot_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "caf\xe9.py").write_text("import ctypes\nctypes.string_at(16)\n")
    made = python_crash(tmp_path / "caf\xe9.py", python=an_interpreter())
    ((_, stack),) = ask(made).python.items()
    assert [(frame.function, frame.file is None, frame.line) for frame in stack.frames] == [
        ("string_at", False, faulthandler(made.stderr)[faulting_thread(made.stderr) or 0][0].line),
        ("<module>", True, 2),
    ]


def test_locals_may_be_left_out() -> None:
    result = ask(python_crash("threads.py", python=an_interpreter()), locals=False)
    assert not any(frame.locals or frame.args for stack in result.python.values() for frame in stack.frames)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_truncated_core_is_survived(kept: float, tmp_path: Path) -> None:
    made = python_crash("threads.py", python=an_interpreter())
    cut = tmp_path / "core"
    cut.write_bytes(made.core.read_bytes()[: int(made.core.stat().st_size * kept)])
    result = ask_pystack(cut, made.program.resolve(), native=True)
    assert result.python or result.soft_errors
    assert all(error.hint and "\n" not in error.message for error in result.soft_errors)
    assert not any(isinstance(f, NativeFrame) and f.function == "???" for stack in (result.native or {}).values() for f in stack.frames)


@pytest.mark.slow
def test_damaged_cores_are_survived(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    made = python_crash("threads.py", python=an_interpreter())
    whole = made.core.read_bytes()
    generator = random.Random(seed)
    for number in range(6):
        copy = bytearray(whole)
        for _ in range(20):
            at, size = generator.randrange(4096, len(copy)), generator.randrange(1, 1 << 16)
            copy[at : at + size] = generator.randbytes(len(copy[at : at + size]))
        damaged = tmp_path / f"core{number}"
        damaged.write_bytes(copy)
        result = ask_pystack(damaged, made.program.resolve(), deadline=60)
        assert result.python or result.soft_errors, f"seed {seed}"
        msgspec.json.encode([Thread(frames=stack.frames) for stack in (result.python or {}).values()])
        damaged.unlink()


def test_what_is_no_core_is_a_soft_error(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no core")
    result = ask_pystack(text, Path(sys.executable))
    assert not result.python and "PyStack could not read" in result.soft_errors[-1].message


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the worker; run with REQUEST RESULT."""
    script = tmp_path / "worker.py"
    monkeypatch.setattr(process, "_WORKER", script)
    (tmp_path / "core").touch()
    return script


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.kill(os.getpid(), 11)", "killed by signal 11"),
        ("import sys; sys.exit('terminate called\\nwhat(): std::bad_alloc')", "exited with status 1: what(): std::bad_alloc"),
        ("import os; os.read(os.pipe()[0], 1)", "did not finish within"),
        ("import sys; open(sys.argv[2], 'w').write('{\"threads\": [')", "died while writing its output"),
        ("", "exited with status 0"),
    ],
)
def test_worker_that_dies_or_hangs(worker: Path, program: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.write_text(program)
    temporary = worker.with_name("temporary")
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    deadline = 1 if "finish" in message else 60
    result = ask_pystack(worker.with_name("core"), Path("/bin/true"), deadline=deadline)
    assert not result.python
    # Once with locals, once without.
    assert len(result.soft_errors) == 2 and all(message in error.message for error in result.soft_errors)
    assert not list(temporary.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("native", "seconds"), [(True, 100.0), (False, 25.0)])
def test_python_frames_alone_are_worth_a_quarter_of_the_time(
    native: bool, seconds: float, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.write_text("import sys; sys.exit(1)")
    given: list[float] = []
    run = debugger.run_pystack

    def noted(core: Path, executable: Path, files: Mapping[str, Path], deadline: float, *others: Any) -> Any:
        given.append(deadline)
        return run(core, executable, files, deadline, *others)

    monkeypatch.setattr(debugger, "run_pystack", noted)
    made = python_crash("threads.py", python=an_interpreter())
    with open_input(made.core) as source:
        core = open_core(source.file, made.core, source.size)
        assert core is not None
        PystackDebugger(100.0).examine(made.core, describe(core, source, Finder()), native, lambda _part: None)
    # Half of it with locals, and what is left without.
    assert given[0] == pytest.approx(seconds / 2, abs=1) and given[1] == pytest.approx(seconds, abs=5)


def test_locals_that_kill_pystack_cost_only_themselves(worker: Path) -> None:
    frame = {"function": "f", "file": "f.py", "line": 3, "columns": None, "entry": True, "args": [], "locals": {}}
    thread = {"tid": 7, "gil": -1, "version": [3, 11], "total": 1, "inner": [frame], "outer": [], "native_inner": [], "native_outer": []}
    worker.write_text(
        "import json, os, sys\n"
        "if json.load(open(sys.argv[1]))['locals']: os.abort()\n"
        f"json.dump({{'threads': [{thread!r}]}}, open(sys.argv[2], 'w'))\n"
    )
    result = ask_pystack(worker.with_name("core"), Path("/bin/true"))
    assert [frame.function for frame in result.python[7].frames] == ["f"] and result.python[7].holds_gil is None
    assert "without local variables" in result.soft_errors[0].message


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MEMORY", 1 << 20)
    result = ask(python_crash("threads.py", python=an_interpreter()))
    assert not result.python and result.soft_errors


def test_without_pystack_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = ask_pystack(Path("core"), Path("/bin/true"))
    assert "not installed" in result.soft_errors[0].message and "pip install" in str(result.soft_errors[0].hint)


def test_pystack_leaves_no_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The worker sets its limits before it loads PyStack: another of that name writes them down."""
    package, seen = tmp_path / "pystack", tmp_path / "limits"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "engine.py").write_text(f"import resource; open({str(seen)!r}, 'w').write(repr(resource.getrlimit(resource.RLIMIT_CORE)))")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "core").touch()
    ask_pystack(tmp_path / "core", Path("/bin/true"), deadline=30)
    assert seen.read_text() == "(0, 0)"
