"""Signal handlers that end the process in their own way: the fault that they handled is told, with the handler that stood in between.

The program says itself which address it is about to access (fixtures/crashers/handlers.c); the kernel writes the cores.
"""

from __future__ import annotations

import re
import signal
from typing import Optional

import pytest

from crashkit.debugger.pystack import rows
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report import text, wording

from ..crashes import Folder, an_interpreter, build_library, c_crash, made_once, needs_gdb, needs_x86_64, python_crash

pytestmark = [needs_x86_64(), needs_gdb]

# The reason and where it happened; the kernel reports no address for the others.
FAULTS = {
    "null": ("SIGSEGV", "SEGV_MAPERR", "null-pointer", "read", "read_from"),
    "wild": ("SIGSEGV", "SI_KERNEL", "non-canonical", "read", "read_from"),
    "unmapped": ("SIGSEGV", "SEGV_MAPERR", "unmapped", "read", "read_from"),
    "read_only": ("SIGSEGV", "SEGV_ACCERR", "read-only", "write", "write_to"),
    "divide": ("SIGFPE", "FPE_INTDIV", "integer-divide", None, "divide"),
    "quotient": ("SIGFPE", "FPE_INTDIV", "quotient-overflow", None, "divide"),
    "memory_divide": ("SIGFPE", "FPE_INTDIV", "integer-divide", None, "divide_by_local"),
    "memory_quotient": ("SIGFPE", "FPE_INTDIV", "quotient-overflow", None, "divide_by_local"),
    "overflow": ("SIGSEGV", None, "stack-overflow", "write", "overflow"),
    "past_file": ("SIGBUS", "BUS_ADRERR", "bus-truncated-file", "read", "read_from"),
    "float": ("SIGFPE", "FPE_FLTUNK", "floating-point", None, "ratio"),
    "breakpoint": ("SIGTRAP", "SI_KERNEL", "trap", None, "stop"),
    "privileged": ("SIGSEGV", "SI_KERNEL", "privileged-instruction", None, "halt"),
    "misaligned": ("SIGSEGV", "SI_KERNEL", "misaligned", "write", "store_aligned"),
    "data": ("SIGSEGV", "SEGV_ACCERR", "no-exec", "execute", None),
}
ENDS = ("abort", "kill", "raise", "masked", "return", "nested", "crashes")
SIGABRT, HANDLERS = 6, {"abort", "nested"}


def ended(folder: Folder) -> Crash:
    return analyze(folder.core)


def address_of(folder: Folder) -> Optional[int]:
    """What the program said that it accesses; it does not know where its stack ends."""
    found = re.search(r"^\w+ (0x[0-9a-f]+)", folder.stderr)
    return int(found[1], 16) if found else None


def check(folder: Folder, fault: str, end: str, handler: str) -> None:
    crash = ended(folder)
    name, code, reason, access, function = FAULTS[fault]
    signal = crash.signal
    assert signal is not None
    assert (signal.name, signal.reason, signal.access) == (name, reason, access), signal
    assert code is None or signal.code_name == code
    if name != "SIGFPE" and fault != "overflow":
        assert signal.address == address_of(folder)
    # The signal that ended the process, and the handler where it still is on the stack.
    assert signal.ended_with == ("SIGABRT" if end in HANDLERS else "SIGSEGV" if end == "crashes" else None)
    assert (folder.status == -SIGABRT) == (end in HANDLERS)
    stood = end not in ("masked", "return")
    assert signal.recovered is stood and signal.handler == (handler if stood else None)
    native = wording.native_at(crash.thread, signal)
    assert native is not None and native.function == function, native
    assert (crash.thread is not None and "main" in {frame.function for frame in crash.thread.natives()}) or fault == "overflow"
    screen = "\n".join(text.summary(crash, None, color=False, width=100))
    assert (f"{handler} then ended the process with" in screen) is stood
    assert not {finding.id for finding in crash.findings} & {"killed-by-sigterm", "python-fatal-error"}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("siginfo",)], ids=["plain", "siginfo"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("fault", ["null", "divide"])
def test_every_way_to_end(fault: str, end: str, flags: tuple[str, ...]) -> None:
    check(c_crash("handlers.c", fault, end, *flags), fault, end, "on_info" if flags else "on_signal")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["wild", "unmapped", "read_only", "quotient", "memory_divide", "memory_quotient"])
