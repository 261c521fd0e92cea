"""Facts that need more than a pattern: each is a pure predicate that signatures name (`fact = "..."`)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Optional, Union

from crashkit.diagnose import waiting
from crashkit.diagnose.array_facts import ARRAY_FACTS
from crashkit.diagnose.callback_facts import CALLBACK_FACTS
from crashkit.diagnose.case import FAULTS, MEMORY_FAULTS, Case, Native, Stack
from crashkit.diagnose.code_facts import CODE_FACTS
from crashkit.diagnose.freed_facts import FREED_FACTS
from crashkit.diagnose.gil_facts import GIL_FACTS
from crashkit.diagnose.gpu_memory_facts import GPU_MEMORY_FACTS
from crashkit.diagnose.gui_facts import GUI_FACTS
from crashkit.diagnose.handler_facts import HANDLER_FACTS
from crashkit.diagnose.job_facts import JOB_FACTS
from crashkit.diagnose.library_facts import LIBRARY_FACTS
from crashkit.diagnose.loading_facts import LOADING_FACTS
from crashkit.diagnose.memory_error_facts import MEMORY_ERROR_FACTS
from crashkit.diagnose.object_facts import OBJECT_FACTS
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.diagnose.places import python_line
from crashkit.diagnose.pointer_facts import POINTER_FACTS
from crashkit.diagnose.recursion_facts import RECURSION_FACTS
from crashkit.diagnose.signature import FramePattern
from crashkit.diagnose.stack_facts import STACK_FACTS
from crashkit.diagnose.terminate_facts import TERMINATE_FACTS
from crashkit.diagnose.worker_facts import WORKER_FACTS
from crashkit.model import Address, ElidedFrames, Evidence, PythonFrame, Thread
from crashkit.naming.addresses import fill_of, is_no_function, is_null, may_be_stack
from crashkit.naming.collector import collects_by_record, in_collector, visited
from crashkit.naming.cuda import DRIVER_LAUNCH, RUNTIME_LAUNCH
from crashkit.naming.failing import code_in, extension, failing, said
from crashkit.naming.gil import ACQUIRES
from crashkit.naming.installation import is_of_conda
from crashkit.naming.machinery import is_fatal_error, is_machinery, machinery_end
from crashkit.naming.own_code import is_own
from crashkit.naming.signals import SENT
from crashkit.regex import regex

Fact = Callable[[Case], Outcome]

ENDS_PYTHON = frozenset(
    {"Py_FinalizeEx", "Py_Finalize", "_Py_Finalize", "__run_exit_handlers", "__cxa_finalize", "Py_Exit", "_exit_handlers"}
)
"""Functions of the interpreter and of the C library in which Python ends, or has ended because the process does."""

LIBRARY_CALL = regex(r"(cublas|cudnn|cufft|cusparse|cusolver)[A-Z]\w*|at::cuda::getC\w*CUDABlas\w*|at::cuda::getCUDABlas\w*")
LIBRARY_MODULE = regex(r"/lib(cublas|cublasLt|cudnn|cufft|cusparse|cusolver)[\w.]*\.so")
TORCH_CUDA = regex(r"at::(native|cuda|\(anonymous namespace\))::\S*(cudnn|cuda|CUDA)\S*|at::native::gpu_kernel\w*|at::cuda::\S+")
TORCH_CUDA_MODULE = regex(r"/lib(torch_cuda\w*|caffe2_gpu)\.so")
NOT_LAUNCHING = regex(r"c10d::.*|std::.*|c10::cuda::CUDACachingAllocator.*|execute_native_thread_routine")
_LAUNCHES = regex(r"/lib(?:cu\w+|torch\w*|caffe2\w*|c10\w*)\.so|^$")
UNLOADING = regex(r"cu(ModuleUnload|LibraryUnload|CtxDestroy|DevicePrimaryCtx(Reset|Release))(_v\d+)?")

_FROM_PYTHON = regex(
    r"torch::autograd::THPVariable_\w+|THPVariable_\w+|THPEngine_\w+|_?PyEval_EvalFrame\w*|cfunction_\w+|_PyObject_\w*[Cc]all\w*"
)
_FORWARD = regex(r"(forward|_call_impl|__call__|_wrapped_call_impl)")
_WORKER = regex(r"threading\.py:(_bootstrap\w*|run)|concurrent/futures/thread\.py:\w+|socketserver\.py:\w+|/gevent/.*")
_LOCK_WAIT = regex(
    r"_*(lll_lock_wait|lll_lock_wait_private|pthread_mutex_lock\w*|pthread_cond_wait\w*|pthread_(clock|timed)?join\w*|pthread_rwlock_\w+lock)"
    r"|std::(mutex::lock|condition_variable::wait|thread::join)|__gthread_\w*lock"
)
# Functions of the C library in which a thread that did not crash may stand, with a null pointer as their first argument.
_WAITS = regex(rf"(?:{_LOCK_WAIT.pattern})|_*(?:p?poll|p?select|sig(?:wait|suspend|timedwait)|wait|(?:clock_)?nanosleep|futex)\w*")
# Lines that tell of an end without naming a signal of Linux.
_FLOATING = re.compile(
    r"\bFPE_FLT\w+|\bFloating[- ]point (?:divide[- ]by[- ]zero|overflow|underflow|inexact)|\bInvalid floating[- ]point operation"
    r"|forrtl: error \((?:65|72|73|74)\)"
)
"""By name, in the words of Open MPI and of psiginfo(), and by the numbers of Intel's Fortran runtime."""
_OWN_SIGNAL = re.compile(r"received by PID (\d{1,10}) .{0,80} from PID \1\b")
"""Of glog's and Paddle's handlers."""
_ENDS = frozenset({"windows-exception", "windows-exit", "jvm-fatal", "rust-panic", "supervisor-exit"})

_NULL_ARGUMENT = regex(r"(?:\w+@entry=)?0x(?:0|[0-9a-f]{1,3})(?: <error: .{0,200}>)?$")
_MAY_BE_NULL = regex(
    r"(?:k|kw|kwds|kwargs|kwnames|keywords|closure|locals|globals|name|qualname|def\w*|kwdefs|options?|opts|flags?|attrs?|fmt|format|env|timeout"
    r"|next|prev\w*|parent|context|ctx|userdata|user_data|opaque|result\w*|ret\w*|err\w*|exc\w*|status|callback|cb|hook|cleanup|argv|envp"
    r"|tstate|version|skip\w*|stop\w*|unused|reserved|ignored|dummy|args?|noargs|_|length|len|size|n|count|modname|filename|file)"
)
"""Parameters that are often null on purpose: CPython passes no `args` to a function of METH_NOARGS (Objects/methodobject.c)."""
_COPIES = regex(r"_*(?:str|mem|wcs|wmem|raw)[a-z]\w*")
"""Functions of the C library that use the pointers of their caller; those written in assembler have no arguments in gdb."""

