"""What makes two crashes the same: a hash over the few frames that identify the place.

From the crashed thread's stack below the abort machinery: the innermost native frame outside the C library and the interpreter, then
the innermost Python frames of the user's own code. No address, line, pid, path or thread is used, so two runs, two hosts and two
checkouts of one program give one fingerprint. Nor do the C functions of the interpreter and the C library: a stripped one has no names
for most of them. Only a stack without Python uses them; there debug info makes a difference. A recursion counts once, wherever
it was cut off. A failure on the GPU is the exception and the kernel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from itertools import groupby, takewhile
from pathlib import PurePosixPath
from typing import Optional

import msgspec

from crashkit.diagnose.stable_names import native_name, python_name
from crashkit.model import Crash, ElidedFrames, Fingerprint, Frame, Gpu, NativeFrame, PythonFrame, Thread
from crashkit.naming.machinery import handler_end, machinery_end
from crashkit.naming.own_code import is_own, python_frames

VERSION = 2
"""Of the algorithm. Hashes of different versions cannot be compared."""

_HASH_DIGITS = 16

_PREFIXES = 3
_PYTHON_FRAMES = 3
_NATIVE_FRAMES = 3
"""Of a stack without Python."""

_LONGEST_CYCLE = 64
_REPEATS = 3


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


# They surround every stack and say nothing about this one.
_ROUTINE = _words(
    r"_?start(?:_thread)?|clone3?|__clone\w*|__libc_start_\w+|main|Py_(?:Bytes|Run)?Main|pymain_\w+|pythread_wrapper",
    r"_?PyEval_\w+|do_call(?:_core)?|_?PyObject_\w*[Cc]all\w*|_PyFunction_\w+|_?PyVectorcall\w*|method_vectorcall\w*|cfunction_\w+|vectorcall_\w+",
    r"(?:c?method|slot|wrap|wrapper|type|object|partial|function)_(?:call|descr|tp_|nb_|sq_|mp_)\w*|_Py_?Cmd\w*|call_function",
    r"ffi_\w+|_ctypes_\w+|_call_function_pointer|PyCFuncPtr_call|closure_fcn|_CallPythonObject",
    r"c10::(?:impl::|Dispatcher|KernelFunction|OperatorHandle|detail::)\S*|at::_ops::\S*|torch::autograd::VariableType::\S*|at::redispatch::\S*",
    r"pybind11::(?:cpp_function|detail)\S*|std::(?:function|_Function_handler|__invoke\w*|thread)\S*",
)

# Not to blame, but informative together with the caller where there is no Python: they are taken and the search goes on.
_GENERAL_MODULES = _words(
    r"libc[.-].*|libpthread[.-].*|libm[.-].*|libstdc\+\+\.so.*|libgcc_s\.so.*|ld-linux.*|ld-musl.*|libdl[.-].*|librt[.-].*|libffi\.so.*|linux-vdso.*",
    r"libpython\d.*|python\d*(?:\.\d+)?[a-z]*|_ctypes\..*",
)

# CPython 3.12 runs them in the frame around them.
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")


class _Named(msgspec.Struct, frozen=True):
    name: str
    specific: bool
    """Its own place, not general runtime code."""


def fingerprint(crash: Crash) -> Fingerprint:
    """The fingerprint of a finished crash. If no frame is usable, its hash is None and the notes say why."""
    notes: list[str] = []
    thread = crash.thread or (crash.threads[0] if len(crash.threads) == 1 else None)
    names = _of_gpu(crash.failed_gpu, notes) if crash.failed_gpu else []
    if not names:
        names = _of_thread(thread, notes) if thread else _nothing(notes, "EMPTY: the crashed thread is unknown")
    if not names:
        return Fingerprint(version=VERSION, notes=tuple(notes))
    digest = hashlib.sha256("\n".join((str(VERSION), *names)).encode("utf-8", "backslashreplace")).hexdigest()
    return Fingerprint(version=VERSION, hash=digest[:_HASH_DIGITS], frames=tuple(names), notes=tuple(notes))


def _of_thread(thread: Thread, notes: list[str]) -> list[str]:
    frames = _below_machinery(thread.frames, notes)
    pythons = [frame for frame in python_frames(thread) if frame.function not in _COMPREHENSIONS]
    if recursion := _recursion(frames, pythons):
        notes.append(f"a recursion of {len(recursion)} replaces the inner stack: where it was cut off is random")
        through_python = recursion[0] in map(python_name, pythons)
        return ["recursion", *recursion, *([] if through_python else _pythons(pythons, notes))]
    first_python = next((at for at, frame in enumerate(frames) if isinstance(frame, PythonFrame)), len(frames))
    natives = _natives(frames[:first_python], 1 if pythons else _NATIVE_FRAMES, 0 if pythons else _PREFIXES, notes)
    names = _merged([*natives, *_pythons(pythons, notes)])
    return names or _unnamed(frames, notes)


def _of_gpu(gpu: Gpu, notes: list[str]) -> list[str]:
    """The exception, the kernel, and the function in it that failed: the thread that died is the driver's, the same for every failure."""
    if not gpu.exceptions:
        kernel = next((kernel.name for kernel in gpu.kernels if kernel.name), None)
        return ["GPU", "hang", kernel] if kernel else _nothing(notes, "the GPU core names no kernel")
    first = gpu.exceptions[0]
    if not first.kernel:
        return _nothing(notes, "the GPU core does not name the kernel that failed")
    function = next((frame.function for frame in first.frames if isinstance(frame, NativeFrame) and frame.function), None)
    notes.append("of the GPU's side: the thread that ended the process is the driver's")
    return ["GPU", first.name, first.kernel, *([function] if function and function != first.kernel else [])]


