"""Finds the ELF files mapped into the crashed process, their addresses and build-ids."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

import msgspec

from crashkit.elf import notes
from crashkit.elf.file import open_elf, read_build_id
from crashkit.elf.headers import PT_LOAD, PT_NOTE, PT_TLS, Read, bounded, read_header, read_program_headers
from crashkit.elf.notes import FileMapping
from crashkit.memory import Memory

_MOST_SEGMENTS = 64
_MOST_NOTE = 16 << 10
MOST_BYTES_OF_ONE, MOST_BYTES = 64 << 10, 64 << 20
"""Most bytes read of one module's headers and notes, and of all modules' together."""
_MOST_MODULES = 20_000
_PAGE = 4096
_MOST_STORAGE = 1 << 20
_TORCH = re.compile(r"/libtorch(?:_cpu)?\.so[^/]*$")


class LoadedModule(msgspec.Struct, frozen=True):
    """An executable or shared library in memory.

    `bias` is the offset that the loader added to the addresses in the file.
    """

    path: str
    base: int
    end: int
    bias: int
    build_id: Optional[str]


class ModuleIndex:
    """Finds the module at an address."""

    def __init__(self, modules: Sequence[LoadedModule]) -> None:
        self._modules = sorted(modules, key=lambda module: module.base)
        self._bases = [module.base for module in self._modules]

    def at(self, address: int) -> Optional[LoadedModule]:
        """The module that contains `address`; None if none does."""
        index = bisect.bisect_right(self._bases, address) - 1
        if index >= 0 and address < self._modules[index].end:
            return self._modules[index]
        return None


def torch_storage(memory: Memory, modules: Sequence[LoadedModule]) -> Optional[int]:
    """Bytes of thread-local variables (PT_TLS) of the library that has torch's engine of autograd; None if none of these is that."""
    module = next((module for module in modules if _TORCH.search(module.path)), None)
    if module is None:
        return None
    read = bounded(lambda offset, size: memory.read(module.base + offset, size), MOST_BYTES_OF_ONE)
    header = read_header(read)
    segments = read_program_headers(read, header, _MOST_SEGMENTS) if header is not None else ()
    return next((min(one.size, _MOST_STORAGE) for one in segments if one.kind == PT_TLS), None)


class _Header(msgspec.Struct, frozen=True):
    bias: int
    build_id: Optional[str]


def loaded_modules(memory: Memory) -> list[LoadedModule]:
    """The ELF files among the file mappings, by base address.

    Their first page, with the build-id, is in the core (coredump_filter bit 4, on by default). If that page is missing, a mapping of
    executable code still counts as a module, without a build-id, unless the file is a module already: libffi maps pages of its own
    code a second time, next to the data that they use.
    """
    mappings = memory.mappings()
    code_paths = {mapping.path for mapping in mappings if "x" in (mapping.permissions or "")}
    groups: list[tuple[str, int, int]] = []
    for mapping in mappings:
        if not mapping.path or mapping.offset is None or mapping.end <= mapping.start or mapping.offset > mapping.start:
            continue
        if groups and groups[-1][0] == mapping.path and mapping.offset > 0:
            groups[-1] = (mapping.path, groups[-1][1], max(groups[-1][2], int(mapping.end)))
        else:
            groups.append((mapping.path, mapping.start - mapping.offset, int(mapping.end)))
    read = bounded(memory.read, MOST_BYTES)
    headers = {base: header for _path, base, _end in groups[:_MOST_MODULES] if (header := _read_header(read, base))}
    known = {path for path, base, _end in groups if base in headers}
    modules = []
    for path, base, end in groups[:_MOST_MODULES]:
        header = headers.get(base)
        if header is not None:
            modules.append(LoadedModule(path, base, end, header.bias, header.build_id))
        elif path in code_paths and path not in known:
            modules.append(LoadedModule(path, base, end, base, None))
    return modules


def _read_header(memory: Read, base: int) -> Optional[_Header]:
    read = bounded(lambda offset, size: memory(base + offset, size), MOST_BYTES_OF_ONE)
    header = read_header(read)
    if header is None:
        return None
    segments = list(read_program_headers(read, header, _MOST_SEGMENTS))
    first = next((one for one in segments if one.kind == PT_LOAD), None)
    if first is None:
        return _Header(base, None)
    from_base = first.offset - first.address
    found = (
        notes.build_id(read(from_base + one.address, min(one.stored, _MOST_NOTE)), header.word.order)
        for one in segments
        if one.kind == PT_NOTE
    )
    return _Header(base + from_base, next(filter(None, found), None))


class Placed(msgspec.Struct, frozen=True):
    """A module whose load address was computed, with its file mappings."""

    module: LoadedModule
    mappings: list[FileMapping]
    """As NT_FILE would list them."""


def place_executable(file: Path, name: str, auxiliary: Mapping[int, int]) -> Optional[Placed]:
    """Place the executable of a core that does not list its mapped files, using the auxiliary vector.

    None if `file` is not that executable: its entry point and program headers must be as far apart as in the process.
    """
    elf = open_elf(file)
    loads = [one for one in elf.program_headers if one.kind == PT_LOAD] if elf else []
    entry, headers = auxiliary.get(notes.AT_ENTRY), auxiliary.get(notes.AT_PHDR)
    if elf is None or not loads or entry is None or headers is None:
        return None
    bias = entry - elf.header.entry
    if bias + loads[0].address - loads[0].offset + elf.header.programs.offset != headers:
        return None
    mappings = [
        FileMapping(
            bias + one.address // _PAGE * _PAGE,
            bias + -(-(one.address + one.stored) // _PAGE) * _PAGE,
            one.offset // _PAGE * _PAGE,
            name,
        )
        for one in loads
    ]
    base, end = min(one.start for one in mappings), bias + max(one.address + one.size for one in loads)
    return Placed(LoadedModule(name, base, end, bias, read_build_id(file)), sorted(mappings))
