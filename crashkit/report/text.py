"""The summary on a terminal: the answer on the first screen (24 lines of 80 cells), then the crashed thread's stack.

Lines are yielded, not printed. No line holds a control character but the colours of this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from textwrap import wrap

from crashkit.model import Crash, ElidedFrames, Finding, Frame, PythonFrame, Thread
from crashkit.report import safe, view
from crashkit.report.renderer import Renderer

_LABEL = 10
_NARROWEST, _WIDEST = 40, 120
_FRAMES = 40
_TAIL = 8
_TEXT = 4000

_RED, _BOLD, _DIM, _BLUE, _YELLOW = "1;31", "1", "2", "34", "33"


class _Style:
    def __init__(self, color: bool, width: int) -> None:
        self._color = color
        self.width = max(_NARROWEST, min(width, _WIDEST))

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color and text and code else text

    def field(self, label: str, value: str, lines: int = 1, code: str = "", label_code: str = _DIM) -> Iterator[str]:
        """A label and its value, in at most `lines` lines."""
        room = self.width - _LABEL - 2
        for index, text in enumerate(_wrapped(value, room, lines)):
            name = label if index == 0 else ""
            yield "  " + self.paint(f"{name:<{_LABEL}}", label_code) + self.paint(text, code)


def _clean(text: str) -> str:
    return safe.line(text[:_TEXT])


def _wrapped(text: str, width: int, lines: int) -> list[str]:
    """At most `lines` lines; the last one says where text was cut."""
    text = _clean(text)
    if lines == 1:
        return [safe.clip(text, width)]
    rows = wrap(text, width, break_on_hyphens=False) or [""]
    kept = rows[:lines]
    if len(rows) > lines:
        kept[-1] = f"{kept[-1]} {rows[lines]}"
    return [safe.clip(row, width) for row in kept]


def first_answer(crash: Crash) -> str:
    """One or two lines from what is known before a debugger has started: how it ended, why and in which thread."""
    text = view.ended(crash)
    if crash.signal:
        text = f"{crash.signal.name}: {text.lower()}" if text != crash.signal.name else text
        reason = view.why(crash.signal)
        text += f", {reason}" if reason else ""
        text += f", at {crash.signal.address}" if crash.signal.address is not None else ""
    thread = view.crashed_thread(crash)
    if thread:
        text += f"\nin thread {view.thread_label(thread)}, {view.among(crash)}"
        if crash.process and crash.process.pid is not None:
            text += f", of process {crash.process.pid}"
    return "\n".join(safe.clip(_clean(row), _WIDEST) for row in text.split("\n")[:2])


def summary(crash: Crash, written: Path | None, color: bool, width: int) -> Iterator[str]:
    """The answer, then the crashed thread's stack. `written` is the report's path, `width` that of the terminal in cells."""
    style = _Style(color, width)
    yield from _answer(crash, style)
    yield from _found(crash, style)
    yield from _missing(crash, style)
    if written is not None:
        # A path is copied: it is not cut, even where it is longer than the line.
        yield "  " + style.paint(f"{'report':<{_LABEL}}", _DIM) + style.paint(safe.line(str(written)), _BOLD)
    thread = view.crashed_thread(crash)
    if thread and (thread.frames or thread.python_frames):
        yield ""
        runtime = view.runtime_frames(thread, crash.python.executable if crash.python else None)
        yield from _stacks(thread, runtime, style)
    if len(crash.threads) > (1 if thread else 0):
        yield ""
        yield from _others(crash, thread, style)


# The first screen


def _answer(crash: Crash, style: _Style) -> Iterator[str]:
    signal, thread = crash.signal, view.crashed_thread(crash)
    name = signal.name if signal else view.ended(crash)
    reason = ((view.why(signal) or view.ended(crash)) if signal else view.told(crash, thread)) or ""
    room = style.width - min(safe.cells(_clean(name)), 20) - 2
    headline = _clean(reason) + (f", at {signal.address}" if signal and signal.address is not None else "")
    yield style.paint(safe.clip(_clean(name), 20), _RED) + style.paint(f"  {safe.clip(headline, room)}" if headline else "", _BOLD)
    if signal and signal.detail and signal.detail != reason:
        yield from (f"  {row}" for row in _wrapped(signal.detail, style.width - 2, 2))
    yield ""
    if thread:
        yield from style.field("thread", _thread(crash, thread), code=_BOLD)
    yield from _python(crash, thread, style)
    native = view.native_at(thread, crash.signal)
    if native:
        yield from style.field("native", f"{view.native_function(native)}  {view.native_place(native)}")
    said = next((line.text for line in crash.log if line.path == "core"), None)
    if said:
        yield from style.field("said", said, lines=2)
    if crash.process and _process(crash).strip():
        yield from style.field("process", _process(crash).strip())
    if crash.source and crash.source.truncated:
        missing = f"{crash.source.missing:,} bytes of it are missing" if crash.source.missing else "some of it is missing"
        yield from style.field("evidence", f"the core is truncated: {missing}, and what they held is not in this report", code=_YELLOW)
    if not thread and crash.log:
        yield from style.field("log", crash.log[0].text, lines=2)


def _thread(crash: Crash, thread: Thread) -> str:
    gil = "" if thread.holds_gil is None else ", held the GIL" if thread.holds_gil else ", without the GIL"
    return f"{view.thread_label(thread)}, {view.among(crash)}{gil}"


def _python(crash: Crash, thread: Thread | None, style: _Style) -> Iterator[str]:
    inner, own = view.python_at(thread), view.own_at(thread)
    if inner is None:
        if thread:
            yield from style.field("python", "no Python frame in this thread")
        return
    yield from _python_line(crash, "python", inner, style)
    if own is not None and own is not inner:
        yield from _python_line(crash, "your code", own, style)


def _python_line(crash: Crash, label: str, frame: PythonFrame, style: _Style) -> Iterator[str]:
    function = safe.clip(_clean(frame.function or "(no name)"), 30)
    place = safe.clip_front(_clean(view.full_place(frame)), style.width - _LABEL - 4 - safe.cells(function))
    yield from style.field(label, f"{function}  {place}", code=_BLUE)
    source = view.source_line(frame)
    if source:
        yield from style.field("", f"  {_clean(source)}")
        if view.is_changed(crash, frame):
            yield from style.field("", "  (the file was changed after the crash: this line may be another)", code=_YELLOW)


def _process(crash: Crash) -> str:
    process = crash.process
    assert process is not None
    command = safe.clip(_clean(" ".join(process.argv) or process.executable or process.name or ""), 60)
    pid = f" (pid {process.pid})" if process.pid is not None else ""
    versions = process.versions or ({"python": crash.python.version} if crash.python and crash.python.version else {})
    return command + pid + "".join(f", {name} {version}" for name, version in versions.items())


def _found(crash: Crash, style: _Style) -> Iterator[str]:
    finding = view.best_finding(crash)
    if finding is None:
        if crash.ruled_out:
            yield from style.field("cause", f"no known failure matched, {len(crash.ruled_out)} ruled out")
        return
    yield ""
    label = view.confidence(finding).lower()
    yield from style.field(safe.clip(_clean(label), _LABEL - 1), finding.title, code=_BOLD, label_code=_YELLOW)
    if finding.summary:
        yield from style.field("", finding.summary, lines=2)
    yield from _fix(finding, style)
    if len(crash.findings) > 1:
        yield from style.field("", f"and {view.plural(len(crash.findings) - 1, 'more finding')} in the report", code=_DIM)


def _fix(finding: Finding, style: _Style) -> Iterator[str]:
    if not finding.fix:
        return
    rows = [row for row in finding.fix[0][:_TEXT].split("\n") if row.strip()]
    if len(rows) == 1:
        yield from style.field("fix", rows[0], lines=2)
        return
    for index, row in enumerate(rows[:3]):
        yield from style.field("fix" if index == 0 else "", row.expandtabs(4))


def _missing(crash: Crash, style: _Style) -> Iterator[str]:
    errors = crash.soft_errors
    if not errors:
        return
    yield ""
    shown = errors if len(errors) <= 2 else errors[:1]
    # The first screen has 24 lines, and a finding takes up to eight.
    lines = 1 if crash.findings else 2
    for index, error in enumerate(shown):
        yield from style.field("missing" if index == 0 else "", error.message, lines=lines)
    if len(errors) > 2:
        yield from style.field("", f"and {len(errors) - 1} more in the report", code=_DIM)
    elif len(errors) == 1 and errors[0].hint:
        yield from style.field("", errors[0].hint, code=_DIM, lines=lines)


# Stacks


def _stacks(thread: Thread, runtime: Collection[int], style: _Style) -> Iterator[str]:
    label = safe.clip(_clean(view.thread_label(thread)), style.width - 34)
    if not thread.python_frames:
        yield style.paint(f"Stack of {label}, innermost first", _BOLD)
        yield from _stack(thread.frames, style, runtime)
        return
    yield style.paint(f"Python stack of {label}, innermost first", _BOLD)
    yield from _stack(thread.python_frames, style)
    yield ""
    yield style.paint("Native stack: they could not be merged", _BOLD)
    yield from _stack(thread.frames, style)


def _stack(frames: tuple[Frame, ...], style: _Style, runtime: Collection[int] = ()) -> Iterator[str]:
    skipped = range(_FRAMES - _TAIL, len(frames) - _TAIL) if len(frames) > _FRAMES else range(0)
    for index, frame in enumerate(frames):
        if index not in skipped:
            yield from _frame(index, frame, style, index in runtime)
        elif index == skipped.start:
            yield style.paint(f"       ... {view.plural(len(skipped), 'frame')} not shown here", _DIM)


def _frame(index: int, frame: Frame, style: _Style, runtime: bool) -> Iterator[str]:
    number = f"{index:>4} "
    if isinstance(frame, ElidedFrames):
        cycle = " <- ".join(view.short_function(name) for name in frame.cycle)
        text = view.elided_text(frame) + (f": {cycle}" if cycle else "")
        yield style.paint(number + safe.clip(f"   ... {_clean(text)}", style.width - 5), _YELLOW)
        return
    python = isinstance(frame, PythonFrame)
    function = (frame.function or "(no name)") if isinstance(frame, PythonFrame) else view.native_function(frame)
    place = _clean(view.python_place(frame) if isinstance(frame, PythonFrame) else view.native_place(frame))
    room = style.width - 8
    function = safe.clip(_clean(function), max(20, room - 2 - min(safe.cells(place), room // 2)))
    place = safe.clip_front(place, room - 2 - safe.cells(function))
    row = f"{number}{'py' if python else 'C':<3}" + style.paint(function, _BLUE if python else _DIM if runtime else "")
    yield (row + "  " + style.paint(place, _DIM)).rstrip()
    source = view.source_line(frame) if isinstance(frame, PythonFrame) else None
    if source:
        yield " " * 10 + safe.clip(_clean(source), style.width - 10)


def _others(crash: Crash, crashed: Thread | None, style: _Style) -> Iterator[str]:
    groups = view.groups(thread for thread in crash.threads if thread is not crashed)
    yield style.paint("Other threads" if crashed else "Threads", _BOLD)
    for group in groups[:8]:
        yield "  " + safe.clip(_clean(_group(group)), style.width - 2)
    if len(groups) > 8:
        rest = sum(len(group.threads) for group in groups[8:])
        yield style.paint(f"  and {view.plural(rest, 'thread')} more in the report", _DIM)


def _group(group: view.Group) -> str:
    who = view.plural(len(group.threads), "thread") if len(group.threads) > 1 else view.thread_label(group.first)
    at = f"{group.at.function} {view.python_place(group.at)}" if group.at else ""
    return f"{who}: {group.activity} {at}".rstrip()


RENDERER = Renderer("report.txt", lambda crash: "".join(f"{row}\n" for row in summary(crash, None, color=False, width=_WIDEST)).encode())
