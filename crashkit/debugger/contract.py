"""The contract for debuggers: questions and answers. To add one, implement `Debugger` and name it in `pipeline.default_debuggers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Optional, Protocol

from crashkit.evidence.core.describe import Scene
from crashkit.interpreter.kept_sources import KeptSource
from crashkit.model import AccessedArray, NativeFrame, PendingSignal, PythonFrame, Raised, SoftError

Lap = Callable[[str], None]
"""Called with the name of each part of the work as it ends."""

IsWanted = Callable[[], bool]
"""Whether something is wanted: to be asked as late as possible, since it may wait until that is known."""


def always() -> bool:
    """It is wanted."""
    return True


def never() -> bool:
    """It is not."""
    return False


class NativeStack(NamedTuple):
    """The C, C++, ... frames of one thread, innermost first."""

    frames: tuple[NativeFrame, ...]
    """Each needs its `pc`; module and offset are filled in from it later. `trust` is set where the debugger knows more than that it
    stepped here from the frame before: inline, signal, scan."""
    outer: tuple[NativeFrame, ...] = ()
    """The outer end of a deep stack, of which `frames` is the inner one."""
    cut: bool = False
    """True where `frames` may end before the stack does."""
    between: Optional[int] = None
    """Of a deep stack, how many frames lie between `frames` and `outer`; may be an estimate."""


class PythonStack(NamedTuple):
    """One thread as the interpreter knew it, innermost frame first. Columns of frames are bytes of UTF-8, as in code objects."""

    frames: tuple[PythonFrame, ...]
    name: Optional[str]
    """What `threading` calls the thread."""
    holds_gil: Optional[bool]
    outer: tuple[PythonFrame, ...] = ()
    """The outer end of a deep stack, of which `frames` is the inner one."""
    total: Optional[int] = None
    """How many frames a deep stack has."""
    cut: bool = False
    """True where the outer frames could not be read."""
    gap: bool = False
    """True where frames may be missing between `frames` and `outer`, or, without `outer`, further in than `frames`."""
    exception: Optional[str] = None
    """The exception that the thread was handling: its type and arguments."""
    raised: tuple[Raised, ...] = ()
    """That exception with its traceback, and those from which it came."""
    pending: Optional[str] = None
    """The exception that was set and had not reached Python code."""
    collecting: Optional[bool] = None
    """Whether the thread was running the garbage collector, by the interpreter's own record."""

    @property
    def has_gaps(self) -> bool:
        """Whether a frame lacks its function or its line."""
        return any(frame.line is None or not frame.function for frame in self.frames)

    def over(self, outer: PythonStack) -> PythonStack:
        """This stack of a subinterpreter and, behind it, that of the interpreter whose code runs it on the same thread.

        The outer one knows the thread's name: in a subinterpreter, each thread that runs code is called the main one. Of stacks too
        deep to show as one, the deeper one.
        """
        if self.total or outer.total or self.cut:
            return max(self, outer, key=lambda stack: stack.total or len(stack.frames))
        return outer._replace(
            frames=(*self.frames, *outer.frames),
            name=outer.name or self.name,
            holds_gil=self.holds_gil or outer.holds_gil,
            exception=self.exception or outer.exception,
            raised=self.raised or outer.raised,
            pending=self.pending or outer.pending,
            collecting=self.collecting or outer.collecting,
        )


class Answer(NamedTuple):
    """What one debugger found out about one core. Whatever it could not read is missing here and named in `soft_errors`."""

    debugger: Optional[str] = None
    """Name and version."""
    native: Optional[Mapping[int, NativeStack]] = None
    """By tid; None where native stacks were not asked for or could not be read at all."""
    python: Optional[Mapping[int, PythonStack]] = None
    """By tid; threads without Python frames may be missing; None where Python's state could not be read at all."""
    python_is_whole: bool = True
    """False where parts of Python's state could not be read: another debugger may succeed."""
    python_version: Optional[str] = None
    """As exact as the debugger knows it: 3.11.7, or 3.11."""
    python_finalizing: Optional[bool] = None
    python_started: Optional[bool] = None
    """False if Py_Initialize() had not made an interpreter yet."""
    pending_signals: tuple[PendingSignal, ...] = ()
    """Those whose Python handlers had not run yet."""
    python_script: Optional[Path] = None
    """The libpython.py that was used."""
    symbols: Mapping[str, str] = {}
    """Where the names of a module's functions came from (full, table, exports, none), by the module's path in the core."""
    abort_message: Optional[str] = None
    """What glibc said when it aborted the process."""
    visited: Optional[str] = None
    """What the garbage collector or a finalizer was at in the crashed thread: `an object of type Node`."""
    arrays: tuple[AccessedArray, ...] = ()
    """Arrays in variables that describe the memory at the address of the fault, or of one that may have been it, or end below it."""
    loaded: tuple[str, ...] = ()
    """Files of what was imported, one for each package."""
    kept_sources: Mapping[str, KeptSource] = {}
    """Code that is in no file, by the name that its frames have in place of a file's."""
    soft_errors: tuple[SoftError, ...] = ()

    @property
    def has_no_interpreter(self) -> bool:
        """Whether no thread can have Python frames: the interpreter had not started, or was deleted."""
        return self.python_started is False or (self.python_finalizing is True and self.python == {} and self.python_is_whole)


class Debugger(Protocol):
    """A tool that reads stacks out of cores. Used once: start, examine at most twice, close."""

    @property
    def name(self) -> str:
        """A short name, for the timing of the stages."""

    def start(self) -> Optional[SoftError]:
        """Begin whatever takes time before a core is open. Returns why the debugger cannot be used, or None."""

    def reads_python(self, scene: Scene) -> bool:
        """Whether it expects to read the Python frames of this crash."""

    def examine(self, core: Path, scene: Scene, native: bool, lap: Lap, python: IsWanted = always) -> Answer:
        """Read the stacks of every thread: Python ones as far as it can, native ones where `native` is set.

        Where `python` is false, the Python ones and the names of threads are known, so only who knows more of their values need read them.

        Never raises for the core's content or a failure of the tool: that is a soft error, and results read before it are kept.
        """

    def close(self) -> None:
        """End whatever `start` began."""