@pytest.mark.parametrize("end", ["abort", "kill", "masked"])
def test_every_fault(fault: str, end: str) -> None:
    check(c_crash("handlers.c", fault, end), fault, end, "on_signal")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["abort", "kill", "raise", "masked"])
def test_an_overflow_is_handled_on_another_stack(end: str) -> None:
    check(c_crash("handlers.c", "overflow", end, "altstack"), "overflow", end, "on_signal")


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["nodefer", "resethand", "altstack"])
@pytest.mark.parametrize("end", ["abort", "raise"])
def test_flags_of_the_handler(end: str, flag: str) -> None:
    check(c_crash("handlers.c", "null", end, flag, "siginfo"), "null", end, "on_info")


@pytest.mark.parametrize("with_log", [False, True], ids=["core", "core and log"])
def test_what_the_handler_died_of_is_not_the_cause(with_log: bool) -> None:
    """It frees a block twice, of which glibc's message is in the core and in the log."""
    folder = c_crash("handlers.c", "null", "frees")
    crash = analyze([folder.core, folder.path / "stderr.txt"] if with_log else folder.core)
    assert [finding.id for finding in crash.findings] == ["null-deref"]
    assert crash.signal is not None and (crash.signal.handler, crash.signal.ended_with) == ("on_signal", "SIGABRT")
    screen = "\n".join(text.summary(crash, None, color=False, width=100))
    assert with_log or "double free detected in tcache 2" in screen, "it is told, and no finding"


@pytest.mark.parametrize("end", ["return", "abort"])
def test_zeros_that_are_executed(end: str) -> None:
    """They are an instruction that writes where rax points, which is where `call rax` has jumped to: nothing was written."""
    crash = ended(c_crash("handlers.c", "data", end))
    assert crash.signal is not None and (crash.signal.reason, crash.signal.access) == ("no-exec", "execute"), crash.signal
    assert [finding.id for finding in crash.findings] == ["jump-into-data"]


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["nodefer", "wide"])
def test_memory_that_was_mapped_since_the_fault(flag: str) -> None:
    """__assert_fail() maps memory for its message, where there was none."""
    crash = ended(c_crash("handlers.c", "unmapped", "assert", flag))
    assert crash.signal is not None and (crash.signal.name, crash.signal.reason) == ("SIGSEGV", "unmapped"), crash.signal
    assert [finding.id for finding in crash.findings] == ["unmapped-access"]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["abort", "kill"])
def test_an_enabled_exception_behind_a_handler_that_may_be_interrupted_by_itself(end: str) -> None:
    """Neither a siginfo nor the mask tells the signal: the trap and the instruction do."""
    check(c_crash("handlers.c", "float", end, "nodefer"), "float", end, "on_signal")


@pytest.mark.parametrize(("fault", "cause"), [("null", "null-deref"), ("divide", "sigfpe-integer-divide")])
def test_an_assertion_in_the_handler_is_not_the_cause(fault: str, cause: str) -> None:
    crash = ended(c_crash("handlers.c", fault, "assert"))
    assert [finding.id for finding in crash.findings] == [cause]
    assert crash.signal is not None and (crash.signal.handler, crash.signal.ended_with) == ("on_signal", "SIGABRT")


@pytest.mark.parametrize("end", ["kill", "to_main"])
@pytest.mark.parametrize("fault", ["null", "divide"])
def test_kill_in_a_thread_is_told_of_that_thread(fault: str, end: str) -> None:
    """The kernel gives the main thread what kill() sends to the process; a handler may choose that thread itself, by pthread_kill()."""
    folder = c_crash("handlers.c", fault, end, "thread")
    crash = ended(folder)
    name, _, reason, _, function = FAULTS[fault]
    assert crash.signal is not None and crash.thread is not None and crash.process is not None
    assert (crash.signal.name, crash.signal.reason, crash.signal.handler) == (name, reason, "on_signal"), crash.signal
    assert crash.thread.tid != crash.process.pid
    functions = [frame.function for frame in crash.thread.natives()]
    assert {"in_thread", function} <= set(functions) and "main" not in functions


def test_a_handler_that_left_its_frame_has_no_name() -> None:
    crash = ended(c_crash("handlers.c", "null", "abort", "tail"))
    assert crash.signal is not None and (crash.signal.reason, crash.signal.ended_with) == ("null-pointer", "SIGABRT"), crash.signal
    assert crash.signal.handler is None
    assert "a signal handler then ended the process with SIGABRT" in "\n".join(text.summary(crash, None, color=False, width=100))


