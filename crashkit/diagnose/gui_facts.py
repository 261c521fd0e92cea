"""Widgets that a thread other than the main one used. Pure."""

from __future__ import annotations

from crashkit.diagnose.case import Case, Native, Stack
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.diagnose.places import python_line
from crashkit.model import Evidence
from crashkit.naming.failing import said
from crashkit.regex import regex

_WIDGETS = regex(r"/(?:lib)?Qt\d?Widgets[.\w-]*$")
"""Qt's library of widgets; PyQt's and PySide's module of the same name has no code that Python does not call."""
_DRAWS = regex(r"Q\w{0,60}(?:Widget|Window|Label|Button|View|Style)\w{0,60}::.*|QApplication\w{0,60}::.*")


def widgets_in_other_thread(case: Case) -> Outcome:
    """Python code called Qt's widgets in a thread that is not the main one, while another thread was in them, too.

    Qt's own threads (of images, of the scene graph) have no Python frames, and QImage and QPainter may be used in any thread.
    """
    pid = case.crash.process.pid if case.crash.process is not None else None
    inside = [(stack, found) for stack in case.stacks if (found := _widget_call(stack)) is not None]
    if pid is None or not any(stack.thread.tid == pid for stack in case.stacks):
        return unknown("which thread is the main one")
    wrong = [(stack, found) for stack, found in inside if stack.thread.tid != pid]
    crashed = case.crashed
    if crashed is None or not wrong or not any(stack is crashed for stack, _ in inside):
        return no("no other thread than the main one was in Qt's widgets, or the one that failed was not")
    evidence = tuple(Evidence(text=_name(stack, found), thread=stack.thread.tid, frame=found.index) for stack, found in wrong[:4])
    stack, found = next(((stack, found) for stack, found in wrong if stack is crashed), wrong[0])
    who = stack.thread.name or f"thread {stack.thread.tid}"
    own = stack.own_python()
    place = f" from {python_line(own)}" if own is not None else ""
    return Outcome(True, evidence, {"widget_call": f"{who} called {_name(stack, found)}{place}"})


def _widget_call(stack: Stack) -> Native | None:
    """The outermost frame of the widgets' library that Python code called and that has not returned; None without one."""
    innermost = next((index for index, _ in stack.pythons if index is not None), None)
    frames = [frame for frame in stack.whole if innermost is not None and frame.index < innermost and _WIDGETS.search(frame.module)]
    return next((frame for frame in reversed(frames) if _DRAWS.fullmatch(frame.name)), None)


def _name(stack: Stack, frame: Native) -> str:
    return frame.name or said(stack.thread.frames, frame.index)


GUI_FACTS = {"widgets-in-other-thread": widgets_in_other_thread}
