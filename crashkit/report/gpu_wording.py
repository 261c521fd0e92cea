"""A GPU failure in words, for every format of the report."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Optional

import msgspec
from msgspec.structs import replace

from crashkit.model import Crash, Gpu, GpuException, GpuKernel, GpuPlace, PythonFrame, Thread
from crashkit.naming import gpu_memory
from crashkit.naming.gpu_exceptions import meaning_of
from crashkit.naming.kernels import brief_kernel, left_blocks
from crashkit.report import wording

_VERBS = {"read": "read", "write": "wrote", "atomic": "atomic access"}
_WAITS = {
    "barrier": "wait at a barrier",
    "grid": "wait at a barrier of the grid",
    "cluster": "wait at a barrier of their cluster",
    "mbarrier": "wait at an mbarrier",
    "warp": "wait for threads of their warp",
    "sleep": "sleep",
}
_ACROSS_BLOCKS = ("grid", "cluster")
_MOST_ENDED, _MOST_OTHERS = 4, 3
_BULK = ("UBLKCP", "UTMALDG", "UTMASTG")
_NAME = 160
_MOST_CANDIDATES = 4

_LONGEST_FILE = 28


class Launch(msgspec.Struct, frozen=True):
    """The CPU side, as it is shown."""

    label: str
    """launched: the line that launched the kernel; noticed: the one where a thread was when the error was reported."""
    text: str
    """What that means, in one sentence."""
    thread: Thread
    frame: Optional[PythonFrame]


def words(exception: GpuException) -> str:
    """The exception in words: `illegal address`."""
    return meaning_of(exception.name).words


def headline(gpu: Gpu) -> str:
    """What happened on the GPU, without a full stop: `illegal address in GPU kernel scatter_rows (triton_kernels.py:17)`."""
    if not gpu.exceptions:
        running = [kernel for kernel in gpu.kernels if kernel.warps] or list(gpu.kernels)
        if not running:
            return "no GPU kernel was running, and none failed"
        return f"GPU kernel {_short(kernel_name(running[0].name))} was still running{_at(running[0].file, running[0].line)}"
    first = gpu.exceptions[0]
    if not first.kernel:
        return f"{words(first)} on the GPU, in a kernel that the dump does not name"
    return f"{words(first)} in GPU kernel {_short(kernel_name(first.kernel))}{_at(first.file, first.line)}"


def place(item: GpuException | GpuKernel | GpuPlace) -> str:
    """`/srv/app/kernels.py:17`, or the offset where the code has no line table."""
    if item.file:
        return f"{item.file}:{item.line}" if item.line else item.file
    offset = getattr(item, "offset", None)
    return f"+{offset}, no line table" if offset is not None else ""


def kernel_name(kernel: Optional[str]) -> str:
    """The kernel's name without the namespaces of torch's internals."""
    return brief_kernel(kernel) if kernel else "(no name)"


def index(values: Sequence[int]) -> str:
    """`(0,64,0)`, as CUDA's own tools write it."""
    return f"({','.join(map(str, values))})"


def threads(exception: GpuException) -> str:
    """Which threads failed: `block (0,0,0), thread (64,0,0), first of 32; grid (4,1,1) of blocks (128,1,1)`."""
    parts = []
    if exception.block_index:
        parts.append(f"block {index(exception.block_index)}")
    if exception.thread_index:
        parts.append(f"thread {index(exception.thread_index)}")
    if exception.lanes and exception.lanes > 1:
        parts.append(f"first of {exception.lanes:,}")
    text = ", ".join(parts)
    if exception.inferred and text:
        text += " (by the warp that is missing)"
    if exception.grid:
        text += f"{'; ' if text else ''}grid {index(exception.grid)} of blocks {index(exception.block)}"
    return text


