"""What the process had printed through the C library and never written: it was still in the buffer of a stream.

Source: `struct _IO_FILE` (glibc, libio/bits/types/struct_FILE.h), the same since 2.1. std::cout writes through these streams, too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Optional

from crashkit.elf.symbols import SymbolTable
from crashkit.evidence.core.modules import LoadedModule
from crashkit.memory import Memory
from crashkit.regex import regex

_LIBC = regex(r"libc(?:-2\.\d+)?\.so(?:\.6)?")
_STREAMS = ("_IO_2_1_stdout_", "_IO_2_1_stderr_")
_MAGIC, _MAGIC_MASK, _PUTTING, _UNBUFFERED = 0xFBAD0000, 0xFFFF0000, 0x800, 0x2
_WRITTEN_TO, _BUFFER, _DESCRIPTOR = 32, 56, 112
_LARGEST = 1 << 24
_MOST = 16 * 1024
"""Bytes of one stream, of the end."""


def unwritten(memory: Memory, modules: Sequence[LoadedModule], files: Mapping[str, Optional[Path]]) -> list[bytes]:
    """The end of what is in the buffers of stdout and stderr, if anything is. `files` are those of the modules, where they are here."""
    libc = next((module for module in modules if _LIBC.fullmatch(PurePosixPath(module.path).name)), None)
    file = files.get(libc.path) if libc is not None else None
    if libc is None or file is None or memory.word.size != 8:
        return []
    try:
        symbols = SymbolTable.load(file)
    except OSError:
        return []
    found = (symbols.variable(name) for name in _STREAMS)
    return [data for symbol in found if symbol is not None and (data := _buffered(memory, libc.bias + symbol.start))]


def _buffered(memory: Memory, stream: int) -> bytes:
    """What the stream at this address has to write; nothing if that is no stream that writes to standard output or error."""
    raw = memory.read(stream, _DESCRIPTOR + 4)
    if len(raw) < _DESCRIPTOR + 4:
        return b""
    order = memory.word.order
    (flags,) = struct.unpack_from(order + "I", raw)
    (descriptor,) = struct.unpack_from(order + "i", raw, _DESCRIPTOR)
    base, end, _ = struct.unpack_from(order + "3Q", raw, _WRITTEN_TO)
    start, limit = struct.unpack_from(order + "2Q", raw, _BUFFER)
    if flags & _MAGIC_MASK != _MAGIC or not flags & _PUTTING or flags & _UNBUFFERED or descriptor not in (1, 2):
        return b""
    if not (start <= base < end <= limit and limit - start <= _LARGEST):
        return b""
    return memory.read(max(base, end - _MOST), min(_MOST, end - base))
