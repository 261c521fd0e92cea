"""The data model of one crash: frozen, typed, without I/O.

These types define `report.json` (docs/report-schema.md). Any fact may be missing: an unknown field is
None or empty and is omitted from the JSON. Names of signals, reasons, frame trusts and the like are
plain strings: readers must accept values that they do not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional, TypeVar, Union

import msgspec

SCHEMA = "crashkit.report/1"


_WORD = (1 << 64) - 1

_Number = TypeVar("_Number", bound="_Word")


class _Word(int):
    """A number of 64 bits: others are taken modulo 64 bits, as the processor computes, so that JSON gives back what it was given."""

    def __new__(cls: type[_Number], value: int) -> _Number:
        return super().__new__(cls, value & _WORD)


class Address(_Word):
    """A virtual address; `0x` and 16 digits in JSON."""

    def __str__(self) -> str:
        return f"0x{self:016x}"


class Offset(_Word):
    """A distance in bytes, such as that of a program counter from its module's base; `0x` in JSON."""

    def __str__(self) -> str:
        return f"0x{self:x}"


class _Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class Source(_Fact, frozen=True):
    """The main piece of evidence that was analysed."""

    path: str
    kind: str
    """core, gpu-core, log, faulthandler, gdb, folder, live (a process that was running)."""
    size: Optional[int] = None
    """Bytes of the file as found."""
    truncated: Optional[bool] = None
    missing: Optional[int] = None
    """Bytes that the headers declare but the file does not contain."""
    compression: Optional[str] = None
    minimal: bool = False
    """True of a core that holds only what a report needs (`--minimal`)."""
    archive: Optional[str] = None
    """The bundle or other archive that it was in: `path` is a path in it then."""
    looked_at: Optional[str] = None
    """Why `crashkit run` looked at a process that lived: `it waits for the GPU at train.py:40 for 300 s`."""


class Process(_Fact, frozen=True):
    """The crashed process, as far as the evidence describes it."""

    pid: Optional[int] = None
    ppid: Optional[int] = None
    uid: Optional[int] = None
    name: Optional[str] = None
    """The kernel's name of the process (comm, 15 bytes)."""
    executable: Optional[str] = None
    """Path of the executable inside the crashed system."""
    argv: tuple[str, ...] = ()
    architecture: Optional[str] = None
    exit_status: Optional[int] = None
    """As a shell reports it: 128 + signal number if a signal ended the process."""
    forked: Optional[bool] = None
    """Whether it is a copy made by fork() that runs the program of its parent: only one of the parent's threads is in it."""
    environment: dict[str, str] = {}
    """Allow-listed variables only."""
    versions: dict[str, str] = {}
    """Versions of python, torch, cuda, driver and so on, if the evidence shows them."""


class AccessedArray(_Fact, frozen=True):
    """An array, a tensor or another buffer in a variable that, as it describes its memory, has the fault address in it or ends below it."""

    variable: str
    """As the program would write it: `view`, `self.image`."""
    description: str
    """Type and shape: `float64 (512, 512)`."""
    start: Address
    """Of its lowest element."""
    end: Address
    """End of its highest element."""
    thread: Optional[int] = None
    """Whose variable it is: the crashed thread's, or another one's if that has no Python frames."""
    function: Optional[str] = None
    """The Python function that has the variable."""
    file: Optional[str] = None
    """Of that function."""
    line: Optional[int] = None
    """The line that the function was at."""
    owner: Optional[str] = None
    """Type and shape of the array whose memory it is a view of."""
    owner_start: Optional[Address] = None
    """Of that array's lowest element."""
    owner_end: Optional[Address] = None
    """End of that array's highest element."""


class HandledSignal(_Fact, frozen=True):
    """A signal in whose handler, a function of C, the thread was when the signal that ended the process came."""

    number: int
    """Signal number, such as 15."""
    name: str
    """Such as SIGTERM."""
    handler: Optional[str] = None
    """The function that handled it."""
    code_name: Optional[str] = None
    """Such as SI_USER; None if the handler was not given its siginfo (SA_SIGINFO)."""
    sender_pid: Optional[int] = None
    """Process that sent it: by the siginfo that the handler was given, or this one, where it was still doing so."""


