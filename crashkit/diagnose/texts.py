"""Fills a signature's texts with this crash's own names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from crashkit.diagnose import gpu
from crashkit.diagnose.case import FAULTS, Case, Native, Stack
from crashkit.naming.functions import libc_name

_NAME = re.compile(r"\{(?P<name>[a-z_]\w*)(?:\|(?P<otherwise>[^{}]*))?\}")


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
    if (frame := stack.own_python()) is not None:
        found["python"] = f"{frame.file}:{frame.line} in {frame.function}"
        found["source"] = frame.source
    return found


def _failed_in(stack: Stack, case: Case) -> tuple[Optional[str], Optional[str]]:
    """The function and the module that failed. If the faulting code has no name, its module and offset: a caller in another module
    did not fail."""
    frames = stack.failing
    signal = case.crash.signal
    if signal is not None and signal.recovered and len(stack.natives) == len(stack.whole):
        return None, None  # the stack broke off within the handler
    if frames and _is_fault(case):
        inside = [frame for frame in frames if frame.module == frames[0].module]
        return next((libc_name(frame.name) for frame in inside if frame.name), _place(frames[0])), frames[0].module or None
    name = next((frame.name for frame in frames if frame.name), None)
    return name, next((frame.module for frame in frames if frame.module), None)


def _is_fault(case: Case) -> bool:
    signal = case.crash.signal
    return signal is not None and signal.name in FAULTS and signal.reason != "sent-from-outside"


def _place(frame: Native) -> Optional[str]:
    """`extension.so+0x1139`."""
    if not frame.module:
        return None
    name = frame.module.rpartition("/")[2]
    return name if frame.frame.offset is None else f"{name}+{frame.frame.offset}"


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
    return None if missing else text.translate(_SHOW)


def fill_all(texts: Iterable[str], known: dict[str, str]) -> tuple[str, ...]:
    """The filled texts, without those that use an unknown name."""
    return tuple(filled for text in texts if (filled := fill(text, known)) is not None)
