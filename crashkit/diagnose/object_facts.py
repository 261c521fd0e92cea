"""A Python object whose memory was overwritten or freed: where its type should be is no type. Pure."""

from __future__ import annotations

from itertools import islice

from crashkit.diagnose.case import MEMORY_FAULTS, Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence
from crashkit.naming.own_code import python_frames
from crashkit.naming.values import used
from crashkit.regex import regex

_NO_TYPE = regex(r"<object at (0x[0-9a-f]{1,16}) of an unreadable type at (0x[0-9a-f]{1,16})>")
"""As crashkit.interpreter.values shows such an object, by itself or in a tuple, list or dict."""
_NO_OBJECT = regex(r"<unreadable at (0x[0-9a-f]{1,16})>")
"""The same, of an object that is not there itself."""
_HEAD_SIZE = 0x20
"""Bytes of an object that are read before anything else is: its references and its type."""
_TYPE_SIZE = 0x200
"""Bytes that belong to a type, at least those that the interpreter reads first (Include/cpython/object.h, `struct _typeobject`: 0x198)."""
_MOST_FRAMES = 3


def object_without_type(case: Case) -> Outcome:
    """The address that faulted is that of an object in a variable of the crashed thread, or of its type: reading the type failed."""
    signal = case.crash.signal
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None or case.crashed is None:
        return unknown("the fault address")
    if signal.access not in (None, "read"):
        return no("it was no read")
    for frame in islice(python_frames(case.crashed.thread), _MOST_FRAMES):
        shown = {**{value.name: value.text for value in used(frame)}, **frame.locals}
        for name, text in shown.items():
            for match in _NO_TYPE.finditer(text):
                kind = int(match[2], 16)
                if kind <= signal.address < kind + _TYPE_SIZE:
                    evidence = Evidence(text=f"{name} = {text}", thread=case.crashed.thread.tid)
                    return Outcome(True, (evidence,), {"variable": name, "object": match[1], "type": match[2]})
            for match in _NO_OBJECT.finditer(text):
                if int(match[1], 16) <= signal.address < int(match[1], 16) + _HEAD_SIZE:
                    evidence = Evidence(text=f"{name} = {text}", thread=case.crashed.thread.tid)
                    return Outcome(True, (evidence,), {"variable": name, "pointer": match[1]})
    return no("no object in a variable, and no type of one, is at the fault address")


def exception_set(case: Case) -> Outcome:
    """A Python exception was set in the crashed thread, and had not reached Python code: its type is told as `exception`."""
    thread = case.crashed.thread if case.crashed is not None else None
    kept = case.crash.source is not None and case.crash.source.kind in ("core", "live")
    if thread is None or (not thread.pending and not kept):
        return unknown("the exception that was set")
    if not thread.pending:
        return no("no exception was set")
    evidence = Evidence(text=f"{thread.pending} was set", thread=thread.tid)
    return Outcome(True, (evidence,), {"pending": thread.pending, "exception": thread.pending.partition("(")[0]})


OBJECT_FACTS = {
    "exception-set": exception_set,
    "object-without-type": object_without_type,
}
