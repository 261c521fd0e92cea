"""Names of CUDA functions on the CPU: the ways into a kernel launch, and the calls that wait for the GPU.

Names inside libcuda count only where they are exported entry points: what gdb shows for its internals is the nearest export.
"""

from __future__ import annotations

from typing import Optional

from crashkit.regex import regex

DRIVER_LAUNCH = regex(
    r"cu(Launch(Kernel(Ex|ExC)?|CooperativeKernel(MultiDevice)?|Grid(Async)?|)|GraphLaunch|Mem(cpy|set)\w*Async)(_v\d+)?(_ptsz)?"
)
RUNTIME_LAUNCH = regex(
    r"_*cuda(Launch(Kernel(ExC)?|CooperativeKernel|)|GraphLaunch|Mem(cpy|set)\w*Async)(_ptsz)?(_v\d+)?|cudart::cudaApiLaunch\w*"
)

_KERNEL_LAUNCH = regex(
    r"cu(?:Launch(?:Kernel(?:ExC?)?|CooperativeKernel(?:MultiDevice)?)|GraphLaunch)(?:_v\d+)?(?:_ptsz)?"
    r"|_*cuda(?:Launch(?:KernelE?x?C?|CooperativeKernel)|GraphLaunch)\w*"
)
_WAIT = regex(
    r"(?:cu|cuda)(?:(?:Ctx|Stream|Event|Device|Thread)Synchronize|Stream(?:WaitEvent|Query)|EventQuery"
    r"|Mem(?:cpy|set)(?!\w*Async)\w*|Mem(?:Free|Alloc)\w*|Free\w*|Malloc\w*)(?:_v\d+)?(?:_ptsz)?"
)
SYNCHRONISES = regex(r"cu(?:da)?(?:(?:Stream|Event|Ctx|Device|Thread)Synchronize|Mem(?:cpy|set)(?!\w*Async)\w*)(?:_v\d+)?(?:_ptsz)?")
"""The calls that return when the GPU has done its work. What merely launches may be in the driver for other reasons."""
SEEN_TO_WAIT = "it waits for the GPU"
"""How the reason begins for which `crashkit run --hang-after` takes a process for one that hangs (`collect/supervise/hang.py`)."""
DRIVER = regex(r"/libcuda\.so[^/]*$")
SYSTEM = regex(r"^(?:\[vdso\]|linux-vdso\.so\S*)$|/(?:libc|libpthread|ld|ld-linux[^/]*)[-.][^/]*$")
"""Modules whose functions the driver calls as it waits, to know the time or to let others run."""
_ANY = regex(r"_*cu(?:da)?[A-Z]\w+")


def cuda_call(name: str) -> Optional[str]:
    """What a CUDA function does: launch, wait or other; None if it is none. `name` is a plain name."""
    if _KERNEL_LAUNCH.fullmatch(name):
        return "launch"
    if _WAIT.fullmatch(name):
        return "wait"
    return "other" if _ANY.fullmatch(name) else None