class Signal(_Fact, frozen=True):
    """The signal that ended the process, and why it was sent."""

    number: int
    name: str
    code: Optional[int] = None
    code_name: Optional[str] = None
    address: Optional[Address] = None
    """The address whose access faulted; None if the kernel did not report it and it could not be recovered."""
    access: Optional[str] = None
    """read, write, execute."""
    reason: Optional[str] = None
    """null-pointer, stack-overflow, non-canonical, unmapped, read-only, no-exec, bus-truncated-file,
    no-room (for a handler's frame), abort, integer-divide, quotient-overflow, floating-point, misaligned, seccomp, illegal-instruction,
    trap, raised (by the process itself),
    sent-from-outside, sent (sender unknown), timer (one of the process's own), ..."""
    detail: Optional[str] = None
    """The reason in one human-readable sentence."""
    sender_pid: Optional[int] = None
    recovered: bool = False
    """True if a signal handler hid the fault and it was recovered from the signal frame."""
    handler: Optional[str] = None
    """The signal handler that ran between the fault and the end of the process."""
    array: Optional[AccessedArray] = None
    """The array in a variable whose memory was accessed, if there is one."""
    below: tuple[AccessedArray, ...] = ()
    """The buffers in variables that end below the fault address, the nearest first, four at most."""
    freed: Optional[Address] = None
    """The block that had been freed, and whose first word, a link of the allocator's, was used as a pointer."""
    ended_with: Optional[str] = None
    """Name of the signal that ended the process, if the handler sent another one, such as SIGABRT from abort()."""
    handled: Optional[HandledSignal] = None
    """The signal in whose handler this one came: that handler had interrupted other code."""


class PendingSignal(_Fact, frozen=True):
    """A signal that had arrived, and whose Python handler had not run yet."""

    number: int
    name: str
    handler: Optional[str] = None
    """The Python function that was to handle it, or another callable as text."""
    file: Optional[str] = None
    """The file of that function."""
    line: Optional[int] = None
    """Where the function begins, from 1."""


class PythonRuntime(_Fact, frozen=True):
    """The CPython interpreter inside the process."""

    version: Optional[str] = None
    debug_info: Optional[bool] = None
    executable: Optional[str] = None
    """The module that contains the interpreter: the executable or libpython."""
    script: Optional[str] = None
    """The libpython.py that was used."""
    finalizing: Optional[bool] = None
    started: Optional[bool] = None
    """False if the process had not called Py_Initialize() yet, as a program that embeds Python must."""
    free_threaded: Optional[bool] = None
    pending_signals: tuple[PendingSignal, ...] = ()
    """Lowest number first. Python handles signals in its main thread only, and never while that thread runs C code."""


class NativeFrame(_Fact, frozen=True, tag_field="kind", tag="native"):
    """A frame of native code (C, C++, CUDA host code and so on)."""

    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    module: Optional[str] = None
    offset: Optional[Offset] = None
    pc: Optional[Address] = None
    trust: Optional[str] = None
    """How the frame was found. context: the registers; cfi: unwind tables; prologue: guessed from code;
    inline: inlined into the next frame; signal: the kernel's signal frame; nested: that of a handler that ran within the one of the
    fault; scan; tail-call: named by the call of it, because it ended in a jump and left no frame; text: read from a log."""
    args: dict[str, str] = {}
    locals: dict[str, str] = {}


class PythonFrame(_Fact, frozen=True, tag_field="kind", tag="python"):
    """A frame of Python code."""

    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    columns: Optional[tuple[int, int]] = None
    """Start and end of the expression that was running, in characters of the line as it is in the file, from 0 (Python 3.11 and newer)."""
    source: Optional[str] = None
    """The source line, stripped, if the file could be read."""
    context: tuple[str, ...] = ()
    """Source lines around it, verbatim."""
    context_start: Optional[int] = None
    """Line number of the first of them."""
    source_changed: bool = False
    """True if the file was changed after the crash, so line numbers may not match."""
    args: tuple[str, ...] = ()
    """Which of the locals are arguments."""
    locals: dict[str, str] = {}
    origin: Optional[str] = msgspec.field(default=None, name="from")
    """crashkit (read from the process's memory), libpython, pystack, faulthandler, traceback, anomaly-mode (torch's, of a forward pass)."""
    trust: Optional[str] = None
    """What other sources read in its place. confirmed: the same; contradicted: something else; alone: no other source read it."""
    confirmed_by: tuple[str, ...] = ()
    """Sources that read the same, by their names in `from`."""
    contradicted_by: dict[str, str] = {}
    """Sources that read something else, and what: a function and its line, or `no frame`. A soft error says why they are not believed."""
    entry: Optional[bool] = None
    """True if this frame was entered from C: a new interpreter call begins here."""


