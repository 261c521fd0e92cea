"""A signal handler that failed or ended the process, and had interrupted other code: what it called that no handler may call. Pure."""

from __future__ import annotations

from itertools import takewhile

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence, NativeFrame, PythonFrame
from crashkit.naming.failing import said, said_name
from crashkit.naming.interrupted import handled_said, handler_at, handler_said
from crashkit.naming.machinery import is_signal_frame, sends_signal
from crashkit.regex import regex

_ALLOWED = regex(
    r"PyErr_SetInterrupt\w*|Py_AddPendingCall|_PyEval_AddPendingCall|_?Py_FatalError\w*|_?Py_[Dd]ump\w*|_PyTime_\w+|trip_signal|signal_handler"
)
"""What the interpreter itself calls in handlers: Modules/signalmodule.c and faulthandler.c."""


def handler_calls_python(case: Case) -> Outcome:
    """A handler that is not the interpreter's own called a function of the interpreter, which failed or called what did."""
    stack = case.crashed
    if stack is None or not stack.thread.frames:
        return unknown("the crashed thread's stack")
    frames = stack.thread.frames
    at = handler_at(frames, case.crash.signal)
    if at is None:
        return no("no signal handler that had interrupted other code failed")
    own = [isinstance(frame, NativeFrame) and case.is_interpreter(frame.module or "") for frame in frames[: at + 1]]
    if own[at]:
        return no("the handler is the interpreter's own")
    entered = next((index for index in range(at - 1, -1, -1) if own[index]), None)
    name = said(frames, entered) if entered is not None else None
    if entered is None or name is None or _ALLOWED.fullmatch(name):
        return no("the handler called nothing of the interpreter's that a handler may not call")
    evidence = Evidence(text=f"{handler_said(frames, at)} called {name}", thread=stack.thread.tid, frame=entered)
    return Outcome(True, (evidence,), {"callee": name})


def handler_ended_process(case: Case) -> Outcome:
    """A handler of a signal that was no fault ended the process by abort(), or by sending another signal."""
    signal = case.crash.signal
    if signal is None or signal.handled is None:
        return no("no signal handler was running, or its signal is not known")
    if signal.recovered or signal.reason not in ("abort", "raised"):
        return no("the handler did not end the process itself")
    said = handled_said(signal.handled, case.crash.process.pid if case.crash.process else None)
    named = signal.handled.handler or "a handler"
    evidence = Evidence(text=f"{named} ran for {said}", thread=case.crash.crashed_thread)
    sender = _sender(case)
    interrupted = f"It had interrupted {sender}, which was sending a signal" if sender else "What it had interrupted did not fail"
    fields = {"ended_by": named, "handled": said, "handled_name": signal.handled.name, "interrupted": interrupted}
    return Outcome(True, (evidence,), {**fields, **({"sender": sender} if sender else {})})


def _sender(case: Case) -> str | None:
    """What called raise() or the like, and was interrupted there by the outermost handler; None if that interrupted something else."""
    frames = case.crashed.thread.frames if case.crashed is not None else ()
    at = max((index for index, frame in enumerate(frames) if is_signal_frame(frame)), default=len(frames))
    below = [frame for frame in frames[at + 1 :] if isinstance(frame, (NativeFrame, PythonFrame))]
    sending = list(takewhile(lambda frame: isinstance(frame, NativeFrame) and sends_signal(frame.function or ""), below))
    callers = below[len(sending) :] if sending else []
    caller = next((one for one in callers if not (isinstance(one, NativeFrame) and case.is_interpreter(one.module or ""))), None)
    return said_name(caller) if isinstance(caller, NativeFrame) else caller.function if caller is not None else None


HANDLER_FACTS = {"handler-calls-python": handler_calls_python, "handler-ended-process": handler_ended_process}
