"""A short form of the report for issues and job summaries (GitHub-flavoured Markdown)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crashkit.model import Crash, ElidedFrames, Frame, PythonFrame
from crashkit.report import answer, gpu_wording, job_wording, safe, wording
from crashkit.report.renderer import Renderer

_FRAMES = 16
_LINES = 3
_TEXT = 600
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~@&])")


def summary(crash: Crash) -> str:
    """What happened, the best finding and the innermost frames. Ends with one newline."""
    parts = [
        f"### {_text(wording.sentence(crash))}",
        _facts(crash),
        *_finding(crash),
        *_stack(crash),
        *_log(crash),
        *_printed(crash),
        *_missing(crash),
        *_masked(crash),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(crash: Crash) -> str:
    rows = []
    if found := answer.answer(crash):
        rows.append(("Your code" if found.chosen.why is None else "Python code", answer.line(found, crash.signal)))
    elif (ended := answer.at_the_end(crash)) is not None:
        rows.append(("Where", ended))
    if crash.signal:
        signal = " ".join(filter(None, (crash.signal.name, crash.signal.code_name, wording.address_of(crash.signal))))
        rows.append(("Signal", signal))
        if crash.signal.detail:
            rows.append(("Why", crash.signal.detail))
        if handled := wording.handled(crash.signal):
            rows.append(("Handler", handled))
    rows += _job(crash)
    rows += _gpu(crash)
    thread = crash.thread
    if thread and (unread := wording.unread_python(crash, thread)):
        rows.append(("Python", unread))
    if thread:
        rows.append(("Thread", f"{wording.thread_label(thread)}, {wording.plural(len(crash.threads), 'thread')} in total"))
    side = gpu_wording.launch(crash)
    if frame := wording.forward_line(side.thread if side else thread):
        place = f" ({wording.full_place(frame)})" if frame.file else ""
        rows.append(("Forward", f"{frame.function or '(no name)'}{place}, {wording.FORWARD}"))
    if versions := wording.versions(crash):
        rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    if crash.fingerprint and crash.fingerprint.hash:
        rows.append(("Fingerprint", crash.fingerprint.hash))
    return "\n".join(f"- **{label}:** {_text(value)}" for label, value in rows)


def _job(crash: Crash) -> list[tuple[str, str]]:
    job = crash.job
    if job is None:
        return []
    cause = job.root_cause
    rows = [("Job", job_wording.described(job)), ("First", job_wording.sentence(job))]
    if cause is not None:
        rows += [("Line", job_wording.full_place(cause.where)), ("Known by", job_wording.known_by(cause) or "")]
    rows += [("Also", text) for text in job_wording.further(job)[:5]]
    rows += [("Followed", text) for text in job_wording.followed(job)[:8]]
    return [(label, value) for label, value in rows if value]


def _gpu(crash: Crash) -> list[tuple[str, str]]:
    gpu = crash.failed_gpu
    if gpu is None:
        return []
    rows = []
    for exception in gpu.exceptions[:1]:
        known = f" ({exception.known_as})" if exception.known_as else ""
        rows.append(("GPU exception", f"{gpu_wording.words(exception)} ({exception.name})"))
        rows.append(("Kernel", f"{exception.kernel or 'not named'}{known} {gpu_wording.place(exception)}".strip()))
        rows.append(("Fuses", "; ".join(gpu_wording.fused(exception))))
        rows.append(("GPU threads", gpu_wording.threads(exception)))
        rows.append(("Access", " ".join(filter(None, (exception.instruction, gpu_wording.access(exception))))))
        rows.append(("Memory", "; ".join(gpu_wording.memory(exception))))
    for kernel in gpu.kernels[:3] if not gpu.exceptions else ():
        standing = "; ".join(gpu_wording.standing(kernel)[:3])
        rows.append(("Kernel", f"{kernel.name or 'not named'}: {standing}"))
    side = gpu_wording.launch(crash)
    if side is not None:
        line = f"{side.frame.function or '(no name)'} {wording.full_place(side.frame)}: " if side.frame else ""
        rows.append((side.label.capitalize(), f"{line}{side.text}"))
    return [(label, value) for label, value in rows if value]


def _finding(crash: Crash) -> list[str]:
    finding = wording.best_finding(crash)
    if finding is None:
        return _next(crash)
    parts = [f"**{_text(wording.confidence(finding))}: {_text(finding.title)}** ({_text(finding.id)})"]
    parts += [_text(text) for text in dict.fromkeys((finding.summary, finding.cause)) if text]
    if finding.fix:
        parts += ["What to do:", *(_text(fix) if wording.is_prose(fix) else _fenced(fix) for fix in finding.fix)]
    elif crash.next_steps:
        parts += ["What to do next:", _listed(crash.next_steps)]
    return parts + _last_words(crash)


def _printed(crash: Crash) -> list[str]:
    """What nobody has seen yet."""
    if not crash.unwritten:
        return []
    return ["Printed by the process, and never written (still in its buffers):", _fenced("\n".join(crash.unwritten))]


def _next(crash: Crash) -> list[str]:
    """Where no known failure matched: what to do, and what the process said."""
    parts = []
    if crash.next_steps:
        parts += ["No known failure matched. Next:", _listed(crash.next_steps)]
    return parts + _last_words(crash)


def _listed(steps: Sequence[str]) -> str:
    return "\n".join(f"- {_text(step)}" for step in steps)


def _last_words(crash: Crash) -> list[str]:
    words = wording.last_words(crash)
    return ["The last words of the process:", _fenced("\n".join(words))] if words else []


def _stack(crash: Crash) -> list[str]:
    side = gpu_wording.launch(crash)
    thread = side.thread if side else crash.thread
    if not thread:
        return []
    runtime = wording.runtime_frames(thread, crash.python.executable if crash.python else None)
    frames = [*wording.chosen(thread.python_frames, lambda _: True), *wording.chosen(thread.frames, lambda index: index not in runtime)]
    if not frames:
        return []
    lines = [frame if isinstance(frame, str) else _frame(frame) for frame in frames[:_FRAMES]]
    if len(frames) > _FRAMES:
        lines.append(f"... {wording.plural(len(frames) - _FRAMES, 'more frame')}")
    which = f"thread {_text(wording.thread_label(thread))}" if side else "the crashed thread"
    return [f"Innermost frames of {which}:", _fenced("\n".join(lines))]


def _frame(frame: Frame) -> str:
    if isinstance(frame, ElidedFrames):
        return safe.line(safe.bounded(wording.elided_text(frame), _TEXT))
    kind = "python" if isinstance(frame, PythonFrame) else "native"
    function = (frame.function or "(no name)") if isinstance(frame, PythonFrame) else wording.native_function(frame)
    place = wording.python_place(frame) if isinstance(frame, PythonFrame) else wording.native_place(frame)
    row = f"{kind}  {safe.line(safe.bounded(function, 100))}  {safe.line(safe.bounded(place, 200))}".rstrip()
    source = wording.source_line(frame) if isinstance(frame, PythonFrame) else None
    return f"{row}\n            {safe.line(safe.bounded(source, 200))}" if source else row


def _log(crash: Crash) -> list[str]:
    """The lines that the best finding rests on, or else the first ones, with their neighbours."""
    finding = wording.best_finding(crash)
    cited = [item.log for item in finding.evidence if item.log is not None] if finding else []
    chosen = [crash.log[index] for index in dict.fromkeys(cited) if 0 <= index < len(crash.log)] or list(crash.log[:1])
    rows = [row for line in chosen[:_LINES] for row in (*line.before, line.text, *line.after)]
    return ["From the log:", _fenced("\n".join(safe.bounded(row, _TEXT) for row in rows))] if rows else []


def _missing(crash: Crash) -> list[str]:
    if not crash.soft_errors:
        return []
    return ["Missing: " + "; ".join(_text(error.message) for error in crash.soft_errors[:5]) + "."]


def _masked(crash: Crash) -> list[str]:
    hidden = wording.masked(crash)
    return [f"Masked: {hidden}."] if hidden else []


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", safe.line(safe.bounded(text, _TEXT)))


def _fenced(text: str) -> str:
    """A code block that its content cannot end: its fence is longer than any run of backticks inside."""
    text = safe.block(safe.bounded(text, 20 * _TEXT))
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


escaped, fenced = _text, _fenced
"""For other documents in Markdown."""

RENDERER = Renderer("report.md", lambda crash: summary(crash).encode())
