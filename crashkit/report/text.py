"""The summary on a terminal: the answer on the first screen (24 lines of 80 cells), then the crashed thread's stack.

Lines are yielded, not printed. The only control characters are this module's colours. On a terminal narrower than 80 cells,
long fields take more lines instead of being cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from crashkit.model import Crash, ElidedFrames, Finding, Frame, Gpu, GpuException, Job, NativeFrame, PythonFrame, Thread
from crashkit.naming import greenlets, tasks, waits
from crashkit.naming.machinery import handler_end
from crashkit.naming.standing import standing
from crashkit.report import answer, gpu_wording, job_wording, safe, wording
from crashkit.report.cycles import Part
from crashkit.report.first_answer import first_answer as first_answer
from crashkit.report.line import BLUE as _BLUE
from crashkit.report.line import BOLD as _BOLD
from crashkit.report.line import DIM as _DIM
from crashkit.report.line import RED as _RED
from crashkit.report.line import YELLOW as _YELLOW
from crashkit.report.line import Line, wrapped
from crashkit.report.renderer import Renderer

_LABEL = 10
_FUSED = 3
"""Python lines that are shown of those a GPU kernel was fused from."""
_NARROWEST, _USUAL, _WIDEST = 20, 80, 120
_FRAMES = 40
_TAIL = 8
_TEXT = 4000
_WAITS = 6
_SIBLINGS = 16
_STEPS_BESIDE = 2
"""Steps to take next beside a finding that has no fix."""
_WORDS, _WORDS_BESIDE = 3, 2
"""Lines of the end of a log, alone and beside a finding."""
_MOST_TASKS = 4
_MOST_PENDING = 3
_MOST_UNWRITTEN = 3
"""Lines that the process had printed, in the summary."""
_MOST_RAISED = 2
_COUNTED = ("tasks", "greenlets")
"""Stages whose soft errors say how many of them are missing: told before others."""


class _Page:
    def __init__(self, width: int) -> None:
        self.width = max(_NARROWEST, min(width, _WIDEST))

    def rows(self, text: str, before: int, lines: int = 1) -> list[str]:
        """`text` in at most as many rows as it may take where `lines` of them are as wide as usual, `before` cells in."""
        room, usual = self.width - before, _USUAL - before
        return _wrapped(text, room, lines if room >= usual else lines * usual // room + 2)

    def field(self, label: str, value: str, lines: int = 1, style: str = "", label_style: str = _DIM) -> Iterator[Line]:
        """A label and its value, in at most `lines` lines."""
        for index, row in enumerate(self.rows(value, _LABEL + 2, lines)):
            name = label if index == 0 else ""
            yield Line("  ", (f"{name:<{_LABEL}}", label_style), (row, style))


def _clean(text: str) -> str:
    return safe.line(text[:_TEXT])


def _wrapped(text: str, width: int, lines: int) -> list[str]:
    """At most `lines` lines; the last one says where text was cut."""
    text = _clean(text)
    if lines == 1:
        return [safe.clip(text, width)]
    words = text.strip(" ")
    indent = " " * min(len(text) - len(text.lstrip(" ")), width // 2)
    rows = [indent + row for row in wrapped(words, width - len(indent))] or [""]
    kept = rows[:lines]
    if len(rows) > lines:
        kept[-1] = f"{kept[-1]} {rows[lines].lstrip()}"
    return [safe.clip(row, width) for row in kept]


def summary(crash: Crash, written: Path | None, color: bool, width: int, brief: bool = False) -> Iterator[str]:
    """The answer, then, unless `brief`, the crashed thread's stack. `written` is the report's path, `width` the terminal's in cells."""
    page = _Page(width)
    for line in _summary(crash, written, page, brief):
        yield line.colored if color else line.plain