def test_which_thread_sent_the_signal_is_said_not_to_be_known() -> None:
    """The thread that called os.kill() waits for something else by the time of the core; the kernel gave the signal to the main one."""
    crash = ended(python_crash("scenarios.py", "sigabrt_in_a_thread", faulthandler=False))
    assert crash.signal is not None and crash.signal.reason == "raised"
    assert crash.signal.detail == "a thread of the process sent the signal to the whole process: which one is not known"
    assert "self-signal" not in {finding.id for finding in crash.findings}


def sent_to_the_main_thread(how: str) -> Crash:
    python = an_interpreter()
    library = made_once(f"kill_and_stay-{python.name}", lambda folder: build_library("kill_and_stay.c", folder, python))
    arguments = ("sent_to_the_main_thread", str(library), str(SIGABRT), how)
    return ended(python_crash("scenarios.py", *arguments, python=python, faulthandler=False))


def test_the_thread_that_sent_the_signal_to_another_one_is_told() -> None:
    crash = sent_to_the_main_thread("tgkill_and_stay")
    assert crash.signal is not None and crash.thread is not None
    assert (crash.signal.reason, crash.signal.detail) == ("raised", "this thread sent the signal to another one of the process")
    assert "sends_to_main" in {frame.function for frame in crash.thread.pythons()}


def test_a_signal_of_another_thread_found_this_one_where_it_was() -> None:
    """The one that sent it does something else by the time of the core."""
    crash = sent_to_the_main_thread("tgkill_and_go_on")
    assert crash.signal is not None and (crash.signal.name, crash.signal.reason) == ("SIGABRT", "raised"), crash.signal
    screen = "\n".join(text.summary(crash, None, color=False, width=200))
    assert "was in" in screen and "failed" not in screen, screen
    assert "self-abort" not in {finding.id for finding in crash.findings}


@pytest.mark.parametrize("faulthandler", [False, True])
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE])
def test_the_thread_that_sent_the_signal_is_named(number: signal.Signals, faulthandler: bool) -> None:
    """Though the kernel gave it to the main thread, whose handler sent it again."""
    python = an_interpreter()
    library = made_once(f"kill_and_stay-{python.name}", lambda folder: build_library("kill_and_stay.c", folder, python))
    arguments = ("sent_by_a_thread", str(library), str(int(number)))
    crash = ended(python_crash("scenarios.py", *arguments, python=python, faulthandler=faulthandler))
    assert crash.signal is not None and crash.thread is not None and crash.process is not None
    assert (crash.signal.name, crash.signal.reason) == (number.name, "raised")
    assert crash.thread.tid != crash.process.pid and "sends" in {frame.function for frame in crash.thread.pythons()}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("siginfo",)], ids=["plain", "siginfo"])
def test_a_handler_that_jumped_out_is_over(flags: tuple[str, ...]) -> None:
    """Its signal frame may still lie in memory that is in use again: the abort that follows is not its fault."""
    crash = ended(c_crash("handlers.c", "null", "jumped", *flags))
    assert crash.signal is not None
    assert (crash.signal.name, crash.signal.reason, crash.signal.recovered) == ("SIGABRT", "abort", False), crash.signal
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and native.function == "abort_below"
    address = "at 0x0000000000000018, as the stack still shows"
    assert crash.signal.detail == f"a handler had ended an earlier SIGSEGV {address}"
    assert "no fault" not in "\n".join(text.summary(crash, None, color=False, width=300))


