"""Reads snapshots of torch's CUDA allocator (torch.cuda.memory._dump_snapshot; torch/csrc/cuda/memory_snapshot.cpp), torch 2.1 and newer:
a pickle of plain data with the segments, their blocks, and a trace of allocations and frees if the program had these recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, Optional

from msgspec.structs import replace

from crashkit.errors import EvidenceError
from crashkit.evidence import plain_pickle
from crashkit.model import Address, Gpu, GpuException, GpuMemory, Offset, PythonFrame

LARGEST = 256 << 20
"""Bytes of one snapshot: a million blocks and events without stacks."""
MOST_FRAMES = 32
_LONGEST_NAME = 1000
_HEAD = 4096
_NEAR = 16 << 20
"""An access farther behind a block's end, in bytes, says nothing about the block."""
_HINT = "Pass what torch.cuda.memory._dump_snapshot wrote."
_DAMAGED = "The process may have been killed while it wrote it."

Annotate = Callable[[PythonFrame], PythonFrame]


class _Block(NamedTuple):
    """A piece of memory that was handed out, or is kept for the next one."""

    address: int
    size: int
    """Bytes that it takes."""
    requested: int
    """Bytes that were asked for."""
    state: str
    frames: Any
    """As they are in the file: there are many blocks and events, and one is asked for."""


class _Event(NamedTuple):
    action: str
    address: int
    size: int
    frames: Any


class Snapshot(NamedTuple):
    """The state of the allocator at one moment."""

    path: str
    blocks: tuple[_Block, ...]
    events: tuple[_Event, ...]
    """Oldest first."""

    def memory(self, address: int) -> Optional[GpuMemory]:
        """What was known of an address: its block, or the one that was there before, or the nearest one that ends before it."""
        block = next((one for one in self.blocks if one.address <= address < one.address + one.size), None)
        if block is not None and block.state == "active_allocated" and address < block.address + block.requested:
            return self._found("live", block.address, block.requested, address - block.address, block.frames)
        if block is not None and block.state != "active_allocated":
            return self._gone("cached", address)
        gone = self._gone("freed", address) if block is None else None
        return gone or self._beyond(address)

    def _gone(self, state: str, address: int) -> Optional[GpuMemory]:
        """The last allocation that held the address, if it was freed."""
        freed: Optional[_Event] = None
        for event in reversed(self.events):
            if not event.address <= address < event.address + max(event.size, 1):
                continue
            if event.action in ("free_requested", "free_completed"):
                # The request comes from the program; the completion may come later, from anywhere.
                freed = event if freed is None or event.action == "free_requested" else freed
            elif event.action == "alloc" and freed is not None:
                return self._found(state, event.address, event.size, address - event.address, event.frames, freed.frames)
            elif event.action == "alloc":
                return None
        if freed is not None:
            return self._found(state, freed.address, freed.size, address - freed.address, (), freed.frames)
        block = next((one for one in self.blocks if one.address <= address < one.address + one.size), None)
        return None if block is None else self._found(state, block.address, block.size, address - block.address)

    def _beyond(self, address: int) -> Optional[GpuMemory]:
        live = (one for one in self.blocks if one.state == "active_allocated" and one.address + one.requested <= address)
        nearest = max(live, key=lambda one: one.address + one.requested, default=None)
        if nearest is None or address - nearest.address - nearest.requested > _NEAR:
            return None
        if any(nearest.address < event.address <= address for event in self.events if event.action == "alloc"):
            return None  # another one lay nearer, and is gone
        distance = address - nearest.address - nearest.requested
        return self._found("beyond", nearest.address, nearest.requested, distance, nearest.frames)

    def _found(
        self,
        state: str,
        address: int,
        size: int,
        offset: int,
        allocated: Any = (),
        freed: Any = (),
    ) -> GpuMemory:
        return GpuMemory(
            state=state,
            address=Address(address),
            size=size,
            offset=Offset(offset),
            allocated=_frames(allocated),
            freed=_frames(freed),
            snapshot=self.path,
        )


def is_snapshot(file: BinaryIO) -> bool:
    """Whether the file looks like a snapshot, by its first bytes; leaves the position at the start."""
    file.seek(0)
    head = file.read(_HEAD)
    file.seek(0)
    return plain_pickle.START.match(head) is not None and b"segments" in head and (b"segment_type" in head or b"device_traces" in head)