def _summary(crash: Crash, written: Path | None, page: _Page, brief: bool) -> Iterator[Line]:
    yield from _answer(crash, page)
    yield from _found(crash, page)
    yield from _waits(crash, page)
    yield from _missing(crash, page)
    if hidden := wording.masked(crash):
        yield from page.field("masked", hidden, style=_DIM)
    if written is not None:
        # A path is copied: it is not cut, even where it is longer than the line.
        yield Line("  ", (f"{'report':<{_LABEL}}", _DIM), (safe.line(str(written)), _BOLD))
    if brief:
        return
    side = gpu_wording.launch(crash)
    thread = side.thread if side else crash.thread
    if thread and (thread.frames or thread.python_frames):
        yield Line()
        runtime = wording.runtime_frames(thread, crash.python.executable if crash.python else None)
        yield from _stacks(thread, runtime, page)
    if len(crash.threads) > (1 if thread else 0):
        yield Line()
        yield from _others(crash, thread, page)
    if crash.siblings:
        yield Line()
        yield from _siblings(crash, page)


# The first screen


def _answer(crash: Crash, page: _Page) -> Iterator[Line]:
    if crash.job is not None and job_wording.answers(crash):
        yield from _job_answer(crash, crash.job, page)
        return
    if crash.failed_gpu is not None:
        yield from _gpu_answer(crash, crash.failed_gpu, page)
        return
    signal, thread = crash.signal, crash.thread
    name = safe.clip(_clean(signal.name if signal else wording.ended(crash)), 20)
    reason = ((wording.why(signal) or wording.ended(crash)) if signal else wording.told(crash, thread)) or ""
    stands = standing(crash) if signal is None else None
    if stands is not None and not wording.is_sure(wording.best_finding(crash)):
        reason = stands.text
    headline = _clean(reason) + (f", at {signal.address}" if signal and signal.address is not None else "")
    yield from _headline(name, headline, page)
    if stands is not None and reason != stands.text:
        yield from (Line(f"  {row}", style=_BOLD) for row in page.rows(stands.text, 2, 2))
    told = answer.answer(crash)
    if told is not None:
        yield from (Line(f"  {row}", style=_BOLD) for row in page.rows(answer.line(told, signal), 2, 2))
    elif (ended := answer.at_the_end(crash)) is not None:
        yield from (Line(f"  {row}", style=_BOLD) for row in page.rows(ended, 2, 2))
    if signal and signal.detail and signal.detail != reason:
        yield from (Line(f"  {row}") for row in page.rows(signal.detail, 2, 2))
    yield Line()
    if thread:
        yield from page.field("thread", _thread(crash, thread), style=_BOLD)
    if task := tasks.task_of(crash, thread):
        yield from page.field("in task", tasks.sentence(crash, task), 2)
    if greenlet := greenlets.greenlet_of(crash, thread):
        yield from page.field("greenlet", greenlets.sentence(crash, greenlet), 2)
    if thread and (told is None or told.chosen.why is not None):
        yield from page.field("python", wording.without_python(crash, thread))
    yield from _python(told, page)
    yield from _forward(thread, page)
    for pending in (crash.python.pending_signals if crash.python else ())[:_MOST_PENDING]:
        yield from page.field("pending", wording.pending(pending), lines=2)
    if thread and wording.in_collector(thread):
        yield from page.field("", wording.collector_note(thread), lines=3, style=_YELLOW)
    if (note := wording.handler_note(crash)) is not None:
        yield from page.field("", note, lines=3, style=_YELLOW)
    native = wording.native_at(thread, crash.signal)
    if native and thread:
        caller = wording.called_by(thread, crash)
        failed = wording.failed(thread, native, caller)
        # What has neither a name nor a file is called by its address already.
        place = wording.native_place(native) if native.function or native.module else ""
        yield from page.field("native", f"{failed}  {place}".rstrip())
        if caller is not None:
            yield from page.field("called by", f"{wording.said(thread, caller)}  {wording.native_place(caller)}")
    if signal and (handled := wording.handled(signal)):
        yield from page.field("handler", handled)
    said = next((line.text for line in crash.log if line.from_core), None)
    if said:
        yield from page.field("message", said, lines=2)
    for index, line in enumerate(crash.unwritten[-_MOST_UNWRITTEN:]):
        yield from page.field("unwritten" if index == 0 else "", line)
    yield from _in_job(crash, page)
    if crash.process and _process(crash).strip():
        yield from page.field("process", _process(crash).strip())
    if crash.source and crash.source.truncated:
        missing = f"{crash.source.missing:,} bytes are missing" if crash.source.missing else "some of it is missing"
        yield from page.field("evidence", f"the core is truncated: {missing}, so this report is incomplete", style=_YELLOW)
    if not thread and crash.log:
        yield from page.field("log", crash.log[0].text, lines=2)


