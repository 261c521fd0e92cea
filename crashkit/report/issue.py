"""The text of an issue about a crash, for the tracker of whoever's code failed (GitHub-flavoured Markdown). Pure.

It is what a maintainer asks for and nothing that is only the user's: no arguments, no values, no log, no paths of folders. The crash is
masked already, as all that a report is made from.
"""

from __future__ import annotations

from collections.abc import Sequence

from crashkit.model import Crash, Frame, NativeFrame, PythonFrame
from crashkit.report import gpu_wording, safe, wording
from crashkit.report.markdown import escaped, fenced
from crashkit.report.renderer import Renderer

_PYTHON = 12
_NATIVE = 24
_TEXT = 160
_PLACEHOLDER = "(What did you do, and does it happen each time? The shortest program that crashes helps most.)"


def issue(crash: Crash) -> str:
    """The title as a heading, what failed, where, with which versions, and how to know it again. Ends with one newline."""
    parts = [
        f"# {escaped(_title(crash))}",
        "### What happened",
        _PLACEHOLDER,
        *_finding(crash),
        *_stacks(crash),
        "### Versions",
        _versions(crash),
        *_fingerprint(crash),
        *_masked(crash),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(crash: Crash) -> str:
    """The sentence with names of files in place of their paths."""
    title = wording.sentence(crash)
    files = {frame.file for thread in crash.threads for frame in thread.pythons() if frame.file}
    for path in sorted((shown for file in files for shown in (file, wording.short_path(file))), key=len, reverse=True):
        title = title.replace(path, wording.base_name(path))
    return title


def _finding(crash: Crash) -> list[str]:
    finding = wording.best_finding(crash)
    if finding is None:
        return []
    return [f"crashkit says ({escaped(finding.confidence)}): {escaped(finding.title)} ({escaped(finding.id)})"]


def _stacks(crash: Crash) -> list[str]:
    side = gpu_wording.launch(crash)
    thread = side.thread if side else crash.thread
    if thread is None:
        return []
    runtime = wording.runtime_frames(thread, crash.python.executable if crash.python else None)
    frames = thread.frames
    python = wording.chosen(thread.python_frames or frames, lambda index: isinstance((thread.python_frames or frames)[index], PythonFrame))
    native = wording.chosen(frames, lambda index: not isinstance(frames[index], PythonFrame) and index not in runtime)
    return [*_stack("Python stack", python, _PYTHON), *_stack("Native stack", native, _NATIVE)]


def _stack(title: str, frames: Sequence[Frame | str], most: int) -> list[str]:
    """The innermost frames, where it failed, and the outermost ones, which say what ran."""
    if not frames:
        return []
    outer = most // 4
    left_out = len(frames) - most
    rows = [frame if isinstance(frame, str) else _row(frame) for frame in frames]
    if left_out > 1:
        rows = [*rows[: most - outer], f"... {left_out} more frames", *rows[-outer:]]
    return [f"### {title}, innermost first", fenced("\n".join(rows))]


def _row(frame: Frame) -> str:
    if isinstance(frame, PythonFrame):
        place = wording.base_name(frame.file) if frame.file else ""
        place += f":{frame.line}" if place and frame.line else ""
        name = frame.function or "(no name)"
    elif isinstance(frame, NativeFrame):
        place = wording.base_name(frame.module) if frame.module else ""
        place += f"+{frame.offset}" if place and frame.offset is not None else ""
        name = wording.native_function(frame)
    else:
        return safe.line(wording.elided_text(frame))
    return safe.line(f"{safe.bounded(name, _TEXT)}  {safe.bounded(place, _TEXT)}").rstrip()


def _versions(crash: Crash) -> str:
    process = crash.process
    rows = {"python": crash.python.version if crash.python else None, "crashkit": crash.crashkit}
    rows.update(process.versions if process else {})
    rows.update({device.name or "GPU": device.sm for gpu in crash.gpu for device in gpu.devices})
    return "\n".join(f"- {escaped(name)} {escaped(value)}" for name, value in rows.items() if value)


def _fingerprint(crash: Crash) -> list[str]:
    found = crash.fingerprint
    if found is None or not found.hash:
        return []
    version = f" (version {found.version})" if found.version is not None else ""
    return [f"Fingerprint {escaped(found.hash)}{version}: {escaped(', '.join(found.frames[:_PYTHON]))}"]


def _masked(crash: Crash) -> list[str]:
    hidden = wording.masked(crash)
    return [f"Masked: {hidden}."] if hidden else []


RENDERER = Renderer("issue.md", lambda crash: issue(crash).encode())
