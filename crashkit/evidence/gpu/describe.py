"""Describes a GPU core in the model's terms: what failed where, which kernels ran, where their warps stood.

Attribution as cuda-gdb does it. A thread's own exception comes first. A multiprocessor's exception without a thread that has it is one of
a warp that had left when the dump was written: then only the program counter is known, and which warps of its block are missing. A stopped
warp without an exception ran into a trap instruction.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Optional, TypeVar

from msgspec.structs import replace

from crashkit.evidence.gpu import layout, sass
from crashkit.evidence.gpu.disassembly import Disassemble, nothing
from crashkit.evidence.gpu.dump import GpuDump, Row, Table
from crashkit.evidence.gpu.image import Image, Images
from crashkit.limits import GPU_SECONDS
from crashkit.model import (
    Address,
    Gpu,
    GpuBlock,
    GpuDevice,
    GpuException,
    GpuKernel,
    GpuLane,
    GpuPlace,
    Instruction,
    NativeFrame,
    Offset,
    PythonFrame,
)
from crashkit.naming.addresses import is_null
from crashkit.naming.functions import short_function
from crashkit.naming.gpu_exceptions import TRAP, Meaning, exception
from crashkit.naming.itanium import demangled
from crashkit.naming.kernels import known_as, short_kernel
from crashkit.naming.times import utc

MOST_EXCEPTIONS = 64
_MOST_KERNELS = 64
_MOST_PLACES = 16
_MOST_FRAMES = 64
_MOST_LANES = 2048
"""Lanes whose addresses are computed for one exception."""
_MOST_DRAWN = 4
"""Kernels whose blocks are listed."""
_MOST_BLOCKS = 512
"""Blocks of a kernel that are shown; an H200 holds 4,224 at most."""
_MOST_LANES_SHOWN = 32
_MOST_REGISTERS = 64
"""Registers of each thread of the faulting warp that are shown."""
FAILED, WAITS, RUNS, GONE = "f", "w", "r", "-"
_BEFORE, _BEHIND = 8, 4
"""Instructions before and behind the faulting one that are disassembled."""
_FARTHEST = 64
"""A warp that stands more instructions behind the faulting one has no registers that tell."""
_NEAR = 1 << 28
"""Memory that ends farther than this from an address, in bytes, says nothing about it."""
_ARCHITECTURE = re.compile(r"sm_([0-9]{2,3})")
_STATUS = {1: "pending", 2: "active", 3: "sleeping", 4: "terminated"}
_NAME = re.compile(
    r"(?:gpu|cuda_coredump)[._].{0,255}[._](?P<ours>\d{1,9})\.\d{9,20}\.nvcudmp"
    r"|core_\d{1,20}_.{0,255}_(?P<drivers>\d{1,9})\.nvcudmp"
    r"|core\.cuda\..{0,255}\.(?P<old>\d{1,9})(?:\.gz)?$"
)
_T = TypeVar("_T")

Annotate = Callable[[PythonFrame], PythonFrame]

_RANK = ("ecc", "memory", "misaligned", "cluster", "copy", "tensor", "stack", "heap", "code", "driver", "other", "assert", "trap")


class _Warp(NamedTuple):
    """A warp with what it belongs to."""

    device: int
    sm: Row
    cta: Row
    row: Row
    lanes: Table


class _Fault(NamedTuple):
    """An exception of some lanes of one warp, or of a warp that has left."""

    meaning: Meaning
    code: Optional[int]
    device: int
    sm: int
    pc: int
    exact: bool
    cta: Optional[Row]
    warp: Optional[_Warp]
    lanes: tuple[Row, ...]
    thread: tuple[int, ...] = ()
    gone: Optional[int] = None
    """The number of threads, where the lanes are not there."""


def describe_dump(dump: GpuDump, path: Path, annotate: Annotate = lambda frame: frame, disassemble: Disassemble = nothing) -> Gpu:
    """The GPU core that was read from `path`. `annotate` adds source lines to a place, `disassemble` shows the code around an address."""
    return _Description(dump, annotate, disassemble).gpu(path)


def pid_of(name: str) -> Optional[int]:
    """The process id in a dump's usual names: `gpu.HOST.PID.TIME.nvcudmp` of crashkit run, `core_TIME_HOST_PID.nvcudmp` of the driver."""
    match = _NAME.match(name)
    return int(match["ours"] or match["drivers"] or match["old"]) if match else None


