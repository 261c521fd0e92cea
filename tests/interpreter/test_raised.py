"""The exceptions that threads handle, with their tracebacks and what they came from: held to `traceback` in the process itself."""

from __future__ import annotations

import json
import re

import pytest

from crashkit.pipeline import Options, analyze
from crashkit.report import html, text
from tests.crashes import Interpreter, every_interpreter, python_crash


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_they_are_what_the_program_saw(python: Interpreter) -> None:
    made = python_crash("raised.py", python=python)
    truth = json.loads(next(line for line in made.stderr.splitlines() if line.startswith("{")))
    crash = analyze(made.core, options=Options(gdb=None))
    found = {
        thread.name: [[one.text, one.relation, [[frame.function, frame.line] for frame in one.frames]] for one in thread.raised]
        for thread in crash.threads
    }
    assert found == truth and len(found) == 5
    for thread in crash.threads:
        assert thread.exception == (thread.raised[0].text if thread.raised else None)
        assert [one.left_out for one in thread.raised if one.left_out] == ([62] if thread.name == "with_a_deep_one" else [])
    inner = crash.threads[0].raised[0].frames[0]
    assert inner.source == 'raise OSError(28, "disk full")'


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter()[-1:])
def test_they_are_told(python: Interpreter) -> None:
    crash = analyze(python_crash("raised.py", python=python).core, options=Options(gdb=None))
    inner = next(frame for frame in crash.threads[0].pythons() if frame.function == "crash")
    assert (inner.locals["itself"], inner.locals["table"]) == ("[1, [...]]", "{'own': ({...}, [1, [...]])}"), "as repr() has them"
    shown = " ".join("\n".join(text.summary(crash, None, color=False, width=200)).split())
    page = html.render(crash)
    line = crash.threads[0].raised[0].frames[0].line
    assert re.search(rf"handling OSError\(28, 'disk full'\) raised in close \(\S*raised.py:{line}\)", shown), shown
    assert "while handling RuntimeError('cannot load', 'a'), raised in load (" in shown
    for told in (f"raised.py:{line})", "called by with_context", "from KeyError(&#39;a&#39;), raised in find"):
        assert told in page, told