_EVALUATION = regex(r"_?PyEval_EvalFrame\w*")
_BYTECODE_LOCKS = regex(
    r"PyThread_acquire_lock(_timed)?|lock_acquire\w*|rlock_acquire\w*|_PyParkingLot_Park|PyCOND_\w+|_?PyMutex_Lock\w*|_PySemaphore_Wait"
)


def fault_address(case: Case) -> Union[Address, Outcome]:
    """The address whose access faulted; else the outcome of a question about it."""
    signal = case.crash.signal
    if signal is not None and signal.address is not None:
        return signal.address
    if signal is None or (signal.name in MEMORY_FAULTS and signal.reason not in SENT):
        return unknown("the fault address")
    return no(f"{signal.name} was sent: no access faulted" if signal.name in MEMORY_FAULTS else f"{signal.name} is not a memory fault")


def frames_undecided(
    case: Case, stack: Stack, patterns: Sequence[Union[str, FramePattern]], frames: Optional[Sequence[Native]] = None
) -> Optional[Outcome]:
    """Set if frames that match these patterns may be on the stack: without a name, or left out of the report."""
    if case.in_order(patterns, stack.natives if frames is None else frames, guess=True) is not None:
        return unknown("the names of all native frames")
    if any(isinstance(frame, ElidedFrames) for frame in stack.thread.frames):
        return unknown("the frames that were left out of the stack")
    return None


def _nameless(stack: Stack) -> bool:
    return not stack.natives or any(not frame.name for frame in stack.natives)


def _hides_interpreter(case: Case, stack: Stack) -> bool:
    """Whether it has no native frames, or nameless ones that may be functions of the interpreter."""
    return not stack.natives or any(not frame.name and (not frame.module or case.is_interpreter(frame.module)) for frame in stack.natives)


def _may_launch(stack: Stack) -> bool:
    """Whether it has no native frames, or nameless ones where those of a launch can be."""
    return not stack.natives or any(not frame.name and _LAUNCHES.search(frame.module) for frame in stack.natives)


def concurrent_launch(case: Case) -> Outcome:
    """The crashed thread was launching work on the GPU, and two or more other threads were too, or were about to."""
    return _launches(case, at_least=2)


def two_threads_launch(case: Case) -> Outcome:
    """The crashed thread was in torch's CUDA code or further down the launch path, and another was too."""
    return _launches(case, at_least=1)


def launch_from_worker(case: Case) -> Outcome:
    """The crashed thread, a Python worker, was launching from a cuBLAS or cuDNN call; no other thread is known."""
    stack = case.crashed
    if stack is None or len(case.stacks) != 1 or (case.crash.source is not None and case.crash.source.kind == "core"):
        return no("needs a text that shows the crashed thread only")
    launch = _entry(stack)
    library = next((frame for frame in stack.natives if _is_library(frame)), None)
    worker = next(((index, frame) for index, frame in stack.pythons if _is_worker(frame)), None)
    if launch is None or library is None:
        return no("the crashed thread is not in a launch under cuBLAS or cuDNN")
    if worker is None and not any(_FORWARD.fullmatch(frame.function or "") for _, frame in stack.pythons):
        return no("no Python worker thread")
    return Outcome(True, (_evidence(stack, launch), _evidence(stack, library)), _launch_fields(case, [stack]))


def _launches(case: Case, at_least: int) -> Outcome:
    stack = case.crashed
    if stack is None:
        return unknown("the crashed thread")
    launch = _entry(stack) if at_least > 1 else _launching(stack)
    if launch is None and _may_launch(stack):
        return unknown("the names of the crashed thread's native frames")
    if launch is None:
        return no("the crashed thread is not in a CUDA launch path (torch operator, cuBLAS or cuDNN, runtime, driver)")
    if unloading := _first(case.stacks, UNLOADING):
        return no(f"a thread is unloading a module or context ({unloading.name})")
    launching = [(other, frame) for other in case.others if (frame := _launching(other)) is not None]
    waiting = _same_forward(case, stack, {id(other) for other, _ in launching})
    if len(launching) + len(waiting) < at_least or not (launching or len(waiting) >= 2):
        if not case.shows_all_threads or any(map(_may_launch, case.others)):
            return unknown("what the other threads were doing")
        return no(f"{len(launching)} other threads were launching and {len(waiting)} were about to")
    evidence = [_evidence(stack, launch), *(_evidence(other, frame) for other, frame in launching)]
    evidence += [
        Evidence(text=f"about to launch from {python_line(frame)}", thread=other.thread.tid, frame=index) for other, index, frame in waiting
    ]
    together = [stack, *(other for other, _ in launching), *(other for other, _, _ in waiting)]
    between = _same_call(case, stack, together)
    evidence += [
        Evidence(text=f"at the same call, {python_line(frame)}", thread=other.thread.tid, frame=index) for other, index, frame in between
    ]
    together += [other for other, _, _ in between]
    return Outcome(True, tuple(evidence), _launch_fields(case, together))


def _entry(stack: Stack) -> Optional[Native]:
    """The innermost frame of a launch path that the crashed thread is in."""
    for frame in stack.natives:
        if _is_entry(frame):
            return frame
    return None


def _is_entry(frame: Native) -> bool:
    return any(pattern.fullmatch(frame.name) for pattern in (DRIVER_LAUNCH, RUNTIME_LAUNCH)) or _is_library(frame)


def _is_library(frame: Native) -> bool:
    return LIBRARY_CALL.fullmatch(frame.name) is not None or LIBRARY_MODULE.search(frame.module) is not None


def _launching(stack: Stack) -> Optional[Native]:
    """The frame that shows this thread launching: an entry point, or torch's CUDA code that a Python thread runs."""
    entry = _entry(stack)
    if entry is not None or not _called_from_python(stack):
        return entry
    return next((frame for frame in stack.natives if _is_torch_cuda(frame)), None)


def _called_from_python(stack: Stack) -> bool:
    """A thread of torch's own (watchdog, autograd) waits in its CUDA library all the time."""
    return bool(stack.pythons) or any(_FROM_PYTHON.fullmatch(frame.name) for frame in stack.natives)


