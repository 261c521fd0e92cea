"""Why std::terminate was called: what its caller was, and which exceptions of C++ unwound the stack. Pure."""

from __future__ import annotations

from typing import Optional

from crashkit.diagnose.case import Case, Native
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence, LogLine
from crashkit.regex import regex

_TERMINATES = regex(r"std::(?:__)?terminate")
_THROWS = regex(r"__cxa_\w+|__clang_call_terminate|__gxx_personality_\w+|_Unwind_\w+")
_OF_LIBRARY = regex(r"std::.*|__gnu_cxx::.*")


def terminated_unwinding(case: Case) -> Outcome:
    """A second exception was thrown while one unwound the stack, by what cleans up; or an object of which that is not known."""
    flying = _in_flight(case)
    ended = next((line for line in case.crash.log if line.from_core and line.kind in ("terminate", "terminate-c10")), None)
    # With its handler, the one for which std::terminate was called counts as handled.
    second, first = (ended, flying[0]) if ended and flying else (flying[0], flying[1]) if len(flying) > 1 else (None, None)
    if second is None or first is None:
        return no("no exception was thrown while another one unwound the stack")
    told = {"first": first.fields["said"], "thrown": second.fields.get("type", "unknown")}
    if second is not ended and (words := second.fields["said"].partition(": ")[2]):
        told["what"] = words
    return Outcome(True, (Evidence(text=first.text), Evidence(text=second.text)), told)


def terminated_by_hand(case: Case) -> Outcome:
    """The program's own code called std::terminate: it has a line, and the compiler had no reason to make it call that."""
    caller = _caller(case)
    if case.crash.source is None or case.crash.source.kind not in ("core", "live"):
        return unknown("whether an exception unwound the stack")
    if caller is None or _in_flight(case) or caller.frame.line is None:
        return no("what called std::terminate is not known, or the runtime of C++")
    if _THROWS.fullmatch(caller.name) or _OF_LIBRARY.fullmatch(caller.name):
        return no(f"{caller.name} called std::terminate")
    thread = case.crashed.thread.tid if case.crashed else None
    evidence = Evidence(text=f"{caller.name} called std::terminate", thread=thread, frame=caller.index)
    return Outcome(True, (evidence,), {"function": caller.name})


def nothing_to_rethrow(case: Case) -> Outcome:
    """`throw;` outside of any handler."""
    caller = _caller(case)
    if caller is None or caller.name != "__cxa_rethrow" or not any(line.kind == "terminate-bare" for line in case.crash.log):
        return no("`throw;` did not call std::terminate, or had an exception")
    thread = case.crashed.thread.tid if case.crashed else None
    return Outcome(True, (Evidence(text="__cxa_rethrow called std::terminate", thread=thread, frame=caller.index),))


def no_python_below(case: Case) -> Outcome:
    """A core, in which the crashed thread had no Python frame: whatever it threw, no Python line could have caught it."""
    stack = case.crashed
    if stack is None or case.crash.source is None or case.crash.source.kind not in ("core", "live"):
        return unknown("the Python stack")
    if stack.thread.python_unread or stack.pythons:
        return no("Python code was on the stack, or that is not known")
    return Outcome(True, (Evidence(text="no Python frame", thread=stack.thread.tid),))


def terminated_without_gil(case: Case) -> Outcome:
    """A function of pybind11's called std::terminate without an exception, in a thread that did not hold the GIL.

    Since 2.10, what counts references there throws where the GIL is not held: include/pybind11/pytypes.h, throw_gilstate_error().
    """
    caller, thread = _caller(case), case.crashed.thread if case.crashed else None
    if thread is None or thread.holds_gil is None:
        return unknown("who held the GIL")
    bare = any(line.kind == "terminate-bare" for line in case.crash.log)
    if caller is None or not caller.name.startswith("pybind11::") or not bare or thread.holds_gil:
        return no("the thread held the GIL, or what called std::terminate is none of pybind11's")
    text = f"{caller.name} called std::terminate in a thread that did not hold the GIL"
    return Outcome(True, (Evidence(text=text, thread=thread.tid, frame=caller.index),))


def carried_python_error(case: Case) -> Outcome:
    """The exception of C++ for which std::terminate was called carried one of Python's."""
    line = next((line for line in case.crash.log if line.kind == "cxx-python-error"), None)
    if line is None:
        return no("the C++ exception carried no Python exception that could be read")
    return Outcome(True, (Evidence(text=line.text),))


def _in_flight(case: Case) -> list[LogLine]:
    return [line for line in case.crash.log if line.kind == "cxx-in-flight"]


def _caller(case: Case) -> Optional[Native]:
    """The frame that called std::terminate; None where it has no name, or nothing did."""
    natives = case.crashed.natives if case.crashed else []
    last = next((place for place in range(len(natives) - 1, -1, -1) if _TERMINATES.fullmatch(natives[place].name)), None)
    found = natives[last + 1] if last is not None and last + 1 < len(natives) else None
    return found if found is not None and found.name else None


TERMINATE_FACTS = {
    "terminated-unwinding": terminated_unwinding,
    "terminated-by-hand": terminated_by_hand,
    "terminated-without-gil": terminated_without_gil,
    "nothing-to-rethrow": nothing_to_rethrow,
    "no-python-below": no_python_below,
    "carried-python-error": carried_python_error,
}
