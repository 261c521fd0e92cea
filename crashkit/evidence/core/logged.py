"""The message with which glog's LOG(FATAL), or a raw check of absl's, ended the process: the library formats it in memory before it aborts.

glog keeps the text of the first fatal message in its own data (`fatal_msg_data_exclusive`, src/logging.cc), absl's raw logging on the stack
(absl/base/internal/raw_logging.cc), absl's LOG on the heap, which its frames refer to (absl/log/internal/log_message.cc). The line has
the number of the thread that wrote it. Before absl::InitializeLog is called, which programs of others rarely do, the date is 0000 and the
seconds are those since 1970.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Optional

from crashkit.evidence.core.walk import Frame
from crashkit.memory import Memory

_FATAL = re.compile(rb"F(?:\d{8}|\d{4}) \d\d:\d\d:\d{2,12}\.\d{6} {1,8}(?P<thread>\d{1,10}) [^\s:\]\0]{1,400}:\d{1,7}\] [^\0\n]{1,4000}")
_RAW = re.compile(rb"\[[^\s:\[\]\0]{1,200} : \d{1,7}\] RAW: [^\0\n]{1,3000}")
_INNERMOST = 16
"""Frames that may belong to the library."""
_STACK = 32 << 10
_MOST_DATA = 4 << 20
_TOP = 1 << 64
_MOST_POINTED, _POINTED_SIZE = 256, 20 << 10


def fatal_message(memory: Memory, frames: Sequence[Frame], tid: int) -> Optional[str]:
    """The line as the library printed it; None if no memory of the frames' modules, or that they refer to, has one of this thread."""
    sp = frames[0].registers.get(memory.architecture.stack_pointer) if frames else None
    if sp is None:
        return None
    stack = memory.read(sp, _STACK) or memory.read(sp, 4096)
    raw = _RAW.search(stack)
    if raw is not None:
        return raw[0].decode("utf-8", "backslashreplace")
    for start, data in ((sp, stack), *_own_data(memory, frames), *_pointed(memory, stack)):
        for match in _FATAL.finditer(data):
            if int(match["thread"]) == tid:
                memory.read(start + match.start(), len(match[0]))
                return match[0].decode("utf-8", "backslashreplace")
    return None


def _own_data(memory: Memory, frames: Sequence[Frame]) -> Iterator[tuple[int, bytes]]:
    """The variables of the modules that the innermost frames are in."""
    modules = dict.fromkeys(frame.module for frame in frames[:_INNERMOST] if frame.module is not None)
    for mapping in memory.mappings():
        if "w" in (mapping.permissions or "") and any(module.base <= mapping.start < module.end for module in modules):
            # What is not in the file follows its last page: the variables that begin as zero.
            yield from memory.scan(mapping.start, min(mapping.end, mapping.start + _MOST_DATA))
            beyond = next((other for other in memory.mappings() if other.start == mapping.end and other.path is None), None)
            if beyond is not None:
                yield from memory.scan(beyond.start, min(beyond.end, beyond.start + _MOST_DATA))


def _pointed(memory: Memory, stack: bytes) -> Iterator[tuple[int, bytes]]:
    """What the words of the stack point to in memory without a file."""
    own = sorted(_ranges(memory))
    words = struct.unpack_from(f"<{len(stack) // 8}Q", stack)
    inside = (word for word in dict.fromkeys(words) if word % 8 == 0 and (at := bisect.bisect(own, (word, _TOP))) and word < own[at - 1][1])
    for _, word in zip(range(_MOST_POINTED), inside, strict=False):
        yield from memory.scan(word, word + _POINTED_SIZE)


def _ranges(memory: Memory) -> Iterator[tuple[int, int]]:
    """Start and end of what can be the heap."""
    for mapping in memory.mappings():
        if mapping.path is None and "w" in (mapping.permissions or ""):
            yield int(mapping.start), int(mapping.end)
