"""The C++ runtime's functions without symbols, where they end the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.modules import loaded_modules
from crashkit.model import NativeFrame
from crashkit.pipeline import Options, analyze
from crashkit.stacks.moved_parts import with_moved_parts
from tests.crashes import CRASHERS, an_interpreter, needs_x86_64, python_crash
from tests.diagnose.causes import library

pytestmark = [needs_x86_64(), pytest.mark.slow]


@pytest.mark.parametrize(("function", "name"), [("nothing_to_rethrow", "__cxa_rethrow"), ("joinable", None)])
def test_what_called_terminate(function: str, name: str | None) -> None:
    built = library("runtime", source=(CRASHERS / "exceptions.cpp").read_text())
    made = python_crash("call.py", str(built), function, python=an_interpreter(), faulthandler=False)
    crash = analyze(made.core, options=Options(gdb=None))
    nameless = tuple(
        replace(frame, function=None) if isinstance(frame, NativeFrame) and "/libstdc++" in (frame.module or "") else frame
        for frame in crash.threads[0].frames
    )
    core = open_core(made.core.open("rb"), made.core, made.core.stat().st_size)
    assert core is not None
    with core:
        modules = loaded_modules(core)
        files = {module.path: Path(module.path) for module in modules if Path(module.path).is_file()}
        subject = replace(crash, threads=(replace(crash.threads[0], frames=nameless),))
        named = with_moved_parts(subject, core.architecture, modules, files)
    assert [frame.function for frame in named.threads[0].natives() if "__cxa" in (frame.function or "")] == ([name] if name else [])
