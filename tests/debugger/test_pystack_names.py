"""Names of native frames without gdb: at each address the function that gdb says, though PyStack says another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.debugger.pystack.debugger import PystackDebugger
from crashkit.model import Crash, NativeFrame
from crashkit.naming.functions import plain, short_function
from crashkit.pipeline import Options, analyze

from ..crashes import Folder, a_debuggable_interpreter, needs_gdb, needs_x86_64, python_crash

pytestmark = [needs_x86_64(), needs_gdb, pytest.mark.slow]


# Names of the C library's own in debug info, by those that it exports.
ALIASES = {
    "__GI_abort": "abort",
    "__GI_raise": "raise",
    "__libc_start_main_impl": "__libc_start_main",
    "<signal handler called>": "__restore_rt",
}


def functions(crash: Crash) -> dict[int, str]:
    """By address, without inlined ones: of those, tools choose different ones."""
    assert crash.thread is not None
    frames = [frame for frame in crash.thread.frames if isinstance(frame, NativeFrame) and frame.trust != "inline"]
    pcs = [frame.pc for frame in frames]
    return {
        int(frame.pc): plain(short_function(frame.function)) for frame in frames if frame.pc and frame.function and pcs.count(frame.pc) == 1
    }


def made(name: str) -> Folder:
    return python_crash("scenarios.py", name, python=a_debuggable_interpreter())


@pytest.mark.parametrize("name", ["sigabrt", "fatal_error", "read_null", "at_the_end_of_a_task"])
def test_names_are_those_of_gdb(name: str) -> None:
    core: Path = made(name).core
    mine, theirs = functions(analyze(core, options=Options(gdb=None), debuggers=[PystackDebugger(60)])), functions(analyze(core))
    both = mine.keys() & theirs.keys()
    assert both
    assert {at: mine[at] for at in both} == {at: ALIASES.get(theirs[at], theirs[at]) for at in both}


def test_a_call_that_never_returns_is_the_last_instruction_of_its_function() -> None:
    found = functions(analyze(made("sigabrt").core, options=Options(gdb=None))).values()
    assert "os_abort" in found or "os_abort_impl" in found
