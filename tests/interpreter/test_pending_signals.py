"""Signals that had arrived when the process died, and whose Python handlers had not run yet."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crashkit.evidence.core.core import Core
from crashkit.interpreter.finding import Module, addresses_of, find
from crashkit.interpreter.signals import VARIABLE, Pending
from crashkit.interpreter.view import View
from crashkit.model import PendingSignal
from crashkit.pipeline import analyze
from crashkit.report import text
from crashkit.report.renderer import renderer
from tests.crashes import CRASHERS, Interpreter, every_interpreter, python_crash
from tests.interpreter.process import idents, interpreter_of, opened, state_of

SCRIPT = CRASHERS / "pending_signal.py"


def line_of(code: str) -> int:
    return SCRIPT.read_text().splitlines().index(code) + 1


FUNCTION, PARTIAL = line_of("def on_user(number, frame):"), line_of("def with_name(name, number, frame):")
METHOD = line_of("    def on_hangup(self, number, frame):")


@pytest.fixture(params=every_interpreter())
def python(request: pytest.FixtureRequest) -> Interpreter:
    found: Interpreter = request.param
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


def check_pending(signals: tuple[PendingSignal, ...]) -> None:
    """Those of a process that had its program elsewhere."""
    told = [(one.name, one.handler, (one.file or "").rpartition("/")[2], one.line) for one in signals]
    assert [name for name, *_ in told] == ["SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGWINCH"]
    assert told[0][1:] == ("Server.on_hangup", SCRIPT.name, METHOD)
    assert [one[1:] for one in told[2:4]] == [("on_user", SCRIPT.name, FUNCTION), ("with_name", SCRIPT.name, PARTIAL)]


def test_handled_signals_are_not_pending(python: Interpreter) -> None:
    assert pending(python, "handled") == []


DAMAGE = {"a flag that is none": (15, 0, 7), "a signal without a handler": (15, 8, 0), "a handler of no signal": (0, 8, 0x1000)}


@pytest.mark.parametrize("damage", DAMAGE)
def test_of_a_damaged_table_nothing_is_said(python: Interpreter, damage: str, tmp_path: Path) -> None:
    if not is_named(python):
        pytest.skip("this interpreter's file does not name the table of handlers")
    made = python_crash("pending_signal.py", "pending", python=python, faulthandler=False)
    copy = tmp_path / "core"
    shutil.copy(made.core, copy)
    number, field, value = DAMAGE[damage]
    with opened(copy) as core, copy.open("r+b") as file:
        address = table_of(core) + 16 * number + field
        segment = core.segment(address)
        assert segment is not None
        file.seek(segment.position + address - segment.start)
        file.write(value.to_bytes(4 if field == 0 else 8, "little"))
    with opened(copy) as core:
        state = state_of(core, with_file=True)
        assert state is not None and state.pending_signals() == []


def table_of(core: Core) -> int:
    loaded, version = interpreter_of(core)
    module = Module(loaded, Path(loaded.path))
    found = find(View(core), [module], version, idents(core))
    assert found is not None
    runtime = found.layout.runtime
    if found.runtime is not None and runtime is not None and runtime.signals is not None:
        return found.runtime + runtime.signals
    return addresses_of(module, VARIABLE)[0]


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
