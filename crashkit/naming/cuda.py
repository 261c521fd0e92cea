"""Names of CUDA functions on the CPU: the ways into a kernel launch, and the calls that wait for the GPU.

Names inside libcuda count only where they are exported entry points: what gdb shows for its internals is the nearest export.
"""

from __future__ import annotations

import re
from typing import Optional

DRIVER_LAUNCH = re.compile(
    r"cu(Launch(Kernel(Ex|ExC)?|CooperativeKernel(MultiDevice)?|Grid(Async)?|)|GraphLaunch|Mem(cpy|set)\w*Async)(_v\d+)?(_ptsz)?"
)
RUNTIME_LAUNCH = re.compile(
    r"_*cuda(Launch(Kernel(ExC)?|CooperativeKernel|)|GraphLaunch|Mem(cpy|set)\w*Async)(_ptsz)?(_v\d+)?|cudart::cudaApiLaunch\w*"
)

_KERNEL_LAUNCH = re.compile(
    r"cu(?:Launch(?:Kernel(?:ExC?)?|CooperativeKernel(?:MultiDevice)?)|GraphLaunch)(?:_v\d+)?(?:_ptsz)?"
    r"|_*cuda(?:Launch(?:KernelE?x?C?|CooperativeKernel)|GraphLaunch)\w*"
)
_WAIT = re.compile(
    r"(?:cu|cuda)(?:(?:Ctx|Stream|Event|Device|Thread)Synchronize|Stream(?:WaitEvent|Query)|EventQuery"
    r"|Mem(?:cpy|set)(?!\w*Async)\w*|Mem(?:Free|Alloc)\w*|Free\w*|Malloc\w*)(?:_v\d+)?(?:_ptsz)?"
)
SYNCHRONISES = re.compile(r"cu(?:da)?(?:(?:Stream|Event|Ctx|Device|Thread)Synchronize|Mem(?:cpy|set)(?!\w*Async)\w*)(?:_v\d+)?(?:_ptsz)?")
"""The calls that return when the GPU has done its work. What merely launches may be in the driver for other reasons."""
SEEN_TO_WAIT = "it waits for the GPU"
"""How the reason begins for which `crashkit run --hang-after` takes a process for one that hangs (`collect/supervise/hang.py`)."""
DRIVER = re.compile(r"/libcuda\.so[^/]*$")
SYSTEM = re.compile(r"^(?:\[vdso\]|linux-vdso\.so\S*)$|/(?:libc|libpthread|ld|ld-linux[^/]*)[-.][^/]*$")
"""Modules whose functions the driver calls as it waits, to know the time or to let others run."""
_ANY = re.compile(r"_*cu(?:da)?[A-Z]\w+")


def cuda_call(name: str) -> Optional[str]:
    """What a CUDA function does: launch, wait or other; None if it is none. `name` is a plain name."""
    if _KERNEL_LAUNCH.fullmatch(name):
        return "launch"
    if _WAIT.fullmatch(name):
        return "wait"
    return "other" if _ANY.fullmatch(name) else None
