"""What a GPU core tells signatures: kinds of failure, and names for their texts. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from crashkit.diagnose.places import place, python_line
from crashkit.model import Crash, Gpu, GpuException, GpuKernel, GpuPlace, PythonFrame
from crashkit.naming import gpu_memory
from crashkit.naming.addresses import is_null
from crashkit.naming.gpu_checks import by_assertion, by_kernel
from crashkit.naming.gpu_exceptions import meaning_of
from crashkit.naming.kernels import brief_kernel, left_blocks

_NO_KERNELS = ("unknown", "operator()")
"""What assertions call a kernel of Triton, and one that was made of a lambda."""


BARRIERS = ("barrier", "mbarrier", "grid", "cluster")
"""What warps wait for that others have to reach."""
_ACROSS = {"grid": "grid-barrier", "cluster": "cluster-barrier"}
"""What kinds of hangs call a barrier across blocks: an exception's kind is called cluster, too."""


def kinds(exception: GpuException) -> frozenset[str]:
    """The kind of the exception, and of its address."""
    found = {meaning_of(exception.name).kind}
    if exception.space in ("shared", "local") and "memory" in found:
        found = {"local", "stack"} if exception.space == "local" else {"shared"}
    elif exception.address is not None and is_null(exception.address):
        found.add("null")
    return frozenset(found)


def hanging(gpu: Gpu) -> Iterator[tuple[GpuKernel, frozenset[str]]]:
    """Kernels that were running although nothing failed, each with how it hangs."""
    for kernel in gpu.kernels if not gpu.exceptions else ():
        if kernel.warps:
            barriers = [place for place in kernel.places if place.waits in BARRIERS]
            lines = {_line(place) for place in barriers}
            # Where both are in one line, a loop has a barrier in each of its turns, as compilers make of an atomic operation of a block.
            apart = any(place not in barriers and _line(place) not in lines for place in kernel.places)
            # A block that has ended reaches no barrier of its grid any more.
            ended = {"grid-barrier"} if left_blocks(kernel) and any(place.waits == "grid" for place in barriers) else set[str]()
            told = {_ACROSS.get(place.waits or "", place.waits or "") for place in barriers} if apart else ended
            yield kernel, frozenset({"hang", *told, *(["cooperative"] if kernel.cooperative and told else [])})


def _line(place: GpuPlace) -> tuple[object, ...]:
    return (place.file, place.line) if place.line is not None else (place.function, place.offset)


def names(crash: Crash, gpu: Gpu) -> dict[str, str]:
    """Names for texts of what the GPU core shows first."""
    if gpu.exceptions:
        return exception_names(crash, gpu, gpu.exceptions[0])
    return next((kernel_names(crash, gpu, kernel) for kernel, _ in hanging(gpu)), {})


def exception_names(crash: Crash, gpu: Gpu, exception: GpuException) -> dict[str, str]:
    """Names for texts: gpu_kernel, gpu_place, gpu_thread, gpu_address, gpu_memory, gpu_freed, gpu_launched, gpu_noticed."""
    where = place(exception.file, exception.line) if exception.file else None
    if where is None and exception.offset is not None:
        where = f"offset {exception.offset}"
    found = {
        "gpu_exception": meaning_of(exception.name).words,
        "gpu_kernel": brief_kernel(exception.kernel) if exception.kernel else None,
        "gpu_place": where,
        "gpu_thread": f"block {_index(exception.block_index)}, thread {_index(exception.thread_index)}"
        if exception.block_index and exception.thread_index
        else None,
        "gpu_address": exception.detail,
        **_memory_names(exception),
        **_launch_names(crash, gpu),
    }
    return {name: value for name, value in found.items() if value}


def assertion_names(crash: Crash) -> dict[str, str]:
    """Names for texts about an assertion that failed, from the log and a GPU core: asserted_by, checked, check_fix, check_fix_2."""
    exception = next(iter(crash.failed_gpu.exceptions), None) if crash.failed_gpu is not None else None
    if exception is not None and meaning_of(exception.name).kind != "assert":
        return {}
    lines = [line.fields for line in crash.log if line.kind == "device-assert-line"]
    check = next(filter(None, (by_assertion(fields.get("assertion", "")) for fields in lines)), None)
    kernel = next((fields["kernel"] for fields in lines if fields.get("kernel", _NO_KERNELS[0]) not in _NO_KERNELS), None)
    if exception is not None and exception.kernel:
        check = check or by_kernel(exception.mangled or "")
        kernel = kernel or brief_kernel(exception.kernel)
    found = {"asserted_by": f"Kernel {kernel}"} if kernel else {}
    if check is not None:
        found["checked"] = check.what
        found |= dict(zip(("check_fix", "check_fix_2"), check.fixes, strict=False))
    return found


def _memory_names(exception: GpuException) -> dict[str, str]:
    """gpu_memory, gpu_freed: what torch's allocator knew."""
    if exception.memory is None:
        return {}
    frame = gpu_memory.telling(exception.memory.freed)
    freed = {"gpu_freed": python_line(frame)} if frame and exception.memory.state in gpu_memory.GONE else {}
    return {"gpu_memory": gpu_memory.what(exception.memory), **freed}


def kernel_names(crash: Crash, gpu: Gpu, kernel: GpuKernel) -> dict[str, str]:
    """Names for texts of a kernel that hangs: gpu_kernel, gpu_waiting, gpu_barrier_of_grid, gpu_running, gpu_noticed."""
    waiting = next((place for place in kernel.places if place.waits in BARRIERS), None)
    running = next((place for place in kernel.places if not place.waits), None)
    if waiting is not None and running is not None and _line(waiting) == _line(running):
        waiting = None
    found = {
        "gpu_kernel": brief_kernel(kernel.name) if kernel.name else None,
        "gpu_waiting": place(waiting.file, waiting.line) if waiting and waiting.file else None,
        "gpu_barrier_of_grid": place(waiting.file, waiting.line)
        if waiting and waiting.file and waiting.waits == "grid" and running is None
        else None,
        "gpu_running": place(running.file, running.line) if running and running.file else None,
        **_launch_names(crash, gpu),
    }
    return {name: value for name, value in found.items() if value}


def _launch_names(crash: Crash, gpu: Gpu) -> dict[str, Optional[str]]:
    found = gpu.launched_from
    thread = next((thread for thread in crash.threads if found and thread.tid == found.thread), None)
    if found is None or thread is None or found.frame is None or found.frame >= len(thread.frames):
        return {}
    frame = thread.frames[found.frame]
    if not isinstance(frame, PythonFrame):
        return {}
    return {"gpu_launched" if found.exact else "gpu_noticed": python_line(frame)}


def _index(values: tuple[int, ...]) -> str:
    return f"({','.join(map(str, values))})"
