"""Native code that goes past the end of a buffer: a core tells whose end lies before the fault address."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.diagnose.case import Case
from crashkit.diagnose.facts import FACTS
from crashkit.diagnose.outcome import Outcome
from crashkit.model import AccessedArray, Address, Crash, Instruction, Mapping, PythonFrame, Signal, Thread
from crashkit.pipeline import analyze
from tests.crashes import NO_TORCH, Folder, Interpreter, every_interpreter, library_crash, needs_x86_64, python_crash, some_interpreters
from tests.packages import folder_with

KINDS = {
    "bytes": "bytes of 1,048,576 bytes",
    "bytearray": "bytearray of 1,048,576 bytes",
    "memoryview": "memoryview of 1,048,576 bytes",
    "array": "array('d') of 131,072 items",
    "ctypes": "ctypes array of 1,048,576 bytes",
    "mmap": "mmap of 1,048,576 bytes",
}


def check(made: Folder, description: str) -> None:
    crash = analyze(made.core)
    truth = json.loads(next(line for line in made.stderr.splitlines() if line.startswith("{")))
    assert crash.signal is not None and crash.signal.address is not None and crash.signal.array is None
    nearest = crash.signal.below[0]
    assert (nearest.variable, nearest.function, nearest.description) == ("buffer", "scramble", description)
    assert max(nearest.end, nearest.owner_end or 0) == truth["end"] <= crash.signal.address
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("buffer-overrun", "likely")
    # A sentence has no comma before a bracket.
    assert f"`buffer`, {description.replace(',)', ')')}" in finding.summary and "past the end" in finding.summary


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("python", every_interpreter())
def test_a_buffer_of_the_standard_library(kind: str, python: Interpreter) -> None:
    check(python_crash("past_end.py", kind, python=python), KINDS[kind])


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.11", "3.13"))
def test_a_view_of_an_array(python: Interpreter) -> None:
    """Which counts as the array that has the memory."""
    check(python_crash("past_end.py", "numpy", str(folder_with(python, "numpy")), python=python), "float32 (511, 512)")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)
def test_a_tensor() -> None:
    check(python_crash("past_end.py", "torch", python=Path(sys.executable)), "float32 (262144,)")


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_an_address_that_no_buffer_leads_to(python: Interpreter) -> None:
    crash = analyze(python_crash("past_end.py", "elsewhere", python=python).core)
    assert crash.signal is not None and crash.signal.below
    assert "buffer-overrun" not in [finding.id for finding in crash.findings]


# Half a gigabyte from the heap, nothing is mapped.
PAST_INDEX = """
import array, ctypes
function = ctypes.CDLL({library!r}).KIND
function.argtypes = [ctypes.c_void_p, ctypes.c_long]
def mean(samples):
    return function(samples.buffer_info()[0], 1 << 26)
