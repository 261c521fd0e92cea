"""The layout of NVIDIA's GPU core format as data: section types and the rows of its tables.

An ELF file whose sections are tables. `sh_link` of a table is the section number of its parent table, `sh_info` the row in it. Rows are
`sh_entsize` bytes long: newer drivers append fields, older ones lack the last ones. Source: `cudacoredump.h` and `cudadebugger.h` of the
CUDA toolkit; offsets checked on dumps of driver 580.
"""

from __future__ import annotations

import msgspec

MACHINE = 190
"""e_machine: EM_CUDA."""

_BASE = 0x80000000
MANAGED_MEMORY, GLOBAL_MEMORY, LOCAL_MEMORY, SHARED_MEMORY = (_BASE + number for number in (1, 2, 3, 4))
REGISTERS, IMAGE, RELOCATED_IMAGE, BACKTRACE = (_BASE + number for number in (5, 6, 7, 8))
DEVICES, CONTEXTS, SMS, GRIDS, CTAS, WARPS, LANES, MODULES = (_BASE + number for number in range(9, 17))
PREDICATES, PARAMETERS, UNIFORM_REGISTERS, UNIFORM_PREDICATES = (_BASE + number for number in range(17, 21))
CONSTANT_BANKS, METADATA, CONVERGENCE_BARRIERS = (_BASE + number for number in range(21, 24))


class Field(msgspec.Struct, frozen=True):
    """One column: where it lies in a row, in bytes."""

    offset: int
    size: int


def _fields(**places: tuple[int, int]) -> dict[str, Field]:
    return {name: Field(*place) for name, place in places.items()}


COLUMNS: dict[int, dict[str, Field]] = {
    DEVICES: _fields(
        name=(0, 8),
        kind=(8, 8),
        sm_type=(16, 8),
        id=(24, 4),
        sms=(36, 4),
        warps_per_sm=(40, 4),
        lanes_per_warp=(44, 4),
        instruction_size=(64, 4),
        status=(68, 4),
    ),
    CONTEXTS: _fields(id=(0, 8), shared_window=(8, 8), local_window=(16, 8), global_window=(24, 8), device=(32, 4), tid=(36, 4)),
    GRIDS: _fields(
        id=(0, 8),
        context=(8, 8),
        entry=(24, 8),
        module=(32, 8),
        kind=(56, 4),
        origin=(60, 4),
        status=(64, 4),
        grid_x=(72, 4),
        grid_y=(76, 4),
        grid_z=(80, 4),
        block_x=(84, 4),
        block_y=(88, 4),
        block_z=(92, 4),
        blocking=(96, 4),
        tid=(100, 4),
        cluster_x=(104, 4),
        cluster_y=(108, 4),
        cluster_z=(112, 4),
    ),
    SMS: _fields(
        id=(0, 4),
        exception=(8, 4),
        error_pc_valid=(12, 4),
        error_pc=(16, 8),
        target_valid=(24, 4),
        target_x=(28, 4),
        target_y=(32, 4),
        target_z=(36, 4),
        exception_text=(40, 8),
    ),
    CTAS: _fields(grid=(0, 8), x=(8, 4), y=(12, 4), z=(16, 4)),
    WARPS: _fields(
        error_pc=(0, 8),
        id=(8, 4),
        valid_lanes=(12, 4),
        active_lanes=(16, 4),
        broken=(20, 4),
        error_pc_valid=(24, 4),
        registers=(32, 4),
        shared_size=(40, 4),
        barrier_scope=(64, 4),
    ),
    LANES: _fields(
        pc=(0, 8), lane=(16, 4), x=(20, 4), y=(24, 4), z=(28, 4), exception=(32, 4), depth=(36, 4), system_depth=(40, 4), state=(48, 4)
    ),
    BACKTRACE: _fields(return_address=(8, 8), level=(16, 4)),
    METADATA: _fields(
        generator=(0, 8), driver_major=(8, 4), driver_minor=(12, 4), cuda_major=(16, 4), cuda_minor=(20, 4), flags=(24, 4), time=(28, 4)
    ),
}
"""The columns that are read, by section type."""

SMALLEST = {kind: min(field.offset + field.size for field in fields.values()) for kind, fields in COLUMNS.items()}
"""The size of a row that still holds a column, in bytes, by section type."""

MOST_ROWS = {SMS: 1024, CTAS: 256, WARPS: 256, LANES: 64}
"""More rows than one table of these types has on any GPU: of a device, a multiprocessor, a block, a warp."""

SKIPPED = {1: "code as it was on disk", 2: "global memory", 4: "shared memory", 8: "local memory", 32: "constant banks"}
"""What each bit of the metadata's flags left out (CUDBGCoredumpGenerationFlags)."""