def _is_torch_cuda(frame: Native) -> bool:
    if NOT_LAUNCHING.fullmatch(frame.name):
        return False
    return TORCH_CUDA.fullmatch(frame.name) is not None or TORCH_CUDA_MODULE.search(frame.module) is not None


def _same_forward(case: Case, crashed: Stack, launching: set[int]) -> list[tuple[Stack, Optional[int], PythonFrame]]:
    """Other Python threads that are in the same `forward` of the same file as the crashed one."""
    mine = {(frame.file, frame.function) for _, frame in crashed.pythons if frame.function == "forward"}
    found = []
    for other in case.others:
        if id(other) in launching:
            continue
        if same := next(((index, frame) for index, frame in other.pythons if (frame.file, frame.function) in mine), None):
            found.append((other, *same))
    return found


def _same_call(case: Case, crashed: Stack, known: list[Stack]) -> list[tuple[Stack, Optional[int], PythonFrame]]:
    """Further threads that stand at the line of the user's own code at which the crashed one called the model.

    They come from a launch, or go to the next: they are shown, but prove nothing.
    """
    call = _model_call(crashed)
    if call is None or call.line is None:
        return []
    seen, found = {id(stack) for stack in known}, []
    for other in case.others:
        own = next(((index, frame) for index, frame in other.pythons if is_own(frame)), None)
        if id(other) not in seen and own is not None and _at(own[1]) == _at(call):
            found.append((other, *own))
    return found


def _at(frame: PythonFrame) -> tuple[Optional[str], Optional[str], Optional[int]]:
    return frame.file, frame.function, frame.line


def _launch_fields(case: Case, stacks: list[Stack]) -> dict[str, str]:
    fields = {"launching": _LAUNCHING_ALONE}
    if len(stacks) > 1:
        fields["launching"] = f"while {len(stacks)} threads were launching GPU work, or were about to"
    calls = [(stack, call) for stack in stacks if (call := _model_call(stack)) is not None]
    if calls:
        fields["threads"] = "; ".join(f"{_thread_name(stack)} at {python_line(call)}" for stack, call in calls[:16])
    own = _model_call(stacks[0])
    if own is not None:
        fields["own_place"] = python_line(own)
        if own.source:
            fields["source"] = own.source
    return fields


_LAUNCHING_ALONE = "in a launch by a worker thread; the text does not show the other threads"


def _model_call(stack: Stack) -> Optional[PythonFrame]:
    """Where the user's own code called the model, outside every `forward`: the place for a lock."""
    frames = [frame for _, frame in stack.pythons]
    outermost = max((index for index, frame in enumerate(frames) if frame.function == "forward"), default=-1)
    call = next((frame for frame in frames[outermost + 1 :] if is_own(frame)), None)
    return call or stack.own_python()


def _thread_name(stack: Stack) -> str:
    tid = stack.thread.tid
    unknown = "the crashed thread" if stack.thread.crashed else "a thread"
    name = unknown if tid is None else f"thread {tid}"
    return f"{name} ({stack.thread.name})" if stack.thread.name else name


def _is_worker(frame: PythonFrame) -> bool:
    return _WORKER.search(f"{frame.file}:{frame.function}") is not None


def debugger_injected(case: Case) -> Outcome:
    """A debugger called a function of the process, and that call crashed."""
    for stack in case.stacks:
        for frame in stack.whole:
            if frame.name == "<function called from gdb>" or frame.name.startswith("cudbg"):
                return Outcome(True, (_evidence(stack, frame),))
    return no("no debugger frame")


def module_unloading(case: Case) -> Outcome:
    """A thread was in the middle of unloading a CUDA module or context."""
    for stack in case.stacks:
        for frame in stack.natives:
            if UNLOADING.fullmatch(frame.name):
                return Outcome(True, (_evidence(stack, frame),))
    return no("no thread is unloading a CUDA module")


def hang(case: Case) -> Outcome:
    """Nothing failed: no signal, or one sent from outside to a process that did not abort by itself."""
    signal = case.crash.signal
    if signal is None:
        if case.crash.threads and all(_is_beheaded(thread) for thread in case.crash.threads):
            return unknown("the innermost frames: what it waits for, or how it ended")
        failed = next((line for line in case.crash.log if line.kind in _ENDS), None)
        return Outcome(True, (), {}, "no signal") if failed is None else no(f"the log shows how the process ended: {failed.text}")
    if signal.name in FAULTS and signal.reason not in SENT and signal.code != 0:
        return no(f"{signal.name} is a fault")
    # A watchdog in the process may send SIGQUIT, which no function sends that gives up.
    if signal.name != "SIGQUIT" and case.crashed is not None and machinery_end([native.frame.function for native in case.crashed.natives]):
        return no("the process aborted by itself")
    if signal.name == "SIGABRT" and (case.crashed is None or not case.crashed.natives):
        return no("SIGABRT, and no native stack that shows its sender")
    if any(line.kind == "fatal-python-error" and line.fields.get("message") not in ("Aborted",) for line in case.crash.log):
        return no("the interpreter reported a fatal error")
    sender = "by the process itself" if signal.reason == "raised" else "from outside"
    return Outcome(True, (Evidence(text=f"{signal.name} was sent {sender}: no abort() frame on the stack"),))


def _is_beheaded(thread: Thread) -> bool:
    """Whether only the outer frames of this stack were passed on."""
    return bool(thread.frames) and isinstance(thread.frames[0], ElidedFrames)


def single_thread(case: Case) -> Outcome:
    """The process has a single thread, whose native stack is known."""
    if len(case.stacks) == 1 and case.stacks[0].natives:
        return Outcome(True, (Evidence(text="the process has one thread", thread=case.stacks[0].thread.tid),))
    return no(f"{len(case.stacks)} threads are known") if len(case.stacks) > 1 else unknown("the native stack")


def freed_pattern(case: Case) -> Outcome:
    """A register of the crashed thread holds the bytes that an allocator writes over freed memory."""
    signal = case.crash.signal
    if signal is not None and signal.name not in MEMORY_FAULTS:
        return no("not a memory fault")
    if case.crashed is None or signal is None:
        return unknown("the registers of the crashed thread")
    values = [(name, value) for name, value in case.crashed.thread.registers.items()]
    if signal.address is not None:
        values.append(("fault address", signal.address))
    for name, value in values:
        if (fill := fill_of(value)) is not None and fill.freed:
            text = f"{name} = {value}: {fill.meaning} is filled with 0x{fill.byte:02x}"
            return Outcome(True, (Evidence(text=text, thread=case.crashed.thread.tid),), {"fill": f"0x{fill.byte:02x}"})
    return no("no register holds a freed-memory pattern") if case.crashed.thread.registers else unknown("the registers")


