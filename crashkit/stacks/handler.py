"""Settles with the native stack which of the faults that a signal handler may have hidden is the cause, and which handler it was. Pure.

A signal frame is found in memory by its contents, so it may be left over from a handler that jumped out long ago. The walk of the stack
passes only those that are in use.
"""

from __future__ import annotations

from msgspec.structs import replace

from crashkit.evidence.core.describe import Fault, Scene
from crashkit.model import Address, Crash, ElidedFrames, Frame, NativeFrame, Thread
from crashkit.naming.failing import said
from crashkit.naming.functions import plain
from crashkit.naming.machinery import NESTED, SIGNAL_FRAME, is_outermost, is_signal_frame

_RAISES = frozenset({"raise", "kill", "pthread_kill", "abort"})


def settle(scene: Scene, crash: Crash) -> Crash:
    """The crash with the fault that its stack confirms: the outermost one below a signal frame, or none."""
    thread, signal = crash.thread, crash.signal
    if thread is None or not scene.faults or signal is None:
        return crash
    named = _with_signal_frames(thread, {fault.restorer for fault in scene.faults if fault.restorer})
    crash, thread = replace(crash, threads=tuple(named if one is thread else one for one in crash.threads)), named
    interrupted = _interrupted(thread.frames)
    sent, hidden = scene.faults[0], scene.faults[1:]
    for fault in reversed(hidden):
        if fault.pc in interrupted:
            return _with(crash, thread, fault, interrupted[fault.pc])
    if sent.signal is not None and (sent.signal.code or 0) > 0:
        # It failed in a handler, or beside one that is over: nothing is behind it.
        nested = _nested(thread, len(thread.frames))
        return replace(crash, threads=tuple(nested if one is thread else one for one in crash.threads))
    whole = not any(isinstance(frame, ElidedFrames) for frame in thread.frames)
    if hidden and whole and any(is_outermost(frame.function) for frame in thread.natives()):
        return _with(crash, thread, _survived(sent, hidden[-1]), None)
    if interrupted and _aborted(thread.frames[: min(interrupted.values())]):
        signal = replace(signal, reason="abort", detail="a signal handler ended the process with abort()")
        return replace(crash, signal=replace(signal, handler=_handler(thread.frames, min(interrupted.values()))))
    return crash


def _with_signal_frames(thread: Thread, restorers: set[int]) -> Thread:
    """The thread with its signal frames told apart: in a C library without symbols, what a handler returns to has no name."""

    def told(frame: Frame) -> Frame:
        if isinstance(frame, NativeFrame) and frame.pc in restorers and not is_signal_frame(frame):
            return replace(frame, function=SIGNAL_FRAME, trust="signal")
        return frame

    return replace(thread, frames=tuple(map(told, thread.frames)))


def _interrupted(frames: tuple[Frame, ...]) -> dict[int, int]:
    """Where each signal handler interrupted the thread: the program counter below a signal frame, and that frame's index."""
    found: dict[int, int] = {}
    for index, frame in enumerate(frames):
        if is_signal_frame(frame):
            below = next((one for one in frames[index + 1 :] if isinstance(one, NativeFrame)), None)
            if below is not None and below.pc is not None:
                found.setdefault(int(below.pc), index)
    return found


def _with(crash: Crash, thread: Thread, fault: Fault, at: int | None) -> Crash:
    """The crash as this fault explains it; `at` is the index of its signal frame."""
    frames = _nested(thread, at or 0).frames
    settled = replace(thread, frames=frames, registers={name: Address(value) for name, value in fault.registers.items()})
    signal = fault.signal if fault.signal is None or at is None else replace(fault.signal, handler=_handler(frames, at))
    return replace(
        crash,
        signal=signal,
        instructions=fault.instructions,
        threads=tuple(settled if one is thread else one for one in crash.threads),
    )


def _survived(sent: Fault, earlier: Fault) -> Fault:
    """`sent`, with the fault that is told by what is left on the stack of a handler that is over: it returned, or jumped out."""
    if sent.signal is None or earlier.signal is None:
        return sent
    at = f" at {earlier.signal.address}" if earlier.signal.address is not None else ""
    told = f"a handler had ended an earlier {earlier.signal.name}{at}, as the stack still shows"
    # These reasons have their words already.
    before = None if sent.signal.reason in ("abort", "raised") else sent.signal.detail
    return sent._replace(signal=replace(sent.signal, detail="; ".join(filter(None, [before, told]))))


def _nested(thread: Thread, end: int) -> Thread:
    """The thread with the signal frames among its first `end` frames told to be of no account."""
    frames = (
        replace(frame, trust=NESTED) if index < end and isinstance(frame, NativeFrame) and is_signal_frame(frame) else frame
        for index, frame in enumerate(thread.frames)
    )
    return replace(thread, frames=tuple(frames))


def _handler(frames: tuple[Frame, ...], at: int) -> str | None:
    """What the kernel called: the frame just inside the signal frame. None if that left its own frame to what raised the signal again."""
    handler = next((index for index in range(at - 1, -1, -1) if isinstance(frames[index], NativeFrame)), None)
    name = said(frames[:at], handler) if handler is not None else None
    return None if name in _RAISES else name


def _aborted(handler: tuple[Frame, ...]) -> bool:
    return any(isinstance(frame, NativeFrame) and plain(frame.function or "") == "abort" for frame in handler)