class ElidedFrames(_Fact, frozen=True, tag_field="kind", tag="elided"):
    """Frames omitted from the middle of a stack."""

    count: Optional[int] = None
    cycle: tuple[str, ...] = ()
    """The functions that repeat, innermost first."""


Frame = Union[NativeFrame, PythonFrame, ElidedFrames]


class Raised(_Fact, frozen=True):
    """A Python exception that a thread was handling, or one that led to it."""

    text: Optional[str] = None
    """Its type and arguments."""
    relation: Optional[str] = None
    """How it led to the exception before it in the list: cause (`raise ... from`), context (raised while this one was handled)."""
    frames: tuple[PythonFrame, ...] = ()
    """Its traceback: innermost first, up to the function that caught it. Without variables."""
    left_out: Optional[int] = None
    """How many more outer frames the traceback has."""


class Thread(_Fact, frozen=True):
    """One thread of the process, with its stack."""

    tid: Optional[int] = None
    name: Optional[str] = None
    crashed: bool = False
    holds_gil: Optional[bool] = None
    waits_for_gil: Optional[bool] = None
    """Whether it wanted the GIL and did not have it."""
    exception: Optional[str] = None
    """The Python exception that the thread was handling, such as in an `except` block: its type and arguments."""
    raised: tuple[Raised, ...] = ()
    """That exception with its traceback, and those that led to it, the first one last."""
    pending: Optional[str] = None
    """The Python exception that was set and had not reached Python code yet: a call had failed with it, and native code continued."""
    collecting: Optional[bool] = None
    """Whether the thread was running Python's garbage collector, by the interpreter's own record; that includes finalizers."""
    visited: Optional[str] = None
    """The object that the garbage collector or a finalizer was at, with its type, in the crashed thread."""
    pthread: Optional[Address] = None
    """The thread's pthread_self(), which Python, faulthandler and gdb use to identify it."""
    frames: tuple[Frame, ...] = ()
    """Innermost first. Native and Python frames interleaved, or only native frames if `python_frames` is set."""
    python_frames: tuple[PythonFrame, ...] = ()
    """Set only if the native and Python stacks could not be merged."""
    python_unread: Optional[bool] = None
    """True where no Python frame is known because what tells whether there are any is missing from the core, or damaged."""
    registers: dict[str, Address] = {}
    """At the fault for the crashed thread, at the time of the dump for the others."""
    activity: Optional[str] = None
    """busy (it used the processor), blocked (it waits for another thread or for data), idle (it waits for work or for a point in time)."""
    processor: Optional[float] = None
    """Of a live thread: the share of the time that it was watched in which it ran or was ready to run, 0 to 1."""
    forward: tuple[PythonFrame, ...] = ()
    """Of a thread in torch's backward pass: who called, in the forward pass, the operation whose gradient it computes, innermost first.
    Only torch's anomaly mode keeps that (`torch.autograd.set_detect_anomaly`)."""

    def natives(self) -> Iterator[NativeFrame]:
        """Yield the native frames, innermost first."""
        return (frame for frame in self.frames if isinstance(frame, NativeFrame))

    def pythons(self) -> Iterator[PythonFrame]:
        """Yield the Python frames, innermost first: `python_frames` if set, else those in `frames`."""
        if self.python_frames:
            return iter(self.python_frames)
        return (frame for frame in self.frames if isinstance(frame, PythonFrame))


class Module(_Fact, frozen=True):
    """An ELF file mapped into the process: the executable or a shared library."""

    path: str
    build_id: Optional[str] = None
    base: Optional[Address] = None
    size: Optional[int] = None
    symbols: Optional[str] = None
    """full (debug info), table (.symtab), exports (.dynsym), none, missing (file not found),
    mismatch (a different build was found), not-needed (no frame is in it)."""
    found: Optional[str] = None
    """The file on the analysing machine, if its path differs."""


class Mapping(_Fact, frozen=True):
    """One range of the process's address space."""

    start: Address
    end: Address
    permissions: Optional[str] = None
    """Such as r-x."""
    path: Optional[str] = None
    offset: Optional[Offset] = None


class Instruction(_Fact, frozen=True):
    """One disassembled instruction near the fault."""

    address: Address
    text: str
    bytes: Optional[str] = None
    """Hexadecimal."""
    function: Optional[str] = None
    faulting: bool = False


