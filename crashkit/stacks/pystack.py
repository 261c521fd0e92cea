"""Python stacks by PyStack, which needs no debug info, and native stacks where there is no gdb.

PyStack runs in a process of its own with a deadline and a memory limit: what it does to itself costs only its frames.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Optional

from crashkit.environment import LIBRARY_PATH, for_tool
from crashkit.model import Address, NativeFrame, PythonFrame, SoftError
from crashkit.stacks.from_gdb import PythonStack

_INNER, _OUTER = 1000, 200
_VARIABLES = 64
_TEXT = 200
_MEMORY = 8 << 30
"""Address space beyond that of the core, which PyStack maps as a whole."""
_MOST_RESULT = 256 << 20
_INSTALL = "Install it: pip install pystack."
_UNKNOWN = "???"
_NO_FILES: Mapping[str, Path] = {}
_WORKER = Path(__file__).with_name("pystack_worker.py")


class NativeStack(NamedTuple):
    frames: tuple[NativeFrame, ...]
    """Innermost first."""
    outer: tuple[NativeFrame, ...] = ()
    """The outer end of a deep stack, of which `frames` is the inner one."""
    total: Optional[int] = None


class PystackResult(NamedTuple):
    stacks: dict[int, PythonStack] = {}
    """By tid; threads without Python frames are left out. Thread names are not told: PyStack reads this host's."""
    native: dict[int, NativeStack] = {}
    version: Optional[str] = None
    """Major and minor."""
    soft_errors: tuple[SoftError, ...] = ()


class _Failed(Exception):
    def __init__(self, message: str, hint: str, again: bool) -> None:
        super().__init__(message)
        self.hint = hint
        self.again = again
        """Less may be asked with better luck."""


def python_stacks(
    core: Path,
    executable: Path,
    files: Mapping[str, Path] = _NO_FILES,
    deadline: float = 60.0,
    locals: bool = True,
    native: bool = False,
) -> PystackResult:
    """Ask PyStack for every thread of a core.

    `executable` is its file on this machine; `files` says where modules lie that are not where the core has them, by their
    path in the core. `deadline` is in seconds. Never raises for what the core holds: a failure is a soft error.

    Frames whose code or file has a name beyond Latin-1 are silently left out by PyStack 1.7: it reads names of one byte a
    character only.
    """
    ends = time.monotonic() + deadline
    soft_errors: list[SoftError] = []
    # Locals are where most damage is met: do without before doing without stacks.
    for with_locals in (True, False) if locals else (False,):
        left = ends - time.monotonic()
        try:
            threads = _ask(core, executable, files, left / 2 if with_locals else left, with_locals, native)
            return _result(threads, soft_errors)
        except _Failed as failure:
            last = not (with_locals and failure.again)
            what = "" if last else "; it was asked again without local variables"
            soft_errors.append(SoftError(stage="pystack", message=f"{failure}{what}", hint=failure.hint))
            if last:
                break
        except OSError as error:
            hint = "Make room in TMPDIR, or point it to a folder with room."
            soft_errors.append(SoftError(stage="pystack", message=f"PyStack could not be run: {error}", hint=hint))
            break
    return PystackResult(soft_errors=tuple(soft_errors))


def _ask(core: Path, executable: Path, files: Mapping[str, Path], deadline: float, locals: bool, native: bool) -> list[dict[str, Any]]:
    if importlib.util.find_spec("pystack") is None or not sys.executable:
        raise _Failed("PyStack is not installed", _INSTALL, again=False)
    with tempfile.TemporaryDirectory(prefix="crashkit-pystack-") as folder:
        request, result = Path(folder, "request"), Path(folder, "result")
        asked = {
            "path": [str(Path(entry).absolute()) for entry in sys.path],
            "core": str(core.absolute()),
            "executable": str(executable.absolute()),
            "search_path": _link(files, Path(folder, "modules")),
            "locals": locals,
            "native": native,
            "inner": _INNER,
            "outer": _OUTER,
            "variables": _VARIABLES,
            "text": _TEXT,
            "memory": core.stat().st_size + _MEMORY,
        }
        request.write_text(json.dumps(asked))
        complaint = _run(request, result, deadline)
        if not result.exists():
            raise _Failed(
                f"PyStack {complaint}", "gdb and libpython.py give Python frames where the interpreter has debug info.", again=True
            )
        return _read(result)


def _link(files: Mapping[str, Path], folder: Path) -> str:
    """A folder with links to these files, for PyStack to search by name; '' where every file lies where the core has it."""
    moved = {name: file for name, file in files.items() if str(file) != name and ":" not in name}
    if not moved:
        return ""
    folder.mkdir()
    for name, file in moved.items():
        with suppress(FileExistsError):
            Path(folder, PurePosixPath(name).name).symlink_to(file.absolute())
    return str(folder)