def _job_answer(crash: Crash, job: Job, page: _Page) -> Iterator[Line]:
    """A job: which rank, its line and its error; then what became of the others."""
    name, text = job_wording.headline(job)
    yield from _headline(_clean(name), _clean(text), page)
    cause = job.root_cause
    if len(_clean(text)) + len(name) + 2 > page.width and page.width >= _USUAL:
        yield from (Line(f"  {row}") for row in page.rows(text, 2, 2))
    yield Line()
    if cause is not None and cause.where is not None:
        place = _clean(job_wording.full_place(cause.where))
        yield from page.field("line", safe.clip_front(place, page.width - _LABEL - 2), style=_BLUE)
        if cause.where.source:
            yield from page.field("", f"  {_clean(cause.where.source)}")
    for collective in job.collectives[:1] if job_wording.is_collective(job) else ():
        for index, call in enumerate(collective.calls[:4]):
            said = f"{job_wording.ranks(call.ranks)}: {call.operation or ''} {job_wording.full_place(call.where)}"
            yield from page.field("called" if index == 0 else "", said, style=_BLUE)
    if cause is not None and (known := job_wording.known_by(cause)):
        yield from page.field("known by", known, lines=2)
    yield from page.field("job", job_wording.described(job))
    for index, other in enumerate(job_wording.further(job)[:3]):
        yield from page.field("also" if index == 0 else "", other, lines=2)
    for index, other in enumerate(job_wording.followed(job)[:4]):
        yield from page.field("followed" if index == 0 else "", other)


def _gpu_answer(crash: Crash, gpu: Gpu, page: _Page) -> Iterator[Line]:
    """A failure on the GPU: the kernel first, then the CPU's side. The thread that died is the driver's, and says nothing."""
    yield from _headline("GPU", _clean(gpu_wording.headline(gpu).replace("GPU kernel", "kernel", 1)), page)
    yield Line()
    if gpu.exceptions:
        yield from _gpu_exception(gpu.exceptions[0], page)
    for kernel in gpu.kernels[:1] if not gpu.exceptions else ():
        known = f"  ({kernel.known_as})" if kernel.known_as else ""
        yield from page.field("kernel", f"{gpu_wording.kernel_name(kernel.name)}{known}", style=_BOLD)
        for index, place in enumerate(gpu_wording.standing(kernel)[:3]):
            yield from page.field("warps" if index == 0 else "", place)
    for index, other in enumerate(gpu_wording.others(gpu)):
        yield from page.field("beside" if index == 0 else "", _clean(other))
    side = gpu_wording.launch(crash)
    if side is not None:
        if side.frame is not None:
            yield from _python_line(side.label, side.frame, page)
        yield from page.field("" if side.frame else side.label, side.text, lines=2, style=_DIM)
        yield from _forward(side.thread, page)
    yield from _in_job(crash, page)
    if crash.process and _process(crash).strip():
        yield from page.field("process", _process(crash).strip())
    if crash.source and crash.source.truncated:
        yield from page.field("evidence", "the core is truncated, so this report is incomplete", style=_YELLOW)


def _in_job(crash: Crash, page: _Page) -> Iterator[Line]:
    """Whose the failure is: of several ranks, one crashed."""
    if (said := job_wording.place_in_job(crash)) is not None:
        yield from page.field("job", said)


