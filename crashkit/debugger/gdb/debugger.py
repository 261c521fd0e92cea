"""gdb as a debugger: all stacks of one core, in one session. A failure becomes a soft error; results read before it are kept."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from crashkit import isolation
from crashkit.arch import Architecture, named
from crashkit.debugger.contract import Answer, IsWanted, Lap, always
from crashkit.debugger.debug_info import has_debug_info, interpreter_has_debug_info
from crashkit.debugger.gdb.ahead import Ahead
from crashkit.debugger.gdb.libpython_file import Choice, find_script
from crashkit.debugger.gdb.names import FileNames, Names, call_addresses, corrected, names_missing, usual_names, with_names
from crashkit.debugger.gdb.process import Gdb
from crashkit.debugger.gdb.rows import native_stacks, python_stacks
from crashkit.debugger.gdb.session import NativeResult, PlacedModule, PythonResult, Session
from crashkit.elf.file import open_elf
from crashkit.elf.twin import BIG, write_twin
from crashkit.elf.unwind_part import part_for
from crashkit.elf.unwind_table import UnwindTable
from crashkit.errors import DebuggerError
from crashkit.evidence.core.describe import Scene
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.evidence.interpreter import Interpreter
from crashkit.evidence.module_files import Finder
from crashkit.gdb_files import DEBUG_ROOT
from crashkit.model import SoftError
from crashkit.naming.installation import how_to_get_debug_info, is_of_conda
from crashkit.naming.itanium import demangled
from crashkit.naming.musl import is_musl
from crashkit.scratch import Scratch

MULTIARCH = "gdb-multiarch"
"""Debian's name for a gdb that supports every processor."""


class GdbSettings(NamedTuple):
    """How to run gdb and where it finds its files."""

    program: Optional[str]
    """None to go without gdb."""
    deadline: float
    """Seconds for all of it."""
    debug_folders: tuple[Path, ...]
    libpython: Optional[Path]
    """The script to use; None to look for it."""
    sysroot: Optional[Path]
    """The crashed system's root folder."""
    foreign: tuple[Path, ...] = ()
    """Further folders of files that came with the crash."""
    indexes: Optional[Path] = None
    """As in `Session`."""
    reads: Optional[Path] = None
    """As in `Session`."""
    ahead: Optional[Ahead] = None
    """A gdb that runs already; whoever started it ends it."""