class _Description:
    def __init__(self, dump: GpuDump, annotate: Annotate, disassemble: Disassemble) -> None:
        self.dump = dump
        self.annotate = annotate
        self.disassemble = disassemble
        self.images = Images(dump)
        self._architectures = {row.number: self._architecture(row) for row in dump.rows(layout.DEVICES)}
        self._ends = time.thread_time() + GPU_SECONDS
        self.warps = tuple(self._warps())
        self.grids = {(grid.table.parent_row, grid.value("id")): grid for grid in dump.rows(layout.GRIDS)}
        self.failed: dict[tuple[int, Row], set[int]] = {}
        """Numbers of the failed warps, by device and block."""

    def gpu(self, path: Path) -> Gpu:
        dump = self.dump
        meta = next(dump.rows(layout.METADATA), None)
        flags = meta.value("flags") if meta else 0
        truncated = bool(dump.missing) or not dump.complete
        return Gpu(
            path=str(path),
            pid=pid_of(path.name),
            time=utc(meta.get("time") or None) if meta else None,
            size=dump.size,
            truncated=truncated,
            driver=f"{meta.value('driver_major')}.{meta.value('driver_minor')}" if meta and meta.get("driver_major") else None,
            cuda=f"{meta.value('cuda_major')}.{meta.value('cuda_minor')}" if meta and meta.get("cuda_major") else None,
            left_out=tuple(text for bit, text in layout.SKIPPED.items() if flags & bit),
            devices=tuple(
                GpuDevice(index=row.get("id"), name=dump.text(row.get("name")), sm=dump.text(row.get("sm_type")))
                for row in dump.rows(layout.DEVICES)
            ),
            exceptions=self.exceptions(),
            kernels=tuple(self.kernels()),  # after the exceptions, which tell what failed
            context_threads=tuple(sorted({row.value("tid") for row in dump.rows(layout.CONTEXTS)} - {0})),
        )

    def _architecture(self, device: Row) -> Optional[int]:
        """90 for sm_90; None if its instructions have another length."""
        if device.get("instruction_size") not in (None, 0, sass.SIZE):
            return None
        match = _ARCHITECTURE.match(self.dump.text(device.get("sm_type")) or "")
        return int(match[1]) if match else sass.USUAL

    def _warps(self) -> Iterator[_Warp]:
        for device in self.dump.rows(layout.DEVICES):
            sms = self.dump.child(device, layout.SMS)
            for sm in self._in_time(sms.rows() if sms else ()):
                ctas = self.dump.child(sm, layout.CTAS)
                for cta in ctas.rows() if ctas else ():
                    warps = self.dump.child(cta, layout.WARPS)
                    for warp in self._in_time(warps.rows() if warps else ()):
                        lanes = self.dump.child(warp, layout.LANES)
                        if lanes is not None:
                            yield _Warp(device.number, sm, cta, warp, lanes)

    def _in_time(self, items: Iterable[_T]) -> Iterator[_T]:
        """The items, as many as the time allows."""
        for item in items:
            if time.thread_time() > self._ends:
                self.dump.cut = True
                return
            yield item

    # What failed

    def exceptions(self) -> tuple[GpuException, ...]:
        groups: dict[tuple[str, int, str, int], list[_Fault]] = {}
        for fault in self._in_time(self._faults()):
            self._note_failed(fault)
            code = self.images.at(fault.pc)
            found = code.code(fault.pc) if code else None
            grid = self._grid_of(fault)
            kernel = self._entry_name(grid) or (found.name if found else "")
            groups.setdefault((fault.meaning.name, fault.device, kernel, fault.pc), []).append(fault)
        described = [(self._exception(kernel, faults), sorted(faults, key=_position)[0]) for (_, _, kernel, _), faults in groups.items()]
        described.sort(key=lambda one: (_RANK.index(one[1].meaning.kind), one[0].inferred, -(one[0].lanes or 0)))
        entries = [entry for entry, _ in described[:MOST_EXCEPTIONS]]
        for worst, fault in described[:1]:
            entries[0] = replace(worst, warp=tuple(self._lanes(fault)), disassembly=self._disassembly(fault))
        return tuple(entries)

    def _note_failed(self, fault: _Fault) -> None:
        thread = fault.lanes[0].triple("x", "y", "z") if fault.lanes else fault.thread
        grid = self._grid_of(fault)
        if fault.cta is not None and grid is not None and thread:
            x, y, z = thread
            number = _linear((x, y, z), grid.triple("block_x", "block_y", "block_z")) // 32
            self.failed.setdefault((fault.device, fault.cta), set()).add(number)

    def _lanes(self, fault: _Fault) -> Iterator[GpuLane]:
        """The threads of the faulting warp."""
        if fault.warp is None:
            return
        failed = {lane.number for lane in fault.lanes}
        operation = self._operation(fault.pc, fault.device) if fault.exact and fault.meaning.kind in ("memory", "misaligned") else None
        used = self._addresses(operation, [fault]) if operation and operation.access else []
        addresses = {lane.number: address for address, lane in used}
        lanes = list(fault.warp.lanes.rows())[:_MOST_LANES_SHOWN]
        values = {lane.number: self.dump.words(lane, layout.REGISTERS)[:_MOST_REGISTERS] for lane in lanes if lane.number in failed}
        telling = [
            number for number in range(_MOST_REGISTERS) if any(words[number : number + 1] not in ((), (0,)) for words in values.values())
        ]
        active = fault.warp.row.get("active_lanes")
        for lane in lanes:
            image = self.images.at(lane.value("pc"))
            start = _function(image, lane.value("pc"))[1] if image else None
            words = values.get(lane.number, ())
            yield GpuLane(
                thread_index=lane.triple("x", "y", "z"),
                failed=lane.number in failed,
                active=None if active is None else bool(active >> (lane.value("lane") & 31) & 1),
                offset=Offset(lane.value("pc") - start) if start is not None else None,
                address=Address(addresses[lane.number]) if lane.number in addresses else None,
                registers={f"R{number}": f"0x{words[number]:08x}" for number in telling if number < len(words)},
            )

    def _disassembly(self, fault: _Fault) -> tuple[Instruction, ...]:
        """The instructions around the faulting one, where a disassembler is at hand."""
        image = self.images.at(fault.pc)
        code = image.code(fault.pc) if image else None
        device = next((row for row in self.dump.rows(layout.DEVICES) if row.number == fault.device), None)
        architecture = self.dump.text(device.get("sm_type")) if device else None
        if image is None or code is None or not architecture:
            return ()
        pcs = range(max(code.start, fault.pc - _BEFORE * sass.SIZE), min(code.end, fault.pc + (_BEHIND + 1) * sass.SIZE), sass.SIZE)
        raw = [image.instruction(pc, sass.SIZE) for pc in pcs]
        if not all(raw):
            return ()
        name, _ = _function(image, fault.pc)
        texts = self.disassemble(architecture, pcs[0] - code.start, b"".join(raw))
        return tuple(
            Instruction(
                address=Address(pc),
                text=texts[pc - code.start],
                bytes=one.hex(),
                function=_shown(name) if name else None,
                faulting=pc == fault.pc,
            )
            for pc, one in zip(pcs, raw, strict=True)
            if pc - code.start in texts
        )

    def _faults(self) -> Iterator[_Fault]:
        told: set[tuple[int, int]] = set()
        for warp in self._in_time(self.warps):
            by_code: dict[int, list[Row]] = {}
            for number, code in enumerate(warp.lanes.column("exception")):
                if code:
                    by_code.setdefault(code, []).append(Row(warp.lanes, number))
            for code, lanes in by_code.items():
                told.add((warp.device, warp.sm.number))
                yield self._of_lanes(warp, exception(code), code, lanes)
            if not by_code and warp.row.value("broken"):
                active = warp.row.value("active_lanes")
                lanes = [lane for lane in warp.lanes.rows() if active >> (lane.value("lane") & 31) & 1] or list(warp.lanes.rows())
                if lanes:
                    yield self._of_lanes(warp, TRAP, None, lanes)
        for table in self.dump.tables(layout.SMS):
            for sm in self._in_time(table.rows()):
                code = sm.value("exception")
                if code and (table.parent_row, sm.number) not in told:
                    yield self._of_sm(table.parent_row, sm, code)

    def _of_lanes(self, warp: _Warp, meaning: Meaning, code: Optional[int], lanes: list[Row]) -> _Fault:
        exact = bool(warp.row.value("error_pc_valid"))
        pc = warp.row.value("error_pc") if exact else lanes[0].value("pc")
        if meaning is TRAP:
            before = self._operation(pc - sass.SIZE, warp.device)
            if before is not None and before.name in sass.TRAP:
                pc, exact = pc - sass.SIZE, True
        return _Fault(meaning, code, warp.device, warp.sm.value("id"), pc, exact, warp.cta, warp, tuple(lanes))

    def _of_sm(self, device: int, sm: Row, code: int) -> _Fault:
        """The exception of a warp that has left: of the only block of the kernel here, the warps that are missing."""
        exact = bool(sm.value("error_pc_valid"))
        pc = sm.value("error_pc") if exact else 0
        here = [warp for warp in self.warps if warp.device == device and warp.sm == sm and self._runs(warp.cta, device, pc)]
        blocks = {warp.cta for warp in here}
        cta = next(iter(blocks)) if len(blocks) == 1 else None
        thread: tuple[int, ...] = ()
        gone = None
        if cta is not None:
            missing = self._missing_warps(cta, device, [warp for warp in here if warp.cta == cta])
            if len(missing) == 1:
                thread, gone = missing[0]
        return _Fault(exception(code), code, device, sm.value("id"), pc, exact, cta, None, (), thread, gone)

    def _runs(self, cta: Row, device: int, pc: int) -> bool:
        """Whether a block runs the kernel whose code holds `pc`."""
        grid = self.grids.get((device, cta.value("grid")))
        image = self.images.at(pc)
        code = image.code(pc) if image else None
        return grid is not None and (code is None or code.start == grid.value("entry"))

    def _missing_warps(self, cta: Row, device: int, warps: list[_Warp]) -> list[tuple[tuple[int, ...], int]]:
        """First thread and number of threads of each warp of a block that is not in the dump."""
        grid = self.grids.get((device, cta.value("grid")))
        size = grid.triple("block_x", "block_y", "block_z") if grid else (0, 0, 0)
        threads = min(size[0] * size[1] * size[2], 1024)
        there = {_linear(lane.triple("x", "y", "z"), size) // 32 for warp in warps for lane in warp.lanes.rows()}
        return [(_index(first, size), min(32, threads - first)) for first in range(0, threads, 32) if first // 32 not in there]

    def _exception(self, kernel: str, faults: list[_Fault]) -> GpuException:
        faults = sorted(faults, key=_position)
        first = faults[0]
        grid = self._grid_of(first)
        lanes = [lane for fault in faults for lane in fault.lanes]
        counted = [len(fault.lanes) or fault.gone for fault in faults]
        operation = self._operation(first.pc, first.device)
        image = self.images.at(first.pc)
        code = image.instruction(first.pc, sass.SIZE) if image else b""
        frames = self._frames(first)
        function = next((frame for frame in frames if frame.file), None)
        place = self.annotate(PythonFrame(file=function.file, line=function.line)) if function else PythonFrame()
        lane = min(first.lanes, key=lambda row: (row.value("z"), row.value("y"), row.value("x"))) if first.lanes else None
        block = grid.triple("block_x", "block_y", "block_z") if grid else ()
        cluster = grid.triple("cluster_x", "cluster_y", "cluster_z") if grid else ()
        entry = GpuException(
            name=first.meaning.name,
            code=first.code,
            device=first.device,
            sm=first.sm,
            kernel=short_kernel(kernel) if kernel else None,
            demangled=_full(kernel),
            mangled=kernel or None,
            known_as=known_as(kernel),
            grid=grid.triple("grid_x", "grid_y", "grid_z") if grid else (),
            block=block,
            cluster=cluster if any(cluster) else (),
            block_index=first.cta.triple("x", "y", "z") if first.cta else (),
            thread_index=lane.triple("x", "y", "z") if lane else first.thread,
            inferred=not lanes,
            lanes=sum(filter(None, counted)) if all(counted) else None,
            pc=Address(first.pc) if first.pc else None,
            offset=next((frame.offset for frame in frames if frame.offset is not None), None),
            exact_pc=first.exact,
            file=function.file if function else None,
            line=function.line if function else None,
            source=place.source,
            context=place.context,
            context_start=place.context_start,
            frames=frames,
            instruction=operation.text if operation and first.exact else None,
            bytes=(code.hex() if first.exact else "") or None,
            registers=self._registers(lane) if lane else {},
        )
        if first.meaning.kind == "cluster":
            entry = replace(entry, detail=_asked_block(first))
        return self._with_access(entry, first.meaning, operation, faults) if operation and operation.access else entry

    def _with_access(self, entry: GpuException, meaning: Meaning, operation: sass.Operation, faults: list[_Fault]) -> GpuException:
        entry = replace(entry, access=operation.access, space=operation.space, size=operation.size)
        if meaning.kind not in ("memory", "misaligned") or not entry.exact_pc:
            return entry
        used = self._addresses(operation, faults)
        if not used:
            return replace(entry, detail=self._misaligned(operation, faults) if meaning.kind == "misaligned" else None)
        addresses = [address for address, _ in used]
        shared = faults[0].warp.row.value("shared_size") if faults[0].warp and operation.space == "shared" else 0
        address, lane = _telling(used, meaning, operation, shared)
        return replace(
            entry,
            address=Address(address),
            lowest=Address(min(addresses)),
            highest=Address(max(addresses)),
            detail=self._detail(address, lane, meaning, operation, addresses, shared),
        )

    def _misaligned(self, operation: sass.Operation, faults: list[_Fault]) -> Optional[str]:
        """By how much, where only the lower half of the address is left: a load may write its result over the upper one."""
        for fault in faults:
            if fault.warp is None or not self._kept(operation, fault, lower=True):
                continue
            for lane in fault.lanes:
                found = operation.lowest_bits(self.dump.words(lane, layout.REGISTERS))
                if found is not None and (detail := _past_a_multiple(found, operation)):
                    return detail
        return None

    def _addresses(self, operation: sass.Operation, faults: list[_Fault]) -> list[tuple[int, Row]]:
        """The address that each faulting thread used, in the faults' order."""
        found: list[tuple[int, Row]] = []
        for fault in faults:
            if fault.warp is None:
                continue
            if not self._kept(operation, fault):
                continue
            uniform = self.dump.words(fault.warp.row, layout.UNIFORM_REGISTERS)
            for lane in fault.lanes[: _MOST_LANES - len(found)]:
                address = operation.address(self.dump.words(lane, layout.REGISTERS), uniform)
                if address is not None:
                    found.append((address, lane))
        return found

    def _kept(self, operation: sass.Operation, fault: _Fault, lower: bool = False) -> bool:
        """Whether the registers still hold the address: the warp may have run on before the exception stopped it."""
        stood = fault.lanes[0].value("pc")
        if not fault.pc < stood <= fault.pc + _FARTHEST * sass.SIZE:
            return False
        image = self.images.at(fault.pc)
        if image is None:
            return False
        architecture = self._architectures.get(fault.device) or sass.USUAL
        ran = {pc: image.instruction(pc, sass.SIZE) for pc in _between(image, fault.pc, stood, architecture)}
        # A load that faults may write its destination nevertheless.
        ran |= {fault.pc: image.instruction(fault.pc, sass.SIZE)} if operation.has_result else {}
        return all(code and operation.keeps_address(code, architecture, lower) for code in ran.values())

    def _detail(
        self, address: int, lane: Row, meaning: Meaning, operation: sass.Operation, addresses: list[int], shared: int
    ) -> Optional[str]:
        """What is known of the address. `shared`: bytes of shared memory that the block has; 0 if that is not known."""
        if meaning.kind == "misaligned":
            return _past_a_multiple(address, operation)
        if operation.space in ("global", "generic") and is_null(address):
            return f"a null pointer plus {address:,} bytes" if address else "a null pointer"
        if shared and address + (operation.size or 1) > shared:
            x, y, z = lane.triple("x", "y", "z")
            return f"that of thread ({x},{y},{z}), {address - shared:,} bytes beyond the end of the block's {shared:,} bytes"
        if operation.space in ("shared", "local"):
            return f"offset {max(addresses):,} in {operation.space} memory"
        apart = abs(address - _middle(addresses))
        if apart > _NEAR and _is_apart(address, addresses):
            x, y, z = lane.triple("x", "y", "z")
            return f"that of thread ({x},{y},{z}), {apart:,} bytes from the other threads' addresses"
        return self._beyond(address)

    def _beyond(self, address: int) -> Optional[str]:
        """How far from the next memory that the dump holds."""
        below: Optional[tuple[int, int]] = None
        for _, section in self.dump.sections.of_kinds({layout.GLOBAL_MEMORY, layout.MANAGED_MEMORY}):
            if section.address <= address < section.address + section.size:
                return f"in memory of {section.size:,} bytes at {Address(section.address)} that the dump holds"
            if section.size and section.address < address and (below is None or section.address > below[0]):
                below = section.address, section.size
        distance = address - below[0] - below[1] if below else 0
        if below is None or distance > _NEAR:
            return None
        return f"{distance:,} bytes beyond the end of the {below[1]:,} bytes of memory at {Address(below[0])}"

    def _registers(self, lane: Row) -> dict[str, str]:
        return {f"R{number}": f"0x{value:08x}" for number, value in enumerate(self.dump.words(lane, layout.REGISTERS)) if number < 256}

    def _frames(self, fault: _Fault) -> tuple[NativeFrame, ...]:
        frames = list(self._frames_at(fault.pc, fault.pc))
        for address in self.dump.backtrace(fault.lanes[0]) if fault.lanes else ():
            if len(frames) < _MOST_FRAMES and address:
                frames += self._frames_at(address, address - sass.SIZE)
        return tuple(frames[:_MOST_FRAMES])

    def _frames_at(self, pc: int, within: int) -> Iterator[NativeFrame]:
        """The inlined functions and the function at an address; `within` is an address of the instruction itself."""
        image = self.images.at(within)
        if image is None:
            return
        name, start = _function(image, within)
        places = image.places(within)
        for place in places[:-1]:
            yield NativeFrame(
                function=_shown(place.function) if place.function else None,
                file=place.file,
                line=place.line,
                pc=Address(pc),
                trust="inline",
            )
        outermost = places[-1] if places else None
        yield NativeFrame(
            function=_shown(name) if name else None,
            file=outermost.file if outermost else None,
            line=outermost.line if outermost else None,
            offset=Offset(pc - start) if start is not None else None,
            pc=Address(pc),
        )

    # What ran

    def kernels(self) -> Iterator[GpuKernel]:
        standing: dict[tuple[int, int], list[_Warp]] = {}
        for warp in self.warps:
            standing.setdefault((warp.device, warp.cta.value("grid")), []).append(warp)
        shown = sorted(self.grids.items(), key=lambda item: -len(standing.get(item[0], ())))
        for number, (key, grid) in enumerate(shown[:_MOST_KERNELS]):
            warps = standing.get(key, [])
            places = tuple(self._places(warps, key[0]))
            first = places[0] if places else None
            name = self._entry_name(grid) or ""
            yield GpuKernel(
                name=short_kernel(name) if name else None,
                demangled=_full(name),
                mangled=name or None,
                known_as=known_as(name),
                device=key[0],
                status=_STATUS.get(grid.value("status")),
                grid=grid.triple("grid_x", "grid_y", "grid_z"),
                block=grid.triple("block_x", "block_y", "block_z"),
                blocks=len({warp.cta for warp in warps}),
                warps=len(warps),
                file=first.file if first else None,
                line=first.line if first else None,
                places=places,
                resident=tuple(self._resident(grid, key[0], warps)) if number < _MOST_DRAWN else (),
            )

    def _resident(self, grid: Row, device: int, warps: list[_Warp]) -> Iterator[GpuBlock]:
        """The blocks of a kernel that were on the GPU, each with what its warps did."""
        size = grid.triple("block_x", "block_y", "block_z")
        count = -(-min(size[0] * size[1] * size[2], 1024) // 32)
        blocks: dict[Row, list[str]] = {}
        for warp in warps:
            letters = blocks.setdefault(warp.cta, [GONE] * count)
            number = next((_linear(lane.triple("x", "y", "z"), size) // 32 for lane in warp.lanes.rows()), count)
            if number < count:
                letters[number] = WAITS if self._waits(_standing_at(warp), device)[0] else RUNS
        for cta, letters in blocks.items():
            for number in self.failed.get((device, cta), ()):
                letters[number : number + 1] = [FAILED] if number < count else []
        order = sorted(blocks.items(), key=lambda item: (FAILED not in item[1], item[0].triple("x", "y", "z")[::-1]))
        return (GpuBlock(index=cta.triple("x", "y", "z"), warps="".join(letters)) for cta, letters in order[:_MOST_BLOCKS])

    def _places(self, warps: Iterable[_Warp], device: int) -> Iterator[GpuPlace]:
        counted = Counter(pc for warp in warps if (pc := _standing_at(warp)))
        for pc, count in counted.most_common(_MOST_PLACES):
            waits, at = self._waits(pc, device)
            image = self.images.at(at)
            name, start = _function(image, at) if image else (None, None)
            place = next(iter(image.places(at)), None) if image else None
            yield GpuPlace(
                warps=count,
                function=_shown((place.function if place else None) or name or "") or None,
                file=place.file if place else None,
                line=place.line if place else None,
                offset=Offset(at - start) if start is not None else None,
                waits=waits,
            )

    def _waits(self, pc: int, device: int) -> tuple[Optional[str], int]:
        """What a warp at `pc` waits for, and the instruction that makes it wait: it may stand behind that already."""
        for at in (pc, pc - sass.SIZE):
            operation = self._operation(at, device)
            if operation is not None and operation.name in sass.WAITS:
                return sass.WAITS[operation.name], at
        return None, pc

    def _operation(self, pc: int, device: int) -> Optional[sass.Operation]:
        image, architecture = self.images.at(pc), self._architectures.get(device, sass.USUAL)
        return sass.decode(image.instruction(pc, sass.SIZE), architecture) if image and architecture else None

    def _grid_of(self, fault: _Fault) -> Optional[Row]:
        if fault.cta is not None:
            return self.grids.get((fault.device, fault.cta.value("grid")))
        image = self.images.at(fault.pc)
        code = image.code(fault.pc) if image else None
        matching = [
            grid for (device, _), grid in self.grids.items() if device == fault.device and code and grid.value("entry") == code.start
        ]
        return matching[0] if len(matching) == 1 else None

    def _entry_name(self, grid: Optional[Row]) -> Optional[str]:
        entry = grid.value("entry") if grid else 0
        image = self.images.at(entry)
        code = image.code(entry) if image else None
        return code.name if code else None


def _asked_block(fault: _Fault) -> Optional[str]:
    """The block of the cluster whose memory was asked for, where the multiprocessor tells."""
    sm = fault.warp.sm if fault.warp is not None else None
    if sm is None or not sm.value("target_valid"):
        return None
    x, y, z = sm.triple("target_x", "target_y", "target_z")
    return f"in block ({x},{y},{z})"


def _function(image: Image, address: int) -> tuple[Optional[str], Optional[int]]:
    """Name and start of the function at an address."""
    symbol = image.functions([address]).get(address)
    if symbol is not None:
        return symbol.name, symbol.start
    code = image.code(address)
    return (code.name, code.start) if code else (None, None)


def _between(image: Image, start: int, end: int, architecture: int) -> set[int]:
    """Addresses of the instructions that may have run after the one at `start`, before the one at `end`: of all ways between them."""
    near = range(start - _FARTHEST * sass.SIZE, end + _FARTHEST * sass.SIZE, sass.SIZE)
    followers: dict[int, tuple[int, ...]] = {}
    reached: set[int] = set()
    waiting = [start]
    while waiting:
        pc = waiting.pop()
        if pc not in followers and pc in near:
            followers[pc] = tuple(pc + sass.SIZE + behind for behind in sass.followers(image.instruction(pc, sass.SIZE), architecture))
            reached.update(followers[pc])
            waiting += followers[pc]
    leading: set[int] = set()
    while more := {pc for pc, nexts in followers.items() if pc not in leading and not (leading | {end}).isdisjoint(nexts)}:
        leading |= more
    return leading & reached


def _past_a_multiple(address: int, operation: sass.Operation) -> Optional[str]:
    """How far a misaligned address, or its lower half, is past one that would do."""
    size, wrong = operation.alignment, address % operation.alignment
    return f"{size} bytes at an address that is {wrong} past a multiple of {size}" if wrong else None


def _telling(used: list[tuple[int, Row]], meaning: Meaning, operation: sass.Operation, shared: int) -> tuple[int, Row]:
    """The address that explains the exception: a misaligned one, a null pointer, one beyond the block's `shared` memory, one far from all
    others; else the first."""
    addresses = [address for address, _ in used]
    for one in used:
        if meaning.kind == "misaligned":
            tells = one[0] % operation.alignment != 0
        elif shared:
            tells = one[0] + (operation.size or 1) > shared
        else:
            tells = is_null(one[0])
        if tells:
            return one
    if meaning.kind == "memory" and operation.space in ("global", "generic"):
        return next((one for one in used if _is_apart(one[0], addresses)), used[0])
    return used[0]


def _is_apart(address: int, addresses: list[int]) -> bool:
    """Whether an address is one of a few that lie far from most others."""
    middle = _middle(addresses)
    far = sum(abs(other - middle) > _NEAR for other in addresses)
    return abs(address - middle) > _NEAR and far * 4 <= len(addresses)


def _middle(addresses: list[int]) -> int:
    return sorted(addresses)[len(addresses) // 2]


def _full(mangled: str) -> Optional[str]:
    full = demangled(mangled)
    return full if full != mangled else None


def _shown(mangled: str) -> str:
    """A function's short name; `$kernel$function` is a function that was not inlined into the kernel."""
    return short_function(demangled(mangled.rpartition("$")[2] or mangled)).replace("<…>", "")


def _standing_at(warp: _Warp) -> int:
    """Where the first of a warp's active threads stood."""
    active = warp.row.value("active_lanes")
    pcs = warp.lanes.column("pc")
    return next((pc for pc, lane in zip(pcs, warp.lanes.column("lane"), strict=False) if active >> (lane & 31) & 1), pcs[0] if pcs else 0)


def _position(fault: _Fault) -> tuple[object, ...]:
    """Orders faults by block, then thread; those whose block is not known come last."""
    block = fault.cta.triple("x", "y", "z")[::-1] if fault.cta else (1 << 32,)
    threads: list[tuple[int, ...]] = [lane.triple("x", "y", "z")[::-1] for lane in fault.lanes] or [fault.thread[::-1] or (1 << 32,)]
    return (not fault.lanes, fault.device, block, min(threads))


def _linear(index: tuple[int, int, int], size: tuple[int, int, int]) -> int:
    return index[0] + size[0] * (index[1] + size[1] * index[2])


def _index(linear: int, size: tuple[int, int, int]) -> tuple[int, int, int]:
    return linear % size[0], linear // size[0] % size[1], linear // (size[0] * size[1])