def _gpu_exception(exception: GpuException, page: _Page) -> Iterator[Line]:
    known = f"  ({exception.known_as})" if exception.known_as else ""
    yield from page.field("kernel", f"{gpu_wording.kernel_name(exception.kernel)}{known}", style=_BOLD)
    where = _clean(gpu_wording.place(exception))
    if where:
        inlined = [frame.function for frame in exception.frames if isinstance(frame, NativeFrame) and frame.function]
        inside = f" in {safe.clip(_clean(' <- '.join(inlined[:3])), 40)}" if len(inlined) > 1 or inlined[:1] != [exception.kernel] else ""
        yield from page.field("", safe.clip_front(where, page.width - _LABEL - 2 - safe.cells(inside)) + inside, style=_BLUE)
    if exception.source:
        yield from page.field("", f"  {_clean(exception.source)}")
    for number, line in enumerate(gpu_wording.fused(exception)[:_FUSED]):
        yield from page.field("" if number else "fuses", _clean(line))
    threads = gpu_wording.threads(exception)
    if threads:
        yield from page.field("threads", threads, lines=2)
    done = gpu_wording.access(exception)
    if done:
        yield from page.field("access", done, lines=2)
    for number, line in enumerate(gpu_wording.memory(exception)):
        yield from page.field("" if number else "memory", _clean(line))


def _headline(name: str, headline: str, page: _Page) -> Iterator[Line]:
    room = page.width - safe.cells(name) - 2
    if not headline or page.width >= _USUAL or safe.cells(headline) <= room:
        yield Line((name, _RED), (f"  {safe.clip(headline, room)}" if headline else "", _BOLD))
        return
    yield Line(name, style=_RED)
    yield from (Line(f"  {row}", style=_BOLD) for row in page.rows(headline, 2))


def _thread(crash: Crash, thread: Thread) -> str:
    gil = "" if thread.holds_gil is None else ", held the GIL" if thread.holds_gil else ", without the GIL"
    return f"{wording.thread_label(thread)}, {wording.among(crash)}{gil}"


def _python(told: answer.Answer | None, page: _Page) -> Iterator[Line]:
    if told is None:
        return
    thread, frame = told.chosen.thread, told.frame
    inner = wording.python_at(thread)
    label = "your code" if frame != inner or told.chosen.why is not None else "python"
    yield from _python_line(label, frame, page)
    if told.chosen.why is None and inner is not None and inner != frame:
        yield from _python_line("python", inner, page, with_source=False)
    if thread.exception:
        yield from page.field("handling", thread.exception, lines=2)
        for raised in thread.raised[:_MOST_RAISED]:
            yield from page.field("", wording.raised(raised), lines=2)
    if thread.pending and told.chosen.why is None:
        yield from page.field("pending", wording.set_exception(thread.pending), lines=3)


def _forward(thread: Thread | None, page: _Page) -> Iterator[Line]:
    frame = wording.forward_line(thread)
    if frame is not None:
        yield from _python_line("forward", frame, page)
        yield from page.field("", wording.FORWARD, style=_DIM)


def _python_line(label: str, frame: PythonFrame, page: _Page, with_source: bool = True) -> Iterator[Line]:
    room = page.width - _LABEL - 2
    function, place = safe.clip(_clean(frame.function or "(no name)"), min(30, room)), _clean(wording.full_place(frame))
    if page.width < _USUAL and safe.cells(function) + 2 + safe.cells(place) > room:
        yield from page.field(label, function, style=_BLUE)
        yield from page.field("", safe.clip_front(place, room), style=_BLUE)
    else:
        yield from page.field(label, f"{function}  {safe.clip_front(place, room - 2 - safe.cells(function))}", style=_BLUE)
    source = wording.statement(frame) if with_source else None
    if source:
        is_whole = source == wording.source_line(frame)
        yield from page.field("", f"  {_clean(source)}", lines=1 if is_whole else 2)
        if is_whole and (carets := _carets(frame, source, page.width - _LABEL - 4)):
            yield Line(" " * (_LABEL + 4) + carets, style=_YELLOW)
        if frame.source_changed:
            yield from page.field("", "  (the file changed after the crash: this line may not match)", style=_YELLOW)