def collector_visits(case: Case) -> Outcome:
    """The crashed thread failed in Python's garbage collector, while that followed the references between objects."""
    if case.crashed is None:
        return unknown("the crashed thread")
    container = visited(case.crashed.thread.frames)
    if container is not None:
        which = f"{'an' if container[0] in 'aeiou' else 'a'} {container}"
        evidence = Evidence(text=f"the garbage collector was following the references of {which}", thread=case.crashed.thread.tid)
        return Outcome(True, (evidence,), {"container": which[0].upper() + which[1:]})
    if case.crashed.natives and _by_record(case, case.crashed):
        evidence = Evidence(text="the garbage collector was running, and the interpreter's own code failed", thread=case.crashed.thread.tid)
        return Outcome(True, (evidence,))
    return (
        unknown("the names of the native frames")
        if _hides_interpreter(case, case.crashed)
        else no("the garbage collector is not on the stack")
    )


def _by_record(case: Case, stack: Stack) -> bool:
    """Whether the interpreter, which has no names, failed while it was collecting by its own record."""
    innermost = stack.innermost
    interpreter = case.crash.python.executable if case.crash.python else None
    in_interpreter = innermost is not None and bool(innermost.module) and innermost.module == interpreter
    return in_interpreter and in_collector(stack.thread)


def collector_ran(case: Case) -> Outcome:
    """The crashed thread was collecting garbage, by the interpreter's own record: all that a log tells of it."""
    if case.crashed is None or case.crashed.thread.collecting is None:
        return unknown("whether the garbage collector was running")
    if not collects_by_record(case.crashed.thread):
        return no("the garbage collector was not running, or ran a finalizer")
    evidence = Evidence(text="the garbage collector was running", thread=case.crashed.thread.tid)
    return Outcome(in_collector(case.crashed.thread), (evidence,), why="the garbage collector was running")


def null_address(case: Case) -> Outcome:
    """The fault address is a null pointer plus an offset: nothing can be mapped that low."""
    address = fault_address(case)
    if isinstance(address, Outcome):
        return address
    return Outcome(is_null(address), (Evidence(text=f"fault address {address}"),), why=f"the fault address is {address}")


def in_stack_area(case: Case) -> Outcome:
    """The fault address lies where processes have their main thread's stack: it may be the end of one."""
    address = fault_address(case)
    if isinstance(address, Outcome):
        return address
    return Outcome(may_be_stack(address), (Evidence(text=f"fault address {address}"),), why=f"the fault address is {address}")


def runs_python(case: Case) -> Outcome:
    """The crashed thread held the GIL, or ran Python code."""
    stack = case.crashed
    if stack is None:
        return unknown("the crashed thread")
    if stack.thread.holds_gil or stack.pythons or _evaluates(stack):
        return Outcome(True, (Evidence(text="the crashed thread ran Python", thread=stack.thread.tid),))
    if stack.thread.python_unread or (stack.thread.holds_gil is None and _hides_interpreter(case, stack)):
        return unknown("whether the crashed thread ran Python")
    return no("the crashed thread ran no Python and did not hold the GIL")


def interpreter_is_over(case: Case) -> Outcome:
    """The interpreter's own code failed after its end: by its record it was ending, it has no thread left, and nobody is at its end."""
    stack = case.crashed
    if stack is None or not stack.natives or case.crash.source is None or case.crash.source.kind != "core":
        return unknown("the crashed thread's native stack")
    if case.crash.python is None or not case.crash.python.finalizing:
        return no("the interpreter had not ended, or none ran")
    if any(one.thread.holds_gil is not None or one.pythons for one in case.stacks):
        return no("the interpreter has a thread")
    if any(frame.name in ENDS_PYTHON for one in case.stacks for frame in one.whole):
        return no("the interpreter, or the process, was still ending")
    first = next(iter(stack.failing), stack.natives[0])
    if not case.is_interpreter(first.module):
        return no("it did not fail in the interpreter")
    return Outcome(
        True, (Evidence(text=f"{first.name} ran, and the interpreter had no thread", thread=stack.thread.tid, frame=first.index),)
    )


def interpreter_not_started(case: Case) -> Outcome:
    """The interpreter's own code failed, and Py_Initialize() had not made an interpreter yet."""
    if case.crash.python is None or case.crash.python.started is not False:
        return no("the interpreter had started, or none is in the process")
    first = next(iter(case.crashed.failing), None) if case.crashed is not None else None
    if case.crashed is None or first is None or not case.is_interpreter(first.module):
        return no("it did not fail in the interpreter")
    text = f"{first.name or 'the interpreter'} ran, and there was no interpreter yet"
    return Outcome(True, (Evidence(text=text, thread=case.crashed.thread.tid, frame=first.index),))


def gil_held_by_it(case: Case) -> Outcome:
    """The crashed thread is known to be the one that held the GIL."""
    if case.crashed is not None and case.crashed.thread.holds_gil:
        return Outcome(True, (Evidence(text="the crashed thread held the GIL", thread=case.crashed.thread.tid),))
    if case.crashed is None or case.crashed.thread.holds_gil is None:
        return unknown("which thread held the GIL")
    return no("the crashed thread did not hold the GIL")


def free_threaded(case: Case) -> Outcome:
    """The interpreter is a build without the GIL, and nothing turned that on."""
    if case.crash.python is not None and case.crash.python.free_threaded:
        if any(thread.holds_gil is not None for thread in case.crash.threads):
            return no("the free-threaded interpreter ran with the GIL")
        return Outcome(True, (Evidence(text="a free-threaded interpreter"),))
    if case.crash.python is None or case.crash.python.free_threaded is None:
        return unknown("whether the interpreter is a free-threaded build")
    return no("the interpreter has a GIL")


def two_llvm_openmp(case: Case) -> Outcome:
    """More than one LLVM or Intel OpenMP runtime is loaded. Several libgomp are normal and do not count."""
    return _two_files(case, re.compile(r"/lib(?:iomp5|omp\d*)[\w.-]*\.so"), "LLVM or Intel OpenMP runtimes")


def two_libstdcxx(case: Case) -> Outcome:
    """More than one libstdc++ is loaded."""
    return _two_files(case, re.compile(r"/libstdc\+\+[\w.-]*\.so"), "copies of libstdc++")


