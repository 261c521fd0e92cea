"""What ran code that no line called, and whether the program was ending."""

from __future__ import annotations

import pytest

from crashkit.model import Crash, NativeFrame, PythonFrame, Signal, Thread
from crashkit.naming.finalizer import ending, finalizer
from crashkit.report import answer

FINALIZER = PythonFrame(function="__del__", file="/srv/app.py", line=4)
COLLECTION = ("finalize_garbage", "gc_collect_main", "_PyGC_CollectNoFail")
THE_END = ("finalize_modules", "Py_FinalizeEx", "Py_RunMain", "main")


def _natives(*names: str) -> tuple[NativeFrame, ...]:
    return tuple(NativeFrame(function=name) for name in names)


@pytest.mark.parametrize(
    ("outside", "told"),
    [
        ((*COLLECTION, *THE_END), "run by the garbage collector at the end of the program"),
        ((*COLLECTION, "PyObject_Call", "main"), "run by the garbage collector"),
        (("subtype_dealloc", *THE_END), "run at the end of the program"),
    ],
)
def test_what_ran_a_finalizer(outside: tuple[str, ...], told: str) -> None:
    thread = Thread(frames=(*_natives("strlen"), FINALIZER, *_natives("slot_tp_finalize", *outside)))
    assert finalizer(thread) == f"__del__, {told}"


@pytest.mark.parametrize("inner", [(), (None,)], ids=["3.13", "3.14"])
def test_a_weak_references_callback_where_only_exported_functions_have_names(inner: tuple[str | None, ...]) -> None:
    called = PythonFrame(
        function="dies", file="/srv/app.py", line=4, args=("reference",), locals={"reference": "<weakref at 0x7f10; dead>"}
    )
    outside = (*inner, "PyObject_CallOneArg", "PyObject_ClearWeakRefs", None)
    thread = Thread(frames=(*_natives("strlen"), called, *(NativeFrame(function=name) for name in outside), FINALIZER))
    assert finalizer(thread) == "the callback dies of a weak reference, run as the last reference went away"


@pytest.mark.parametrize(
    ("names", "ended"),
    [
        (("visit_decref", "subtract_refs", "gc_collect_main", "PyGC_Collect", "Py_FinalizeEx", "main"), "the program"),
        (("release", "__run_exit_handlers", "exit"), "the program"),
        (("drop", "__nptl_deallocate_tsd", "start_thread"), "the thread"),
        (("~Kept", "__call_tls_dtors", "__run_exit_handlers", "exit"), "the program"),
        (("Py_FinalizeEx", "main"), None),
        (("free", "main"), None),
    ],
)
def test_what_was_ending(names: tuple[str, ...], ended: str | None) -> None:
    assert ending(Thread(frames=_natives(*names))) == ended


def test_the_line_of_another_thread_is_not_blamed_for_the_end() -> None:
    crashed = Thread(tid=1, crashed=True, frames=_natives("abort", "QThread::~QThread", "Py_FinalizeEx", "main"))
    other = Thread(tid=2, frames=(PythonFrame(function="run", file="/srv/app.py", line=6),))
    crash = Crash(signal=Signal(number=6, name="SIGABRT"), threads=(crashed, other))
    assert answer.answer(crash) is None
    assert (answer.at_the_end(crash) or "").endswith(", run at the end of the program")