def read_snapshot(file: BinaryIO, path: str) -> Snapshot:
    """The snapshot in a file. Raises EvidenceError."""
    file.seek(0)
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        message = f"{path} is larger than {LARGEST >> 20} MiB: this snapshot of torch's allocator was not read"
        raise EvidenceError(message, "Record less: torch.cuda.memory._record_memory_history(max_entries=100_000, stacks='python').")
    raw = _raw(content, path)
    blocks = tuple(block for segment in _items(raw.get("segments")) for block in _blocks(segment))
    traces = raw.get("device_traces")
    events = tuple(event for trace in (traces if isinstance(traces, list) else ()) for event in _events(trace))
    return Snapshot(path, blocks, events)


def _raw(content: bytes, path: str) -> dict[Any, Any]:
    raw = plain_pickle.load(content, path, "A snapshot of torch's allocator", _DAMAGED)
    if not isinstance(raw, dict):
        raise EvidenceError(f"{path} is not a snapshot of torch's allocator", _HINT)
    return raw


def masked(content: bytes, path: str, clean: Callable[[str], str]) -> bytes:
    """The same snapshot with each of its texts passed through `clean`. Raises EvidenceError."""
    return plain_pickle.dump(_cleaned(_raw(content, path), functools.cache(clean), {}))


def _cleaned(value: Any, clean: Callable[[str], str], done: dict[int, Any]) -> Any:
    """What stands in several places, such as a stack, is one object, and stays one."""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) in done:
        return done[id(value)]
    new: Any
    if isinstance(value, dict):
        new = done[id(value)] = {}
        new.update((_cleaned(key, clean, done), _cleaned(item, clean, done)) for key, item in value.items())
    elif isinstance(value, list):
        new = done[id(value)] = []
        new.extend(_cleaned(item, clean, done) for item in value)
    else:
        new = done[id(value)] = tuple(_cleaned(item, clean, done) for item in value)
    return new


def with_memory(gpu: Gpu, snapshots: Sequence[Snapshot], annotate: Annotate) -> Gpu:
    """The GPU core with what the allocator knew of the addresses that failed."""

    def known(exception: GpuException) -> GpuException:
        if exception.address is None or exception.space not in ("global", "generic"):
            return exception
        found = next(filter(None, (snapshot.memory(exception.address) for snapshot in snapshots)), None)
        if found is None:
            return exception
        memory = replace(found, allocated=tuple(map(annotate, found.allocated)), freed=tuple(map(annotate, found.freed)))
        return replace(exception, memory=memory)

    return replace(gpu, exceptions=tuple(map(known, gpu.exceptions))) if snapshots else gpu


def _blocks(segment: dict[Any, Any]) -> Iterator[_Block]:
    place = _whole(segment.get("address"))
    for raw in _items(segment.get("blocks")):
        size = _whole(raw.get("size")) or 0
        # torch 2.1 leaves the addresses of blocks out: they follow each other.
        address = _whole(raw.get("address"))
        address = place if address is None else address
        if address is None:
            return
        requested = _whole(raw.get("requested_size"))
        yield _Block(address, size, size if requested is None else min(requested, size), str(raw.get("state")), raw.get("frames"))
        place = address + size


def _events(trace: Any) -> Iterator[_Event]:
    for raw in _items(trace):
        address, size = _whole(raw.get("addr")), _whole(raw.get("size"))
        if address is not None and size is not None:
            yield _Event(str(raw.get("action")), address, size, raw.get("frames"))


def _frames(raw: Any) -> tuple[PythonFrame, ...]:
    """The Python frames, innermost first: C++ frames, if they were recorded, have no file or another one."""
    found: list[PythonFrame] = []
    for frame in _items(raw):
        file, name, line = frame.get("filename"), frame.get("name"), _whole(frame.get("line"))
        if isinstance(file, str) and isinstance(name, str) and (file.endswith(".py") or file.startswith("<")) and len(found) < MOST_FRAMES:
            found.append(PythonFrame(function=name[:_LONGEST_NAME], file=file[:_LONGEST_NAME], line=line, origin="snapshot"))
    return tuple(found)


def _items(raw: Any) -> Sequence[dict[Any, Any]]:
    return [item for item in raw if isinstance(item, dict)] if isinstance(raw, (list, tuple)) else []


def _whole(raw: Any) -> Optional[int]:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < 1 << 64 else None