def _two_files(case: Case, pattern: re.Pattern[str], what: str) -> Outcome:
    if not case.crash.modules:
        return unknown("the loaded modules")
    paths = sorted({module.path for module in case.crash.modules if pattern.search(module.path)})
    if len(paths) < 2:
        return no(f"{len(paths)} {what} loaded")
    return Outcome(True, tuple(Evidence(text=path, module=path) for path in paths), {"copies": " and ".join(paths)})


def two_openssl(case: Case) -> Outcome:
    """Two different files of OpenSSL are loaded, or on the crashed stack."""
    pattern = re.compile(r"lib(?:crypto|ssl)[\w.-]*\.so")
    found = {module.path for module in case.crash.modules if pattern.search(module.path)}
    found |= {frame.module for frame in (case.crashed.natives if case.crashed else ()) if pattern.search(frame.module)}
    for part in ("libcrypto", "libssl"):
        copies = sorted(path for path in found if part in path)
        if len(copies) > 1:
            return Outcome(True, tuple(Evidence(text=path) for path in copies), {"copies": " and ".join(copies)})
    return no("no two copies of OpenSSL are known")


def program_counter_zero(case: Case) -> Outcome:
    """The innermost frame is at address 0, or where a table of functions leads that begins there: a call through a null pointer."""
    stack = case.crashed
    first = stack.innermost if stack is not None else None
    pc = first.frame.pc if first is not None and not (first.frame.pc and first.frame.function) else None
    if stack is not None and first is not None and pc is not None and is_null(pc) and not is_no_function(pc):
        # People shorten addresses.
        if pc and all(other.frame.pc is None or is_null(other.frame.pc) for other in stack.natives):
            return no("no frame has a whole address")
        place = Evidence(text=f"the innermost frame is at address {pc:#x}", thread=stack.thread.tid, frame=first.index)
        return Outcome(True, (place,), {"target": f"{pc:#x}"} if pc else {})
    return no("the innermost frame is not at address 0")


def program_counter_small(case: Case) -> Outcome:
    """The innermost frame is in the first 64 KiB, where no code can be, and not at 0: a call through a number."""
    stack = case.crashed
    first, *others = stack.natives if stack is not None and stack.natives else (None,)
    pc = first.frame.pc if first is not None and first.frame.function is None else None
    if stack is None or first is None or pc is None or not is_no_function(pc):
        return no("the innermost frame may be code")
    # People shorten addresses.
    if all(other.frame.pc is None or is_null(other.frame.pc) for other in others):
        return no("no frame has a whole address")
    place = Evidence(text=f"the innermost frame is at {pc:#x}", thread=stack.thread.tid, frame=first.index)
    return Outcome(True, (place,), {"target": f"{pc:#x}"})


def jumped_to_address(case: Case) -> Outcome:
    """The fault address is where the innermost frame was to run: a jump or a call through a bad pointer."""
    address = fault_address(case)
    if isinstance(address, Outcome):
        return address
    stack = case.crashed
    first = stack.innermost if stack is not None else None
    if stack is None or first is None or first.frame.pc is None:
        return unknown("where the crashed thread was running")
    if first.frame.pc == address:
        return Outcome(
            True, (Evidence(text="the fault address is that of the innermost frame", thread=stack.thread.tid, frame=first.index),)
        )
    return no("the innermost frame is at another address than the one that faulted")


def null_thread_state(case: Case) -> Outcome:
    """An inner frame was called with a null thread state, as a debugger shows its arguments."""
    return _called_with_null(case, "tstate", "frame", 4) or no("no frame shows a null thread state")


def told_floating_point(case: Case) -> Outcome:
    """A handler or a runtime printed that it was an operation on floating-point numbers."""
    for index, line in enumerate(case.crash.log):
        if _FLOATING.search(line.text) or _FLOATING.search(line.fields.get("code", "")):
            return Outcome(True, (Evidence(text=line.text, log=index),))
    return no("nobody says which numbers they were")


def told_own_signal(case: Case) -> Outcome:
    """A handler printed that the process had sent itself the signal."""
    for index, line in enumerate(case.crash.log):
        if _OWN_SIGNAL.search(line.text):
            return Outcome(True, (Evidence(text=line.text, log=index),), {"function": "kill()"})
    return no("no handler printed who sent the signal")


def bug_above_version(case: Case) -> Outcome:
    """Ruby's own report: its version stands directly below its `[BUG]`, as it does in nobody's title of an issue (rb_bug, error.c)."""
    versions = {(line.path, line.line) for line in case.crash.log if line.kind == "ruby-version"}
    for index, line in enumerate(case.crash.log):
        if line.kind == "ruby-bug" and line.line is not None and (line.path, line.line + 1) in versions:
            return Outcome(True, (Evidence(text=line.text, log=index),))
    return no("the version is not below it")


def null_interpreter(case: Case) -> Outcome:
    """An inner frame was called with no interpreter, as a debugger shows its arguments: none was there yet, or no longer."""
    return _called_with_null(case, "interp", "function", 6) or no("no frame shows a null interpreter")


def _called_with_null(case: Case, argument: str, field: str, frames: int) -> Optional[Outcome]:
    """That one of so many inner frames was; `field` is told as its name. None where none was."""
    stack = case.crashed
    for native in stack.natives[:frames] if stack is not None else ():
        if stack is not None and is_zero(native.frame.args.get(argument)):
            evidence = Evidence(text=f"{native.name} ({argument}=0x0)", thread=stack.thread.tid, frame=native.index)
            return Outcome(True, (evidence,), {field: native.name})
    return None


def null_argument(case: Case) -> Outcome:
    """A debugger shows that the function that failed was called with a null pointer; the fault address is not known."""
    signal = case.crash.signal
    if signal is not None and signal.address is not None:
        return no("the fault address is known")
    frame = _with_arguments(case.crashed)
    if case.crashed is None or frame is None:
        return no("the arguments of the function that failed are not known")
    if signal is None and (frame.index or frame.frame.line is None or _WAITS.fullmatch(frame.name) or is_machinery(frame.name)):
        return no("nothing says that there was a fault")
    found = next((one for one in enumerate(frame.frame.args.items()) if _is_null_argument(one[0], *one[1])), None)
    if found is None:
        return no("no argument of the function that failed is a null pointer")
    position, (name, value) = found
    if signal is None and position > 0:
        return no("nothing says that there was a fault")
    evidence = Evidence(text=f"{frame.name} ({name}={value})", thread=case.crashed.thread.tid, frame=frame.index)
    return Outcome(True, (evidence,), {"address": "not known", "culprit": name, "culprit_value": value})