@pytest.mark.slow
def test_the_second_fault_is_told_where_the_first_was_survived() -> None:
    crash = ended(c_crash("handlers.c", "divide", "again", "siginfo"))
    assert crash.signal is not None
    assert (crash.signal.name, crash.signal.reason, crash.signal.address) == ("SIGSEGV", "null-pointer", 0x18)
    assert (crash.signal.handler, crash.signal.ended_with) == ("on_info", "SIGABRT")


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", "siginfo", "altstack", "siginfo altstack", "siginfo nodefer"])
@pytest.mark.parametrize(("end", "signal", "reason"), [("term", "SIGABRT", "abort"), ("term_kills", "SIGSEGV", "raised")])
def test_a_handler_of_a_signal_that_was_sent(end: str, signal: str, reason: str, flags: str) -> None:
    """Nothing faulted: the process ended itself in its handler of SIGTERM, and what that had interrupted is not to blame."""
    folder = c_crash("handlers.c", "null", end, *flags.split())
    crash = ended(folder)
    assert crash.signal is not None and crash.signal.handled is not None
    assert (crash.signal.name, crash.signal.reason) == (signal, reason), crash.signal
    handler, told = crash.signal.handler, crash.signal.handled
    assert handler == told.handler == ("on_info" if "siginfo" in flags else "on_signal")
    # Only with SA_SIGINFO does the kernel write there who had sent it; but this process was still doing so.
    assert (told.name, told.code_name, told.sender_pid) == ("SIGTERM", "SI_USER" if "siginfo" in flags else None, folder.pid)
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and native.function == "finish"
    assert [(finding.id, finding.confidence) for finding in crash.findings] == [("handler-ended-process", "certain")]
    screen = "\n".join(text.summary(crash, None, color=False, width=200))
    # kill() was still running: whoever called that knows why.
    assert "It had interrupted main, which was sending a signal." in crash.findings[0].summary
    assert crash.findings[0].fix[0] == "Find out what main sent SIGTERM for: the handler only followed it."
    assert f"in the handler of SIGTERM\n  the process {'aborted itself' if reason == 'abort' else 'sent SIGSEGV to itself'} in" in screen
    assert "SIGTERM, which the process itself had sent" in screen


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["passed_on", "nodefer passed_on", "sends_segv", "nodefer sends_segv"])
@pytest.mark.parametrize("fault", [*sorted({*FAULTS} - {"float"})])
def test_a_fault_whose_handler_aborted_where_abort_has_one_too(fault: str, flags: str) -> None:
    """The mask and the interrupted instruction say what it was, without the siginfo of SA_SIGINFO."""
    crash = ended(c_crash("handlers.c", fault, "abort", "altstack", *flags.split()))
    name, code, reason, access, function = FAULTS[fault]
    signal = crash.signal
    assert signal is not None
    assert (signal.name, signal.reason, signal.access, code or signal.code_name) == (name, reason, access, signal.code_name), signal
    ended_with = "SIGSEGV" if "segv" in flags else "SIGABRT"
    assert (signal.recovered, signal.handler, signal.ended_with) == (True, "on_signal", None if name == ended_with else ended_with)
    assert [finding.confidence for finding in crash.findings[:1]] == ["certain"], crash.findings
    native = wording.native_at(crash.thread, signal)
    assert native is not None and native.function == function, native


@pytest.mark.parametrize(("flags", "told"), [((), "an operation with floating-point numbers"), (("siginfo",), "was divided by zero")])
def test_a_floating_point_exception_is_recovered(flags: tuple[str, ...], told: str) -> None:
    crash = ended(c_crash("handlers.c", "float", "abort", *flags, "passed_on"))
    assert crash.signal is not None
    assert (crash.signal.name, crash.signal.reason, crash.signal.ended_with) == ("SIGFPE", "floating-point", "SIGABRT"), crash.signal
    assert told in (crash.signal.detail or "")
    assert [(finding.id, finding.confidence) for finding in crash.findings] == [("sigfpe-floating-point", "certain")]


@pytest.mark.parametrize("flags", ["wide", "siginfo wide"])
def test_a_mask_with_every_signal_does_not_tell_which_one_came(flags: str) -> None:
    """What an earlier handler's siginfo left where this one would have its own names another signal."""
    folder = c_crash("handlers.c", "null", "term", *flags.split())
    crash = ended(folder)
    assert crash.signal is not None and crash.signal.handled is not None
    assert (crash.signal.handled.name, crash.signal.handled.sender_pid) == ("SIGTERM", folder.pid)
    assert crash.signal.handled.code_name == ("SI_USER" if "siginfo" in flags else None)


@pytest.mark.parametrize(
    ("fault", "name", "reason", "cause"),
    [
        ("null", "SIGSEGV", "null-pointer", "null-deref"),
        ("read_only", "SIGSEGV", "read-only", "write-to-readonly"),
        ("divide", "SIGFPE", "integer-divide", "sigfpe-integer-divide"),
        ("wild", "SIGSEGV", "non-canonical", "wild-pointer"),
        ("sent", "SIGSEGV", "no-room", "handler-stack-too-small"),
    ],
)
def test_a_handler_whose_stack_is_too_small(fault: str, name: str, reason: str, cause: str) -> None:
    """The kernel sends SIGSEGV with SI_KERNEL in place of what came, as it does for garbage pointers."""
    crash = ended(c_crash("handlers.c", fault, "abort", "altstack", "small"))
    assert crash.signal is not None and (crash.signal.name, crash.signal.reason) == (name, reason), crash.signal
    assert ("no room for its frame on the handler's stack" in (crash.signal.detail or "")) is (fault != "wild")
    assert [finding.id for finding in crash.findings[:1]] == [cause]
    screen = "\n".join(text.summary(crash, None, color=False, width=200))
    assert ("the kernel then ended the process with SIGSEGV" in screen) is (name == "SIGFPE")