def access(exception: GpuException) -> Optional[str]:
    """What the failing instruction did: `wrote 4 bytes of global memory at 0x…: a null pointer plus 16 bytes`."""
    if exception.access is None:
        return None
    size = f" {wording.plural(exception.size, 'byte')}" if exception.size else ""
    space = "" if exception.space in (None, "generic") else f"{exception.space} "
    if exception.instruction in _BULK:
        way = "from" if exception.access == "read" else "into"
        text = f"a bulk copy (TMA) {way} {space}memory"
    else:
        text = f"{_VERBS.get(exception.access, exception.access)}{size} of {space}memory"
    if exception.address is not None:
        text += f" at {exception.address}"
    if exception.detail:
        text += f": {exception.detail}"
    return text


def memory(exception: GpuException) -> list[str]:
    """What torch's allocator knew of the address: `byte 1,024 of 67,108,864 that were freed: a use after free`, then where."""
    found = exception.memory
    if found is None:
        return []
    lines = [gpu_memory.what(found)]
    lines += [f"{what} {_line(frames)}" for what, frames in (("freed at", found.freed), ("allocated at", found.allocated)) if frames]
    return lines


def fused(exception: GpuException) -> list[str]:
    """The Python lines that torch.compile made the kernel of."""
    return [_line([frame]) for frame in exception.fused_from]


def _line(frames: Sequence[PythonFrame]) -> str:
    """The user's own line, else the innermost one."""
    frame = gpu_memory.telling(frames) or frames[0]
    source = f": {frame.source}" if frame.source else ""
    return f"{wording.python_place(frame)} in {frame.function or '(no name)'}{source}"


def spread(exception: GpuException) -> Optional[str]:
    """The range of the threads' addresses, where there is more than one."""
    if exception.lowest is None or exception.highest is None or exception.lowest == exception.highest:
        return None
    return f"the threads' addresses are {exception.lowest} to {exception.highest}"


def launch(crash: Crash) -> Optional[Launch]:
    """The thread and Python line on the CPU; None if no core or dump of the process shows them."""
    gpu = crash.failed_gpu
    found = gpu.launched_from if gpu else None
    thread = next((thread for thread in crash.threads if found and thread.tid == found.thread), None)
    if found is None or thread is None:
        return None
    frame = thread.frames[found.frame] if found.frame is not None and 0 <= found.frame < len(thread.frames) else None
    python = frame if isinstance(frame, PythonFrame) else wording.own_at(thread) or wording.python_at(thread)
    call = f" in {found.function}" if found.function else ""
    if found.exact:
        text = f"thread {wording.thread_label(thread)} launched it{call}: launches were blocking"
        return Launch("launched", text, thread, python)
    if gpu is not None and not gpu.exceptions:
        return Launch("meanwhile", f"thread {wording.thread_label(thread)}{f' was{call}' if call else ''}", thread, python)
    if found.line is not None and python is not None and found.line != python.line:
        text = f"probably launched by line {found.line}: {found.source or ''}".rstrip(" :")
    else:
        text = _noticed(crash, thread, call, found.candidates)
    return Launch("noticed", text, thread, python)


def _noticed(crash: Crash, thread: Thread, call: str, candidates: Sequence[int]) -> str:
    """Why this thread is shown although another line, or another thread, may have launched the kernel."""
    others = [wording.thread_label(one) for one in crash.threads if one.tid in candidates]
    blocking = crash.process is not None and crash.process.environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
    text = f"thread {wording.thread_label(thread)}{f' was{call}' if call else ''}"
    if others and call:
        shown = ", ".join(others[:_MOST_CANDIDATES]) + (", ..." if len(others) > _MOST_CANDIDATES else "")
        text += f", as {'was' if len(others) == 1 else 'were'} {shown}: one of them launched it"
        return f"{text}, here or earlier" if not blocking else text
    return f"{text}: this line or an earlier one launched it" + ("" if blocking else "; CUDA_LAUNCH_BLOCKING=1 shows which")