_FORCED = frozenset({"10", "26"})
"""_UA_FORCE_UNWIND with the clean-up phase, and at the end of the stack (unwind.h)."""


def forced_unwind(case: Case) -> Outcome:
    """A debugger shows that C++ code was unwound by force, not by an exception: pthread_exit and pthread_cancel do so."""
    for native in case.crashed.natives if case.crashed is not None else ():
        if native.name.endswith("__gxx_personality_v0") and native.frame.args.get("actions") in _FORCED:
            text = f"{native.name} (actions={native.frame.args['actions']}): no exception, a forced unwinding"
            return Outcome(True, (Evidence(text=text, thread=case.crashed.thread.tid if case.crashed else None, frame=native.index),))
    return unknown("the arguments of __gxx_personality_v0")


def _with_arguments(stack: Optional[Stack]) -> Optional[Native]:
    """The function that failed; its caller, if it is one of the C library that a debugger shows without arguments."""
    frames = stack.natives[:2] if stack is not None else []
    inner = next(iter(frames), None)
    if inner is not None and not inner.frame.args and _COPIES.fullmatch(inner.name):
        return next(iter(frames[1:]), None)
    return inner


def _is_null_argument(position: int, name: str, value: str) -> bool:
    """Whether it is a null pointer that the function may have used: its first, one that a debugger could not read, or no optional one."""
    if _NULL_ARGUMENT.match(value.strip()) is None:
        return False
    return position == 0 or "<error: " in value or (is_zero(value) and _MAY_BE_NULL.fullmatch(name) is None)


_OF_WORKERS = ("supervisor-", "worker-", "server-worker-")
"""Kinds of lines that tell how a worker ended."""


def task_failed_first(case: Case) -> Outcome:
    """A task of a SLURM step failed before the step was cancelled: srun did that, because of it."""
    log = case.crash.log
    ended = next((place for place, line in enumerate(log) if line.kind == "job-cancelled"), len(log))
    failed = next((place for place, line in enumerate(log[:ended]) if line.kind == "task-failed"), None)
    if failed is None:
        return no("no task failed before")
    return Outcome(True, (Evidence(text=log[failed].text, log=failed),))


def went_on(case: Case) -> Outcome:
    """After its messages a test suite reached its end, and no process of it is known to have died."""
    if case.crash.signal is not None:
        return no(f"{case.crash.signal.name} ended a process")
    if died := next((line for line in case.crash.log if (line.kind or "").startswith(_OF_WORKERS)), None):
        return no(f"a worker died: {died.text}")
    last = max((place for place, line in enumerate(case.crash.log) if line.kind == "test-summary"), default=0)
    if not any(line.kind == "c-assert-part" for line in case.crash.log[:last]):
        return no("no test suite reached its end after a failed assertion")
    return Outcome(True, (Evidence(text=case.crash.log[last].text, log=last),))


def is_zero(value: Optional[str]) -> bool:
    """Whether an argument in a debugger's words is 0."""
    return value is not None and re.fullmatch(r"(?:\w+@entry=)?(?:0x0+|0)", value.strip()) is not None


def fatal_error_words(case: Case) -> Outcome:
    """The message with which the crashed thread called Py_FatalError, from the arguments in the stack."""
    if case.crashed is None:
        return no("no crashed thread is known")
    frames = [frame for frame in case.crashed.whole if is_fatal_error(frame.name)]
    if not frames:
        return no("Py_FatalError is not on the stack")
    arguments = (frame.frame.args.get(name, "") for frame in frames for name in ("msg", "message"))
    told = next((found[1] for text in arguments if (found := re.search(r'"(.*)"', text))), None)
    return Outcome(True, (_evidence(case.crashed, frames[-1]),), {"message": told} if told else {})


def fatal_error_of_extension(case: Case) -> Outcome:
    """What called Py_FatalError is neither the interpreter nor the C library: its author wrote the message."""
    stack = case.crashed
    if stack is None or not any(is_fatal_error(frame.name) for frame in stack.whole):
        return no("Py_FatalError is not on the stack")
    frames = stack.thread.frames
    caller = failing(frames, case.crash.signal)
    if caller is None or caller != extension(frames, case.crash.signal, case.crash.python.executable if case.crash.python else None):
        return no("the interpreter itself called Py_FatalError")
    evidence = Evidence(text=f"{said(frames, caller)} called Py_FatalError", thread=stack.thread.tid, frame=caller)
    return Outcome(True, (evidence,))


def lock_inversion(case: Case) -> Outcome:
    """One thread waits for a native lock while it holds the GIL (it runs a C function under Python frames), another waits for the GIL."""
    if free_threaded(case).holds:
        return no("the interpreter has no GIL")
    owners = [
        (stack, frame)
        for stack in case.stacks
        if (stack.pythons or _evaluates(stack))
        and _waits(stack, ACQUIRES) is None
        and (frame := _waits(stack, _LOCK_WAIT))
        and not _in_python_lock(stack)
        and stack.thread.holds_gil is not False
    ]
    seekers = [(stack, frame) for stack in case.stacks if (frame := _waits(stack, ACQUIRES)) is not None]
    seekers = [(stack, frame) for stack, frame in seekers if _has_native_caller(stack, frame)]
    if not owners or not seekers:
        if any(map(_nameless, case.stacks)):
            return unknown("the native stacks of all threads")
        return no(f"{len(owners)} threads wait for a native lock under Python, {len(seekers)} in native code for the GIL")
    waiting = {id(stack) for stack, _ in owners}
    if runner := next(
        (stack for stack in case.stacks if _runs_python(stack) or (stack.thread.holds_gil and id(stack) not in waiting)), None
    ):
        return no(f"{_thread_name(runner)} is running and has the GIL")
    proof = [(stack, frame) for stack, frame in owners if stack.thread.holds_gil]
    if not proof and len(owners) != 1:
        return no("several threads wait for native locks, and it is unknown which one holds the GIL")
    owner, lock = (proof or owners)[0]
    text = "holds the GIL and waits in" if proof else "may hold the GIL and waits in"
    evidence = [Evidence(text=f"{text} {lock.name}", thread=owner.thread.tid, frame=lock.index)]
    evidence += [
        Evidence(text=f"waits for the GIL in {frame.name}", thread=stack.thread.tid, frame=frame.index) for stack, frame in seekers
    ]
    return Outcome(True, tuple(evidence), {"owner": _thread_name(owner), "lock": lock.name, "seeker": _thread_name(seekers[0][0])})


