"""A crash in one row of a list: where it happened, and why. Pure."""

from __future__ import annotations

from crashkit.model import Crash, PythonFrame
from crashkit.naming.standing import standing
from crashkit.report import wording

_LONGEST = 200


def where(crash: Crash) -> str:
    """The user's own line, such as `decode (app.py:17)`; else the innermost Python line, a GPU kernel, a native function, or ''."""
    gpu = crash.failed_gpu
    if gpu is not None and gpu.exceptions and gpu.exceptions[0].kernel:
        first = gpu.exceptions[0]
        return _placed(first.kernel or "", f"{wording.base_name(first.file)}:{first.line}" if first.file and first.line else "")
    thread = crash.thread or (crash.threads[0] if len(crash.threads) == 1 else None)
    stands = standing(crash)
    frame = (stands.frame if stands is not None else None) or wording.own_at(thread) or wording.python_at(thread)
    if frame is not None:
        return _placed(frame.function or "(no name)", _of_own(frame) if wording.is_own(frame) else wording.python_place(frame))
    native = wording.native_at(thread, crash.signal)
    return wording.said(thread, native)[:_LONGEST] if thread is not None and native is not None else ""


def cause(crash: Crash) -> str:
    """The best finding's title, with a question mark where it is only possible; else the reason of the signal or what the log says last."""
    finding = wording.best_finding(crash)
    if finding is not None:
        return finding.title[:_LONGEST] + ("?" if finding.confidence == "possible" else "")
    return (wording.told(crash, crash.thread) or "")[:_LONGEST]


def _of_own(frame: PythonFrame) -> str:
    """Users know where their file is."""
    return wording.base_name(frame.file or "") + (f":{frame.line}" if frame.line else "")


def _placed(name: str, place: str) -> str:
    return f"{name} ({place})"[:_LONGEST] if place else name[:_LONGEST]
