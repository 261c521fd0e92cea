"""Code and constants of a crashed process: what cores leave out because it is in a mapped file and never changes."""

from __future__ import annotations

from collections.abc import Mapping

from crashkit.evidence.core.core import Core
from crashkit.evidence.module_files import ModuleFile


def read_constant(core: Core, files: Mapping[str, ModuleFile], address: int, size: int) -> bytes:
    """Memory at the address, from the core or from the module's file on this machine; short if neither has it."""
    data = core.read(address, size)
    if len(data) == size:
        return data
    mapped = core.file_at(address)
    found = files.get(mapped.path) if mapped else None
    if mapped is None or found is None or found.path is None:
        return data
    try:
        with found.path.open("rb") as file:
            file.seek(mapped.offset + address - mapped.start)
            return file.read(min(size, mapped.end - address))
    except (OSError, OverflowError, ValueError):
        return data
