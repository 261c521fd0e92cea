"""Finds out which signal each handler on a stack was called for, and who had sent it. Pure.

The kernel tells the handler alone, in a register that is soon used for something else. What stays is the mask: the signal is blocked
while its handler runs, and was not when it came (`signal_delivered` in kernel/signal.c). Debug info may still know the handler's argument,
and code that was interrupted as it sent a signal to its own process has that in its registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from crashkit.arch import named
from crashkit.arch.contract import SignalFrame, SignalInfo
from crashkit.model import Frame, HandledSignal, NativeFrame, Process
from crashkit.naming.failing import said
from crashkit.naming.functions import plain
from crashkit.naming.machinery import is_machinery, is_signal_frame, sends_signal
from crashkit.naming.signals import ALL_SIGNALS, LAST_SIGNAL, SENT_BY_PROCESS, code_name, signal_name, signals_gained


def handled_signals(
    frames: Sequence[Frame], found: Sequence[SignalFrame], blocked: int, process: Process, ended: int
) -> dict[int, HandledSignal]:
    """The signal of each handler, where it is known, by the index of its signal frame.

    `found`: what looks like signal frames in memory; `blocked`: what the thread had blocked as it died; `ended`: the number of the signal
    that ended the process.
    """
    architecture = named(process.architecture)
    handled: dict[int, HandledSignal] = {}
    left = list(found)
    for index, pc in _interrupted(frames):
        at = next((number for number, frame in enumerate(left) if frame.registers.get(architecture.program_counter) == pc), None)
        if at is None:
            break  # Without its mask, what the next one was called for is not known either.
        frame, left = left[at], left[at + 1 :]
        if frame.blocked is None:
            break
        to_thread = _sends_to_thread(frames, index)
        raised = [number for number in ALL_SIGNALS if architecture.is_own_raise(frame.registers, process.pid, number, to_thread)]
        gained = signals_gained(blocked, frame.blocked)
        gained = gained & {*raised} or gained or frozenset(raised if len(raised) == 1 else ())
        signal = _handled(frame.info, gained, _handler(frames, index), ended)
        if signal is not None:
            own = signal.sender_pid is None and signal.code_name is None and signal.number in raised
            handled[index] = replace(signal, sender_pid=process.pid) if own else signal
        blocked = frame.blocked
    return handled


def _interrupted(frames: Sequence[Frame]) -> list[tuple[int, int]]:
    """The index of each signal frame, and the program counter that it interrupted."""
    found = []
    for index, frame in enumerate(frames):
        if is_signal_frame(frame):
            pc = interrupted_at(frames, index)
            if pc is not None:
                found.append((index, pc))
    return found


def _sends_to_thread(frames: Sequence[Frame], at: int) -> bool | None:
    """Whether what this handler interrupted sends a signal to a thread, rather than to a process; None if it may do neither."""
    below = next((one for one in frames[at + 1 :] if isinstance(one, NativeFrame)), None)
    name = plain(below.function or "").strip("_") if below is not None else ""
    return name not in ("kill", "sigqueue") if sends_signal(name) else None


def interrupted_at(frames: Sequence[Frame], at: int) -> int | None:
    """The program counter that the signal of this signal frame interrupted; None if it is not known."""
    below = next((one for one in frames[at + 1 :] if isinstance(one, NativeFrame)), None)
    return int(below.pc) if below is not None and below.pc is not None else None


def handler_name(frames: Sequence[Frame], at: int) -> str | None:
    """What the kernel called: the frame just inside the signal frame. None if that left its own frame to what ends the process."""
    handler = _handler_index(frames, at)
    name = said(frames[:at], handler) if handler is not None else None
    return None if name in _RAISES else name


_RAISES = frozenset({"raise", "kill", "pthread_kill", "abort", "sigqueue", "pthread_sigqueue"})


def _handler_index(frames: Sequence[Frame], at: int) -> int | None:
    return next((index for index in range(at - 1, -1, -1) if isinstance(frames[index], NativeFrame)), None)


class _Handler(NamedTuple):
    name: str | None
    number: int | None
    """What it was called with, where debug info knows."""
    detailed: bool | None
    """Whether it takes a siginfo, as debug info shows; None without."""


def _handler(frames: Sequence[Frame], at: int) -> _Handler:
    index = _handler_index(frames, at)
    frame = frames[index] if index is not None else None
    if not isinstance(frame, NativeFrame) or is_machinery(frame.function or ""):
        return _Handler(handler_name(frames, at), None, None)
    first = next(iter(frame.args.values()), "")
    number = int(first) if first.isdecimal() and 1 <= int(first) <= LAST_SIGNAL else None
    return _Handler(handler_name(frames, at), number, len(frame.args) == 3 if frame.args else None)


def _handled(info: SignalInfo | None, blocked: frozenset[int], handler: _Handler, ended: int) -> HandledSignal | None:
    """`blocked`: the signals that were blocked since it came, by the kernel or by the handler."""
    if info is not None and _is_written(info, blocked, handler, ended):
        sender = info.pid if info.code in SENT_BY_PROCESS else None
        return _signal(info.number, handler, code_name(info.number, info.code), sender)
    if handler.number is not None:
        return _signal(handler.number, handler) if handler.number in (blocked or {handler.number}) else None
    return _signal(next(iter(blocked)), handler) if len(blocked) == 1 else None


def _is_written(info: SignalInfo, blocked: frozenset[int], handler: _Handler, ended: int) -> bool:
    """Whether the siginfo is this handler's: one that an earlier one left would have to name the very signal that something else names."""
    if handler.number not in (None, info.number) or handler.detailed is False:
        return False
    if blocked or not handler.detailed:
        return info.number in (blocked or {handler.number or ended})
    return 1 <= info.number <= LAST_SIGNAL and code_name(info.number, info.code) is not None


def _signal(number: int, handler: _Handler, code: str | None = None, sender: int | None = None) -> HandledSignal:
    return HandledSignal(number=number, name=signal_name(number), handler=handler.name, code_name=code, sender_pid=sender)
