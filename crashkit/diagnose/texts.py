"""Fills a signature's texts with this crash's own names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Optional

from crashkit.diagnose import gpu
from crashkit.diagnose.case import Case, Native, Stack
from crashkit.diagnose.places import python_line
from crashkit.memory import mapping_at
from crashkit.model import Crash, NativeFrame, PythonFrame
from crashkit.naming.collector import in_collector
from crashkit.naming.cython import cython_name
from crashkit.naming.failing import extension, failing, said
from crashkit.naming.interrupted import handler_at, handler_said
from crashkit.naming.machinery import python_call
from crashkit.naming.own_code import installed_as, is_own
from crashkit.naming.values import bad_pointer, number, zeros

_NAME = re.compile(r"\{(?P<name>[a-z_]\w*)(?:\|(?P<otherwise>[^{}]*))?\}")


# The end of a phrase needs no comma before other punctuation.
_NOTHING = "\0"
"""In the place of an unknown name without a fallback text, until the space before it is gone, too."""
_UNKNOWN = "\ue002"
"""In the place of an unknown name that has no fallback, unless it is itself in a fallback that is not used."""
_BEFORE_NOTHING = re.compile(r" \0(?=[ .,:;)]|$)")
_COMMA = re.compile(r",([.,:;)]|$)")
_TWICE = re.compile(r"(?<=[^.\s][.!?])\.(?=\s|$)|(?<=\.{3})\.")
"""A value may be a whole sentence: its own end is enough."""

_NO_FILES = ("/dev/zero", "/memfd:", "/SYSV")
"""How the kernel names shared memory that was mapped without a file."""
_LONGEST_COMMAND = 120

# setproctitle writes over the arguments: "gunicorn: worker [app:app]", "ray::train()", "postgres: writer".
_TITLE = re.compile(r": |::|\]$")
# multiprocessing's spawn and forkserver, loky, Ray, torch.compile's pool, Spark.
_WORKER = re.compile(
    r"^--multiprocessing-fork$|^from multiprocessing\.|popen_loky_|/ray/_private/workers/|/ray/workers/|/torch/_inductor/compile_worker/"
    r"|^pyspark\.(?:daemon|worker)$"
)

# Braces of a value are no names.
_HIDE = str.maketrans("{}", "\ue000\ue001")
_SHOW = str.maketrans("\ue000\ue001", "{}")


def names(case: Case) -> dict[str, str]:
    """What every text can use: signal, address, fault_file or else fault_memory (what is mapped there), function, thread, python (the
    user's own line, or else a library's), own_python (nothing but the user's own), source, executable, command (to type again), culprit and
    culprit_value (the variable that was used as a pointer), misused (its value, if that is the fault address and not 0), zero (the only
    variable of the line that is 0, where an integer division failed), parameter and callee (where that is a library's own), extension,
    extension_file and package (of the function that failed),
    core, live_pid, env_NAME, blocking_run, unseen (where the faulting instruction is not known), no_stack (where that of the dead process
    is not known), own_stack (else: its line), handler and interrupted (a signal handler that failed, and the line that it interrupted),
    handler_name (its name in C), what a GPU core shows first, what an assertion of a kernel checks, what (the message of a C++ exception)
    and thrown (its type)."""
    crash = case.crash
    found: dict[str, Optional[str]] = {}
    if crash.signal is not None:
        found["signal"] = crash.signal.name
        found["address"] = str(crash.signal.address) if crash.signal.address is not None else None
        found["access"] = crash.signal.access
        found |= _at_fault(crash)
    if not any(instruction.faulting for instruction in crash.instructions):
        found["unseen"] = "The evidence does not show"
    if case.crashed is not None:
        found |= _of_crashed(case)
    # A traceback may be that of the process which only saw the end of the other.
    if (case.crashed is None or not case.crashed.natives) and not any(line.kind == "fatal-python-error" for line in crash.log):
        found["no_stack"] = "The worker's own stack is not in this text."
    else:
        found["own_stack"] = found.get("python")
    if crash.process is not None:
        found["executable"] = crash.process.executable
        found["command"] = _command(crash.process.argv)
        found["pid"] = str(crash.process.pid) if crash.process.pid is not None else None
        found["live_pid"] = found["pid"] if crash.source is not None and crash.source.kind == "live" else None
    if crash.source is not None and crash.source.kind == "core":
        found["core"] = shlex.quote(crash.source.archive or crash.source.path)
    found |= {f"env_{name}": shlex.quote(value) for name, value in case.environment.items() if value.isprintable()}
    if case.environment.get("CUDA_LAUNCH_BLOCKING") == "1":
        found["blocking"] = "launches were blocking, so it is the failing call"
    if crash.failed_gpu is not None:
        found |= gpu.names(crash, crash.failed_gpu)
    found |= gpu.assertion_names(crash)
    found["blocking_run"] = None if _launch_is_known(case) else "CUDA_LAUNCH_BLOCKING=1"
    found["what"] = next((line.fields.get("what") for line in crash.log if line.kind == "what"), None)
    found["heap"] = next((line.fields.get("heap") for line in crash.log if (line.kind or "").startswith("heap-")), None)
    found["python_error"] = next((line.fields.get("python_error") for line in crash.log if line.kind == "cxx-python-error"), None)
    ends = (line.fields for line in crash.log if (line.kind or "").startswith("terminate"))
    found["thrown"] = next((fields["type"] for fields in ends if "type" in fields), None)
    return {name: value for name, value in found.items() if value}


def _at_fault(crash: Crash) -> dict[str, Optional[str]]:
    """The file that is mapped at the fault address, or the range that has none."""
    address = crash.signal.address if crash.signal is not None else None
    mapping = mapping_at(crash.mappings, address) if address is not None else None
    if mapping is None:
        return {}
    if mapping.path is not None and mapping.path.startswith("/") and not mapping.path.startswith(_NO_FILES):
        return {"fault_file": mapping.path}
    return {"fault_memory": f"the memory from {mapping.start} to {mapping.end}" + (f" ({mapping.path})" if mapping.path else "")}


def _command(argv: Sequence[str]) -> Optional[str]:
    """The command line to type again; None where it is not known, too long for a line, or not one that a person can type: a worker's,
    which its parent started with pipes to itself, or a title that the process gave itself."""
    command = shlex.join(argv)
    if argv and (_TITLE.search(argv[0]) or any(_WORKER.search(word) for word in argv[1:])):
        return None
    return command if 0 < len(command) <= _LONGEST_COMMAND and command.isprintable() else None


def _launch_is_known(case: Case) -> bool:
    """Whether the line that launched the kernel is known: blocking launches would show nothing more."""
    core = case.crash.failed_gpu
    return core is not None and core.launched_from is not None and core.launched_from.exact


def _of_crashed(case: Case) -> dict[str, Optional[str]]:
    stack = case.crashed
    if stack is None:
        return {}
    tid = stack.thread.tid
    found: dict[str, Optional[str]] = {"tid": str(tid) if tid is not None else None}
    found["who"] = f"thread {tid}" if tid is not None else None
    found["function"], found["module"], found["offset"] = _failed_in(stack, case)
    frame, at = stack.own_python(), handler_at(stack.thread.frames, case.crash.signal)
    if at is not None:
        found["handler"] = handler = handler_said(stack.thread.frames, at)
        found["handler_name"] = handler if handler.isidentifier() else None
        found["interrupted"] = python_line(frame) if frame is not None else "other code"
    # A line that only set off a garbage collection, or that a signal interrupted, is not to blame.
    elif frame is not None and not in_collector(stack.thread) and not _only_raised(frame, case):
        found["python"] = python_line(frame)
        found["own_python"] = python_line(frame) if is_own(frame) else None
        found["source"] = frame.source
    if frame is not None and "python" in found and len(nothing := zeros(frame, case.crash.signal)) == 1:
        found["zero"] = nothing[0].name
    wrong = bad_pointer(stack.thread, case.crash.signal)
    if wrong is not None and "python" in found:
        # A library's parameter is not a variable that the user has.
        found["culprit" if wrong.frame is frame else "parameter"], found["culprit_value"] = wrong.name, wrong.text
        found["callee"] = wrong.frame.function
        if (value := number(wrong.text)) and case.crash.signal is not None and value == case.crash.signal.address:
            found["misused"] = f"the number {value} as a pointer"
    else:
        found["blamed"] = _blamed(stack, case)
    if (native := _foreign(stack, case)) is not None:
        found["extension"], found["package"] = shlex.quote(native.module.rpartition("/")[2]), _package(native, case)
        found["extension_file"] = native.module
    return found


def _only_raised(frame: PythonFrame, case: Case) -> bool:
    """Whether the line raised an exception that was printed, and the process ended itself after that."""
    return frame.origin == "traceback" and case.crash.signal is not None and case.crash.signal.name == "SIGABRT"


def _blamed(stack: Stack, case: Case) -> Optional[str]:
    """The function `_foreign`, as it is said."""
    native = _foreign(stack, case, named=True)
    if native is None:
        return None
    name = cython_name(native.frame.function or "", native.module) or native.name
    return f"{name} in {native.module.rpartition('/')[2]}"


def _foreign(stack: Stack, case: Case, named: bool = False) -> Optional[Native]:
    """The innermost native function that failed or called what failed, outside of the C library and the interpreter."""
    interpreter = case.crash.python.executable if case.crash.python else None
    index = extension(stack.thread.frames, case.crash.signal, interpreter, named)
    return next((native for native in stack.whole if native.index == index), None)


def _package(native: Native, case: Case) -> Optional[str]:
    """What pip calls the package of the function. A module's folder tells it only if a distribution of that name was loaded: that `cv2`
    is opencv-python cannot be guessed, and a wrong name would install a stranger's package."""
    name = re.sub(r"[-_.]+", "-", installed_as(native.module) or "").lower()
    return name if case.crash.process is not None and name in case.crash.process.versions else None


def _failed_in(stack: Stack, case: Case) -> tuple[Optional[str], Optional[str], Optional[str]]:
    """The function that failed, its module as a word of a shell where that is a file, and its offset there.

    A comma ends the name of code without a function's name: a phrase.
    """
    frames = stack.thread.frames
    index = failing(frames, case.crash.signal)
    frame = frames[index] if index is not None else None
    if index is None or not isinstance(frame, NativeFrame):
        return None, None, None
    name = python_call(frame.function) or said(frames, index)
    offset = str(frame.offset) if frame.offset is not None else None
    module = frame.module or ""
    # Memory that was mapped without a file has a name as well: /dev/zero (deleted), /memfd:jit (deleted), [vdso].
    is_file = module.startswith("/") and not module.endswith(" (deleted)")
    return f"{name}," if ", " in name and not frame.function else name, shlex.quote(module) if is_file else None, offset


def fill(text: str, known: dict[str, str]) -> Optional[str]:
    """The text with its names replaced; None if one is unknown and has no fallback text."""

    def replace(match: re.Match[str]) -> str:
        value = known.get(match["name"])
        if value is not None:
            # With it goes the fallback, and what is unknown in that.
            return value.translate(_HIDE)
        return _UNKNOWN if match["otherwise"] is None else match["otherwise"] or _NOTHING

    # From the inside out: {name|{other|text}}.
    while (filled := _NAME.sub(replace, text)) != text:
        text = filled
    unknown = _UNKNOWN in text
    text = _BEFORE_NOTHING.sub("", text).replace(_NOTHING, "")
    text = _TWICE.sub("", _COMMA.sub(r"\1", text.translate(_SHOW)))
    return None if unknown else f"Code {text[5:]}" if text.startswith("code in ") else text


def fill_all(texts: Iterable[str], known: dict[str, str]) -> tuple[str, ...]:
    """The filled texts, without those that use an unknown name."""
    return tuple(filled for text in texts if (filled := fill(text, known)) is not None)
