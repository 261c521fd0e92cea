"""A function of Python's C API that native code called in a thread without the GIL. Pure."""

from __future__ import annotations

from itertools import takewhile

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence, NativeFrame
from crashkit.naming.functions import plain
from crashkit.naming.gil import ACQUIRES, INTERPRETER
from crashkit.regex import regex

_API = regex(r"_?Py[A-Z]\w*")
_NEEDS_NO_GIL = regex(
    r"_?Py(?:Thread_\w+|Thread_tss_\w+|Mem_Raw\w+|_AddPendingCall|Eval_InitThreads|_Initialize\w*|_InitializeFrom\w+|_Finalize\w*|_Main|_RunMain"
    r"|_BytesMain|_Exit|_FatalError\w*|Config_\w+|PreConfig_\w+|_PreInitialize\w*|Status_\w+|_IsInitialized|_GetVersion|GILState_\w+"
    r"|InterpreterState_\w+|ThreadState_(?:New|Swap)|_NewInterpreter\w*|OS_\w+|Time_\w+)"
)
"""Python's manual, "Thread State and the Global Interpreter Lock"; functions that make or end an interpreter."""


def api_without_gil(case: Case) -> Outcome:
    """The interpreter's own code failed, which native code of another module had called, in a thread that is known not to hold the GIL."""
    stack = case.crashed
    if stack is None or not stack.natives or stack.thread.holds_gil is None:
        return unknown("which thread held the GIL")
    if stack.thread.holds_gil:
        return no("the crashed thread held the GIL")
    frames = stack.thread.frames[stack.natives[0].index :]
    inside = list(takewhile(lambda frame: isinstance(frame, NativeFrame) and INTERPRETER.search(frame.module or "") is not None, frames))
    caller = frames[len(inside)] if len(inside) < len(frames) else None
    names = [plain(frame.function or "") for frame in inside if isinstance(frame, NativeFrame)]
    if not names or not isinstance(caller, NativeFrame) or not caller.module:
        return no("it did not fail in a function of the interpreter that native code of another module had called")
    if _API.fullmatch(names[-1]) is None or _NEEDS_NO_GIL.fullmatch(names[-1]) or any(ACQUIRES.fullmatch(name) for name in names):
        return no(f"{names[-1] or 'a function without a name'} may be called without the GIL")
    evidence = Evidence(text=f"{names[-1]} ran without the GIL", thread=stack.thread.tid, frame=stack.natives[0].index + len(inside) - 1)
    return Outcome(True, (evidence,), {"frame": names[-1]})


GIL_FACTS = {"api-without-gil": api_without_gil}
