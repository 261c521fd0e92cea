"""Code and constants of a crashed process: what cores leave out because it is in a mapped file and never changes."""

from __future__ import annotations

from collections.abc import Mapping

from crashkit.evidence.core.core import Core
from crashkit.evidence.module_files import ModuleFile


def read_constant(core: Core, files: Mapping[str, ModuleFile], address: int, size: int) -> bytes:
    """Memory at the address, from the core or the module's file on this machine, each part from where it is; short if it is in neither."""
    data = b""
    while len(data) < size:
        at, left = address + len(data), size - len(data)
        more = core.read(at, left) or _from_file(core, files, at, left)
        if not more:
            break
        data += more
    return data


def _from_file(core: Core, files: Mapping[str, ModuleFile], address: int, size: int) -> bytes:
    mapped = core.file_at(address)
    found = files.get(mapped.path) if mapped else None
    if mapped is None or found is None or found.path is None:
        return b""
    try:
        with found.path.open("rb") as file:
            file.seek(mapped.offset + address - mapped.start)
            return file.read(min(size, mapped.end - address))
    except (OSError, OverflowError, ValueError):
        return b""
