"""gdb for a person: the core, its modules where they lay, and libpython.py, under the rules by which crashkit's own sessions have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from crashkit.debugger.debug_info import interpreter_has_debug_info
from crashkit.debugger.gdb.debugger import GdbSettings
from crashkit.debugger.gdb.libpython_file import Choice, find_script
from crashkit.debugger.gdb.process import quote
from crashkit.errors import DebuggerError
from crashkit.evidence.core.describe import Scene
from crashkit.evidence.module_files import Finder
from crashkit.gdb_files import SAFE_START, gdb_program

_SET_UP = """\
set confirm off
set pagination off
set backtrace past-main on
python
import gdb
for command in {commands}:
    try:
        gdb.execute(command, to_string=True)
    except (gdb.error, RuntimeError) as error:
        print("%s: %s" % (command, error))
for line in {lines}:
    print(line)
end
set pagination {pagination}
"""


def command_line(core: Path, scene: Scene, finder: Finder, settings: GdbSettings, folder: Path, commands: Sequence[str]) -> list[str]:
    """How to start gdb on this core. With `commands` it runs these and ends. `folder` is a private one, for as long as gdb runs.

    Raises DebuggerError if gdb is not installed.
    """
    program = gdb_program(settings.program or "gdb")
    if program is None:
        raise DebuggerError(f"{settings.program} is not installed", "Install gdb 12 or newer (Debian, Ubuntu: apt-get install gdb).")
    # gdb's versions differ in how they unquote a core's path: give it one without anything to quote.
    link = folder / "core"
    link.symlink_to(core.absolute())
    prepared, lines = [f"core-file {link}"], []
    if settings.debug_folders:
        prepared.insert(0, f"set debug-file-directory {':'.join(map(str, settings.debug_folders))}")
    if settings.sysroot is not None:
        prepared.insert(0, f"set sysroot {settings.sysroot}")
    for module in scene.modules:
        file = scene.files[module.path].path
        # A newline in a name would begin another command.
        if file is not None and str(file).isprintable():
            prepared.append(f"add-symbol-file {quote(str(file))} -o {module.bias}")
    script, why = _libpython(scene, finder, settings)
    if script is not None and str(script).isprintable():
        prepared.append(f"source {script}")
        lines.append("py-bt, py-up, py-down, py-list, py-print and py-locals are CPython's.")
    else:
        lines.append(f"py-bt is not available: {why}. crashkit show has the Python stacks.")
    set_up = folder / "set-up.gdb"
    pagination = "off" if commands else "on"
    set_up.write_text(_SET_UP.format(commands=json.dumps(prepared), lines=json.dumps(lines), pagination=pagination), encoding="utf-8")
    batch = ["-batch", *(part for command in commands for part in ("-ex", command))] if commands else []
    return [program, *SAFE_START, "-x", str(set_up), *batch]


def _libpython(scene: Scene, finder: Finder, settings: GdbSettings) -> tuple[Path | None, str]:
    """The script to load, or why there is none."""
    interpreter = scene.interpreter
    if interpreter is None or interpreter.is_too_old:
        return None, "no Python 3 ran in this process"
    if not interpreter_has_debug_info(scene):
        return None, f"{interpreter.module.path} has no debug info here"
    executable = scene.crash.process.executable if scene.crash.process else None
    choice = Choice(settings.libpython) if settings.libpython else find_script(interpreter, executable, finder, settings.foreign)
    if choice.script is None:
        return (
            None,
            f"{choice.refused} was not run: {choice.reason}" if choice.refused else "no libpython.py of this version is on this machine",
        )
    return choice.script, ""
