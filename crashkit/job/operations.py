"""Names of collectives: watchdogs, flight recorders and Python call them differently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from crashkit.model import JobPlace, PythonFrame, Thread
from crashkit.naming.own_code import own_line, python_frames

# torch/csrc/distributed/c10d/Types.hpp (OpType), and the names of the functions that call them.
_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "all_reduce_barrier": "barrier",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor",
    "allgather_coalesced": "all_gather_coalesced",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
}
_FILES = ("torch/distributed/distributed_c10d.py", "torch/distributed/_functional_collectives.py", "torch/distributed/rpc/api.py")
_CALLS = frozenset(
    """all_reduce all_reduce_coalesced all_gather all_gather_coalesced all_gather_into_tensor all_gather_object reduce_scatter
    reduce_scatter_tensor all_to_all all_to_all_single broadcast broadcast_object_list reduce gather gather_object scatter
    scatter_object_list barrier monitored_barrier send recv isend irecv batch_isend_irecv""".split()
)
_BACKWARD = (("torch/autograd/graph.py", "_engine_run_backward"), ("torch/autograd/__init__.py", "backward"))
_SYNCHRONIZE = (("torch/cuda/__init__.py", "synchronize"), ("torch/cuda/streams.py", "synchronize"))
POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


def operation(name: str) -> str:
    """The name as Python has it: all_reduce for ALLREDUCE, nccl:all_reduce and allreduce."""
    bare = name.rpartition(":")[2].split(" ")[0].lower()
    return _NAMES.get(bare, bare)


def of_thread(thread: Optional[Thread]) -> Optional[str]:
    """The collective that the thread was in; None if it was in none."""
    frames = python_frames(thread) if thread is not None else []
    found = [frame.function for frame in frames if (frame.file or "").endswith(_FILES) and frame.function in _CALLS]
    return found[-1] if found else None


def stood_in(thread: Optional[Thread]) -> Optional[str]:
    """As `of_thread`; `backward` for the backward pass, in which DDP and FSDP call their collectives from C++."""
    return of_thread(thread) or ("backward" if _is_in(thread, _BACKWARD) else None)


def has_called(thread: Optional[Thread], name: Optional[str]) -> bool:
    """Whether the thread's stack may be that of the call of this collective: its function, or the backward pass, in which DDP calls it.

    What runs on a GPU is over when it fails: the thread may be at a later call by then.
    """
    inside = of_thread(thread)
    return operation(name) == inside if inside and name else inside is None and _is_in(thread, _BACKWARD)


def waits(thread: Optional[Thread]) -> bool:
    """Whether the thread waited for a collective or for the GPU, rather than did something else."""
    return of_thread(thread) is not None or _is_in(thread, (*_BACKWARD, *_SYNCHRONIZE))


def _is_in(thread: Optional[Thread], places: Iterable[tuple[str, str]]) -> bool:
    innermost = next(iter(python_frames(thread)), None) if thread is not None else None
    return innermost is not None and any(
        innermost.function == function and (innermost.file or "").endswith(file) for file, function in places
    )


def place_of(thread: Optional[Thread]) -> Optional[JobPlace]:
    """The user's own line, or else the innermost one."""
    return of_frames(python_frames(thread)) if thread is not None else None


def of_frames(frames: Sequence[PythonFrame]) -> Optional[JobPlace]:
    """As `place_of`, of frames that stand innermost first."""
    frame = own_line(frames) or next(iter(frames), None)
    return JobPlace(function=frame.function, file=frame.file, line=frame.line, source=frame.source) if frame is not None else None


def first_own(places: Iterable[JobPlace]) -> Optional[JobPlace]:
    """As `of_frames`, of places that stand innermost first."""
    return of_frames([PythonFrame(function=place.function, file=place.file, line=place.line) for place in places])
