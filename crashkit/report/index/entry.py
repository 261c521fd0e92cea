"""What a list of crashes shows of one of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Optional

from crashkit.model import Crash, PythonFrame
from crashkit.naming.own_code import python_frames
from crashkit.naming.standing import standing
from crashkit.report import gpu_wording, safe, wording
from crashkit.report.index.document import Entry, Place

_FRAMES = 24
_NAMES = 12
_TEXT = 400

InRepository = Callable[[str, bool], Optional[str]]
"""The path in the repository of a file that the process named, of which it is known whether it is the user's own code; None if it is
not the repository's."""


def entry(
    crash: Crash,
    number: int,
    *,
    evidence: Sequence[str] = (),
    report: Optional[str] = None,
    test: Optional[str] = None,
    in_repository: InRepository = lambda file, own: None,
) -> Entry:
    """The crash as an entry of the index."""
    finding, print_ = wording.best_finding(crash), crash.fingerprint
    side = gpu_wording.launch(crash)
    stands = standing(crash) if crash.signal is None and side is None else None
    thread = side.thread if side else crash.thread
    native = wording.native_at(crash.thread, crash.signal)
    process = crash.process
    return Entry(
        number=number,
        report=report,
        id=crash.id,
        time=crash.time,
        evidence=tuple(evidence),
        test=test,
        signal=_signal(crash),
        what=_text(wording.sentence(crash)),
        cause=_text(finding.title) if finding else None,
        finding=finding.id if finding else None,
        confidence=finding.confidence if finding else None,
        fix=_text(finding.fix[0].split("\n")[0]) if finding and finding.fix else None,
        pid=process.pid if process else None,
        executable=process.executable if process else None,
        python=crash.python.version if crash.python else None,
        native=_text(wording.native_function(native)) if native and native.function else None,
        stack=_stack(stands.frames if stands else python_frames(thread) if thread else (), in_repository),
        fingerprint=print_.hash if print_ else None,
        fingerprint_version=print_.version if print_ else None,
        frames=tuple(map(_text, print_.frames[:_NAMES])) if print_ else (),
        missing=len(crash.soft_errors),
    )


def _signal(crash: Crash) -> Optional[str]:
    if crash.failed_gpu is not None and crash.failed_gpu.exceptions:
        return crash.failed_gpu.exceptions[0].name
    if crash.signal:
        return crash.signal.name
    status = crash.process.exit_status if crash.process else None
    return None if status is None else f"exit {status}"


def _stack(frames: Sequence[PythonFrame], in_repository: InRepository) -> tuple[Place, ...]:
    """The user's way to the crash: of a recursion, one round."""
    places = []
    once = (frames[index] for part in wording.stretches(frames) for index in range(part.start, part.start + part.length))
    for frame in islice(once, _FRAMES):
        own = wording.is_own(frame)
        source = wording.source_line(frame)
        places.append(
            Place(
                file=_text(frame.file or ""),
                line=frame.line,
                function=_text(frame.function) if frame.function else None,
                source=_text(source) if source else None,
                own=own,
                path=in_repository(frame.file, own) if frame.file else None,
            )
        )
    return tuple(places)


def _text(text: str) -> str:
    return text if len(text) <= _TEXT else safe.clip(text, _TEXT)