def _run(request: Path, result: Path, deadline: float) -> str:
    """How the worker ended, in words."""
    command = [sys.executable, "-I", "-S", str(_WORKER), str(request), str(result)]
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            start_new_session=True,
            env=for_tool(os.environ, keep=(LIBRARY_PATH,)),
        )
        try:
            _wait(process, max(deadline, 0.1))
        except subprocess.TimeoutExpired:
            _end(process)
            return f"did not finish within {deadline:.0f} s"
        except BaseException:
            _end(process)
            raise
        size = complaints.seek(0, os.SEEK_END)
        complaints.seek(max(0, size - 4096))
        last = complaints.read().decode("utf-8", "replace").strip().splitlines()[-1:]
    how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else f"ended with status {process.returncode}"
    return f"{how}, saying: {last[0][:300]}" if last else how


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """`Popen.wait` sleeps in steps of up to 50 ms, as long as half the answer takes; the kernel can wake us (5.3 and newer)."""
    with suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll(seconds * 1000)
        finally:
            os.close(descriptor)
        seconds = 0 if process.poll() is None else seconds
    process.wait(seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(result: Path) -> list[dict[str, Any]]:
    if result.stat().st_size > _MOST_RESULT:
        raise _Failed("PyStack's answer is too long", "This core may be damaged.", again=True)
    try:
        answer = json.loads(result.read_bytes())
    except ValueError as error:
        raise _Failed("PyStack died while it wrote its answer", "Make room in the temporary folder, or set TMPDIR.", again=True) from error
    if "error" in answer:
        message = " ".join(answer["error"].split())[:300]
        raise _Failed(f"PyStack could not read this core: {message}", "Give the interpreter's own file with --exe.", again=True)
    threads: list[dict[str, Any]] = answer["threads"]
    return threads


def _result(threads: list[dict[str, Any]], soft_errors: list[SoftError]) -> PystackResult:
    """Threads by tid. Several states of one thread (subinterpreters) give one stack: the deepest."""
    stacks: dict[int, PythonStack] = {}
    native: dict[int, NativeStack] = {}
    versions = {tuple(thread["version"]) for thread in threads if thread["version"]}
    for thread in sorted(threads, key=lambda thread: thread["total"]):
        tid = thread["tid"]
        if thread["total"]:
            stacks[tid] = _python_stack(thread)
        frames = tuple(map(_native_frame, thread["native_inner"]))
        if any(frame.function for frame in frames):
            native[tid] = NativeStack(frames, tuple(map(_native_frame, thread["native_outer"])), _total(thread, "native_"))
    if not stacks:
        message = "PyStack found no Python frames in this core"
        soft_errors.append(SoftError(stage="pystack", message=message, hint="A truncated core no longer holds the interpreter's state."))
    version = ".".join(map(str, max(versions))) if versions else None
    return PystackResult(stacks, native, version, tuple(soft_errors))


def _python_stack(thread: dict[str, Any]) -> PythonStack:
    return PythonStack(
        frames=tuple(map(_python_frame, thread["inner"])),
        name=None,
        holds_gil=None if thread["gil"] < 0 else thread["gil"] > 0,
        outer=tuple(map(_python_frame, thread["outer"])),
        total=_total(thread, ""),
    )


def _total(thread: dict[str, Any], prefix: str) -> Optional[int]:
    """Only said of a stack that is not whole, as `PythonStack.total` has it."""
    return int(thread[f"{prefix}total"]) if thread[f"{prefix}outer"] else None


def _python_frame(row: dict[str, Any]) -> PythonFrame:
    return PythonFrame(
        function=_name(row["function"]),
        file=_name(row["file"]),
        line=row["line"] if row["line"] > 0 else None,
        args=tuple(map(_text, row["args"])),
        locals={_text(name): _text(value) for name, value in row["locals"].items()},
        origin="pystack",
        entry=row["entry"],
    )


# What glibc has the kernel return to from a signal handler (sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c): the fault lies below it.
_SIGNAL_RETURN = "__restore_rt"


def _native_frame(row: dict[str, Any]) -> NativeFrame:
    function = _text(row["function"])
    inlined = function.endswith(" (inlined)")
    return NativeFrame(
        function=None if function == _UNKNOWN else function.removesuffix(" (inlined)"),
        file=_text(row["file"]) if row["file"] not in ("", _UNKNOWN) else None,
        line=row["line"] or None,
        module=_text(row["module"]) or None,
        pc=Address(row["pc"]) if row["pc"] else None,
        trust="inline" if inlined else "signal" if function == _SIGNAL_RETURN else None,
    )


def _name(value: str) -> Optional[str]:
    """None for what PyStack 1.7 reads where a name is Latin-1 but not ASCII: bytes before its text (`getStringFromAddress`)."""
    return None if "\0" in value else _text(value)


def _text(value: str) -> str:
    """JSON carries lone surrogates, which no encoder takes: escaped."""
    return value.encode("utf-8", "backslashreplace").decode()
