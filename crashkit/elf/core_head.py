"""Reads the first pages of a new core: which process it is of, and whether it is complete.

The supervisor reads this for every new core, so it is kept small; the full reader is `crashkit.evidence.core`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional

from crashkit.elf import notes
from crashkit.elf.headers import ET_CORE, PT_NOTE, bounded, count_program_headers, of_descriptor, read_header, read_program_headers
from crashkit.limits import MOST_SEGMENTS

MOST_BYTES = 64 << 20
"""Most bytes read of one core at a time: a million segments and their notes."""
_MOST_NOTES = 1 << 20
_SI_USER, _SI_TKILL = 0, -6


class CoreHead(NamedTuple):
    """Identity of the crashed process and expected size of its core."""

    pid: int
    """In the process's own PID namespace, like the other ids."""
    ppid: int
    group: int
    session: int
    signal: int
    name: str
    """comm; untrusted text."""
    arguments: str
    """The first 80 bytes of the command line; untrusted text."""
    expected: int
    """Size of the complete core in bytes, by its program headers."""
    raised: bool = False
    """Whether the process sent the signal to itself."""


def read_head(descriptor: int) -> Optional[CoreHead]:
    """Read the head of an open core; None if it is not a 64-bit little-endian core, or its notes are not written yet."""
    read = bounded(of_descriptor(descriptor), MOST_BYTES)
    header = read_header(read)
    # Where the number of segments is not there yet, neither is what they promise.
    if header is None or header.word != (8, "<") or header.kind != ET_CORE or count_program_headers(read, header) is None:
        return None
    expected, found = 0, b""
    for segment in read_program_headers(read, header, MOST_SEGMENTS):
        expected = max(expected, segment.offset + segment.stored)
        if segment.kind == PT_NOTE and not found:
            found = read(segment.offset, min(segment.stored, _MOST_NOTES))
    status, info = _first_of_kernel(found, notes.NT_PRSTATUS), _first_of_kernel(found, notes.NT_PRPSINFO)
    process = notes.process_info(info, header.word)
    if len(status) < 48 or process is None:
        return None
    (signal,) = struct.unpack_from("<H", status, 12)
    name, arguments = (text.decode("utf-8", "replace") for text in (process.name, process.arguments))
    sent = notes.signal_info(_first_of_kernel(found, notes.NT_SIGINFO), header.word)
    raised = sent is not None and sent.code in (_SI_USER, _SI_TKILL) and sent.pid == process.pid
    return CoreHead(process.pid, process.ppid, process.group, process.session, signal, name, arguments, expected, raised)


def _first_of_kernel(data: bytes, wanted: int) -> bytes:
    return next((payload for name, kind, payload in notes.split(data, "<") if (name, kind) == ("CORE", wanted)), b"")
