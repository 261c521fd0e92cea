"""Crashes in a few words: stacks as `function [module] > caller`, logs as text that the real reader reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import (
    Address,
    Crash,
    Finding,
    Frame,
    Instruction,
    LogLine,
    Mapping,
    Module,
    NativeFrame,
    Process,
    PythonFrame,
    PythonRuntime,
    Signal,
    Source,
    Thread,
)
from crashkit.naming.signals import signal_name

NUMBERS = {signal_name(number): number for number in range(1, 32)}


def native(text: str) -> NativeFrame:
    """`function [module]`; `??` has no name."""
    function, _, module = text.strip().partition(" [")
    return NativeFrame(function=None if function == "??" else function, module=f"/usr/lib/{module[:-1]}" if module else None, trust="cfi")


def python(text: str) -> PythonFrame:
    """`py FILE:LINE FUNCTION | SOURCE`."""
    place, _, source = text.removeprefix("py ").partition(" | ")
    where, _, function = place.rpartition(" ")
    file, _, line = where.rpartition(":")
    return PythonFrame(function=function, file=file, line=int(line), source=source or None)


def stack(text: str) -> tuple[Frame, ...]:
    """Frames, innermost first, between ` > `."""
    return tuple(python(part) if part.strip().startswith("py ") else native(part) for part in text.strip().split(" > ") if part.strip())


def thread(text: str, tid: int, crashed: bool = False, **more: object) -> Thread:
    return Thread(tid=tid, crashed=crashed, frames=stack(text), **more)  # type: ignore[arg-type]


def lines(text: str, folder: Path) -> tuple[LogLine, ...]:
    path = folder / "stderr.log"
    path.write_text(text)
    return read_log(path).lines


def crash(
    *,
    signal: Optional[str] = None,
    code: Optional[str] = None,
    address: Optional[int] = None,
    reason: Optional[str] = None,
    access: Optional[str] = None,
    frames: str = "",
    others: Sequence[str] = (),
    modules: Sequence[str] = (),
    mapped: Optional[str] = None,
    instruction: Optional[str] = None,
    log: tuple[LogLine, ...] = (),
    exit_status: Optional[int] = None,
    finalizing: Optional[bool] = None,
    registers: Optional[dict[str, int]] = None,
    kind: str = "core",
) -> Crash:
    threads = [thread(text, 200 + number) for number, text in enumerate(others)]
    if frames:
        held = {name: Address(value) for name, value in (registers or {}).items()}
        threads.insert(0, thread(frames, 100, crashed=signal is not None, registers=held))
    fault = None
    if signal is not None:
        fault = Signal(
            number=NUMBERS[signal],
            name=signal,
            code_name=code,
            address=Address(address) if address is not None else None,
            reason=reason,
            access=access,
        )
    mappings = ()
    if mapped is not None and address is not None:
        mappings = (Mapping(start=Address(address & ~0xFFF), end=Address((address & ~0xFFF) + 0x1000), path=mapped),)
    return Crash(
        source=Source(path="core", kind=kind),
        process=Process(pid=100, exit_status=exit_status),
        signal=fault,
        python=PythonRuntime(version="3.12.3", finalizing=finalizing),
        crashed_thread=100 if signal else None,
        threads=tuple(threads),
        modules=tuple(Module(path=path) for path in modules),
        mappings=mappings,
        instructions=(Instruction(address=Address(0x1000), text=instruction, faulting=True),) if instruction else (),
        log=log,
    )


def of_posted(text: str, folder: Path) -> tuple[Finding, ...]:
    """What is found in a text that somebody posted; nothing where it is refused."""
    path = folder / "posted.txt"
    path.write_text(text + "\n")
    try:
        return tuple(diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings)
    except EvidenceError:
        return ()
