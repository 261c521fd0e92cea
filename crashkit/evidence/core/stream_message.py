"""The message with which TensorFlow's, XLA's or JAX's LOG(FATAL) or CHECK ended the process, with or without symbols.

Their LogMessage is a std::ostringstream with the file's name, the line and the severity behind it (tsl/platform/default/logging.h). It lies
on the stack of the function that checked until the process has ended. Nothing else has this shape: libstdc++'s stream buffer
(bits/sstream) with its six pointers, its mode and the string that they point into. Looked at with jaxlib 0.4.13; newer versions use absl's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Optional

import msgspec

from crashkit.memory import Memory
from crashkit.regex import regex

_STACK, _LEAST = 32 << 10, 4096
_WORD = 8
# In words from the stream's table of functions on.
_INPUT, _OUTPUT, _MODE, _STRING = slice(2, 5), slice(5, 8), 9, 10
# Behind a string with its characters' place, its length and room for a few characters; behind one that is only a pointer (the older ABI).
_NEW, _OLD = 14, 11
_SIZE = _NEW + 2
_OUT = 0x10
"""std::ios_base::out."""
_FATAL = 3
_MOST_LINE = 1 << 20
_LONGEST, _MOST_TEXT = 4000, 1 << 24
_SOURCE = regex(r"[\w./+@-]{1,400}\.(?:cc|cpp|cxx|cu|c|h|hh|hpp|inc)")


class Message(msgspec.Struct, frozen=True):
    """A message that ended the process."""

    place: str
    """`external/xla/xla/shape.h:165`."""
    text: str
    """Its first line, up to 4000 characters."""


def stream_message(memory: Memory, stack_pointer: int, text_at: Callable[[int], Optional[str]]) -> Optional[Message]:
    """The fatal message of the thread with this stack pointer; None if its stack has none. `text_at` reads strings, constants too."""
    if memory.word.size != _WORD:
        return None
    data = memory.read(stack_pointer, _STACK) or memory.read(stack_pointer, _LEAST)
    words = struct.unpack_from(f"<{len(data) // _WORD}Q", data)
    for at in range(len(words) - _SIZE + 1):
        stream = words[at : at + _SIZE]
        if not _is_stream(stream):
            continue
        for behind in (_NEW, _OLD):
            line, severity = stream[behind + 1] & 0xFFFFFFFF, stream[behind + 1] >> 32
            if severity == _FATAL and 0 < line < _MOST_LINE and _SOURCE.fullmatch(name := text_at(stream[behind]) or ""):
                start, end, _ = stream[_OUTPUT]
                said = memory.read(start, min(end - start, _LONGEST)).partition(b"\n")[0]
                return Message(f"{name}:{line}", said.decode("utf-8", "backslashreplace").strip())
    return None


def _is_stream(words: Sequence[int]) -> bool:
    """Whether these are those of a stream that something was written to."""
    (first, *others), (start, written, end) = words[_INPUT], words[_OUTPUT]
    if words[_MODE] & 0xFFFFFFFF != _OUT or words[_STRING] != start or any(other != first for other in others):
        return False
    return 0 < start < written <= end < start + _MOST_TEXT
