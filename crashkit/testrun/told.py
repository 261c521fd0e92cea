"""What the reports of a session's crashes say, in the few lines that a test's report and the terminal have room for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from crashkit.crashfolder.manifest import Manifest, read_manifest
from crashkit.testrun.journal import History

if TYPE_CHECKING:
    from crashkit.model import Crash

_WORDS = 2
"""Lines of the end of the log."""
KEPT = "kept"
"""The file in the folder of the session to which the supervisor adds each crash folder."""


class Told(NamedTuple):
    """One crash of the session, from its folder in the store."""

    path: Path
    manifest: Manifest
    report: Optional[Crash]
    """None if the analysis failed."""

    @property
    def pid(self) -> int:
        """As the process itself sees it; 0 if only the log shows the crash."""
        return self.manifest.get("namespace_pid") or self.manifest.get("pid") or 0


def crashes(folder: Path) -> list[Told]:
    """Those that are reported by now, in the order of their reports."""
    try:
        paths = [Path(line) for line in (folder / KEPT).read_text(encoding="utf-8").split("\n")[:-1]]
    except FileNotFoundError:
        return []
    return [open_folder(path) for path in paths]


def of_process(folder: Path, pid: int) -> Optional[Told]:
    """The latest crash of this process, if it is reported by now."""
    return next((crash for crash in reversed(crashes(folder)) if crash.pid == pid), None)


def open_folder(path: Path) -> Told:
    """What a crash folder says; a report that cannot be read counts as none."""
    from crashkit.errors import EvidenceError
    from crashkit.report.json import decode

    try:
        report = decode((path / "report.json").read_bytes())
    except (OSError, EvidenceError):
        report = None
    return Told(path, read_manifest(path) or {}, report)


def text(crash: Told) -> str:
    """Signal and reason; the line with its values; the diagnosis and what to do; the report's path: a line each."""
    from crashkit.report import safe, wording

    lines = [crash.manifest.get("signal_name", "crashed")]
    report = crash.report
    if report is not None:
        lines = _answer(report)
        if finding := wording.best_finding(report):
            lines.append(f"  {wording.confidence(finding).lower()}: {safe.line(finding.title)}")
            lines += [f"  fix: {safe.line(fix)}" for fix in finding.fix[:1] if "\n" not in fix]
        lines += [f"  log ends: {safe.line(row.strip())}" for row in wording.last_words(report)[-_WORDS:]]
    html = crash.path / "report.html"
    lines.append(f"  report: {html if html.exists() else crash.path}")
    return "\n".join(lines)


def _answer(report: Crash) -> list[str]:
    from crashkit.report import answer, gpu_wording, safe, wording

    if report.failed_gpu is not None:
        return [safe.line(gpu_wording.sentence(report, report.failed_gpu))]
    one = report.signal
    where = f", at {one.address}" if one and one.address is not None else ""
    lines = [f"{one.name}: {wording.why(one) or wording.ended(report).lower()}{where}" if one else wording.ended(report)]
    found = answer.answer(report)
    frame = found.frame if found is not None else wording.own_at(report.thread) or wording.python_at(report.thread)
    if frame is not None and frame.file:
        said = answer.beside(found, one) if found is not None else ""
        lines.append(f"  {wording.full_place(frame)} in {frame.function or '(no name)'}{said}")
    elif (native := wording.native_at(report.thread, one)) is not None and report.thread is not None:
        lines.append(f"  {wording.said(report.thread, native)}  {wording.native_place(native)}")
    return list(map(safe.line, lines))


def verdict(folder: Path, history: History, pid: int, status: int, stderr: bytes = b"") -> str:
    """What to say of a test whose process ended in the middle of it. `status` is as subprocess has it."""
    if crash := of_process(folder, pid):
        return text(crash)
    from crashkit.naming.signals import signal_name
    from crashkit.testrun.hang import hangs

    step = history.step(pid)
    for hang in hangs(history, stderr.decode("utf-8", "replace")):
        if hang.pid == pid and step is not None and hang.node == step.node:
            return hang.answer
    if status < 0:
        return f"killed by {signal_name(-status)}; there is no report"
    return f"the process exited with status {status} in the middle of the test, as os._exit() does; there is no report"
