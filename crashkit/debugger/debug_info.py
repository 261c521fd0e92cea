"""Whether a module's debug info (DWARF) is on this machine, in its own file or in a separate one."""

from __future__ import annotations

from crashkit.elf.file import has_dwarf
from crashkit.evidence.core.describe import Scene
from crashkit.evidence.module_files import ModuleFile


def has_debug_info(file: ModuleFile) -> bool:
    """Whether the module's own file or its separate debug file has DWARF."""
    return bool(file.path and (has_dwarf(file.path) or (file.debug and has_dwarf(file.debug))))


def interpreter_has_debug_info(scene: Scene) -> bool:
    """Whether CPython's libpython.py can work: it knows the interpreter's structures by their debug info."""
    interpreter = scene.interpreter
    return interpreter is not None and not interpreter.is_too_old and has_debug_info(scene.files[interpreter.module.path])
