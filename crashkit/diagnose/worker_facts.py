"""The core of a worker process of torch's DataLoader. Pure."""

from __future__ import annotations

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence, NativeFrame
from crashkit.naming.own_code import python_frames

_LOOP, _FILE = "_worker_loop", "/torch/utils/data/_utils/worker.py"
"""What a worker runs for as long as it lives; other functions of the file, as get_worker_info(), are for any process."""
_HANDLER = "handler_SIG"
"""How torch calls its handlers of signals in workers: torch/csrc/DataLoader.cpp."""


def core_of_dataloader_worker(case: Case) -> Outcome:
    """The evidence is the core of a worker itself, by its Python frames or torch's signal handlers for workers; no parent reports it."""
    stack = case.crashed
    if stack is None or case.crash.source is None or case.crash.source.kind != "core":
        return unknown("the stack of the crashed process")
    loop = next((frame for frame in python_frames(stack.thread) if frame.function == _LOOP and f"/{frame.file}".endswith(_FILE)), None)
    handler = next((frame for frame in stack.thread.frames if isinstance(frame, NativeFrame) and _is_handler(frame)), None)
    found = loop or handler
    if found is None:
        return no("neither a DataLoader worker's loop nor its signal handlers are on the stack")
    return Outcome(
        True, (Evidence(text=f"{found.function} is on the stack", thread=stack.thread.tid),), {"itself": "a worker of a DataLoader"}
    )


def _is_handler(frame: NativeFrame) -> bool:
    return (frame.function or "").startswith(_HANDLER) and "libtorch_python" in (frame.module or "")


WORKER_FACTS = {"core-of-dataloader-worker": core_of_dataloader_worker}