def _evaluates(stack: Stack) -> bool:
    """Whether a debugger's stack without Python frames has the interpreter's loop on it."""
    return any(_EVALUATION.fullmatch(frame.name) for frame in stack.natives)


def _runs_python(stack: Stack) -> bool:
    """Its innermost frame is the interpreter's loop, or a Python frame."""
    innermost = next(iter(stack.thread.frames), None)
    return isinstance(innermost, PythonFrame) if stack.whole else False


def _waits(stack: Stack, pattern: re.Pattern[str]) -> Optional[Native]:
    """The frame that blocks the thread, among the innermost ones."""
    return next((frame for frame in stack.natives[:12] if pattern.fullmatch(frame.name)), None)


def _in_python_lock(stack: Stack) -> bool:
    """Locks of Python itself release the GIL while they wait."""
    return any(_BYTECODE_LOCKS.fullmatch(frame.name) for frame in stack.natives[:12])


def _has_native_caller(stack: Stack, waiting: Native) -> bool:
    """C++ code outside the interpreter called for the GIL, so that it may own a lock."""
    outer = [frame for frame in stack.natives if frame.index > waiting.index]
    return any("::" in frame.name for frame in outer[:30])


def user_division(case: Case) -> Outcome:
    """The division failed in code of an operator or an extension: not in a library's start-up code or cublasLt."""
    stack = case.crashed
    if stack is None or not stack.natives:
        return Outcome(True, (), {}, "no native stack")
    for frame in stack.natives:
        if re.fullmatch(r"_GLOBAL__sub_I_.*|_dl_init|call_init|cublasLt\w+|__static_initialization.*", frame.name):
            return no(f"{frame.name} is on the stack")
    return Outcome(True, (_evidence(stack, stack.natives[0]),))


def in_interpreter(case: Case) -> Outcome:
    """The function that failed is one of CPython's C API, or a nameless one of the interpreter's file. Not where nothing is known of it."""
    first = case.crashed.failing[0] if case.crashed is not None and case.crashed.failing else None
    if case.crashed is None or first is None:
        return no("the function that failed is not known")
    if (case.is_interpreter(first.module) and not first.name) or re.fullmatch(r"_?Py[A-Z]\w*", first.name):
        return Outcome(True, (_evidence(case.crashed, first),))
    return no("what failed is no function of CPython's API")


def many_streams(case: Case) -> Outcome:
    """Python threads work on side streams, or transfer data, beside the one that reported."""
    for stack in case.stacks:
        for index, frame in stack.pythons:
            if re.search(
                r"torch/cuda/(streams|__init__)\.py:(stream|record_stream|wait_stream|__enter__)", f"{frame.file}:{frame.function}"
            ):
                return Outcome(True, (Evidence(text=python_line(frame), thread=stack.thread.tid, frame=index),))
    for position, line in enumerate(case.crash.log):
        if re.search(r"record_stream|side stream|torch\.cuda\.stream\(|CUDAStream|spec(?:ulative)?[_ ]?v?\d? overlap|EAGLE", line.text):
            return Outcome(True, (Evidence(text=line.text, log=position),))
    return no("no sign of side streams")


def garbage_index(case: Case) -> Outcome:
    """Index asserts of gather or index kernels, in which no label is compared with a number of classes."""
    for position, line in enumerate(case.crash.log):
        if line.kind == "device-assert-line":
            text = line.fields.get("assertion", "") + line.fields.get("kernel", "")
            if re.search(r"index|idx|-sizes\[", text) and not re.search(r"n_classes|target", text):
                return Outcome(True, (Evidence(text=line.text, log=position),))
    return no("no index assertion")


def _first(stacks: Iterable[Stack], pattern: re.Pattern[str]) -> Optional[Native]:
    return next((frame for stack in stacks for frame in stack.natives if pattern.fullmatch(frame.name)), None)


def _evidence(stack: Stack, frame: Native) -> Evidence:
    return Evidence(text=frame.name or code_in(frame.frame), thread=stack.thread.tid, frame=frame.index)


def main_thread(case: Case) -> Outcome:
    """The crashed thread is the process's first one."""
    thread, process = case.crash.thread, case.crash.process
    if thread is None or thread.tid is None or process is None or process.pid is None:
        return unknown("the ids of the thread and of its process")
    text = f"thread {thread.tid} of process {process.pid}"
    return Outcome(thread.tid == process.pid, (Evidence(text=text, thread=thread.tid),), why=text)


def other_thread(case: Case) -> Outcome:
    """The crashed thread is not the process's first one."""
    main = main_thread(case)
    return main if main.missing else Outcome(not main.holds, main.evidence, why=main.why)


def _no_python(case: Case) -> Outcome:
    """What it means that no Python frame is known."""
    read = case.crashed is None or not case.crashed.thread.python_unread
    return no("no Python frame is on the stack") if case.shows_all_threads and read else unknown("the Python stack")


def ran_python(case: Case) -> Outcome:
    """The crashed thread ran Python functions."""
    if case.crashed is not None and case.crashed.pythons:
        return Outcome(True, (Evidence(text="Python frames", thread=case.crashed.thread.tid),))
    return _no_python(case)


