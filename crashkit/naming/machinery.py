"""Recognises the frames above the failing frame: signal handlers, and functions by which a process ends itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from crashkit.model import Frame, NativeFrame
from crashkit.naming.functions import plain, without_suffix

EVALUATE = "_PyEval_EvalFrameDefault"

SIGNAL_FRAME = "<signal handler called>"
"""gdb's name for the frame that the kernel puts between a signal handler and the code that it interrupted."""

_SENDS = r"_*(?:raise|gsignal|kill|tgkill|pthread_kill|sigqueue|pthread_sigqueue)(?:_implementation|_internal)?"

# By plain name. What called these is what failed.
_MACHINERY = re.compile(
    "|".join(
        (
            # The C library: raising the signal, abort() and its own checks.
            _SENDS,
            r"_*abort(?:_implementation|_internal)?",
            r"_*libc_(?:message|fatal)(?:_impl)?",
            # Around each system call at which a thread may be cancelled: nptl/cancellation.c, glibc 2.41.
            r"_*(?:internal_)?syscall_cancel(?:_arch(?:_end)?)?",
            r"__(?:(?:libc_)?fortify|stack_chk|chk|assert|assert_perror)_fail(?:_base|_abort)?",
            r"malloc_printerr|__malloc_assert|_IO_.*_abort",
            # macOS': malloc's, abort() with a reason, the check of a forked child.
            r"malloc_(?:zone_)?(?:v?report|error_break)|_*BUG_IN_CLIENT_OF_LIBMALLOC_\w+|_*abort_with_(?:payload|reason)\w*",
            r"_?_objc_(?:fatalv?|inform_on_crash)(?:\(.*\))?|performForkChildInitialize(?:\(.*\))?",
            # C++: an exception that nobody caught, a failed check of the library.
            r"std::(?:__)?(?:terminate|unexpected|glibcxx_assert_fail)|__cxxabiv1::.*|__gnu_cxx::__verbose_terminate_handler",
            r"_*abort_message|demangling_\w*terminate_handler|_objc_terminate|failed_throw",  # libc++abi's, macOS'
            r"__cxa_\w*throw|__(?:cxa|clang)_call_terminate|__gxx_personality_\w+|_Unwind_(?:RaiseException|Resume)\w*",
            # CPython's fatal errors, and faulthandler's dump.
            r"_?Py_FatalError\w*|_Py_FatalRefcountError\w*|fatal_error\w*|_PyObject_AssertFailed|_Py_NegativeRefcount|_?Py_DumpStack",
            r"faulthandler_\w+|_?Py_?[Ff]ault[Hh]andler\w*",
            # glog's, c10's, absl's, TensorFlow's and Ray's LOG(FATAL) and CHECK.
            r"(?:google|c10)::(?:LogMessage\w*|MessageLogger)::.*|google::(?:DumpStackTraceAndExit|logging_fail)",
            r"absl::(?:lts_\d+::)?(?:log_internal|raw_log_internal|raw_logging_internal)::.*|(?:tsl|tensorflow)::internal::LogMessage\w*::.*",
            r"ray::RayLog::.*",
            # Sanitizers: what reports an error, and their wrappers of the C library's functions.
            r"__(?:asan|ubsan|tsan|sanitizer)\w*|_*(?:asan|ubsan|tsan|sanitizer)::.*|__interceptor_\w+",
        )
    )
)

_FATAL_ERROR = re.compile(r"_?Py_FatalError\w*|fatal_error\w*")

# Some programs raise a signal through it, others wait in it: it belongs to the machinery where what called it does.
_UNDECIDED = "syscall"


def is_machinery(function: str) -> bool:
    """Whether a function (any form of its name) ends the process on behalf of its caller."""
    return _MACHINERY.fullmatch(plain(function)) is not None


def sends_signal(function: str) -> bool:
    """Whether a function (any form of its name) of the C library sends a signal."""
    return re.fullmatch(_SENDS, plain(function)) is not None


# How CPython calls a function from C (Objects/call.c, methodobject.c, classobject.c, descrobject.c).
_CALLS = re.compile(
    r"_?PyObject_(?:MakeTpCall|VectorcallTstate|Vectorcall\w{0,40}|Call|CallOneArg|CallNoArgs\w{0,40}|CallObject|FastCall\w{0,40}|Call_Prepend)"
    r"|_?PyVectorcall_\w{1,40}|_?PyFunction_\w{0,40}Vectorcall\w{0,40}|cfunction_vectorcall\w{0,40}|method_vectorcall\w{0,40}|vectorcall_\w{1,40}"
    r"|_?PyCFunction_\w{0,40}Call\w{0,40}|_?PyEval_(?:CallFunction|CallObject)\w{0,40}|call_function|do_call_core"
)


def is_call(function: str) -> bool:
    """Whether a function of CPython only calls another one."""
    return _CALLS.fullmatch(plain(function)) is not None


def is_fatal_error(function: str) -> bool:
    """Whether a function is one of CPython's that print a fatal error; their argument `msg` or `message` has its words."""
    return _FATAL_ERROR.fullmatch(plain(function)) is not None


def machinery_end(functions: Sequence[str | None]) -> int:
    """The number of innermost functions that end the process. A nameless one counts if its caller does."""
    end = 0
    for index, function in enumerate(functions):
        if function and is_machinery(function):
            end = index + 1
        elif function and plain(function) != _UNDECIDED:
            break
    return end


