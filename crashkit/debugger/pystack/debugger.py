"""PyStack as a debugger: Python frames without debug info, and native frames without gdb."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from crashkit.debugger.contract import Answer, IsWanted, Lap, always
from crashkit.debugger.pystack.names import with_names
from crashkit.debugger.pystack.process import PystackFailed, Running, run_pystack
from crashkit.debugger.pystack.rows import native_stacks, python_stacks, version, walked_stacks
from crashkit.evidence.core.describe import Scene
from crashkit.model import SoftError

_FOR_PYTHON = 4
"""What part of the time is enough for Python frames alone: a second or two, or PyStack goes round in circles in what is damaged."""
_NO_FILES: Mapping[str, Path] = {}


class PystackDebugger:
    """PyStack as a `Debugger`. `deadline` is in seconds, for each call of `examine`; Python frames alone get a quarter of it."""

    name = "pystack"

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._running = Running()

    def start(self) -> Optional[SoftError]:
        """Nothing to start: each question is a process of its own."""
        return None

    def close(self) -> None:
        """End what another thread may have started; later questions end at once, too."""
        self._running.end()

    def reads_python(self, scene: Scene) -> bool:
        """Always true: PyStack needs no debug info."""
        return True

    def examine(self, core: Path, scene: Scene, native: bool, lap: Lap, python: IsWanted = always) -> Answer:
        """Ask PyStack once; native frames only where `native` is set, Python ones only where `python` says so."""
        answer = self._examine(core, scene, native, python())
        if native and scene.steps.walks:
            answer = answer._replace(native={**(answer.native or {}), **walked_stacks(scene.steps.walks)})
        lap(self.name)
        return answer

    def _examine(self, core: Path, scene: Scene, native: bool, python: bool) -> Answer:
        main = scene.crash.process.executable if scene.crash.process else None
        file = scene.files.get(main) if main else None
        if scene.interpreter is None and not native:
            return Answer()
        if scene.interpreter is not None and scene.interpreter.is_too_old:
            message = f"Python {scene.interpreter.version} is too old: Python frames can be read from 3.6 on"
            return Answer(soft_errors=(SoftError(stage="python", message=message),))
        if file is None or file.path is None:
            message = f"the executable {main or ''} is not on this machine: PyStack cannot read the core without it"
            hint = "Pass it with --exe, the crashed system's root folder with --sysroot, or where files are now with --path-map FROM=TO."
            return Answer(soft_errors=(SoftError(stage="pystack", message=message, hint=hint),))
        files = {path: found.path for path, found in scene.files.items() if found.path}
        debug = {path: found.debug for path, found in scene.files.items() if found.debug}
        deadline = self._deadline if native else self._deadline / _FOR_PYTHON
        answer = ask_pystack(core, file.path, files, deadline, native=native, running=self._running, debug=debug, python=python)
        return answer._replace(native=with_names(answer.native, scene.modules, scene.files)) if answer.native else answer


def ask_pystack(
    core: Path,
    executable: Path,
    files: Mapping[str, Path] = _NO_FILES,
    deadline: float = 60.0,
    locals: bool = True,
    native: bool = False,
    running: Optional[Running] = None,
    debug: Mapping[str, Path] = _NO_FILES,
    python: bool = True,
) -> Answer:
    """Ask PyStack for every thread of a core, its Python frames included unless `python` is not set.

    `executable` is its file on this machine; `files` maps a module's path in the core to its path here, where they differ, and
    `debug` to its separate debug file.
    `deadline` is in seconds. Never raises for what the core holds: a failure is a soft error.

    Frames whose code or file has a name beyond Latin-1 are silently omitted by PyStack 1.7: it reads names of one byte a
    character only.
    """
    ends = time.monotonic() + deadline
    soft_errors: list[SoftError] = []
    # Locals are where most damage is met: do without before doing without stacks.
    for with_locals in (True, False) if locals and python else (False,):
        left = ends - time.monotonic()
        try:
            threads = run_pystack(core, executable, files, left / 2 if with_locals else left, with_locals, native, running, debug, python)
        except PystackFailed as failure:
            last = not (with_locals and failure.again)
            what = "" if last else "; retried without local variables"
            soft_errors.append(SoftError(stage="pystack", message=f"{failure}{what}", hint=failure.hint))
            if last:
                break
            continue
        except OSError as error:
            hint = "Free space in TMPDIR, or set it to a folder with free space."
            soft_errors.append(SoftError(stage="pystack", message=f"PyStack could not be run: {error}", hint=hint))
            break
        found = python_stacks(threads) if python else None
        if python and not found:
            message = "PyStack found no Python frames in this core"
            hint = "The interpreter's state is missing from a truncated core."
            soft_errors.append(SoftError(stage="pystack", message=message, hint=hint))
        return Answer(
            debugger=_name() if native else None,
            native=native_stacks(threads) if native else None,
            python=found,
            python_version=version(threads),
            soft_errors=tuple(soft_errors),
        )
    return Answer(soft_errors=tuple(soft_errors))


def _name() -> str:
    """Name and version. Looking it up takes a moment, and so does importing what looks it up."""
    import importlib.metadata

    try:
        return f"PyStack {importlib.metadata.version('pystack')}"
    except importlib.metadata.PackageNotFoundError:
        return "PyStack"
