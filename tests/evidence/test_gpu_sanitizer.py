"""compute-sanitizer's words about a program, and what crashkit reads from the GPU core of the same program (fixtures/gpu/sanitizer).

The two are of different runs, whose memory lies elsewhere: addresses are compared by how far they are from the buffer that the program
names.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from crashkit.evidence.gpu import describe, sass
from crashkit.model import Gpu, GpuException
from crashkit.report import gpu_wording
from tests.gpu_cores import described

FOLDER = Path(__file__).parent.parent.parent / "fixtures" / "gpu" / "sanitizer"
CORES = sorted(path.name.removesuffix(".nvcudmp.gz") for path in (FOLDER / "cores").iterdir())
NEAR = 1 << 42
"""Bytes within which an address is told by its distance from the buffer."""

OVERWRITTEN = {
    *(f"{what}_{width}" for what in ("read_far", "read_null") for width in (1, 2, 4, 8, 16)),
    *("read_misaligned_2", "read_misaligned_4", "read_misaligned_8", "read_misaligned_8-plain", "read_misaligned_16", "read_freed_8"),
    *("return_far_4", "return_far_8", "triton_reads"),
}
"""Loads, and atomic operations with a result, whose result took the place of half of the address or of all of it."""
RAN_ON = {"shared_misaligned", "torch_index"}
"""A uniform register that was part of the address, or the registers, had another value when the warp stopped."""
LEFT = {"triton_far"}
"""The warp had left."""


class Said(NamedTuple):
    """The first error that compute-sanitizer shows."""

    space: str
    access: str
    size: int
    offset: int
    place: Optional[tuple[str, int]]
    address: int
    threads: set[tuple[tuple[int, ...], tuple[int, ...]]]
    """Thread and block of the errors that were kept."""


@cache
def gpu(name: str) -> Gpu:
    return described(gzip.decompress((FOLDER / "cores" / f"{name}.nvcudmp.gz").read_bytes()))


def first(name: str) -> GpuException:
    return gpu(name).exceptions[0]


def _halves(name: str) -> tuple[str, str]:
    alone, _, checked = (FOLDER / "told" / f"{name}.txt").read_text().partition("=== compute-sanitizer")
    return alone, checked


def distance(name: str, text: str, address: int) -> int:
    """How far it is from the buffer of that run; a null pointer as it is."""
    base = re.search(r"^FACT (?:base|data) (0x[0-9a-f]+)", text, re.MULTILINE)
    assert base is not None, name
    return address - int(base[1], 16) if abs(address - int(base[1], 16)) < NEAR else address


def said(name: str) -> Optional[Said]:
    _, text = _halves(name)
    line = re.search(r"Invalid __(\w+)__ (\w+) of size (\d+) bytes\n=+ +at .*\+(0x[0-9a-f]+)(?: in (\S+):(\d+))?$", text, re.MULTILINE)
    address = re.search(r"Access to (0x[0-9a-f]+)", text)
    if line is None or address is None:
        return None
    threads = {
        (tuple(map(int, thread.split(","))), tuple(map(int, block.split(","))))
        for thread, block in re.findall(r"by thread \(([\d,]+)\) in block \(([\d,]+)\)", text)
    }
    place = (line[5], int(line[6])) if line[5] else None
    return Said(line[1], line[2], int(line[3]), int(line[4], 16), place, int(address[1], 16), threads)


CHECKED = [name for name in CORES if said(name) is not None]


def test_what_was_compared() -> None:
    """Of a load through a tensor map, compute-sanitizer says where, and no address either."""
    assert len(CHECKED) > 40 and set(CORES) - set(CHECKED) == {"tensor_load_freed"}
    _, text = _halves("tensor_load_freed")
    assert "Warp illegal address" in text and "+0x1d0 in accesses.cu:74" in text
    found = first("tensor_load_freed")
    assert (found.offset, found.line, found.instruction) == (0x1D0, 74, "UTMALDG")
    assert gpu_wording.access(found) == "a bulk copy (TMA) from global memory"


@pytest.mark.parametrize("name", CHECKED)
def test_instruction_line_and_access_are_the_same(name: str) -> None:
    wanted, found = said(name), first(name)
    assert wanted is not None
    assert (found.offset, found.space, found.access) == (wanted.offset, wanted.space, wanted.access)
    if not name.startswith("bulk"):  # how much is copied is in a register
        assert found.size == wanted.size
    # The sources that CuPy and NVRTC compile have no path.
    if wanted.place is not None:
        assert (Path(found.file or "").name, found.line) == wanted.place
    else:
        assert found.line is None


@pytest.mark.parametrize("name", CHECKED)
def test_the_address_is_the_same_where_it_is_told(name: str) -> None:
    wanted, found = said(name), first(name)
    assert wanted is not None
    if name in OVERWRITTEN | RAN_ON | LEFT:
        assert found.address is None
        return
    alone, checked = _halves(name)
    assert found.address is not None
    there, here = (wanted.address, found.address)
    if wanted.space == "global":
        there, here = distance(name, checked, wanted.address), distance(name, alone, found.address)
    assert here == there


@pytest.mark.parametrize("name", [name for name in CHECKED if name not in LEFT])
def test_the_first_thread_is_of_a_warp_that_failed(name: str) -> None:
    """The hardware tells the warp; compute-sanitizer the thread, of which that of the address told is one."""
    wanted, found = said(name), first(name)
    assert wanted is not None
    size = found.block

    def warp(thread: tuple[int, ...]) -> int:
        return (thread[0] + size[0] * (thread[1] + size[1] * thread[2])) // 32

    failed = {(warp(thread), block) for thread, block in wanted.threads}
    if name == "torch_index":  # the block's warps in another order: the first that stopped is the one in the dump
        failed |= {(warp(found.thread_index), found.block_index)}
    assert (warp(found.thread_index), found.block_index) in failed


@pytest.mark.parametrize(("name", "by"), [("read_misaligned_2", 1), ("read_misaligned_4", 2)])
def test_half_an_address_tells_by_how_much_it_is_misaligned(name: str, by: int) -> None:
    wanted, found = said(name), first(name)
    assert wanted is not None and wanted.address % wanted.size == by
    assert found.detail == f"{wanted.size} bytes at an address that is {by} past a multiple of {wanted.size}"


def test_the_thread_that_left_shared_memory_is_named() -> None:
    """The first thread of the warp stays within it. A block has 1,024 bytes for the system before its own."""
    for name in ("shared_writes", "shared_reads", "shared_writes-plain"):
        wanted, found = said(name), first(name)
        assert wanted is not None and min(wanted.threads) == ((1, 0, 0), (0, 0, 0))
        assert found.detail == f"that of thread (1,0,0), {wanted.address - 1280:,} bytes beyond the end of the block's 1,280 bytes"
        assert found.lowest == 1024


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bulk_load_null", "a bulk copy (TMA) from global memory at {}: a null pointer"),
        ("bulk_load_misaligned", "a bulk copy (TMA) from global memory at {}: 16 bytes at an address that is 4 past a multiple of 16"),
        ("bulk_store_beyond", "a bulk copy (TMA) into global memory at {}"),
    ],
)
def test_a_bulk_copys_address_is_in_uniform_registers(name: str, shown: str) -> None:
    found = first(name)
    assert (gpu_wording.access(found) or "") == shown.format(found.address)


def test_stores_at_the_end_of_a_kernel_leave_no_core() -> None:
    """With core dumps enabled driver 580 lets them pass: the program goes on, and compute-sanitizer alone knows of them."""
    for name in ("write_far_4", "one_thread", "generic", "called", "cupy_far"):
        assert name not in CORES and (said(name) or Said("", "", 0, 0, None, 0, set())).access == "write"
        assert "status -6" not in _halves(name)[0] and "cudaErrorIllegalAddress" not in _halves(name)[0]


def test_what_may_have_run_before_a_warp_stopped() -> None:
    """Around a loop, and not on the way that leads elsewhere."""

    def branch(distance: int) -> bytes:
        low = 0x947 | (distance // 4 & 0xFF) << 16 | (distance // 4 >> 8 & 0x3FFFFFFF) << 34
        return low.to_bytes(8, "little") + (0x3FFFF if distance < 0 else 0).to_bytes(8, "little")

    plain, leaves = bytes((2, 0x72)) + bytes(14), bytes((0x4D, 0x79)) + bytes(14)

    class Code:
        def __init__(self, *instructions: bytes) -> None:
            self.instructions = instructions

        def instruction(self, address: int, size: int) -> bytes:
            return b"".join(self.instructions)[address : address + size]

    loops = Code(plain, plain, plain, branch(-4 * sass.SIZE), plain)
    forks = Code(plain, branch(2 * sass.SIZE), plain, leaves, plain)
    for code, start, end, wanted in (
        (loops, 1, 4, {0, 1, 2, 3}),
        (loops, 0, 2, {0, 1, 2, 3}),
        (forks, 0, 4, {1}),
        (forks, 0, 2, {1}),
    ):
        found = describe._between(code, start * sass.SIZE, end * sass.SIZE, 90)  # type: ignore[arg-type]
        assert found == {number * sass.SIZE for number in wanted}
