"""Writes a minimal core: the same crash in a small ELF core, with the memory that a report and debuggers need and no other.

What the report needs was recorded while it was made (`Core.reads`). Debuggers, used by hand, need more: the stacks whole, what the
dynamic loader knows of the modules, the C library's descriptors of the threads. A minimal core has segments for this memory only: a
debugger reads the rest from the files that were mapped, or says that it is missing.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, Optional

from crashkit.elf import notes
from crashkit.elf.core_file import Part, note, write_core
from crashkit.elf.headers import PT_GNU_EH_FRAME, read_header, read_program_headers
from crashkit.errors import EvidenceError
from crashkit.evidence.core.core import Core, Segment
from crashkit.evidence.core.modules import LoadedModule
from crashkit.evidence.core.note import NAME, NOTE, Left, Space, encode
from crashkit.evidence.core.signal_frame import find
from crashkit.evidence.core.thread_stack import ThreadStack, thread_stack
from crashkit.memory import string_at, word_at
from crashkit.secrets.memory import SecretBytes, zeroed

_RED_ZONE = 256
_MOST_STACK = 16 << 20
_MOST_BETWEEN = 3
"""Segments that may lie between a stack pointer below its stack and that: guards, or a library's code."""
_OTHER_STACK, _UNKNOWN_STACK = 24 << 10, 1 << 20
"""Bytes of a stack that is not the thread's own, such as the alternate one of signal handlers, and of one that may be either."""
_STORAGE, _DESCRIPTOR = 256, 0xA00
"""Bytes before and behind the thread pointer: thread-local storage of the C library, and its descriptor of the thread."""
_MOST_VARIABLES = 64 << 10
_MOST_TABLES = 4 << 20
_MOST_IMAGE = 64 << 10
_MOST_LINKS = 20_000
_MOST_SECTIONS = 1024
_CODE = 1024
"""Bytes of code on either side of an address."""
_PT_DYNAMIC = 2
_DT_DEBUG = 21
_AT_SYSINFO_EHDR = 33
_UC_STACK = 16
"""In `struct ucontext` of every 64-bit processor: the alternate stack, its address, flags and size (sigaltstack(2))."""
_LOADERS = ("ld-linux", "ld.so", "ld-2", "ld-musl", "libc.so", "libc-2", "libpthread")
"""Their variables list the modules and the threads."""
_OTHER_REGISTERS = frozenset({2, 0x46E62B7F, 0x202, 0x405, 0x400, 0x401})
"""Notes with floating-point and vector registers: NT_FPREGSET, NT_PRXFPREG, NT_X86_XSTATE, NT_ARM_SVE, NT_ARM_VFP, NT_ARM_TLS."""


class Written(NamedTuple):
    """A minimal core that was written."""

    size: int
    """Bytes."""
    masked: int
    """How many secrets were overwritten."""


def write_minimal(
    core: Core,
    path: Path,
    modules: Sequence[LoadedModule],
    missing: Collection[str],
    stack_pointers: Collection[int],
    loaded: Sequence[str],
    secrets: SecretBytes,
) -> Written:
    """Write what was read of the core, and what debuggers need, into a new file.

    `missing`: paths of modules whose files are not here; `stack_pointers`: further ones than those of the threads; `loaded`: files of
    what the process had imported. Raises EvidenceError if the core is not of 64 bits, OSError if the file cannot be written.
    """
    kept, parts, masked = _chosen(core, modules, missing, stack_pointers, loaded, secrets)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write_core(file, core.header.machine, core.word, kept, parts)
            size = file.tell()
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Written(size, masked)


def write_for_debugger(core: Core, file: BinaryIO, modules: Sequence[LoadedModule], missing: Collection[str]) -> None:
    """The same into an open file, for a debugger that works for us: with the secrets. Raises EvidenceError and OSError as above."""
    kept, parts, _ = _chosen(core, modules, missing, (), (), SecretBytes((), ()), search=False)
    write_core(file, core.header.machine, core.word, kept, parts)


