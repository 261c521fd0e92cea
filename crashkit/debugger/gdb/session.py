"""Requests to gdb for one core: open it, take native stacks, take Python stacks, demangle names.

Requests and results are JSON files in a private folder (gdb_scripts/README.md); bulk data through MI is slow to parse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

import msgspec
from msgspec.structs import astuple

from crashkit.arch import Architecture
from crashkit.debugger.gdb.process import Gdb, commands_file, in_console, open_core, quote
from crashkit.debugger.gdb.reads import log_reads
from crashkit.errors import DebuggerError
from crashkit.evidence.core.walk import Step
from crashkit.limits import WHOLE_STACK
from crashkit.prepared import prepared
from crashkit.scratch import Scratch

_FRAMES = WHOLE_STACK
_LEAST_FRAMES = 1000
"""Of each thread, once others have taken as many as are read whole."""
_PYTHON_FRAMES = 1000
_OUTER_FRAMES = 200
"""Of a stack deeper than that, how much of its outer end is taken."""
_DETAILED_FRAMES = 64
_THREADS_WITH_LOCALS = 64
_VARIABLES = 64
_TEXT = 200
_MOST_RESULT = 512 << 20


class PlacedModule(msgspec.Struct, frozen=True):
    """A module for gdb: the file to load (None: not on this machine) and where it lay."""

    file: Optional[Path]
    base: int
    end: int
    bias: int
    lacks_tables: bool = False
    """Whether its code has no unwind tables, so that gdb can only guess the callers of its frames."""


class NativeRow(msgspec.Struct, frozen=True):
    """One native frame, as `crashkit_native.py` writes it. `kind` is normal, inline or signal."""

    pc: int
    kind: str
    sp: Optional[int] = None
    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    debug: bool = False
    args: dict[str, str] = {}
    locals: dict[str, str] = {}
    found: bool = False
    """True for a frame found by a search of the stack, not by a step from the one before."""


class NativeThread(msgspec.Struct, frozen=True):
    """The native stack of one thread, innermost frame first; `lwp` is its tid."""

    lwp: int
    frames: tuple[NativeRow, ...] = ()
    outer: tuple[NativeRow, ...] = ()
    """The outer end of a stack too deep to walk; the frames between it and `frames` are omitted."""
    cut: Optional[str] = None
    """Why `frames` ends before the stack does: `limit`, or the debugger's words."""


class NativeResult(msgspec.Struct, frozen=True):
    """The answer of `-crashkit-native`."""

    threads: tuple[NativeThread, ...] = ()
    loaded: tuple[str, ...] = ()
    abort_message: Optional[str] = None
    """What glibc said when it aborted the process."""
    errors: tuple[str, ...] = ()


class PythonRow(msgspec.Struct, frozen=True):
    """One Python frame, as `crashkit_python.py` writes it. `entry` is true where an interpreter call began with it."""

    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    entry: Optional[bool] = None
    args: tuple[str, ...] = ()
    locals: dict[str, str] = {}


class PythonThread(msgspec.Struct, frozen=True):
    """The Python stack of one thread, innermost frame first; `ident` is its pthread ident, `lwp` its tid."""

    ident: int
    lwp: Optional[int] = None
    name: Optional[str] = None
    frames: tuple[PythonRow, ...] = ()
    outer: tuple[PythonRow, ...] = ()
    """The outer end of a deep stack."""
    total: Optional[int] = None
    """How many frames a deep stack has."""
    cut: bool = False
    """True if the walk broke off: the outer frames are unknown."""


class PythonResult(msgspec.Struct, frozen=True):
    """The answer of `-crashkit-python`."""

    version: Optional[str] = None
    gil: Optional[int] = None
    """Ident of the thread that holds the GIL; 0 where none did, None where it is not known."""
    finalizing: Optional[bool] = None
    threads: tuple[PythonThread, ...] = ()
    threads_without_locals: int = 0
    errors: tuple[str, ...] = ()


