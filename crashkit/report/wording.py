"""The words that the text, Markdown and HTML reports share. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from crashkit.model import (
    Crash,
    ElidedFrames,
    Finding,
    Frame,
    Greenlet,
    LookedFor,
    Module,
    NativeFrame,
    PendingSignal,
    PythonFrame,
    Raised,
    Sibling,
    Signal,
    Task,
    Thread,
    Wait,
)
from crashkit.naming import greenlets, tasks
from crashkit.naming.collector import in_collector as in_collector
from crashkit.naming.cython import cython_name
from crashkit.naming.failing import extension, failing
from crashkit.naming.failing import said as said_in
from crashkit.naming.failing import where as where_in
from crashkit.naming.functions import libc_name, plain
from crashkit.naming.functions import short_function as short_function
from crashkit.naming.gil import INTERPRETER, waits_for_gil
from crashkit.naming.interrupted import handled_said, handler_at, handler_said, interrupted
from crashkit.naming.machinery import handler_end, is_call, is_evaluation, is_machinery, is_outermost, python_call
from crashkit.naming.own_code import is_own as is_own
from crashkit.naming.own_code import own_line, python_frames
from crashkit.naming.standing import standing
from crashkit.naming.values import expression as expression
from crashkit.naming.values import source_line as source_line
from crashkit.naming.values import statement as statement
from crashkit.naming.waits import sentence as waits_sentence
from crashkit.report.cycles import Part, parts

SIGNALS = {
    "SIGABRT": "Abort",
    "SIGALRM": "A timer expired",
    "SIGBUS": "Bus error",
    "SIGFPE": "Arithmetic fault",
    "SIGILL": "Illegal instruction",
    "SIGINT": "Interrupt",
    "SIGKILL": "Killed",
    "SIGPIPE": "Broken pipe",
    "SIGPROF": "A profiler's timer expired",
    "SIGQUIT": "Quit",
    "SIGSEGV": "Segmentation fault",
    "SIGSTOP": "Stopped by a debugger or gcore, not crashed",
    "SIGSYS": "Forbidden system call",
    "SIGTERM": "Terminated",
    "SIGTRAP": "Trap",
    "SIGVTALRM": "A CPU timer expired",
    "SIGXCPU": "CPU time limit reached",
    "SIGXFSZ": "File size limit reached",
}

COLLECTING = "during a garbage collection that happened to run in"

_ACCESSES = {"read": "read", "write": "written", "execute": "called"}

REASONS = {
    "null-pointer": "a null pointer was {access}",
    "stack-overflow": "the stack overflowed",
    "non-canonical": "a garbage (non-canonical) pointer was {access}",
    "unmapped": "unmapped memory was {access}",
    "read-only": "read-only memory was written",
    "no-access": "memory that allows no access was {access}",
    "no-exec": "non-executable memory was executed",
    "bus-truncated-file": "a mapped file is shorter than its mapping",
    "no-room": "a signal handler's stack had no room",
    "abort": "the process aborted itself",
    "integer-divide": "an integer division by zero or overflow",
    "floating-point": "a floating-point exception that the program had enabled",
    "quotient-overflow": "the quotient of an integer division does not fit",
    "misaligned": "memory that is not aligned as the instruction needs it was {access}",
    "seccomp": "by a seccomp filter",
    "illegal-instruction": "an invalid instruction was executed",
    "trap": "a breakpoint or trap instruction was executed",
    "sent-from-outside": "the signal was sent from outside",
    "sent": "the signal was sent, not caused by an instruction",
    "raised": "the process sent the signal to itself",
    "timer": "a timer of the process sent the signal",
}

CONFIDENCE = {
    "certain": "Certain",
    "likely": "Likely",
    "possible": "Possible",
}

CONFIDENCE_MEANS = {
    "certain": "The facts allow no other cause.",
    "likely": "The facts fit this cause well, but another one is possible.",
    "possible": "One of several explanations. Check it before you act on it.",
}

SYMBOLS = {
    "full": "debug info",
    "table": "symbol table",
    "exports": "exported names only",
    "none": "no symbols",
    "missing": "file not found here",
    "mismatch": "different build here",
    "not-needed": "not needed",
}

TRUST = {
    "context": "from the registers",
    "cfi": "from unwind tables",
    "prologue": "guessed from code",
    "inline": "inlined into its caller",
    "signal": "the kernel's signal frame",
    "nested": "the kernel's signal frame of a handler within the handler",
    "scan": "found by scanning the stack",
    "tail-call": "named by the call of it: it ended in a jump and left no frame",
    "text": "read from a log",
}

PYTHON_TRUST = {"alone": "no other source read it"}

# Innermost frames of a waiting thread, and what it waits for. The outermost match decides.
_WAITS = {
    "accept": "a connection",
    "accept4": "a connection",
    "clock_nanosleep": "a timer",
    "epoll_wait": "events",
    "futex_wait": "a lock",
    "gomp_barrier_wait_end": "an OpenMP barrier",
    "gomp_team_barrier_wait_end": "an OpenMP barrier",
    "kmp_hyper_barrier_release": "an OpenMP barrier",
    "nanosleep": "a timer",
    "poll": "events",
    "ppoll": "events",
    "pthread_cond_timedwait": "a condition",
    "pthread_cond_wait": "a condition",
    "pthread_join": "a thread to end",
    "pthread_mutex_lock": "a mutex",
    "pselect": "events",
    "PyThread_acquire_lock": "a Python lock",
    "PyThread_acquire_lock_timed": "a Python lock",
    "read": "input",
    "recv": "input",
    "recvfrom": "input",
    "select": "events",
    "pthread_timedjoin_np": "a thread to end",
    "sem_clockwait": "a semaphore",
    "sem_timedwait": "a semaphore",
    "sem_wait": "a semaphore",
    "wait4": "a child process",
    "waitpid": "a child process",
}
_WAIT_DEPTH = 10
_NAME = 160
_COMMAND = 40
UNSEEN = "its stack could not be read"


# Names and places

_LARGEST_TID = 1 << 22
"""Linux assigns no larger ones (PID_MAX_LIMIT, include/linux/threads.h)."""


def short_path(path: str, parts: int = 3) -> str:
    """The informative end of a path: from site-packages on, or the last `parts` names."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    library = re.search(r"/lib(?:64)?/python\d[\d.]*/", path)
    if library:
        return path[library.end() :]
    names = path.split("/")
    return path if len(names) <= parts + 1 else "…/" + "/".join(names[-parts:])


