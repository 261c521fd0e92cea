"""Settles with the native stack which of the faults that a signal handler may have hidden is the cause, and which handler it was. Pure.

A signal frame is found in memory by its contents, so it may be left over from a handler that jumped out long ago. The walk of the stack
passes only those that are in use.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from crashkit.arch.contract import SignalFrame, Trap
from crashkit.evidence.core.describe import Fault, Scene
from crashkit.model import Address, Crash, ElidedFrames, Frame, HandledSignal, NativeFrame, Signal, Thread
from crashkit.naming.functions import plain
from crashkit.naming.interrupted import handled_said
from crashkit.naming.machinery import NESTED, as_signal_frame, is_outermost, is_signal_frame, machinery_end
from crashkit.naming.signals import FAULTS, SI_TKILL, SIGABRT, code_name, sender_name
from crashkit.stacks.handled import handled_signals, handler_name, interrupted_at


def settle(scene: Scene, crash: Crash) -> Crash:
    """The crash with the fault that its stack confirms: the outermost one below a signal frame, or none; and with the signal in whose
    handler that came."""
    thread, signal, process = crash.thread, crash.signal, crash.process
    if thread is None or not scene.faults or signal is None or process is None:
        return crash
    named = _with_signal_frames(thread, {frame.restorer for frame in scene.handlers if frame.restorer})
    crash, thread = replace(crash, threads=tuple(named if one is thread else one for one in crash.threads)), named
    interrupted = _interrupted(thread.frames)
    handled = handled_signals(thread.frames, scene.handlers, scene.blocked, process, signal.number)
    sent, hidden = scene.faults[0], scene.faults[1:]
    for fault in reversed(hidden):
        if fault.pc in interrupted:
            return _with(crash, thread, fault, interrupted[fault.pc], handled)
    innermost = next((index for index, frame in enumerate(thread.frames) if is_signal_frame(frame)), None)
    within = handled.get(innermost) if innermost is not None else None
    if innermost is not None and within is not None and (told := _aborting(scene, thread, innermost, within, signal)) is not None:
        return _with(crash, thread, told, innermost, handled)
    if sent.signal is not None and (sent.signal.code or 0) > 0:
        # It failed in a handler, or beside one that is over: nothing is behind it.
        return replace(_in_handlers(crash, thread), signal=replace(signal, handled=within))
    if within is not None and scene.sent is not None and scene.sent.signal is not None and _is_sent(within, signal):
        return _in_handlers(_ended_by(crash, scene.sent.signal, within), thread)
    outer = _outer(thread.frames, innermost, handled) if innermost is not None else None
    if innermost is not None and outer is not None and _is_sent(outer, signal) and _called(thread.frames, innermost):
        # The innermost handler, such as faulthandler's, only passed on what that of another signal did. That of a fault has its reason.
        return _ended_by(crash, signal, outer)
    whole = not any(isinstance(frame, ElidedFrames) for frame in thread.frames)
    if hidden and whole and any(is_outermost(frame.function) for frame in thread.natives()):
        return _with(crash, thread, _survived(sent, hidden[-1]), None, {})
    aborted = next((at for at in reversed(interrupted.values()) if _aborted(thread.frames[:at])), None)
    if aborted is not None and signal.number == SIGABRT:
        signal = replace(signal, reason="abort", detail="a signal handler ended the process with abort()")
        signal = replace(signal, handler=handler_name(thread.frames, aborted))
        # Where the processor never reported anything, what the handler had interrupted did not fail.
        frame = _frame_of(scene, interrupted_at(thread.frames, aborted))
        failed = frame is None or frame.trap != Trap(0, 0, 0)
        return replace(_in_handlers(crash, thread, aborted if failed else None), signal=signal)
    if innermost is not None and signal.reason == "abort" and _only_sent(_called(thread.frames, innermost)):
        signal = replace(signal, reason="raised", detail=f"the process sent {signal.name} to itself")
        crash = replace(crash, signal=signal)
    if within is not None:
        return replace(crash, signal=_with_sender(signal, within, process.pid))
    return crash


def _is_sent(handled: HandledSignal, signal: Signal) -> bool:
    """Whether the handled signal is neither the one that ended the process nor a fault: then the handler alone ended it."""
    return handled.number != signal.number and (handled.number not in FAULTS or handled.sender_pid is not None)


def _in_handlers(crash: Crash, thread: Thread, end: int | None = None) -> Crash:
    """The crash with the frames of its handlers, those before `end` if that is given, told to be where it failed."""
    nested = _nested(thread, len(thread.frames) if end is None else end)
    return replace(crash, threads=tuple(nested if one is thread else one for one in crash.threads))


def _ended_by(crash: Crash, signal: Signal, handled: HandledSignal) -> Crash:
    """The crash of a process that ended itself in a handler of a signal that was no fault: what that had interrupted is not to blame."""
    ended = replace(signal, handler=handled.handler, handled=handled)
    if signal.reason in ("abort", "raised"):
        verb = "aborted itself" if signal.reason == "abort" else f"sent {signal.name} to itself"
        said = handled_said(handled, crash.process.pid if crash.process else None)
        ended = replace(ended, detail=f"the process {verb} in {handled.handler or 'a function'}, its handler of {said}")
    return replace(crash, signal=ended)


def _aborting(scene: Scene, thread: Thread, at: int, handled: HandledSignal, signal: Signal) -> Fault | None:
    """The abort() whose handler failed or sent another signal: that, not the handler, is why the process ended. None if it is none."""
    frame = _frame_of(scene, interrupted_at(thread.frames, at))
    if handled.number != SIGABRT or signal.number == SIGABRT or frame is None or not _aborted(_called(thread.frames, at)):
        return None
    told = Signal(
        number=SIGABRT,
        name=handled.name,
        code=SI_TKILL,
        code_name=code_name(SIGABRT, SI_TKILL),
        reason="abort",
        detail="the process aborted itself",
        recovered=True,
        ended_with=signal.name,
    )
    return Fault(frame.registers.get(scene.counter), told, frame.registers, ())


def _frame_of(scene: Scene, pc: int | None) -> SignalFrame | None:
    return next((frame for frame in scene.handlers if pc is not None and frame.registers.get(scene.counter) == pc), None)


def _called(frames: tuple[Frame, ...], at: int) -> tuple[Frame, ...]:
    """The machinery that the handler whose signal frame this is had interrupted."""
    natives = [frame for frame in frames[at + 1 :] if isinstance(frame, NativeFrame)]
    return tuple(natives[: machinery_end([frame.function for frame in natives])])


def _only_sent(called: tuple[Frame, ...]) -> bool:
    """Whether what a handler had interrupted sent a signal, and it was not abort() that did: all of it has names."""
    names = [plain(frame.function or "") for frame in called if isinstance(frame, NativeFrame)]
    return bool(names) and all(names) and "abort" not in names


def _with_sender(signal: Signal, handled: HandledSignal, pid: int | None) -> Signal:
    """A signal that a handler passed on to the process itself, with the process that had sent it, as far as it is known."""
    if handled.number != signal.number or handled.sender_pid in (None, pid) or signal.reason not in ("sent", "raised", None):
        return signal
    return replace(
        signal,
        reason="sent-from-outside",
        sender_pid=handled.sender_pid,
        detail=f"sent by {sender_name(handled.sender_pid or 0)}, not caused by an instruction of this process; a handler passed it on",
        handler=handled.handler,
    )


def _with_signal_frames(thread: Thread, restorers: set[int]) -> Thread:
    """The thread with its signal frames told apart: in a C library without symbols, what a handler returns to has no name."""

    def told(frame: Frame) -> Frame:
        if isinstance(frame, NativeFrame) and frame.pc in restorers and not is_signal_frame(frame):
            return as_signal_frame(frame)
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


def _with(crash: Crash, thread: Thread, fault: Fault, at: int | None, handled: Mapping[int, HandledSignal]) -> Crash:
    """The crash as this fault explains it; `at` is the index of its signal frame, `handled` the signals of the handlers by theirs."""
    frames = _nested(thread, at or 0).frames
    settled = replace(thread, frames=frames, registers={name: Address(value) for name, value in fault.registers.items()})
    signal = fault.signal if fault.signal is None or at is None else _of_handlers(fault.signal, frames, at, handled)
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


def _of_handlers(signal: Signal, frames: tuple[Frame, ...], at: int, handled: Mapping[int, HandledSignal]) -> Signal:
    """The signal with the handler that it had, and that in which it came."""
    return replace(signal, handler=handler_name(frames, at), handled=_outer(frames, at, handled))


def _outer(frames: tuple[Frame, ...], at: int, handled: Mapping[int, HandledSignal]) -> HandledSignal | None:
    """The signal of the handler that the one whose signal frame is at `at` had interrupted."""
    outer = next((index for index in range(at + 1, len(frames)) if is_signal_frame(frames[index])), None)
    return handled.get(outer) if outer is not None else None


def _aborted(handler: tuple[Frame, ...]) -> bool:
    return any(isinstance(frame, NativeFrame) and plain(frame.function or "") == "abort" for frame in handler)
