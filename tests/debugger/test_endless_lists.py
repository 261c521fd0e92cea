"""Lists of a dead interpreter that lead back into themselves: each thread is counted once."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.evidence.core.core import Core
from crashkit.pipeline import analyze
from tests.crashes import NO_DEBUG_INFO, an_interpreter, needs_gdb, python_crash


def address(program: Path, core: Path, expression: str) -> int:
    command = ["gdb", "-nx", "-batch", "-iex", "set auto-load no", "-ex", f"print/x {expression}", str(program), str(core)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    found = re.search(r"^\$1 = (0x[0-9a-f]+)", shown, re.MULTILINE)
    if found is None:
        pytest.skip(NO_DEBUG_INFO)
    return int(found[1], 16)


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("link", ["interpreters.head->next", "interpreters.head->threads.head->next"])
def test_a_list_that_leads_to_its_own_head(link, tmp_path):
    interpreter = an_interpreter()
    if not interpreter.has_debug_info:
        pytest.skip(NO_DEBUG_INFO)
    if interpreter.version < (3, 11):
        pytest.skip("the field is called tstate_head there")
    crash = python_crash("threads.py", python=interpreter)
    head = address(crash.program, crash.core, f"(unsigned long) _PyRuntime.{link.rpartition('->')[0]}")
    place = address(crash.program, crash.core, f"(unsigned long) &_PyRuntime.{link}")
    shutil.copy(crash.core, tmp_path / "core")
    with (tmp_path / "core").open("r+b") as file:
        core = Core(file, tmp_path / "core", (tmp_path / "core").stat().st_size)
        segment = core.segment(place)
        assert segment is not None
        file.seek(segment.position + place - segment.start)
        file.write(head.to_bytes(8, "little"))
    expected, found = analyze(crash.core), analyze(tmp_path / "core")
    assert [thread.tid for thread in found.threads] == [thread.tid for thread in expected.threads]
    assert not [error for error in found.soft_errors if "threads were not read" in error.message]
    if link == "interpreters.head->next":
        assert [[frame.function for frame in thread.pythons()] for thread in found.threads] == [
            [frame.function for frame in thread.pythons()] for thread in expected.threads
        ]