class GpuDevice(_Fact, frozen=True):
    """A GPU that the process used."""

    index: Optional[int] = None
    """The CUDA driver's number of the device, counted among those that the process sees."""
    name: Optional[str] = None
    sm: Optional[str] = None
    """Its architecture, such as sm_90."""


class GpuException(_Fact, frozen=True):
    """What failed on a GPU: one entry for each exception, kernel and program counter."""

    name: str
    """As the CUDA debugger names it, without CUDBG_EXCEPTION_: WARP_ILLEGAL_ADDRESS. TRAP for a trap instruction, which has no code."""
    code: Optional[int] = None
    device: Optional[int] = None
    sm: Optional[int] = None
    """The multiprocessor of the first faulting thread."""
    kernel: Optional[str] = None
    """The kernel's short name."""
    demangled: Optional[str] = None
    mangled: Optional[str] = None
    known_as: Optional[str] = None
    """What the kernel is to its user: an operator of torch, a fused kernel of torch.compile, a family of cuBLAS kernels."""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    block_index: tuple[int, ...] = ()
    """Of the first faulting thread."""
    thread_index: tuple[int, ...] = ()
    inferred: bool = False
    """True if the faulting warp had left when the dump was written: block, thread and lanes follow from the warps that are missing."""
    lanes: Optional[int] = None
    """The number of threads that the exception was reported for. The hardware reports most exceptions for whole warps."""
    pc: Optional[Address] = None
    offset: Optional[Offset] = None
    """Of the program counter in its function."""
    exact_pc: Optional[bool] = None
    """False if the hardware did not record the faulting instruction: the program counter is then where the thread was afterwards."""
    file: Optional[str] = None
    line: Optional[int] = None
    source: Optional[str] = None
    """The source line, stripped, if the file could be read."""
    frames: tuple[Frame, ...] = ()
    """Innermost first: inlined functions, the kernel or the device function, its callers."""
    instruction: Optional[str] = None
    """The instruction's name and memory operand, as far as they are known."""
    bytes: Optional[str] = None
    """The instruction's code, in hexadecimal."""
    access: Optional[str] = None
    """read, write, atomic."""
    space: Optional[str] = None
    """global, shared, local, generic."""
    size: Optional[int] = None
    """Bytes accessed by each thread."""
    address: Optional[Address] = None
    """The address in the registers of the first thread, or of the first one whose address explains the exception."""
    lowest: Optional[Address] = None
    highest: Optional[Address] = None
    """The range of addresses over all faulting threads."""
    detail: Optional[str] = None
    """What is known of the address, in one sentence."""
    registers: dict[str, str] = {}
    """Of the first faulting thread."""
    context: tuple[str, ...] = ()
    """Source lines around the line, verbatim."""
    context_start: Optional[int] = None
    """Line number of the first of them."""
    disassembly: tuple[Instruction, ...] = ()
    """Instructions around the program counter, if NVIDIA's disassembler is on the analysing machine."""
    warp: tuple[GpuLane, ...] = ()
    """The threads of the first faulting warp, if it was there; of the worst exception only."""
    operators: tuple[str, ...] = ()
    """What torch.compile fused into the kernel: `aten.index`, `aten.mul`."""
    fused_from: tuple[PythonFrame, ...] = ()
    """The Python lines that it was fused from."""
    memory: Optional[GpuMemory] = None
    """What torch's allocator knew of the address."""


class GpuLane(_Fact, frozen=True):
    """One thread of a warp."""

    thread_index: tuple[int, ...] = ()
    """In its block."""
    failed: bool = False
    """Whether the exception was reported for it."""
    active: Optional[bool] = None
    """False if it was not running with the others: it waited, or had ended."""
    offset: Optional[Offset] = None
    """Its place, as an offset in its function."""
    address: Optional[Address] = None
    """The address in its registers."""
    registers: dict[str, str] = {}
    """Of threads that failed: those with a value that is not 0 in one of them."""


class GpuMemory(_Fact, frozen=True):
    """A block of torch's CUDA allocator, from a snapshot of it."""

    state: str
    """live; freed (given back to the driver); cached (freed, kept by the allocator); beyond (past a live block's end)."""
    address: Address
    """Where it begins."""
    size: int
    """Bytes that were asked for."""
    offset: Offset
    """Of the access, from the block's start; from its end if beyond."""
    allocated: tuple[PythonFrame, ...] = ()
    """Where it was allocated, innermost first, if the allocator recorded that."""
    freed: tuple[PythonFrame, ...] = ()
    """Where it was freed."""
    snapshot: Optional[str] = None
    """The snapshot file."""