class GdbDebugger:
    """gdb as a `Debugger`: native frames always, Python frames where the interpreter has debug info."""

    name = "gdb"

    def __init__(self, settings: GdbSettings, finder: Finder) -> None:
        self._settings = settings
        self._finder = finder
        self._gdb: Optional[Gdb] = None
        self._lock = threading.Lock()
        self._ended = False

    def start(self) -> Optional[SoftError]:
        """Start gdb early: it takes a moment to load."""
        if self._settings.program is None:
            hint = "Omit --no-gdb to get inlined frames, lines, arguments and locals."
            return SoftError(stage="gdb", message="gdb was disabled (--no-gdb)", hint=hint)
        if self._settings.ahead is not None:
            self._gdb = self._settings.ahead.gdb
            return None
        try:
            self._begin(self._settings.program)
        except DebuggerError as error:
            return SoftError(stage="gdb", message=str(error), hint=error.hint)
        return None

    def close(self) -> None:
        """End gdb, if it was started; later questions start none."""
        with self._lock:
            self._ended = True
            if self._gdb is None:
                return
            ahead = self._settings.ahead
            if ahead is not None and self._gdb is ahead.gdb:
                # It takes a moment to give its memory back: whoever started it waits for that.
                self._gdb.kill()
            else:
                self._gdb.close()

    def _begin(self, program: str) -> Gdb:
        """A gdb that `close` ends, from whichever thread. Raises DebuggerError, also once that was called."""
        with self._lock:
            if self._ended:
                raise DebuggerError("gdb was not started: the analysis ends", "Analyze the crash again.")
            self._gdb = Gdb(self._settings.deadline, program)
            return self._gdb

    def reads_python(self, scene: Scene) -> bool:
        """Whether libpython.py can work: the interpreter has debug info."""
        return interpreter_has_debug_info(scene)

    def examine(self, core: Path, scene: Scene, native: bool, lap: Lap, python: IsWanted = always) -> Answer:
        """Laps: native, python. Native frames are always read: Python frames need the modules that reading them loads.

        gdb gets all of its questions at once. While it works through them, we look up what it cannot name.
        """
        answer = self._examine(core, scene, lap, python, True)
        ahead = self._settings.ahead
        if answer is not None and answer.native is None and ahead is not None and ahead.used and ahead.gdb.has_ended and not self._ended:
            # What it died of may be an index that it was given.
            for folder in ahead.used:
                shutil.rmtree(folder, ignore_errors=True)
            answer = None
        if answer is None:
            self._settings, self._gdb = self._settings._replace(ahead=None), None
            answer = self._examine(core, scene, lap, python, False)
        return answer or Answer()

    def _examine(self, core: Path, scene: Scene, lap: Lap, python: IsWanted, in_part: bool) -> Optional[Answer]:
        """`in_part`: gdb gets the unwind tables of large modules for the words on the stacks only; None if that was not enough."""
        notebook = _Notebook()
        settings = self._settings
        try:
            ahead = settings.ahead if settings.ahead is not None and _guessed_right(settings.ahead, settings, core, scene) else None
            gdb = self._gdb
            if gdb is None:
                gdb = self._begin(settings.program or "gdb")
            elif settings.ahead is not None and ahead is None:
                gdb.close()
                gdb = self._begin(settings.program or "gdb")
            gdb = _for_processor(_architecture(scene), gdb, self._begin)
            with ExitStack() as stack:
                # While gdb may still be starting.
                twins = stack.enter_context(Scratch("twins"))
                loaded = [_to_load(one, scene, twins, in_part) for one in scene.modules]
                placed = [
                    PlacedModule(file, one.base, one.end, one.bias, one.path in scene.steps.modules)
                    for one, (file, _) in zip(scene.modules, loaded, strict=True)
                ]
                partial = {one.path: part for one, (_, part) in zip(scene.modules, loaded, strict=True) if part is not None}
                session = Session(
                    core,
                    settings.deadline,
                    debug_folders=settings.debug_folders,
                    sysroot=settings.sysroot,
                    gdb=gdb,
                    indexes=settings.indexes,
                    reads=settings.reads,
                    opened=ahead.opened if ahead is not None else None,
                )
                stack.enter_context(session)
                native_answer = session.native(
                    placed, scene.crash.crashed_thread, scene.entry, architecture=_architecture(scene), steps=scene.steps.found
                )
                question = _question(scene, self._finder, settings)
                python_answer = _ask_python(session, scene, question.script, python()) if question.script is not None else None
                notebook.debugger = session.version
                early = _names_early(scene, partial)
                stacks = native_answer()
                if not _suffice(partial, stacks, scene):
                    gdb.close()
                    return None
                _take_native(stacks, scene, placed, notebook)
                lap("native")
                names = _missing(stacks, scene, notebook, early)
                notebook.soft_errors += question.soft_errors
                if question.script is not None and python_answer is not None:
                    _take_python(python_answer, question.script, notebook)
                _take_names(session, stacks, names, notebook, scene.steps.names)
                if ahead is not None and ahead.keep_indexes():
                    # Whoever started it ends it once that is done.
                    self._gdb = None
                lap("python")
        except DebuggerError as error:
            notebook.soft_errors.append(SoftError(stage="gdb", message=str(error), hint=error.hint))
        except OSError as error:
            hint = "Free space in TMPDIR, or set it to a folder with free space."
            notebook.soft_errors.append(SoftError(stage="gdb", message=f"gdb could not be used: {error}", hint=hint))
        return notebook.answer(scene)


class _Notebook:
    """Results so far, kept if the session breaks."""

    def __init__(self) -> None:
        self.native: Optional[NativeResult] = None
        self.python: Optional[PythonResult] = None
        self.script: Optional[Path] = None
        self.symbols: dict[str, str] = {}
        self.debugger: Optional[str] = None
        self.soft_errors: list[SoftError] = []

    def answer(self, scene: Scene) -> Answer:
        python = self.python
        return Answer(
            debugger=self.debugger,
            native=native_stacks(self.native) if self.native else None,
            python=python_stacks(python, scene.crash.threads) if python else None,
            python_is_whole=not (python and python.errors),
            python_version=python.version if python else None,
            python_finalizing=python.finalizing if python else None,
            python_script=self.script,
            symbols=self.symbols,
            abort_message=self.native.abort_message if self.native else None,
            soft_errors=tuple(self.soft_errors),
        )


