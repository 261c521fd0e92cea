"""The CPU side of a GPU crash: which thread, and which of its Python lines, launched the kernel.

A dump does not say. Its contexts name the driver's own threads, of which one aborts the process. Launches are asynchronous unless
CUDA_LAUNCH_BLOCKING is set: then the thread waits inside the launch, and its line is the one; otherwise it has moved on, and its line is
where the error was noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from crashkit.model import Frame, Gpu, LaunchedFrom, NativeFrame, PythonFrame, Thread
from crashkit.naming.cuda import cuda_call
from crashkit.naming.functions import plain, short_function
from crashkit.naming.itanium import demangled
from crashkit.naming.own_code import own_line, python_frames
from crashkit.regex import regex

_COMPILED = regex(r"/torch/_(?:inductor|functorch)/")
_TARGET = r"(?:\w+|\([\w\s,]*\))"
_ASSIGNED = regex(rf"\s*({_TARGET}(?:\s*,\s*{_TARGET})*)\s*=[^=]")
_STUB = "__device_stub__"
"""What nvcc puts before the name of the host function that launches a kernel."""
_STUBS = 6
"""Frames outside CUDA's among which that function is."""
_DEFINED = regex(r"\s*(?:async\s+)?(?:def|class)\s")
_MOST_CANDIDATES = 16
_RANK = {"launch": 0, "wait": 1, "other": 2}


class _Candidate(NamedTuple):
    rank: int
    without_python: bool
    thread: Thread
    function: str
    call: int
    """Index of the frame in CUDA."""


def belongs(gpu: Gpu, threads: Iterable[Thread], pid: Optional[int]) -> Optional[bool]:
    """Whether a dump is of the process with these threads; None if neither the dump nor its name tells."""
    tids = {thread.tid for thread in threads} - {None}
    if tids and gpu.context_threads:
        return not tids.isdisjoint(gpu.context_threads) or gpu.pid in tids
    return None if gpu.pid is None or pid is None else gpu.pid == pid


def launched_from(gpu: Gpu, threads: Sequence[Thread], environment: Mapping[str, str]) -> Optional[LaunchedFrom]:
    """The thread and line that launched what failed; exact only if launches were blocking and one thread was in one."""
    candidates = list(filter(None, (_candidate(thread) for thread in threads if thread.tid not in gpu.context_threads)))
    if not candidates:
        return _only_python(gpu, threads)
    failed, running = _kernels(gpu), {kernel.name for kernel in gpu.kernels if kernel.name}
    named = {id(one): _launched_here(one, failed | running) for one in candidates}
    found = sorted(candidates, key=lambda one: (*one[:2], failed.isdisjoint(named[id(one)])))
    best = found[0]
    launching = [one for one in found if one.rank == _RANK["launch"]]
    blocking = environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
    # Of several threads inside a launch, each of another kernel, it is the one that names what failed.
    apart = all(named[id(one)] and failed.isdisjoint(named[id(one)]) for one in launching[1:])
    exact = blocking and bool(gpu.exceptions and launching) and (len(launching) == 1 or (not failed.isdisjoint(named[id(best)]) and apart))
    frame = _line(best.thread, best.call)
    line, source = (None, None) if exact else _naming(best.thread.frames[frame], _kernels(gpu))
    others = () if exact else tuple(one.thread.tid or 0 for one in found[1:] if one[:2] == best[:2])
    return LaunchedFrom(
        thread=best.thread.tid or 0,
        frame=frame,
        exact=exact,
        function=best.function,
        candidates=others[:_MOST_CANDIDATES],
        line=line,
        source=source,
    )


def _only_python(gpu: Gpu, threads: Sequence[Thread]) -> Optional[LaunchedFrom]:
    """The only thread that ran Python, where no native stack tells which one used CUDA."""
    running = [thread for thread in threads if thread.tid is not None and python_frames(thread)]
    if len(running) != 1 or running[0].python_frames:
        return None
    frame = _line(running[0], 0)
    line, source = _naming(running[0].frames[frame], _kernels(gpu))
    return LaunchedFrom(thread=running[0].tid or 0, frame=frame, line=line, source=source)


