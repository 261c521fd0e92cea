"""Records of C++ exceptions in memory that no compiler made: the search for them ends soon all the same."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Optional

from crashkit.arch import Architecture, of_machine
from crashkit.elf.headers import Word
from crashkit.evidence.core.cxx_exception import handled, in_flight
from crashkit.memory import MemoryThread
from crashkit.model import Address, Mapping

HEAP, STACK = 0x7F0000000000, 0x7FFE00000000
TYPE, NAME = HEAP + 0x100, HEAP + 0x80
CLASS = b"\0++CCUNG"
PAGE = 4096


class Memory:
    """A heap and a stack; notes what is read of them."""

    def __init__(self, heap: bytes, stack: bytes = bytes(PAGE)) -> None:
        self.parts = {HEAP: heap, STACK: stack}
        self.reads = self.searched = 0
        self.architecture: Architecture = of_machine(62)
        self.word, self.page = Word(8, "<"), PAGE

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        assert self.reads < 100_000
        return next((part[address - start :][:size] for start, part in self.parts.items() if start <= address < start + len(part)), b"")

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        self.searched += end - start
        yield start, self.read(start, end - start)

    def mappings(self) -> Sequence[Mapping]:
        return [Mapping(start=Address(start), end=Address(start + len(part)), permissions="rw-") for start, part in self.parts.items()]

    def threads(self) -> Sequence[MemoryThread]:
        return ()

    def text(self, address: int) -> Optional[str]:
        return self.read(address, 20).split(b"\0")[0].decode() or None


def placed(size: int, parts: dict[int, bytes]) -> bytes:
    """Memory of that size with these parts in it, by their distance from its start."""
    memory = bytearray(size)
    for at, part in parts.items():
        memory[at : at + len(part)] = part
    return bytes(memory)


def record(handlers: int, handler: int = 0) -> bytes:
    """The record of an exception, with the number of references before it: of this type, and caught in that frame."""
    counted = struct.pack("<QQ", 1, 0)
    return counted + struct.pack("<Q32xi36x8sQQQ", TYPE, handlers, CLASS, 0, 0, handler) + struct.pack("<Q", 0) * 3


def test_a_class_that_derives_from_itself() -> None:
    bases = b"".join(struct.pack("<Qq", TYPE, 2) for _ in range(16))
    kind = struct.pack("<QQII", 0, NAME, 0, 16) + bases
    pointer = HEAP + 0x1010
    thread = HEAP + 0x3000
    heap = placed(1 << 16, {0x80: b"3App\0", 0x100: kind, 0x1000: record(1), 0x2FF8: struct.pack("<Q", pointer)})
    memory = Memory(heap + bytes(1 << 12))
    vector = HEAP + 0x4000
    memory.parts[HEAP] = placed(len(heap), {0: heap, 0x3008: struct.pack("<Q", vector)})
    found = handled(memory, thread, memory.text)
    assert found is not None and found.type == "App"


def test_many_exceptions_that_are_kept() -> None:
    """As of tasks that failed: memory is searched once for the pointers to all of them, not for each."""
    count, size = 300, 1 << 20
    frame = STACK + 0x100
    parts = {0x80: b"3App\0", 0x100: struct.pack("<QQ", 0, NAME)}
    parts.update({0x1000 + number * 0x100: record(0, frame) for number in range(count)})
    objects = [HEAP + 0x1000 + number * 0x100 + 16 + 112 for number in range(count)]
    parts[0x80000] = struct.pack(f"<{count - 1}Q", *objects[1:])
    stack = placed(PAGE, {0x10: struct.pack("<Q", objects[0])})
    memory = Memory(placed(size, parts), stack)
    found = in_flight(memory, [{"rsp": STACK}, {"rsp": frame}, {"rsp": STACK + 0x200}], memory.text)
    assert [one.address for one in found] == objects[:1]
    assert memory.searched < 3 * size
