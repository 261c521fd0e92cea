"""Cores of processes that are no Python interpreter, or only hold one."""

from __future__ import annotations

import pytest

from crashkit.pipeline import analyze
from crashkit.report import html, markdown, one_line, text
from tests.crashes import an_interpreter, build_library, c_crash, made_once, needs_gdb, python_crash, some_interpreters


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


@needs_gdb
def test_a_library_that_fails_as_the_program_ends() -> None:
    """Its function is named on the first screen and in lists, and that the program was ending."""
    python = an_interpreter()
    library = made_once(f"at_exit-{python.name}", lambda folder: build_library("at_exit.c", folder, python))
    crash = analyze(python_crash("scenarios.py", "at_exit", str(library), python=python, faulthandler=False).core)
    assert crash.signal is not None and crash.signal.reason == "null-pointer"
    screen = list(text.summary(crash, None, color=False, width=200))
    assert screen[1].strip() == "failed in release (at_exit.c:8 in at_exit.so), run at the end of the program"
    assert f'<p class="said">{screen[1].strip()}</p>' in html.render(crash)
    assert f"- **Where:** {screen[1].strip()}" in markdown.summary(crash).replace("\\", "")
    assert one_line.where(crash) == "release"


@needs_gdb
def test_a_library_that_fails_as_a_thread_ends() -> None:
    """No line called its destructor; what the main thread waits for is no cause."""
    python = an_interpreter()
    library = made_once(f"thread_end-{python.name}", lambda folder: build_library("thread_end.c", folder, python))
    crash = analyze(python_crash("scenarios.py", "thread_end", str(library), python=python, faulthandler=False).core)
    screen = list(text.summary(crash, None, color=False, width=200))
    assert screen[1].strip() == "failed in drop (thread_end.c:9 in thread_end.so), run at the end of the thread"
    assert one_line.where(crash) == "drop"


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