def _carets(frame: PythonFrame, source: str, room: int) -> str | None:
    """A row below the source line that marks the expression that was running, as Python's tracebacks do."""
    marked = wording.expression(frame)
    if marked is None:
        return None
    before, within = (safe.cells(_clean(part)) for part in (source[: marked[0]], source[marked[0] : marked[1]]))
    return " " * before + "^" * min(within, room - before) if before < room else None


def _process(crash: Crash) -> str:
    process = crash.process
    assert process is not None
    command = safe.clip(_clean(" ".join(process.argv) or process.executable or process.name or ""), 60)
    pid = f" (pid {process.pid})" if process.pid is not None else ""
    return command + pid + "".join(f", {name} {version}" for name, version in wording.versions(crash).items())


def _found(crash: Crash, page: _Page) -> Iterator[Line]:
    repeated = job_wording.REPEATED if job_wording.answers(crash) else frozenset()
    finding = next((one for one in crash.findings if one.id not in repeated), None)
    if finding is None:
        if crash.looked_for and not repeated:
            yield from page.field("cause", f"no known failure matched: {wording.looked_for(crash)}")
        yield from _next_steps(crash.next_steps[: 0 if repeated else 3], page)
        yield from _last_words(() if repeated else wording.last_words(crash)[-_WORDS:], page)
        return
    yield Line()
    label = wording.confidence(finding).lower()
    yield from page.field(safe.clip(_clean(label), _LABEL - 1), finding.title, style=_BOLD, label_style=_YELLOW)
    # A GPU's answer is longer: its finding repeats some of it.
    short = crash.failed_gpu is not None
    if finding.summary:
        lines = 1 if short else 2
        yield from page.field("", _fitting(crash, finding.summary, page, lines), lines=lines)
    yield from _fix(finding, page, 2 if short else 3)
    yield from _next_steps(crash.next_steps[: 0 if finding.fix or short or repeated else _STEPS_BESIDE], page)
    yield from _last_words(() if short or repeated else wording.last_words(crash)[-_WORDS_BESIDE:], page)
    more = sum(one is not finding and one.id not in repeated for one in crash.findings)
    if more and not short:
        yield from page.field("", f"and {wording.plural(more, 'more finding')} in the report", style=_DIM)


def _fitting(crash: Crash, told: str, page: _Page, lines: int) -> str:
    """What a finding tells, without its last sentence where there is no room for that and it only names the line that is shown above."""
    before, names_line, _ = told.rpartition(" The Python line was ")
    is_cut = page.rows(told, _LABEL + 2, lines) != page.rows(told, _LABEL + 2, _TEXT)
    return before if is_cut and names_line and answer.answer(crash) is not None else told


def _next_steps(steps: Sequence[str], page: _Page) -> Iterator[Line]:
    for index, step in enumerate(steps):
        yield from page.field("next" if index == 0 else "", step)


def _last_words(rows: Sequence[str], page: _Page) -> Iterator[Line]:
    for index, row in enumerate(rows):
        yield from page.field("log ends" if index == 0 else "", row.strip(), style=_DIM)


def _waits(crash: Crash, page: _Page) -> Iterator[Line]:
    """Who waits for whom. Those of a deadlock are in the finding's words, too, but one below the other they can be read."""
    telling = [
        wait
        for wait in crash.waits
        if wait.cycle or wait.lost or wait.held_by is not None or wait.process is not None or wait.kind in ("lock", "rlock", "import")
    ]
    told = telling or [wait for wait in crash.waits if not crash.signal]
    if told:
        yield Line()
    for index, wait in enumerate(told[:_WAITS]):
        style = _YELLOW if wait.cycle else ""
        yield from page.field(
            "deadlock" if wait.cycle and index == 0 else "waits" if index == 0 else "", waits.sentence(crash, wait), 2, style
        )
    if len(told) > _WAITS:
        yield from page.field("", f"and {len(told) - _WAITS} more in the report", style=_DIM)
    # The loop's thread only waits for events; after a fault, what tasks wait for explains nothing.
    stuck = tasks.stuck(crash) if crash.waits else []
    for index, task in enumerate(stuck[:_MOST_TASKS]):
        yield from page.field("tasks" if index == 0 else "", tasks.wait_sentence(crash, task), 2)
    if len(stuck) > _MOST_TASKS:
        yield from page.field("", f"and {len(stuck) - _MOST_TASKS} more tasks in the report", style=_DIM)