def base_name(path: str) -> str:
    """The last component of a path."""
    return path.rstrip("/").rpartition("/")[2] or path


def native_function(frame: NativeFrame) -> str:
    """The short function name, that of a Cython function as its author wrote it, or `(no name)`."""
    if frame.function:
        return cython_name(frame.function, frame.module or "") or short_function(frame.function)
    return "(no name)"


def native_place(frame: NativeFrame) -> str:
    """File and line, or module and offset."""
    module = base_name(frame.module) if frame.module else ""
    if frame.file:
        place = base_name(frame.file) + (f":{frame.line}" if frame.line else "")
        return f"{place} in {module}" if module else place
    if module:
        return module + (f"+{frame.offset}" if frame.offset is not None else "")
    return str(frame.pc) if frame.pc is not None else ""


def python_place(frame: PythonFrame) -> str:
    """Short path and line, such as `torch/nn/modules/rnn.py:763`; '' where the file is not known."""
    if not frame.file:
        return ""
    return short_path(frame.file) + (f":{frame.line}" if frame.line else "")


def full_place(frame: PythonFrame) -> str:
    """The whole path and line for the user's own code, to open in an editor; for other code, as `python_place`."""
    return f"{frame.file}:{frame.line}" if is_own(frame) and frame.line else python_place(frame)


def elided_text(frame: ElidedFrames) -> str:
    """`1,234 frames omitted (repeating)`."""
    count = f"{frame.count:,} {'frame' if frame.count == 1 else 'frames'}" if frame.count else "frames"
    return f"{count} omitted" + (" (repeating)" if frame.cycle else "")


def stretches(frames: Sequence[Frame]) -> list[Part]:
    """A stack as it is shown: each cycle once, with its count, also where most of its rounds were omitted."""
    omitted = {
        index: (frame.count, len(frame.cycle)) for index, frame in enumerate(frames) if isinstance(frame, ElidedFrames) and frame.count
    }
    return parts([frame_key(frame) for frame in frames], omitted)


