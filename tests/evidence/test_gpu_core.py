"""GPU cores: every real one is read as cuda-gdb and the driver read it; damaged and foreign ones never raise."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest
from msgspec.structs import replace

from crashkit.elf.headers import of_bytes
from crashkit.evidence.gpu import layout
from crashkit.evidence.gpu.describe import pid_of
from crashkit.evidence.gpu.dump import open_dump
from crashkit.evidence.gpu.sass import decode
from crashkit.model import Gpu, NativeFrame
from crashkit.naming.functions import plain, short_function
from crashkit.naming.gpu_exceptions import exception, meaning_of
from crashkit.naming.itanium import demangled
from crashkit.naming.kernels import known_as

from ..gpu_cores import CORES, DUMPS, changed, data, described, gpu, told

HANGS = ("native_hang", "torch_hang")
SHARED_LOG = ("two_processes-2",)
"""Both processes wrote it: the facts are of the other one."""
FAILED = [name for name in CORES if name not in HANGS]


@pytest.mark.parametrize("name", FAILED)
def test_what_failed_is_what_cuda_gdb_says(name: str) -> None:
    truth, found = told(name), gpu(name)
    wanted = truth.exception or "TRAP"
    first = next(one for one in found.exceptions if one.name == wanted)
    assert found.exceptions[0].name in (wanted, "WARP_ILLEGAL_ADDRESS")
    if truth.pc is not None:
        assert (first.pc, first.exact_pc) == (truth.pc, True)
    if truth.place is not None and wanted != "TRAP":  # it shows the line behind the trap
        assert (Path(first.file or "").name, first.line) == truth.place
    if truth.kernel is not None:
        assert first.kernel == short_function(truth.kernel)
        assert (first.grid, first.block) == (truth.grid, truth.size)
    if truth.block is not None and truth.thread is not None:
        # It looks at the first multiprocessor, crashkit at the first block.
        assert (first.block_index[::-1], first.thread_index[::-1]) <= (truth.block[::-1], truth.thread[::-1])
    if truth.block == (0, 0, 0):
        assert (first.block_index, first.thread_index) == (truth.block, truth.thread)
    if truth.instruction is not None and first.instruction is not None:
        operand = re.search(r"(?:@!?P\d )?(\w+)[^\[]*(?:\[UR\d+\])?\[(R[^\]]*)\]", truth.instruction)
        assert operand is not None
        assert (first.instruction.partition(" ")[0].partition(".")[0], first.instruction.partition("[")[2]) == (
            operand[1],
            f"{operand[2]}]",
        )


@pytest.mark.parametrize("name", ["second_device", "both_devices"])
def test_of_several_devices_the_one_that_failed_is_named(name: str) -> None:
    focus = re.search(r"device (\d+), sm (\d+)", (DUMPS / "told" / f"{name}.txt").read_text())
    found = gpu(name)
    assert focus is not None and [device.index for device in found.devices] == [0, 1]
    assert [(one.name, one.device, one.sm) for one in found.exceptions] == [("WARP_ASSERT", int(focus[1]), int(focus[2]))]


@pytest.mark.parametrize("name", [name for name in FAILED if told(name).facts.get("kernel") and name not in SHARED_LOG])
def test_the_kernel_is_the_one_that_the_program_launched(name: str) -> None:
    facts = told(name).facts
    first = gpu(name).exceptions[0]
    assert first.kernel == facts["kernel"]
    assert (first.grid[0], first.block[0]) == (int(facts["grid"]), int(facts["block"]))


def test_addresses_are_those_that_the_programs_used() -> None:
    """The registers give the address: of the thread that strayed, of a null pointer, of a misaligned access, of an operator's input."""
    strayed = gpu("cupy_beyond").exceptions[0]
    facts = told("cupy_beyond").facts
    assert (strayed.address, strayed.lowest) == (int(facts["address"], 16), int(facts["bins"], 16))
    assert strayed.detail is not None
    assert strayed.detail.startswith("that of thread (72,0,0), 4,294,967,296 bytes from")  # 200 - 128: the only wrong value
    null = gpu("null_store").exceptions[0]
    assert (null.address, null.highest, null.detail) == (16, (63 - 32 + 4) * 4, "a null pointer plus 16 bytes")
    misaligned = gpu("misaligned").exceptions[0]
    assert misaligned.address == int(told("misaligned").facts["data"], 16) + 4
    assert misaligned.detail == "16 bytes at an address that is 4 past a multiple of 16"
    assert gpu("cupy_misaligned").exceptions[0].address == int(told("cupy_misaligned").facts["bytes"], 16) + 4
    stale = gpu("torch_stale").exceptions[0]
    assert (stale.lowest, stale.access, stale.size) == (int(told("torch_stale").facts["address"], 16), "read", 16)
    start = int(told("beyond").facts["data"], 16)
    assert all(one.lowest is not None and one.lowest == start + one.lowest - start for one in gpu("beyond").exceptions)
    assert [(one.lowest or 0) - start for one in gpu("beyond").exceptions] == [(128 << 20) * 4, (64 << 20) * 4]