def _fix(finding: Finding, page: _Page, most: int) -> Iterator[Line]:
    if not finding.fix:
        return
    rows = [row for row in finding.fix[0][:_TEXT].split("\n") if row.strip()]
    if len(rows) == 1:
        yield from page.field("fix", rows[0], lines=2)
        return
    for index, row in enumerate(rows[:most]):
        yield from page.field("fix" if index == 0 else "", row.expandtabs(4))


def _missing(crash: Crash, page: _Page) -> Iterator[Line]:
    errors = sorted(crash.soft_errors, key=lambda error: error.stage not in _COUNTED)
    if not errors:
        return
    if crash.failed_gpu is None:
        yield Line()
    shown = errors if len(errors) <= 2 else errors[:1]
    # The first screen has 24 lines, and a finding takes up to eight.
    lines = 1 if crash.findings else 2
    for index, error in enumerate(shown):
        yield from page.field("missing" if index == 0 else "", error.message, lines=lines)
    if len(errors) > 2:
        yield from page.field("", f"and {len(errors) - 1} more in the report", style=_DIM)
    elif len(errors) == 1 and errors[0].hint:
        yield from page.field("", errors[0].hint, style=_DIM, lines=lines)


# Stacks


def _stacks(thread: Thread, runtime: Collection[int], page: _Page) -> Iterator[Line]:
    label = safe.clip(_clean(wording.thread_label(thread)), max(page.width, _USUAL) - 34)
    if not thread.python_frames:
        yield from (Line(row, style=_BOLD) for row in page.rows(f"Stack of {label}, innermost first", 0))
        handled = handler_end(thread.frames)
        if handled > 1:
            yield from _note(f"... {wording.plural(handled, 'frame')} of the signal handler", page)
        yield from _stack(thread.frames, page, runtime, handled if handled > 1 else 0)
        return
    yield from (Line(row, style=_BOLD) for row in page.rows(f"Python stack of {label}, innermost first", 0))
    yield from _stack(thread.python_frames, page)
    yield Line()
    yield from (Line(row, style=_BOLD) for row in page.rows("Native stack, which could not be merged with it", 0))
    yield from _stack(thread.frames, page)


def _stack(frames: tuple[Frame, ...], page: _Page, runtime: Collection[int] = (), start: int = 0) -> Iterator[Line]:
    """The frames from number `start` on."""
    rows = [row for part in wording.stretches(frames[start:]) for row in _rows(part)]
    skipped = range(_FRAMES - _TAIL, len(rows) - _TAIL) if len(rows) > _FRAMES else range(0)
    for position, row in enumerate(rows):
        if position == skipped.start and skipped:
            count = sum(len(one.repeated) if isinstance(one, Part) else 1 for one in rows[skipped.start : skipped.stop])
            yield from _note(f"... {wording.plural(count, 'frame')} not shown here", page)
        if position in skipped:
            continue
        if isinstance(row, Part):
            yield from _note(f"... {wording.rounds(row)}", page)
        else:
            yield from _frame(start + row, frames[start + row], page, start + row in runtime)


def _rows(part: Part) -> Iterator[int | Part]:
    """The frames of one round, and the part itself where there are more rounds."""
    yield from range(part.start, part.start + part.length)
    if part.repeated:
        yield part