class GpuPlace(_Fact, frozen=True):
    """Where warps of a kernel were."""

    warps: int
    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    offset: Optional[Offset] = None
    waits: Optional[str] = None
    """barrier (of their block), grid (the barrier of all its blocks), cluster, mbarrier, warp, sleep; None for warps that run."""
    blocks: Optional[int] = None
    """Of how many blocks they are."""
    block_index: tuple[int, ...] = ()
    """The first of these blocks, in its grid."""


class GpuKernel(_Fact, frozen=True):
    """A kernel that was on the GPU when the dump was written."""

    name: Optional[str] = None
    """Its short name."""
    demangled: Optional[str] = None
    mangled: Optional[str] = None
    known_as: Optional[str] = None
    """What it is to its user, as in an exception."""
    device: Optional[int] = None
    status: Optional[str] = None
    """pending, active, sleeping, terminated."""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    blocks: Optional[int] = None
    """The number of blocks that were on the GPU."""
    warps: Optional[int] = None
    file: Optional[str] = None
    line: Optional[int] = None
    """The line that most of its warps were at."""
    cooperative: bool = False
    """True if the driver recorded fewer blocks than there are, as it does of a cooperative launch; `grid` is then the smallest that holds
    those that are there."""
    places: tuple[GpuPlace, ...] = ()
    """Those with most warps first."""
    resident: tuple[GpuBlock, ...] = ()
    """Blocks that were on the GPU, those with failed warps first; the others had ended, or had not begun."""


class GpuBlock(_Fact, frozen=True):
    """A block of a kernel that was on the GPU."""

    index: tuple[int, ...]
    """In its grid."""
    warps: str
    """One letter for each of its warps: f failed, w waits (also for its threads, or sleeps), r runs, - was no longer there or never was."""


class LaunchedFrom(_Fact, frozen=True):
    """The CPU side of a GPU crash."""

    thread: int
    """The tid of the thread that launched the kernel, or that was using CUDA when the error was reported."""
    frame: Optional[int] = None
    """Index of the Python line into that thread's frames."""
    exact: bool = False
    """True if launches were blocking and the thread was inside one: the kernel is the one that this line launched."""
    function: Optional[str] = None
    """The CUDA call that the thread was in."""
    candidates: tuple[int, ...] = ()
    """Not exact: the tids of other threads that may have launched it, because they were also in such a call."""
    line: Optional[int] = None
    """Not exact: the only line just before the frame's that names the kernel, which probably launched it."""
    source: Optional[str] = None
    """That line, stripped."""


class Gpu(_Fact, frozen=True):
    """One GPU core."""

    path: Optional[str] = None
    pid: Optional[int] = None
    time: Optional[str] = None
    """When the dump was made, UTC, ISO 8601."""
    size: Optional[int] = None
    truncated: Optional[bool] = None
    driver: Optional[str] = None
    cuda: Optional[str] = None
    """The newest CUDA version that the driver supports."""
    left_out: tuple[str, ...] = ()
    """What the dump omits because it was told to."""
    devices: tuple[GpuDevice, ...] = ()
    exceptions: tuple[GpuException, ...] = ()
    """Worst first."""
    kernels: tuple[GpuKernel, ...] = ()
    context_threads: tuple[int, ...] = ()
    """The tids of the driver's own threads, one per context; such a thread aborts the process."""
    launched_from: Optional[LaunchedFrom] = None


class JobPlace(_Fact, frozen=True):
    """A line of the user's own code, or else the innermost one that is known."""

    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    source: Optional[str] = None
    """The source line, stripped, if the evidence shows it."""


class JobProcess(_Fact, frozen=True):
    """One process of a job, and how it ended."""

    rank: Optional[int] = None
    name: Optional[str] = None
    """What its lines are marked with if that is not a rank: `trainer-1`, `EngineCore pid=812`."""
    pid: Optional[int] = None
    host: Optional[str] = None
    attempt: Optional[int] = None
    """Counted from 0, if the launcher restarted the job."""
    exit: Optional[int] = None
    """The exit status; the negative number of the signal that ended it, as launchers write it."""
    signal: Optional[str] = None
    """That signal's name."""
    role: Optional[str] = None
    """root-cause (failed first), failed (also for a reason of its own), lost-peer (an error because others were gone or late), stopped (by
    the launcher), waited (no sign of an error), ended (exit status 0)."""
    what: Optional[str] = None
    """Its exception or signal, in one line."""
    where: Optional[JobPlace] = None
    time: Optional[str] = None
    """When its launcher saw it end, in the launcher's words; the clocks of hosts differ."""
    at: Optional[float] = None
    """Seconds since 1970 when it ended or, by its flight recorder, began its last collective. All of a job come from the same source and
    host's clock, or none has one."""
    sequence: Optional[int] = None
    """The last collective of the job's main group that it reached."""
    source: Optional[str] = None
    """The file with its last words."""


