"""Functions without symbols have the names of the methods that Python calls."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.elf.file import open_elf
from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.module_files import ModuleFile
from crashkit.model import Crash, Frame, NativeFrame
from crashkit.pipeline import Options, analyze
from crashkit.report import text
from crashkit.stacks.method_tables import with_method_names
from tests.crashes import (
    NO_STRIPPED,
    Interpreter,
    build_library,
    every_interpreter,
    interpreters,
    made_once,
    needs_gdb,
    needs_x86_64,
    python_crash,
    some_interpreters,
)

pytestmark = [needs_x86_64(), pytest.mark.slow]


def stripped_module(python: Interpreter) -> Path:
    """The extension module methods.c without symbols."""

    def make(folder: Path) -> Path:
        built = build_library("methods.c", folder, python)
        subprocess.run(["strip", "--strip-all", built], check=True, timeout=60)
        elf = open_elf(built)
        assert elf is not None and elf.section(".symtab") is None
        return built

    return made_once(f"methods-{python.name}", make)


def functions(crash: Crash) -> list[str | None]:
    assert crash.thread is not None
    return [frame.function for frame in crash.thread.natives()]


@pytest.mark.parametrize("python", some_interpreters("3.6", "3.8", "3.11", "3.13"))
@pytest.mark.parametrize("call", ["Heap().fail()", *(pytest.param(one, marks=pytest.mark.long) for one in ("fail()", "Static().fail()"))])
def test_a_stripped_extension_module(python: Interpreter, call: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(stripped_module(python).parent)!r})\nimport methods\nmethods.works()\nmethods.{call}\n"
    )
    minimal = tmp_path / "minimal"
    crash = analyze(python_crash(program, python=python).core, options=Options(minimal=minimal))
    name = "methods." + call.replace("()", "")
    assert functions(crash).count(name) == 1 and functions(analyze(minimal)) == functions(crash)
    shown = "\n".join(text.summary(crash, None, color=False, width=200))
    assert f"native    {name}" in shown and f"{name} used a null pointer" in shown


@pytest.mark.parametrize(
    ("kind", "function", "finding"),
    [("abort", "os_abort", "self-abort"), ("itself", "os_kill", "self-signal")],
)
def test_a_stripped_interpreter(kind: str, function: str, finding: str) -> None:
    python = next((one for one in interpreters() if not one.has_debug_info), None) or pytest.skip(NO_STRIPPED)
    crash = analyze(python_crash("faults.py", kind, python=python, faulthandler=False).core)
    assert function in functions(crash)
    assert (crash.findings[0].id, crash.findings[0].confidence) == (finding, "certain")


@needs_gdb
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
@pytest.mark.parametrize(("program", "least"), [("faults.py abort", 1), ("faults.py itself", 1), ("threads.py", 2)])
def test_the_names_are_those_of_the_symbols(python: Interpreter, program: str, least: int) -> None:
    """A method is called in C much as it is in Python: `builtin_sorted`, `lock_PyThread_acquire_lock`."""
    made = python_crash(*program.split(), python=python, faulthandler=False)
    crash = analyze(made.core)
    threads = tuple(replace(thread, frames=tuple(map(without_name, thread.frames))) for thread in crash.threads)
    core = open_core(made.core.open("rb"), made.core, made.core.stat().st_size)
    assert core is not None
    with core:
        modules = loaded_modules(core)
        files = {module.path: Path(module.path) for module in modules if Path(module.path).is_file()}
        constants = partial(read_constant, core, {path: ModuleFile("found", file) for path, file in files.items()})
        named = with_method_names(replace(crash, threads=threads), core, constants, modules, files)
    pairs = [
        (frame.function.rpartition(".")[2], known.function or "")
        for thread, other in zip(named.threads, crash.threads, strict=True)
        for frame, known in zip(thread.frames, other.frames, strict=True)
        if isinstance(frame, NativeFrame) and isinstance(known, NativeFrame) and frame.function and known.trust != "inline"
    ]
    assert len(pairs) >= least and all(known.removesuffix("_impl").endswith(name) for name, known in pairs), pairs


def without_name(frame: Frame) -> Frame:
    return replace(frame, function=None) if isinstance(frame, NativeFrame) else frame
