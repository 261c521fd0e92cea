"""What a process runs to end itself, and what a signal handler runs, are not where it failed."""

from __future__ import annotations

import pytest

from crashkit.diagnose.case import Case
from crashkit.diagnose.fingerprint import fingerprint
from crashkit.diagnose.texts import names
from crashkit.model import Crash, NativeFrame, Signal, Thread
from crashkit.naming.machinery import handler_end, is_machinery, machinery_end, printed_signal_frame
from crashkit.report import wording


@pytest.mark.parametrize(
    "function",
    """
    __pthread_kill_implementation pthread_kill __GI_raise raise __GI_abort abort gsignal __libc_message __libc_message_impl __libc_fatal
    malloc_printerr __fortify_fail __libc_fortify_fail __chk_fail __stack_chk_fail __assert_fail __assert_fail_base __malloc_assert
    std::terminate() __cxxabiv1::__terminate(void(*)()) __cxa_throw __cxa_rethrow __gnu_cxx::__verbose_terminate_handler()
    Py_FatalError _Py_FatalErrorFunc fatal_error fatal_error_exit _PyObject_AssertFailed _Py_DumpStack faulthandler_fatal_error
    google::LogMessageFatal::~LogMessageFatal() c10::MessageLogger::~MessageLogger() __asan_report_load8 __sanitizer::Die()
    __interceptor_memcpy raise@@GLIBC_2.2.5 abort.cold __cxa_call_terminate __clang_call_terminate abort_message __abort_message
    demangling_terminate_handler _objc_terminate __gxx_personality_v0
    _Unwind_RaiseException _Unwind_Resume
    """.split(),
)
def test_machinery(function: str) -> None:
    assert is_machinery(function)
    frames = (NativeFrame(function=function, module="/lib/m.so"), NativeFrame(function="shop::buy", module="/srv/shop.so"))
    crash = Crash(signal=Signal(number=6, name="SIGABRT"), threads=(Thread(tid=1, crashed=True, frames=frames),))
    assert wording.native_at(crash.thread, crash.signal) is frames[1]
    assert names(Case(crash))["function"] == "shop::buy"
    assert fingerprint(crash).frames == ("shop::buy",)


@pytest.mark.parametrize(
    "function", ["main", "_int_free", "__run_exit_handlers", "memcpy", "killer", "abort_transaction", "raise_price", "fatal", "message", ""]
)
def test_not_machinery(function: str) -> None:
    assert not is_machinery(function)


@pytest.mark.parametrize(
    ("functions", "end"),
    [
        (("raise", "abort", "work", "abort"), 2),
        (("raise", None, "abort", None, "work"), 3),
        ((None, "work"), 0),
        # libstdc++ without symbols: only what it exports has a name.
        (("abort", None, None, "__gxx_personality_v0", None, "_Unwind_RaiseException", "__cxa_throw", "Store::~Store"), 7),
        (("abort", None, "_Unwind_ForcedUnwind", "pthread_exit"), 1),
        (("syscall", "raise", "abort", "work"), 3),
        (("syscall", "wait_for_work"), 0),
        ((), 0),
    ],
)
def test_where_the_machinery_ends(functions: tuple[str | None, ...], end: int) -> None:
    assert machinery_end(functions) == end


def printed(*names: str) -> list[NativeFrame]:
    """`module:function`, each of which may be empty."""
    parts = (name.partition(":") for name in names)
    return [NativeFrame(module=f"/lib/{module}", function=function or None) for module, _, function in parts]


@pytest.mark.parametrize(
    ("frames", "index"),
    [
        (["uwsgi:uwsgi_backtrace", "uwsgi:uwsgi_segfault", "libc.so.6:", "libc.so.6:"], 2),
        (["libucs.so.0:ucs_handle_error", "libucs.so.0:", "libucs.so.0:", "libpthread-2.31.so:", "app.so:f"], 3),
        (["libucs.so.0:ucs_handle_error", "libucs.so.0:ucs_fatal_error_message", "libc.so.6:"], None),
        (["libc.so.6:", "app.so:f"], None),
        (["app.so:f", "uwsgi:uwsgi_segfault", "libc.so.6:"], None),
        ([], None),
    ],
)
def test_where_a_printed_backtrace_leaves_its_handler(frames: list[str], index: int | None) -> None:
    assert printed_signal_frame(printed(*frames)) == index


@pytest.mark.parametrize(
    ("frames", "index"),
    [
        (["libpthread.so.0:", "app.so:f"], 0),
        (["libc.so.6:", "libc.so.6:", "app.so:f"], 0),
        (["libc.so.6:killpg", "app.so:f"], 0),
        (["libpthread.so.0:funlockfile", "app.so:f"], 0),
        (["libSegFault.so:", "libc.so.6:", "app.so:f"], 1),
        (["libmxnet.so:", "libc.so.6:", "app.so:f"], 1),
        (["x.so:google::(anonymous namespace)::FailureSignalHandler(int, siginfo_t*, void*)", "libc.so.6:__restore_rt", "app.so:f"], 1),
        (["x.so:own::dump_stack_trace(int)", "x.so:own_signal_handler(int)", "libc.so.6:", "app.so:f"], 2),
        (["app.so:f", "libc.so.6:", "app.so:g"], None),
        (["app.so:", "app.so:", "app.so:g", "libc.so.6:"], None),
        (["libc.so.6:abort", "libc.so.6:"], None),
    ],
)
def test_where_one_does_that_is_known_to_be_of_a_handler(frames: list[str], index: int | None) -> None:
    assert printed_signal_frame(printed(*frames), by_handler=True) == index
    assert printed_signal_frame(printed(*frames)) is None


def test_a_frame_without_any_name_is_the_signals_if_a_handler_printed_it_first() -> None:
    """As glog prints it."""
    frames = [NativeFrame(function="(unknown)"), NativeFrame(function="f")]
    assert (printed_signal_frame(frames, by_handler=True), printed_signal_frame(frames)) == (0, None)


@pytest.mark.parametrize("mark", [NativeFrame(function="<signal handler called>"), NativeFrame(function="__restore_rt", trust="signal")])
def test_the_fault_lies_below_a_signal_handler(mark: NativeFrame) -> None:
    frames = (NativeFrame(function="handler"), mark, NativeFrame(function="work"))
    assert handler_end(frames) == 2
    assert handler_end(frames[2:]) == 0
    crash = Crash(signal=Signal(number=11, name="SIGSEGV", recovered=True), threads=(Thread(tid=1, crashed=True, frames=frames),))
    assert wording.native_at(crash.thread, crash.signal) is frames[2]
    assert names(Case(crash))["function"] == "work"
    assert fingerprint(crash).frames == ("work",)