def chosen(frames: Sequence[Frame], shown: Callable[[int], bool]) -> list[Frame | str]:
    """The frames of those indices, of each cycle only the first round, and behind it how often that occurs."""
    found: list[Frame | str] = []
    for part in stretches(frames):
        first = [frames[index] for index in range(part.start, part.start + part.length) if shown(index)]
        found += [*first, f"... {rounds(part, len(first))}"] if first and part.rounds > 1 else first
    return found


def rounds(part: Part, length: int | None = None) -> str:
    """`the 3 frames above occur 17 times in a row`; '' of frames that occur once. `length`: how many of them are shown."""
    if part.rounds == 1:
        return ""
    length = part.length if length is None else length
    frames = "the frame above occurs" if length == 1 else f"the {length} frames above occur"
    return f"{frames} {f'{part.rounds:,}' if part.end is None else about(part.rounds)} times in a row"


def about(number: int) -> str:
    """`about 17,000`: an estimated number to two digits."""
    return f"about {round(number, 2 - len(str(number))):,}"


def thread_label(thread: Thread) -> str:
    """`crasher (5883)`."""
    if thread.tid is None:
        return thread.name or "(unnamed)"
    # A dump names threads by their pthread ident, in hexadecimal.
    number = f"0x{thread.tid:016x}" if thread.tid > _LARGEST_TID else str(thread.tid)
    return f"{thread.name} ({number})" if thread.name else number


def capitalized(text: str) -> str:
    """The text as a sentence begins; names in it keep their capital letters."""
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    """`1 thread`, `2,000 threads`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def set_exception(exception: str) -> str:
    """An exception that was set, and what that means."""
    return f"{exception}: a call had failed with it, and native code continued"


def raised(exception: Raised) -> str:
    """Where an exception was raised: `raised in read (a.py:7)`; one from which the other came, with its name."""
    frame = next(iter(exception.frames), None)
    place = "where it was raised is not known"
    if frame is not None:
        where = python_place(frame)
        place = f"raised in {frame.function or '(no name)'}" + (f" ({where})" if where else "")
    if exception.relation is None:
        return place
    return f"{'from' if exception.relation == 'cause' else 'while handling'} {exception.text or 'an exception'}, {place}"


FORWARD = "kept by torch's anomaly mode"
"""Where the line of a forward pass comes from."""


def forward_line(thread: Thread | None) -> PythonFrame | None:
    """The user's own line of the forward pass whose gradient the thread computed, else the innermost one; None where torch kept none."""
    return (own_line(thread.forward) or next(iter(thread.forward), None)) if thread else None


def masked(crash: Crash) -> str | None:
    """How much of the report is hidden, and how to see it; None if nothing is."""
    return f"{plural(crash.masked, 'likely secret')} (crashkit analyze --show-secrets shows them)" if crash.masked else None


# The answer


def among(crash: Crash) -> str:
    """`one of 5 threads`."""
    return f"one of {len(crash.threads)} threads" if len(crash.threads) > 1 else "the only thread"


def why(signal: Signal) -> str | None:
    """The reason in a few words, and in which handler that was."""
    reason = _why(signal)
    return f"{reason} in the handler of {signal.handled.name}" if reason and signal.handled is not None else reason


def _why(signal: Signal) -> str | None:
    if not signal.reason:
        return None
    if signal.reason == "sent-from-outside" and signal.sender_pid:
        return f"sent by process {signal.sender_pid}"
    words = REASONS.get(signal.reason)
    if words is None:
        return signal.reason.replace("-", " ")
    return words.format(access=_ACCESSES.get(signal.access or "", "accessed"))


def handled(signal: Signal) -> str | None:
    """What a signal handler did after the fault: `on_crash then ended the process with SIGABRT`. None for one that only raised it again."""
    if signal.ended_with is None and (signal.handler is None or is_machinery(signal.handler) or signal.handled is not None):
        return None
    who = signal.handler or ("a signal handler" if signal.recovered else "the kernel")
    return f"{who} then ended the process with {signal.ended_with or signal.name}"


def python_at(thread: Thread | None) -> PythonFrame | None:
    """The innermost Python frame, below a signal handler."""
    return next(iter(python_frames(thread)), None) if thread else None