mean(array.array("d", [0.5]) * 1000)
"""


@needs_x86_64()
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["indexed", "stepped"])
@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_an_index_that_leaves_the_buffer_in_one_step(kind: str, python: Interpreter, tmp_path: Path) -> None:
    """No memory leads from its end to the address: the instruction, or a register, still has where it begins."""
    crash = analyze(library_crash("past_index.c", PAST_INDEX.replace("KIND", kind), tmp_path, python).core)
    assert crash.signal is not None and crash.signal.below[0].variable == "samples"
    found = crash.findings[0]
    assert (found.id, found.confidence) == ("buffer-overrun", "likely" if kind == "indexed" else "possible")
    assert "`samples`, array('d') of 1,000 items, which has 8,000 bytes" in found.summary


HEAP, END = Mapping(start=Address(0x10000), end=Address(0x20000), permissions="rw-"), 0x20000
FRAME = PythonFrame(function="f", file="/a.py", line=1, source="lib.fill(x.at, y)", locals={"x": "<x at 0x1>", "y": "<y at 0x2>", "z": "3"})


def buffer(name: str, end: int) -> AccessedArray:
    return AccessedArray(
        variable=name, description="bytes", start=Address(end - 16), end=Address(end), thread=1, function="f", file="/a.py", line=1
    )


def outcome(
    *below: AccessedArray,
    address: int = END,
    mappings: tuple[Mapping, ...] = (HEAP,),
    access: str = "write",
    fact: str = "past-handed-buffer",
) -> Outcome:
    signal = Signal(number=11, name="SIGSEGV", address=Address(address), reason="unmapped", access=access, below=below)
    thread = Thread(tid=1, crashed=True, frames=(FRAME,))
    return FACTS[fact](Case(Crash(signal=signal, crashed_thread=1, threads=(thread,), mappings=mappings)))


def test_the_only_buffer_that_the_line_names() -> None:
    told = outcome(buffer("x", 0x1FFF0), buffer("z", 0x1FFE0))
    assert told.holds and (told.fields["variable"], told.fields["beyond"]) == ("x", "16 bytes past the end")
    assert outcome(buffer("x[3].a", 0x11000)).holds and not outcome(buffer("z", 0x1FFF0)).holds


def test_of_two_only_one_in_the_last_page() -> None:
    near, far = buffer("x", 0x1FFF0), buffer("y", 0x1F000)
    assert outcome(near, far).fields["variable"] == "x" and outcome(far).fields["variable"] == "y"
    for two in ((near, buffer("y", 0x1FFD0)), (far, buffer("x", 0x1E000))):
        assert not outcome(*two).holds and "several" in (outcome(*two).why or "")


def test_memory_has_to_lead_from_its_end_to_the_address() -> None:
    lower, upper = replace(HEAP, end=Address(0x18000)), replace(HEAP, start=Address(0x18000))
    one = buffer("x", 0x17000)
    assert outcome(one, mappings=(upper, lower)).holds
    assert not outcome(one, mappings=(replace(upper, start=Address(0x19000)), lower)).holds
    assert not outcome(one, mappings=(replace(upper, permissions="r--"), lower)).holds
    assert outcome(one, mappings=(replace(upper, permissions="r--"), lower), access="read").holds
    assert not outcome(one, mappings=()).holds
    assert outcome(one, address=END + 0xFFF).holds and not outcome(one, address=END + 0x1000).holds
    further = [outcome(one, address=END + step, fact="past-buffer").holds for step in (0x1000, 0xFFFF, 0x10000)]
    assert further == [True, True, False]


def test_a_buffer_of_another_line_has_to_be_near() -> None:
    assert outcome(buffer("z", 0x1F001), fact="past-buffer").holds and not outcome(buffer("z", 0x1F000), fact="past-buffer").holds
    assert not outcome(buffer("z", 0x1F001), buffer("w", 0x1FFF0), fact="past-buffer").holds


def counted(text: str, registers: dict[str, int], *below: AccessedArray, fact: str = "counts-from-buffer") -> bool:
    signal = Signal(number=11, name="SIGSEGV", address=Address(END << 8), reason="unmapped", access="read", below=below)
    thread = Thread(tid=1, crashed=True, frames=(FRAME,), registers={name: Address(value) for name, value in registers.items()})
    faulting = Instruction(address=Address(0x1), text=text, faulting=True)
    return FACTS[fact](Case(Crash(signal=signal, crashed_thread=1, threads=(thread,), instructions=(faulting,)))).holds


def test_only_a_register_of_the_operand_is_what_the_address_was_counted_from() -> None:
    one = buffer("z", 0x1FFF0)
    assert counted("mov rax, [rdx+rcx*8]", {"rdx": 0x1FFE0, "rcx": 7}, one) and counted("ldr x0, [x1, x2]", {"x1": 0x1FFE0}, one)
    assert not counted("mov rax, [rdx+rcx*8]", {"rdx": 0x1FFE8, "rax": 0x1FFE0}, one) and not counted("mov rax, [rdx]", {"rdx": 0x1FFE0})
    assert counted("mov rax, [rdx]", {"rbx": 0x1FFE0}, buffer("x", 0x1FFF0), fact="buffer-in-register")
    # The line does not name it.
    assert not counted("mov rax, [rdx]", {"rbx": 0x1FFE0}, one, fact="buffer-in-register")