def _chosen(
    core: Core,
    modules: Sequence[LoadedModule],
    missing: Collection[str],
    stack_pointers: Collection[int],
    loaded: Sequence[str],
    secrets: SecretBytes,
    search: bool = True,
) -> tuple[bytes, list[Part], int]:
    """The notes and the segments of a minimal core, and how many secrets were overwritten; `search` for further ones by their shape."""
    if core.word.size != 8 or core.reads is None:
        raise EvidenceError("minimal cores can only be made from 64-bit cores", "Keep the whole core.")
    _add_stacks(core, stack_pointers)
    _add_code(core)
    _add_loader(core, modules)
    _add_tables(core, [module for module in modules if module.path in missing])
    ranges = list(core.reads.ranges())
    whole = core.aside()
    for start, end in ranges if search else ():
        for _, data in whole.scan(start, end):
            secrets.learn(data)
    if secrets.has_cut:
        for segment in core.segments:
            for _, data in whole.scan(segment.start, segment.end):
                secrets.learn_rest(data)
    masked = 0
    parts = []
    for start, end in ranges:
        for part, count in _parts(whole, start, end, secrets):
            parts.append(part)
            masked += count
    parts = sorted([*parts, *_code_of_files(core)], key=lambda part: part.start)
    space = tuple(Space(one.start, one.size, one.flags) for one in core.space)
    before = core.left or Left()
    left = Left(
        size=before.size or core.size,
        missing=core.missing,
        masked=before.masked + masked,
        space=space,
        loaded=tuple(file for file in loaded if not secrets.places(file.encode("utf-8", "surrogateescape"))),
    )
    kept = b"".join(_notes(core, secrets)) + note(core.word.order, NAME, NOTE, encode(left))
    return kept, parts, masked


# What debuggers need


def _add(core: Core, start: int, end: int) -> None:
    if core.reads is not None:
        core.reads.add(start, end - start)


def _add_stacks(core: Core, stack_pointers: Collection[int]) -> None:
    arch = core.architecture
    elsewhere = {one for one in stack_pointers if not _is_of_main(core, one)}
    for status in core.statuses:
        pointer, thread = status.registers.get(arch.stack_pointer), status.registers.get(arch.thread_pointer or "")
        stack = thread_stack(core, thread)
        if thread:
            _add(core, thread - _STORAGE, thread + _DESCRIPTOR)
        for one in (pointer, *stack_pointers):
            if one is not None and stack is not None and _is_of(core, one, stack):
                _add_stack(core, one, min(stack.end, one + _MOST_STACK))
                elsewhere.discard(one)
            elif one is not None and one == pointer:
                is_known = stack is not None or (core.process is not None and core.process.pid == status.tid)
                reach = _MOST_STACK if _is_of_main(core, one) else _OTHER_STACK if is_known else _UNKNOWN_STACK
                _add_stack(core, one, _end_of_alternate(core, one) or one + reach)
    for one in stack_pointers:
        if _is_of_main(core, one):
            _add_stack(core, one, one + _MOST_STACK)
        elif one in elsewhere:  # that of a coroutine, or of a thread without a descriptor
            _add_stack(core, one, one + _UNKNOWN_STACK)
    main = core.segment(core.auxv.get(notes.AT_RANDOM, 0))
    if main is not None and elsewhere:  # a coroutine goes back to it
        _add(core, max(main.start, main.end - _UNKNOWN_STACK), main.end)


def _is_of(core: Core, pointer: int, stack: ThreadStack) -> bool:
    """Whether the pointer is that of this stack, which may have overflowed."""
    memory = _stack_of(core, pointer)
    return stack.start <= pointer < stack.end or (memory is not None and pointer < memory.start and stack.start <= memory.start < stack.end)


def _add_code(core: Core) -> None:
    """Code that no file has, as compilers make it at run time: where what is kept, the stacks among it, points to it."""
    kernel = core.segment(core.auxv.get(_AT_SYSINFO_EHDR, 0))
    code = [one for one in core.segments if one.flags & 1 and one.stored and one != kernel and core.file_at(one.start) is None]
    if not code or core.reads is None:
        return
    for start, end in list(core.reads.ranges()):
        for _, data in core.aside().scan(start, end):
            for word in set(struct.unpack_from(f"{core.word.order}{len(data) // 8}Q", data)):
                if any(one.start <= word < one.end for one in code):
                    _add(core, word - _CODE, word + _CODE)


def _add_stack(core: Core, pointer: int, end: int) -> None:
    segment = _stack_of(core, pointer)
    if segment is not None:
        first = max(segment.start, pointer - _RED_ZONE)
        _add(core, first, min(segment.end, end + max(0, segment.start - pointer)))


def _stack_of(core: Core, pointer: int) -> Optional[Segment]:
    """The memory of the stack with this pointer: where the stack has overflowed, that lies in the guard, or anywhere below the stack."""
    index = bisect_right(core.segments, pointer, key=lambda one: one.end)
    return next((one for one in core.segments[index : index + _MOST_BETWEEN] if one.flags & 2), None)


def _end_of_alternate(core: Core, pointer: int) -> Optional[int]:
    """Where the alternate stack that the address is in ends, as the kernel wrote into the frame of the signal handler that runs on it."""
    frame = find(core, pointer)
    start, size = (word_at(core, frame.address + _UC_STACK + at) for at in (0, 16)) if frame is not None else (None, None)
    return min(start + size, pointer + _MOST_STACK) if start and size and start <= pointer < start + size else None


