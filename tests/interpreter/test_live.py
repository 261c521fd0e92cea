"""A live process is read by the same code as a core."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from crashkit.interpreter.finding import Module
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.read import read_python
from crashkit.memory.live import LiveProcess
from tests.crashes import Interpreter, every_interpreter

CHILD = """
import sys, threading
def wait(text):
    print(text, threading.get_ident(), flush=True)
    sys.stdin.read()
threading.current_thread().name = "läuft"
wait("here")
"""


@pytest.mark.parametrize("python", every_interpreter())
def test_stack_of_a_live_process(python: Interpreter) -> None:
    command = [python.path, "-I", "-c", CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        ident = int(child.stdout.readline().split()[1])
        # What is read at different times may be inconsistent.
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        with LiveProcess(child.pid) as live:
            found = find_interpreter(loaded_modules(live), str(python.path))
            assert found is not None
            state = read_python(live, [Module(found.module, None)], Version(*python.version[:2], python.free_threaded), {ident: child.pid})
            assert state is not None
            (thread,) = state.threads
            assert (thread.state.ident, thread.name) == (ident, "läuft")
            names = [frame.code.name for frame in thread.stack.inner if frame.code]
            assert names[-2:] == ["wait", "<module>"]
            frame = next(frame for frame in thread.stack.inner if frame.code and frame.code.name == "wait")
            assert frame.position is not None and frame.position.line in (4, 5)
            assert [(value.name, value.text, value.is_argument) for value in state.variables(frame)] == [("text", "'here'", True)]
        child.kill()
