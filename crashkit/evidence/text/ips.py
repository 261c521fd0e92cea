"""Crash reports of macOS as files: the JSON of `*.ips` (macOS 12 and later), as the text that the Console shows of it. Pure.

The form: Apple, "Interpreting the JSON format of a crash report". A line with a JSON object about the report, and the report, a second one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Optional, TypeVar

import msgspec

from crashkit.prepared import prepared

LARGEST = 16 << 20
"""Bytes of a file with reports: one has a few MB at most."""
HEAD = 4 << 10
"""Bytes by which a report is told."""
_MOST_THREADS = 1000
_MOST_FRAMES = 20_000
"""Of all threads together."""
_LONGEST = 500
"""Characters of any text within a line."""
_MOST_LINES = 200
"""Of what a library said."""


class _Image(msgspec.Struct, frozen=True):
    base: int = 0
    name: str = ""
    path: str = ""


class _Frame(msgspec.Struct, frozen=True, rename="camel"):
    image_index: int = -1
    image_offset: Optional[int] = None
    symbol: Optional[str] = None
    symbol_location: int = 0
    source_file: Optional[str] = None
    source_line: Optional[int] = None


class _Thread(msgspec.Struct, frozen=True):
    frames: tuple[_Frame, ...] = ()
    name: Optional[str] = None
    queue: Optional[str] = None
    triggered: bool = False


class _Exception(msgspec.Struct, frozen=True):
    type: str = ""
    signal: Optional[str] = None
    subtype: Optional[str] = None
    codes: Optional[str] = None
    message: Optional[str] = None


class _Termination(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    code: int | str = 0
    indicator: Optional[str] = None
    by_proc: Optional[str] = None
    by_pid: Optional[int] = None
    reasons: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    """What is used of a report, of which each version of macOS has more. A field that is not as expected is as if it were missing."""

    threads: tuple[_Thread, ...] = ()
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
    vmregioninfo: Optional[str] = None
    last_exception_backtrace: tuple[_Frame, ...] = ()


_S = TypeVar("_S", bound=msgspec.Struct)

# A line of a report; the words of a library are none, whatever they are.
_OF_REPORT = re.compile(
    r"^\s*(?:Thread \d+|(?:Process|Path|Crashed Thread|Code Type|Exception|Termination)\b[^:]{0,20}:|\d+ +\S+ +0x|Binary Images:)"
)
# Parts of a report that is cut off, or of which only parts were pasted.
_PART = re.compile(
    r'(?P<triggered>"triggered" ?: ?true)|(?P<frames>"frames" ?: ?\[)|"faultingThread" ?: ?(?P<crashed>\d{1,6})'
    r'|"exception" ?: ?(?P<exception>\{)(?=[^{}]{0,400}"type" ?: ?"EXC_)'
    r'|(?P<frame>\{)(?=\s{0,8}"(?:imageOffset|imageIndex|symbol|symbolLocation|sourceFile|sourceLine|inline)" ?:)'
)
_MOST_BROKEN = 8
"""Parts of a line that are no JSON."""
_LONGEST_PART = 8 << 10
_json = json.JSONDecoder()


def begins(head: bytes) -> bool:
    """Whether a file that begins so may be a report."""
    of_file = b'"bug_type"' in head and any(key in head for key in (b'"os_version"', b'"incident_id"', b'"app_name"'))
    of_body = b'"procName"' in head and (b'"modelCode"' in head or b'"procRole"' in head)
    return head.lstrip()[:1] == b"{" and (of_file or of_body)


class Shown(NamedTuple):
    """The reports of a file as the Console shows them."""

    text: str
    """Empty where they are of no crash."""
    left_out: int
    """Frames beyond the most that are shown."""


def as_text(data: bytes) -> Optional[Shown]:
    """None for what is cut off or damaged."""
    text = data.decode("utf-8", "replace")
    shown: list[str] = []
    left_out = 0
    at = _next(text, 0)
    while at < len(text) and text[at] == "{":
        try:
            found, end = _json.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        report = _converted(_Report, found)
        if report.threads and (report.exception.type or report.termination.namespace):
            shown += _lines(report)
            left_out += max(0, sum(len(thread.frames) for thread in report.threads) - _MOST_FRAMES)
        at = _next(text, end)
    return Shown("\n".join(shown) + "\n" if shown else "", left_out)


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _converted(kind: type[_S], found: dict[str, Any]) -> _S:
    """The fields that are as they are expected to be."""
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        with suppress(msgspec.ValidationError, RecursionError):
            if field.encode_name in found:
                given[field.name] = msgspec.convert(found[field.encode_name], prepared(field.type))
    return kind(**given)


def _lines(report: _Report) -> Iterator[str]:
    crashed = report.faulting_thread
    if crashed is None:
        crashed = next((index for index, thread in enumerate(report.threads) if thread.triggered), None)
    if report.pid is not None:
        yield f"Process:               {_line(report.proc_name or 'unknown')} [{report.pid}]"
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
            yield from ("", *_said(f"VM Region Info: {place}"))
    said = [
        line for texts in report.asi.values() if isinstance(texts, list) for text in texts if isinstance(text, str) for line in _said(text)
    ]
    if said:
        yield from ("", "Application Specific Information:", *said[:_MOST_LINES])
    left = _MOST_FRAMES
    for index, thread in enumerate(report.threads[:_MOST_THREADS]):
        yield ""
        yield from _thread(index, thread, index == crashed, report.used_images, left)
        left -= min(left, len(thread.frames))
    if report.last_exception_backtrace:
        yield from ("", "Last Exception Backtrace:", *_frames(report.last_exception_backtrace, report.used_images, left))


def _said(text: str) -> list[str]:
    """The lines of a text that can be none of the report."""
    return [line[:_LONGEST] for line in text[: _MOST_LINES * _LONGEST].splitlines() if not _OF_REPORT.match(line)]


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
        yield f"Termination Reason:    Namespace {_line(termination.namespace)}, Code {_line(str(termination.code))}{indicator}"
        for text in (*termination.reasons, *termination.details):
            yield from _said(text)
    if termination.by_proc:
        yield f"Terminating Process:   {_line(termination.by_proc)} [{termination.by_pid or 0}]"


def _thread(index: int, thread: _Thread, crashed: bool, images: tuple[_Image, ...], most: int) -> Iterator[str]:
    name = _line(thread.name or "")
    queue = f"  Dispatch queue: {_line(thread.queue)}" if thread.queue else ""
    yield f"Thread {index}{' Crashed' if crashed else ''}:" + (f": {name}{queue}" if name or queue else "")
    yield from _frames(thread.frames, images, most)


def _frames(frames: tuple[_Frame, ...], images: tuple[_Image, ...], most: int) -> Iterator[str]:
    for level, frame in enumerate(frames[:most]):
        image = images[frame.image_index] if 0 <= frame.image_index < len(images) else _Image()
        yield _frame(level, frame, image.name or image.path.rpartition("/")[2] or "???", image.base)


def _frame(level: int, frame: _Frame, module: str, base: int) -> str:
    offset = frame.image_offset or 0
    where = f"{_line(frame.symbol)} + {frame.symbol_location}" if frame.symbol else f"{base:#x} + {offset}"
    source = f" ({_line(frame.source_file)}:{frame.source_line})" if frame.symbol and frame.source_file and frame.source_line else ""
    return f"{level:<3} {_line(module).replace(' ', '_'):<30} {max(0, base + offset) % 2**64:#018x} {where}{source}"


def _line(text: str) -> str:
    """The text on one line, whatever the report says."""
    return " ".join(text[: 4 * _LONGEST].split())[:_LONGEST]


def parts(text: str) -> tuple[str, ...]:
    """What a line of a report tells of the crash, as the Console shows it, where the report is cut off; nothing for any other line."""
    if not any(key in text for key in ('"imageOffset"', '"exception"', '"faultingThread"', '"triggered"')):
        return ()
    shown: list[str] = []
    threads, level, at, broken = 0, 1, 0, 0  # A frame of level 0 begins a stack: a line may go on with that of the line before.
    triggered = False
    while broken < _MOST_BROKEN and (match := _PART.search(text, at)) is not None:
        at = match.end()
        if match["crashed"]:
            shown.append(f"Crashed Thread:        {match['crashed']}")
        elif match["triggered"]:
            triggered = True
        elif match["frames"]:
            shown.append(f"Thread {threads}{' Crashed' if triggered else ''}:")
            threads, level, triggered = threads + 1, 0, False
        else:
            start = match.start("exception" if match["exception"] else "frame")
            try:
                found, length = _json.raw_decode(text[start : start + _LONGEST_PART])
            except (ValueError, RecursionError):
                found, length = {}, 1
                broken += 1
            at = start + length
            if match["exception"]:
                shown += _end(_Report(exception=_converted(_Exception, found)))
                continue
            # A frame that cannot be read is one nonetheless: its number is left out, and the next is not the innermost.
            if found:
                frame = _converted(_Frame, found)
                shown.append(_frame(level, frame, f"image_{frame.image_index}", 0))
            level += 1
    if triggered:
        shown.append(f"Thread {threads} Crashed:")
    return tuple(shown)