def standing(kernel: GpuKernel) -> list[str]:
    """Where a kernel's warps are, those of most warps first. Instructions of one line are one place.

    Where blocks wait for each other, it says whose warps the others are, and which blocks have ended.
    """
    across = any(found.waits in _ACROSS_BLOCKS for found in kernel.places)
    merged: dict[tuple[object, ...], GpuPlace] = {}
    for found in kernel.places:
        where = found.line if found.line is not None else (found.offset,)
        key = (found.waits, found.function, found.file, where)
        merged[key] = _together(merged[key], found) if key in merged else found
    shown = [stands(found, across) for found in sorted(merged.values(), key=lambda found: -found.warps)]
    ended = [_ended(kernel)] if any(found.waits == "grid" for found in kernel.places) and left_blocks(kernel) else []
    return shown[:1] + ended + shown[1:]


def _together(first: GpuPlace, second: GpuPlace) -> GpuPlace:
    alone = (first.blocks, second.blocks) == (1, 1) and first.block_index == second.block_index
    return replace(first, warps=first.warps + second.warps, blocks=1 if alone else None)


def _ended(kernel: GpuKernel) -> str:
    """Which blocks no longer reach the barrier of their grid."""
    count = left_blocks(kernel)
    there = {block.index for block in kernel.resident}
    text = f"{wording.plural(count, 'block')} of {prod(kernel.grid):,} {'has' if count == 1 else 'have'} ended and will not reach it"
    if count > _MOST_ENDED or len(there) != kernel.blocks or len(kernel.grid) != 3:
        return text
    width, height, depth = kernel.grid
    every = ((x, y, z) for z in range(depth) for y in range(height) for x in range(width))
    return f"{text}: {', '.join(index(one) for one in every if one not in there)}"


def others(gpu: Gpu) -> list[str]:
    """What else was on the GPU: `kernel long_one ran (6 warps)`; of several devices, on which."""
    failed = {(one.device, one.kernel) for one in gpu.exceptions}
    running = [kernel for kernel in gpu.kernels if kernel.warps]
    rest = [kernel for kernel in running if (kernel.device, kernel.name) not in failed] if failed else running[1:]
    several = len({kernel.device for kernel in running}) > 1
    return [
        f"kernel {_short(kernel_name(kernel.name))} was running ({wording.plural(kernel.warps or 0, 'warp')})"
        + (f" on device {kernel.device}" if several else "")
        for kernel in rest[:_MOST_OTHERS]
    ]


def stands(found: GpuPlace, across: bool = False) -> str:
    """`4 warps wait at a barrier in waits_at_barrier, kernels.cu:44`; with their block, if it is one, where it counts `across` blocks."""
    count = wording.plural(found.warps, "warp")
    what = _WAITS.get(found.waits or "", f"wait ({found.waits})" if found.waits else "run")
    what = what if found.warps != 1 else what.replace("wait", "waits", 1) if found.waits and found.waits != "sleep" else f"{what}s"
    where = f" in {_short(found.function)}" if found.function else ""
    count += f" of block {index(found.block_index)}" if across and found.blocks == 1 else ""
    return f"{count} {what}{where}{_at(found.file, found.line, ', ', '')}"


def sentence(crash: Crash, gpu: Gpu) -> str:
    """The answer in one sentence, both sides."""
    text = headline(gpu)
    side = launch(crash)
    if side is not None and side.frame is not None and side.frame.function:
        verb = {"launched": "launched from", "noticed": "noticed in"}.get(side.label, "while the CPU was in")
        text += f", {verb} {_short(side.frame.function)}"
        if side.frame.file:
            text += f" ({_short(wording.python_place(side.frame))})"
    return f"{text[:1].upper()}{text[1:]}."


def _at(file: Optional[str], line: Optional[int], before: str = " (", after: str = ")") -> str:
    if not file:
        return ""
    name = wording.base_name(file)
    if len(name) > _LONGEST_FILE:  # a hash, as caches of compilers name their files
        name = f"{name[: _LONGEST_FILE // 2]}…{name[-_LONGEST_FILE // 2 :]}"
    return f"{before}{name}{f':{line}' if line else ''}{after}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[:_NAME] + "…"