def as_signal_frame(frame: NativeFrame) -> NativeFrame:
    """The frame as that by which the kernel called a signal handler."""
    return replace(frame, function=SIGNAL_FRAME, trust="signal")


def is_signal_frame(frame: Frame) -> bool:
    """Whether the frame is the kernel's, between a signal handler and the code that it interrupted."""
    return isinstance(frame, NativeFrame) and (frame.trust == "signal" or frame.function == SIGNAL_FRAME)


NESTED = "nested"
"""Trust of the signal frames of handlers that ran within the handler of the fault."""

_OUTERMOST = re.compile(r"_start|__libc_start_(?:main|call_main)\w*|start_thread|(?:__)?clone3?|thread_start")


def is_outermost(function: str | None) -> bool:
    """Whether a thread begins with this function."""
    return bool(function) and _OUTERMOST.fullmatch(plain(function or "")) is not None


def handler_end(frames: Sequence[Frame]) -> int:
    """The number of innermost frames that belong to a signal handler, such as faulthandler's; the fault is below them."""
    return next((index + 1 for index, frame in enumerate(frames) if is_signal_frame(frame) and not _is_nested(frame)), 0)


# Handlers that print a backtrace of themselves: uWSGI, core/uwsgi.c; UCX, src/ucs/debug/debug.c; CPython 3.14, Python/traceback.c; Blender;
# LLVM, lib/Support/Unix/Signals.inc; Chromium, base/debug/stack_trace_posix.cc.
_PRINTING_HANDLER = re.compile(
    r"uwsgi_(?:backtrace|segfault)|ucs_(?:handle_error|error_signal_handler)|_Py_DumpStack|faulthandler_\w+|"
    r"BLI_system_backtrace\w*|sig_handle_crash\w*|llvm::sys::(?:PrintStackTrace|RunSignalHandlers)|PrintStackTraceSignalHandler|"
    r"base::debug::(?:CollectStackTrace|StackTrace::StackTrace|.*StackDumpSignalHandler)|paddle::\w+::GetCurrentTraceBackString"
)
_OF_HANDLERS = re.compile(
    r"[Ss]ignal_?[Hh]andler|[Hh]andle_?[Ss]ig|[Ss]tack_?[Tt]race|[Bb]ack_?[Tt]race|[Ss]egfault_?[Ll]ogger|RunSignalHandlers|FailureInfo"
)
"""What functions are called by which other handlers do so."""
_RETURNS_FROM_HANDLER = re.compile(
    r"_sigtramp|__restore_rt|__kernel_(?:rt_)?sigreturn|killpg|(?:__)?funlockfile|(?:__)?(?:libc_|GI_+)?sigaction|__sighandler|"
    r"paddle::framework::SignalHandle"
)
"""By macOS's libraries, musl, the kernel for AArch64, and what lies in front of it in glibc, whose own has no name. Paddle prints functions
of its own only: there its handler stands for it."""
_C_LIBRARY = re.compile(r"(?:.*/)?lib(?:c|pthread)[.-][^/]*")
_MOST_OF_HANDLER = 8


def is_of_c_library(frame: NativeFrame) -> bool:
    """Whether it is a frame of the C library without a name, as that is by which the kernel called a handler."""
    return not frame.function and _C_LIBRARY.fullmatch(frame.module or "") is not None


def printed_signal_frame(frames: Sequence[NativeFrame], by_handler: bool = False) -> int | None:
    """Index of the frame by which a printed backtrace of a signal handler leaves it: mostly a nameless one of the C library. None without
    one.

    `by_handler`: a handler is known to have printed it; its own frames may have any name that fits, or be left out.
    """
    inside, own = by_handler, None
    for index, frame in enumerate(frames[:_MOST_OF_HANDLER]):
        name = plain((frame.function or "").replace("(unknown)", "").strip())
        if inside and name and _RETURNS_FROM_HANDLER.fullmatch(name):
            return index
        if name and _PRINTING_HANDLER.fullmatch(name):
            inside, own = True, frame.module
        elif not name and inside and (is_of_c_library(frame) or (by_handler and not frame.module)):
            return index
        elif own and frame.module not in (None, own):
            # UCX may leave it out: then its own library ends where another one begins.
            return index - 1 if not frames[index - 1].function else None
        elif name and not (inside and _OF_HANDLERS.search(name)):
            return None
    return None


def _is_nested(frame: Frame) -> bool:
    return isinstance(frame, NativeFrame) and frame.trust == NESTED


_OF_PYTHON = {
    "os_abort": "os.abort()",
    "os_kill": "os.kill()",
    "os_killpg": "os.killpg()",
    "signal_raise_signal": "signal.raise_signal()",
    "signal_pthread_kill": "signal.pthread_kill()",
}
"""Functions of Modules/posixmodule.c and signalmodule.c, and what a program calls to end itself by them."""


def is_evaluation(frame: NativeFrame) -> bool:
    """Whether the frame is a call of CPython's evaluation function."""
    return without_suffix(frame.function or "") == EVALUATE


def python_call(function: str | None) -> str | None:
    """`os.abort()` for the function of the interpreter's that implements it: the Python line did that, and nothing failed there."""
    return _OF_PYTHON.get((function or "").removesuffix("_impl"))
