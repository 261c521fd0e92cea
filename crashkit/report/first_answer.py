"""The first lines of output, printed while a debugger starts; needs none of the libraries that draw the summary."""

from __future__ import annotations

from crashkit.model import Crash
from crashkit.report import answer, gpu_wording, safe, wording

_WIDEST = 200
_LONGEST = 4000


def first_answer(crash: Crash) -> str:
    """One or two lines from what is known before a debugger has started: how it ended, why, at which Python line and in which thread."""
    text = wording.ended(crash)
    if crash.failed_gpu is not None:
        return safe.clip(safe.line(gpu_wording.sentence(crash, crash.failed_gpu)[:_LONGEST]), _WIDEST)
    if crash.signal:
        text = f"{crash.signal.name}: {text.lower()}" if text != crash.signal.name else text
        reason = wording.why(crash.signal)
        text += f", {reason}" if reason else ""
        text += f", at {crash.signal.address}" if crash.signal.address is not None else ""
    thread = crash.thread
    # What failed in native code is not known yet.
    found = answer.answer(crash)
    if found is not None:
        joint = ", in" if found.chosen.why is None else "; meanwhile"
        text += f"{joint} {answer.line(found._replace(native=None, where=None), crash.signal)}"
    if thread:
        text += f"\nin thread {wording.thread_label(thread)}, {wording.among(crash)}"
        if crash.process and crash.process.pid is not None:
            text += f", of process {crash.process.pid}"
    return "\n".join(safe.clip(safe.line(row[:_LONGEST]), _WIDEST) for row in text.split("\n")[:2])