def own_at(thread: Thread | None) -> PythonFrame | None:
    """The innermost Python frame of the user's own code."""
    return own_line(python_frames(thread)) if thread else None


def native_at(thread: Thread | None, signal: Signal | None = None) -> NativeFrame | None:
    """The native frame that failed, whether it has a name or not; the innermost one where all of them only end the process. None where a
    stack ends with the signal, as where nothing leads on from a call that led nowhere."""
    if not thread or (signal is not None and signal.recovered and not handler_end(thread.frames)):
        return None
    index = failing(thread.frames, signal)
    if index is None and handler_end(thread.frames):
        return None
    found = thread.frames[index] if index is not None else next(thread.natives(), None)
    return found if isinstance(found, NativeFrame) else None


def called_by(thread: Thread | None, crash: Crash) -> NativeFrame | None:
    """The function of an extension module, or of its library, that called what failed in the C library or the interpreter."""
    if thread is None or (native := native_at(thread, crash.signal)) is None:
        return None
    interpreter = crash.python.executable if crash.python else None
    first, named = (extension(thread.frames, crash.signal, interpreter, named) for named in (False, True))
    if first is None or named is None or thread.frames[first] is native:
        return None
    found = thread.frames[named]
    assert isinstance(found, NativeFrame)
    return found


def failed(thread: Thread, frame: NativeFrame, caller: NativeFrame | None) -> str:
    """What failed, for a line of its own: without what called it where `caller` has the next line."""
    return said(thread, frame).partition(", called by ")[0] if caller is not None else said(thread, frame)


def said(thread: Thread, frame: NativeFrame) -> str:
    """A frame of the thread in a sentence: `memcpy`, or `code in libc.so.6, called by ffi_call` where it has no name."""
    return said_in(thread.frames, _index(thread, frame))


def where(thread: Thread, frame: NativeFrame) -> str:
    """The same as a place: `in memcpy`, `in libc.so.6, called by ffi_call`."""
    return where_in(thread.frames, _index(thread, frame))


def _index(thread: Thread, frame: NativeFrame) -> int:
    return next(index for index, one in enumerate(thread.frames) if one is frame)


def ended(crash: Crash) -> str:
    """How the process ended, in a few words."""
    if crash.signal:
        return SIGNALS.get(crash.signal.name, crash.signal.name)
    status = crash.process.exit_status if crash.process else None
    if status is not None:
        return f"Exit status {status}"
    if crash.source is not None and crash.source.kind == "live":
        return "Running"
    lines = [line for line in crash.log if not (line.kind or "").startswith("tells-")]
    if lines and all(line.kind == "mentioned" for line in lines):
        return "Failure mentioned" if all("failure" in line.fields for line in lines) else "Crash mentioned"
    if lines and not crash.findings and all(line.kind == "exception" for line in lines):
        return "Python exception"
    return "Crash"


def sentence(crash: Crash) -> str:
    """The answer in one sentence: what, why and where."""
    if crash.job is not None:
        from crashkit.report import job_wording

        if job_wording.answers(crash):
            return job_wording.sentence(crash.job)
    if crash.failed_gpu is not None:
        from crashkit.report import gpu_wording

        return gpu_wording.sentence(crash, crash.failed_gpu)
    if crash.signal is None and (stands := standing(crash)) is not None:
        why_so = f" ({crash.findings[0].title})" if crash.findings else ""
        return f"{ended(crash)}: {_short(stands.text)}{why_so}."
    thread = crash.thread
    native, python = native_at(thread, crash.signal), own_at(thread) or python_at(thread)
    parts = [ended(crash)]
    reason = told(crash, thread)
    if reason:
        parts.append(f": {_short(reason)}")
    called = python_call(native.function) if native and python else None
    if native and thread:
        parts.append(f" by {called}" if called else f" {_short(_place_of_fault(crash, thread, native, python))}")
    if python and python.function:
        how = _how(crash, thread, native)
        parts.append(f"{'' if how == 'in' else ','} {how} {_short(python.function)}")
        if python.file:
            parts.append(f" ({_short(python_place(python))})")
    return "".join(parts).rstrip(".") + "."