def _guessed_right(ahead: Ahead, settings: GdbSettings, core: Path, scene: Scene) -> bool:
    """Whether gdb has what it needs for this core: it is the one that it opened, and the files that it read already are modules of it,
    where they are. With files of another system it would have had to know of them before: they may have come in an archive.
    """
    if settings.sysroot is not None or settings.debug_folders != (Path(DEBUG_ROOT),):
        return False
    known = {(file, module.bias) for module in scene.modules if (file := scene.files[module.path].path)}
    return ahead.core.samefile(core) and ahead.files.items() <= known


def _for_processor(architecture: Architecture, gdb: Gdb, begin: Callable[[str], Gdb]) -> Gdb:
    """This gdb, or gdb-multiarch where the core is of a processor that this one was not built for. Raises DebuggerError."""
    if architecture.gdb is None or architecture.name == os.uname().machine:
        return gdb
    try:
        gdb.console(f"set architecture {architecture.gdb}")
        gdb.console("set architecture auto")
        return gdb
    except DebuggerError:
        gdb.close()
    if isolation.find_program(MULTIARCH) is None:
        raise DebuggerError(
            f"this gdb does not support {architecture.name}, and {MULTIARCH} is not installed",
            f"Install it (Debian, Ubuntu: apt-get install {MULTIARCH}), or pass a gdb for {architecture.name} with --gdb.",
        )
    return begin(MULTIARCH)


def _take_native(native: NativeResult, scene: Scene, placed: list[PlacedModule], notebook: _Notebook) -> None:
    notebook.native = native
    notebook.soft_errors += [SoftError(stage="native", message=message) for message in native.errors]
    loaded = set(native.loaded)
    by_path = {module.path: place for module, place in zip(scene.modules, placed, strict=True)}
    for path, place in by_path.items():
        if str(place.file) in loaded:
            notebook.symbols[path] = "full" if has_debug_info(scene.files[path]) else "table"


def _names_early(scene: Scene, partial: Mapping[str, Partial]) -> dict[str, FileNames]:
    """While gdb walks the stacks: the names of whatever it may find there in large modules."""
    found = {}
    for module in scene.modules:
        file = scene.files[module.path].path
        if module.path in partial and file is not None and scene.on_stacks is not None:
            with suppress(OSError, ValueError):
                found[module.path] = usual_names(file, (word - module.bias for word in scene.on_stacks[module.path]))
    return found


def _suffice(partial: Mapping[str, Partial], native: NativeResult, scene: Scene) -> bool:
    """Whether gdb had the unwind tables of every frame that has some."""
    index = ModuleIndex(scene.modules)
    for rows in (rows for thread in native.threads for rows in (thread.frames, thread.outer)):
        for row, address in zip(rows, call_addresses(rows), strict=True):
            module = index.at(row.pc)
            part = partial.get(module.path) if module is not None else None
            if module is None or part is None:
                continue
            function = part.table.function(address - module.bias)
            if function is not None and function.start not in part.starts:
                return False
    return True


def _missing(native: NativeResult, scene: Scene, notebook: _Notebook, early: Mapping[str, FileNames]) -> Names:
    names = names_missing(native, ModuleIndex(scene.modules), {path: file.path for path, file in scene.files.items()}, early)
    notebook.symbols.update({path: kind for path, kind in names.kinds.items() if notebook.symbols.get(path) != "full"})
    return names


def _take_names(session: Session, native: NativeResult, names: Names, notebook: _Notebook, called: Mapping[int, Optional[str]]) -> None:
    try:
        readable = session.demangle(names.plain)
    except DebuggerError as error:
        # What it was asked before may have been its end.
        readable = {name: demangled(name) for name in names.plain}
        if all(str(error) != one.message for one in notebook.soft_errors):
            notebook.soft_errors.append(SoftError(stage="gdb", message=str(error), hint=error.hint))
    notebook.native = corrected(with_names(native, names, readable), called)


def _no_debug_info(interpreter: Interpreter, scene: Scene) -> SoftError:
    path, process = interpreter.module.path, scene.crash.process
    of_conda = is_of_conda(path, process.environment.get("CONDA_PREFIX") if process is not None else None)
    return SoftError(
        stage="symbols",
        message=f"{interpreter.module.path} has no debug info here: its C frames lack lines and arguments",
        hint=how_to_get_debug_info(path, interpreter.version, of_conda, any(is_musl(module.path) for module in scene.modules)),
    )