class JobCause(_Fact, frozen=True):
    """What failed first in a job."""

    rank: Optional[int] = None
    """None if several ranks are concerned alike, or if the process has no rank."""
    ranks: tuple[int, ...] = ()
    """Those that are concerned, if there are several."""
    name: Optional[str] = None
    pid: Optional[int] = None
    attempt: Optional[int] = None
    what: Optional[str] = None
    """An exception, a signal, or what the ranks did to a collective, in one line."""
    where: Optional[JobPlace] = None
    confidence: Optional[str] = None
    """certain, likely, possible."""
    because: Optional[str] = None
    """How it is known, in one sentence."""


class JobCall(_Fact, frozen=True):
    """A call of a collective or of a point-to-point operation by one rank or several."""

    operation: Optional[str] = None
    """Such as all_reduce."""
    sizes: tuple[tuple[int, ...], ...] = ()
    """Of its input tensors."""
    dtypes: tuple[str, ...] = ()
    state: Optional[str] = None
    """scheduled, started, completed."""
    where: Optional[JobPlace] = None
    frames: tuple[PythonFrame, ...] = ()
    """Innermost first."""
    ranks: tuple[int, ...] = ()
    """All ranks that made this same call."""


class JobCollective(_Fact, frozen=True):
    """A collective that went wrong."""

    group: Optional[str] = None
    sequence: Optional[int] = None
    problem: Optional[str] = None
    """missing (ranks never reached it), mismatch (ranks called different things), unfinished (all reached it, but it did not finish)."""
    operation: Optional[str] = None
    """What most ranks called."""
    missing: tuple[int, ...] = ()
    """Ranks that never reached it."""
    unknown: tuple[int, ...] = ()
    """Ranks of the group about which nothing is known."""
    differing: tuple[int, ...] = ()
    """Ranks that called something different from most."""
    differs: tuple[str, ...] = ()
    """In what: operation, sizes, dtypes, state."""
    calls: tuple[JobCall, ...] = ()
    """The different calls, each with its ranks; that of most ranks first."""
    ranks: dict[str, JobCall] = {}
    """By rank: of each different call, the first ranks."""


class Job(_Fact, frozen=True):
    """A job of several processes, of which this crash is one."""

    kind: Optional[str] = None
    """torchrun, deepspeed, slurm, mpi, ray, or what else started it."""
    world_size: Optional[int] = None
    attempts: Optional[int] = None
    """How often the launcher started the processes, if more than once."""
    processes: tuple[JobProcess, ...] = ()
    """By attempt and rank."""
    root_cause: Optional[JobCause] = None
    also: tuple[JobCause, ...] = ()
    """Further failures that do not follow from the first one, and those of other attempts."""
    collectives: tuple[JobCollective, ...] = ()
    """Those that went wrong, the first one first."""


class Wait(_Fact, frozen=True):
    """What one thread waits for."""

    thread: int
    """Its tid."""
    kind: str = msgspec.field(name="for")
    """gil, lock, rlock, import, condition, event, queue, thread, mutex, condition-variable, semaphore, futex, collective, cuda, socket,
    pipe, file, open, terminal, poll, child, sleep, signal, task."""
    name: Optional[str] = None
    """What the program calls it: a variable, a path, a connection, a module."""
    address: Optional[Address] = None
    """Of the lock."""
    held_by: Optional[int] = None
    """The tid of the thread that must act first."""
    held_at: Optional[int] = None
    """Index of the frame of that thread whose `with` block holds the lock."""
    process: Optional[int] = None
    """The process that must act first, if it is another one."""
    lost: bool = False
    """True if the owner is not a thread of this process: it has ended, or the process was forked while the lock was held."""
    cycle: bool = False
    """True for the waits of a deadlock: each thread waits for one that waits for it in turn."""
    inside: bool = False
    """True if only a thread of this process can end it: there is no time limit, and no other process can reach what is waited for."""