def _kernels(gpu: Gpu) -> set[str]:
    """Names by which Python code may call the kernels that failed or ran: not those of libraries, which nobody writes."""
    names = [item.kernel for item in gpu.exceptions if not item.known_as] or [item.name for item in gpu.kernels if not item.known_as]
    return {name for name in names[:1] if name and name.isidentifier()}


def _naming(frame: Frame, kernels: set[str]) -> tuple[Optional[int], Optional[str]]:
    """The only line shortly before the frame's own, or that one, that launches one of the kernels, by its name or by a variable for it."""
    if not isinstance(frame, PythonFrame) or frame.line is None or frame.context_start is None:
        return None, None
    before = {number: text for number, text in enumerate(frame.context, frame.context_start) if number <= frame.line}
    code = {number: text.partition("#")[0] for number, text in before.items() if not _DEFINED.match(text)}
    named = {number: text for number, text in code.items() if kernels & set(re.findall(r"\w+", text))}
    launching = _calling(named, kernels)
    if not launching:
        made = {number: set(re.findall(r"\w+", match[1])) for number, text in named.items() if (match := _ASSIGNED.match(text))}
        # Several names at once, one of them the kernel's own: which of the others would be the kernel's?
        single = {next(iter(names)) for names in made.values() if len(names) == 1}
        launching = _calling(code, single - kernels) or [number for number in named if number not in made]
    return (launching[0], before[launching[0]].strip()) if len(launching) == 1 else (None, None)


def _launched_here(candidate: _Candidate, kernels: set[str]) -> set[str]:
    """Which of these kernels the thread's launch names: by the function of nvcc's that launches it, or by the Python line."""
    frames = candidate.thread.frames
    outside = [frame for frame in frames[candidate.call + 1 :] if isinstance(frame, NativeFrame) and frame.function][:_STUBS]
    stubs = {short_function(demangled((frame.function or "").removeprefix(_STUB))) for frame in outside}
    line = frames[_line(candidate.thread, candidate.call)]
    code = (line.source or "").partition("#")[0] if isinstance(line, PythonFrame) else ""
    return {name for name in kernels if name in stubs or (name.isidentifier() and _calling({0: code}, {name}))}


def _calling(lines: Mapping[int, str], names: set[str]) -> list[int]:
    """The lines that call one of these, or index it as launches do: `kernel[grid](...)`."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\s*[\[(]") if names else None
    return [number for number, text in lines.items() if pattern is not None and pattern.search(text)]


def _candidate(thread: Thread) -> Optional[_Candidate]:
    if thread.tid is None:
        return None
    calls = [
        (call, index, name)
        for index, frame in enumerate(thread.frames)
        if isinstance(frame, NativeFrame) and frame.function and (call := cuda_call(name := plain(frame.function)))
    ]
    if not calls:
        return None
    # The driver calls itself: what the thread asked for is the outermost call of the innermost run of CUDA frames.
    telling = min(calls, key=lambda call: (_RANK[call[0]], call[1]))
    return _Candidate(_RANK[telling[0]], not python_frames(thread), thread, telling[2], telling[1])


def _line(thread: Thread, call: int) -> int:
    """The user's own line outside the call, else the innermost Python line, else the call itself."""
    if thread.python_frames:
        return call
    outside = [frame for frame in thread.frames[call:] if isinstance(frame, PythonFrame)]
    compiled = max((index for index, frame in enumerate(outside) if _COMPILED.search(frame.file or "")), default=-1)
    # What torch.compile wrote is nobody's own line, wherever its cache is.
    chosen = own_line(outside[compiled + 1 :]) or own_line(outside) or next(iter(outside), None)
    # By identity: the same line may be on the stack twice.
    return call if chosen is None else next(index for index, frame in enumerate(thread.frames) if frame is chosen)
