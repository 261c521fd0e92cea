"""Cores of processes that are no Python interpreter, or only hold one."""

from __future__ import annotations

import pytest

from crashkit.pipeline import analyze
from tests.crashes import c_crash, some_interpreters


def test_a_c_program():
    crash = analyze(c_crash("no_python.c").core)
    assert (crash.signal.reason, crash.signal.address) == ("null-pointer", 24)
    assert crash.python is None
    assert [frame.function for frame in crash.thread.natives()][:3] == ["value_of", "sum", "main"]
    assert {frame.file.rsplit("/", 1)[-1] for frame in list(crash.thread.natives())[:3]} == {"no_python.c"}
    assert len(crash.threads) == 2
    other = next(thread for thread in crash.threads if not thread.crashed)
    assert "wait_for_input" in [frame.function for frame in other.natives()]
    assert not any(error.stage == "python" for error in crash.soft_errors)


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.12"))
def test_a_program_that_embeds_python(python):
    crash = analyze(c_crash("embed.c", python=python).core)
    assert crash.python.version.startswith("{}.{}".format(*python.version))
    functions = [(type(frame).__name__, frame.function) for frame in crash.thread.frames]
    assert functions[:2] == [("NativeFrame", "follow"), ("NativeFrame", "host_follow")]
    pythons = [frame.function for frame in crash.thread.pythons() if frame.function != "<listcomp>"]
    assert pythons == ["inner", "outer", "<module>"]
    assert ("NativeFrame", "PyRun_SimpleStringFlags") in functions
    assert ("NativeFrame", "main") in functions
