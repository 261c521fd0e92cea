"""A function of the C library that comes to the end of memory which no variable describes: it was given a wrong length."""

from __future__ import annotations

import pytest

from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, python_crash, some_interpreters

TOLD = {
    "filled": "memset wrote to the end of the memory, 0x{end:x}, and beyond: it was given a length that is larger than the memory.",
    "copied": "read to the end of the memory, 0x{end:x}, and beyond: it was given a length that is larger than the memory.",
    "measured": "strlen read to the end of the memory, 0x{end:x}, and beyond: it was given a text without the zero byte at its end.",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOLD)
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_it_was_given_a_wrong_length(kind: str, python: Interpreter) -> None:
    crash = analyze(python_crash("past_memory.py", kind, python=python).core, options=Options(gdb=None))
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("buffer-overrun", "likely")
    assert crash.signal is not None and crash.signal.address is not None
    assert TOLD[kind].format(end=crash.signal.address // 4096 * 4096) in finding.summary


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["far", "gone"])
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_a_pointer_to_what_is_not_mapped(kind: str, python: Interpreter) -> None:
    """Also where it is the end of memory: it was given just that, and did not come to it."""
    crash = analyze(python_crash("past_memory.py", kind, python=python).core, options=Options(gdb=None))
    assert "buffer-overrun" not in [finding.id for finding in crash.findings]
