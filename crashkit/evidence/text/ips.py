"""Crash reports of macOS as files: the JSON of `*.ips` (macOS 12 and later), as the text that the Console shows of it. Pure.

The form: Apple, "Interpreting the JSON format of a crash report". A line with a JSON object about the report, and the report, a second one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Optional

import msgspec

LARGEST = 64 << 20
"""Bytes of a report."""
HEAD = 4 << 10
"""Bytes by which a report is told."""
_MOST_THREADS = 1000
_MOST_FRAMES = 1000


class _Lenient(msgspec.Struct, frozen=True):
    """Other fields, of which each version of macOS has more, are ignored."""


class _Header(_Lenient, frozen=True):
    bug_type: str


class _Image(_Lenient, frozen=True):
    base: int = 0
    name: str = ""
    path: str = ""


class _Frame(_Lenient, frozen=True, rename="camel"):
    image_index: int = -1
    image_offset: int = 0
    symbol: Optional[str] = None
    symbol_location: int = 0
    source_file: Optional[str] = None
    source_line: Optional[int] = None


class _Thread(_Lenient, frozen=True):
    frames: tuple[_Frame, ...] = ()
    name: Optional[str] = None
    queue: Optional[str] = None
    triggered: bool = False


class _Exception(_Lenient, frozen=True):
    type: str = ""
    signal: Optional[str] = None
    subtype: Optional[str] = None
    codes: Optional[str] = None
    message: Optional[str] = None


class _Termination(_Lenient, frozen=True):
    namespace: str = ""
    code: Any = 0
    indicator: Optional[str] = None
    by_proc: Optional[str] = msgspec.field(default=None, name="byProc")
    by_pid: Optional[int] = msgspec.field(default=None, name="byPid")
    reasons: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


class _Report(_Lenient, frozen=True, rename="camel"):
    threads: tuple[_Thread, ...]
    exception: _Exception = _Exception()
    termination: _Termination = _Termination()
    pid: Optional[int] = None
    proc_name: str = ""
    proc_path: str = ""
    cpu_type: str = ""
    parent_proc: Optional[str] = None
    parent_pid: Optional[int] = None
    capture_time: Optional[str] = None
    os_version: dict[str, Any] = {}
    faulting_thread: Optional[int] = None
    used_images: tuple[_Image, ...] = ()
    asi: dict[str, Any] = {}
    vm_region_info: Optional[str] = None
    vmregioninfo: Optional[str] = msgspec.field(default=None, name="vmregioninfo")
    last_exception_backtrace: tuple[_Frame, ...] = ()


# Parts of a report that is cut off, or of which only parts were pasted.
_PART = re.compile(
    r'(?P<triggered>"triggered" ?: ?true)|(?P<frames>"frames" ?: ?\[)|"faultingThread" ?: ?(?P<crashed>\d{1,6})'
    r'|"exception" ?: ?(?P<exception>\{[^{}]{1,2000}\})'
    r'|(?P<frame>\{[^{}]{0,40}"imageOffset" ?: ?\d[^{}]{1,4000}\})'
)
_exception = msgspec.json.Decoder(_Exception)
_frame = msgspec.json.Decoder(_Frame)
_header = msgspec.json.Decoder(_Header)
_report = msgspec.json.Decoder(_Report)


def begins(head: bytes) -> bool:
    """Whether a file that begins so may be a report."""
    return head.lstrip()[:1] == b"{" and (b'"bug_type"' in head or b'"procName"' in head)


def as_text(data: bytes) -> Optional[str]:
    """The report as the Console shows it; None for what is no such report, or is cut off."""
    head, _, rest = data.lstrip().partition(b"\n")
    try:
        _header.decode(head)
        report = _report.decode(rest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        try:
            report = _report.decode(data)  # as it is pasted: without its first line
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
    return "\n".join(_lines(report)) + "\n" if report.threads and (report.exception.type or report.termination.namespace) else None


def _lines(report: _Report) -> Iterator[str]:
    crashed = report.faulting_thread
    yield f"Process:               {_line(report.proc_name or 'unknown')} [{report.pid or 0}]"
    if report.proc_path.startswith("/"):
        yield f"Path:                  {_line(report.proc_path)}"
    if report.cpu_type:
        yield f"Code Type:             {_line(report.cpu_type)} (Native)"
    if report.parent_proc:
        yield f"Parent Process:        {_line(report.parent_proc)} [{report.parent_pid or 0}]"
    if report.capture_time:
        yield f"Date/Time:             {_line(report.capture_time)}"
    if system := report.os_version.get("train"):
        yield f"OS Version:            {_line(str(system))}"
    yield ""
    if crashed is not None:
        yield f"Crashed Thread:        {crashed}"
        yield ""
    yield from _end(report)
    for place in (report.vm_region_info, report.vmregioninfo):
        if place:
            yield from ("", *f"VM Region Info: {place}".splitlines())
    said = [text for texts in report.asi.values() if isinstance(texts, list) for text in texts if isinstance(text, str)]
    if said:
        yield from ("", "Application Specific Information:", *(line for text in said for line in text.splitlines()))
    for index, thread in enumerate(report.threads[:_MOST_THREADS]):
        yield ""
        yield from _thread(index, thread, index == crashed or (crashed is None and thread.triggered), report.used_images)
    if report.last_exception_backtrace:
        yield from ("", "Last Exception Backtrace:", *_frames(report.last_exception_backtrace, report.used_images))


def _end(report: _Report) -> Iterator[str]:
    exception, termination = report.exception, report.termination
    if exception.type:
        yield f"Exception Type:        {_line(exception.type)}" + (f" ({_line(exception.signal)})" if exception.signal else "")
    for codes in (exception.subtype, exception.codes):
        if codes:
            yield f"Exception Codes:       {_line(codes)}"
    if exception.message:
        yield f"Exception Message:     {_line(exception.message)}"
    if termination.namespace:
        indicator = f" {_line(termination.indicator)}" if termination.indicator else ""
        yield f"Termination Reason:    Namespace {_line(termination.namespace)}, Code {termination.code}{indicator}"
        yield from (_line(text) for text in (*termination.reasons, *termination.details))
    if termination.by_proc:
        yield f"Terminating Process:   {_line(termination.by_proc)} [{termination.by_pid or 0}]"


def _thread(index: int, thread: _Thread, crashed: bool, images: tuple[_Image, ...]) -> Iterator[str]:
    name = _line(thread.name or "")
    queue = f"  Dispatch queue: {_line(thread.queue)}" if thread.queue else ""
    yield (
        f"Thread {index}{' Crashed' if crashed else ''}:: {name}{queue}"
        if name or queue
        else f"Thread {index}{' Crashed' if crashed else ''}:"
    )
    yield from _frames(thread.frames, images)


def _frames(frames: tuple[_Frame, ...], images: tuple[_Image, ...]) -> Iterator[str]:
    for level, frame in enumerate(frames[:_MOST_FRAMES]):
        image = images[frame.image_index] if 0 <= frame.image_index < len(images) else _Image()
        module = _line(image.name or image.path.rpartition("/")[2] or "???").replace(" ", "_")
        pc = image.base + frame.image_offset
        where = f"{_line(frame.symbol)} + {frame.symbol_location}" if frame.symbol else f"{image.base:#x} + {frame.image_offset}"
        source = f" ({_line(frame.source_file)}:{frame.source_line})" if frame.symbol and frame.source_file and frame.source_line else ""
        yield f"{level:<3} {module:<30} {pc:#018x} {where}{source}"


def _line(text: str) -> str:
    """The text on one line, whatever the report says."""
    return " ".join(text.split())


def parts(text: str) -> tuple[str, ...]:
    """What a line of a report tells of the crash, as the Console shows it, where the report is cut off; nothing for any other line."""
    if not any(key in text for key in ('"imageOffset"', '"exception"', '"faultingThread"')):
        return ()
    shown: list[str] = []
    threads, level = 0, 1  # A frame of level 0 begins a stack: a line may go on with that of the line before.
    triggered = False
    for match in _PART.finditer(text):
        with suppress(msgspec.MsgspecError, UnicodeError):
            if match["crashed"]:
                shown.append(f"Crashed Thread:        {match['crashed']}")
            elif match["triggered"]:
                triggered = True
            elif match["frames"]:
                shown.append(f"Thread {threads}{' Crashed' if triggered else ''}:")
                threads, level, triggered = threads + 1, 0, False
            elif match["exception"]:
                shown += _end(_Report(threads=(), exception=_exception.decode(match["exception"])))
            else:
                frame = _frame.decode(match["frame"])
                where = f"{_line(frame.symbol)} + {frame.symbol_location}" if frame.symbol else f"0x0 + {frame.image_offset}"
                shown.append(f"{level:<3} image_{frame.image_index:<24} {frame.image_offset:#018x} {where}")
                level += 1
    return tuple(shown)