def test_an_address_that_was_overwritten_is_not_told() -> None:
    """`LDG.E R4,[R4.64]` writes its own address; and these warps ran on after the access."""
    for name in ("read_beyond", "compiled_beyond"):
        first = gpu(name).exceptions[0]
        assert (first.access, first.address, first.lowest, first.detail) == ("read", None, None, None)


def test_a_warp_that_had_left() -> None:
    """Only its multiprocessor has the exception: cuda-gdb crashes on this one. The missing warp tells block and threads."""
    first = gpu("triton_beyond").exceptions[0]
    assert (first.inferred, first.lanes, first.registers) == (True, 4 * 32, {})
    assert (first.block_index, first.thread_index) == ((0, 0, 0), (64, 0, 0))
    assert (first.kernel, first.line, first.instruction) == ("scatter_rows", 17, "STG.E [R4.64]")


def test_inlined_functions() -> None:
    frames = [frame for frame in gpu("inlined_twice").exceptions[0].frames if isinstance(frame, NativeFrame)]
    assert [(frame.function, frame.line, frame.trust) for frame in frames] == [
        ("innermost", 91, "inline"),
        ("middle", 93, "inline"),
        ("inlined_twice", 95, None),
    ]


def test_a_function_that_was_not_inlined() -> None:
    assert [frame.function for frame in gpu("overflows").exceptions[0].frames if isinstance(frame, NativeFrame)] == ["deep"]
    assert [frame.function for frame in gpu("called-debug").exceptions[0].frames if isinstance(frame, NativeFrame)][:1] == ["put"]


@pytest.mark.parametrize("name", HANGS)
def test_where_warps_of_a_hang_stand(name: str) -> None:
    found = gpu(name)
    assert found.exceptions == ()
    kernel = found.kernels[0]
    assert (kernel.name, kernel.grid, kernel.block, kernel.blocks, kernel.warps) == ("waits_at_barrier", (2, 1, 1), (96, 1, 1), 2, 6)
    assert [(place.warps, place.line, place.waits) for place in kernel.places] == [(4, 44, "barrier"), (2, 41, None)]


def test_what_the_dump_says_of_itself() -> None:
    found = gpu("null_store")
    assert [(one.name, one.sm) for one in found.devices] == [("NVIDIA H200", "sm_90")]
    assert (found.driver, found.cuda, found.time) == ("580.159", "13.0", "2026-11-21T18:22:55Z")
    assert (found.truncated, found.context_threads) == (False, (542,))
    assert "global memory" in found.left_out
    assert gpu("asserts-full").left_out == ()


def test_the_first_dumps_of_all() -> None:
    """Those of fixtures/gpu/cores are of another run, and whole."""
    folder = Path(__file__).parent.parent.parent / "fixtures" / "gpu" / "cores"
    found = {path.stem: described(path.read_bytes()).exceptions for path in folder.iterdir()}
    told_of = {name: (one[0].name, one[0].kernel, one[0].lanes) for name, one in found.items()}
    assert told_of["assert"] == ("WARP_ASSERT", "assert_", 2)
    assert told_of["misaligned"] == ("WARP_MISALIGNED_ADDRESS", "misaligned", 64)
    assert told_of["trap"][:2] == ("TRAP", "trap")
    assert f"{found['misaligned'][0].pc}"[-12:] == "7f6e9f7a00c0"  # of fixtures/gpu/logs/gpu-core-misaligned.log


# Other drivers


