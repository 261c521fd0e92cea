"""Copies of debug files with their sections decompressed: gdb takes a third of its time for the C library to decompress what it needs.

The copy has everything at the offset of the original, but for the contents of compressed sections, which follow behind; where they were is
a hole.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from crashkit.elf.file import ElfFile, open_elf
from crashkit.elf.headers import SHT_NOBITS, Section

_MOST_BYTES = 64 << 20
"""Of an original, and of what is decompressed of it."""
_PIECE = 1 << 20
_COMPRESSED = 0x800
"""SHF_COMPRESSED, and below the header of such a section, Elf64_Chdr: ch_type, ch_size, ch_addralign (elf(5))."""
_CHDR = "I4xQQ"
_ZLIB = 1
_SHDR = "IIQQQQIIQQ"


def write_decompressed(original: Path, copy: Path) -> bool:
    """Write the new file `copy`, mode 0600. False where no section is compressed, or all are too large. Raises OSError."""
    elf = open_elf(original)
    if elf is None or not elf.wide:
        return False
    packed = [section for section in elf.sections if section.flags & _COMPRESSED and section.kind != SHT_NOBITS]
    with original.open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        heads = [_head(os.pread(source.fileno(), struct.calcsize(elf.order + _CHDR), one.offset), elf) for one in packed]
        known = [(section, head) for section, head in zip(packed, heads, strict=True) if head is not None]
        if not known or len(known) < len(packed) or max(size, sum(plain for _, (plain, _) in known)) > _MOST_BYTES:
            return False
        target = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for start, end in _between(packed, size):
                os.pwrite(target, os.pread(source.fileno(), end - start, start), start)
            at = size
            for section, (plain, align) in known:
                at = -(-at // max(align, 1)) * max(align, 1)
                packed_content = os.pread(source.fileno(), section.size, section.offset)[struct.calcsize(elf.order + _CHDR) :]
                _fill(target, packed_content, at, plain)
                _place(target, elf, section, at, plain, align)
                at += plain
            os.fsync(target)
        finally:
            os.close(target)
    return True


def _head(data: bytes, elf: ElfFile) -> Optional[tuple[int, int]]:
    """The section's size and alignment once decompressed; None if it is not compressed with zlib, or aligned to what no section is."""
    if len(data) < struct.calcsize(elf.order + _CHDR):
        return None
    kind, size, align = struct.unpack(elf.order + _CHDR, data)
    return (size, align) if kind == _ZLIB and align <= _PIECE else None


def _between(sections: list[Section], size: int) -> Iterator[tuple[int, int]]:
    """The parts of the file that are none of these sections."""
    at = 0
    for section in sorted(sections, key=lambda one: one.offset):
        if section.offset > at:
            yield at, min(section.offset, size)
        at = max(at, section.offset + section.size)
    if at < size:
        yield at, size


def _fill(target: int, packed: bytes, at: int, size: int) -> None:
    """Decompress `size` bytes to this offset. Raises OSError where there are not as many."""
    unpacker = zlib.decompressobj()
    end = at + size
    try:
        while at < end:
            piece = unpacker.decompress(packed, min(_PIECE, end - at))
            if not piece:
                break
            at += os.pwrite(target, piece, at)
            packed = unpacker.unconsumed_tail
    except zlib.error as error:
        raise OSError(f"a compressed section is damaged: {error}") from error
    if at < end:
        raise OSError("a compressed section is incomplete")


def _place(target: int, elf: ElfFile, section: Section, at: int, size: int, align: int) -> None:
    """Let the section's header say where its contents are now."""
    layout = elf.order + _SHDR
    name, kind, flags, address, _, _, link, info, _, entry = struct.unpack(
        layout, os.pread(target, struct.calcsize(layout), section.header)
    )
    os.pwrite(target, struct.pack(layout, name, kind, flags & ~_COMPRESSED, address, at, size, link, info, align, entry), section.header)
