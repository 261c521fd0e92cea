"""Recognises Python code that nobody called: what ran when an object or the program ended, and what set that off. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from crashkit.model import Frame, NativeFrame, PythonFrame, Thread
from crashkit.naming.collector import is_collection
from crashkit.naming.functions import plain
from crashkit.naming.machinery import handler_end
from crashkit.regex import regex

# Objects/typeobject.c; Objects/weakrefobject.c; Objects/genobject.c; Modules/atexitmodule.c.
_KINDS = {
    "slot_tp_finalize": "{function} of {type}",
    "slot_tp_del": "{function} of {type}",
    "handle_callback": "the callback {function} of a weak reference",
    "_PyGen_Finalize": "the end of the generator {function}",
    "atexit_callfuncs": "{function}, registered with atexit",
}
# The same where no Python code ran: `__del__ = os.abort`.
_NATIVE_KINDS = {
    "slot_tp_finalize": "a finalizer (__del__)",
    "slot_tp_del": "a finalizer (__del__)",
    "PyObject_CallFinalizer": "a finalizer (__del__)",
    "PyObject_CallFinalizerFromDealloc": "a finalizer (__del__)",
    "handle_callback": "the callback of a weak reference",
    "atexit_callfuncs": "a function registered with atexit",
}
_ENDS = regex(r"_?Py_(?:Finalize\w*|EndInterpreter)|finalize_modules\w*|_PyAtExit_Call")
# stdlib/exit.c and elf/dl-fini.c of glibc.
_EXITS = regex(r"__run_exit_handlers|__cxa_finalize|_dl_fini|__funcs_on_exit")
# nptl/nptl_deallocate_tsd.c and stdlib/cxa_thread_atexit_impl.c of glibc; src/thread/pthread_key_create.c of musl.
_THREAD_ENDS = regex(r"__nptl_deallocate_tsd|__call_tls_dtors|__pthread_tsd_run_dtors")
_TYPE = regex(r"<([^\W\d][\w.]{0,200})[( ]")


def finalizer(thread: Thread) -> str | None:
    """The innermost one that ran, and what ran it: `__del__ of Session, run by the garbage collector`. None where none is known."""
    frames = thread.frames[handler_end(thread.frames) :]
    innermost: PythonFrame | None = None
    for index, frame in enumerate(frames):
        if isinstance(frame, PythonFrame):
            if innermost is not None and innermost.function == "__del__":
                break  # Called by Python, or by what has no name.
            innermost = frame
        elif isinstance(frame, NativeFrame):
            name = plain(frame.function or "")
            if innermost is not None and name in _KINDS:
                return _said(_KINDS[name], innermost) + _run_by(frames[index + 1 :])
            if innermost is None and name in _NATIVE_KINDS:
                return _NATIVE_KINDS[name] + _run_by(frames[index + 1 :])
    return _without_names(thread, frames)


def ending(thread: Thread) -> str | None:
    """What was ending, where no Python code ran: `the program` or `the thread`. None where neither was.

    For the program, that ran a destructor, a function given to atexit(), or the interpreter's own end.
    """
    names = [plain(frame.function or "") for frame in thread.frames[handler_end(thread.frames) :] if isinstance(frame, NativeFrame)]
    if any(thread.pythons()):
        return None
    if any(_EXITS.fullmatch(name) or _ENDS.fullmatch(name) for name in names[1:]):
        return "the program"
    return "the thread" if any(_THREAD_ENDS.fullmatch(name) for name in names[1:]) else None


# What a stripped interpreter still names: it exports these.
_CALLS = frozenset({"PyObject_CallOneArg", "PyObject_CallFunctionObjArgs", "_PyObject_CallFunctionObjArgs"})
_FROM_DEALLOC = "PyObject_CallFinalizerFromDealloc"
_DEAD = regex(r"<weakref at 0x[0-9a-f]+; dead>")


def _without_names(thread: Thread, frames: Sequence[Frame]) -> str | None:
    """By the Python frames and the interpreter's memory, where the functions that run finalizers have no names."""
    for index, frame in enumerate(frames):
        if not isinstance(frame, PythonFrame):
            continue
        outside = [one.function or "" for one in takewhile(lambda one: isinstance(one, NativeFrame), frames[index + 1 :])]  # type: ignore[union-attr]
        if frame.function == "__del__":
            dropped = _FROM_DEALLOC in map(plain, outside) and not thread.collecting
            return _said(_KINDS["slot_tp_del"], frame) + (_BY_LAST_REFERENCE if dropped else _by_record(thread))
        named = [name for name in map(plain, outside) if name]
        if named and named[0] in _CALLS and _DEAD.fullmatch(frame.locals.get(next(iter(frame.args), ""), "")):
            return _said(_KINDS["handle_callback"], frame) + (_by_record(thread) or _BY_LAST_REFERENCE)
        if _is_closed(thread, frame):
            return _said(_KINDS["_PyGen_Finalize"], frame) + _by_record(thread)
        if any(_ENDS.fullmatch(plain(name)) for name in outside) or _follows_the_program(
            frame, outside, index + len(outside) + 1 == len(frames)
        ):
            return f"{frame.function}{_AT_THE_END}"
    return next((_said(_KINDS["slot_tp_del"], one) + _by_record(thread) for one in thread.pythons() if one.function == "__del__"), None)


def _follows_the_program(frame: PythonFrame, outside: Sequence[str], outermost: bool) -> bool:
    """Whether Py_RunMain() called a function, which it does when the program has ended. Py_FinalizeEx() may be a part of it."""
    programs = frame.function == "<module>" or "runpy" in (frame.file or "")
    return outermost and not programs and "Py_RunMain" in outside


def _is_closed(thread: Thread, frame: PythonFrame) -> bool:
    """Whether this is the generator that GeneratorExit was raised in, which its end does."""
    raised = thread.raised[0] if thread.raised else None
    at = raised.frames[0] if raised is not None and raised.frames else None
    return raised is not None and (raised.text or "").startswith("GeneratorExit") and at is not None and at.function == frame.function


def _said(kind: str, frame: PythonFrame) -> str:
    shown = _TYPE.match(frame.locals.get(next(iter(frame.args), "self"), ""))
    text = kind if shown else kind.removesuffix(" of {type}")
    return text.format(function=frame.function, type=shown[1] if shown else "")


def _run_by(outside: Sequence[Frame]) -> str:
    collected = False
    for frame in outside:
        if isinstance(frame, PythonFrame):
            break
        if isinstance(frame, NativeFrame):
            name = plain(frame.function or "")
            collected = collected or is_collection(name)
            if _ENDS.fullmatch(name):
                return _COLLECTED_AT_THE_END if collected else _AT_THE_END
    else:
        return _BY_COLLECTOR if collected else ""
    return _BY_COLLECTOR if collected else _BY_LAST_REFERENCE


def _by_record(thread: Thread) -> str:
    """Without the names of the interpreter's functions."""
    return _BY_COLLECTOR if thread.collecting else ""


_BY_COLLECTOR = ", run by the garbage collector"
_BY_LAST_REFERENCE = ", run as the last reference went away"
_AT_THE_END = ", run at the end of the program"
_COLLECTED_AT_THE_END = f"{_BY_COLLECTOR} at the end of the program"