def _nothing(notes: list[str], why: str) -> list[str]:
    notes.append(why)
    return []


def _below_machinery(frames: Sequence[Frame], notes: list[str]) -> Sequence[Frame]:
    """Without the signal handler, and without what a process runs to abort itself."""
    if handled := handler_end(frames):
        notes.append(f"omitted {handled} frames of the signal handler")
        frames = frames[handled:]
    innermost = takewhile(lambda frame: isinstance(frame, NativeFrame), frames)
    if ending := machinery_end([frame.function for frame in innermost if isinstance(frame, NativeFrame)]):
        notes.append(f"omitted {ending} frames that end the process")
    return frames[ending:]


def _natives(frames: Sequence[Frame], wanted: int, prefixes: int, notes: list[str]) -> list[str]:
    """So many frames of their own place, and before them so many of general code."""
    taken: list[_Named] = []
    routine = nameless = general = 0
    for frame in frames:
        if not isinstance(frame, NativeFrame):
            continue
        if not frame.function:
            nameless += 1
            continue
        name = native_name(frame.function)
        if _ROUTINE.fullmatch(name):
            routine += 1
            continue
        specific = _is_specific(frame.module or "")
        if not specific and sum(not one.specific for one in taken) == prefixes:
            general += 1
            continue
        taken.append(_Named(name, specific))
        notes.append(f"took {name}: " + ("its own place" if specific else "general code, so the search continues"))
        if sum(one.specific for one in taken) == wanted:
            break
    if routine or nameless:
        notes.append(f"omitted {routine} native frames that surround every call and {nameless} without a name")
    if general:
        notes.append(f"omitted {general} native frames of general code: a stripped interpreter or C library would not name them")
    return [one.name for one in taken]


def _is_specific(module: str) -> bool:
    """The interpreter's own extension modules are as general as itself."""
    return "/lib-dynload/" not in module and not _GENERAL_MODULES.fullmatch(PurePosixPath(module).name)


def _pythons(frames: Sequence[PythonFrame], notes: list[str]) -> list[str]:
    if not frames:
        return []
    own = [frame for frame in frames if is_own(frame)]
    innermost = [] if not own or frames[0] is own[0] else [frames[0]]
    chosen = _merged([python_name(frame) for frame in own or frames])[:_PYTHON_FRAMES]
    library = [python_name(frame) for frame in innermost]
    if library:
        notes.append(f"took {library[0]}: the innermost Python frame")
    notes.extend(f"took {name}: " + ("the user's own code" if own else "library code: there is no user code") for name in chosen)
    left = len(frames) - len(chosen) - len(library)
    if left:
        notes.append(f"omitted {left} Python frames: further out, of libraries, or repeated")
    return [*library, *chosen]


def _merged(names: Sequence[str]) -> list[str]:
    """A function that calls itself counts once."""
    return [name for name, _ in groupby(names)]


def _recursion(frames: Sequence[Frame], pythons: Sequence[PythonFrame]) -> list[str]:
    """The functions of a recursion that fills the stack, starting with the first by name; Python's where it runs through Python."""
    for frame in frames:
        if isinstance(frame, ElidedFrames) and frame.cycle:
            names = _cycle([python_name(one) for one in pythons], least=0) if pythons else []
            return names or _canonical([native_name(name) for name in frame.cycle])
    if len(frames) < _LONGEST_CYCLE * _REPEATS:
        return []
    return _cycle([python_name(one) for one in pythons], least=len(pythons) // 2) if pythons else _cycle(_named(frames), len(frames) // 2)


def _named(frames: Sequence[Frame]) -> list[str]:
    return [native_name(frame.function) for frame in frames if isinstance(frame, NativeFrame) and frame.function]


def _cycle(names: Sequence[str], least: int) -> list[str]:
    """The shortest sequence that is repeated from near the top, over at least that many frames."""
    for start in range(min(len(names), _LONGEST_CYCLE)):
        for period in range(1, _LONGEST_CYCLE + 1):
            end = start + period
            while end < len(names) and names[end] == names[end - period]:
                end += 1
            if end - start >= max(_REPEATS * period, least) and end - start > period:
                return _canonical(names[start : start + period])
    return []


def _canonical(cycle: Sequence[str]) -> list[str]:
    """The rotation that sorts first: where a recursion was cut off does not matter."""
    return min(([*cycle[at:], *cycle[:at]] for at in range(len(cycle))), default=[])


def _unnamed(frames: Sequence[Frame], notes: list[str]) -> list[str]:
    """Nothing has a name: module and offset tell builds apart, but are all there is."""
    place: Callable[[NativeFrame], Optional[str]] = lambda frame: (  # noqa: E731
        f"{PurePosixPath(frame.module).name}+{frame.offset}" if frame.module and frame.offset is not None else None
    )
    names = [name for frame in frames if isinstance(frame, NativeFrame) and (name := place(frame))][:_NATIVE_FRAMES]
    notes.append("no frame has a name: module and offset are used instead" if names else "EMPTY: the stack has no frame that can be named")
    return names