def _how(crash: Crash, thread: Thread | None, native: NativeFrame | None) -> str:
    """What a Python line has to do with what failed."""
    if thread and in_collector(thread):
        return COLLECTING
    if thread and interrupted(thread, crash.signal):
        return "in a signal handler that had interrupted"
    return "called from" if native else "in"


def _place_of_fault(crash: Crash, thread: Thread, native: NativeFrame, python: PythonFrame | None) -> str:
    """Where native code failed. What was jumped to is `at` its address, and a Python caller that is named next is not named twice."""
    if not native.function and native.pc is not None and crash.signal is not None and native.pc == crash.signal.address:
        return f"at {native.pc}"
    return where(thread, native).removesuffix(f", called by {python.function}" if python else "")


def told(crash: Crash, thread: Thread | None) -> str | None:
    """The reason; where there is no signal, the best finding, the last exception or the first line of the log."""
    if crash.signal:
        return why(crash.signal)
    if crash.findings:
        return crash.findings[0].title
    exceptions = [line for line in crash.log if line.kind == "exception"]
    if exceptions:
        # Of the stack that is shown: a launcher may have said below that what it had started failed.
        shown = next(thread.pythons(), None) if thread else None
        at = f"{shown.file}:{shown.line}" if shown else None
        return next((line.text for line in reversed(exceptions) if line.fields.get("reported_at") == at), exceptions[-1].text)
    return crash.log[0].text if crash.log and not thread else None


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[:_NAME] + "…"


def best_finding(crash: Crash) -> Finding | None:
    """The first finding: they are ranked."""
    return crash.findings[0] if crash.findings else None


def is_sure(finding: Finding | None) -> bool:
    """Whether it is more than possible."""
    return finding is not None and finding.confidence != "possible"


def last_words(crash: Crash) -> tuple[str, ...]:
    """What the process said last, where it may tell more than the findings: where there is none, or only a possible one, and of an abort
    for which no line of the log is known to be the reason. A log that is all there is has been read already."""
    finding = best_finding(crash)
    if finding is None:
        return crash.last_words
    unexplained = not is_sure(finding) or (
        crash.signal is not None and crash.signal.name == "SIGABRT" and all(item.log is None for item in finding.evidence)
    )
    if not unexplained or crash.source is None or crash.source.kind == "log":
        return ()
    known = {line.text.strip() for line in crash.log}
    return tuple(row for row in crash.last_words if row.strip() not in known)


def confidence(finding: Finding) -> str:
    """The finding's confidence as a word for display."""
    return CONFIDENCE.get(finding.confidence, finding.confidence.capitalize())


def verdict(one: LookedFor) -> str:
    """Why a known failure was not found: `contradicted: the signal is SIGABRT`, `not decidable without the fault address`."""
    if one.verdict == "contradicted":
        return f"contradicted: {one.by}" if one.by else "contradicted"
    return f"not decidable without {one.by}" if one.by else "not decidable"


def looked_for(crash: Crash) -> str:
    """What came of the known failures that came close: `2 contradicted, 3 not decidable from this evidence`."""
    contradicted = sum(one.verdict == "contradicted" for one in crash.looked_for)
    open_ = len(crash.looked_for) - contradicted
    parts = [f"{contradicted} contradicted"] if contradicted else []
    return ", ".join([*parts, f"{open_} not decidable from this evidence"] if open_ else parts)


def is_prose(fix: str) -> bool:
    """Whether a fix is a sentence rather than something to paste."""
    first, _, rest = fix.partition(" ")
    return "\n" not in fix and bool(rest) and first.isalpha() and first[0].isupper() and first[1:].islower()


def address_of(signal: Signal) -> str | None:
    """`read of 0x0000000000000010`."""
    if signal.address is None:
        return None
    return f"{signal.access} of {signal.address}" if signal.access else str(signal.address)


# Stacks


def runtime_frames(thread: Thread, interpreter: str | None) -> frozenset[int]:
    """Indices of the native frames that belong to the runtime: the interpreter's own between and
    below Python frames, those of a signal handler, and those that start a thread or process.

    Those inside the innermost Python frame stay, but for those that only called what failed: there the interpreter itself may be that.
    """
    handled = handler_end(thread.frames)
    found = set(range(handled))
    inside = True
    for index, frame in enumerate(thread.frames):
        if isinstance(frame, PythonFrame):
            inside = False
        elif isinstance(frame, NativeFrame) and (
            is_outermost(frame.function)
            or (not inside and _is_interpreter(frame, interpreter))
            or (index > handled and is_call(frame.function or ""))
        ):
            found.add(index)
    return frozenset(found)