def test_a_fault_is_recovered_where_the_mask_has_every_signal() -> None:
    check(c_crash("handlers.c", "null", "abort", "wide"), "null", "abort", "on_signal")


def test_a_fault_that_is_not_certain_is_not_denied() -> None:
    """Nothing is blocked (SA_NODEFER), and what stands there is no instruction that is known: a handler aborted, whatever it was for."""
    crash = ended(c_crash("handlers.c", "unknown", "abort", "nodefer", "passed_on"))
    assert crash.signal is not None
    assert (crash.signal.name, crash.signal.detail) == ("SIGABRT", "a signal handler ended the process with abort()"), crash.signal
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and native.function == "unknown"
    assert "self-abort" not in {finding.id for finding in crash.findings}


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["shared", "altstack shared"])
@pytest.mark.parametrize("fault", ["null", "divide", "past_file"])
def test_a_handler_that_calls_itself_until_the_stack_is_full(fault: str, flags: str) -> None:
    """It aborts, and is SIGABRT's handler: what came first is told, not what came of that. glibc 2.42 aborts once only."""
    folder = c_crash("handlers.c", fault, "abort", *flags.split())
    crash = ended(folder)
    name, code, reason, access, function = FAULTS[fault]
    told = crash.signal
    assert told is not None and told.ended_with == signal.Signals(-folder.status).name
    assert (told.name, told.code_name, told.reason, told.access) == (name, code, reason, access), told
    native = wording.native_at(crash.thread, told)
    assert native is not None and native.function == function


@pytest.mark.parametrize("flags", [(), ("nodefer",)], ids=["plain", "nodefer"])
def test_a_signal_that_the_process_sent_itself_is_no_fault(flags: tuple[str, ...]) -> None:
    folder = c_crash("handlers.c", "sent", "abort", *flags, "passed_on")
    crash = ended(folder)
    assert crash.signal is not None and crash.signal.handled is not None
    assert (crash.signal.name, crash.signal.reason, crash.signal.recovered) == ("SIGABRT", "abort", False), crash.signal
    assert (crash.signal.handled.name, crash.signal.handled.sender_pid) == ("SIGFPE", folder.pid)
    assert [(finding.id, finding.confidence) for finding in crash.findings] == [("handler-ended-process", "certain")]


@pytest.mark.parametrize("end", ["abort_crashes", "abort_kills"])
def test_an_abort_whose_handler_failed(end: str) -> None:
    crash = ended(c_crash("handlers.c", "null", end))
    assert crash.signal is not None
    assert (crash.signal.name, crash.signal.reason, crash.signal.address) == ("SIGABRT", "abort", None), crash.signal
    assert (crash.signal.handler, crash.signal.ended_with) == ("on_signal", "SIGSEGV")
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and native.function == "abort_below"


def test_a_handler_of_a_signal_that_was_sent_can_fail() -> None:
    """The handler's own line is to blame, not where the signal found the program."""
    crash = ended(c_crash("handlers.c", "null", "term_crashes"))
    assert crash.signal is not None and crash.thread is not None
    assert (crash.signal.name, crash.signal.address, crash.signal.recovered) == ("SIGSEGV", 0x40, False), crash.signal
    assert crash.signal.handled is not None and crash.signal.handled.name == "SIGTERM"
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and native.function == "read_from"
    assert "fail_in_handler" in [frame.function for frame in crash.thread.natives()][:2]


def test_a_handler_is_found_where_the_c_library_has_no_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in most containers. PyStack finds the symbols of this host by itself: its name for the frame is taken away here."""
    monkeypatch.setattr(rows, "_UNKNOWN", "__restore_rt")
    monkeypatch.setattr(rows, "_SIGNAL_RETURN", "")
    crash = analyze(python_crash("threads.py").core, options=Options(gdb=None))
    assert crash.thread is not None and crash.signal is not None
    assert crash.signal.recovered and (crash.signal.reason, crash.signal.address) == ("null-pointer", 16)
    assert [frame.function for frame in crash.thread.natives()].count("<signal handler called>") == 1
