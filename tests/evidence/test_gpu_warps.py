"""What a GPU core shows of blocks, warps and threads around the fault, and NVIDIA's disassembler on the code of real dumps."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest

from crashkit.elf.headers import of_bytes
from crashkit.evidence.gpu import disassembly
from crashkit.evidence.gpu.describe import describe_dump
from crashkit.evidence.gpu.dump import open_dump
from crashkit.model import GpuException
from tests.gpu_cores import CORES, data, gpu, told

needs_nvdisasm = pytest.mark.skipif(
    disassembly.program() is None, reason="nvdisasm is not installed: it comes with CUDA, and in Triton's wheel"
)


def first(name: str) -> GpuException:
    return gpu(name).exceptions[0]


@pytest.mark.parametrize("name", CORES)
def test_blocks_are_those_of_the_grid(name: str) -> None:
    """No block twice, each within the grid, with as many warps as a block has; the first faulting block has a failed warp."""
    described = gpu(name)
    assert not any(kernel.resident for kernel in described.kernels[4:])
    for kernel in described.kernels[:4]:
        indices = [block.index for block in kernel.resident]
        assert len(set(indices)) == len(indices) == kernel.blocks
        assert all(0 <= one < size for index in indices for one, size in zip(index, kernel.grid, strict=True))
        warps = -(-math.prod(kernel.block) // 32)
        assert {len(block.warps) for block in kernel.resident} <= {warps}
        there = sum(len(block.warps) - block.warps.count("-") for block in kernel.resident)
        assert there >= (kernel.warps or 0)
    for exception in described.exceptions:
        if not exception.block_index or not exception.thread_index:
            continue
        x, y, z = exception.thread_index
        warp = (x + exception.block[0] * (y + exception.block[1] * z)) // 32
        of = [kernel for kernel in described.kernels if kernel.mangled == exception.mangled and kernel.device == exception.device]
        letters = [block.warps[warp] for kernel in of for block in kernel.resident if block.index == exception.block_index]
        assert letters == ["f"]


def test_which_warps_wait_and_which_run() -> None:
    """The first warp of each block loops, the others wait for it at the barrier (kernels.cu)."""
    (kernel,) = gpu("native_hang").kernels
    assert [(block.index, block.warps) for block in kernel.resident] == [((0, 0, 0), "rww"), ((1, 0, 0), "rww")]


def test_a_warp_that_has_left_is_shown_as_failed() -> None:
    (kernel,) = gpu("triton_beyond").kernels
    assert [block.warps.count("f") for block in kernel.resident] == [1, 1, 1, 1]
    assert first("triton_beyond").warp == ()


def test_threads_of_the_faulting_warp() -> None:
    """The kernel writes `data[index * n]`: each thread's address is n floats behind the one before it."""
    exception = first("beyond")
    assert [lane.thread_index for lane in exception.warp] == [(number, 0, 0) for number in range(32)]
    assert all(lane.failed for lane in exception.warp)
    addresses = [lane.address for lane in exception.warp if lane.address is not None]
    assert {after - before for before, after in pairwise(addresses)} == {4 << 20}
    assert exception.warp[0].address == exception.address
    lane = exception.warp[3]
    assert int(lane.registers["R5"], 16) << 32 | int(lane.registers["R4"], 16) == lane.address


def test_threads_that_did_not_fail_have_no_registers() -> None:
    """Every fourth index is wrong: one thread of four fails its assertion."""
    lanes = first("compiled_assert").warp
    assert [lane.thread_index[0] for lane in lanes if lane.failed] == list(range(3, 32, 4))
    assert all(bool(lane.registers) == lane.failed for lane in lanes)


def test_only_the_worst_exception_has_its_threads() -> None:
    described = gpu("beyond")
    assert [bool(exception.warp) for exception in described.exceptions] == [True] + [False] * (len(described.exceptions) - 1)


@pytest.mark.parametrize("name", CORES)
def test_a_disassembler_gets_a_few_instructions_and_never_an_image(name: str) -> None:
    """A parser in C would read a hostile file: so it is given code only, around the instruction that failed."""
    given: list[tuple[str, int, bytes]] = []

    def record(architecture: str, start: int, code: bytes) -> dict[int, str]:
        given.append((architecture, start, code))
        return {}

    raw = data(name)
    dump = open_dump(of_bytes(raw), len(raw))
    assert dump is not None
    describe_dump(dump, Path("x"), disassemble=record)
    for architecture, start, code in given:
        assert architecture.startswith("sm_") and start % 16 == 0
        assert 0 < len(code) <= 16 * 16 and len(code) % 16 == 0 and not code.startswith(b"\x7fELF")


@needs_nvdisasm
@pytest.mark.parametrize("name", ["beyond", "triton_beyond", "misaligned", "torch_stale", "cupy_beyond", "null_store"])
def test_disassembly_agrees_with_cuda_gdb(name: str) -> None:
    """The faulting instruction as cuda-gdb shows it, where it could read the dump; else as we decode it."""
    raw = data(name)
    dump = open_dump(of_bytes(raw), len(raw))
    assert dump is not None
    exception = describe_dump(dump, Path("x"), disassemble=disassembly.disassembler()).exceptions[0]
    (faulting,) = [one for one in exception.disassembly if one.faulting]
    assert faulting.address == exception.pc
    assert faulting.bytes == exception.bytes
    expected = told(name).instruction
    assert exception.instruction is not None
    operation = faulting.text.split()[1] if faulting.text.startswith("@") else faulting.text.split()[0]
    assert operation.split(".")[0] == exception.instruction.split(".")[0].split()[0]
    if expected is not None:
        assert "".join(faulting.text.split()) == "".join(expected.rstrip(" ;").split())
    addresses = [one.address for one in exception.disassembly]
    assert addresses == list(range(addresses[0], addresses[0] + 16 * len(addresses), 16))


@needs_nvdisasm
def test_code_that_is_none_is_no_reason_to_fail() -> None:
    disassemble = disassembly.disassembler()
    assert disassemble("sm_90", 0, b"") == {}
    assert disassemble("sm_1", 0, bytes(16)) == {}
    assert disassemble("sm_90; touch x", 0, bytes(16)) == {}
    assert isinstance(disassemble("sm_90", 0, os.urandom(208)), dict)


def test_without_a_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "program", lambda: None)
    assert disassembly.disassembler()("sm_90", 0, bytes(16)) == {}
    assert first("beyond").disassembly == ()