def _is_interpreter(frame: NativeFrame, interpreter: str | None) -> bool:
    return bool(frame.module and (frame.module == interpreter or INTERPRETER.search(frame.module)))


def unread_python(crash: Crash, thread: Thread) -> str | None:
    """Why no Python line of this thread is known, although it may have had one. None where one is, or it had none."""
    frame = own_at(thread) or python_at(thread)
    if (frame is not None and frame.function) or not (frame is not None or thread.python_unread):
        return None
    if _is_text(crash):
        return "its lines are in this text, but not the functions"
    why = "the core is truncated" if crash.source is not None and crash.source.truncated else "the memory of its Python stack is damaged"
    return f"its frames cannot be named: {why}" if frame is not None else f"not readable: {why}"


def without_python(crash: Crash, thread: Thread) -> str:
    """What is known of a thread of which no Python line is."""
    unread = unread_python(crash, thread)
    if unread is None and _is_text(crash) and any(thread.natives()):
        runs = any(is_evaluation(frame) for frame in thread.natives())
        return "it ran Python code, whose lines are not in this text" if runs else "no Python line in this text"
    return unread or "no Python frame in this thread"


def _is_text(crash: Crash) -> bool:
    return crash.source is not None and crash.source.kind not in ("core", "gpu-core", "live", "folder", "job")


def handler_note(crash: Crash) -> str | None:
    """What it means that a signal handler failed which had interrupted other code."""
    at = handler_at(crash.thread.frames, crash.signal) if crash.thread else None
    if crash.thread is None or at is None:
        return None
    ran = f"the signal handler {handler_said(crash.thread.frames, at)} was running"
    if crash.signal is not None and crash.signal.handled is not None:
        ran += f" for {handled_said(crash.signal.handled, crash.process.pid if crash.process else None)}"
    return f"{ran}: this line did not call it" if python_at(crash.thread) else ran


def collector_note(thread: Thread) -> str:
    """What it means that the garbage collector was running, and which object it was at."""
    running = "the garbage collector was running" + (f", at {thread.visited}" if thread.visited else "")
    if thread.python_unread:
        return running
    return f"{running}: this line only triggered it" if python_at(thread) else f"{running}, and no Python code"


def awaited(thread: Thread) -> str | None:
    """What a thread was waiting for: `the GIL`."""
    if waits_for_gil(thread.frames) if thread.waits_for_gil is None else thread.waits_for_gil:
        return "the GIL"
    names = [libc_name(plain(frame.function)).lstrip("_") for frame in islice(thread.natives(), _WAIT_DEPTH) if frame.function]
    # glibc's names of the versions with a 64-bit time end in 64.
    waits = [wait for name in names if (wait := _WAITS.get(name) or _WAITS.get(name.removesuffix("64")))]
    return waits[-1] if waits else None


def doing(thread: Thread) -> str:
    """What a thread was doing, in a few words: `waiting for the GIL`."""
    wait = awaited(thread)
    if wait:
        return f"waiting for {wait}"
    native = native_at(thread)
    if native:
        return where(thread, native)
    return "" if next(thread.pythons(), None) else "no frames"


class Group(msgspec.Struct, frozen=True):
    """Threads whose stacks are equal in function and Python line."""

    threads: tuple[Thread, ...]

    @property
    def first(self) -> Thread:
        """The thread whose stack represents the group."""
        return self.threads[0]

    @property
    def doing(self) -> str:
        """What the threads were doing."""
        return doing(self.first)

    @property
    def activity(self) -> str:
        """What they do, up to the place that `at` gives: `waiting for events in`."""
        if not self.at or not self.doing:
            return self.doing
        return f"{self.doing} {'in' if awaited(self.first) else 'from'}"

    @property
    def at(self) -> PythonFrame | None:
        """The line to look at: the innermost one of the user's own code, else the innermost."""
        return own_at(self.first) or python_at(self.first)


