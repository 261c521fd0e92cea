"""What the C library said when it ended the process: assert, malloc's and fortify's checks. It keeps the text for debuggers.

`__abort_msg` points to pages of their own, which begin with their size (glibc, sysdeps/posix/libc_fatal.c and assert/assert.c). The
variable has a name only in libc's symbol table; what it points to can be recognised without it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Optional

from crashkit.evidence.core.modules import LoadedModule
from crashkit.memory import Memory
from crashkit.regex import regex

_LIBC = regex(r"libc(?:-2\.\d+)?\.so(?:\.6)?")
_PAGE = 4096
_MOST_PAGES = 16
_MOST_DATA = 1 << 20


def abort_message(memory: Memory, modules: Sequence[LoadedModule]) -> Optional[str]:
    """The text without its line end; None if the C library did not end the process, or is not glibc."""
    libc = next((module for module in modules if _LIBC.fullmatch(PurePosixPath(module.path).name)), None)
    if libc is None or memory.word.size != 8:
        return None
    texts = []
    for mapping in memory.mappings():
        if mapping.path == libc.path and "w" in (mapping.permissions or ""):
            data = memory.read(mapping.start, min(mapping.end - mapping.start, _MOST_DATA))
            words = struct.unpack_from(f"{memory.word.order}{len(data) // 8}Q", data)
            texts += [_text(memory, word) for word in dict.fromkeys(words) if word and word % _PAGE == 0]
    found = list(filter(None, texts))
    return found[0] if len(found) == 1 else None


def _text(memory: Memory, address: int) -> Optional[str]:
    """The message at the beginning of a page, if there is one."""
    head = memory.read(address, 5)
    if len(head) < 5:
        return None
    (size,) = struct.unpack_from(memory.word.order + "I", head)
    if size % _PAGE or not 0 < size <= _MOST_PAGES * _PAGE or head[4] < ord(" "):
        return None
    data = memory.read(address + 4, size - 4)
    raw, end, rest = data.partition(b"\0")
    if not end or rest.strip(b"\0"):
        return None
    text = raw.decode("utf-8", "backslashreplace").strip()
    return text if text.replace("\n", " ").replace("\t", " ").isprintable() else None
