"""An object of C++ that is used after it was deleted: the allocator's link between free blocks is where its first word was."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import cast

import pytest

from crashkit.arch.operands import Access
from crashkit.elf.headers import Word
from crashkit.evidence.core.freed_block import freed_block
from crashkit.memory import Memory
from crashkit.model import Address, Mapping, Signal
from crashkit.pipeline import analyze
from tests.crashes import CRASHERS, NO_COMPILER, an_interpreter, needs_x86_64, python_crash

PROGRAM = "import ctypes\nmodel = ctypes.PyDLL({library!r})\nmodel.load()\nmodel.drop()\nmodel.run()\n"
HEAP = Mapping(start=Address(0x5555_5000_0000), end=Address(0x5555_5010_0000), permissions="rw-", path="[heap]")
BLOCK = 0x5555_5000_0100


class _OneWord:
    """Memory of which only this is known."""

    word = Word(8, "<")

    def __init__(self, address: int, value: int) -> None:
        self._address, self._value = address, value

    def read(self, address: int, size: int) -> bytes:
        return self._value.to_bytes(8, "little")[:size] if address == self._address else b""


@needs_x86_64()
@pytest.mark.slow
def test_a_virtual_function_of_a_deleted_object(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or pytest.skip(NO_COMPILER)
    python = an_interpreter()
    if python.path.read_bytes()[16:18] == b"\2\0":  # ET_EXEC
        pytest.skip(
            "this Python has its heap at small addresses: a link between blocks of it is an address of memory, whose words may be code"
        )
    library, program = tmp_path / "freed_object.so", tmp_path / "program.py"
    subprocess.run([compiler, "-g", "-O1", "-shared", "-fPIC", CRASHERS / "freed_object.cpp", "-o", library], check=True)
    program.write_text(PROGRAM.format(library=str(library)))
    crash = analyze(python_crash(program, python=python).core)
    assert crash.signal is not None and crash.signal.freed is not None
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("use-after-free", "likely")
    assert f"run used the block at {int(crash.signal.freed):#x}, which had been freed" in (finding.summary or "")
    assert not finding.fix[0].startswith("crashkit run --asan"), "it checks no code that was built without it"


@pytest.mark.parametrize(
    ("block", "link", "reason", "found"),
    [
        (BLOCK, BLOCK >> 12, "unmapped", True),  # the last of its list
        (BLOCK, BLOCK >> 12, "called", True),  # what is there was called, and lies anywhere
        (BLOCK, BLOCK >> 12 ^ (BLOCK + 0x40), "unmapped", True),
        (BLOCK, BLOCK >> 12 ^ (BLOCK + 0x48), "unmapped", False),  # no block begins there
        (BLOCK, BLOCK >> 12 ^ 0x7FFF_0000_0000, "unmapped", False),  # nothing is there
        (BLOCK + 8, (BLOCK + 8) >> 12, "unmapped", False),
        (BLOCK, BLOCK >> 12, "null-pointer", False),
        (BLOCK, 0x4141_4141_4141_4141, "non-canonical", False),
    ],
)
def test_what_is_a_link(block: int, link: int, reason: str, found: bool) -> None:
    memory = cast(Memory, _OneWord(block, link))
    signal = Signal(number=11, name="SIGSEGV", reason=reason, address=Address(link + 16))
    if reason == "called":
        signal = Signal(number=11, name="SIGSEGV", reason="null-pointer", access="execute", address=Address(0))
    accesses = [Access("read", link + 16, 8, base="rax")]
    assert freed_block(memory, signal, accesses, {"rax": link, "rdi": block}, [HEAP]) == (block if found else None)