def groups(threads: Iterable[Thread]) -> list[Group]:
    """Threads grouped by equal stacks; those with Python frames first, then larger groups first."""
    found: dict[tuple[object, ...], list[Thread]] = {}
    for thread in threads:
        key = (tuple(map(frame_key, thread.frames)), tuple(map(frame_key, thread.python_frames)))
        found.setdefault(key, []).append(thread)
    made = [Group(tuple(members)) for members in found.values()]
    return sorted(made, key=lambda group: (group.at is None, -len(group.threads)))


def frame_key(frame: Frame) -> tuple[object, ...]:
    """What makes two frames of different threads, or of one recursion, look the same: function and Python line."""
    if isinstance(frame, PythonFrame):
        return ("python", frame.function, frame.file, frame.line)
    if isinstance(frame, NativeFrame):
        return ("native", frame.module, frame.function) if frame.function else ("native", frame.module, frame.offset, frame.pc)
    return ("elided", frame.cycle)


def pending(signal: PendingSignal) -> str:
    """A signal whose handler had not run yet, and who that is."""
    place = f"{signal.file}:{signal.line}" if signal.file and signal.line else signal.file
    return f"{signal.name} was not handled yet by {signal.handler or 'its Python handler'}{f' ({place})' if place else ''}"


def python_trust(frame: PythonFrame) -> str | None:
    """What other sources read in the place of a frame: contradictions first."""
    if frame.trust is None:
        return None
    said = [f"{name} reads {what}" for name, what in frame.contradicted_by.items()]
    if frame.confirmed_by:
        said.append(f"{' and '.join(frame.confirmed_by)} {'read' if len(frame.confirmed_by) > 1 else 'reads'} the same")
    return "; ".join(said) or PYTHON_TRUST.get(frame.trust, frame.trust)


def sibling_label(sibling: Sibling) -> str:
    """Another process of the run: its pid and what it was started as."""
    # `python server.py` of /usr/bin/python3 /srv/app/server.py --port 80: these are what tells processes apart.
    command = " ".join(word.rpartition("/")[2] if word.startswith("/") else word for word in sibling.argv[:3])
    return f"{sibling.pid if sibling.pid is not None else '?'} {command[:_COMMAND]}".rstrip()


def in_task(crash: Crash) -> str | None:
    """The asyncio task in which the process failed, and who awaits it."""
    task = tasks.task_of(crash, crash.thread)
    return tasks.sentence(crash, task) if task else None


def task_sentence(crash: Crash, task: Task) -> str:
    """An asyncio task, and who awaits it."""
    return tasks.sentence(crash, task)


def task_state(crash: Crash, task: Task) -> str:
    """What an asyncio task did."""
    return tasks.state(crash, task)


def in_greenlet(crash: Crash) -> str | None:
    """The greenlet in which the process failed, and whose child it is."""
    greenlet = greenlets.greenlet_of(crash, crash.thread)
    return greenlets.sentence(crash, greenlet) if greenlet else None


def greenlet_name(crash: Crash, greenlet: Greenlet) -> str:
    """What a greenlet runs."""
    return greenlets.name(crash, greenlet)


def greenlet_parent(crash: Crash, greenlet: Greenlet) -> str | None:
    """The greenlet that goes on when this one ends."""
    parent = greenlets.parent_of(crash, greenlet)
    return greenlets.name(crash, parent) if parent else None


def greenlet_frames(crash: Crash, greenlet: Greenlet) -> tuple[PythonFrame, ...]:
    """Where a greenlet stands."""
    return greenlets.frames(crash, greenlet)


def waits(crash: Crash, wait: Wait) -> str:
    """Who waits where for what, and who has it."""
    return waits_sentence(crash, wait)


# Modules


def versions(crash: Crash) -> dict[str, str]:
    """The interpreter's version, and those of the packages that were loaded."""
    python = {"python": crash.python.version} if crash.python and crash.python.version else {}
    return {**python, **(crash.process.versions if crash.process else {}), **python}


def ordered_modules(modules: Sequence[Module]) -> list[tuple[int, Module]]:
    """The modules with their index; those whose missing symbols limit the report come first."""
    rank = {"mismatch": 0, "missing": 1, "none": 2, "exports": 3, "table": 4, "full": 4, "not-needed": 6}
    return sorted(enumerate(modules), key=lambda item: rank.get(item[1].symbols or "", 5))