def raised_recursion_limit(case: Case) -> Outcome:
    """More Python frames are on the crashed thread than the default recursion limit (1000) allows."""
    stack = case.crashed
    if stack is None or not stack.pythons:
        return _no_python(case)
    functions = {frame.function for _, frame in stack.pythons}
    depth = len(stack.pythons)
    for frame in stack.thread.frames:
        if isinstance(frame, ElidedFrames) and frame.cycle:
            depth += (frame.count or 0) * sum(name in functions for name in frame.cycle) // len(frame.cycle)
    text = f"about {depth:,} Python frames"
    return Outcome(depth > _DEFAULT_LIMIT + _DEFAULT_LIMIT // 4, (Evidence(text=text, thread=stack.thread.tid),), why=text)


_DEFAULT_LIMIT = 1000
"""sys.getrecursionlimit() of a new interpreter (Python/ceval.c, Py_DEFAULT_RECURSION_LIMIT)."""


def has_core(case: Case) -> Outcome:
    """The evidence is a core."""
    source = case.crash.source
    if source is None or source.kind != "core":
        return no("there is no core")
    return Outcome(True, (), {"core": shlex.quote(source.archive or source.path)})


def truncated_core(case: Case) -> Outcome:
    """Part of the core is missing."""
    source = case.crash.source
    return Outcome(True) if source is not None and source.truncated else no("the core is whole")


def has_log(case: Case) -> Outcome:
    """What the process wrote is part of the evidence."""
    return Outcome(True) if case.has_log or case.crash.last_words else no("no log is known")


def on_macos(case: Case) -> Outcome:
    """The evidence is of a process on macOS."""
    return Outcome(case.system == "macos", why="nothing tells of macOS")


def report_of_macos(case: Case) -> Outcome:
    """The evidence is the crash report that macOS wrote."""
    source = case.crash.source
    return Outcome(source is not None and source.kind == "apple", why="it is no report of macOS")


def limit_not_of_kernel(case: Case) -> Outcome:
    """A line tells who else than the kernel ended the process, because it reached a limit; and none that the kernel ended one."""
    found = next((index for index, line in enumerate(case.crash.log) if "by" in line.fields), None)
    if found is None:
        return no("no line tells of anyone else")
    if any((line.kind or "").startswith("oom-") and "by" not in line.fields for line in case.crash.log):
        return no("the kernel's OOM killer ended a process")
    return Outcome(True, (Evidence(text=f"{case.crash.log[found].fields['by']} enforces the limit", log=found),))


def on_windows(case: Case) -> Outcome:
    """The evidence is of a process on Windows."""
    return Outcome(case.system == "windows", why="nothing tells of Windows")


def stored_core(case: Case) -> Outcome:
    """The text says where the system keeps a core: at a path (`stored_core`), or as systemd's of a process (`core_of`)."""
    told = next((line for line in case.crash.log if not line.fields.keys().isdisjoint(("stored_core", "core_of"))), None)
    return Outcome(True, (Evidence(text=told.text),), dict(told.fields)) if told is not None else no("the text names no core")


def only_told(case: Case) -> Outcome:
    """All that is known is what somebody said of a crash."""
    return Outcome(True) if case.is_hearsay else no("a program's own words are known")


def only_raised(case: Case) -> Outcome:
    """All that is known of the end is exceptions of Python: such an end leaves no core, and no memory is damaged."""
    log = case.crash.log
    if case.crash.signal is not None or not log or any(line.kind != "exception" for line in log):
        return no("a signal, an abort or another end is known")
    return Outcome(True, tuple(Evidence(text=line.text, log=position) for position, line in enumerate(log[:2])))


def no_debug_info(case: Case) -> Outcome:
    """The interpreter has no debug info on this machine."""
    python = case.crash.python
    return Outcome(True) if python is not None and python.debug_info is False else no("the interpreter has debug info, or none ran")


def missing_modules(case: Case) -> Outcome:
    """Files of modules on a stack are not on this machine."""
    missing = [module.path.rpartition("/")[2] for module in case.crash.modules if module.symbols in ("missing", "mismatch")]
    return Outcome(True, (), {"missing": ", ".join(missing[:3])}) if missing else no("all modules are on this machine")


def has_values(case: Case) -> Outcome:
    """The values of variables are known in the crashed thread."""
    known = case.crashed is not None and any(frame.locals for _, frame in case.crashed.pythons)
    return Outcome(True) if known else no("no value of a variable is known")


def conda(case: Case) -> Outcome:
    """The interpreter is in an environment of conda, mamba or pixi."""
    process = case.crash.process
    path = process.executable if process is not None else None
    if not path:
        return unknown("the executable of the process")
    return Outcome(True) if is_of_conda(path, case.environment.get("CONDA_PREFIX")) else no("the interpreter is not in a conda environment")


FACTS: dict[str, Fact] = {
    "conda": conda,
    "has-core": has_core,
    "truncated-core": truncated_core,
    "has-log": has_log,
    "on-macos": on_macos,
    "report-of-macos": report_of_macos,
    "on-windows": on_windows,
    "limit-not-of-kernel": limit_not_of_kernel,
    "stored-core": stored_core,
    "only-told": only_told,
    "no-debug-info": no_debug_info,
    "missing-modules": missing_modules,
    "has-values": has_values,
    **waiting.FACTS,
    **RECURSION_FACTS,
    "raised-recursion-limit": raised_recursion_limit,
    "main-thread": main_thread,
    "other-thread": other_thread,
    "python-frames": ran_python,
    "concurrent-launch": concurrent_launch,
    "two-threads-launch": two_threads_launch,
    "launch-from-worker": launch_from_worker,
    "debugger-injected": debugger_injected,
    "module-unloading": module_unloading,
    "hang": hang,
    "single-thread": single_thread,
    "freed-pattern": freed_pattern,
    "collector-ran": collector_ran,
    "collector-visits": collector_visits,
    "null-address": null_address,
    "in-stack-area": in_stack_area,
    "free-threaded": free_threaded,
    "program-counter-small": program_counter_small,
    "runs-python": runs_python,
    "gil-held-by-it": gil_held_by_it,
    "interpreter-is-over": interpreter_is_over,
    "only-raised": only_raised,
    "two-llvm-openmp": two_llvm_openmp,
    "two-libstdcxx": two_libstdcxx,
    "two-openssl": two_openssl,
    "program-counter-zero": program_counter_zero,
    "jumped-to-address": jumped_to_address,
    "null-thread-state": null_thread_state,
    "null-interpreter": null_interpreter,
    "bug-above-version": bug_above_version,
    "told-own-signal": told_own_signal,
    "told-floating-point": told_floating_point,
    "interpreter-not-started": interpreter_not_started,
    "null-argument": null_argument,
    "forced-unwind": forced_unwind,
    "task-failed-first": task_failed_first,
    "went-on": went_on,
    "fatal-error-words": fatal_error_words,
    "fatal-error-of-extension": fatal_error_of_extension,
    "lock-inversion": lock_inversion,
    "user-division": user_division,
    "in-interpreter": in_interpreter,
    "many-streams": many_streams,
    "garbage-index": garbage_index,
    **ARRAY_FACTS,
    **POINTER_FACTS,
    **CALLBACK_FACTS,
    **CODE_FACTS,
    **FREED_FACTS,
    **GIL_FACTS,
    **GPU_MEMORY_FACTS,
    **GUI_FACTS,
    **HANDLER_FACTS,
    **JOB_FACTS,
    **LIBRARY_FACTS,
    **WORKER_FACTS,
    **LOADING_FACTS,
    **MEMORY_ERROR_FACTS,
    **OBJECT_FACTS,
    **STACK_FACTS,
    **TERMINATE_FACTS,
}