class Partial(msgspec.Struct, frozen=True):
    """A module of whose unwind tables gdb has a part."""

    table: UnwindTable
    """The whole."""
    starts: frozenset[int]
    """Where the functions begin that it has."""


def _to_load(module: LoadedModule, scene: Scene, twins: Path, in_part: bool) -> tuple[Optional[Path], Optional[Partial]]:
    """The module's file, or a sparse twin of one whose symbol table would take gdb seconds to read."""
    file = scene.files[module.path]
    if file.path is None:
        return None, None
    try:
        if file.path.stat().st_size < BIG or has_debug_info(file):
            return file.path, None
        words = scene.on_stacks.get(module.path) if in_part and scene.on_stacks is not None else None
        elf = open_elf(file.path) if words is not None else None
        place = elf.section(".eh_frame") if elf is not None and elf.wide and elf.order == "<" else None
        if words is not None and place is not None:
            table = UnwindTable.load(file.path)
            part = part_for(table, place.address, (word - module.bias for word in words)) if table.is_known else None
            if part is not None and len(part.data) <= place.size and (twin := write_twin(file.path, twins, part.data)) is not None:
                return twin, Partial(table, part.starts)
        return write_twin(file.path, twins) or file.path, None
    except OSError:
        return file.path, None


def _architecture(scene: Scene) -> Architecture:
    return named(scene.crash.process.architecture if scene.crash.process else None)


def _crashed_ident(scene: Scene) -> Optional[int]:
    thread = scene.crash.thread
    return int(thread.pthread) if thread and thread.pthread is not None else None


def _refusal(choice: Choice) -> SoftError:
    instead = f"used this machine's {choice.script}" if choice.script else "read Python frames without it"
    message = f"{choice.refused} was not run: {choice.reason}; {instead}"
    return SoftError(stage="python", message=message, hint=f"If you trust it, pass --libpython {choice.refused}")


class _Question(msgspec.Struct, frozen=True):
    """What is asked about Python frames."""

    script: Optional[Path] = None
    """The libpython.py to ask with; None where nothing is asked."""
    soft_errors: tuple[SoftError, ...] = ()


def _question(scene: Scene, finder: Finder, settings: GdbSettings) -> _Question:
    interpreter = scene.interpreter
    if interpreter is None or interpreter.is_too_old:
        return _Question()
    if not interpreter_has_debug_info(scene):
        return _Question(None, (_no_debug_info(interpreter, scene),))
    main = scene.crash.process.executable if scene.crash.process else None
    choice = Choice(settings.libpython) if settings.libpython else find_script(interpreter, main, finder, settings.foreign)
    if choice.refused is not None:
        return _Question(choice.script, (_refusal(choice),))
    if choice.script is not None:
        return _Question(choice.script)
    none = SoftError(
        stage="python",
        message=f"no libpython.py for Python {interpreter.version or ''} found on this machine",
        hint="Pass Tools/gdb/libpython.py from CPython's source of that version with --libpython FILE.",
    )
    return _Question(None, (none,))


def _ask_python(session: Session, scene: Scene, script: Path, names: bool) -> Callable[[], PythonResult]:
    """Raises DebuggerError."""
    interpreter = scene.interpreter
    found = scene.files[interpreter.module.path].path if interpreter is not None else None
    place = interpreter.module if interpreter is not None else None
    module = PlacedModule(found, place.base, place.end, place.bias) if place is not None and found is not None else None
    idents = [(thread.tid, int(thread.pthread)) for thread in scene.crash.threads if thread.tid is not None and thread.pthread is not None]
    return session.python(script, module, _crashed_ident(scene), idents, names)


def _take_python(answer: Callable[[], PythonResult], script: Path, notebook: _Notebook) -> None:
    try:
        notebook.python = answer()
    except DebuggerError as error:
        notebook.soft_errors.append(SoftError(stage="python", message=str(error), hint=error.hint))
        return
    notebook.script = script
    notebook.soft_errors += [SoftError(stage="python", message=message) for message in notebook.python.errors]
    if notebook.python.threads_without_locals:
        message = f"local variables of {notebook.python.threads_without_locals} threads were not read: too many threads"
        notebook.soft_errors.append(SoftError(stage="python", message=message))