def _is_of_main(core: Core, pointer: int) -> bool:
    """Whether the address is in the stack with which the process began."""
    segment = _stack_of(core, pointer)
    return segment is not None and segment.start <= core.auxv.get(notes.AT_RANDOM, 0) < segment.end


def _add_loader(core: Core, modules: Sequence[LoadedModule]) -> None:
    """The list of modules as the dynamic loader keeps it (`struct r_debug`, link.h), the variables beside it, and the kernel's module."""
    image = core.segment(core.auxv.get(_AT_SYSINFO_EHDR, 0))
    if image is not None:
        _add(core, image.start, min(image.end, image.start + _MOST_IMAGE))
    for module in modules:
        if PurePosixPath(module.path).name.startswith(_LOADERS):
            for segment in core.segments:
                if segment.flags & 2 and module.base <= segment.start < module.end:
                    _add(core, segment.start, min(segment.end, segment.start + _MOST_VARIABLES))
    main = next((one for one in modules if one.base <= core.auxv.get(notes.AT_PHDR, 0) < one.end), None)
    place = _dynamic(core, main) if main is not None else None
    debug = _tagged(core, place, _DT_DEBUG) if place is not None else None
    entry = word_at(core, debug + 8) if debug else None
    for _ in range(_MOST_LINKS):
        if not entry:
            return
        core.read(entry, 40)
        name = word_at(core, entry + 8)
        if name:
            string_at(core, name, 4096)
        entry = word_at(core, entry + 24)


def _dynamic(core: Core, module: LoadedModule) -> Optional[int]:
    """Where the module's dynamic section is in memory."""
    found = _program(core, module, _PT_DYNAMIC)
    return module.bias + found if found is not None else None


def _program(core: Core, module: LoadedModule, kind: int) -> Optional[int]:
    def read(offset: int, size: int) -> bytes:
        return core.read(module.base + offset, size)

    header = read_header(read)
    if header is None:
        return None
    return next((one.address for one in read_program_headers(read, header, _MOST_SECTIONS) if one.kind == kind), None)


def _tagged(core: Core, place: int, wanted: int) -> Optional[int]:
    for _ in range(_MOST_SECTIONS):
        tag, value = word_at(core, place), word_at(core, place + 8)
        if not tag or tag == wanted:
            return value if tag else None
        place += 16
    return None


def _add_tables(core: Core, modules: Sequence[LoadedModule]) -> None:
    """The unwind tables of modules whose files are not here, as far as the core has them: their frames need them."""
    for module in modules:
        start = _program(core, module, PT_GNU_EH_FRAME)
        segment = core.segment(module.bias + start) if start is not None else None
        if start is not None and segment is not None:
            _add(core, module.bias + start, min(segment.end, module.bias + start + _MOST_TABLES))
        dynamic = _dynamic(core, module)
        if dynamic is not None:
            _add(core, dynamic, dynamic + _CODE)


# What is written


def _parts(core: Core, start: int, end: int, secrets: SecretBytes) -> Iterator[tuple[Part, int]]:
    """What the core has of this range, without secrets, and how many there were."""
    for address, data in core.scan(start, end):
        segment = core.segment(address)
        # A secret may begin before the piece, or go on behind it.
        before = core.read(address - secrets.longest, secrets.longest) if secrets.longest <= address else b""
        before = before if len(before) == secrets.longest else b""
        around = before + data + core.read(address + len(data), secrets.longest)
        places = [(one - len(before), other - len(before)) for one, other in secrets.places(around)]
        clean = zeroed(data, places)
        inside = sum(one < len(data) and other > 0 for one, other in places)
        yield Part(address, len(data), segment.flags if segment else 0, clean), inside


def _code_of_files(core: Core) -> Iterator[Part]:
    """Code that the core has not, as it is in a file: where no file is here, gdb for AArch64 gives up a frame whose code has no segment."""
    for segment in core.segments:
        at = segment.start + segment.stored
        if segment.flags & 1 and at < segment.end:
            yield Part(at, segment.end - at, segment.flags, b"")


def _notes(core: Core, secrets: SecretBytes) -> Iterator[bytes]:
    read = core.part_of_file
    for offset, size in core.note_places:
        for name, kind, payload in notes.split(read(offset, size), core.word.order, whole=True):
            if (name, kind) == (NAME, NOTE):
                continue
            places = secrets.places(payload)
            if kind in _OTHER_REGISTERS or kind == notes.NT_PRSTATUS:
                places += secrets.in_registers(payload)
            yield note(core.word.order, name, kind, zeroed(payload, places))
