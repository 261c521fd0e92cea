"""Fills a signature's texts with this crash's own names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from crashkit.diagnose import gpu
from crashkit.diagnose.case import Case, Stack
from crashkit.model import NativeFrame
from crashkit.naming.collector import in_collector
from crashkit.naming.failing import failing, said

_NAME = re.compile(r"\{(?P<name>[a-z_]\w*)(?:\|(?P<otherwise>[^{}]*))?\}")


# The end of a phrase needs no comma before other punctuation.
_COMMA = re.compile(r",([.,:;)]|$)")

# Braces of a value are no names.
_HIDE = str.maketrans("{}", "\ue000\ue001")
_SHOW = str.maketrans("\ue000\ue001", "{}")


def names(case: Case) -> dict[str, str]:
    """What every text can use: signal, address, function, thread, python (the user's own line), source, executable, blocking_run,
    and what a GPU core shows first."""
    crash = case.crash
    found: dict[str, Optional[str]] = {}
    if crash.signal is not None:
        found["signal"] = crash.signal.name
        found["address"] = str(crash.signal.address) if crash.signal.address is not None else None
        found["access"] = crash.signal.access
    if case.crashed is not None:
        found |= _of_crashed(case)
    if crash.process is not None:
        found["executable"] = crash.process.executable
        found["pid"] = str(crash.process.pid) if crash.process.pid is not None else None
    if case.environment.get("CUDA_LAUNCH_BLOCKING") == "1":
        found["blocking"] = "launches were blocking, so it is the failing call"
    if crash.failed_gpu is not None:
        found |= gpu.names(crash, crash.failed_gpu)
    found["blocking_run"] = None if _launch_is_known(case) else "CUDA_LAUNCH_BLOCKING=1"
    found["what"] = next((line.fields.get("what") for line in crash.log if line.kind == "what"), None)
    return {name: value for name, value in found.items() if value}


def _launch_is_known(case: Case) -> bool:
    """Whether the line that launched the kernel is known: blocking launches would show nothing more."""
    core = case.crash.failed_gpu
    return core is not None and core.launched_from is not None and core.launched_from.exact


def _of_crashed(case: Case) -> dict[str, Optional[str]]:
    stack = case.crashed
    if stack is None:
        return {}
    tid = stack.thread.tid
    found: dict[str, Optional[str]] = {"tid": str(tid) if tid is not None else None}
    found["who"] = f"thread {tid}" if tid is not None else None
    found["function"], found["module"] = _failed_in(stack, case)
    # A line that only set off a garbage collection is not to blame.
    if (frame := stack.own_python()) is not None and not in_collector(stack.thread.frames):
        found["python"] = f"{frame.file}:{frame.line} in {frame.function}"
        found["source"] = frame.source
    return found


def _failed_in(stack: Stack, case: Case) -> tuple[Optional[str], Optional[str]]:
    """The function and the module that failed. A comma ends the name of code without a function's name, which is a phrase."""
    frames = stack.thread.frames
    index = failing(frames, case.crash.signal)
    frame = frames[index] if index is not None else None
    if index is None or not isinstance(frame, NativeFrame):
        return None, None
    name = said(frames, index)
    return f"{name}," if ", " in name and not frame.function else name, frame.module


def fill(text: str, known: dict[str, str]) -> Optional[str]:
    """The text with its names replaced; None if one is unknown and has no fallback text."""
    missing = False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        value = known.get(match["name"])
        if value is not None:
            return value.translate(_HIDE)
        missing = missing or match["otherwise"] is None
        return match["otherwise"] or ""

    # From the inside out: {name|{other|text}}.
    while (filled := _NAME.sub(replace, text)) != text:
        text = filled
    text = _COMMA.sub(r"\1", text.translate(_SHOW))
    return None if missing else f"Code {text[5:]}" if text.startswith("code in ") else text


def fill_all(texts: Iterable[str], known: dict[str, str]) -> tuple[str, ...]:
    """The filled texts, without those that use an unknown name."""
    return tuple(filled for text in texts if (filled := fill(text, known)) is not None)
