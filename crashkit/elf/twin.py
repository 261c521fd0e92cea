"""Sparse twins of large ELF files: only what gdb needs to unwind through a module, and nothing that is slow to read.

A twin has the headers, the unwind tables and the build-id of its original at the same offsets, or only the parts of the unwind tables
that are asked for. Its symbol tables are marked absent, and the rest is a hole. gdb takes seconds to read the half million symbols of
libtorch_cpu.so, and 0.05 s for the twin, or nothing to speak of with a part of its unwind tables. Names then come from `symbols`, code
bytes must be read from the original: gdb sees zeros there.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Optional

from crashkit.elf.file import ElfFile, open_elf
from crashkit.elf.headers import SHT_NOBITS, SHT_NULL

BIG = 8 << 20
"""Minimum size in bytes of a file that gets a twin."""

_KEPT = (".eh_frame", ".eh_frame_hdr", ".note.gnu.build-id", ".shstrtab")
_ELF_HEADER = 64
_SIZE = 32
"""Offset of sh_size in the section header of a 64-bit file."""
# Symbols, their strings, and what refers to them (elf(5)); DT_* lookups go with .dynamic.
_ABSENT_KINDS = {2, 3, 4, 5, 6, 9, 11, 0x6FFFFFF6, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF}
_ABSENT_PREFIXES = (".debug_", ".zdebug_", ".gnu_debug")


def write_twin(original: Path, folder: Path, unwind_part: Optional[bytes] = None) -> Optional[Path]:
    """Write the twin of `original` into `folder`, under the same name, mode 0600. `unwind_part` takes the place of its `.eh_frame`.

    Returns None if it would be useless: no sections or no unwind tables. Raises OSError if it cannot be written.
    """
    elf = open_elf(original)
    unwind = elf.section(".eh_frame") if elf else None
    if elf is None or unwind is None or not unwind.size or unwind.kind == SHT_NOBITS:
        return None
    twin = _free_name(folder, original.name)
    source = os.open(original, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(twin, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _fill(source, target, elf, unwind_part)
        finally:
            os.close(target)
    finally:
        os.close(source)
    return twin


def _free_name(folder: Path, name: str) -> Path:
    twin = folder / name
    number = 1
    while twin.exists():
        number += 1
        twin = folder / f"{number}-{name}"
    return twin


def _fill(source: int, target: int, elf: ElfFile, unwind_part: Optional[bytes]) -> None:
    size = os.fstat(source).st_size
    os.truncate(target, size)
    _copy(source, target, 0, _ELF_HEADER)
    for table in (elf.header.programs, elf.header.sections):
        _copy(source, target, table.offset, min(table.entry_size * table.entries, size))
    kept = {name: elf.section(name) for name in _KEPT}
    for section in elf.sections:
        # Of one name only the first: four thousand sections could each be the whole file.
        if section is kept.get(section.name) and unwind_part is not None and section.name.startswith(".eh_frame"):
            # What else refers to the whole of it is left out, as its search table.
            data = unwind_part if section.name == ".eh_frame" else b""
            os.pwrite(target, data, section.offset)
            os.pwrite(target, struct.pack(elf.order + "Q", len(data)), section.header + _SIZE)
        elif section is kept.get(section.name):
            _copy(source, target, section.offset, min(section.size, size))
        elif section.kind in _ABSENT_KINDS or section.name.startswith(_ABSENT_PREFIXES):
            os.pwrite(target, struct.pack(elf.order + "I", SHT_NULL), section.header + 4)


def _copy(source: int, target: int, offset: int, size: int) -> None:
    if offset >= os.fstat(source).st_size:
        return
    os.lseek(target, offset, os.SEEK_SET)
    while size > 0:
        # Within the kernel: the unwind tables of a large library are tens of megabytes.
        copied = os.sendfile(target, source, offset, size)
        if not copied:
            return
        offset += copied
        size -= copied
