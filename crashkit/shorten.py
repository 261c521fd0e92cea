"""Cuts a crash to what a report can show: long texts, and lists that would take too many bytes. Pure; what was cut is a soft error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, TypeVar

import msgspec
from msgspec.structs import replace

from crashkit import limits
from crashkit.model import (
    Address,
    Crash,
    ElidedFrames,
    Frame,
    Greenlet,
    Job,
    NativeFrame,
    Offset,
    PythonFrame,
    SoftError,
    Task,
    Thread,
    encode_extension,
)

_T = TypeVar("_T", bound=Optional[msgspec.Struct])
_F = TypeVar("_F", bound=Frame)
_LARGEST = 1 << 63
_INNER, _OUTER = 150, 60
"""Frames at either end of a deep stack that keep all that is known of them."""
_MOST_SOFT_ERRORS = 200


def shortened(crash: Crash) -> Crash:
    """The crash within `limits`: texts end after LONGEST_TEXT characters, and lists where their bytes are used up.

    The crashed thread is kept before all others. Numbers that no reader of JSON would take are left out.
    """
    cut = _Cut(crash.source.size if crash.source else None)
    soft_errors = crash.soft_errors[:_MOST_SOFT_ERRORS]
    short = replace(
        crash,
        id=cut.text(crash.id),
        time=cut.text(crash.time),
        source=cut.whole(crash.source),
        process=cut.process(crash.process),
        signal=cut.whole(crash.signal),
        python=cut.whole(crash.python),
        crashed_thread=cut.number(crash.crashed_thread),
        threads=cut.threads(crash.threads),
        modules=cut.several("modules", crash.modules, limits.MODULE_BYTES),
        mappings=cut.several("mappings", crash.mappings, limits.MAPPING_BYTES),
        instructions=cut.several("instructions", crash.instructions, limits.OTHER_BYTES),
        gpu=cut.several("GPU cores", crash.gpu, limits.GPU_BYTES),
        job=cut.job(crash.job),
        siblings=cut.several("other processes", crash.siblings, limits.OTHER_BYTES),
        waits=cut.several("waits", crash.waits, limits.OTHER_BYTES),
        tasks=cut.tasks(crash.tasks),
        greenlets=cut.greenlets(crash.greenlets),
        log=cut.several("log lines", crash.log, limits.LOG_BYTES),
        last_words=tuple(line[: limits.LONGEST_TEXT] for line in crash.last_words),
        unwritten=tuple(line[: limits.LONGEST_TEXT] for line in crash.unwritten),
        debugger=cut.text(crash.debugger),
    )
    soft_errors = cut.several("problems", soft_errors, limits.OTHER_BYTES)
    return replace(short, soft_errors=(*soft_errors, *cut.told(len(crash.soft_errors) - len(soft_errors))))


class _Cut:
    def __init__(self, size: Optional[int]) -> None:
        self._size = size
        self._texts = 0
        self._left_out: list[tuple[str, str]] = []
        """Of which stage, and what."""
        self._spare = 0
        """Bytes that threads leave of their room: a process with thousands of tasks or greenlets has few threads."""

    def told(self, problems: int) -> list[SoftError]:
        """What was cut."""
        said = [SoftError(stage=stage, message=f"{what}: the report would be too long") for stage, what in self._left_out]
        if problems > 0:
            said.append(SoftError(stage="report", message=f"{problems:,} more problems were left out"))
        if self._texts:
            what = "1 text was" if self._texts == 1 else f"{self._texts:,} texts were"
            said.append(SoftError(stage="report", message=f"{what} cut at {limits.LONGEST_TEXT:,} characters"))
        return said

    def text(self, text: Optional[str]) -> Optional[str]:
        short: Optional[str] = self._value(text)
        return short

    def number(self, number: Optional[int]) -> Optional[int]:
        return number if number is not None and -_LARGEST <= number < 2 * _LARGEST else None

    def whole(self, item: _T) -> _T:
        """The item with its texts cut. Few are long: nothing in an item is, if its JSON is not."""
        if _size(item) <= limits.LONGEST_TEXT:
            return item
        short: _T = self._value(item)
        return short

    def process(self, process: Any) -> Any:
        short = self.whole(process)
        if short is None or _size(short) <= limits.OTHER_BYTES:
            return short
        argv = self._until("arguments", short.argv, limits.OTHER_BYTES // 2)
        environment = self._until("variables", tuple(short.environment.items()), limits.OTHER_BYTES // 4)
        versions = self._until("versions", tuple(short.versions.items()), limits.OTHER_BYTES // 4)
        return replace(short, argv=argv, environment=dict(environment), versions=dict(versions))

    def job(self, job: Optional[Job]) -> Optional[Job]:
        """Those that failed are kept before those that followed."""
        if job is None:
            return None
        order = sorted(job.processes, key=lambda process: process.role not in ("root-cause", "failed"))
        kept = {id(process) for process in self._until("processes", order, limits.LOG_BYTES)}
        return replace(
            job,
            kind=self.text(job.kind),
            processes=tuple(self.whole(process) for process in job.processes if id(process) in kept),
            root_cause=self.whole(job.root_cause),
            also=self.several("further failures", job.also, limits.OTHER_BYTES),
            collectives=self.several("collectives", job.collectives, limits.LOG_BYTES),
        )

    def tasks(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """No task refers to one that is left out."""
        kept = self._coroutines("tasks", tasks)
        if len(kept) == len(tasks):
            return kept
        within = range(len(kept)).__contains__
        return tuple(
            replace(
                task,
                awaits_tasks=tuple(filter(within, task.awaits_tasks)),
                awaited_by=tuple(filter(within, task.awaited_by)),
                held_by=task.held_by if task.held_by is not None and within(task.held_by) else None,
                held_at=task.held_at if task.held_by is not None and within(task.held_by) else None,
            )
            for task in kept
        )

    def greenlets(self, greenlets: Sequence[Greenlet]) -> tuple[Greenlet, ...]:
        """No greenlet refers to one that is left out."""
        kept = self._coroutines("greenlets", greenlets)
        return tuple(replace(one, parent=None) if one.parent is not None and one.parent >= len(kept) else one for one in kept)

    def _coroutines(self, what: str, items: Sequence[_T]) -> tuple[_T, ...]:
        room = limits.report_bytes(limits.OTHER_BYTES, self._size)
        kept: tuple[_T, ...] = self._until(what, [self.whole(item) for item in items], room + self._spare, stage=what)
        self._spare -= max(0, sum(map(_size, kept)) - room)
        return kept

    def several(self, what: str, items: Sequence[_T], most: int) -> tuple[_T, ...]:
        """As many of the items as `most` bytes take."""
        return tuple(self._until(what, [self.whole(item) for item in items], limits.report_bytes(most, self._size)))

    def _until(self, what: str, items: Sequence[Any], room: int, stage: str = "report") -> tuple[Any, ...]:
        for index, item in enumerate(items):
            room -= _size(item)
            if room < 0:
                self._left_out.append((stage, f"{len(items) - index:,} of {len(items):,} {what} were left out"))
                return tuple(items[:index])
        return tuple(items)

    def threads(self, threads: Sequence[Thread]) -> tuple[Thread, ...]:
        """The crashed thread may take half of the room, and is never left out; of the others, the first ones are kept."""
        room = limits.report_bytes(limits.THREAD_BYTES, self._size)
        kept: dict[int, Thread] = {}
        order = sorted(range(len(threads)), key=lambda index: not threads[index].crashed)
        frames = 0
        for count, index in enumerate(order):
            thread = self.whole(threads[index])
            size = _size(thread)
            if size > room // 2:
                thread = replace(thread, frames=_bare(thread.frames), python_frames=_bare(thread.python_frames))
                size = _size(thread)
            if size > 2 * room // 3:
                short = replace(
                    thread, frames=_inner(thread.frames, room // 3), python_frames=_inner_python(thread.python_frames, room // 3)
                )
                frames += len(thread.frames) + len(thread.python_frames) - len(short.frames) - len(short.python_frames)
                thread, size = short, _size(short)
            if size > room and kept:
                self._left_out.append(("report", f"{len(order) - count:,} of {len(order):,} threads were left out"))
                break
            kept[index] = thread
            room -= size
        self._spare = max(0, min(room, limits.COROUTINE_BYTES))
        if frames > 0:
            self._left_out.append(("report", f"{frames:,} frames were left out"))
        return tuple(kept[index] for index in sorted(kept))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            if len(value) <= limits.LONGEST_TEXT:
                return value
            self._texts += 1
            return value[: limits.LONGEST_TEXT] + "…"
        if isinstance(value, (Address, Offset, bool, float)) or value is None:
            return value
        if isinstance(value, int):
            return self.number(value)
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        if isinstance(value, dict):
            return {self._value(key): self._value(item) for key, item in value.items()}
        return replace(value, **{name: self._value(getattr(value, name)) for name in value.__struct_fields__})


def _bare(frames: Sequence[_F]) -> tuple[_F, ...]:
    """Of the frames between the ends of a deep stack, only what says which they are: neither values nor the source around them."""

    def bare(frame: Any) -> Any:
        if isinstance(frame, PythonFrame):
            return replace(frame, context=(), context_start=None, locals={}, args=())
        return replace(frame, locals={}, args={}) if isinstance(frame, NativeFrame) else frame

    return (*frames[:_INNER], *map(bare, frames[_INNER:-_OUTER]), *frames[-_OUTER:]) if len(frames) > _INNER + _OUTER else tuple(frames)


def _inner(frames: Sequence[Frame], room: int) -> tuple[Frame, ...]:
    """The innermost frames that fit, and how many are left out."""
    for index, frame in enumerate(frames):
        room -= _size(frame)
        if room < 0:
            return (*frames[:index], ElidedFrames(count=len(frames) - index))
    return tuple(frames)


def _inner_python(frames: Sequence[PythonFrame], room: int) -> tuple[PythonFrame, ...]:
    return tuple(frame for frame in _inner(frames, room) if isinstance(frame, PythonFrame))


def _size(item: Any) -> int:
    """Bytes of JSON; what JSON cannot hold counts as long, so that it is looked at."""
    try:
        return len(msgspec.json.encode(item, enc_hook=encode_extension))
    except UnicodeEncodeError:
        return max(limits.LONGEST_TEXT + 1, len(repr(item)))