class Task(_Fact, frozen=True):
    """An asyncio task that had not ended."""

    name: Optional[str] = None
    """What the program called it, else Task-1 and so on."""
    state: Optional[str] = None
    """running, ready (it continues by itself), waiting."""
    loop_thread: Optional[int] = None
    """The tid of the thread that runs its event loop."""
    awaits: Optional[str] = None
    """What it waits for: the name of a task, else what it called of asyncio's, such as `Queue.get()`, the type of the future, or gather."""
    awaits_tasks: tuple[int, ...] = ()
    """Indices into `tasks` of those that it waits for."""
    awaited_by: tuple[int, ...] = ()
    """Indices into `tasks` of those that wait for it."""
    lock: Optional[str] = None
    """What the program calls the lock, semaphore, event, condition, barrier or queue that it waits for."""
    held_by: Optional[int] = None
    """Index into `tasks` of the one that holds this lock; of a semaphore, of one that does."""
    held_at: Optional[int] = None
    """Index of the frame of that task that took it."""
    detail: Optional[str] = None
    """What else is known of it: `not set`, `2 of 3 have come`, `taken; asyncio does not record by whom`."""
    cycle: bool = False
    """True for the tasks of a deadlock: each waits for one that waits for it in turn."""
    frames: tuple[PythonFrame, ...] = ()
    """Of its coroutines, innermost first; of a running task also those of the functions that they called."""


class Greenlet(_Fact, frozen=True):
    """A greenlet, gevent's included, that had not ended."""

    address: Optional[Address] = None
    """Of the object, as gevent prints it."""
    type: Optional[str] = None
    """Its class, such as greenlet.greenlet."""
    state: Optional[str] = None
    """running, suspended, new (it had not begun)."""
    thread: Optional[int] = None
    """The tid of its thread."""
    main: bool = False
    """True for the one that its thread ran before it switched to any other."""
    parent: Optional[int] = None
    """Index into `greenlets` of the one that continues when this one ends."""
    frames: tuple[PythonFrame, ...] = ()
    """Innermost first. A running one has the frames of its thread."""


class LogLine(_Fact, frozen=True):
    """One significant line of a log, extracted by the evidence stage."""

    text: str
    """Without colour, timestamps and rank prefixes."""
    kind: Optional[str] = None
    """Such as fatal-python-error, cuda-error, device-assert, glibc-abort, traceback, oom-kill."""
    path: Optional[str] = None
    line: Optional[int] = None
    """Counted from 1."""
    process: Optional[str] = None
    """The process that wrote the line, if the log shows it: a rank or a pid."""
    before: tuple[str, ...] = ()
    """The lines of the log before it, as far as they are not lines of this list themselves."""
    after: tuple[str, ...] = ()
    """The lines after it."""
    from_core: bool = False
    """True for what is read from the core: the C library's abort message, other last words, what was still in a buffer (`unwritten`)."""
    fields: dict[str, str] = {}
    """Values parsed from the line."""


class Evidence(_Fact, frozen=True):
    """One fact that supports a finding; the fields that are set say where it was found."""

    text: str
    thread: Optional[int] = None
    """The thread's tid."""
    frame: Optional[int] = None
    """Index into that thread's frames."""
    log: Optional[int] = None
    """Index into the report's log lines."""
    module: Optional[str] = None


class Finding(_Fact, frozen=True):
    """A known failure that matches the crash, with its cause and fixes."""

    id: str
    title: str
    confidence: str
    """certain (the facts allow no other cause), likely, possible."""
    severity: Optional[str] = None
    summary: Optional[str] = None
    """What happened, with this crash's own names in it."""
    cause: Optional[str] = None
    fix: tuple[str, ...] = ()
    """Fixes ready to copy: a patch, a command, a variable."""
    next_steps: tuple[str, ...] = ()
    """How to confirm the finding."""
    evidence: tuple[Evidence, ...] = ()
    references: tuple[str, ...] = ()


class LookedFor(_Fact, frozen=True):
    """A known failure that came close and was not found."""

    id: str
    title: str
    verdict: str
    """contradicted (a fact excludes it), undecided (the evidence does not show it either way)."""
    by: Optional[str] = None
    """contradicted: the fact that excludes it; undecided: what would have to be known."""


