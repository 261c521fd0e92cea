"""Signals that had arrived when the process died, and whose Python handlers had not run yet."""

from __future__ import annotations

import pytest

from crashkit.interpreter.layouts import Version, layout_of
from crashkit.interpreter.signals import Pending
from crashkit.model import PendingSignal
from crashkit.pipeline import analyze
from crashkit.report import text
from crashkit.report.renderer import renderer
from tests.crashes import CRASHERS, Interpreter, every_interpreter, python_crash
from tests.interpreter.process import opened, state_of

SCRIPT = CRASHERS / "pending_signal.py"


def line_of(code: str) -> int:
    return SCRIPT.read_text().splitlines().index(code) + 1


FUNCTION, PARTIAL = line_of("def on_user(number, frame):"), line_of("def with_name(name, number, frame):")
METHOD = line_of("    def on_hangup(self, number, frame):")


@pytest.fixture(params=every_interpreter())
def python(request: pytest.FixtureRequest) -> Interpreter:
    found: Interpreter = request.param
    layout = layout_of(Version(*found.version[:2], found.free_threaded))
    if layout is None or layout.signal is None:
        pytest.skip("the table of this version does not say where handlers are: no such interpreter with debug info was at hand")
    return found


def pending(python: Interpreter, what: str) -> list[Pending]:
    with opened(python_crash("pending_signal.py", what, python=python, faulthandler=False).core) as core:
        state = state_of(core, with_file=True)
        assert state is not None
        return state.pending_signals()


def is_named(python: Interpreter) -> bool:
    """Whether the interpreter's file names the table: up to 3.11 only a symbol leads to it, which a stripped file does not have."""
    return python.version >= (3, 12) or python.has_debug_info


def test_pending_signals_are_read_with_their_handlers(python: Interpreter) -> None:
    found = pending(python, "pending")
    if not is_named(python):
        assert found == []
        return
    assert [one.number for one in found] == [1, 2, 10, 12, 28]
    hangup, interrupt, first, second, counted = found
    assert hangup == Pending(1, "Server.on_hangup", str(SCRIPT), METHOD)
    assert first == Pending(10, "on_user", str(SCRIPT), FUNCTION)
    assert second == Pending(12, "with_name", str(SCRIPT), PARTIAL)
    assert counted.handler is not None and counted.handler.startswith("<Counter")
    # The name of its type is in a file only, which the reader was not given here.
    assert interrupt == Pending(2)


def test_handled_signals_are_not_pending(python: Interpreter) -> None:
    assert pending(python, "handled") == []


@pytest.mark.slow
def test_the_report_names_them(python: Interpreter) -> None:
    if not is_named(python):
        pytest.skip("this interpreter's file does not name the table of handlers")
    crash = analyze(python_crash("pending_signal.py", "pending", python=python, faulthandler=False).core)
    assert crash.python is not None
    one, interrupt, first, *_ = crash.python.pending_signals
    assert one == PendingSignal(number=1, name="SIGHUP", handler="Server.on_hangup", file=str(SCRIPT), line=METHOD)
    assert (interrupt.name, interrupt.handler) == ("SIGINT", "default_int_handler")
    assert first == PendingSignal(number=10, name="SIGUSR1", handler="on_user", file=str(SCRIPT), line=FUNCTION)
    said = f"SIGHUP was not handled yet by Server.on_hangup ({SCRIPT}:{METHOD})"
    assert said in renderer("html").render(crash).decode()
    screen = " ".join(" ".join(text.summary(crash, None, color=False, width=400)).split())
    assert f"pending {said} " in screen and screen.count(" was not handled yet by ") == 3
    handled = analyze(python_crash("pending_signal.py", "handled", python=python, faulthandler=False).core)
    assert handled.python is not None and handled.python.pending_signals == ()
    assert "was not handled yet" not in renderer("html").render(handled).decode()