def restrided(stride: Callable[[int, int], int]) -> Callable[[int, list[int], bytes], tuple[list[int], bytes]]:
    def change(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
        if kind not in layout.COLUMNS or not row[9]:
            return row, content
        old, new = row[9], stride(kind, row[9])
        parts = [content[at : at + old] for at in range(0, len(content), old)]
        row[9] = new
        return row, b"".join(part[:new].ljust(new, b"\xa5") for part in parts)

    return change


UNREAD = {layout.PREDICATES, layout.PARAMETERS, layout.UNIFORM_PREDICATES, layout.CONVERGENCE_BARRIERS}


def of_another_type(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
    """A table that no driver has yet, in place of one that is not read."""
    row[1] = layout.CONVERGENCE_BARRIERS + 40 if kind in UNREAD else kind
    return row, content


@pytest.mark.parametrize("name", ["null_store", "triton_beyond", "both_devices", "native_hang", "shared_beyond"])
def test_columns_and_tables_of_a_newer_driver_change_nothing(name: str) -> None:
    """All that the known columns say is read as before: devices, exceptions, registers, kernels, the driver itself."""
    raw = data(name)
    known = replace(described(raw), size=0)
    for change in (restrided(lambda _kind, size: size + 24), of_another_type):
        newer = changed(raw, change)
        assert newer != raw and replace(described(newer), size=0) == known


OLD = {layout.DEVICES: 72, layout.SMS: 8, layout.GRIDS: 104, layout.CTAS: 24, layout.WARPS: 32, layout.LANES: 48}
"""Bytes of a row before r400, r525 and r555."""


def test_rows_of_an_older_driver_have_fewer_fields() -> None:
    raw = data("null_store")
    old = described(changed(raw, restrided(lambda kind, size: OLD.get(kind, size))))
    new = described(raw)
    assert [(one.name, one.kernel, one.pc, one.lanes, one.address) for one in old.exceptions] == [
        (one.name, one.kernel, one.pc, one.lanes, one.address) for one in new.exceptions
    ]
    assert old.exceptions[0].cluster == ()


def test_an_exception_that_nobody_knows_yet() -> None:
    def change(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
        if kind == layout.LANES:
            new = bytearray(content)
            for at in range(0, len(content), row[9]):
                if struct.unpack_from("<I", content, at + 32)[0]:
                    struct.pack_into("<I", new, at + 32, 99)
            content = bytes(new)
        return row, content

    first = described(changed(data("null_store"), change)).exceptions[0]
    assert (first.name, first.code, first.kernel) == ("CUDA_EXCEPTION_99", 99, "null_store")
    assert exception(99).kind == meaning_of("CUDA_EXCEPTION_99").kind == "other"


def test_pids_in_names() -> None:
    assert pid_of("gpu.host.name.855.1795285374.nvcudmp") == 855
    assert pid_of("core_1795285374_host_855.nvcudmp") == 855
    assert pid_of("x.nvcudmp") is None


# Hostile and truncated


def well_formed(found: Gpu) -> None:
    for one in found.exceptions:
        assert one.name
        assert one.lanes is None or one.lanes >= 0


@pytest.mark.parametrize("name", ["null_store", "triton_beyond", "inlined_twice"])
def test_truncated_anywhere(name: str) -> None:
    """The section table is at the end: without it nothing can be found, and that is said."""
    raw = data(name)
    for part in (*range(64, 2048, 97), *range(2048, len(raw), len(raw) // 40)):
        dump = open_dump(of_bytes(raw[:part]), part)
        assert dump is not None
        found = described(raw[:part])
        assert found.truncated
        well_formed(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["null_store", "inlined_twice", "native_hang", "compiled_assert"])
def test_damaged_anywhere(name: str) -> None:
    """Bytes and words of tables, headers and images replaced at random: never an exception, never long."""
    raw = data(name)
    chance = random.Random(7)
    began = time.process_time()
    for _ in range(120):
        broken = bytearray(raw)
        for _ in range(chance.choice((1, 3, 30))):
            at = chance.randrange(len(raw) - 8)
            if chance.random() < 0.5:
                at = chance.randrange(max(0, len(raw) - 64 * 400), len(raw) - 8)  # the section headers
            value = chance.choice((0, 1, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, chance.getrandbits(64)))
            size = chance.choice((1, 4, 8))
            broken[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        if open_dump(of_bytes(bytes(broken)), len(broken)) is not None:
            well_formed(described(bytes(broken)))
    assert time.process_time() - began < 60


def test_forged_sizes_cost_nothing() -> None:
    """Sections, rows and strides that claim everything: bounded by what is in the file."""

    def everything(kind: int, row: list[int], content: bytes) -> tuple[list[int], bytes]:
        return row, content

    raw = bytearray(changed(data("null_store"), everything))
    table, count = struct.unpack_from("<Q", raw, 40)[0], struct.unpack_from("<H", raw, 60)[0]
    for number in range(1, count):
        struct.pack_into("<Q", raw, table + 64 * number + 32, 1 << 62)
    began = time.process_time()
    found = described(bytes(raw))
    assert found.truncated
    assert time.process_time() - began < 10
    for stride in (0, 1, 7, 1 << 40, (1 << 64) - 1):
        forged = bytearray(raw)
        for number in range(1, count):
            struct.pack_into("<Q", forged, table + 64 * number + 56, stride)
        well_formed(described(bytes(forged)))


def test_other_elf_files_are_no_gpu_cores() -> None:
    raw = data("null_store")
    assert open_dump(of_bytes(raw[:16] + struct.pack("<H", 2) + raw[18:]), len(raw)) is None
    assert open_dump(of_bytes(raw[:18] + struct.pack("<H", 62) + raw[20:]), len(raw)) is None
    assert open_dump(of_bytes(b"\x7fELF"), 4) is None


# Names and instructions


def test_operands_of_other_instructions() -> None:
    """As nvdisasm prints them."""
    known = {
        "0x0000000502007986 0x000fe2000c101904": "STG.E [R2.64]",
        "0x0000000604027981 0x000164000c1e1b00": "LDG.E.64 [R4.64]",
        "0xfffffe0304007985 0x001e4000c101924": "ST.E [R4.64-0x2]",
        "0x0000000902007988 0x0001e20008000806": "STS [R2+UR6]",
        "0x0000000004037983 0x000ea20000300800": "LDL [R4]",
        "0x0000000000007b1d 0x000fec0000010000": "BAR",
        "0x000000040000795c 0x000fe20000300000": "BPT.TRAP",
    }
    for code, text in known.items():
        low, high = (int(part, 16) for part in code.split())
        operation = decode(low.to_bytes(8, "little") + high.to_bytes(8, "little"))
        assert operation is not None
        assert operation.text.replace("+-", "-") == text
    assert decode(b"") is None


NAMES = {
    "_Z10null_storePf": "null_store(float*)",
    "_ZN2at6native39_GLOBAL__N__5cd812b1_7_Loss_cu_5b0651e138nll_loss_forward_reduce_cuda_kernel_2dIfflEEvPT_S4_PKS3_PKT1_S6_bllll": (
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>"
        "(float*, float*, float const*, long const*, float const*, bool, long, long, long, long)"
    ),
    "scatter_rows": "scatter_rows",
    "_Z": "_Z",
    "_ZN": "_ZN",
    "_Z" + "N" * 5000: "_Z" + "N" * 5000,
    "_Z1fI" + "P" * 5000: "_Z1fI" + "P" * 5000,
    "_Z999999999999f": "_Z999999999999f",
}


@pytest.mark.parametrize("name", NAMES)
def test_demangled(name: str) -> None:
    assert demangled(name) == NAMES[name]


def test_a_name_that_doubles_with_every_letter() -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    name = "_Z1f1AIiiE" + "".join(f"S_IS{one}_S{one}_E" for one in digits[:35])
    began = time.process_time()
    assert demangled(name) == name
    assert demangled(name[: name.index("S_IS3")]).count("int") == 2 + 4 + 8 + 16
    assert time.process_time() - began < 1


@pytest.mark.slow
def test_names_are_those_of_binutils() -> None:
    """By their plain form: all functions of the images of real dumps."""
    program = which("c++filt")
    if program is None:
        pytest.skip("c++filt is not installed: apt-get install binutils")
    names = sorted({one for name in ("torch_index", "torch_stale", "graph_replay", "torch_cross_entropy") for one in functions(name)})
    assert len(names) > 500
    answer = subprocess.run([program], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")
    assert [(name, plain(demangled(name))) for name in names] == [(name, plain(one)) for name, one in zip(names, answer, strict=False)]


def functions(name: str) -> set[str]:
    text = data(name)
    return {match.decode() for match in re.findall(rb"(?<=\.text\.)_Z\w+(?=\0)", text)}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("torch_index", "torch: x[index] (index)"),
        ("torch_stale", "torch: mul"),
        ("torch_cross_entropy", "torch: nll_loss (cross_entropy)"),
        ("graph_replay", "torch: index_select (embedding)"),
        ("compiled_assert", "torch.compile: add index mul relu"),
        ("triton_beyond", None),
        ("null_store", None),
    ],
)
def test_what_the_kernel_is_to_its_user(name: str, known: str | None) -> None:
    assert gpu(name).exceptions[0].known_as == known


def test_kernels_of_libraries() -> None:
    assert known_as("nvjet_sm90_tst_64x8_64x16_1x2_h_bz_NNT") == "matrix product (cuBLAS)"
    assert known_as("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32") == "matrix product (cuBLAS)"
    assert known_as("ncclDevKernel_AllReduce_Sum_f32_RING_LL") == "collective operation (NCCL)"
    assert known_as("my_own_kernel") is None