class Fingerprint(_Fact, frozen=True):
    """A hash of the frames that identify the crash; equal for equal crashes."""

    version: Optional[int] = None
    """Version of the algorithm: only hashes of the same version are comparable."""
    hash: Optional[str] = None
    frames: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Why each frame was used or omitted."""


class SoftError(_Fact, frozen=True):
    """Something that could not be done; the rest of the report is still valid."""

    stage: str
    message: str
    hint: Optional[str] = None
    """What to try."""


class Sibling(_Fact, frozen=True):
    """Another process of the run that was alive when this one died, and its stacks. Ranks of a job are in `Crash.job`."""

    pid: Optional[int] = None
    """In its own PID namespace."""
    argv: tuple[str, ...] = ()
    """Its command line."""
    why: Optional[str] = None
    """Why it was examined, in one line."""
    folder: Optional[str] = None
    """Its own crash folder, inside that of the crash."""
    threads: tuple[Thread, ...] = ()
    """Those that ran Python code, the main thread first, without values of variables."""


class Crash(_Fact, frozen=True):
    """Everything known of one crash: the root object of `report.json`."""

    schema: str = msgspec.field(default_factory=lambda: SCHEMA)
    crashkit: Optional[str] = None
    id: Optional[str] = None
    time: Optional[str] = None
    """When the core was written, UTC, ISO 8601."""
    source: Optional[Source] = None
    process: Optional[Process] = None
    signal: Optional[Signal] = None
    python: Optional[PythonRuntime] = None
    crashed_thread: Optional[int] = None
    threads: tuple[Thread, ...] = ()
    modules: tuple[Module, ...] = ()
    mappings: tuple[Mapping, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    """Instructions around the faulting one."""
    gpu: tuple[Gpu, ...] = ()
    """The GPU cores of the process."""
    job: Optional[Job] = None
    """The job that the process was part of."""
    siblings: tuple[Sibling, ...] = ()
    """Other processes of the run that were still alive; none if the process was part of a job."""
    waits: tuple[Wait, ...] = ()
    """Who waits for what; those of a deadlock first."""
    tasks: tuple[Task, ...] = ()
    """asyncio's tasks that had not ended, running ones first."""
    greenlets: tuple[Greenlet, ...] = ()
    """Greenlets that had not ended, running ones first; none if each thread had only its own."""
    log: tuple[LogLine, ...] = ()
    last_words: tuple[str, ...] = ()
    """The last lines that the process wrote, from its log, without faulthandler's dump."""
    unwritten: tuple[str, ...] = ()
    """The last lines that it had printed to standard output or error, and that were still in its buffers as it died: no log has them. A
    forked process may have what its parent had printed before, too."""
    findings: tuple[Finding, ...] = ()
    ruled_out: tuple[str, ...] = ()
    """Ids of those in `looked_for` that a fact contradicts."""
    looked_for: tuple[LookedFor, ...] = ()
    """Set where no cause was found."""
    next_steps: tuple[str, ...] = ()
    """What to do next. Set if no cause was found."""
    fingerprint: Optional[Fingerprint] = None
    soft_errors: tuple[SoftError, ...] = ()
    masked: Optional[int] = None
    """How often `<masked>` replaces in this document what looks like a secret (docs/secrets.md)."""
    debugger: Optional[str] = None
    """Name and version of the debugger that produced the native frames."""
    seconds: dict[str, float] = {}
    """Wall time of each stage."""

    @property
    def thread(self) -> Optional[Thread]:
        """The crashed thread: the one that is marked as such, or the one whose tid the crash names."""
        marked = next((thread for thread in self.threads if thread.crashed), None)
        if marked is not None or self.crashed_thread is None:
            return marked
        return next((thread for thread in self.threads if thread.tid == self.crashed_thread), None)

    @property
    def failed_gpu(self) -> Optional[Gpu]:
        """The GPU core that says why the process ended; None if there is none, or if a fault on the CPU ended it."""
        failed = next((gpu for gpu in self.gpu if gpu.exceptions), None)
        if self.signal is None:
            return failed or next(iter(self.gpu), None)
        if self.signal.name != "SIGABRT":
            return None
        # A dump on request has no exception; the driver aborts then, too.
        thread = self.thread
        return failed or next((gpu for gpu in self.gpu if thread is not None and thread.tid in gpu.context_threads), None)


def encode_extension(value: Any) -> str:
    """`enc_hook` of msgspec for the types above."""
    if isinstance(value, (Address, Offset)):
        return str(value)
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


def decode_extension(kind: type, value: Any) -> Any:
    """`dec_hook` of msgspec for the types above."""
    if kind in (Address, Offset):
        return kind(int(value, 16))
    raise NotImplementedError(f"cannot decode {kind.__name__}")