def _note(text: str, page: _Page) -> Iterator[Line]:
    yield from (Line(f"{'':7}{row}", style=_DIM) for row in page.rows(text, 7))


def _frame(index: int, frame: Frame, page: _Page, runtime: bool) -> Iterator[Line]:
    number = f"{index:>4} "
    if isinstance(frame, ElidedFrames):
        cycle = " <- ".join(wording.short_function(name) for name in frame.cycle)
        text = wording.elided_text(frame) + (f": {cycle}" if cycle else "")
        yield Line(number + safe.clip(f"   ... {_clean(text)}", page.width - 5), style=_YELLOW)
        return
    python = isinstance(frame, PythonFrame)
    function = (frame.function or "(no name)") if isinstance(frame, PythonFrame) else wording.native_function(frame)
    place = _clean(wording.python_place(frame) if isinstance(frame, PythonFrame) else wording.native_place(frame))
    room = page.width - 8
    head = f"{number}{'py' if python else 'C':<3}"
    function, color = _clean(function), _BLUE if python else _DIM if runtime else ""
    if page.width < _USUAL and safe.cells(function) + 2 + safe.cells(place) > room:
        yield Line(head, (safe.clip(function, room), color))
        yield Line(" " * 8, (safe.clip_front(place, room), _DIM))
    else:
        function = safe.clip(function, max(20, room - 2 - min(safe.cells(place), room // 2)))
        yield Line(head, (function, color), "  ", (safe.clip_front(place, room - 2 - safe.cells(function)), _DIM))
    source = wording.source_line(frame) if isinstance(frame, PythonFrame) else None
    if source and isinstance(frame, PythonFrame):
        yield Line(" " * 10 + safe.clip(_clean(source), page.width - 10))
        if carets := _carets(frame, source, page.width - 10):
            yield Line(" " * 10 + carets, style=_YELLOW)


def _others(crash: Crash, crashed: Thread | None, page: _Page) -> Iterator[Line]:
    groups = wording.groups(thread for thread in crash.threads if thread is not crashed)
    yield Line("Other threads" if crashed else "Threads", style=_BOLD)
    for group in groups[:8]:
        yield from (Line(f"  {row}") for row in page.rows(_group(group), 2))
    if len(groups) > 8:
        rest = sum(len(group.threads) for group in groups[8:])
        yield from (Line(f"  {row}", style=_DIM) for row in page.rows(f"and {wording.plural(rest, 'thread')} more in the report", 2))


def _siblings(crash: Crash, page: _Page) -> Iterator[Line]:
    yield Line("Other processes", style=_BOLD)
    for sibling in crash.siblings[:_SIBLINGS]:
        stood = [_stood(group) for group in wording.groups(sibling.threads)]
        told = "; ".join(stood[:3]) + (f"; and {wording.plural(len(stood) - 3, 'other stack')}" if len(stood) > 3 else "")
        yield from (Line(f"  {row}") for row in page.rows(f"{wording.sibling_label(sibling)}: {told or wording.UNSEEN}", 2, 2))
    if len(crash.siblings) > _SIBLINGS:
        yield Line(f"  and {len(crash.siblings) - _SIBLINGS} more in the report", style=_DIM)


def _stood(group: wording.Group) -> str:
    """Where threads of another process stood; of one thread, its name only where it is not the main one."""
    at = f"{group.at.function or '(no name)'} {wording.python_place(group.at)}" if group.at else "no Python frame"
    return f"{wording.plural(len(group.threads), 'thread')} in {at}" if len(group.threads) > 1 else at


def _group(group: wording.Group) -> str:
    who = wording.plural(len(group.threads), "thread") if len(group.threads) > 1 else wording.thread_label(group.first)
    at = f"{group.at.function or '(no name)'} {wording.python_place(group.at)}" if group.at else ""
    return f"{who}: {' '.join(filter(None, (group.activity, at)))}".rstrip(": ")


RENDERER = Renderer("report.txt", lambda crash: "".join(f"{row}\n" for row in summary(crash, None, color=False, width=_WIDEST)).encode())