class Session:
    """One gdb with one core: a context manager. It ends the gdb, unless it was given one.

    `gdb` is an already started one, and `opened` the token of the command that opens the core, if it has got that.

    Nothing waits for gdb before the first answer is taken: requests queue up, and gdb works them off one after the other.

    `indexes` is a private folder where gdb keeps the indexes of debug info that it made, by build-id, for the next session.
    `reads` is a file into which gdb logs which memory it reads.

    Raises DebuggerError where gdb is missing; the first answer raises it where gdb is too old, without Python, or cannot open the core.
    """

    def __init__(
        self,
        core: Path,
        deadline: float,
        program: str = "gdb",
        debug_folders: Sequence[Path] = (),
        sysroot: Optional[Path] = None,
        gdb: Optional[Gdb] = None,
        indexes: Optional[Path] = None,
        reads: Optional[Path] = None,
        opened: Optional[int] = None,
    ) -> None:
        self._folder = Scratch("gdb")
        self._is_own = gdb is None
        self._count = 0
        try:
            self._gdb = gdb or Gdb(deadline, program)
        except BaseException:
            self._folder.close()
            raise
        try:
            self._features: Optional[int] = self._gdb.send("-list-features")
            self._commands = self._gdb.send(in_console("python gdb.MICommand"))
            self._set_up = [self._gdb.send("-gdb-version")]
            if debug_folders:
                self._prepare(f"set debug-file-directory {':'.join(map(str, debug_folders))}")
            if sysroot:
                # Read-only data is not in a core: gdb reads it from the files that were mapped.
                self._prepare(f"set sysroot {sysroot.absolute()}")
            if indexes:
                # Half of gdb's time for an interpreter with debug info goes into its index: another core needs the same.
                self._prepare(f"set index-cache directory {indexes.absolute()}")
                self._prepare("set index-cache enabled on")
            if reads:
                log_reads(self._prepare, reads)
            self._set_up.append(opened if opened is not None else self._gdb.send(open_core(core, self._folder.path)))
            self._prepare(f"source {commands_file()}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """End gdb, if it was started here, and delete the private folder."""
        if self._is_own:
            self._gdb.close()
        self._folder.close()

    @property
    def version(self) -> str:
        """gdb's name and version. Raises DebuggerError as the first answer does."""
        self._opened()
        return self._gdb.version()

    @property
    def pid(self) -> int:
        """gdb's own process id."""
        return self._gdb.pid

    def native(
        self,
        modules: Sequence[PlacedModule],
        crashed: Optional[int],
        entry: Optional[int] = None,
        frames: int = _FRAMES,
        architecture: Optional[Architecture] = None,
        steps: Sequence[Step] = (),
    ) -> Callable[[], NativeResult]:
        """Ask for native frames of every thread; arguments and locals for the inner frames of the crashed one. The result takes the answer.

        `entry` is the address at which the process began, to recognise the outer end of its main thread's stack.
        `architecture` says how to search for that end on a deep stack. `steps` lead out of modules without unwind
        tables: gdb would guess.
        """
        rows = [
            {"file": _name(module.file), "base": module.base, "end": module.end, "bias": module.bias, "lacks_tables": module.lacks_tables}
            for module in modules
        ]
        limits = {
            "frames": frames,
            "least": min(frames, _LEAST_FRAMES),
            "outer": _OUTER_FRAMES,
            "detailed": _DETAILED_FRAMES,
            "variables": _VARIABLES,
            "text": _TEXT,
        }
        request = {
            "modules": rows,
            "crashed": crashed,
            "entry": entry,
            "limits": limits,
            "steps": list(map(astuple, steps)),
            **_scan(architecture),
        }
        return self._ask("native", request, NativeResult)

    def python(
        self,
        libpython: Path,
        module: Optional[PlacedModule] = None,
        crashed: Optional[int] = None,
        idents: Sequence[tuple[int, int]] = (),
        names: bool = True,
    ) -> Callable[[], PythonResult]:
        """Ask for Python frames of every thread. The result takes the answer. `module` is the interpreter's: some stack may not need it.

        `crashed` is the pthread ident of the thread whose local variables must be read, `idents` each thread's tid and ident.
        `names`: whether the names of threads are wanted.
        """
        limits = {
            "python_frames": _PYTHON_FRAMES,
            "threads_with_locals": _THREADS_WITH_LOCALS,
            "outer": _OUTER_FRAMES,
            "variables": _VARIABLES,
            "text": _TEXT,
        }
        request = {
            "libpython": str(libpython),
            "file": str(module.file) if module else None,
            "bias": module.bias if module else 0,
            "crashed": crashed,
            "idents": idents,
            "names": names,
            "limits": limits,
        }
        if module is not None and _name(module.file) is None:
            what = f"gdb cannot load a file with this name: {str(module.file)!r}"
            return _failing(DebuggerError(what, "Rename the file to printable characters."))
        return self._ask("python", request, PythonResult)

    def demangle(self, names: Sequence[str]) -> dict[str, str]:
        """Readable names by mangled name. Raises DebuggerError."""
        if not names:
            return {}
        answer: dict[str, dict[str, str]] = self._ask("demangle", {"names": list(names)}, dict[str, dict[str, str]])()
        return answer["names"]

    def _prepare(self, command: str) -> None:
        self._set_up.append(self._gdb.send(in_console(command)))

    def _opened(self) -> None:
        """Wait until gdb has opened the core. Raises DebuggerError."""
        if self._features is not None:
            features, self._features = self._features, None
            if "python" not in self._gdb.response(features).get("features", []):
                raise DebuggerError("this gdb was built without Python", "Install gdb 12 or newer with Python support.")
            try:
                self._gdb.response(self._commands)
            except DebuggerError as error:
                raise DebuggerError("this gdb is older than 12 (it has no gdb.MICommand)", "Install gdb 12 or newer.") from error
        while self._set_up:
            self._gdb.response(self._set_up.pop(0))

    def _ask(self, command: str, request: dict[str, Any], kind: Any) -> Callable[[], Any]:
        self._count += 1
        folder = self._folder.path
        asked, answered = folder / f"{self._count}.request", folder / f"{self._count}.result"
        try:
            asked.write_bytes(msgspec.json.encode(request))
        except (OSError, UnicodeEncodeError) as error:
            hint = "Free space in TMPDIR, and use printable file names."
            return _failing(DebuggerError(f"cannot write the request for gdb: {error}", hint))
        token = self._gdb.send(f"-crashkit-{command} {quote(str(asked))} {quote(str(answered))}")

        def answer() -> Any:
            self._opened()
            self._gdb.response(token)
            try:
                if answered.stat().st_size > _MOST_RESULT:
                    raise DebuggerError(
                        "gdb's response is too long", "The core may be damaged; run with --no-gdb to get the rest of the report."
                    )
                return decoded(answered.read_bytes(), kind)
            except OSError as error:
                raise DebuggerError(f"cannot read gdb's response: {error}", "Try another version of gdb.") from error

        return answer


def decoded(data: bytes, kind: Any) -> Any:
    """What a script inside gdb wrote. Raises DebuggerError."""
    try:
        return msgspec.json.decode(data, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DebuggerError(f"cannot read gdb's response: {error}", "Try another version of gdb.") from error


def _scan(architecture: Optional[Architecture]) -> dict[str, Any]:
    if architecture is None or architecture.scan is None:
        return {}
    calls = [(len(call.mask), *(int.from_bytes(part, "little") for part in call)) for call in architecture.scan.calls]
    return {"scan": {"calls": calls, "registers": architecture.scan.registers}, "thread_pointer": architecture.thread_pointer}


def _failing(error: DebuggerError) -> Callable[[], Any]:
    """The answer to what could not be asked."""

    def answer() -> Any:
        raise error

    return answer


def _name(file: Optional[Path]) -> Optional[str]:
    """The file's name, or None where gdb would take it for something else: a newline in it would begin another command."""
    return str(file) if file is not None and str(file).isprintable() else None
